"""Huge pages asked for on the kernel's command line (Documentation/admin-guide/mm/hugetlbpage.rst).

``hugepages=`` follows the ``hugepagesz=`` or ``default_hugepagesz=`` that it is for; one before any
of these is for the default size. Since Linux 5.16 it may name nodes: ``hugepages=0:512,1:512``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

# Compiled (and kept by re) where an argument first needs them: most command lines have none.
_SIZE = r"(\d+)([kKmMgGtT]?)"
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_COUNT = r"\d{1,12}"
_NODES = r"\d{1,5}:\d{1,12}(,\d{1,5}:\d{1,12})*"


class Request(NamedTuple):
    """``pages`` of ``size_kb`` (None: the default size), and how many of them on which node."""

    size_kb: int | None
    pages: int
    nodes: dict[int, int]
    text: str


def parse_size_kb(text: str) -> int:
    """ "2M" and the like in KiB, as memparse() of lib/cmdline.c reads it. Raises ``ValueError``."""
    match = re.fullmatch(_SIZE, text.strip())
    if match is None:
        raise ValueError(f"not a size: {text[:40]!r}")
    return (int(match[1]) << _SHIFTS[match[2].lower()]) >> 10


def requests(arguments: Iterable[tuple[str, str | None]]) -> list[Request]:
    """What the arguments (name, value) ask for, in their order; the last one of a size is in force.

    What the kernel would refuse (no such size, no number) asks for nothing.
    """
    found: dict[int | None, Request] = {}
    size: int | None = None
    valid = True
    for name, value in arguments:
        if name in ("hugepagesz", "default_hugepagesz"):
            try:
                size, valid = parse_size_kb(value or ""), True
            except ValueError:
                valid = False  # the kernel ignores the hugepages= that follows as well
        elif name == "hugepages" and valid and value:
            request = _request(size, value)
            if request is not None:
                found[size] = request
    return list(found.values())


def _request(size: int | None, value: str) -> Request | None:
    text = f"hugepages={value}" if size is None else f"hugepagesz={_show(size)} hugepages={value}"
    if re.fullmatch(_COUNT, value):
        return Request(size, int(value), {}, text)
    if re.fullmatch(_NODES, value):
        nodes = {int(n): int(c) for n, _, c in (part.partition(":") for part in value.split(","))}
        return Request(size, sum(nodes.values()), nodes, text)
    return None


def _show(size_kb: int) -> str:
    if size_kb and size_kb % (1 << 20) == 0:
        return f"{size_kb >> 20}G"
    return f"{size_kb >> 10}M" if size_kb and size_kb % 1024 == 0 else f"{size_kb}K"
