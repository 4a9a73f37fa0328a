"""Width and colour of the text reports."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

_CODES = {"error": "1;31", "warning": "1;33", "info": "1;36", "ok": "32", "bold": "1", "dim": "2"}
NARROWEST, WIDEST = 60, 120


class Style(NamedTuple):
    """``width`` in columns; ``colour`` only for a terminal, and never with NO_COLOR (no-color.org)."""

    width: int
    colour: bool

    def paint(self, text: str, kind: str) -> str:
        return f"\x1b[{_CODES[kind]}m{text}\x1b[0m" if self.colour else text


def style_for(output: str | None) -> Style:
    """The style for stdout, or for a file when ``output`` names one."""
    if output is not None or sys.stdout is None or not sys.stdout.isatty():
        return Style(80, False)
    try:
        columns = os.get_terminal_size(sys.stdout.fileno()).columns
    except OSError:  # a terminal that does not tell its size
        columns = 80
    colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Style(min(max(columns or 80, NARROWEST), WIDEST), colour)
