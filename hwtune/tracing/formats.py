"""What the kernel says of the layout of its trace records (events/*/*/format, events/header_page)."""

from __future__ import annotations

import re
from typing import NamedTuple

_FIELD = re.compile(
    r"^\s*field:(?P<text>[^;]*);\s*offset:(?P<offset>\d+);\s*size:(?P<size>\d+);(?:\s*signed:(?P<signed>[01]);)?",
    re.MULTILINE,
)
_SYMBOL = re.compile(r"\{\s*(0x[0-9a-fA-F]+|\d+)\s*,\s*\"([^\"]*)\"\s*\}")


class Field(NamedTuple):
    """``offset`` and ``size`` in bytes, from the start of the record."""

    offset: int
    size: int
    signed: bool
    is_string: bool  # of a size of its own: the field tells where (__data_loc)


class Format(NamedTuple):
    id: int
    fields: dict[str, Field]
    symbols: dict[int, str]  # the values that the print format names


class PageLayout(NamedTuple):
    """Of one page of the ring buffer, in bytes."""

    commit: Field
    data: Field


def parse_format(text: str) -> Format:
    """Raises ``ValueError`` for anything that is no format file."""
    number = re.search(r"^ID:\s*(\d+)\s*$", text, re.MULTILINE)
    fields = _fields(text)
    if number is None or "common_type" not in fields or "common_pid" not in fields:
        raise ValueError("not an event's format")
    _, _, printed = text.partition("print fmt:")
    symbols = {int(value, 0): name for value, name in _SYMBOL.findall(printed)}
    return Format(int(number[1]), fields, symbols)


def parse_header_page(text: str) -> PageLayout:
    """Raises ``ValueError``."""
    fields = _fields(text)
    if "commit" not in fields or "data" not in fields:
        raise ValueError("not the layout of a trace page")
    layout = PageLayout(fields["commit"], fields["data"])
    if layout.commit.size not in (4, 8) or layout.data.offset % 4 or layout.data.size < 64:
        raise ValueError("a layout of trace pages that hwtune does not know")
    return layout


def _fields(text: str) -> dict[str, Field]:
    found = {}
    for match in _FIELD.finditer(text):
        declared = match["text"].strip()
        name = re.sub(r"\[[^\]]*\]$", "", declared).split()[-1].lstrip("*") if declared else ""
        if name:
            found[name] = Field(
                int(match["offset"]), int(match["size"]), match["signed"] == "1", "__data_loc" in declared
            )
    return found
