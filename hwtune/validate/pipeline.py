"""From a plan to a ``Run``: the native pipeline, started, watched and asked for what it measured."""

from __future__ import annotations

import gc
import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

from hwtune.errors import ToolError
from hwtune.validate.run import END_TO_END, ROLES, STAGES, Outlier, Queue, Run, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    from numpy.typing import NDArray

    from hwtune._native import Clock, Engine, Pipeline

# A tick of a recording, as the native module takes it: 48 bytes, times in nanoseconds, ascending.
TICK_FIELDS = (
    ("time_ns", "<u8"),
    ("bid", "<f8"),
    ("ask", "<f8"),
    ("price", "<f8"),
    ("bid_size", "<u4"),
    ("ask_size", "<u4"),
    ("volume", "<u4"),
    ("aggressor", "<u4"),
)
# How often the one who waits looks; never on a CPU that is measured, if there is another.
_LOOK_S = 0.05


class Stall(msgspec.Struct, frozen=True):
    """A stall made on purpose: the thread of ``role`` does nothing for ``length_s`` from ``at_s`` on."""

    role: str
    at_s: float
    length_s: float


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """``cpus``: by role; equal neighbours share a thread. ``rest``: where the other threads of this process
    stay meanwhile; empty leaves them. ``arrivals``: fixed, poisson, burst or recorded, which needs
    ``recorded``. ``rate``: ticks a second. ``outlier_threshold_ns`` 0: twice the P99 of the warm-up,
    and at most ``outlier_ceiling_ns`` (0: no such limit).
    ``udp``: numeric address and port that orders are sent to, else they stay in memory."""

    cpus: dict[str, int]
    rest: tuple[int, ...] = ()
    arrivals: str = "fixed"
    rate: float = 100_000.0
    burst_size: int = 32
    seed: int = 1
    recorded: NDArray[np.void] | None = None
    warmup_s: float = 0.5
    duration_s: float = 5.0
    tick_capacity: int = 4096
    order_capacity: int = 4096
    batch_limit: int = 32
    outlier_threshold_ns: int = 0
    outlier_ceiling_ns: int = 0
    outlier_capacity: int = 4096
    windows: int = 60
    huge_pages: bool = False
    lock_memory: bool = True
    udp: tuple[str, int] | None = None
    stall: Stall | None = None


class Progress(msgspec.Struct, frozen=True):
    """How far a run is: measured ticks that fell due, and that went all the way."""

    due: int
    completed: int
    elapsed_s: float


def run(
    plan: Plan,
    engine: Engine,
    clock: Clock,
    progress: Callable[[Progress], None] | None = None,
    started: Callable[[int], None] | None = None,
) -> Run:
    """Run the pipeline to its end; Ctrl-C ends it early and gives what was measured until then.

    ``started`` is told, before any tick, the CLOCK_MONOTONIC nanoseconds at which the first one is due.

    Raises:
        ToolError: a CPU, a socket or memory is refused; the sentence says which.
    """
    from hwtune import _native

    try:
        pipeline = _native.make_pipeline(engine, clock, **_arguments(plan))
        with _quiet(plan.rest):
            pipeline.start()
            if started is not None:
                started(pipeline.started_ns)
            _watch(pipeline, progress)
            found = pipeline.result()
    except (OSError, ValueError) as error:
        raise ToolError(f"the pipeline could not be run: {error}") from None
    return _run(plan, engine, clock, pipeline, found)


def _arguments(plan: Plan) -> dict[str, Any]:
    import numpy as np

    arguments: dict[str, Any] = {
        name: getattr(plan, name)
        for name in (
            "arrivals",
            "rate",
            "burst_size",
            "seed",
            "warmup_s",
            "duration_s",
            "tick_capacity",
            "order_capacity",
            "batch_limit",
            "outlier_threshold_ns",
            "outlier_ceiling_ns",
            "outlier_capacity",
            "windows",
            "huge_pages",
            "lock_memory",
        )
    }
    arguments["cpus"] = tuple(plan.cpus[role] for role in ROLES)
    if plan.recorded is not None:
        ticks = np.ascontiguousarray(plan.recorded, dtype=np.dtype(list(TICK_FIELDS)))
        arguments["recorded"] = ticks.view(np.uint8).reshape(len(ticks), -1)
    if plan.udp is not None:
        arguments["udp_host"], arguments["udp_port"] = plan.udp
    if plan.stall is not None:
        arguments["stall_role"] = plan.stall.role
        arguments["stall_at_s"] = plan.stall.at_s
        arguments["stall_length_s"] = plan.stall.length_s
    return arguments


class _quiet:
    """This process kept out of the way: its main thread on other CPUs, no garbage collection."""

    def __init__(self, rest: Iterable[int]) -> None:
        self._rest = set(rest)
        self._before: set[int] = set()
        self._collecting = False

    def __enter__(self) -> None:
        self._collecting = gc.isenabled()
        gc.collect()
        gc.disable()
        if self._rest:
            self._before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, self._rest)

    def __exit__(self, *_: object) -> None:
        if self._before:
            os.sched_setaffinity(0, self._before)
        if self._collecting:
            gc.enable()


def _watch(pipeline: Pipeline, progress: Callable[[Progress], None] | None) -> None:
    begin = pipeline.started_ns
    while not pipeline.over():
        try:
            time.sleep(_LOOK_S)
            if progress is not None:
                elapsed = max(0.0, (time.clock_gettime_ns(time.CLOCK_MONOTONIC) - begin) / 1e9)
                progress(Progress(pipeline.due, pipeline.completed, elapsed))
        except KeyboardInterrupt:
            pipeline.stop()


def _run(plan: Plan, engine: Engine, clock: Clock, pipeline: Pipeline, found: dict[str, Any]) -> Run:
    return Run(
        engine=engine.name,
        arrivals=plan.arrivals,
        rate=plan.rate if plan.recorded is None else _rate(found),
        cpus=dict(plan.cpus),
        started_ns=found["started_ns"],
        started_ticks=found["started_ticks"],
        ns_per_tick=clock.ns_per_tick,
        clock=clock.source,
        clock_why=clock.why,
        clock_overhead_ns=clock.cost_ns,
        duration_s=found["duration_s"],
        warmup=found["warmup"],
        due=found["due"],
        completed=found["completed"],
        stages={**dict(zip(STAGES, found["stages"], strict=True)), END_TO_END: found["end_to_end"]},
        windows=pipeline.windows(),
        stage_windows=pipeline.stage_windows(),
        window_s=found["window_s"],
        tick_queue=Queue(plan.tick_capacity, found["tick_high_watermark"], found["tick_drops"]),
        order_queue=Queue(plan.order_capacity, found["order_high_watermark"], found["order_drops"]),
        threads=[Thread(**thread) for thread in found["threads"]],
        outlier_threshold_ns=found["outlier_threshold_ns"],
        outliers_seen=found["outliers_seen"],
        outliers=[Outlier(sequence, stamps) for sequence, stamps in found["outliers"]],
        batches=found["batches"],
        orders_sent=found["orders_sent"],
        orders_failed=found["orders_failed"],
        interrupted=found["interrupted"],
        memory_locked=found["memory_locked"],
        memory_why=found["memory_why"],
        failure=found["failure"],
    )


def _rate(found: dict[str, Any]) -> float:
    """Of a recording: what it came to."""
    duration: float = found["duration_s"]
    return (found["due"] - 1) / duration if duration > 0 else 0.0
