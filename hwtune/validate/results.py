"""What a run comes to: percentiles with their intervals, the budget, the SLA. From facts to judgement.

Latencies are microseconds here, as people and budgets have them; the run counts nanoseconds.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from hwtune.validate import buckets, stats
from hwtune.validate.run import END_TO_END, STAGES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hwtune.validate.baseline import Comparison
    from hwtune.validate.budget import Budget
    from hwtune.validate.placement import Placement
    from hwtune.validate.reading import Reading
    from hwtune.validate.run import Outlier, Run
    from hwtune.validate.stats import Drift

    Counts = NDArray[np.int64]

JUDGED = 0.99
LEVELS = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("p9999", 0.9999))
#: how reports name them
NAMES = {"p50": "P50", "p90": "P90", "p99": "P99", "p999": "P99.9", "p9999": "P99.99"}


class Latency(msgspec.Struct, frozen=True):
    """One stage, or the whole. A percentile that too few ticks carry is null, and ``unknown`` says why; so
    does ``p99_unknown`` of its 95 % interval. ``over_budget_us``: P99 less the budget, if that is above 0."""

    count: int
    p50_us: float | None
    p90_us: float | None
    p99_us: float | None
    p999_us: float | None
    p9999_us: float | None
    max_us: float | None
    mean_us: float | None
    p99_low_us: float | None
    p99_high_us: float | None
    p99_unknown: str
    unknown: dict[str, str]
    budget_us: float | None
    over_budget_us: float | None


class Sla(msgspec.Struct, frozen=True):
    """``p99_us`` is that of all ticks that were due: one that was dropped counts as slower than any. Null
    where it is one of those, or too few ticks came. ``met`` is null where it cannot be told; ``certain`` says
    whether the limit is outside the 95 % interval."""

    limit_us: float
    p99_us: float | None
    low_us: float | None
    high_us: float | None
    met: bool | None
    certain: bool
    why: str


class Cause(msgspec.Struct, frozen=True):
    """What some outliers' time mostly went to: ``kind`` and ``name`` as hwtune.tracing has them. ``rows`` of
    the diagnosis table would mend it."""

    kind: str
    name: str
    outliers: int
    total_us: float
    longest_us: float
    rows: tuple[str, ...]


class OutlierCause(msgspec.Struct, frozen=True):
    """Part of one outlier's time."""

    kind: str
    name: str
    cpu: int | None
    share: float


class OutlierReport(msgspec.Struct, frozen=True):
    """One tick beyond the threshold. ``at_s``: when it was due, since the first tick. ``stage``: where most
    of its time went. ``causes``: the largest first; "unexplained" is the time in which nothing ran that the
    kernel tells of."""

    sequence: int
    at_s: float
    latency_us: float
    stage: str
    stages_us: dict[str, float]
    causes: list[OutlierCause]


class Attribution(msgspec.Struct, frozen=True):
    """What else happened on the CPUs. ``method``: trace, counters or none; ``why`` not a trace. ``fired``: a
    sentence a source, where only counters tell."""

    method: str
    why: str
    causes: list[Cause]
    by_outlier: dict[int, list[OutlierCause]]
    fired: list[str] = []
    notes: list[str] = []


NOT_ATTRIBUTED = Attribution("none", "nothing was watched", [], {})


class Results(msgspec.Struct):
    """All that reports tell of. ``attributed`` outliers are the run's, in its order."""

    run: Any  # Run
    placement: Placement
    budget: Budget
    stages: dict[str, Latency]
    end_to_end: Latency
    sla: Sla
    drift: Drift
    attribution: Attribution
    outliers: list[OutlierReport]
    comparison: Comparison | None = None
    readings: list[Reading] = []

    @property
    def missing(self) -> int:
        """Ticks that were due and never came through."""
        lost: int = max(0, self.run.due - self.run.completed)
        return lost

    @property
    def throughput(self) -> float:
        """Ticks a second that came through."""
        return self.run.completed / self.run.duration_s if self.run.duration_s > 0 else 0.0

    @property
    def worse(self) -> bool:
        return self.comparison is not None and self.comparison.verdict == "worse"


def judge(
    run: Run, placement: Placement, budget: Budget, attribution: Attribution = NOT_ATTRIBUTED
) -> Results:
    """Without the comparison and the reading, which look at the whole. Windows that an interrupted run did
    not come to are cut off."""
    tops = buckets.tops()
    begun = _windows_begun(run)
    run.windows, run.stage_windows = run.windows[:begun], run.stage_windows[:begun]
    missing = max(0, run.due - run.completed)
    counts = counts_of(run.stages[END_TO_END])
    whole = stats.interval(run.windows, tops, JUDGED, window_s=run.window_s)
    return Results(
        run,
        placement,
        budget,
        {stage: _stage(run, stage, budget) for stage in STAGES},
        _latency(run.stages[END_TO_END], budget.sla_us, whole),
        _sla(run, counts, missing, budget.sla_us, whole),
        stats.drift(run.windows, tops, JUDGED),
        attribution,
        [_outlier(run, outlier, attribution) for outlier in run.outliers],
    )


def _windows_begun(run: Run) -> int:
    """One in which nothing came through was measured all the same."""
    if not run.interrupted or run.window_s <= 0:
        return len(run.windows)
    return math.ceil(run.duration_s / run.window_s)


def counts_of(histogram: Any) -> Counts:
    """Counts by bucket as signed numbers; what lies beyond the last bucket is in it."""
    import numpy as np

    counts = np.array(histogram.counts(), dtype=np.int64)
    counts[-1] += histogram.overflow
    return counts


def microseconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1000


# -- latencies -------------------------------------------------------------------------------


def _stage(run: Run, stage: str, budget: Budget) -> Latency:
    windows = run.stage_windows[:, STAGES.index(stage)]
    bottoms, tops = buckets.coarse()
    told = stats.interval(windows, tops, JUDGED, window_s=run.window_s)
    found = _latency(run.stages[stage], budget.stages.get(stage), told)
    if told.low is None or told.high is None or found.p99_us is None:
        return found
    # as far as its coarse buckets go
    low = microseconds(int(bottoms[tops.searchsorted(told.low)]))
    high = microseconds(told.high)
    return msgspec.structs.replace(
        found, p99_low_us=min(low or 0.0, found.p99_us), p99_high_us=max(high or 0.0, found.p99_us)
    )


def _latency(histogram: Any, budget_us: float | None, told: stats.Told) -> Latency:
    counts, tops = counts_of(histogram), buckets.tops()
    total = int(counts.sum())
    values: dict[str, float | None] = {}
    unknown: dict[str, str] = {}
    for name, q in LEVELS:
        needed = stats.least_samples(q)
        if total < needed:
            values[name] = None
            unknown[f"{name}_us"] = f"at least {needed:,} ticks are needed, {total:,} came through"
        else:
            values[name] = microseconds(stats.quantile(counts, tops, q))
    p99 = values["p99"]
    over = p99 - budget_us if p99 is not None and budget_us is not None and p99 > budget_us else None
    return Latency(
        count=total,
        p50_us=values["p50"],
        p90_us=values["p90"],
        p99_us=p99,
        p999_us=values["p999"],
        p9999_us=values["p9999"],
        max_us=microseconds(histogram.max) if total else None,
        mean_us=microseconds(histogram.mean) if total else None,
        p99_low_us=microseconds(told.low),
        p99_high_us=microseconds(told.high),
        p99_unknown=told.why,
        unknown=unknown,
        budget_us=budget_us,
        over_budget_us=over,
    )


def _sla(run: Run, counts: Counts, missing: int, limit_us: float, whole: stats.Told) -> Sla:
    """``whole``: the interval without the missing ones."""
    tops = buckets.tops()
    total = int(counts.sum()) + missing
    needed = stats.least_samples(JUDGED)
    if total < needed:
        why = f"at least {needed} ticks are needed to tell a P99, {total} were due"
        return Sla(limit_us, None, None, None, None, False, why)
    p99 = microseconds(stats.quantile(counts, tops, JUDGED, missing))
    if p99 is None:
        why = f"{missing:,} of {total:,} ticks never came through: more than one in a hundred"
        return Sla(limit_us, None, None, None, False, True, why)
    told = stats.interval(run.windows, tops, JUDGED, missing, run.window_s) if missing else whole
    low, high = microseconds(told.low), microseconds(told.high)
    certain = low is not None and high is not None and (high <= limit_us or low > limit_us)
    return Sla(limit_us, p99, low, high, p99 <= limit_us, certain, told.why)


# -- outliers --------------------------------------------------------------------------------


def _outlier(run: Run, outlier: Outlier, attribution: Attribution) -> OutlierReport:
    stamps = outlier.stamps
    spans = [(later - earlier) * run.ns_per_tick / 1000 for earlier, later in pairwise(stamps)]
    stages = dict(zip(STAGES, spans, strict=True))
    return OutlierReport(
        outlier.sequence,
        (stamps[0] - run.started_ticks) * run.ns_per_tick / 1e9,
        sum(spans),
        max(stages, key=lambda stage: stages[stage]),
        stages,
        attribution.by_outlier.get(outlier.sequence, []),
    )
