"""Drives that exist in numbers only: when they stand still is known, so what must be found is too."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwtune.drive import schedule
from hwtune.drive.periodic import Period, find, schedule_of, stalls

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
