"""What procfs and sysfs say of memory: meminfo, vmstat, swaps, pressure, and choices in brackets."""

from __future__ import annotations

import re
from typing import NamedTuple

from hwtune.text.number import finite

_MEMINFO = re.compile(r"(?:Node +\d+ +)?([^:]+): *(\d+)( kB)?$")
_OCTAL = re.compile(r"\\([0-7]{3})")


class Swap(NamedTuple):
    """A line of /proc/swaps; sizes in bytes."""

    path: str
    type: str
    size_bytes: int
    used_bytes: int
    priority: int


def parse_meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo or a node's meminfo: bytes, and plain counts (``HugePages_*``) as they are.

    Raises ``ValueError`` when no line is one of meminfo.
    """
    found: dict[str, int] = {}
    for line in text.splitlines():
        match = _MEMINFO.match(line.strip())
        if match is not None:
            found[match[1]] = int(match[2]) * (1024 if match[3] else 1)
    if not found:
        raise ValueError("not the text of meminfo")
    return found


def parse_counters(text: str) -> dict[str, int]:
    """/proc/vmstat or a node's numastat: one name and one number a line.

    Raises ``ValueError`` when no line is one of these.
    """
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, number = line.strip().partition(" ")
        number = number.strip()
        if name and number.isdecimal():
            found[name] = int(number)
    if not found:
        raise ValueError("no counter in it")
    return found


def parse_swaps(text: str) -> list[Swap]:
    """/proc/swaps; [] when there is only its heading. Raises ``ValueError`` on anything else."""
    lines = text.splitlines()
    if not lines or not lines[0].startswith("Filename"):
        raise ValueError("not the text of /proc/swaps")
    found = []
    for line in lines[1:]:
        fields = line.split()
        if len(fields) < 5:
            raise ValueError(f"not a line of /proc/swaps: {line[:60]!r}")
        # The name comes first and has its white space escaped; the kernel adds "(deleted)" to it.
        type_, size, used, priority = fields[-4:]
        found.append(Swap(_unescape(fields[0]), type_, int(size) * 1024, int(used) * 1024, int(priority)))
    return found


def _unescape(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def parse_pressure(text: str) -> dict[str, float]:
    """A file of /proc/pressure: ``some_avg10`` ... in percent, ``some_total`` in microseconds
    (Documentation/accounting/psi.rst). Raises ``ValueError`` on anything else."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        kind, *fields = line.split()
        if kind not in ("some", "full"):
            raise ValueError(f"not a line of /proc/pressure: {line[:60]!r}")
        for field in fields:
            name, _, number = field.partition("=")
            found[f"{kind}_{name}"] = finite(number)
    if not found:
        raise ValueError("an empty pressure file")
    return found


def selected(text: str) -> str:
    """The word in brackets of ``always [madvise] never``. Raises ``ValueError`` without one."""
    _, bracket, rest = text.partition("[")
    word, closing, _ = rest.partition("]")
    if not bracket or not closing or not word.strip():
        raise ValueError(f"nothing is chosen in {text[:60]!r}")
    return word.strip()
