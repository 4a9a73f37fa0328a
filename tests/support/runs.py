"""A run of the pipeline as the native module would hand it over, made of known numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hwtune._native import Histogram
from hwtune.validate import buckets
from hwtune.validate.budget import Budget
from hwtune.validate.placement import Placement
from hwtune.validate.run import END_TO_END, STAGES, Outlier, Queue, Run, Thread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

# nanoseconds that the usual tick spends in each stage
USUAL = {
    "generate": 100,
    "tick-queue": 400,
    "features": 80,
    "inference": 15_000,
    "order-queue": 300,
    "order": 120,
}
CPUS = {"generator": 1, "compute": 2, "orders": 3}


def placement(cpus: Mapping[str, int] = CPUS, **changes: Any) -> Placement:
    values: dict[str, Any] = {
        "cpus": dict(cpus),
        "rest": [0],
        "requested": False,
        "why": ["CPU 1-3 are isolated."],
        "given_up": [],
    }
    return Placement(**{**values, **changes})


def budget(sla_us: float = 3200.0, **stages: float) -> Budget:
    return Budget({name.replace("_", "-"): us for name, us in stages.items()}, sla_us, "built in")


def thread(role: str, cpu: int, **counts: int) -> Thread:
    values: dict[str, Any] = {
        "roles": (role,),
        "cpu": cpu,
        "minor_faults": 0,
        "major_faults": 0,
        "voluntary_switches": 0,
        "involuntary_switches": 0,
        "migrations": 0,
        "counters": {},
        "counters_missing": "perf_event_paranoid is 3",
    }
    return Thread(**{**values, **counts})


def histogram(ns: NDArray[Any]) -> Histogram:
    found = Histogram()
    found.record_many(np.ascontiguousarray(ns, dtype=np.uint64))
    return found


def run(
    ticks: int = 100_000,
    windows: int = 100,
    usual: Mapping[str, int] = USUAL,
    late: Mapping[str, int] | None = None,
    late_share: float = 0.02,
    **changes: Any,
) -> Run:
    """Each stage takes its usual time, spread by a tenth; some ticks take ``late`` ns more there."""
    random = np.random.default_rng(1)
    stages = {name: usual[name] * random.uniform(0.95, 1.05, ticks) for name in STAGES}
    slow = random.random(ticks) < late_share
    for name, more in (late or {}).items():
        stages[name] = stages[name] + slow * more
    whole = sum(stages.values())
    counts = np.zeros((windows, buckets.COUNT), dtype=np.uint32)
    if windows:
        for row, part in zip(counts, np.array_split(whole, windows), strict=True):
            row += np.bincount(buckets.index_of(part.astype(np.int64)), minlength=buckets.COUNT).astype(
                np.uint32
            )
    by_stage = np.zeros((windows, len(STAGES), buckets.COARSE), dtype=np.uint32)
    for place, name in enumerate(STAGES if windows else ()):
        for row, part in zip(by_stage[:, place], np.array_split(stages[name], windows), strict=True):
            row += np.bincount(
                buckets.coarse_index_of(part.astype(np.int64)), minlength=buckets.COARSE
            ).astype(np.uint32)
    values: dict[str, Any] = {
        "engine": "cpu",
        "arrivals": "poisson",
        "rate": ticks / 10,
        "cpus": dict(CPUS),
        "started_ns": 5_000_000_000,
        "started_ticks": 1_000_000,
        "ns_per_tick": 0.5,
        "clock": "tsc",
        "clock_why": "invariant, and the kernel keeps time with it",
        "clock_overhead_ns": 12.5,
        "duration_s": 10.0,
        "warmup": 1000,
        "due": ticks,
        "completed": ticks,
        "stages": {
            **{name: histogram(values) for name, values in stages.items()},
            END_TO_END: histogram(whole),
        },
        "windows": counts,
        "stage_windows": by_stage,
        "window_s": 10.0 / max(windows, 1),
        "tick_queue": Queue(4096, 7, 0),
        "order_queue": Queue(4096, 2, 0),
        "threads": [thread(role, cpu) for role, cpu in CPUS.items()],
        "outlier_threshold_ns": 500_000,
        "outliers_seen": 0,
        "outliers": [],
        "batches": {1: ticks - 10, 2: 5},
        "orders_sent": ticks,
        "orders_failed": 0,
        "memory_locked": True,
    }
    return Run(**{**values, **changes})


def outlier(sequence: int, at_ns: int, **stage_ns: int) -> Outlier:
    """Due ``at_ns`` after the run's start; in all stages without a time of their own it took none."""
    stamps = [1_000_000 + 2 * at_ns]
    for name in STAGES:
        stamps.append(stamps[-1] + 2 * stage_ns.get(name.replace("-", "_"), 0))
    return Outlier(sequence, tuple(stamps))
