"""When reads are due.

The gaps vary: even ones would meet every stall of a regular train at the same point, or miss them all.
Idle experiments let the drive rest for known times and look at the first read after each: what sleeps must
wake up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

# A gap lies between these shares of the mean one.
_SHORTEST, _LONGEST = 0.5, 1.5
# Milliseconds of rest, and how often. The kernel lets drives sleep after 100 ms and after 2 s by default
# (drivers/nvme/host/core.c, apst_primary_timeout_ms and apst_secondary_timeout_ms).
RESTS = ((1, 16), (3, 16), (10, 12), (30, 10), (60, 8), (150, 6), (400, 5), (1000, 4), (2300, 4))
RESTS_SHORT = ((1, 12), (3, 12), (10, 8), (30, 6), (60, 5), (150, 5), (400, 4))
# Reads before each rest and behind its first one: the drive is awake for those.
_BEFORE = 4
_BETWEEN_MS = 1.0


class Rests(msgspec.Struct, frozen=True):
    """``due_ns``: the schedule. ``first``: which reads are the first after a rest; ``rest_ms``: how long
    each of these rests was."""

    due_ns: NDArray[np.uint64]
    first: NDArray[np.intp]
    rest_ms: NDArray[np.float64]

    @property
    def duration_s(self) -> float:
        return float(self.due_ns[-1]) / 1e9


def steady(duration_s: float, rate: float, seed: int) -> NDArray[np.uint64]:
    """``rate`` reads a second in the mean, for ``duration_s``; nanoseconds, at least one read."""
    import numpy as np

    mean_ns = 1e9 / rate
    count = int(duration_s * rate * 1.02) + 16
    gaps = np.random.default_rng(seed).uniform(_SHORTEST * mean_ns, _LONGEST * mean_ns, count)
    due = np.cumsum(gaps)
    due = due[due < duration_s * 1e9]
    return (due if len(due) else np.array([0.0])).astype(np.uint64)


def rests(plan: Iterable[tuple[float, int]], seed: int, busy_ms: float = _BETWEEN_MS) -> Rests:
    """Rests of (milliseconds, how often), in random order. ``busy_ms``: between the reads that keep the drive
    awake."""
    import numpy as np

    order = _shuffled(plan, seed)
    due: list[float] = []
    first: list[int] = []
    now = 0.0
    for rest in order:
        for _ in range(_BEFORE):
            now += busy_ms
            due.append(now)
        now += rest
        first.append(len(due))
        due.append(now)
    for _ in range(_BEFORE):
        now += busy_ms
        due.append(now)
    return Rests((np.array(due) * 1e6).astype(np.uint64), np.array(first, dtype=np.intp), order)


def _shuffled(plan: Iterable[tuple[float, int]], seed: int) -> NDArray[np.float64]:
    import numpy as np

    every = np.concatenate([np.full(times, rest, dtype=np.float64) for rest, times in plan])
    return np.random.default_rng(seed).permutation(every)


def around(
    plan: Iterable[tuple[float, int]], sleeps_ms: Iterable[float], longest_ms: float
) -> list[tuple[float, int]]:
    """The plan with rests on both sides of the times after which this drive goes to sleep (APST table)."""
    found = {float(rest): times for rest, times in plan}
    for sleep in sleeps_ms:
        for rest in (0.7 * sleep, 1.3 * sleep):
            if 1 <= rest <= longest_ms:
                found.setdefault(rest, 4)
    return sorted(found.items())
