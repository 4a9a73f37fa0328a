"""Lines of the kernel's log that tell of CPU clocks held down."""

from __future__ import annotations

import re
from typing import NamedTuple

# Patterns are compiled (and kept by re) when a line first needs them: most logs have none.
# drivers/thermal/intel/therm_throt.c: "CPU3: Core temperature above threshold, cpu clock throttled
# (total events = 7)"; "is above" and "is throttled" since 5.5; without "Core" before 2.6.37
_THROTTLED = (
    r"\bCPU(\d{1,5}): (Core |Package )?[Tt]emperature (?:is )?above threshold, cpu clock (?:is )?throttled"
    r"(?: \(total events = (\d{1,20})\))?"
)
_POWER = r"\bCPU\d{1,5}: (?:Core |Package )?power limit notification"
# drivers/cpufreq/powernv-cpufreq.c: "CPU 8 on Chip 0 has Pmax reduced below nominal frequency (..)",
# "OCC: Chip 0 Pmax reduced due to Power Cap"
_FIRMWARE = r"\bPmax reduced (?:due to|below)\b"
_PROCHOT = r"(?i)\bprochot\b(?!.{0,20}\b(?:disabled|offset)\b)"


class Event(NamedTuple):
    """``total`` events of that CPU since boot; 1 where the line tells no number."""

    cpu: int
    package: bool
    total: int


def throttle(text: str) -> Event | None:
    if "hrottled" not in text:
        return None
    match = re.search(_THROTTLED, text)
    if match is None:
        return None
    return Event(int(match[1]), match[2] == "Package ", int(match[3] or 1))


def note(text: str) -> str | None:
    """ "prochot", "power-limit", "firmware", or None."""
    if "power limit" in text and re.search(_POWER, text):
        return "power-limit"
    if "Pmax" in text and re.search(_FIRMWARE, text):
        return "firmware"
    if ("rochot" in text or "ROCHOT" in text) and re.search(_PROCHOT, text):
        return "prochot"
    return None
