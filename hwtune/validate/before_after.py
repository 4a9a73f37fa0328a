"""The same short run before a change and after it: did the machine's own P99 get better or worse?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwtune.validate.baseline import Sample
    from hwtune.validate.run import Run

RATE = 10_000.0  # ticks a second
DURATION_S = 10.0
WARMUP_S = 1.0
LIMIT_PCT = 10.0
_SLA_US = 3200.0


class BeforeAfter(msgspec.Struct, frozen=True):
    """P99 end to end of the micro-pipeline with the CPU engine, in microseconds (null: among the ticks that
    never came through), and its change in percent with a 95 % interval. ``verdict``: worse (by more than
    ``limit_pct``, with confidence), not worse, or cannot be told; ``differs``: what else was not the same,
    each as a clause."""

    before_us: float | None
    after_us: float | None
    change_pct: float | None
    low_pct: float | None
    high_pct: float | None
    limit_pct: float
    verdict: str
    why: str
    differs: list[str]


def run_once(shown: Callable[[float], None] | None = None) -> Run:
    """Ten seconds of the pipeline on the CPUs that it would choose now. Raises ``ToolError``."""
    from hwtune.validate import surroundings
    from hwtune.validate.arrivals import Arrivals
    from hwtune.validate.measure import Request, measure

    source = Arrivals("poisson", "poisson", RATE)
    placed = surroundings.place(None)
    run, _ = measure(Request("cpu", None, source, DURATION_S, WARMUP_S, 1, placed, 0.0, _SLA_US), shown)
    return run


def compare(before: Run, after: Run) -> BeforeAfter:
    from hwtune.validate import baseline, buckets

    found = baseline.decide(_sample(before), _sample(after), buckets.tops(), LIMIT_PCT)
    differs = []
    if before.cpus != after.cpus:
        shown = [", ".join(f"{role} {cpu}" for role, cpu in run.cpus.items()) for run in (before, after)]
        differs.append(f"other CPUs: {shown[0]} before, {shown[1]} after")
    if before.interrupted or after.interrupted:
        differs.append("one of the runs was cut short")
    us = [None if ns is None else ns / 1000 for ns in (found.before, found.now)]
    return BeforeAfter(us[0], us[1], *found[2:5], LIMIT_PCT, found.verdict, found.why, differs)


def _sample(run: Run) -> Sample:
    from hwtune.validate.baseline import Sample

    return Sample(run.windows, max(0, run.due - run.completed))
