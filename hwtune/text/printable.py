"""Names from somebody else, made safe to show."""

from __future__ import annotations

_LONGEST = 120


def printable(text: str) -> str:
    """One short line without control characters: what a terminal would obey is escaped."""
    shown = text if text.isprintable() else text.encode("unicode_escape", "backslashreplace").decode("ascii")
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 3] + "..."
