"""Memory errors in the kernel's log: EDAC, firmware first (APEI GHES), raw machine checks, hwpoison.

One fault is often told more than once: by the machine check, by the EDAC driver that decodes it and
by firmware. What says where it was is taken; the rest only where nothing else does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Patterns are compiled (and kept by re) when a line first needs them: most logs have none.
# drivers/edac/edac_mc.c of Linux 6.12, edac_ce_error and edac_ue_error:
# "EDAC MC%d: %d CE %s%son %s (%s page:0x%lx offset:0x%lx ... - %s)"
_EDAC = r"EDAC (MC\d+): (\d+) (CE|UE) (.*?) ?\bon (.+?) \((.*)\)\s*$"
_PAGE = r"\bpage:(0x[0-9a-f]+)"
# drivers/firmware/efi/cper.c, cper_estatus_print: "{1}[Hardware Error]: ..."
_GHES = r"\{(\d+)\}\[Hardware Error\]: *(.*)$"
_GHES_TYPE = r"Error \d+, type: (\S+)"
# arch/x86/kernel/cpu/mce/core.c, __print_mce
_MCE = (
    r"\[Hardware Error\]: CPU \d+: Machine Check(?: Exception| Event)?: [0-9a-f]+ Bank (\d+): ([0-9a-f]{16})"
)
# mm/memory-failure.c
_POISON = r"Memory failure: (0x[0-9a-f]+): (.*)$"

_UNCORRECTED = 1 << 61  # IA32_MCi_STATUS.UC
# Errors of a memory controller have the code 000F 0000 1MMM CCCC (Intel SDM vol. 3B, compound error codes).
_CODE_MASK = 0xEF80
_CODE_MEMORY = 0x0080


class Fault(NamedTuple):
    """One report. ``line`` counts from 0; ``page`` is the page frame where it says so."""

    line: int
    corrected: bool
    errors: int
    where: str  # DIMM label as logged, or what else tells the place
    what: str  # "memory read error", "memory scrubbing error" ...
    controller: str = ""  # MC0 ...
    page: str = ""
    overflow: bool = False  # the hardware had more than it could note


def find(lines: Sequence[str]) -> list[Fault]:
    """All faults, in the order of their lines."""
    candidates = [(i, line) for i, line in enumerate(lines) if _may_tell(line)]
    found = list(_edac(candidates))
    if not found:
        found = list(_ghes(candidates)) or list(_machine_checks(candidates))
    told = {fault.page for fault in found if not fault.corrected}
    found.extend(fault for fault in _poisoned(candidates) if fault.page not in told)
    return sorted(found)


def _may_tell(line: str) -> bool:
    return "EDAC MC" in line or "Hardware Error]" in line or "Memory failure:" in line


def _edac(lines: Iterable[tuple[int, str]]) -> Iterable[Fault]:
    for index, line in lines:
        match = re.search(_EDAC, line)
        if match is None:
            continue
        detail = match[6]
        page = re.search(_PAGE, detail)
        yield Fault(
            index,
            match[3] == "CE",
            int(match[2]),
            match[5],
            match[4] or "memory error",
            match[1],
            page[1] if page is not None else "",
            "OVERFLOW" in detail,
        )


def _ghes(lines: Iterable[tuple[int, str]]) -> Iterable[Fault]:
    """Memory sections of firmware's reports. Lines of one report share the number in braces."""
    severity: dict[str, str] = {}
    for index, line in lines:
        match = re.search(_GHES, line)
        if match is None:
            continue
        number, text = match[1], match[2].strip()
        if text.startswith("event severity: "):
            severity[number] = text.removeprefix("event severity: ")
        elif kind := re.match(_GHES_TYPE, text):
            severity[number] = kind[1]
        elif text == "section_type: memory error" and number in severity:
            # "corrected" and "info" are over; "recoverable" and "fatal" are not (ACPI, CPER).
            corrected = severity[number] in ("corrected", "info")
            yield Fault(index, corrected, 1, "", "memory error told by firmware")


def _machine_checks(lines: Iterable[tuple[int, str]]) -> Iterable[Fault]:
    for index, line in lines:
        match = re.search(_MCE, line)
        if match is None:
            continue
        status = int(match[2], 16)
        if status & _CODE_MASK == _CODE_MEMORY:
            yield Fault(index, not status & _UNCORRECTED, 1, f"bank {match[1]}", "memory controller error")


def _poisoned(lines: Iterable[tuple[int, str]]) -> Iterable[Fault]:
    """Pages that the kernel took out of use after an uncorrected error."""
    seen: set[str] = set()
    for index, line in lines:
        match = re.search(_POISON, line)
        # Several lines a page: what was done for each process, and the result. A page that the
        # administrator took out himself says "soft offline" or "unpoisoned".
        if match is None or match[1] in seen:
            continue
        if not match[2].startswith(("recovery action", "Killing", "Sending")):
            continue
        seen.add(match[1])
        yield Fault(index, False, 1, f"page {match[1]}", "page taken out of use", page=match[1])
