"""What happened on the pipeline's CPUs meanwhile, in the report's terms: from hwtune.tracing's."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from hwtune.tracing import Outlier, attribute, kinds, summarise, title
from hwtune.validate import buckets, stats
from hwtune.validate.results import Attribution, Cause, OutlierCause, counts_of
from hwtune.validate.run import STAGES

if TYPE_CHECKING:
    from hwtune.tracing import Cause as TracedCause
    from hwtune.tracing import CpuCounters, Culprit, Recording
    from hwtune.validate.run import Outlier as RunOutlier
    from hwtune.validate.run import Run

# A tick may also have waited for those before it, or been one of a larger batch: the kernel does not know.
_UNEXPLAINED = {
    None: "nothing in the kernel: own work or backlog, hypervisor, firmware",
    True: "nothing in the kernel: own work or backlog, hypervisor, firmware",
    False: "nothing in the kernel: own work or backlog, firmware",
}
# The thread that has a tick in each stage, or is to take it.
_ROLES = {
    "generate": "generator",
    "tick-queue": "compute",
    "features": "compute",
    "inference": "compute",
    "order-queue": "orders",
    "order": "orders",
}
# Spans that are looked at in all: a few seconds' work. Each outlier costs as much as some spans by itself.
_MOST_WORK = 300_000
_EACH = 20
_SOURCES_MAX = 4  # of one CPU's sentence


def attributed(
    recording: Recording, run: Run, own: frozenset[int] = frozenset(), virtual: bool | None = None
) -> Attribution:
    """The outliers of ``run`` with their causes where there is a trace; else what counters tell of each CPU.
    ``own``: the kernel's ids of the pipeline's threads. ``virtual``: whether this is a virtual machine, where
    that is known."""
    fired = [told for cpu in recording.counted.cpus if (told := _fired(cpu))]
    notes = [*recording.notes, *recording.counted.missing]
    if not recording.traced:
        return Attribution("counters" if fired else "none", recording.why, [], {}, fired, notes)
    unexplained = _UNEXPLAINED[virtual]

    def named(culprit: Culprit) -> str:
        return unexplained if culprit.kind == kinds.UNEXPLAINED else title(culprit.kind, culprit.name)

    asked = _longest_stages(run)
    step = _step(recording, asked)
    if step > 1:
        asked = asked[::step]
        notes.append(
            f"{len(asked):,} of the {len(run.outliers):,} outliers kept were matched, one in {step} in the "
            "order of time, as matching all of them would take long"
        )
    causes = attribute(recording, asked, own=own, virtual=virtual)
    summary = summarise(causes)
    return Attribution(
        "trace",
        "",
        [
            Cause(c.kind, named(c), c.outliers, c.total_ns / 1000, c.longest_ns / 1000, c.rows)
            for c in summary.culprits
        ],
        {
            outlier.sequence: _shares(cause, outlier, run.ns_per_tick, unexplained)
            for outlier, cause in zip(run.outliers[::step], causes, strict=True)
        },
        fired,
        notes,
    )


def _longest_stages(run: Run) -> list[Outlier]:
    """Of each outlier the stage that took most of it: its time, on the CPU of the thread that had it or was
    to take it. What happens on another CPU meanwhile delays nobody."""
    usual = {
        stage: int((stats.quantile(counts_of(run.stages[stage]), buckets.tops(), 0.5) or 0) / run.ns_per_tick)
        for stage in STAGES
    }
    found = []
    for outlier in run.outliers:
        spans = list(zip(STAGES, pairwise(outlier.stamps), strict=True))
        stage, (start, end) = max(spans, key=lambda item: item[1][1] - item[1][0])
        found.append(Outlier((run.cpus[_ROLES[stage]],), start, end, usual[stage]))
    return found


def _step(recording: Recording, outliers: list[Outlier]) -> int:
    """Of how many outliers one is matched, so that the work stays within bounds: each costs what happened
    while it lasted, and those of one stall lasted through the same."""
    import numpy as np

    work = 0
    for outlier in outliers:
        for cpu in outlier.cpus:
            starts = recording.cpus[cpu].spans.start if cpu in recording.cpus else np.zeros(0, np.int64)
            first, last = np.searchsorted(starts, (outlier.start, outlier.end))
            work += _EACH + int(last - first)
    return max(1, math.ceil(work / _MOST_WORK))


def _shares(
    cause: TracedCause, outlier: RunOutlier, ns_per_tick: float, unexplained: str
) -> list[OutlierCause]:
    """Parts of the whole outlier's time by what it went to, the largest first; its own work is not among
    them, nor are its other stages."""
    length = max((outlier.stamps[-1] - outlier.stamps[0]) * ns_per_tick, 1)
    found = [OutlierCause(s.kind, title(s.kind, s.name), s.cpu, s.ns / length) for s in cause.shares if s.ns]
    for kind, name, ns in (
        (kinds.OTHER, "the way into the kernel and out of it", cause.overhead_ns),
        (kinds.PAGE_FAULT, "behind a page fault, at most", cause.fault_ns),
        (kinds.UNEXPLAINED, unexplained, cause.unexplained_ns),
        (kinds.NOT_RECORDED, "not recorded", cause.not_recorded_ns),
    ):
        if ns > 0:
            found.append(OutlierCause(kind, name, None, ns / length))
    return sorted(found, key=lambda part: -part.share)


def _fired(cpu: CpuCounters) -> str:
    """ "CPU 1: 2,503 local timer, 41 IRQ 36 virtio1-req.0; 120 ms went to others by the hypervisor." """
    parts = [f"{f.count:,} {title(f.kind, f.name)}" for f in cpu.fired[:_SOURCES_MAX]]
    if len(cpu.fired) > _SOURCES_MAX:
        parts.append(f"{len(cpu.fired) - _SOURCES_MAX} more sources")
    told = [", ".join(parts)] if parts else []
    if cpu.steal_ns:
        told.append(f"{cpu.steal_ns / 1e6:,.0f} ms that the hypervisor gave to others")
    if cpu.smi:
        told.append(f"{cpu.smi:,} system management interrupts")
    return f"CPU {cpu.cpu}: {'; '.join(told)}." if told else ""
