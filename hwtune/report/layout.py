"""Lines of the text reports: wrapped to the width, with ids and lists whole."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hwtune.report.terminal import Style


def flow(parts: Iterable[str], width: int) -> list[str]:
    """Parts, three spaces apart, in as many lines as they take."""
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1]) + 3 + len(part) > width:
            lines.append("")
        lines[-1] += f"   {part}" if lines[-1] else part
    return lines


def paragraph(text: str, indent: int, style: Style, hang: int | None = None) -> list[str]:
    """Wrapped to the width, further lines at ``hang``; ids, paths and arguments are never broken,
    lists of CPUs are, where one alone is longer than a line."""
    room = style.width - (indent if hang is None else hang)
    words = [w if len(w) <= room else _cut(w, room) for w in text.split(" ")]
    return wrap(
        " ".join(words),
        style.width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent if hang is None else hang),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _cut(word: str, room: int) -> str:
    """A list of CPUs cut after commas into pieces that fit; other words as they are."""
    if word.strip("0123456789,-:.;") not in ("", "cpu"):
        return word
    pieces = [""]
    for part in word.split(","):
        if pieces[-1] and len(pieces[-1]) + len(part) + 1 > room:
            pieces.append("")
        pieces[-1] += part + ","
    return " ".join(pieces).removesuffix(",")
