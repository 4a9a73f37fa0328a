"""What happened on the pipeline's CPUs meanwhile, in the report's terms: from hwtune.tracing's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.tracing import Outlier, attribute, kinds, summarise, title
from hwtune.validate import buckets, stats
from hwtune.validate.results import Attribution, Cause, OutlierCause, counts_of
from hwtune.validate.run import END_TO_END

if TYPE_CHECKING:
    from hwtune.tracing import Cause as TracedCause
    from hwtune.tracing import CpuCounters, Culprit, Recording
    from hwtune.validate.run import Run

# A tick may also have waited for those before it, or been one of a larger batch: the kernel does not know.
_UNEXPLAINED = {
    None: "nothing in the kernel: own work or backlog, hypervisor, firmware",
    True: "nothing in the kernel: own work or backlog, hypervisor, firmware",
    False: "nothing in the kernel: own work or backlog, firmware",
}
_SOURCES_MAX = 4  # of one CPU's sentence


def attributed(recording: Recording, run: Run, virtual: bool | None = None) -> Attribution:
    """The outliers of ``run`` with their causes where there is a trace; else what counters tell of each CPU.
    ``virtual``: whether this is a virtual machine, where that is known."""
    fired = [told for cpu in recording.counted.cpus if (told := _fired(cpu))]
    notes = [*recording.notes, *recording.counted.missing]
    if not recording.traced:
        return Attribution("counters" if fired else "none", recording.why, [], {}, fired, notes)
    unexplained = _UNEXPLAINED[virtual]

    def named(culprit: Culprit) -> str:
        return unexplained if culprit.kind == kinds.UNEXPLAINED else title(culprit.kind, culprit.name)

    cpus = tuple(sorted(set(run.cpus.values())))
    usual = stats.quantile(counts_of(run.stages[END_TO_END]), buckets.tops(), 0.5) or 0
    expected = int(usual / run.ns_per_tick)
    outliers = [Outlier(cpus, o.stamps[0], o.stamps[-1], expected) for o in run.outliers]
    causes = attribute(recording, outliers, virtual=virtual)
    return Attribution(
        "trace",
        "",
        [
            Cause(c.kind, named(c), c.outliers, c.total_ns / 1000, c.longest_ns / 1000, c.rows)
            for c in summarise(causes).culprits
        ],
        {o.sequence: _shares(cause, unexplained) for o, cause in zip(run.outliers, causes, strict=True)},
        fired,
        notes,
    )


def _shares(cause: TracedCause, unexplained: str) -> list[OutlierCause]:
    """Parts of an outlier's time by what it went to, the largest first; its own work is not among them."""
    length = max(cause.duration_ns, 1)
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
