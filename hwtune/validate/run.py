"""What one run of the pipeline measured, as the native module handed it over: facts, no judgement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hwtune.validate.gpu.results import GpuRun

# The stages in the order of the way, each from one stamp to the next; their sum is end to end.
STAGES = ("generate", "tick-queue", "features", "inference", "order-queue", "order")
END_TO_END = "end-to-end"
# The threads, in the same order. Where one CPU has to hold several, they are one thread.
ROLES = ("generator", "compute", "orders")


class Thread(msgspec.Struct, frozen=True):
    """What the kernel counted for one thread between its first and its last tick (getrusage(2),
    RUSAGE_THREAD; sched(5))."""

    roles: tuple[str, ...]
    cpu: int
    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    migrations: int | None
    #: hardware counters by perf's names, or none and why not
    counters: dict[str, int]
    counters_missing: str = ""


class Outlier(msgspec.Struct, frozen=True):
    """One tick that took longer than the threshold. ``stamps`` are ticks of the run's clock: due,
    pushed, popped, featured, scored, taken, done."""

    sequence: int
    stamps: tuple[int, ...]


class Queue(msgspec.Struct, frozen=True):
    """``high_watermark``: the most messages seen waiting at once; ``dropped``: pushed while it was full."""

    capacity: int
    high_watermark: int
    dropped: int


class Run(msgspec.Struct):
    """``stages`` and ``windows`` count latencies in the buckets of ``hwtune._native.Histogram``."""

    engine: str
    arrivals: str
    #: ticks a second that were due
    rate: float
    #: the threads' CPUs, by role
    cpus: dict[str, int]
    #: when the first tick was due: CLOCK_MONOTONIC, and the run's clock
    started_ns: int
    started_ticks: int
    ns_per_tick: float
    clock: str
    clock_why: str
    clock_overhead_ns: float
    #: from the first due tick to the last that was measured
    duration_s: float
    #: ticks before the measured ones, left out of all figures
    warmup: int
    due: int
    completed: int
    stages: dict[str, Any]  # hwtune._native.Histogram by STAGES and END_TO_END
    #: end to end, one a window of equal length: shape (windows, buckets)
    windows: NDArray[np.uint32]
    #: the same of each stage: shape (windows, STAGES, coarse buckets)
    stage_windows: NDArray[np.uint32]
    window_s: float
    tick_queue: Queue
    order_queue: Queue
    threads: list[Thread]
    outlier_threshold_ns: int
    outliers_seen: int
    #: the slowest of them, in the order of their time
    outliers: list[Outlier]
    batches: dict[int, int]  # how often the engine was given so many rows
    orders_sent: int
    orders_failed: int
    interrupted: bool = False
    memory_locked: bool = False
    memory_why: str = ""
    failure: str = ""  # the engine's, where it ended the run
    gpu: GpuRun | None = None  # of an engine on a GPU
