"""The native queue against others, the histogram and the clock: native/bench measures, this judges.

All queues run in one process, side by side in each round, and a ratio is taken within one round and one class
of distance between the two CPUs. What disturbed a sample drops it: probes before and after that differ, a
thread that lost its CPU, a loop that gave up.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.timing import ROUNDS, Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SUITE = "native"
OURS = "hwtune"
BOOST = "boost"
PEERS = (BOOST, "atomic_queue", "moodycamel")
BUILD = Path("build/bench")
ROOT = Path(__file__).parents[1]
# A line there and back: 59 to 130 ns between neighbours and 380 to 490 between distant virtual CPUs on AMD
# Milan, 113 to 141 on Intel Sapphire Rapids.
FAR_NS = 250.0
STEADY = 1.3  # probes before and after differ by less
FEWEST = 3  # pairs that make a median

Size = tuple[int, int]
SIZES: tuple[Size, ...] = ((32, 1024), (32, 65536), (64, 1024), (64, 65536))


class Sample(NamedTuple):
    """One burst. ``label``: near, far, or here for what runs on one CPU."""

    round: int
    test: str
    queue: str
    size: Size
    label: str
    ns: float
    p99_ns: float


def label(before_ns: float, after_ns: float) -> str | None:
    """The class of two probes, None where they don't agree."""
    if before_ns == after_ns == 0:
        return "here"
    if max(before_ns, after_ns) > STEADY * min(before_ns, after_ns):
        return None
    before, after = ("far" if probe > FAR_NS else "near" for probe in (before_ns, after_ns))
    return before if before == after else None


def read(lines: Iterable[str]) -> tuple[list[Sample], int]:
    """The samples that can be believed, and how many can't."""
    samples, dropped = [], 0
    for line in lines:
        row = json.loads(line)
        if "test" not in row:
            continue
        where = label(*row["probes_ns"])
        if where is None or row["preempted"] or not row["complete"]:
            dropped += 1
            continue
        size = (row["bytes"], row["capacity"])
        values = (row["ns"], row["p99_ns"])
        samples.append(Sample(row["round"], row["test"], row["queue"], size, where, *values))
    return samples, dropped


class Cell:
    """All samples of one test, size and class of distance."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._by_queue: dict[str, dict[int, Sample]] = defaultdict(dict)
        for sample in samples:
            self._by_queue[sample.queue][sample.round] = sample

    def queues(self) -> list[str]:
        return sorted(self._by_queue)

    def best(self, queues: Iterable[str], figure: str = "ns") -> str | None:
        """Of those measured often enough the one with the lowest median."""
        medians = {
            queue: statistics.median(getattr(s, figure) for s in self._by_queue[queue].values())
            for queue in queues
            if len(self._by_queue.get(queue, ())) >= FEWEST
        }
        return min(medians, key=lambda queue: medians[queue], default=None)

    def result(
        self, name: str, ours: str, other: str | None, target: float | None, figure: str = "ns"
    ) -> Iterator[Result]:
        """Over the rounds in which both were measured; none where those are too few."""
        if other is None:
            return
        mine, theirs = self._by_queue[ours], self._by_queue[other]
        pairs = [(getattr(mine[r], figure), getattr(theirs[r], figure)) for r in sorted(mine.keys() & theirs)]
        if len(pairs) >= FEWEST:
            yield Result(
                SUITE,
                name,
                "ns",
                statistics.median(a for a, _ in pairs),
                statistics.median(b for _, b in pairs),
                other,
                statistics.median(a / b for a, b in pairs),
                target,
            )

    def limit(self, name: str, ours: str, limit_ns: float) -> Iterator[Result]:
        """Against a time; the ratio's target is 1."""
        values = [s.ns for s in self._by_queue[ours].values()]
        if len(values) >= FEWEST:
            ns = statistics.median(values)
            yield Result(SUITE, name, "ns", ns, limit_ns, "the limit", ns / limit_ns, 1.0)


def judge(samples: Iterable[Sample]) -> list[Result]:
    cells: dict[tuple[str, Size, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        cells[sample.test, sample.size, sample.label].append(sample)
    results: list[Result] = []
    for (test, size, where), members in sorted(cells.items()):
        results += _rows(test, size, where, Cell(members))
    return results


# Nanoseconds a message, so at least 2.5 times the throughput is at most 0.4.
SATURATED = dict(zip(SIZES, (1 / 2.5, 1 / 2, 1 / 2, 1 / 1.3), strict=True))


def _rows(test: str, size: Size, where: str, cell: Cell) -> Iterator[Result]:
    best = cell.best(PEERS)
    name = f"{test} {size[0]} B, {size[1]}, {where}"
    boost = BOOST if BOOST in cell.queues() else None
    if test == "round-trip":
        yield from cell.result(f"{name}, P50", OURS, boost, 0.6)
        yield from cell.result(f"{name}, P50", OURS, best, 0.8 if where == "far" else 0.9)
        yield from cell.result(f"{name}, P99", OURS, boost, 0.7, "p99_ns")
    elif test == "one-way":
        yield from cell.result(f"{name}, P50", OURS, boost, 0.6)
        yield from cell.result(f"{name}, P50", OURS, best, 0.75)
    elif test == "saturated":
        yield from cell.result(name, OURS, best, SATURATED.get(size))
    elif test == "producer-bound":
        yield from cell.result(name, OURS, best, 0.5 if where == "far" else 1 / 1.1)
    elif test == "consumer-bound":
        yield from cell.result(name, OURS, best, 1 / 1.1)
    elif test == "pair":
        yield from cell.limit(f"push and pop {size[0]} B, {size[1]}", OURS, 8.0)
        yield from cell.result(f"push and pop {size[0]} B, {size[1]}", OURS, best, None)
    elif test == "shared":
        yield from cell.result(f"round trip between processes, {where}", "processes", "threads", 1.1)
    elif test == "pipeline":
        yield from cell.result(f"pipeline without an engine, {where}, P50", "end to end", "hops", 1.0)
    elif test == "record":
        yield from cell.limit("histogram record", "histogram", 2.5)
        yield from cell.result("histogram record", "histogram", "array", None)
    elif test == "clock":
        yield from cell.result("clock read", OURS, "counter", 1.2)
    for extra in cell.queues():
        if OURS in cell.queues() and extra not in (OURS, *PEERS, "counter"):
            yield from cell.result(name, OURS, extra, None)


def cpus() -> str | None:
    chosen = os.environ.get("HWTUNE_BENCH_CPUS")
    if chosen:
        return chosen
    allowed = sorted(os.sched_getaffinity(0))
    return f"{allowed[0]},{allowed[1]}" if len(allowed) > 1 else None


def build() -> Path:
    """Configure and compile native/bench; HWTUNE_PEER_DIR adds queues to it."""
    peers = os.environ.get("HWTUNE_PEER_DIR", "")
    configure = ["cmake", "-S", ROOT / "native/bench", "-B", BUILD, f"-DPEER_DIR={peers}"]
    if shutil.which("ninja"):
        configure += ["-G", "Ninja"]
    for argv in (configure, ["cmake", "--build", BUILD]):
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{argv[:2]} failed:\n{done.stdout[-2000:]}")
    return BUILD / "queue_bench"


def native() -> list[Result]:
    pair = cpus()
    if pair is None:
        print("native: skipped, two CPUs are needed")
        return []
    argv = [str(build()), "--rounds", str(ROUNDS), "--cpus", pair]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, timeout=60 * ROUNDS)
    lines = done.stdout.splitlines()
    samples, dropped = read(lines)
    absent = [peer for peer in PEERS if all(sample.queue != peer for sample in samples)]
    print(
        f"native: CPUs {pair}, {len(samples)} samples, {dropped} dropped as disturbed"
        + ("" if json.loads(lines[-1])["fifo"] else "; SCHED_FIFO is not allowed here: expect noise")
        + (f"; not installed: {', '.join(absent)} (scripts/setup bench)" if absent else "")
    )
    return judge(samples)


SUITES = (native,)
