"""hwtune jitter --wakeup: how late timers wake a thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest

from hwtune import _native as native
from hwtune.jitter.wakeup import measure_wakeups, summary
from hwtune.report.schema import schema

CPU = max(os.sched_getaffinity(0))


def result(late, **more):
    told = {"cpu": 3, "fifo": True, "error": 0, "missed": 2, "late_ns": np.array(late, np.uint64)}
    return SimpleNamespace(**(told | more))


def test_figures_of_known_wake_ups():
    found = summary(result(range(1000, 2001)))  # 1001 of them, a nanosecond apart
    assert (found.wakeups, found.missed, found.cpu) == (1001, 2, 3)
    assert (found.min_ns, found.mean_ns, found.longest_ns) == (1000, 1500.0, 2000)
    # the smallest that 50 %, 99 %, 99.9 % of 1001 do not exceed: the 501st, 991st, 1000th
    assert (found.p50_ns, found.p99_ns, found.p999_ns) == (1500, 1990, 1999)
    assert (found.priority, found.why) == (80, "")


def test_too_few_have_no_percentiles():
    found = summary(result([5000], fifo=False, error=1))
    assert (found.p50_ns, found.p99_ns, found.p999_ns) == (None, None, None)
    assert found.why == "SCHED_FIFO is refused: Operation not permitted"
    assert found.priority == 0
    assert summary(result([])).longest_ns is None


def test_the_thread_keeps_its_policy_and_place():
    policy, place = os.sched_getscheduler(0), os.sched_getaffinity(0)
    (found,), interrupted = measure_wakeups([CPU], 0.05)
    assert found.wakeups + found.missed == 50
    assert not interrupted
    assert (os.sched_getscheduler(0), os.sched_getaffinity(0)) == (policy, place)
    native.wakeups(CPU, 0.01, priority=10)  # on this very thread
    assert (os.sched_getscheduler(0), os.sched_getaffinity(0)) == (policy, place)


@pytest.mark.parametrize(("duration", "interval"), [(1, 1e-6), (0.0001, 0.001), (1e6, 0.001)])
def test_plans_that_cannot_be(duration, interval):
    with pytest.raises(ValueError, match=r"interval|duration|wake-ups|seconds"):
        native.wakeups(CPU, duration, interval_s=interval)


def run(*more):
    argv = [sys.executable, "-m", "hwtune", "jitter", "--cpus", str(CPU), "--duration", "0.2", *more]
    return subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False)


def test_it_is_in_the_json():
    done = run("--wakeup", "--format", "json")
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    jsonschema.validate(report, schema("jitter"))
    (found,) = report["wakeups"]
    assert found["cpu"] == CPU
    assert found["wakeups"] + found["missed"] == 200
    assert found["min_ns"] <= found["p50_ns"] <= found["longest_ns"]


def test_it_is_in_the_text_and_announced():
    done = run("--wakeup")
    assert "sleeps 1 ms at a time for 0.2 s" in " ".join(done.stderr.split())
    assert "Wake-ups by timer" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_without_being_asked_there_is_none():
    done = run("--format", "json")
    assert json.loads(done.stdout)["wakeups"] == []
