"""Make text from a machine safe to print: a snapshot may hold terminal escapes in any name."""

from __future__ import annotations


def clean(text: str) -> str:
    """``text`` with every character that is not printable shown as an escape; spaces are kept."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
