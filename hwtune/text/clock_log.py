"""What the kernel's log says of its clocks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# Patterns are compiled (and kept by re) when a line first needs them: most logs have none.
# kernel/time/clocksource.c (Linux 6.12 and before), arch/x86/kernel/tsc.c, arch/x86/kernel/tsc_sync.c
_UNSTABLE = (
    r"watchdog on CPU(?P<cpu>\d+): Marking clocksource '?tsc'? as unstable",
    r"watchdog on CPU(?P<cpu>\d+): .* read-back delay .*marking '?tsc'? unstable",
    r"\bMarking TSC unstable due to (?P<reason>.+)",
    r"\bMarking clocksource '?tsc'? as unstable",
    r"\bClocksource tsc unstable\b",
    r"TSC warp between CPUs, turning off TSC clock",
)
# hrtimer_interrupt() of kernel/time/hrtimer.c: said once a boot, when the handler could not catch up
# with the timers that expired while it ran.
_STALL = r"hrtimer: interrupt took (\d+) ns"


class Unstable(NamedTuple):
    """The kernel gave the TSC up: the line's number, and the CPU and the reason where some line tells."""

    line: int
    cpu: int | None
    reason: str


def unstable(lines: Sequence[str]) -> Unstable | None:
    """The first line that says so; None where none does."""
    first: int | None = None
    cpu: int | None = None
    reason = ""
    for index, line in enumerate(lines):
        if "unstable" not in line and "TSC warp" not in line:
            continue
        for pattern in _UNSTABLE:
            match = re.search(pattern, line)
            if match is None:
                continue
            said = match.groupdict()
            first = index if first is None else first
            if cpu is None and said.get("cpu") is not None:
                cpu = int(said["cpu"])
            reason = reason or (said.get("reason") or "").strip()
            break
    return None if first is None else Unstable(first, cpu, reason)


def stalls(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Line and nanoseconds of each timer interrupt that the kernel said took too long."""
    return [
        (index, int(match[1]))
        for index, line in enumerate(lines)
        if "hrtimer:" in line and (match := re.search(_STALL, line)) is not None
    ]
