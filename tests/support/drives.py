"""Drives that exist in numbers only: when they stand still is known, so what must be found is too."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwtune.drive import schedule
from hwtune.drive.analysis import analyse
from hwtune.drive.device import Device
from hwtune.drive.measure import Control, Measured, Reads
from hwtune.drive.periodic import Period, find, schedule_of, stalls
from hwtune.drive.plan import Plan
from hwtune.drive.results import DriveReport, Target
from hwtune.drive.target import Open
from hwtune.drive.watching import Seen

Numbers = NDArray[np.float64]
USUAL_S = 80e-6


def latencies(due_s: Numbers, stall_starts: Numbers, stall_s: Numbers | float, seed: int) -> Numbers:
    """What each read takes from the time it was due, one at a time, from a drive that does nothing during its
    stalls. Without one a read takes 80 us, give or take 5 %."""
    random = np.random.default_rng(seed)
    service = USUAL_S * (1 + 0.05 * np.clip(random.standard_normal(len(due_s)), -3, 3))
    found = service.copy()
    order = np.argsort(stall_starts)
    starts = np.asarray(stall_starts, dtype=float)[order]
    ends = starts + np.broadcast_to(np.asarray(stall_s, dtype=float), starts.shape)[order]
    free = 0.0
    for begin, end in zip(starts, ends, strict=True):
        at = max(int(np.searchsorted(due_s, begin, side="right")) - 1, 0)
        free = max(free, float(due_s[at - 1] + found[at - 1]) if at else 0.0)
        while at < len(due_s) and (due_s[at] < end or due_s[at] < free):
            start = max(float(due_s[at]), free)
            done = start + service[at]
            if start < end and done > begin:  # met, or under way when it began
                done = end + (done - max(start, begin) if start > begin else done - begin)
            found[at] = max(found[at], done - due_s[at])
            free = float(due_s[at] + found[at])
            at += 1
    return found


def due(duration_s: float, rate: float, seed: int) -> Numbers:
    return np.asarray(schedule.steady(duration_s, rate, seed) / 1e9)


def train(period_s: float, duration_s: float, seed: int) -> Numbers:
    """Stalls at regular times, the first one anywhere."""
    return np.arange(np.random.default_rng(seed).uniform(0, period_s), duration_s, period_s)


def at_random(count: float, duration_s: float, seed: int) -> Numbers:
    random = np.random.default_rng(seed)
    return np.sort(random.uniform(0, duration_s, random.poisson(count)))


def bursts(count: int, each: int, duration_s: float, apart_s: float, seed: int) -> Numbers:
    starts = np.random.default_rng(seed).uniform(0, duration_s, count)
    return np.sort((starts[:, None] + apart_s * np.arange(each)).ravel())


def searched(stall_starts: Numbers, stall_s: Numbers | float, duration_s: float, seed: int) -> Period | None:
    """What is said of a drive with these stalls, read 2,000 times a second."""
    times = due(duration_s, 2000, seed)
    plan = schedule_of(times)
    return find(stalls(times, latencies(times, stall_starts, stall_s, seed + 1), plan), plan)


# -- whole measurements ------------------------------------------------------------------------

_START = 1_000_000_000_000  # CLOCK_MONOTONIC at which every phase begins
Gaps = tuple[Numbers, Numbers]
NO_GAPS: Gaps = (np.empty(0), np.empty(0))


def gaps_at(starts: Numbers, length_s: float) -> Gaps:
    return starts, np.full(len(starts), length_s)


def reads(
    name: str, due_s: Numbers, latency_s: Numbers, gaps: Gaps = NO_GAPS, failed: int = 0, lost: int = 0
) -> Reads:
    """One phase as the native reader gives it; submission takes 5 us."""

    def ns(values: Numbers) -> NDArray[np.uint64]:
        return np.asarray(np.round(values * 1e9), dtype=np.uint64)

    return Reads(
        name=name,
        started_ns=_START,
        ended_ns=int(1e9 * (due_s[-1] + latency_s[-1])),
        due_ns=ns(due_s),
        latency_ns=ns(latency_s),
        submit_ns=np.full(len(due_s), 5_000, dtype=np.uint64),
        gap_starts_ns=ns(gaps[0]),
        gap_lengths_ns=ns(gaps[1]),
        gaps_lost=lost,
        failed=failed,
        error=5 if failed else 0,
        unfinished_ns=0,
    )


def control(seconds: float = 5.0, gaps: Gaps = NO_GAPS) -> Control:
    starts, lengths = (np.asarray(np.round(g * 1e9), dtype=np.uint64) for g in gaps)
    return Control(
        int(seconds * 1e9), starts, lengths, int(lengths.sum()), int(lengths.max()) if len(lengths) else 0
    )


def seen(own_ends_s: Numbers, others_s: Numbers, duration_s: float) -> Seen:
    """A look at the drive's counters every 20 ms: our own reads, and somebody's writes at these times."""
    looks = np.arange(0, duration_s, 0.02)
    return Seen(
        (looks * 1e9).astype(np.int64) + _START,
        np.searchsorted(np.sort(own_ends_s), looks),
        np.searchsorted(np.sort(others_s), looks),
    )


def phase(
    name: str,
    stall_starts: Numbers,
    stall_s: Numbers | float,
    duration_s: float,
    seed: int,
    gaps: Gaps = NO_GAPS,
) -> Reads:
    times = due(duration_s, 2000, seed)
    return reads(name, times, latencies(times, stall_starts, stall_s, seed + 1), gaps)


def resting(extra_s: dict[float, float], seed: int = 1) -> tuple[schedule.Rests, Reads]:
    """Rests of the long plan, after each of which the first read takes so much more (by milliseconds of
    rest)."""
    plan = schedule.rests(schedule.RESTS, seed)
    times = plan.due_ns / 1e9
    taken = latencies(times, np.empty(0), 0.0, seed + 1)
    taken[plan.first] += [extra_s.get(float(rest), 0.0) for rest in plan.rest_ms]
    return plan, reads("rests", times, taken)


def measured(
    *phases: Reads,
    others_s: Numbers | None = None,
    rests: tuple[schedule.Rests, Reads] | None = None,
    control: Control | None = control(),  # noqa: B008  # never written to
) -> Measured:
    first = phases[0]
    ends = (first.due_ns + first.latency_ns) / 1e9
    others = np.empty(0) if others_s is None else others_s
    return Measured(
        rate=2000.0,
        control=control,
        phases=list(phases),
        rests=rests,
        seen=seen(ends, others, first.ended_ns / 1e9),
        written=0,
        write_failed="",
        io_uring=True,
        why="",
        clock="tsc, 10 ns a reading",
        seconds=first.ended_ns / 1e9,
        interrupted=False,
    )


def report(found: Measured, device: Device | None = None) -> DriveReport:
    """What is said of it: of nvme0n1, read from CPU 3."""
    target = Target("device", "/dev/nvme0n1", "nvme0n1", ["nvme0n1"], "nvme0", "ACME 960", 960 << 30, [])
    plan = Plan(3, None, 60.0, 5.0, schedule.RESTS, False)
    return analyse(Open(-1, target, 4096), plan, found, device or Device())
