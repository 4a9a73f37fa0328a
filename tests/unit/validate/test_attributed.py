"""Causes of outliers, from a trace's spans to the report's words."""

from __future__ import annotations

import numpy as np
import pytest

from hwtune.tracing import Counted, CpuCounters, Fired, Recording, kinds
from hwtune.tracing.spans import CpuTrace, Spans
from hwtune.validate.attributed import attributed
from tests.support import runs

FIRED = (Fired("timer", "local timer", 2503, ()), Fired("irq", "IRQ 36 virtio1-req.0", 41, ()))
COUNTED = Counted(
    (CpuCounters(1, FIRED, 120_000_000, 9, 3), CpuCounters(2, (), 0, 0, None)),
    ("/proc/schedstat is not there",),
)


def test_without_a_trace_counters_tell_what_fired():
    recording = Recording({}, [], 0.5, COUNTED, "only root may trace", ["a note"])
    found = attributed(recording, runs.run(outliers=[runs.outlier(1, 0, order=600_000)], outliers_seen=1))
    assert (found.method, found.why, found.causes, found.by_outlier) == (
        "counters",
        "only root may trace",
        [],
        {},
    )
    assert found.fired == [
        "CPU 1: 2,503 local timer, 41 IRQ 36 virtio1-req.0; 120 ms that the hypervisor gave to others; "
        "3 system management interrupts."
    ]
    assert found.notes == ["a note", "/proc/schedstat is not there"]


def test_without_anything_there_is_no_method():
    recording = Recording({}, [], 0.5, Counted((), ()), "only root may trace", [])
    assert attributed(recording, runs.run()).method == "none"


def traced(*rows):
    """CPU 2, all of it the thread's own, with interrupts of (start, end, name)."""
    names = ["hot", *sorted({name for _, _, name in rows})]
    everything = [(0, 10_000_000, "switch", "hot"), *((s, e, "irq", n) for s, e, n in sorted(rows))]
    spans = Spans(
        np.array([row[0] for row in everything], np.int64),
        np.array([row[1] for row in everything], np.int64),
        np.array([kinds.KINDS.index(row[2]) for row in everything], np.uint8),
        np.array([names.index(row[3]) for row in everything], np.int32),
        np.full(len(everything), 77, np.int32),
        np.arange(len(everything), dtype=np.int32),
    )
    trace = CpuTrace(2, 0, 10_000_000, spans, np.zeros((0, 2), np.int64), len(everything), 0, 0)
    return Recording({2: trace}, names, 0.5, COUNTED, "", [])


def test_a_trace_names_what_an_outliers_time_went_to():
    # half a nanosecond a tick: due at 1,002,000 ticks, 600 us long, of which the interrupt had 540
    slow = runs.outlier(17, 1_000, order=600_000)
    assert (slow.stamps[0], slow.stamps[-1]) == (1_002_000, 2_202_000)
    quiet = runs.outlier(18, 2_000_000, order=200_000)
    recording = traced((1_010_000, 2_090_000, "IRQ 36 virtio1-req.0"))
    run = runs.run(outliers=[slow, quiet], outliers_seen=2, cpus={"generator": 2, "compute": 2, "orders": 2})
    found = attributed(recording, run, virtual=False)
    assert found.method == "trace"
    first = found.by_outlier[17][0]
    assert (first.kind, first.name, first.cpu) == ("irq", "IRQ 36 virtio1-req.0", 2)
    assert first.share == pytest.approx(0.9)
    assert sum(part.share for part in found.by_outlier[17]) <= 1
    assert [part.kind for part in found.by_outlier[18]] == ["unexplained"]
    # 0.12 us of the 200 is what that stage takes at P50
    assert found.by_outlier[18][0].share == pytest.approx(1 - 0.12 / 200, abs=0.0001)
    assert [(c.kind, c.outliers) for c in found.causes] == [("irq", 1), ("unexplained", 1)]
    assert found.causes[0].longest_us == pytest.approx(600)
    assert "irq.on-isolated" in found.causes[0].rows
    # it may as well have waited for the ticks before it: that it was firmware nobody knows
    assert found.causes[1].name == "nothing in the kernel: own work or backlog, firmware"
    assert found.by_outlier[18][0].name == found.causes[1].name


def test_what_happens_on_another_cpu_delays_nobody():
    """The interrupt is on CPU 2; the tick waited for the orders thread on CPU 3, which is traced too."""
    slow = runs.outlier(17, 1_000, order_queue=600_000)
    recording = traced((1_010_000, 2_090_000, "IRQ 36 virtio1-req.0"))
    quiet = recording.cpus[2]
    recording.cpus[3] = quiet._replace(cpu=3, spans=Spans(*(column[:1] for column in quiet.spans)))
    cpus = {"generator": 1, "compute": 2, "orders": 3}
    found = attributed(recording, runs.run(outliers=[slow], outliers_seen=1, cpus=cpus))
    assert [part.kind for part in found.by_outlier[17]] == ["unexplained"]
    of_compute = runs.outlier(17, 1_000, inference=600_000)
    found = attributed(recording, runs.run(outliers=[of_compute], outliers_seen=1, cpus=cpus))
    assert found.by_outlier[17][0].name == "IRQ 36 virtio1-req.0"


def test_shares_are_of_the_whole_latency():
    # 300 us in the queue, of which the interrupt had 270, and 300 in other stages
    slow = runs.outlier(17, 1_000, generate=150_000, tick_queue=300_000, order=150_000)
    recording = traced((1_310_000, 1_850_000, "IRQ 36 virtio1-req.0"))
    cpus = {"generator": 1, "compute": 2, "orders": 3}
    found = attributed(recording, runs.run(outliers=[slow], outliers_seen=1, cpus=cpus))
    assert found.by_outlier[17][0].share == pytest.approx(270 / 600)


def test_work_is_bounded_and_said(monkeypatch):
    monkeypatch.setattr("hwtune.validate.attributed._MOST_WORK", 500)
    many = [runs.outlier(n, 1_000 * n, order=200_000) for n in range(100)]
    cpus = {"generator": 2, "compute": 2, "orders": 2}
    found = attributed(traced(), runs.run(outliers=many, outliers_seen=100, cpus=cpus))
    # each costs 20 and no span begins in one: 2,000 in all, a quarter of which is allowed
    assert sorted(found.by_outlier) == list(range(0, 100, 4))
    assert sum(c.outliers for c in found.causes) == 25
    assert "25 of the 100 outliers kept were matched, one in 4 in the order of time" in found.notes[-1]
