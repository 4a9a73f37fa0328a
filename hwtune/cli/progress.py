"""How far a measurement is, on a terminal (stderr, so that reports can be piped).

A line and a carriage return, not rich's bar: that takes milliseconds to draw, and where CPUs are few it would
draw on one that is being measured.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    #: is given the seconds that have gone by
    Shown = Callable[[float], None]

_CLEAR = "\r\x1b[K"


@contextmanager
def progress(total_s: float) -> Iterator[Shown | None]:
    """What is to be called about once a second; None where stderr is no terminal."""
    terminal = sys.stderr
    if terminal is None or not terminal.isatty():
        yield None
        return
    try:
        yield lambda elapsed_s: _say(
            terminal, f"{_CLEAR}measuring: {_clock(min(elapsed_s, total_s), total_s)}"
        )
    finally:
        _say(terminal, _CLEAR)


def _clock(elapsed_s: float, total_s: float) -> str:
    """ "3 of 10 s", "1:05 of 30:00" """
    if total_s < 100:
        return f"{elapsed_s:.0f} of {total_s:.3g} s"
    return f"{_minutes(elapsed_s)} of {_minutes(total_s)}"


def _minutes(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02}"


def _say(terminal: TextIO, text: str) -> None:
    terminal.write(text)
    terminal.flush()
