"""/proc/net/softnet_stat: a line a CPU that is online, in hexadecimal (net/core/net-procfs.c)."""

from __future__ import annotations

from typing import NamedTuple

# processed, dropped, time_squeeze are the first three; the CPU's number is the 13th, since Linux 5.10
_CPU = 12


class Line(NamedTuple):
    cpu: int | None  # None on kernels that do not say
    processed: int
    dropped: int
    squeezed: int


def parse(text: str) -> list[Line]:
    """Raises ``ValueError`` for anything else."""
    found = []
    for line in text.splitlines():
        words = [_hexadecimal(word) for word in line.split()]
        if len(words) < 3:
            raise ValueError("too few columns")
        found.append(Line(words[_CPU] if len(words) > _CPU else None, *words[:3]))
    if not found:
        raise ValueError("no CPU in it")
    return found


def _hexadecimal(word: str) -> int:
    if len(word) != 8:
        raise ValueError("not a word of eight digits")
    return int(word, 16)
