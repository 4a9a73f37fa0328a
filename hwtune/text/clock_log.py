"""What the kernel's log says of its clocks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# kernel/time/clocksource.c (Linux 6.12 and before), arch/x86/kernel/tsc.c, arch/x86/kernel/tsc_sync.c
_UNSTABLE = (
    re.compile(r"watchdog on CPU(?P<cpu>\d+): Marking clocksource '?tsc'? as unstable"),
    re.compile(r"watchdog on CPU(?P<cpu>\d+): .* read-back delay .*marking '?tsc'? unstable"),
    re.compile(r"\bMarking TSC unstable due to (?P<reason>.+)"),
    re.compile(r"\bMarking clocksource '?tsc'? as unstable"),
    re.compile(r"\bClocksource tsc unstable\b"),
    re.compile(r"TSC warp between CPUs, turning off TSC clock"),
)
# hrtimer_interrupt() of kernel/time/hrtimer.c: said once a boot, when the handler could not catch up
# with the timers that expired while it ran.
_STALL = re.compile(r"hrtimer: interrupt took (\d+) ns")


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
            match = pattern.search(line)
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
        if "hrtimer:" in line and (match := _STALL.search(line)) is not None
    ]
