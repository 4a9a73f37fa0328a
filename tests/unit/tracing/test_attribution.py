"""Outliers and their causes: shares against a count of single ticks, and cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.tracing import Outlier, attribute, kinds, sentence, summarise
from hwtune.tracing.attribution import flatten
from hwtune.tracing.counters import Counted
from hwtune.tracing.spans import CpuTrace, Spans, origins
from hwtune.tracing.watching import Recording

NS = 2.0  # a tick
BEGIN, END = 0, 1_000_000
HOT = 77


def spans_of(rows):
    """Rows of (start, end, kind, name, pid), with the names' list."""
    names = sorted({row[3] for row in rows})
    ordered = sorted(rows, key=lambda row: (row[0], -row[1]))
    columns = list(zip(*ordered, strict=True)) if ordered else [[]] * 5
    spans = Spans(
        np.array(columns[0], np.int64),
        np.array(columns[1], np.int64),
        np.array([kinds.KINDS.index(k) for k in columns[2]], np.uint8),
        np.array([names.index(n) for n in columns[3]], np.int32),
        np.array(columns[4], np.int32),
        np.zeros(0, np.int32),
    )
    return spans._replace(origin=origins(spans, follows=5)), names


def recording(rows_by_cpu, lost=()):
    spans = {cpu: spans_of(rows) for cpu, rows in rows_by_cpu.items()}
    names: list[str] = []
    cpus = {}
    for cpu, (found, own) in spans.items():
        shifted = found._replace(name=found.name + np.int32(len(names)))
        names += own
        gone = np.array(lost, np.int64).reshape(-1, 2)
        cpus[cpu] = CpuTrace(cpu, BEGIN, END, shifted, gone, len(found.start), 0, 0)
    return Recording(cpus, names, NS, Counted((), ()), "", [])


def one(rows, outlier, *, lost=(), own=frozenset(), virtual=None):
    return attribute(recording({2: rows}, lost), [outlier], own=own, virtual=virtual)[0]


IRQ = (2000, 4000, "irq", "IRQ 36 virtio1-req.0", HOT)
TASK = (0, END, "switch", "hot", HOT)


# -- the innermost span, against a count of every single tick


@st.composite
def nested(draw, begin=0, end=200, depth=0):
    """Spans that nest, as (start, end), the outer ones first."""
    found = []
    at = begin
    for _ in range(draw(st.integers(0, 4 if depth == 0 else 2))):
        if at >= end:
            break
        start = draw(st.integers(at, end - 1))
        stop = draw(st.integers(start, end))
        found.append((start, stop))
        if depth < 3 and stop > start:
            found += draw(nested(start, stop, depth + 1))
        at = stop
    return found


@given(nested(), st.integers(0, 200), st.integers(0, 200))
def test_the_innermost_span_of_each_moment(spans, a, b):
    rows = [(start, end, "irq", f"s{i}", i) for i, (start, end) in enumerate(spans)]
    table, names = spans_of(rows)
    pieces = flatten(table)
    owner: dict[int, str] = {}
    for number, (start, end) in enumerate(spans):  # the outer ones first, so the inner ones overwrite them
        for moment in range(start, end):
            owner[moment] = f"s{number}"
    found = {
        moment: names[table.name[span]]
        for start, end, span in zip(*pieces, strict=True)
        for moment in range(start, end)
    }
    assert found == owner
    assert (pieces.start[1:] >= pieces.end[:-1]).all()
    # and what an outlier from a to b is told of
    start, end = min(a, b), max(a, b)
    cause = attribute(recording({2: rows}), [Outlier((2,), start, end)])[0]
    covered = sum(1 for moment in owner if start <= moment < end)
    assert cause.explained_ns == covered * NS
    by_name: dict[str, float] = {}
    for moment, name in owner.items():
        if start <= moment < end:
            by_name[name] = by_name.get(name, 0) + NS
    assert {share.name: share.ns for share in cause.shares} == by_name


# -- culprits


def test_an_interrupt_explains_what_it_covers():
    cause = one([TASK, IRQ], Outlier((2,), 1500, 4500))
    assert (cause.kind, cause.name, cause.cpu) == ("irq", "IRQ 36 virtio1-req.0", 2)
    assert cause.duration_ns == 6000
    assert cause.explained_ns == 4000
    assert cause.overhead_ns == 2000  # up to 3 microseconds of the way in and out
    assert cause.unexplained_ns == 0
    assert cause.rows[0] == "irq.on-isolated"


def test_a_softirq_counts_for_the_interrupt_that_brought_it():
    rows = [TASK, (2000, 2100, "irq", "IRQ 45 eth0", HOT), (2104, 9000, "softirq", "NET_RX", HOT)]
    cause = one(rows, Outlier((2,), 1990, 9010))
    assert (cause.kind, cause.name) == ("irq", "IRQ 45 eth0")
    assert [(s.kind, s.name, s.ns) for s in cause.shares] == [
        ("softirq", "NET_RX", 13792),
        ("irq", "IRQ 45 eth0", 200),
    ]


def test_an_interrupt_within_another_task_is_not_that_tasks():
    rows = [
        (0, 1000, "switch", "hot", HOT),
        (1000, 9000, "switch", "kworker/2:1", 50),
        (9000, END, "switch", "hot", HOT),
        (2000, 3000, "timer", "tick", 50),
    ]
    cause = one(rows, Outlier((2,), 900, 9100))
    assert (cause.kind, cause.name, cause.pid) == ("switch", "kworker/2:1", 50)
    assert [(s.name, s.pid, s.ns) for s in cause.shares] == [("kworker/2:1", 50, 14000), ("tick", 0, 2000)]
    assert cause.rows[0] == "isolation.workqueues"


def test_the_thread_that_was_running_is_the_one_that_waited():
    rows = [
        (0, 1000, "switch", "hot", HOT),
        (1000, 3000, "switch", "other", 9),
        (3000, END, "switch", "hot", HOT),
    ]
    assert one(rows, Outlier((2,), 900, 3100)).name == "other"
    # the outlier begins when the thread was off the CPU already: only its number tells which one it is
    late = one(rows, Outlier((2,), 1500, 3100), own=frozenset((HOT,)))
    assert (late.name, late.explained_ns) == ("other", 3000)
    assert one(rows, Outlier((2,), 1500, 3100)).name == "hot"


def test_idle_is_never_taken_for_the_thread():
    rows = [(0, 5000, "switch", "idle", 0), (5000, END, "switch", "hot", HOT)]
    cause = one(rows, Outlier((2,), 1000, 5100), own=frozenset((HOT,)))
    assert (cause.kind, cause.name, cause.rows) == ("switch", "idle", ())


@pytest.mark.parametrize(
    ("virtual", "name"),
    [
        (True, "hypervisor or firmware (nothing in the kernel was recorded)"),
        (False, "firmware (SMI) or hardware (nothing in the kernel was recorded)"),
    ],
)
def test_what_nothing_covers_is_unexplained(virtual, name):
    cause = one([TASK], Outlier((2,), 100, 50_100), virtual=virtual)
    assert (cause.kind, cause.name) == ("unexplained", name)
    assert cause.unexplained_ns == 100_000


def test_a_short_interrupt_in_a_long_gap_is_not_its_cause():
    rows = [TASK, (2000, 2500, "timer", "tick", HOT)]
    cause = one(rows, Outlier((2,), 1000, 101_000))
    assert cause.kind == "unexplained"
    assert cause.explained_ns == 1000
    assert cause.overhead_ns == 3000
    assert cause.unexplained_ns == 196_000


def test_what_the_thread_needed_for_itself_is_not_to_be_explained():
    cause = one([TASK, IRQ], Outlier((2,), 0, 60_000, expected=57_000))
    assert (cause.kind, cause.explained_ns, cause.unexplained_ns) == ("irq", 4000, 0)


def test_lost_events_are_not_called_unexplained():
    cause = one([TASK, IRQ], Outlier((2,), 1000, 41_000), lost=[(3000, 39_000)])
    assert cause.kind == "not-recorded"
    assert cause.not_recorded_ns == 72_000
    assert cause.explained_ns == 2000
    parts = (cause.explained_ns, cause.overhead_ns, cause.unexplained_ns, cause.not_recorded_ns)
    assert sum(parts) == cause.duration_ns


def test_before_the_trace_and_on_another_cpu():
    assert one([TASK], Outlier((2,), -500, -100)).kind == "not-recorded"
    assert one([TASK], Outlier((5,), 100, 200)).kind == "not-recorded"
    assert one([TASK], Outlier((2,), END + 5, END + 50)).not_recorded_ns == 90


def test_a_page_fault_takes_what_is_behind_it_and_not_covered():
    rows = [TASK, (3000, 3000, "page-fault", "page fault", HOT), (4000, 4500, "timer", "tick", HOT)]
    cause = one(rows, Outlier((2,), 2900, 13_000))
    assert (cause.kind, cause.name) == ("page-fault", "page fault")
    assert cause.explained_ns == 1000
    assert cause.overhead_ns == 3000
    # 100 ticks before the fault, 500 covered, 1500 overhead
    assert cause.fault_ns == 2 * (10_100 - 500 - 1500)
    assert cause.unexplained_ns == 0


def test_a_page_faults_way_in_is_its_own_and_bounded():
    """The exception's entry comes before its event. What is longer than 3 us before it is nobody's."""
    rows = [TASK, (3000, 3000, "page-fault", "page fault", HOT)]
    short = one(rows, Outlier((2,), 2000, 3500))
    assert (short.kind, short.fault_ns, short.unexplained_ns) == ("page-fault", 3000, 0)
    long = one(rows, Outlier((2,), 1000, 4000))
    assert (long.fault_ns, long.unexplained_ns) == (2 * (1500 + 1000), 2 * 500)
    assert one(rows, Outlier((2,), -9000, 3500)).kind != "page-fault"


def test_threads_on_several_cpus():
    rows = {
        2: [TASK, IRQ],
        3: [(0, END, "switch", "hot", 78), (2500, 9000, "switch", "python3", 9)],
    }
    cause = attribute(recording(rows), [Outlier((2, 3), 1000, 9500)])[0]
    assert (cause.kind, cause.name, cause.cpu) == ("switch", "python3", 3)
    # CPU 2's interrupt and CPU 3's task overlap: time is not counted twice
    assert cause.explained_ns == 2 * (9000 - 2000)
    assert {s.cpu for s in cause.shares} == {2, 3}


def test_the_way_in_and_out_is_measured():
    """A hypervisor makes each interrupt cost 10 microseconds that no event covers."""
    rows = [TASK]
    outliers = []
    for i in range(40):
        at = 10_000 * (i + 1)
        rows.append((at, at + 500, "timer", "tick", HOT))
        outliers.append(Outlier((2,), at - 2500, at + 3000))
    causes = attribute(recording({2: rows}), outliers)
    assert {(c.kind, c.overhead_ns, c.unexplained_ns) for c in causes} == {("timer", 10_000, 0)}
    # with a few of them the default holds, and most of each is unexplained
    few = attribute(recording({2: rows}), outliers[:3])
    assert {(c.kind, c.overhead_ns, c.unexplained_ns) for c in few} == {("unexplained", 3_000, 7_000)}


def test_without_a_trace():
    nothing = Recording({}, [], NS, Counted((), ()), "not root", [])
    cause = attribute(nothing, [Outlier((2,), 0, 10)])[0]
    assert (cause.kind, cause.not_recorded_ns) == ("not-recorded", 20)


# -- the summary


def test_the_summary_counts_and_says():
    rows = [TASK]
    outliers = []
    for i in range(10):
        at = 50_000 + 10_000 * i
        if i < 6:
            rows.append((at, at + 3000, "irq", "IRQ 36 virtio1-req.0", HOT))
        elif i < 8:
            rows.append((at, at + 5000, "timer", "tick", HOT))
        outliers.append(Outlier((2,), at, at + 5000))
    summary = summarise(attribute(recording({2: rows}), outliers, virtual=True))
    assert [(c.kind, c.outliers, c.total_ns) for c in summary.culprits] == [
        ("irq", 6, 60_000),
        ("timer", 2, 20_000),
        ("unexplained", 2, 20_000),
    ]
    assert sentence(summary) == (
        "of 10 outliers 6 coincide with IRQ 36 virtio1-req.0, 2 with timer tick, 2 unexplained"
    )


def test_one_outlier_and_none():
    single = summarise(attribute(recording({2: [TASK, IRQ]}), [Outlier((2,), 2000, 4000)]))
    assert sentence(single, "gap") == "of 1 gap 1 coincides with IRQ 36 virtio1-req.0"
    assert sentence(summarise([]), "gap") == "no gaps"
