"""The pipeline as Python runs it: what it reports, and what its threads do while they are measured."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hwtune.errors import ToolError
from hwtune.validate import buckets
from hwtune.validate.pipeline import TICK_FIELDS, Plan, Progress, Stall, run
from hwtune.validate.run import END_TO_END, ROLES, STAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

_native = pytest.importorskip("hwtune._native", reason="the native module is not built")

WATCH = Path(__file__).parent.parent / "native" / "watch_calls.c"


def some_cpus() -> dict[str, int]:
    """Of generator, compute and orders, on the CPUs that this process has; the last one may hold several."""
    usable = sorted(os.sched_getaffinity(0))
    chosen = [usable[min(i, len(usable) - 1)] for i in range(len(ROLES))]
    return dict(zip(ROLES, chosen, strict=True))


def plan(**other: object) -> Plan:
    return Plan(**{"cpus": some_cpus(), "rate": 10_000.0, "warmup_s": 0.02, "duration_s": 0.2, **other})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def clock() -> object:
    return _native.make_clock()


@pytest.fixture
def engine() -> object:
    return _native.make_null_engine(64)


def test_a_run_accounts_for_every_tick(clock: object, engine: object) -> None:
    seen: list[Progress] = []
    found = run(plan(), engine, clock, progress=seen.append)  # type: ignore[arg-type]
    assert found.due == 2000
    assert found.completed == 2000 - found.tick_queue.dropped - found.order_queue.dropped
    assert list(found.stages) == [*STAGES, END_TO_END]
    assert {h.count for h in found.stages.values()} == {found.completed}
    assert found.windows.shape[0] == 60
    assert int(found.windows.sum()) == found.completed
    assert not found.windows.flags.writeable
    assert found.stage_windows.shape == (60, len(STAGES), buckets.COARSE)
    assert set(found.stage_windows.sum(axis=(0, 2))) == {found.completed}
    assert sum(rows * times for rows, times in found.batches.items()) == 2000 - found.tick_queue.dropped
    assert found.duration_s == pytest.approx(0.1999, abs=1e-4)
    assert found.cpus == some_cpus()
    assert sorted(role for t in found.threads for role in t.roles) == sorted(ROLES)
    assert not found.interrupted
    assert not found.failure
    assert [p.due for p in seen] == sorted(p.due for p in seen)


def test_stages_add_up_to_end_to_end(clock: object, engine: object) -> None:
    found = run(plan(outlier_threshold_ns=1), engine, clock)  # type: ignore[arg-type]
    assert found.outliers_seen == found.completed
    for outlier in found.outliers:
        assert list(outlier.stamps) == sorted(outlier.stamps)
    # the schedule is kept: ticks of 10,000 a second are due 100 us apart
    due = {o.sequence: o.stamps[0] for o in found.outliers}
    first, last = min(due), max(due)
    step = (due[last] - due[first]) / (last - first) * found.ns_per_tick
    assert step == pytest.approx(100_000, rel=1e-6)


def test_a_stall_is_charged_to_all_that_it_delays(clock: object, engine: object) -> None:
    """100 ms at 10,000 ticks a second: 1,000 ticks, whose latencies go down evenly from 100 ms. What else
    happens on the machine can only add to that."""
    stalled = run(
        plan(duration_s=0.4, stall=Stall("compute", 0.1, 0.1)),
        engine,  # type: ignore[arg-type]
        clock,  # type: ignore[arg-type]
    )
    bounds = _native.Histogram.lower_bounds()
    counts = np.asarray(stalled.stages[END_TO_END].counts())
    assert stalled.completed == 4000
    for milliseconds, delayed in ((90, 100), (75, 250), (50, 500), (25, 750), (10, 900)):
        assert int(counts[bounds >= milliseconds * 1_000_000].sum()) >= delayed - 2


def test_a_recording_is_played_as_it_is(clock: object, engine: object) -> None:
    ticks = np.zeros(50, dtype=np.dtype(list(TICK_FIELDS)))
    ticks["time_ns"] = 7_000_000_000 + np.arange(50) * 200_000
    ticks["bid"], ticks["ask"], ticks["price"] = 99.0, 101.0, 100.0
    ticks["bid_size"] = ticks["ask_size"] = ticks["volume"] = 5
    found = run(plan(arrivals="recorded", recorded=ticks), engine, clock)  # type: ignore[arg-type]
    assert found.due == 50
    assert found.rate == pytest.approx(5000)


def test_a_recording_that_goes_back_in_time_is_refused(clock: object, engine: object) -> None:
    ticks = np.zeros(2, dtype=np.dtype(list(TICK_FIELDS)))
    ticks["time_ns"] = (5, 4)
    with pytest.raises(ToolError, match="not in the order of their times"):
        run(plan(arrivals="recorded", recorded=ticks), engine, clock)  # type: ignore[arg-type]


def test_orders_go_out_by_udp(clock: object, engine: object) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(5)
        found = run(plan(udp=receiver.getsockname()), engine, clock)  # type: ignore[arg-type]
        assert receiver.recv(100)[:6] == b"HWTO\x01\x00"
    assert found.orders_sent + found.orders_failed >= found.completed


def test_a_cpu_that_is_not_there_is_refused(clock: object, engine: object) -> None:
    with pytest.raises(ToolError, match="cannot pin to CPU 1000"):
        run(plan(cpus={"generator": 1000, "compute": 0, "orders": 0}), engine, clock)  # type: ignore[arg-type]


def test_the_affinity_of_this_process_is_put_back(clock: object, engine: object) -> None:
    before = os.sched_getaffinity(0)
    run(plan(rest=(min(before),)), engine, clock)  # type: ignore[arg-type]
    assert os.sched_getaffinity(0) == before


SCRIPT = """
import json, os
from hwtune import _native
from hwtune.validate.pipeline import Plan, run
usable = sorted(os.sched_getaffinity(0))
cpus = {r: usable[min(i, len(usable) - 1)] for i, r in enumerate(("generator", "compute", "orders"))}
engine = %s
plan = Plan(cpus=cpus, rate=5000.0, warmup_s=0.2, duration_s=%s, lock_memory=%s)
print("ready", flush=True)
found = run(plan, engine, _native.make_clock())
print(json.dumps({
    "due": found.due, "completed": found.completed, "interrupted": found.interrupted,
    "locked": found.memory_locked, "why": found.memory_why,
    "faults": [t.minor_faults + t.major_faults for t in found.threads],
}))
"""


def script(
    engine: str = "_native.make_cpu_engine(32)", duration: float = 0.5, lock: bool = True
) -> list[str]:
    return [sys.executable, "-c", SCRIPT % (engine, duration, lock)]


@pytest.fixture(scope="module")
def watcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the watcher of calls with")
    target = tmp_path_factory.mktemp("watch") / "watch.so"
    options = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-O1"]
    subprocess.run([compiler, *options, "-o", str(target), str(WATCH)], check=True)
    yield target


def test_nothing_is_allocated_or_locked_while_it_is_measured(watcher: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    surroundings = {**os.environ, "LD_PRELOAD": str(watcher), "HWTUNE_WATCH": str(said)}
    done = subprocess.run(script(), env=surroundings, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout.splitlines()[-1])["completed"] > 0
    lines = said.read_text().splitlines()
    assert set(lines) == {"allocations 0 releases 0 locks 0"}
    assert len(lines) == len(set(some_cpus().values()))


def test_no_system_call_is_made_while_it_is_measured(tmp_path: Path) -> None:
    """Between a thread's first and second getrusage(RUSAGE_THREAD), which begin and end its account."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("no strace")
    log = tmp_path / "log"
    done = subprocess.run(
        [strace, "-f", "-o", str(log), *script()], capture_output=True, text=True, timeout=110, check=False
    )
    if "PTRACE" in done.stderr or "ptrace" in done.stderr:
        pytest.skip(f"strace is not allowed here: {done.stderr.strip()[:200]}")
    assert done.returncode == 0, done.stderr
    sections: dict[str, int] = {}
    within: list[str] = []
    for line in log.read_text().splitlines():
        thread, _, call = line.partition(" ")
        if "getrusage(RUSAGE_THREAD" in call:
            sections[thread] = sections.get(thread, 0) + 1
        elif sections.get(thread) == 1 and re.match(r" *[a-z_0-9]+\(", call):
            within.append(line)
    assert sorted(sections.values()) == [2] * len(set(some_cpus().values()))
    assert within == []


def test_no_page_fault_is_taken_while_it_is_measured() -> None:
    done = subprocess.run(script(), capture_output=True, text=True, timeout=60, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    if not found["locked"]:
        pytest.skip(f"memory can't be locked here: {found['why']}")
    assert found["faults"] == [0] * len(set(some_cpus().values()))


def test_interrupted_it_reports_what_it_has() -> None:
    with subprocess.Popen(
        script("_native.make_null_engine(8)", duration=600.0), stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        try:
            child.wait(timeout=2)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)
        found = json.loads(child.stdout.readline())
    assert child.returncode == 0
    assert found["interrupted"]
    assert 0 < found["completed"] <= found["due"] < 5000 * 600
