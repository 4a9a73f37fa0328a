"""hwtune jitter beside what others measure: oslat and cyclictest (rt-tests), and a plain hiccup loop.

All by turns on one CPU, under the same noise: a SCHED_FIFO task that takes it for 300 us every 20 ms.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from bench.timing import ROUNDS, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SUITE = "jitter"
SECONDS = 2
# oslat counts whole microseconds, and cyclictest shows no gap at all
THRESHOLD_NS = 100_000
_NOISE = """
import os, sys, time
os.sched_setaffinity(0, [int(sys.argv[1])])
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
print("ready", flush=True)
due = time.monotonic()
while True:
    due += 0.02
    time.sleep(max(0, due - time.monotonic()))
    begun = time.monotonic_ns()
    while time.monotonic_ns() < begun + 300_000:
        pass
"""
# What many write for themselves: a loop over the clock that keeps the steps above the threshold.
_HICCUP = """
import os, sys, time
os.sched_setaffinity(0, [int(sys.argv[1])])
read, gaps, least = time.perf_counter_ns, 0, 1 << 62
seen = 0
begun = last = read()
end = begun + int(float(sys.argv[2]) * 1e9)
while last < end:
    now = read()
    step = now - last
    if step > 100_000:
        gaps += 1
    elif step < least:
        least = step
    last = now
print(gaps, least, (last - begun) / 1e9)
"""


class Look(NamedTuple):
    """What one tool saw: ms from one gap beyond the threshold to the next, the smallest gap that it can tell
    in ns, and the share of its time in which it watched (None: it does not tell)."""

    between: float
    smallest: float
    seen: float | None


def suite() -> list[Result]:
    cpu = max(os.sched_getaffinity(0))
    try:
        with _noise(cpu):
            rounds = [[look(cpu) for look in _LOOKS] for _ in range(_rounds())]
    except FileNotFoundError as error:
        print(f"jitter: {error.filename} is not here (Debian: rt-tests); left out", file=sys.stderr)
        return []
    except PermissionError:
        print("jitter: SCHED_FIFO needs root; left out", file=sys.stderr)
        return []
    ours = [looks[0] for looks in rounds]
    found = []
    for place, name in ((1, "oslat"), (2, "a hiccup loop")):
        others = [looks[place] for looks in rounds]
        found.append(_result("between gaps of 100 us and more", "ms", ours, others, "between", name, 1.05))
        found.append(_result("smallest gap told", "ns", ours, others, "smallest", name, 1.0))
    seen = statistics.median(look.seen or 0.0 for look in ours)
    # the share that was not watched, against half a percent
    missed = 100 * (1 - seen)
    found.append(Result(SUITE, "time not watched", "%", missed, 0.5, "half a percent", missed / 0.5, 1.0))
    return [*found, *_wakeups(cpu)]


def _result(
    name: str, unit: str, ours: list[Look], others: list[Look], field: str, other: str, target: float | None
) -> Result:
    a, b = ([float(getattr(look, field)) for look in looks] for looks in (ours, others))
    ratio = statistics.median(x / max(y, 1e-9) for x, y in zip(a, b, strict=True))
    return Result(SUITE, name, unit, statistics.median(a), statistics.median(b), other, ratio, target)


def _wakeups(cpu: int) -> list[Result]:
    """Medians of P50: the same thing, measured by turns."""
    with _noise(cpu):
        pairs = [(_our_wakeups(cpu), _cyclictest(cpu)) for _ in range(_rounds())]
    found = []
    for place, name in enumerate(("wake-up, mean", "wake-up, least")):
        ours, other = [a[place] for a, _ in pairs], [b[place] for _, b in pairs]
        ratio = statistics.median(x / max(y, 1e-9) for x, y in zip(ours, other, strict=True))
        middle = statistics.median
        found.append(Result(SUITE, name, "us", middle(ours), middle(other), "cyclictest", ratio, None))
    return found


def _rounds() -> int:
    return min(ROUNDS, 7)


@contextmanager
def _noise(cpu: int) -> Iterator[None]:
    noise = subprocess.Popen([sys.executable, "-c", _NOISE, str(cpu)], stdout=subprocess.PIPE, text=True)
    try:
        if noise.stdout is None or noise.stdout.readline() != "ready\n":
            raise PermissionError
        yield
    finally:
        noise.kill()
        noise.wait()


# -- the tools


def _ours(cpu: int) -> Look:
    from hwtune import _native as native

    told: list[Look] = []
    clock = native.make_clock()

    def work() -> None:
        begun = time.monotonic_ns()
        # room for as many gaps as the command has (hwtune/jitter/plan.py)
        result = native.spin(cpu, SECONDS, clock=clock, capacity=SECONDS * 100_000)
        seen = result.duration_ns / (time.monotonic_ns() - begun)
        gaps = int((result.gap_lengths_ns >= THRESHOLD_NS).sum())
        told.append(Look(result.duration_ns / 1e6 / max(gaps, 1), result.threshold_ns, seen))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return told[0]


def _oslat(cpu: int) -> Look:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        # 1024 buckets of a microsecond, the last one holding all that is longer
        _run("oslat", "-c", str(cpu), "-D", str(SECONDS), "-b", "1024", "-q", f"--json={file.name}")
        thread = json.load(file)["thread"]["0"]
    gaps = sum(n for us, n in thread["histogram"].items() if int(us) >= THRESHOLD_NS // 1000)
    # its first bucket holds its own steps too
    return Look(thread["duration"] * 1e3 / max(gaps, 1), 2000.0, None)


def _hiccup(cpu: int) -> Look:
    gaps, least, seconds = _run(sys.executable, "-c", _HICCUP, str(cpu), str(SECONDS)).split()
    # it would be told by eight steps as well
    return Look(float(seconds) * 1e3 / max(int(gaps), 1), 8 * float(least), None)


_LOOKS: tuple[Callable[[int], Look], ...] = (_ours, _oslat, _hiccup)


def _our_wakeups(cpu: int) -> tuple[float, float]:
    from hwtune import _native as native

    late = native.wakeups(cpu, SECONDS, priority=80).late_ns
    return float(late.mean()) / 1e3, float(late.min()) / 1e3


def _cyclictest(cpu: int) -> tuple[float, float]:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        # by itself it would hold /dev/cpu_dma_latency at 0, and measure a machine that does not idle
        how = ("--default-system", "-t1", f"-a{cpu}", "-p80", "-i1000", "-D", str(SECONDS), "-q")
        _run("cyclictest", *how, f"--json={file.name}")
        thread = json.load(file)["thread"]["0"]
    return float(thread["avg"]), float(thread["min"])


def _run(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


SUITES = (suite,)
