"""CPU lists and masks as the kernel writes and reads them.

The list grammar is that of the kernel's bitmap_parselist (lib/bitmap.c): comma-separated
numbers and ranges, ``N`` for the last CPU, ``all``, and ``range:used/group`` steps. ``(null)``
and the empty string are the kernel's ways to print an empty set.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# No kernel is built for more (CONFIG_NR_CPUS on x86-64 is at most 8192); what asks for more is
# hostile or garbage, and must not cost memory.
MAX_CPUS = 65_536

_RANGE = re.compile(r"(\d+|N)(?:-(\d+|N)(?::(\d+)/(\d+))?)?")


def parse_list(text: str, last: int | None = None) -> list[int]:
    """Sorted CPU (or node) numbers of a kernel list. ``last`` is what ``N`` and ``all`` stand for.

    Raises ``ValueError`` on anything that the kernel's parser would refuse.
    """
    text = text.strip()
    if text in ("", "(null)"):
        return []
    found: set[int] = set()
    for part in text.split(","):
        part = part.strip()
        if not part:
            continue
        if part == "all" or part.startswith("all:"):
            part = "0-N" + part[3:]
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"not a CPU list: {text[:60]!r}")
        first = _number(match[1], last, text)
        end = first if match[2] is None else _number(match[2], last, text)
        if end < first or end >= MAX_CPUS:
            raise ValueError(f"not a CPU list: {text[:60]!r}")
        if match[3] is None:
            found.update(range(first, end + 1))
            continue
        used, group = int(match[3]), int(match[4])
        if not 0 < used <= group:
            raise ValueError(f"not a CPU list: {text[:60]!r}")
        for start in range(first, end + 1, group):
            found.update(range(start, min(start + used, end + 1)))
    return sorted(found)


def _number(token: str, last: int | None, text: str) -> int:
    if token != "N":
        return int(token)
    if last is None:
        raise ValueError(f"the last CPU is not known: {text[:60]!r}")
    return last


def parse_mask(text: str) -> list[int]:
    """CPU numbers of a hexadecimal mask with a comma after each 32 bits ("ffff,00000000")."""
    digits = text.strip().removeprefix("0x").replace(",", "")
    if not digits or len(digits) > MAX_CPUS // 4 or not all(c in "0123456789abcdefABCDEF" for c in digits):
        raise ValueError(f"not a CPU mask: {text[:60]!r}")
    bits = int(digits, 16)
    return [i for i in range(bits.bit_length()) if bits >> i & 1]


def format_list(cpus: list[int] | set[int] | frozenset[int] | tuple[int, ...]) -> str:
    """The shortest kernel list of a set ("0-3,8"); "none" has no kernel form, so "" it is."""
    parts: list[str] = []
    ordered = sorted(set(cpus))
    i = 0
    while i < len(ordered):
        j = i
        while j + 1 < len(ordered) and ordered[j + 1] == ordered[j] + 1:
            j += 1
        parts.append(str(ordered[i]) if i == j else f"{ordered[i]}-{ordered[j]}")
        i = j + 1
    return ",".join(parts)


def format_mask(cpus: Iterable[int]) -> str:
    """The hexadecimal mask of a set, with a comma after each 32 bits, as the kernel prints it
    ("ffff,00000000"); "0" for none. The highest word has no leading zeros."""
    bits = 0
    for cpu in cpus:
        bits |= 1 << cpu
    digits = f"{bits:x}"
    words = []
    while len(digits) > 8:
        words.append(digits[-8:])
        digits = digits[:-8]
    return ",".join((digits, *reversed(words)))


def show_list(cpus: list[int] | set[int] | frozenset[int] | tuple[int, ...]) -> str:
    """A list for people: as ``format_list``, but with taskset's strides ("0-78:2") where CPUs
    are dealt out over nodes. The kernel writes strides in another way, so never hand it this."""
    ordered = sorted(set(cpus))
    parts: list[str] = []
    i = 0
    while i < len(ordered):
        j = i
        step = ordered[i + 1] - ordered[i] if i + 1 < len(ordered) else 0
        while j + 1 < len(ordered) and ordered[j + 1] - ordered[j] == step:
            j += 1
        if step == 1 or j - i >= 3:
            parts.append(f"{ordered[i]}-{ordered[j]}" + (f":{step}" if step > 1 else ""))
            i = j + 1
        else:
            parts.append(str(ordered[i]))
            i += 1
    return ",".join(parts)
