"""validate's report as metrics in Prometheus's text format, for node_exporter's textfile collector.

    hwtune validate --format prometheus -o /var/lib/node_exporter/hwtune-validate.prom

Latencies are in seconds, as the format has all times. All are gauges of one run: the next measures anew. What
cannot be told has no sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune import __version__
from hwtune.report.prometheus import family
from hwtune.validate.results import LEVELS
from hwtune.validate.run import END_TO_END

if TYPE_CHECKING:
    from hwtune.report.validation.published import About
    from hwtune.validate.results import Latency, Results

    Samples = list[tuple[dict[str, str], float]]


def render(results: Results, about: About) -> bytes:
    """The whole exposition, in UTF-8."""
    return "".join(
        family(f"hwtune_validate_{name}", told, samples)
        for name, told, samples in _families(results, about)
        if samples
    ).encode()


def _families(results: Results, about: About) -> list[tuple[str, str, Samples]]:
    run, sla, drift = results.run, results.sla, results.drift
    stages = {**results.stages, END_TO_END: results.end_to_end}
    queues = (("tick", run.tick_queue), ("order", run.order_queue))
    threads = [({"roles": "+".join(t.roles), "cpu": str(t.cpu)}, t) for t in run.threads]
    info = {
        "version": __version__,
        "engine": run.engine,
        "arrivals": about.arrivals_name,
        "hostname": about.hostname or "",
        "kernel": about.kernel or "",
        "cpus": ",".join(str(cpu) for cpu in run.cpus.values()),
    }
    return [
        ("info", "What was measured, by what.", [(info, 1)]),
        ("timestamp_seconds", "When the run began, in seconds since the epoch.", [({}, about.started)]),
        ("duration_seconds", "How long the measured part was.", [({}, run.duration_s)]),
        ("latency_seconds", "Latency of a stage, or end to end, by quantile.", _quantiles(stages)),
        ("latency_max_seconds", "The longest.", _each(stages, "max_us")),
        ("latency_count", "Ticks that came through.", [({"stage": n}, s.count) for n, s in stages.items()]),
        ("p99_low_seconds", "Lower end of the 95 % interval of P99.", _each(stages, "p99_low_us")),
        ("p99_high_seconds", "Upper end of the 95 % interval of P99.", _each(stages, "p99_high_us")),
        ("budget_seconds", "What a stage may take at P99.", _each(results.stages, "budget_us")),
        ("sla_seconds", "The limit of P99 end to end.", [({}, _seconds(sla.limit_us))]),
        (
            "sla_met",
            "Whether P99 of all due ticks is within it.",
            [] if sla.met is None else [({}, int(sla.met))],
        ),
        ("due_ticks", "Ticks that were due.", [({}, run.due)]),
        ("missing_ticks", "Ticks that were due and never came through.", [({}, results.missing)]),
        ("ticks_per_second", "Ticks that came through a second.", [({}, results.throughput)]),
        (
            "queue_dropped",
            "Messages that a full queue refused.",
            [({"queue": n}, q.dropped) for n, q in queues],
        ),
        (
            "queue_high_watermark",
            "The most messages seen waiting at once.",
            [({"queue": n}, q.high_watermark) for n, q in queues],
        ),
        (
            "minor_faults",
            "Minor page faults of a thread.",
            [(labels, t.minor_faults) for labels, t in threads],
        ),
        (
            "major_faults",
            "Major page faults of a thread.",
            [(labels, t.major_faults) for labels, t in threads],
        ),
        (
            "voluntary_switches",
            "Times that a thread slept.",
            [(at, t.voluntary_switches) for at, t in threads],
        ),
        (
            "involuntary_switches",
            "Times that another task took a thread's CPU.",
            [(at, t.involuntary_switches) for at, t in threads],
        ),
        (
            "migrations",
            "Times that a thread was moved.",
            [(at, t.migrations) for at, t in threads if t.migrations is not None],
        ),
        (
            "clock_overhead_seconds",
            "What one reading of the clock costs.",
            [({}, _seconds(run.clock_overhead_ns / 1000))],
        ),
        ("outliers", "Ticks beyond the threshold.", [({}, run.outliers_seen)]),
        (
            "outliers_by_cause",
            "Outliers by what most of their time went to.",
            [({"kind": c.kind, "name": c.name}, c.outliers) for c in results.attribution.causes],
        ),
        (
            "drift_ratio",
            "How P99 changed over the run, as a share.",
            [] if drift.change_pct is None else [({}, drift.change_pct / 100)],
        ),
        *_baseline(results),
    ]


def _baseline(results: Results) -> list[tuple[str, str, Samples]]:
    found = results.comparison
    if found is None:
        return []
    change: Samples = [] if found.change_pct is None else [({}, found.change_pct / 100)]
    verdicts: Samples = [
        ({"verdict": verdict}, int(found.verdict == verdict))
        for verdict in ("worse", "not worse", "cannot be told")
    ]
    return [
        ("baseline_change_ratio", "How P99 changed against the baseline, as a share.", change),
        ("baseline_verdict", "Whether the comparison with the baseline came out so.", verdicts),
    ]


def _quantiles(stages: dict[str, Latency]) -> Samples:
    return [
        ({"stage": name, "quantile": f"{q:g}"}, _seconds(value))
        for name, stage in stages.items()
        for level, q in LEVELS
        if (value := getattr(stage, f"{level}_us")) is not None
    ]


def _each(stages: dict[str, Latency], field: str) -> Samples:
    return [
        ({"stage": name}, _seconds(value))
        for name, stage in stages.items()
        if (value := getattr(stage, field)) is not None
    ]


def _seconds(us: float) -> float:
    """To a tenth of a nanosecond, as division leaves digits that nobody measured."""
    return round(us / 1e6, 10)
