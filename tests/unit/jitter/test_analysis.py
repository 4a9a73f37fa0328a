"""From gaps to verdicts, worked out by hand on a made-up loop and trace."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from hwtune.diagnosis.engine import RowResult
from hwtune.diagnosis.verdict import Finding
from hwtune.jitter.analysis import analyse, percentile, rows_to_see, time, weighty
from hwtune.jitter.measure import Measured, Spun
from hwtune.jitter.results import FIT, UNFIT, UNKNOWN
from hwtune.profile import JitterTargets, load
from hwtune.tracing import Recording, kinds
from hwtune.tracing.counters import Counted, CpuCounters, Fired
from hwtune.tracing.spans import CpuTrace, Spans, origins

NS = 0.5  # a tick: positions below are nanoseconds of the loop, which began at tick 1000
BEGAN = 1000
SECOND = 1_000_000_000
LIMITS = JitterTargets(gap_max_us=100.0, stolen_max_pct=0.1)
LOOP, OTHER = 77, 9


class Result(NamedTuple):
    cpu: int
    gap_starts_ns: Any
    gap_lengths_ns: Any
    gap_ns: int
    longest_ns: int
    started_ticks: int = BEGAN
    duration_ns: int = SECOND
    threshold_ns: int = 100
    step_min_ns: float = 10.0
    step_median_ns: float = 12.0
    lost: int = 0
    backwards: int = 0
    migrated: bool = False
    involuntary_switches: int = 0
    minor_faults: int = 0
    major_faults: int = 0


class Clock(NamedTuple):
    source: str = "tsc"
    why: str = ""
    ns_per_tick: float = NS
    cost_ns: float = 8.0
    step_ns: float = 1.0


def loop(cpu, gaps, **values):
    starts, lengths = (
        np.array(column, np.uint64) for column in (zip(*gaps, strict=True) if gaps else ((), ()))
    )
    total, longest = int(lengths.sum()), int(lengths.max(initial=0))
    return Spun(Result(cpu, starts, lengths, total, longest, **values), LOOP, SECOND + 4_000_000)


def traced(cpu, rows, lost=()):
    """Rows of (start ns, end ns, kind, name, pid) in the loop's time."""
    names = sorted({row[3] for row in rows})
    ordered = sorted(rows, key=lambda row: (row[0], -row[1]))
    column = list(zip(*ordered, strict=True))
    ticks = [np.array([BEGAN + int(t / NS) for t in column[i]], np.int64) for i in (0, 1)]
    spans = Spans(
        *ticks,
        np.array([kinds.KINDS.index(k) for k in column[2]], np.uint8),
        np.array([names.index(n) for n in column[3]], np.int32),
        np.array(column[4], np.int32),
        np.zeros(0, np.int32),
    )
    spans = spans._replace(origin=origins(spans, 10))
    gone = np.array([[BEGAN + int(t / NS) for t in pair] for pair in lost], np.int64).reshape(-1, 2)
    return CpuTrace(cpu, 0, BEGAN + int(2 * SECOND / NS), spans, gone, 1, 0, 0), names


def measured(spun, traces=(), counters=(), why=""):
    names: list[str] = []
    cpus = {}
    for trace, own in traces:
        spans = trace.spans._replace(name=trace.spans.name + np.int32(len(names)))
        cpus[trace.cpu] = trace._replace(spans=spans)
        names += own
    recording = Recording(cpus, names, NS, Counted(tuple(counters), ()), why, [])
    return Measured({s.result.cpu: s for s in spun}, recording, Clock(), False, 0.0, 1.0)


TASK = (-1000, 2 * SECOND, "switch", "loop", LOOP)


def test_a_quiet_cpu_is_fit():
    (cpu,) = analyse(measured([loop(2, [(100, 4000), (10_000, 6000)])], [traced(2, [TASK])]), LIMITS, False)
    assert (cpu.verdict, cpu.reasons) == (FIT, [])
    assert (cpu.gaps, cpu.stolen_ns, cpu.longest_ns) == (2, 10_000, 6000)
    assert cpu.stolen_share == pytest.approx(1e-5)
    assert cpu.gaps_per_second == pytest.approx(2)
    assert cpu.coverage == pytest.approx(1 / 1.004)
    assert (cpu.p50_ns, cpu.p99_ns, cpu.p999_ns) == (4000, None, None)


def test_the_longest_gap_makes_it_unfit_and_is_named():
    rows = [TASK, (50_000, 449_000, "irq", "IRQ 36 virtio1-req.0", LOOP)]
    gaps = [(50_000, 400_000), (700_000, 500)]
    (cpu,) = analyse(measured([loop(2, gaps)], [traced(2, rows)]), LIMITS, False)
    assert cpu.verdict == UNFIT
    assert cpu.reasons == ["gone for 400 us at once (at most 100 us): IRQ 36 virtio1-req.0"]
    assert [(c.kind, c.name, c.outliers, c.total_ns) for c in cpu.causes] == [
        ("irq", "IRQ 36 virtio1-req.0", 1, 400_000),
        ("unexplained", "firmware (SMI) or hardware (nothing in the kernel was recorded)", 1, 500),
    ]
    assert [(g.at_ns, g.length_ns, g.explained_ns) for g in cpu.longest] == [
        (50_000, 400_000, 399_000),
        (700_000, 500, 0),
    ]
    assert cpu.longest[0].rows[0] == "irq.on-isolated"


def test_many_short_ones_make_it_unfit_too():
    rows, gaps = [TASK], []
    for i in range(1000):
        at = 500_000 * i
        rows.append((at, at + 1900, "timer", "tick", LOOP))
        gaps.append((at, 2000))
    (cpu,) = analyse(measured([loop(2, gaps)], [traced(2, rows)]), LIMITS, False)
    assert cpu.verdict == UNFIT
    assert cpu.reasons == ["0.2 % of its time stolen (at most 0.1 %): mostly timer tick"]
    assert (cpu.p99_ns, cpu.p999_ns) == (2000, 2000)
    assert [(c.name, c.outliers) for c in cpu.causes] == [("tick", 1000)]


def test_gaps_without_anything_recorded_are_counted_together():
    """As many as a hypervisor makes; each of them has to be in the sum."""
    gaps = [(1000 * i, 200 + i % 7) for i in range(60_000)]
    rows = [TASK, (30_000_000, 30_000_150, "timer", "tick", LOOP)]
    (cpu,) = analyse(measured([loop(2, gaps)], [traced(2, rows)]), LIMITS, True)
    found = {c.kind: c for c in cpu.causes}
    assert found["timer"].outliers == 1
    assert found["unexplained"].outliers == 59_999
    assert sum(c.total_ns for c in cpu.causes) == cpu.stolen_ns
    assert cpu.gaps_not_asked == 0


def test_another_task_and_lost_events_are_not_untouched():
    rows = [
        (-1000, 10_000, "switch", "loop", LOOP),
        (10_000, 30_000, "switch", "python3", OTHER),
        (30_000, 2 * SECOND, "switch", "loop", LOOP),
    ]
    gaps = [(10_000, 20_000), (60_000, 10_000), (100_000, 500)]
    (cpu,) = analyse(measured([loop(2, gaps)], [traced(2, rows, lost=[(59_000, 71_000)])]), LIMITS, False)
    assert {(c.kind, c.total_ns) for c in cpu.causes} == {
        ("switch", 20_000),
        ("not-recorded", 10_000),
        ("unexplained", 500),
    }


def test_a_measurement_in_doubt_gives_no_verdict():
    spun = [loop(1, [(0, 900_000)], backwards=3), loop(2, [], migrated=True)]
    first, second = analyse(measured(spun, [traced(1, [TASK]), traced(2, [TASK])]), LIMITS, False)
    assert first.verdict == second.verdict == UNKNOWN
    assert first.reasons[0] == "the clock went backwards 3 times"
    assert first.reasons[1].startswith("gone for 900 us")
    assert second.reasons == ["somebody moved the loop to another CPU"]


def test_without_a_trace_the_counters_speak():
    counted = CpuCounters(2, (Fired("timer", "local timer", 250, ()),), 0, 5, None)
    (cpu,) = analyse(measured([loop(2, [(5, 200_000)])], counters=[counted], why="not root"), LIMITS, None)
    assert cpu.verdict == UNFIT
    assert cpu.reasons == ["gone for 200 us at once (at most 100 us)"]
    assert cpu.causes == []
    assert (cpu.longest[0].length_ns, cpu.longest[0].name) == (200_000, "")
    assert cpu.counters is counted


def test_gaps_that_were_not_kept_are_counted():
    (cpu,) = analyse(measured([loop(2, [(5, 200)], lost=40)]), LIMITS, None)
    assert (cpu.gaps, cpu.gaps_not_kept) == (41, 40)


def test_percentiles_are_order_statistics():
    lengths = np.arange(1, 1001)
    assert percentile(lengths, 0.99, 100) == 990
    assert percentile(lengths, 0.999, 1000) == 999
    assert percentile(lengths[:999], 0.999, 1000) is None


def row(id, outcome, message=""):
    findings = [Finding("cpu:2", message, [])] if message else []
    return RowResult(id, outcome, None, "runtime", f"title of {id}", "because", findings, [], [])


def test_rows_that_found_something_come_first_and_trifles_not_at_all():
    rows = [
        TASK,
        (50_000, 449_000, "irq", "IRQ 36 virtio1-req.0", LOOP),
        (600_000, 604_000, "timer", "tick", LOOP),
        (700_000, 701_000, "softirq", "RCU", LOOP),
    ]
    gaps = [(50_000, 400_000), (600_000, 5000), (700_000, 1100)]
    cpus = analyse(measured([loop(2, gaps)], [traced(2, rows)]), LIMITS, False)
    assert [c.name for c in weighty(cpus[0], 100)] == ["IRQ 36 virtio1-req.0", "tick"]
    results = [
        row("isolation.tick", "ok"),
        row("irq.irqbalance", "ok"),
        row("isolation.kernel-args", "finding", "x"),
    ]
    results.append(row("irq.on-isolated", "finding", "IRQ 36 lands here."))
    found = rows_to_see(cpus, results, 100)
    assert [(r.id, r.outcome, r.reason, r.stolen_ns, r.cpus) for r in found] == [
        ("irq.on-isolated", "finding", "IRQ 36 lands here.", 400_000, [2]),
        ("irq.irqbalance", "ok", "because", 400_000, [2]),
        ("isolation.tick", "ok", "because", 5000, [2]),
    ]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1000, "1 us"),
        (16_100_000, "16.1 ms"),
        (999_600, "1,000 us"),
        (2.5e9, "2.5 s"),
    ],
)
def test_times_have_three_digits(ns, text):
    assert time(ns) == text


def test_profiles_have_limits():
    assert (
        load().jitter.gap_max_us
        < load("gpu-inference").jitter.gap_max_us
        < load("gpu-training").jitter.gap_max_us
    )
