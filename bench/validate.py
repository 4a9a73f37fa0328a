"""From the start of the program to the first tick of a run."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.timing import ROUNDS, Result

if TYPE_CHECKING:
    from collections.abc import Iterator

SUITE = "validate"
LIMIT_MS = 500.0
# The command as it is; the pipeline tells when the first measured tick is due, and the first of all is a
# warm-up and a pause of 5 ms (native/include/hwtune/pipeline.hpp) earlier.
PROGRAM = """
import sys
from hwtune.validate import pipeline
run = pipeline.run
def told(plan, engine, clock, progress=None, started=None):
    def first(ns):
        print("first", ns - round((plan.warmup_s + 0.005) * 1e9), file=sys.stderr)
    return run(plan, engine, clock, progress, first)
pipeline.run = told
import hwtune.cli
sys.argv = ["hwtune", *sys.argv[1:]]
hwtune.cli.main()
"""


def first_tick_ms(report: Path) -> float:
    argv = ["validate", "--rate", "1000", "--duration", "1s", "--warmup", "100ms", "--format", "json"]
    command = [sys.executable, "-c", PROGRAM, *argv, "-o", str(report)]
    began = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    for line in done.stderr.splitlines():
        word, _, ns = line.partition(" ")
        if word == "first":
            return (int(ns) - began) / 1e6
    raise RuntimeError(f"hwtune validate did not run: {done.stderr.strip()[-500:]}")


def start() -> Iterator[Result]:
    if len(os.sched_getaffinity(0)) < 2:
        print("validate: skipped, two CPUs are needed")
        return
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        first_tick_ms(report)
        took = statistics.median(first_tick_ms(report) for _ in range(min(ROUNDS, 9)))
    name = "hwtune validate, start to first tick"
    yield Result(SUITE, name, "ms", took, LIMIT_MS, "the limit", took / LIMIT_MS, 1.0)


SUITES = (start,)
