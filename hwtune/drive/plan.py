"""What a measurement will do, and on which CPU; said before it begins."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from hwtune.drive import schedule
from hwtune.errors import UsageError
from hwtune.text.cpulist import parse_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hwtune.drive.results import Target

MOST_READS = 2_000_000
PILOT_S = 1.0
# Of the rates that a drive allows; a read takes a quarter of the mean gap at most.
MOST_RATE, LEAST_RATE, GAP_MULTIPLE = 2000.0, 20.0, 4.0
WRITE_RATE = 50 << 20  # bytes a second
WRITE_FILE = 256 << 20
WRITE_MOST = 1 << 30  # bytes in all


class Plan(NamedTuple):
    """``rate``: reads a second; None: by what the drive takes. ``steady_s``: of the quiet reads."""

    cpu: int
    rate: float | None
    steady_s: float
    control_s: float
    rests: Sequence[tuple[float, int]]
    writes: bool
    seed: int = 1

    @property
    def writing_s(self) -> float:
        """Of the reads beside writes, and again of those after them."""
        return min(self.steady_s, WRITE_MOST / WRITE_RATE) if self.writes else 0.0

    @property
    def total_s(self) -> float:
        resting = sum(ms / 1000 * times for ms, times in self.rests) + 0.005 * sum(t for _, t in self.rests)
        return PILOT_S + self.control_s + self.steady_s + resting + 2 * self.writing_s


def plan(
    target: Target,
    duration_s: float,
    rate: float | None,
    writes: bool,
    cpu: int,
    sleeps_ms: Sequence[float] = (),
    seed: int = 1,
) -> Plan:
    """For ``duration_s`` of quiet reads, with as many rests as suit it. Raises ``UsageError``."""
    if not os.path.exists(f"/sys/devices/system/cpu/cpu{cpu}"):
        raise UsageError(f"there is no CPU {cpu} here.")
    if rate is not None and rate * duration_s > MOST_READS:
        raise UsageError(
            f"{rate:g} reads a second for {duration_s:g} s are more than {MOST_READS:,}; choose less."
        )
    long = duration_s >= 30
    rests = schedule.around(
        schedule.RESTS if long else schedule.RESTS_SHORT, sleeps_ms, 5000 if long else 600
    )
    return Plan(
        cpu=cpu,
        rate=rate,
        steady_s=duration_s,
        control_s=max(1.0, min(5.0, duration_s / 10)),
        rests=rests,
        writes=writes,
        seed=seed,
    )


def choose_cpu(target: Target, taken: Iterable[int] = ()) -> int:
    """One near the drive that is neither CPU 0, nor kept apart for others, nor ``taken`` where that can
    be."""
    allowed = os.sched_getaffinity(0)
    allowed = allowed.difference(taken) or allowed
    apart = _list("/sys/devices/system/cpu/isolated") | _list("/sys/devices/system/cpu/nohz_full")
    ordinary = (allowed - apart) or allowed
    near = ordinary & _near(target)
    candidates = (near - {0}) or near or (ordinary - {0}) or ordinary
    return max(candidates)


def _near(target: Target) -> set[int]:
    for disk in target.disks:
        for folder in (f"/sys/block/{disk}/device", f"/sys/block/{disk}/device/device"):
            node = _read(f"{folder}/numa_node")
            if node.isdecimal():
                return _list(f"/sys/devices/system/node/node{node}/cpulist")
    return set()


def _list(path: str) -> set[int]:
    try:
        return set(parse_list(_read(path)))
    except ValueError:  # "(null)" of kernels without the option
        return set()


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:  # not every drive has a node, nor every kernel the file
        return ""


def announcement(target: Target, planned: Plan) -> str:
    """What it will do and for how long, before it begins."""
    what = f"Reads {target.path}, one block of {4096} bytes at a time at random places,"
    if target.kind == "file":
        what = (
            f"Makes a file of {target.bytes >> 20} MiB without a name in {target.path}, reads from it"
            " one block of 4096"
            " bytes at a time at random places, and leaves nothing of it;"
        )
    rate = f"at most {planned.rate or MOST_RATE:g} times a second"
    told = f"{what} {rate}, for about {planned.total_s:.0f} s. CPU {planned.cpu} is fully busy meanwhile."
    if target.kind == "device":
        told += " Writes nothing."
    if planned.writes:
        written = planned.writing_s * WRITE_RATE / (1 << 20)
        told += (
            f" In the middle it writes {written:,.0f} MiB, {WRITE_RATE >> 20} MiB a second, into a"
            " file of its own"
            f" of {WRITE_FILE >> 20} MiB without a name."
        )
    return told + " Ctrl-C ends it, and what was measured until then is reported."
