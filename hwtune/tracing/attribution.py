"""Outliers and what else happened on their CPUs at that time.

Each moment of an outlier belongs to the innermost span that covers it, so nothing is counted twice: an
interrupt's time is not also the time of the task that it stopped.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from hwtune.tracing import kinds
from hwtune.tracing.rows import rows_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from hwtune.tracing.spans import CpuTrace, Spans
    from hwtune.tracing.watching import Recording

    Ints = NDArray[np.int64]
    # ticks, kind, name, pid, CPU
    _Candidate = tuple[int, str, str, int, int | None]

# The time beside a span that is taken for part of it: an interruption's way in and out, which no event
# covers, and what it leaves cold. It is measured from outliers with one interruption each, within these
# bounds: a microsecond or two on bare metal, ten and more under a hypervisor that takes each by itself.
_ENTRY_NS = (3_000, 20_000)
_ENTRY_OUTLIERS = 8


class Outlier(NamedTuple):
    """A time that was too long, in ticks of the run's clock. ``cpus``: where the threads ran whose time it
    was. ``expected``: how much of it they needed for their own work."""

    cpus: tuple[int, ...]
    start: int
    end: int
    expected: int = 0


class Share(msgspec.Struct, frozen=True):
    """Part of an outlier's time. ``pid``: of a switch, the task that ran; else 0."""

    kind: str
    name: str
    cpu: int
    pid: int
    ns: int


class Cause(msgspec.Struct, frozen=True):
    """What an outlier's time went to. ``kind`` and ``name`` are the main culprit's, that of an interrupt
    including the softirqs that it brought.

    ``explained_ns`` is what recorded spans cover, ``overhead_ns`` what was taken for the way into and out of
    them, ``fault_ns`` the time of a page fault (whose end nobody records: at most that), and
    ``unexplained_ns`` the rest, in which nothing ran that the kernel tells of. With the expected time, and
    ``not_recorded_ns`` where events were lost, they add up to ``duration_ns``.
    """

    cpus: tuple[int, ...]
    start_ticks: int
    end_ticks: int
    duration_ns: int
    kind: str
    name: str
    cpu: int | None
    pid: int
    explained_ns: int
    overhead_ns: int
    fault_ns: int
    unexplained_ns: int
    not_recorded_ns: int
    #: the largest first
    shares: tuple[Share, ...]
    #: rows of the diagnosis table that would mend it
    rows: tuple[str, ...]


class Culprit(msgspec.Struct, frozen=True):
    """One line of the summary: how many outliers were mostly its doing, and their time."""

    kind: str
    name: str
    outliers: int
    total_ns: int
    longest_ns: int
    rows: tuple[str, ...]


class Summary(msgspec.Struct, frozen=True):
    """``culprits``: the most frequent first, unexplained and not recorded ones last."""

    outliers: int
    culprits: tuple[Culprit, ...]


class Pieces(NamedTuple):
    """Stretches that don't overlap, by start, each with the innermost span there. Shape (pieces,)."""

    start: Ints
    end: Ints
    span: Ints


def attribute(
    recording: Recording,
    outliers: Sequence[Outlier],
    *,
    own: frozenset[int] = frozenset(),
    virtual: bool | None = None,
) -> list[Cause]:
    """The cause of each outlier, in their order: ``Attribution`` for once."""
    return Attribution(recording, own=own, virtual=virtual).causes(outliers)


def summarise(causes: Iterable[Cause]) -> Summary:
    groups: dict[tuple[str, str], list[Cause]] = defaultdict(list)
    count = 0
    for cause in causes:
        groups[(cause.kind, cause.name)].append(cause)
        count += 1
    culprits = [
        Culprit(
            kind=kind,
            name=name,
            outliers=len(group),
            total_ns=sum(c.duration_ns for c in group),
            longest_ns=max(c.duration_ns for c in group),
            rows=tuple(dict.fromkeys(row for c in group for row in c.rows)),
        )
        for (kind, name), group in groups.items()
    ]
    unnamed = (kinds.UNEXPLAINED, kinds.NOT_RECORDED)
    culprits.sort(key=lambda c: (c.kind in unnamed, -c.outliers, -c.total_ns, c.kind, c.name))
    return Summary(count, tuple(culprits))


def sentence(summary: Summary, what: str = "outlier", most: int = 4) -> str:
    """ "Of 41 outliers 33 coincide with IRQ 36 virtio1-req.0, 5 with kworker/2:1, 3 are unexplained."""
    total = summary.outliers
    if not total:
        return f"no {what}s"
    named = [c for c in summary.culprits if c.kind not in (kinds.UNEXPLAINED, kinds.NOT_RECORDED)]
    parts = [f"{c.outliers} with {title(c.kind, c.name)}" for c in named[:most]]
    if named[most:]:
        parts.append(f"{sum(c.outliers for c in named[most:])} with {len(named) - most} others")
    if parts:
        parts[0] = parts[0].replace(
            " with ", " coincide with " if named[0].outliers > 1 else " coincides with ", 1
        )
    for culprit in summary.culprits:
        if culprit.kind == kinds.UNEXPLAINED:
            parts.append(f"{culprit.outliers} unexplained")
        elif culprit.kind == kinds.NOT_RECORDED:
            parts.append(f"{culprit.outliers} not recorded")
    return f"of {total} {what}{'s' if total > 1 else ''} {', '.join(parts)}"


def title(kind: str, name: str) -> str:
    """A culprit in words: a softirq or an IPI is called one."""
    if kind == kinds.SOFTIRQ and not name.startswith("softirq"):
        return f"softirq {name}"
    if kind == kinds.IPI:
        return name if name.startswith(("IPI", "TLB", "irq work")) else f"IPI {name}"
    if kind == kinds.TIMER and name.startswith("tick"):
        return f"timer {name}"
    return name


def unexplained_name(virtual: bool | None) -> str:
    if virtual is None:
        return "hypervisor, firmware or hardware (nothing in the kernel was recorded)"
    if virtual:
        return "hypervisor or firmware (nothing in the kernel was recorded)"
    return "firmware (SMI) or hardware (nothing in the kernel was recorded)"


def flatten(spans: Spans) -> Pieces:
    """The innermost span of each moment that any covers; of two that began at once the shorter one."""
    start, end = spans.start, spans.end
    longer = np.nonzero(end > start)[0]
    if not len(longer):
        none = np.zeros(0, np.int64)
        return Pieces(none, none, none)
    # by start, the outer one first
    order = longer[np.lexsort((-end[longer], start[longer]))]
    start, end = start[order], end[order]
    depth = np.arange(len(order)) - np.searchsorted(np.sort(end), start, "right")
    edges = np.unique(np.concatenate((start, end)))
    left = edges[:-1]
    inner = np.full(len(left), -1, np.int64)
    # spans of one depth don't overlap; deeper ones hide those above
    for level in range(int(depth.max()) + 1):
        chosen = np.nonzero(depth == level)[0]
        place = np.searchsorted(start[chosen], left, "right") - 1
        covered = place >= 0
        covered &= end[chosen][np.maximum(place, 0)] > left
        inner[covered] = order[chosen[place[covered]]]
    kept = inner >= 0
    return Pieces(left[kept], edges[1:][kept], inner[kept])


class _Lookup:
    """One CPU's trace, made ready for questions about a stretch of time."""

    def __init__(self, trace: CpuTrace) -> None:
        self.trace = trace
        self.pieces = flatten(trace.spans)
        kind = trace.spans.kind
        self.faults = np.nonzero(kind == kinds.KINDS.index(kinds.PAGE_FAULT))[0]
        self.tasks = np.nonzero(kind == kinds.KINDS.index(kinds.SWITCH))[0]
        self._fault_time = trace.spans.start[self.faults]
        self._task_start = trace.spans.start[self.tasks]

    def running(self, time: int) -> int | None:
        """The task that had the CPU, by its number; None where that isn't known."""
        place = int(np.searchsorted(self._task_start, time, "right")) - 1
        if place < 0 or self.trace.spans.end[self.tasks[place]] < time:
            return None
        return int(self.trace.spans.pid[self.tasks[place]])

    def pieces_in(self, start: int, end: int) -> list[tuple[int, int, int]]:
        first = int(np.searchsorted(self.pieces.end, start, "right"))
        last = int(np.searchsorted(self.pieces.start, end, "left"))
        return [
            (
                max(int(self.pieces.start[i]), start),
                min(int(self.pieces.end[i]), end),
                int(self.pieces.span[i]),
            )
            for i in range(first, last)
        ]

    def untouched(self, starts: Ints, ends: Ints, own: frozenset[int]) -> NDArray[np.bool_]:
        trace, pieces = self.trace, self.pieces
        first = np.searchsorted(pieces.end, starts, "right")
        count = np.searchsorted(pieces.start, ends, "left") - first
        found: NDArray[np.bool_] = (count == 0) | (count == 1)
        if len(pieces.start):
            piece = np.minimum(first, len(pieces.start) - 1)
            span = pieces.span[piece]
            task = trace.spans.kind[span] == kinds.KINDS.index(kinds.SWITCH)
            pid = trace.spans.pid[span]
            task &= np.isin(pid, list(own)) if own else (pid != 0) & (pieces.start[piece] <= starts)
            found &= (count == 0) | task
        faults = np.searchsorted(self._fault_time, ends) - np.searchsorted(self._fault_time, starts)
        found &= (faults == 0) & (starts >= trace.begin) & (ends <= trace.end)
        for begin, end in trace.lost:
            found &= (starts >= end) | (ends <= begin)
        return found

    def faults_in(self, start: int, end: int) -> list[int]:
        first, last = np.searchsorted(self._fault_time, [start, end])
        return [int(i) for i in self.faults[first:last]]

    def gaps_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """Stretches that were not recorded."""
        trace = self.trace
        found = [(start, min(end, trace.begin)), (max(start, trace.end), end)]
        found += [(max(start, int(a)), min(end, int(b))) for a, b in trace.lost]
        return [(a, b) for a, b in found if a < b]


class _Stretch(NamedTuple):
    start: int
    end: int
    cpu: int
    span: int


class Account(NamedTuple):
    """One outlier's time in ticks, before anything is concluded."""

    outlier: Outlier
    stretches: list[_Stretch]  # what had the CPUs, without the threads themselves
    origins: frozenset[tuple[int, int]]  # CPU and span of what brought each of them
    covered: list[tuple[int, int]]  # by them, or not recorded
    explained: int
    not_recorded: int
    rest: int  # of neither, without what the threads needed themselves


def entry_cost(accounts: Sequence[Account], ns_per_tick: float) -> int:
    """What an interruption costs beside its spans, in ticks: twice the lower quartile where enough outliers
    have just one, so that a hypervisor that steals time now and then does not count."""
    least, most = (int(ns / ns_per_tick) for ns in _ENTRY_NS)
    rests = [
        a.rest for a in accounts if len(a.origins) == 1 and not a.not_recorded and not a.outlier.expected
    ]
    if len(rests) < _ENTRY_OUTLIERS:
        return least
    return min(max(2 * sorted(rests)[len(rests) // 4], least), most)


class Attribution:
    """A recording made ready to be asked.

    ``own`` are the kernel's thread ids (gettid) of the threads whose outliers these are; without them the
    task that had the CPU when an outlier began is taken for the one that waited. ``virtual``: whether this
    is a virtual machine, for the wording of what stays unexplained. Without a trace every cause is
    "not-recorded".
    """

    def __init__(
        self, recording: Recording, *, own: frozenset[int] = frozenset(), virtual: bool | None = None
    ) -> None:
        self.recording = recording
        self.lookups: Mapping[int, _Lookup] = {c: _Lookup(trace) for c, trace in recording.cpus.items()}
        self.own = own
        self.unexplained = unexplained_name(virtual)

    def causes(self, outliers: Sequence[Outlier]) -> list[Cause]:
        """The cause of each outlier, in their order. What an interruption costs beside its spans is learned
        from all of them together."""
        accounts = [self.account(outlier) for outlier in outliers]
        entry = entry_cost(accounts, self.recording.ns_per_tick)
        return [self.cause(account, entry) for account in accounts]

    def untouched(self, cpu: int, starts: Ints, ends: Ints) -> NDArray[np.bool_]:
        """Which outliers of one CPU lie within one task's time, with nothing else recorded: all of it is
        unexplained. For so many that asking for each one's cause would take too long."""
        lookup = self.lookups.get(cpu)
        if lookup is None:
            return np.zeros(len(starts), bool)
        return lookup.untouched(starts, ends, self.own)

    def account(self, outlier: Outlier) -> Account:
        missing = self._missing(outlier)
        stretches = self._stretches(outlier, missing)
        covered = _union([(s.start, s.end) for s in stretches] + missing)
        not_recorded = _length(missing)
        return Account(
            outlier=outlier,
            stretches=stretches,
            origins=frozenset(self._origin(s) for s in stretches),
            covered=covered,
            explained=_length(covered) - not_recorded,
            not_recorded=not_recorded,
            rest=max(outlier.end - outlier.start - _length(covered) - outlier.expected, 0),
        )

    def cause(self, account: Account, entry: int) -> Cause:
        outlier = account.outlier
        overhead = min(account.rest, entry * len(account.origins))
        rest = account.rest - overhead
        fault = self._fault(account, rest)
        fault_ticks = sum(ticks for ticks, *_ in fault)
        rest -= fault_ticks
        only = outlier.cpus[0] if len(outlier.cpus) == 1 else None
        candidates: list[_Candidate] = [
            *self._totals(account, overhead),
            *fault,
            (rest, kinds.UNEXPLAINED, self.unexplained, 0, only),
            (account.not_recorded, kinds.NOT_RECORDED, "events of this time were not recorded", 0, only),
        ]
        # of equals the first, so that what was recorded goes before what was not
        _, kind, name, pid, cpu = max(candidates, key=lambda c: c[0])
        return Cause(
            cpus=outlier.cpus,
            start_ticks=outlier.start,
            end_ticks=outlier.end,
            duration_ns=self._ns(outlier.end - outlier.start),
            kind=kind,
            name=name,
            cpu=cpu,
            pid=pid,
            explained_ns=self._ns(account.explained),
            overhead_ns=self._ns(overhead),
            fault_ns=self._ns(fault_ticks),
            unexplained_ns=self._ns(rest),
            not_recorded_ns=self._ns(account.not_recorded),
            shares=self._shares(account.stretches),
            rows=rows_for(kind, name),
        )

    def _missing(self, outlier: Outlier) -> list[tuple[int, int]]:
        """Times at which some CPU's events were not recorded."""
        found = []
        for cpu in outlier.cpus:
            lookup = self.lookups.get(cpu)
            if lookup is None:
                found.append((outlier.start, outlier.end))
            else:
                found += lookup.gaps_in(outlier.start, outlier.end)
        return _union(found)

    def _stretches(self, outlier: Outlier, missing: Sequence[tuple[int, int]]) -> list[_Stretch]:
        found = []
        for cpu in outlier.cpus:
            lookup = self.lookups.get(cpu)
            if lookup is None:
                continue
            spans = lookup.trace.spans
            own = self.own or {lookup.running(outlier.start)} - {0}
            for start, end, span in lookup.pieces_in(outlier.start, outlier.end):
                if spans.kind[span] == kinds.KINDS.index(kinds.SWITCH) and int(spans.pid[span]) in own:
                    continue
                found += [_Stretch(a, b, cpu, span) for a, b in _without(start, end, missing)]
        return found

    def _origin(self, stretch: _Stretch) -> tuple[int, int]:
        return stretch.cpu, int(self.lookups[stretch.cpu].trace.spans.origin[stretch.span])

    def _label(self, cpu: int, span: int) -> tuple[str, str, int]:
        spans = self.lookups[cpu].trace.spans
        kind = kinds.KINDS[spans.kind[span]]
        pid = int(spans.pid[span]) if kind == kinds.SWITCH else 0
        return kind, self.recording.names[spans.name[span]], pid

    def _totals(self, account: Account, overhead: int) -> list[_Candidate]:
        """By culprit, each interruption with its part of the ways in and out."""
        each: dict[tuple[int, int], int] = defaultdict(int)
        for stretch in account.stretches:
            each[self._origin(stretch)] += stretch.end - stretch.start
        found: dict[tuple[str, str, int, int], int] = defaultdict(int)
        for (cpu, span), ticks in each.items():
            kind, name, pid = self._label(cpu, span)
            found[(kind, name, pid, cpu)] += ticks + overhead // len(each)
        return [(ticks, *culprit) for culprit, ticks in found.items()]

    def _fault(self, account: Account, rest: int) -> list[_Candidate]:
        """What is behind the first page fault and nothing covers, with its way in; [] without a fault. The
        exception's entry is before its event: half a microsecond and more in a guest."""
        faults = []
        for cpu in account.outlier.cpus:
            lookup = self.lookups.get(cpu)
            if lookup is not None:
                for span in lookup.faults_in(account.outlier.start, account.outlier.end):
                    faults.append((int(lookup.trace.spans.start[span]), cpu, span))
        if not faults:
            return []
        time, cpu, span = min(faults)
        kind, name, _ = self._label(cpu, span)
        begin = max(account.outlier.start, time - int(_ENTRY_NS[0] / self.recording.ns_per_tick))
        its = _length(_without(begin, account.outlier.end, account.covered))
        return [(min(its, rest), kind, name, 0, cpu)]

    def _shares(self, stretches: Sequence[_Stretch]) -> tuple[Share, ...]:
        ticks: dict[tuple[str, str, int, int], int] = defaultdict(int)
        for stretch in stretches:
            kind, name, pid = self._label(stretch.cpu, stretch.span)
            ticks[(kind, name, stretch.cpu, pid)] += stretch.end - stretch.start
        shares = [
            Share(kind=kind, name=name, cpu=cpu, pid=pid, ns=self._ns(amount))
            for (kind, name, cpu, pid), amount in ticks.items()
        ]
        return tuple(sorted(shares, key=lambda s: (-s.ns, s.kind, s.name, s.cpu, s.pid)))

    def _ns(self, ticks: int) -> int:
        return int(ticks * self.recording.ns_per_tick)


def _union(stretches: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif start < end:
            found.append((start, end))
    return found


def _without(start: int, end: int, holes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is left of a stretch; ``holes`` are sorted and apart."""
    found = []
    for a, b in holes:
        if b <= start or a >= end:
            continue
        if a > start:
            found.append((start, a))
        start = max(start, b)
    if start < end:
        found.append((start, end))
    return found


def _length(stretches: Sequence[tuple[int, int]]) -> int:
    return sum(end - start for start, end in stretches)
