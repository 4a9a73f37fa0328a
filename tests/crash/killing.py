"""Run something in a process of its own and kill it at one chosen step.

A step is a system call that changes a file or a folder (each write twice: before it, and half done),
or a change that the fake kernel or one of its programs makes. SIGKILL comes just before the step, so
that all steps and the whole run are all that a kill can leave.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fake_kernel import FakeKernel

CALLS = (
    "pwrite", "fsync", "fdatasync", "rename", "replace", "unlink", "remove", "rmdir", "mkdir", "symlink",
    "link", "truncate", "ftruncate", "chmod", "fchmod", "chown", "fchown", "lchown", "utime", "setxattr",
    "posix_fallocate", "sendfile", "copy_file_range",
)  # fmt: skip
_WRITING = os.O_CREAT | os.O_TRUNC


class Steps:
    """Wraps the functions of ``os`` while it is entered. ``at`` is the step before which the process
    is killed, 0 for none; ``told`` are the steps so far."""

    def __init__(self, at: int = 0, watch: Callable[[str, tuple[Any, ...]], None] | None = None) -> None:
        self.at = at
        self.told: list[str] = []
        self._watch = watch
        self._kept = {name: getattr(os, name) for name in (*CALLS, "write", "open") if hasattr(os, name)}

    def __enter__(self) -> Steps:
        for name, function in self._kept.items():
            setattr(
                os, name, {"write": self._write, "open": self._open}.get(name) or self._wrap(name, function)
            )
        return self

    def __exit__(self, *nothing: object) -> None:
        for name, function in self._kept.items():
            setattr(os, name, function)

    def step(self, what: str, *arguments: Any) -> None:
        self.told.append(what)
        if self._watch is not None:
            self._watch(what, arguments)
        if len(self.told) == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def _wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any, **named: Any) -> Any:
            self.step(name, *arguments)
            return function(*arguments, **named)

        return stepped

    def _write(self, handle: int, data: Any) -> int:
        write = self._kept["write"]
        self.step("write", handle, bytes(data))
        self.told.append("half a write")
        if len(self.told) == self.at:
            write(handle, bytes(data)[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        written: int = write(handle, data)
        return written

    def _open(self, path: Any, flags: int, *arguments: Any, **named: Any) -> int:
        if flags & _WRITING:
            self.step("open", path)
        handle: int = self._kept["open"](path, flags, *arguments, **named)
        return handle


def killed(work: Callable[[], object], kernel: FakeKernel, at: int) -> bool:
    """Do ``work`` in a child that is killed before step ``at``: False where it came to its end before.
    Anything else that ends it fails the test."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            with Steps(at) as steps:
                kernel.point = steps.step
                work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        return True
    assert os.WEXITSTATUS(status) == 0, "the run failed before it was killed; its traceback is above"
    return False
