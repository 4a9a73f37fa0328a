"""The reading: which shapes are told of, with which numbers and which rows."""

from __future__ import annotations

import inspect
import re

import pytest

from hwtune.diagnosis.table import table
from hwtune.validate import reading, stats
from hwtune.validate.results import Attribution, Cause, judge
from hwtune.validate.run import Queue
from tests.support import runs


def read(sla_us=3200.0, stages=None, attribution=None, placed=None, drift=None, **changes):
    told = attribution or Attribution("none", "not root", [], {})
    results = judge(
        runs.run(**changes), placed or runs.placement(), runs.budget(sla_us, **(stages or {})), told
    )
    if drift is not None:
        results.drift = drift
    return {r.rule: r for r in reading.read(results)}


def test_a_quiet_run():
    found = read()
    assert list(found) == ["quiet"]
    assert found["quiet"].says.endswith("stands out and the SLA is met.")
    assert found["quiet"].look == ()


def test_low_p50_and_high_p99_point_at_the_occasional_path():
    found = read(late={"tick-queue": 800_000})
    assert list(found) == ["occasional"]
    says = found["occasional"].says
    assert "P50 is 16.0 us and P99 816 us" in says
    assert "tick-queue (801 us)" in says
    assert "irq.on-isolated" in found["occasional"].look


def test_matched_causes_name_the_rows():
    causes = [
        Cause("irq", "IRQ 36 virtio1-req.0", 33, 9e3, 900.0, ("irq.on-isolated", "irq.default-affinity")),
        Cause("unexplained", "unexplained", 3, 9e2, 90.0, ()),
    ]
    found = read(late={"tick-queue": 800_000}, attribution=Attribution("trace", "", causes, {}))
    assert found["occasional"].look == ("irq.on-isolated", "irq.default-affinity")
    assert "unexplained" not in found


def test_four_times_is_no_other_path():
    assert "occasional" not in read(late={"tick-queue": 45_000})  # 61 of 16 us
    assert "occasional" in read(late={"tick-queue": 70_000})  # 86 of 16 us


def test_high_p50_points_at_the_work():
    found = read(usual={**runs.USUAL, "inference": 2_000_000})
    assert list(found) == ["work"]
    assert "63 % of the SLA" in found["work"].says
    assert "Most of it is inference (P50 2,00" in found["work"].says
    assert "cpu.governor" in found["work"].look


def test_high_p50_of_a_queue_is_waiting_and_no_work():
    found = read(usual={**runs.USUAL, "tick-queue": 2_000_000})
    assert "more arrives than it gets done" in found["work"].says
    assert found["work"].look == ()


def test_where_most_are_slow_nobody_says_that_most_are_quick():
    found = read(usual={**runs.USUAL, "tick-queue": 2_000_000}, late={"tick-queue": 90_000_000})
    assert "occasional" not in found and "work" in found


def test_a_stage_over_budget_at_the_median():
    found = read(stages={"inference": 10.0, "order": 100.0})
    assert "inference (15.0 us of 10.0 us)" in found["overspent"].says
    assert "order" not in found["overspent"].says.replace("order-queue", "")


def test_good_tails_with_low_throughput_point_at_the_parallelism():
    found = read(due=200_000, tick_queue=Queue(4096, 4096, 100_000), batches={1: 100, 32: 900})
    assert "100,000 of 200,000 ticks came through" in found["parallelism"].says
    assert "more rows a batch" in found["parallelism"].says
    assert "100,000 as the tick queue (4,096 messages) was full" in found["drops"].says
    assert "90 % of the batches had the most rows seen (32)" in found["drops"].says


def test_few_drops_are_told_and_no_lack_of_parallelism():
    found = read(due=100_010, tick_queue=Queue(4096, 4096, 10))
    assert "drops" in found and "parallelism" not in found


def test_a_late_generator_is_the_hosts_noise():
    found = read(late={"generate": 300_000})
    assert "something else had CPU 1" in found["generator"].says
    shared = read(
        late={"generate": 300_000}, placed=runs.placement({"generator": 0, "compute": 0, "orders": 0})
    )
    assert "shares its thread" in shared["generator"].says
    assert shared["generator"].look == ()


def test_threads_that_were_disturbed():
    threads = [
        runs.thread("generator", 1, minor_faults=3),
        runs.thread("compute", 2, involuntary_switches=1234),
        runs.thread("orders", 3, migrations=2),
    ]
    found = read(threads=threads)
    assert "from compute (CPU 2) 1,234 times" in found["preempted"].says
    assert "generator (CPU 1) 3 minor and 0 major" in found["faults"].says
    assert "orders (CPU 3) 2 times" in found["moved"].says
    unknown = read(threads=[runs.thread("compute", 2, migrations=None)])
    assert "moved" not in unknown


def test_memory_that_was_not_locked():
    found = read(memory_locked=False, memory_why="RLIMIT_MEMLOCK is 8 MiB")
    assert "Memory was not locked: RLIMIT_MEMLOCK is 8 MiB." in found["faults"].says
    assert found["faults"].look == ()


def test_outliers_that_nothing_explains():
    dark = [Cause("unexplained", "unexplained", 6, 1.0, 1.0, ()), Cause("irq", "IRQ 1 x", 4, 1.0, 1.0, ())]
    found = read(attribution=Attribution("trace", "", dark, {}))
    assert "In 6 of 10 outliers nothing ran" in found["unexplained"].says
    assert "unexplained" not in read(attribution=Attribution("none", "no trace", dark, {}))


@pytest.mark.parametrize(("direction", "row"), [("rises", "cpu.throttled"), ("falls", None)])
def test_drift(direction, row):
    found = read(drift=stats.Drift(direction, 25.0, 0.0004, 24))
    assert f"P99 {direction} over the run, by 25 %" in found["drifting"].says
    assert "below 1 in 1,000" in found["drifting"].says
    assert (row in found["drifting"].look) if row else not found["drifting"].look
    assert "drifting" not in read(drift=stats.Drift("none", 25.0, 0.2, 24))


def test_a_costly_clock():
    found = read(clock="monotonic_raw", clock_overhead_ns=250.0)
    assert "(monotonic_raw) costs 250 ns" in found["clock"].says
    assert "1.5 us" in found["clock"].says  # six readings


def test_a_short_run_is_not_read():
    assert (
        "Too short to read: at least 299 ticks are needed, 200 came through." in read(ticks=200)["few"].says
    )


def test_rows_that_readings_name_exist():
    named = set(re.findall(r'"([a-z]+\.[a-z-]+)"', inspect.getsource(reading)))
    assert {"irq.on-isolated", "clock.tsc"} <= named
    assert named <= {row.id for row in table()}


def test_names_of_rules_are_all_different():
    names = [rule.name for rule in reading.RULES]
    assert len(names) == len(set(names))
