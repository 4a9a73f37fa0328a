"""From gaps and the kernel's recording to a verdict for each CPU, and the rows that would mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from hwtune.jitter.results import FIT, UNFIT, UNKNOWN, CpuJitter, Gap, RowToSee
from hwtune.tracing import Attribution, Culprit, Outlier, summarise, title
from hwtune.tracing.kinds import UNEXPLAINED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from hwtune.diagnosis.engine import RowResult
    from hwtune.jitter.measure import Measured, Spun
    from hwtune.profile import JitterTargets
    from hwtune.tracing import Cause, CpuCounters

    Lengths = NDArray[np.int64]

_LONGEST = 20  # gaps that are told one by one
_ASKED = 50_000  # gaps of a CPU whose causes are asked for one by one
# A percentile needs so many gaps that one at least is beyond it.
_LEVELS = ((0.5, 2), (0.99, 100), (0.999, 1000))
_CURVE = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999)
SLICES = 120  # of the time, in pictures
_REASON_CULPRITS = 2
_WEIGHTY = 0.01  # of the stolen time


def analyse(measured: Measured, targets: JitterTargets, virtual: bool | None) -> list[CpuJitter]:
    """One entry a CPU that was measured, by number."""
    own = frozenset(spun.thread for spun in measured.spun.values())
    attribution = Attribution(measured.recording, own=own, virtual=virtual)
    counters = {counted.cpu: counted for counted in measured.recording.counted.cpus}
    return [
        _Cpu(measured.spun[cpu], measured, attribution, counters.get(cpu)).judged(targets)
        for cpu in sorted(measured.spun)
    ]


class _Cpu:
    def __init__(
        self, spun: Spun, measured: Measured, attribution: Attribution, counters: CpuCounters | None
    ) -> None:
        self.spun = spun
        self.result = spun.result
        self.ns_per_tick = measured.clock.ns_per_tick
        self.traced = self.result.cpu in measured.recording.cpus
        self.attribution = attribution
        self.counters = counters
        self.starts = self.result.gap_starts_ns.astype(np.int64)
        self.lengths = self.result.gap_lengths_ns.astype(np.int64)

    def judged(self, targets: JitterTargets) -> CpuJitter:
        result = self.result
        causes, longest, not_asked = self._causes()
        observed = max(result.duration_ns, 1)
        gaps = len(self.lengths) + result.lost
        p50, p99, p999 = (percentile(self.lengths, share, least) for share, least in _LEVELS)
        found = CpuJitter(
            cpu=result.cpu,
            verdict=UNKNOWN,
            reasons=[],
            observed_ns=result.duration_ns,
            coverage=min(result.duration_ns / max(self.spun.slot_ns, 1), 1.0),
            threshold_ns=result.threshold_ns,
            step_ns=max(result.step_median_ns, result.step_min_ns),
            gaps=gaps,
            gaps_per_second=gaps / observed * 1e9,
            p50_ns=p50,
            p99_ns=p99,
            p999_ns=p999,
            longest_ns=result.longest_ns,
            stolen_ns=result.gap_ns,
            stolen_share=result.gap_ns / observed,
            gaps_not_kept=result.lost,
            gaps_not_asked=not_asked,
            involuntary_switches=result.involuntary_switches,
            minor_faults=result.minor_faults,
            major_faults=result.major_faults,
            causes=causes,
            longest=longest,
            counters=self.counters,
            over_time_ns=over_time(self.starts, self.lengths, result.duration_ns),
            curve=curve(self.lengths),
        )
        found.verdict, found.reasons = verdict(found, targets, self._doubts())
        return found

    def _doubts(self) -> list[str]:
        doubts = []
        if self.result.backwards:
            doubts.append(f"the clock went backwards {self.result.backwards} times")
        if self.result.migrated:
            doubts.append("somebody moved the loop to another CPU")
        return doubts

    # -- causes

    def _causes(self) -> tuple[list[Culprit], list[Gap], int]:
        """(culprits by stolen time, the longest gaps, how many were not asked for)."""
        by_length = np.argsort(-self.lengths, kind="stable")
        if not self.traced:
            return [], [self._gap(i, None) for i in by_length[:_LONGEST]], 0
        begin = self.result.started_ticks
        starts = begin + (self.starts / self.ns_per_tick).astype(np.int64)
        ends = begin + ((self.starts + self.lengths) / self.ns_per_tick).astype(np.int64)
        alone = self.attribution.untouched(self.result.cpu, starts, ends)
        alone[by_length[:_LONGEST]] = False
        asked = by_length[~alone[by_length]][:_ASKED]
        not_asked = int(np.count_nonzero(~alone)) - len(asked)
        outliers = [Outlier((self.result.cpu,), int(starts[i]), int(ends[i])) for i in asked]
        causes = self.attribution.causes(outliers)
        by_gap = dict(zip(asked.tolist(), causes, strict=True))
        culprits = self._with_unexplained(list(summarise(causes).culprits), self.lengths[alone])
        culprits.sort(key=lambda c: (-c.total_ns, c.kind, c.name))
        return culprits, [self._gap(i, by_gap[int(i)]) for i in by_length[:_LONGEST]], not_asked

    def _with_unexplained(self, culprits: list[Culprit], lengths: Lengths) -> list[Culprit]:
        """The gaps in which nothing at all was recorded, counted with those that are mostly so."""
        if not len(lengths):
            return culprits
        name, total, longest = self.attribution.unexplained, int(lengths.sum()), int(lengths.max())
        more = Culprit(UNEXPLAINED, name, len(lengths), total, longest, ())
        for i, known in enumerate(culprits):
            if known.kind == UNEXPLAINED:
                culprits[i] = msgspec.structs.replace(
                    known,
                    outliers=known.outliers + more.outliers,
                    total_ns=known.total_ns + more.total_ns,
                    longest_ns=max(known.longest_ns, more.longest_ns),
                )
                return culprits
        return [*culprits, more]

    def _gap(self, place: int, cause: Cause | None) -> Gap:
        at, length = int(self.starts[place]), int(self.lengths[place])
        if cause is None:
            return Gap(at, length, "", "", 0, 0, ())
        return Gap(at, length, cause.kind, cause.name, cause.pid, cause.explained_ns, cause.rows)


def over_time(starts: Lengths, lengths: Lengths, duration_ns: int) -> list[int]:
    """Time inside gaps in SLICES equal parts of the run; a gap over several counts in each for its part."""
    if not len(starts):
        return [0] * SLICES
    at = np.stack((starts, starts + lengths), axis=1).ravel()
    stolen = np.cumsum(lengths)
    so_far = np.stack((stolen - lengths, stolen), axis=1).ravel()
    edges = np.linspace(0, duration_ns, SLICES + 1)
    return [round(part) for part in np.diff(np.interp(edges, at, so_far)).tolist()]


def curve(lengths: Lengths) -> list[tuple[float, int]]:
    """The percentiles that have gaps enough, and the longest."""
    if not len(lengths):
        return []
    found = [(share, percentile(lengths, share, round(1 / (1 - share)))) for share in _CURVE]
    return [(share, ns) for share, ns in found if ns is not None] + [(1.0, int(lengths.max()))]


def percentile(lengths: Lengths, share: float, least: int) -> int | None:
    """The smallest length that ``share`` of all do not exceed; None of fewer than ``least``."""
    if len(lengths) < least:
        return None
    place = max(int(np.ceil(share * len(lengths))) - 1, 0)
    return int(np.partition(lengths, place)[place])


def verdict(found: CpuJitter, targets: JitterTargets, doubts: Sequence[str]) -> tuple[str, list[str]]:
    """Fit for a hot thread, or not and why. What speaks against it counts even where the rest is in doubt."""
    reasons = []
    if found.longest_ns > targets.gap_max_us * 1000:
        told = f"gone for {time(found.longest_ns)} at once (at most {time(targets.gap_max_us * 1000)})"
        first = found.longest[0] if found.longest else None
        if first is not None and first.name and first.length_ns == found.longest_ns:
            told += f": {title(first.kind, first.name)}"
        reasons.append(told)
    share = 100 * found.stolen_share
    if share > targets.stolen_max_pct:
        told = f"{share:.3g} % of its time stolen (at most {targets.stolen_max_pct:g} %)"
        worst = [f"{title(c.kind, c.name)}" for c in found.causes[:_REASON_CULPRITS]]
        reasons.append(told + (f": mostly {' and '.join(worst)}" if worst else ""))
    if doubts:
        return UNKNOWN, [*doubts, *reasons]
    return (UNFIT, reasons) if reasons else (FIT, [])


def rows_to_see(cpus: Sequence[CpuJitter], results: Iterable[RowResult], gap_max_us: float) -> list[RowToSee]:
    """The rows that the weighty causes point at: those that found something first, then by the time that
    they stand for."""
    stolen: dict[str, int] = {}
    where: dict[str, set[int]] = {}
    for cpu in cpus:
        for culprit in weighty(cpu, gap_max_us):
            for row in culprit.rows:
                stolen[row] = stolen.get(row, 0) + culprit.total_ns
                where.setdefault(row, set()).add(cpu.cpu)
    order = ("finding", "unknown", "not-applicable", "ok")
    found = [
        RowToSee(r.id, r.outcome, _why(r), r.title, stolen[r.id], sorted(where[r.id]))
        for r in results
        if r.id in stolen
    ]
    return sorted(found, key=lambda r: (order.index(r.outcome), -r.stolen_ns, r.id))


def weighty(cpu: CpuJitter, gap_max_us: float) -> list[Culprit]:
    """The causes that matter: of a hundredth of the stolen time at least, or of a gap that is too long."""
    return [
        culprit
        for culprit in cpu.causes
        if culprit.total_ns >= _WEIGHTY * cpu.stolen_ns or culprit.longest_ns > gap_max_us * 1000
    ]


def _why(result: RowResult) -> str:
    if result.findings:
        return result.findings[0].message
    if result.unknowns:
        return result.unknowns[0].reason
    return result.reason


def time(ns: float) -> str:
    """A length in three digits: "850 ns", "16.1 ms"."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns < 999.5 * size else f"{ns / size:,.0f} {unit}"
    return f"{ns:.0f} ns"
