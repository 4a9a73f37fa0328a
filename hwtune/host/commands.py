"""Programs that only read, run with bounds on their time, output and environment."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

from hwtune.fact import ABSENT, TOO_LARGE, UNREADABLE, Fact
from hwtune.host import gaps
from hwtune.host.base import CommandResult

if TYPE_CHECKING:
    from collections.abc import Sequence

SEARCHED = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
# ``nvidia-smi -q`` of 16 GPUs is below 1 MiB; a program that prints more than this has gone wrong.
OUTPUT_LIMIT = 8 << 20
# How long an ended program's children may hold its output open.
_GRACE_S = 0.2
# Handles that every program gets too: the journal's lock, so that no second run meets a program that a
# run which was killed has left at work.
handed_on: set[int] = set()


def run(argv: Sequence[str], timeout_s: float) -> Fact[CommandResult]:
    """The exit status and output of a program: ABSENT where there is none, UNREADABLE where it
    did not end in time, TOO_LARGE beyond ``OUTPUT_LIMIT``."""
    source = " ".join(argv)
    program = _program(argv[0])
    if program is None:
        return Fact(None, source, ABSENT)
    try:
        child = subprocess.Popen(
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Nothing of the caller's environment: no LD_PRELOAD, no pager, no language.
            env={"PATH": ":".join(SEARCHED), "LC_ALL": "C", "HOME": "/"},
            cwd="/",
            start_new_session=True,
            pass_fds=tuple(handed_on),
        )
    except OSError as error:
        kind, detail = gaps.of_error(error)
        return Fact(None, source, UNREADABLE if kind == ABSENT else kind, detail)
    except ValueError as error:  # a NUL in an argument
        return Fact(None, source, UNREADABLE, str(error))
    with child:
        try:
            output, problem = _collect(child, timeout_s)
        finally:
            _kill_group(child)
    if problem is not None:
        return Fact(None, source, *problem)
    out, err = (bytes(text).decode("utf-8", "replace") for text in output)
    return Fact(CommandResult(child.returncode, out, err), source, None)


def _program(name: str) -> str | None:
    if "/" in name:
        candidates = [name] if name.startswith("/") else []
    else:
        candidates = [f"{folder}/{name}" for folder in SEARCHED]
    for path in candidates:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def _collect(
    child: subprocess.Popen[bytes], timeout_s: float
) -> tuple[list[bytearray], tuple[str, str] | None]:
    """Both outputs until the program ends, or what went wrong as (gap kind, detail)."""
    deadline = time.monotonic() + timeout_s
    texts = [bytearray(), bytearray()]
    with selectors.DefaultSelector() as selector:
        for text, pipe in zip(texts, (child.stdout, child.stderr), strict=True):
            assert pipe is not None
            selector.register(pipe, selectors.EVENT_READ, text)
        while selector.get_map():
            if _ended(child):
                deadline = min(deadline, time.monotonic() + _GRACE_S)
            left = deadline - time.monotonic()
            if left <= 0:
                break
            for key, _ in selector.select(min(left, 0.05)):
                piece = os.read(key.fd, 1 << 16)
                if not piece:
                    selector.unregister(key.fileobj)
                    continue
                key.data.extend(piece)
                if len(key.data) > OUTPUT_LIMIT:
                    return texts, (TOO_LARGE, f"printed over {OUTPUT_LIMIT} bytes")
    while not _ended(child):
        if time.monotonic() >= deadline:
            return texts, (UNREADABLE, f"did not end within {timeout_s:g} s")
        time.sleep(0.002)
    return texts, None


def _ended(child: subprocess.Popen[Any]) -> bool:
    """Whether it has ended. It is not reaped yet, so that its number stays its own and the
    signal to its group cannot meet a stranger."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill_group(child: subprocess.Popen[Any]) -> None:
    """End what the program may have left running in its own session."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # Nobody is left, or what is left changed its user: it cannot hold us, as our ends of its
        # pipes are closed next.
        return
