"""The native clock and spin loop from Python. Nothing here depends on how fast or quiet the machine is."""

from __future__ import annotations

import ast
import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from hwtune import _native as native

STUB = Path(__file__).parents[2] / "hwtune" / "_native.pyi"
ABSENT_CPU = 1_000_000  # far above what any kernel can be built for (CONFIG_NR_CPUS: 8192 on x86)


@pytest.fixture(scope="module")
def clock() -> native.Clock:
    return native.make_clock()


@pytest.fixture(autouse=True)
def affinity_is_left_alone():
    before = os.sched_getaffinity(0)
    yield
    assert os.sched_getaffinity(0) == before


def holds_together(result: native.SpinResult) -> None:
    """Everything that must be true of any run, on any machine."""
    starts, lengths = result.gap_starts_ns, result.gap_lengths_ns
    assert starts.dtype == lengths.dtype == np.uint64
    assert starts.shape == lengths.shape == (len(starts),)
    ends = starts + lengths
    assert (starts[1:] + 1 >= ends[:-1]).all()  # in order, apart (each is rounded down)
    assert (lengths >= result.threshold_ns).all()
    assert int(lengths.sum()) <= result.gap_ns <= result.duration_ns
    assert result.longest_ns >= int(lengths.max(initial=0))
    assert result.longest_ns <= result.gap_ns
    assert result.iterations > 0
    assert result.threshold_ns > 0
    assert result.step_min_ns > 0
    assert result.backwards == 0
    assert result.affinity_restored


def test_the_stub_names_exactly_what_the_module_has():
    tree = ast.parse(STUB.read_text())
    declared = {n.name for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    assert declared == {name for name in dir(native) if not name.startswith("_")}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            functions = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
            members = {name for name in functions if not name.startswith("__")}
            assert members == {m for m in vars(getattr(native, node.name)) if not m.startswith("_")}, (
                node.name
            )


def test_the_clock_says_what_it_is_and_why(clock):
    assert clock.source in ("tsc", "cntvct", "monotonic_raw")
    assert clock.why
    assert clock.ns_per_tick > 0
    assert clock.cost_ns > 0
    assert clock.step_ns > 0
    assert clock.error_ppm >= 0


def test_the_clock_agrees_with_the_kernel_within_what_it_states(clock):
    def pair() -> tuple[int, int, int]:
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        ticks = clock.ticks()
        return before, ticks, time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    a_before, a_ticks, a_after = pair()
    time.sleep(0.05)
    b_before, b_ticks, b_after = pair()
    span = clock.ns(b_ticks - a_ticks)
    slack = span * clock.error_ppm / 1e6 + 2 * clock.step_ns + 2
    assert b_before - a_after - slack <= span <= b_after - a_before + slack


@pytest.mark.parametrize("clocksource", ["hpet", "kvm-clock", "jiffies", ""])
def test_a_counter_that_the_kernel_does_not_use_is_not_trusted(clocksource):
    clock = native.make_clock(clocksource)
    assert clock.source == "monotonic_raw"
    assert clock.ns_per_tick == 1.0
    assert clock.error_ppm == 0.0
    assert clock.why


@pytest.mark.parametrize("window", [0.0, -1.0, 11.0, float("nan"), float("inf")])
def test_a_calibration_window_that_can_not_be_is_refused(window):
    with pytest.raises(ValueError, match="window_s"):
        native.make_clock(window_s=window)


def test_a_run_holds_together(clock):
    cpu = min(os.sched_getaffinity(0))
    earliest = time.monotonic_ns()
    result = native.spin(cpu, 0.05, clock=clock)
    holds_together(result)
    assert result.cpu == cpu
    assert not result.migrated
    assert not result.stopped
    assert result.duration_ns >= 0.05e9 - 1
    assert earliest < result.started_ns < time.monotonic_ns()


def test_the_arrays_outlive_the_result_and_can_not_be_written(clock):
    starts = native.spin(min(os.sched_getaffinity(0)), 0.01, clock=clock, threshold_ns=1).gap_starts_ns
    assert len(starts) > 0
    assert (np.diff(starts.astype(np.int64)) >= 0).all()
    with pytest.raises(ValueError, match="read-only"):
        starts[0] = 1


def test_a_full_buffer_is_counted_not_hidden(clock):
    result = native.spin(min(os.sched_getaffinity(0)), 0.01, clock=clock, threshold_ns=1, capacity=3)
    holds_together(result)
    assert len(result.gap_starts_ns) == 3
    assert result.lost > 0
    assert result.gap_ns > int(result.gap_lengths_ns.sum())


def test_cpus_are_watched_side_by_side_with_the_interpreter_free(clock):
    cpus = sorted(os.sched_getaffinity(0))[:2]
    flag = native.StopFlag()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(native.spin, cpus[-1], 3600, clock=clock, stop=flag)
        mine = native.spin(cpus[0], 0.05, clock=clock)
        flag.set()  # never reached if the other thread held the interpreter lock
        results = [mine, other.result()]
    for cpu, result in zip([cpus[0], cpus[-1]], results, strict=True):
        holds_together(result)
        assert result.cpu == cpu
        assert not result.migrated


def test_a_flag_from_another_thread_ends_a_long_run(clock):
    flag = native.StopFlag()
    assert not flag.is_set()
    timer = threading.Timer(0.05, flag.set)
    timer.start()
    result = native.spin(min(os.sched_getaffinity(0)), 3600, clock=clock, stop=flag)
    timer.join()
    holds_together(result)
    assert flag.is_set()
    assert result.stopped
    assert result.duration_ns < 3600e9


def test_a_cpu_that_does_not_exist_is_refused_by_name(clock):
    with pytest.raises(OSError, match=f"CPU {ABSENT_CPU}") as caught:
        native.spin(ABSENT_CPU, 0.01, clock=clock)
    assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"cpu": -1}, "CPU -1"),
        ({"duration_s": 0.0}, "duration"),
        ({"duration_s": -0.5}, "duration"),
        ({"duration_s": float("nan")}, "duration"),
        ({"duration_s": 90_000.0}, "24 hours"),
        ({"duration_s": 1e300}, "duration"),
        ({"capacity": 0}, "capacity"),
        ({"capacity": 1 << 25}, "capacity"),
        ({"threshold_ns": 0}, "threshold_ns"),
    ],
)
def test_a_plan_that_can_not_be_is_refused_with_its_name(clock, arguments, named):
    plan = {"cpu": 0, "duration_s": 0.01, **arguments}
    with pytest.raises(ValueError, match=named):
        native.spin(plan.pop("cpu"), plan.pop("duration_s"), clock=clock, **plan)
