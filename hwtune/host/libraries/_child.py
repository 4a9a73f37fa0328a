"""Work that may hang in the kernel, done in a forked child that can be left behind.

A process that waits for a dead device is in state D: no signal ends it, and no thread of it can be
abandoned, as the process does not end before its threads. A child can.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What the child says is small; more than this is a defect.
_LIMIT = 1 << 20
_DEFECT = "defect"


def collect(work: Callable[[], Iterator[tuple[str, Any]]], timeout_s: float) -> tuple[dict[str, Any], bool]:
    """What ``work`` yields, (name, JSON-able answer) by (name, answer), and whether it came to its
    end within ``timeout_s``; if not, the answers until then.

    Raises ``RuntimeError`` for an exception in ``work``, ``OSError`` where no child can be started.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _work(work, writing)
    os.close(writing)
    ended = False
    try:
        said, ended = _read(reading, time.monotonic() + timeout_s)
    finally:
        os.close(reading)
        _leave(child, ended)
    answers: dict[str, Any] = {}
    for line in said.split(b"\n")[:-1]:
        name, answer = msgspec.json.decode(line)
        if name == _DEFECT:
            raise RuntimeError(answer)
        answers[name] = answer
    return answers, ended


def _work(work: Callable[[], Iterator[tuple[str, Any]]], writing: int) -> None:
    """The child's whole life. It leaves without what the parent meant to do at its own end."""
    status = 1
    try:
        for answer in work():
            os.write(writing, msgspec.json.encode(answer) + b"\n")
        status = 0
    except BaseException as error:  # told to the parent, which raises it
        os.write(writing, msgspec.json.encode((_DEFECT, f"{type(error).__name__}: {error}")) + b"\n")
    finally:
        os._exit(status)


def _read(reading: int, deadline: float) -> tuple[bytes, bool]:
    """All that comes until the child closes its end, and whether it did."""
    said = bytearray()
    while len(said) < _LIMIT:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reading], [], [], left)[0]:
            return bytes(said), False
        piece = os.read(reading, 1 << 16)
        if not piece:
            return bytes(said), True
        said += piece
    return bytes(said), False


def _leave(child: int, ended: bool) -> None:
    """Take leave of the child. One that the kernel holds ends when the kernel lets go of it, and init
    reaps it."""
    if ended:
        os.waitpid(child, 0)
        return
    os.kill(child, signal.SIGKILL)
    for _ in range(20):
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.001)
