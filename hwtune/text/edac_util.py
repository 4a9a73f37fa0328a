"""The counts that ``edac-util -v`` (edac-utils) prints."""

from __future__ import annotations

import re
from typing import NamedTuple

_LINE = re.compile(r"(mc\d+): (?:(csrow\d+): )?(?:(.+?): )?(\d+) (Uncorrected|Corrected) Errors")


class Count(NamedTuple):
    controller: str
    where: str  # DIMM label, chip-select row, or "" where the driver could not tell
    corrected: bool
    errors: int


def parse(text: str) -> list[Count]:
    """All counts, zeros too. Raises ``ValueError`` where there is none."""
    found = [
        Count(match[1], (match[3] or match[2] or "").strip(), match[5] == "Corrected", int(match[4]))
        for line in text.splitlines()
        if (match := _LINE.search(line)) is not None
    ]
    if not found:
        raise ValueError("no count of errors in it")
    return found
