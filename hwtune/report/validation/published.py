"""The shape of ``validate --format json``: what scripts, and later runs with ``--baseline``, rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hwtune import __version__
from hwtune.report.digest import moment
from hwtune.report.published import SCHEMA_VERSION, Tool
from hwtune.validate.baseline import Comparison
from hwtune.validate.gpu.results import GpuRun
from hwtune.validate.hdr import counts_to_base64, to_base64
from hwtune.validate.placement import Placement
from hwtune.validate.reading import Reading
from hwtune.validate.results import Cause, Latency, OutlierReport, Sla
from hwtune.validate.run import Queue, Thread
from hwtune.validate.stats import Drift

if TYPE_CHECKING:
    from hwtune.validate.results import Results


class About(msgspec.Struct, frozen=True):
    """Where and when it was measured, and of what: facts that the run itself does not hold. ``model``: the
    digest of a model that the user brought; ``arrivals_name``: the kind, or the path of a recording."""

    hostname: str | None
    kernel: str | None
    started: float
    model: str
    arrivals_name: str
    arrivals_digest: str
    seed: int


class RunHost(msgspec.Struct):
    """``captured_at``: when the run was made, ISO 8601, UTC."""

    hostname: str | None
    kernel: str | None
    captured_at: str | None


class ArrivalsInfo(msgspec.Struct):
    """``rate``: ticks a second that were due. ``digest``: of recorded ticks."""

    kind: str
    name: str
    rate: float
    digest: str
    seed: int


class Windows(msgspec.Struct):
    """End to end, one histogram a window of equal length."""

    length_s: float
    histograms: list[str]


class PageFaults(msgspec.Struct):
    minor: int
    major: int


class ContextSwitches(msgspec.Struct):
    voluntary: int
    involuntary: int


class Orders(msgspec.Struct):
    sent: int
    failed: int


class MemoryLock(msgspec.Struct):
    locked: bool
    why: str


class ClockInfo(msgspec.Struct):
    source: str
    why: str


class BudgetInfo(msgspec.Struct):
    """``stages_us``: at P99 by stage."""

    source: str
    stages_us: dict[str, float]
    planned_us: float
    sla_us: float


class OutlierCauses(msgspec.Struct):
    """``method``: trace, counters or none (``why``). ``fired``: what counters tell, a sentence a source."""

    method: str
    why: str
    causes: list[Cause]
    fired: list[str]
    notes: list[str]


class ValidateReport(msgspec.Struct):
    """What ``hwtune validate --format json`` prints. Histograms are HdrHistogram's V2 format of nanoseconds,
    compressed, in base64, by stage and "end-to-end". ``model``: the digest of the
    user's own. ``drops``: ticks and orders that a full queue refused;
    ``missing``: ticks that were due and never came through, for whatever reason."""

    schema_version: str
    tool: Tool
    host: RunHost
    engine: str
    model: str
    arrivals: ArrivalsInfo
    cpus: dict[str, int]
    placement: Placement
    duration_s: float
    warmup: int
    interrupted: bool
    failure: str
    due: int
    completed: int
    missing: int
    throughput: float
    end_to_end: Latency
    stages: dict[str, Latency]
    sla: Sla
    budget: BudgetInfo
    drops: int
    queues: dict[str, Queue]
    queue_high_watermark: dict[str, int]
    page_faults: PageFaults
    context_switches: ContextSwitches
    migrations: int | None
    threads: list[Thread]
    batches: dict[str, int]
    orders: Orders
    memory: MemoryLock
    clock: ClockInfo
    clock_overhead_ns: float
    outlier_threshold_us: float
    outliers_seen: int
    outliers: list[OutlierReport]
    outlier_causes: OutlierCauses
    drift: Drift
    baseline: Comparison | None
    reading: list[Reading]
    histograms: dict[str, str]
    windows: Windows
    gpu: GpuRun | None = None


def publish(results: Results, about: About) -> ValidateReport:
    run, budget, attribution = results.run, results.budget, results.attribution
    queues = {"tick-queue": run.tick_queue, "order-queue": run.order_queue}
    moved = [thread.migrations for thread in run.threads]
    return ValidateReport(
        schema_version=SCHEMA_VERSION,
        tool=Tool("hwtune", __version__),
        host=RunHost(about.hostname, about.kernel, moment(about.started)),
        engine=run.engine,
        model=about.model,
        arrivals=ArrivalsInfo(run.arrivals, about.arrivals_name, run.rate, about.arrivals_digest, about.seed),
        cpus=run.cpus,
        placement=results.placement,
        duration_s=run.duration_s,
        warmup=run.warmup,
        interrupted=run.interrupted,
        failure=run.failure,
        due=run.due,
        completed=run.completed,
        missing=results.missing,
        throughput=results.throughput,
        end_to_end=results.end_to_end,
        stages=results.stages,
        sla=results.sla,
        budget=BudgetInfo(budget.source, budget.stages, budget.planned_us, budget.sla_us),
        drops=sum(queue.dropped for queue in queues.values()),
        queues=queues,
        queue_high_watermark={name: queue.high_watermark for name, queue in queues.items()},
        page_faults=PageFaults(
            sum(t.minor_faults for t in run.threads), sum(t.major_faults for t in run.threads)
        ),
        context_switches=ContextSwitches(
            sum(t.voluntary_switches for t in run.threads), sum(t.involuntary_switches for t in run.threads)
        ),
        migrations=None if None in moved else sum(m for m in moved if m is not None),
        threads=run.threads,
        batches={str(rows): count for rows, count in sorted(run.batches.items())},
        orders=Orders(run.orders_sent, run.orders_failed),
        memory=MemoryLock(run.memory_locked, run.memory_why),
        clock=ClockInfo(run.clock, run.clock_why),
        clock_overhead_ns=run.clock_overhead_ns,
        outlier_threshold_us=run.outlier_threshold_ns / 1000,
        outliers_seen=run.outliers_seen,
        outliers=results.outliers,
        outlier_causes=OutlierCauses(
            attribution.method, attribution.why, attribution.causes, attribution.fired, attribution.notes
        ),
        drift=results.drift,
        baseline=results.comparison,
        reading=results.readings,
        histograms={name: to_base64(histogram) for name, histogram in run.stages.items()},
        windows=Windows(run.window_s, [counts_to_base64(row.tolist()) for row in run.windows]),
        gpu=run.gpu,
    )
