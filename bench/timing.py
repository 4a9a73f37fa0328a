"""Interleaved timing of whole processes: A B A B ..., so that a drifting machine drifts under both."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROUNDS = int(os.environ.get("HWTUNE_BENCH_ROUNDS", "15"))


class Result(NamedTuple):
    """One line of the table. ``ratio`` is the median of the pairwise ratios ours / other;
    ``target`` its upper bound, None where there is none to meet."""

    suite: str
    name: str
    unit: str
    ours: float
    other: float
    other_name: str
    ratio: float
    target: float | None

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.ratio <= self.target


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


def run(argv: Sequence[str]) -> float:
    """Wall seconds of one process, started the way a shell starts it; its output is thrown away."""
    return _run(argv)[0]


def run_cpu(argv: Sequence[str]) -> float:
    """The same in seconds of CPU time, its own and the kernel's for it: what a question of growth is
    about, and what other load on the machine disturbs least."""
    return _run(argv)[1]


def _run(argv: Sequence[str]) -> tuple[float, float]:
    with tempfile.TemporaryFile() as complaints:
        began = time.perf_counter()
        child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=complaints)
        _, status, usage = os.wait4(child.pid, 0)
        took = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in (0, 1):
            complaints.seek(0)
            raise RuntimeError(f"{argv} ended with {child.returncode}: {complaints.read().decode()[-500:]}")
    return took, usage.ru_utime + usage.ru_stime


def compare(
    suite: str,
    name: str,
    ours: Callable[[], float],
    other: Callable[[], float],
    other_name: str,
    target: float | None,
    unit: str = "ms",
    rounds: int = ROUNDS,
) -> Result:
    """Medians of both, interleaved after one warm-up each."""
    ours(), other()
    pairs = [(ours(), other()) for _ in range(rounds)]
    return Result(
        suite,
        name,
        unit,
        statistics.median(a for a, _ in pairs) * 1e3,
        statistics.median(b for _, b in pairs) * 1e3,
        other_name,
        statistics.median(a / b for a, b in pairs),
        target,
    )
