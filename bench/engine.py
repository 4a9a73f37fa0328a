"""The CPU engine and the feature stage against the limits of this machine and against onnxruntime.

One process on one CPU; in each round everything is timed, call by call, so that all meet the same machine.
P50 is compared within a round, P99 over all calls of all rounds; a call that lost the CPU to another thread
is left out, on both sides, as that is the scheduler's doing.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import statistics
import subprocess
import tempfile
import time
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.timing import ROUNDS, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCE = Path("native/bench/engine_bench.cpp")
LIBRARY = Path("build/bench/engine_bench.so")
CALLS = {1: 400, 32: 120}  # a round, by batch
TICKS_A_CALL = 256

Calls = list[float]  # nanoseconds each


class Line(NamedTuple):
    """``share``: 0.5 or 0.99. ``scale``: calls to the unit shown."""

    name: str
    ours: str
    other: str
    share: float
    target: float | None
    unit: str = "us"
    scale: float = 1e-3


def suite() -> Iterator[Result]:
    if find_spec("onnxruntime") is None:
        print("engine: skipped, as onnxruntime is not installed")
        return
    native = _native()
    best = native.engine_bench_isa().decode()
    with tempfile.TemporaryDirectory() as folder, one_cpu():
        subjects = _subjects(native, best, Path(folder, "reference.onnx"))
        rounds = [{name: call() for name, call in subjects.items()} for _ in range(ROUNDS)]
    for line in _lines(best):
        yield _result(line, rounds)


def _lines(best: str) -> list[Line]:
    lines = [
        Line("batch 1, P50", f"cpu {best} 1", f"read {best}", 0.5, 1.2),
        Line("batch 1, P50", f"cpu {best} 1", "session.run 1", 0.5, 0.45),
        Line("batch 1, P50", f"cpu {best} 1", "onnx 1", 0.5, None),
        Line("batch 1, P99", f"cpu {best} 1", "session.run 1", 0.99, None),
        Line("batch 32, P50", f"cpu {best} 32", f"multiply {best}", 0.5, 1.35),
        Line("batch 32, P50", f"cpu {best} 32", "session.run 32", 0.5, None),
        Line("batch 32, P99", f"cpu {best} 32", "session.run 32", 0.99, 1.0),
        Line("batch 32, P99", f"cpu {best} 32", "onnx 32", 0.99, 1.0),
        Line("features, a tick, P50", "features", "budget", 0.5, 1.0, "ns", 1 / TICKS_A_CALL),
    ]
    if best == "avx512":  # what most other processors have
        lines += [
            Line("batch 1 by AVX2, P50", "cpu avx2 1", "read avx2", 0.5, None),
            Line("batch 32 by AVX2, P50", "cpu avx2 32", "multiply avx2", 0.5, None),
        ]
    return lines


OTHER_NAMES = {
    "read": "reading the weights once",
    "multiply": "the multiplications alone",
    "session.run": "onnxruntime's session.run, one thread",
    "onnx": "onnxruntime with IO binding, one thread",
    "budget": "100 ns",
}


def _result(line: Line, rounds: list[dict[str, Calls]]) -> Result:
    ours = [r[line.ours] for r in rounds]
    other = [r[line.other] for r in rounds]
    if line.share == 0.5:
        pairs = [(statistics.median(a), statistics.median(b)) for a, b in zip(ours, other, strict=True)]
        ratio = statistics.median(a / b for a, b in pairs)
        figures = [statistics.median(side) for side in zip(*pairs, strict=True)]
    else:
        figures = [statistics.quantiles(chain.from_iterable(side), n=100)[98] for side in (ours, other)]
        ratio = figures[0] / figures[1]
    name = OTHER_NAMES[line.other.split()[0]]
    return Result(
        "engine",
        line.name,
        line.unit,
        figures[0] * line.scale,
        figures[1] * line.scale,
        name,
        ratio,
        line.target,
    )


def _subjects(native: ctypes.CDLL, best: str, model: Path) -> dict[str, Callable[[], Calls]]:
    from hwtune.validate.onnx import library
    from hwtune.validate.onnx_file import reference_model

    model.write_bytes(reference_model())
    if native.engine_bench_open(str(model).encode(), str(library()).encode()) != 0:
        raise RuntimeError("engine_bench cannot be set up")

    def native_calls(what: str, count: int) -> Calls:
        times = (ctypes.c_double * count)()
        if native.engine_bench_time(what.encode(), ctypes.c_size_t(count), times) != 0:
            raise RuntimeError(f"engine_bench does not know {what}")
        return [span for span in times if span >= 0]

    run = _session_run(model)
    subjects: dict[str, Callable[[], Calls]] = {}
    for batch, count in CALLS.items():
        for isa in {best, "avx2"} if best == "avx512" else {best}:
            limit = f"read {isa}" if batch == 1 else f"multiply {isa}"
            for what in (f"cpu {isa} {batch}", limit):
                subjects[what] = lambda what=what, count=count: native_calls(what, count)
        subjects[f"onnx {batch}"] = lambda batch=batch, count=count: native_calls(f"onnx {batch}", count)
        subjects[f"session.run {batch}"] = lambda batch=batch, count=count: run(batch, count)
    subjects["features"] = lambda: native_calls("features", 200)
    subjects["budget"] = lambda: [100.0 * TICKS_A_CALL] * 200
    return subjects


def _session_run(model: Path) -> Callable[[int, int], Calls]:
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    rows = np.random.default_rng(2).uniform(-1, 1, (max(CALLS), 64)).astype(np.float32)

    def run(batch: int, count: int) -> Calls:
        feed = {"rows": rows[:batch]}
        session.run(None, feed)
        times = []
        for _ in range(count):
            before = _preemptions()
            began = time.perf_counter_ns()
            session.run(None, feed)
            ended = time.perf_counter_ns()
            if _preemptions() == before:
                times.append(float(ended - began))
        return times

    return run


def _preemptions() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def _native() -> ctypes.CDLL:
    """Compiled for the baseline, as the wheel is: the engine finds its instructions by itself."""
    LIBRARY.parent.mkdir(parents=True, exist_ok=True)
    flags = ["-std=c++20", "-O3", "-DNDEBUG", "-shared", "-fPIC", "-pthread", "-Inative/include"]
    subprocess.run(
        [os.environ.get("CXX", "c++"), *flags, str(SOURCE), "-o", str(LIBRARY), "-ldl"], check=True
    )
    native = ctypes.CDLL(str(LIBRARY.resolve()))
    native.engine_bench_isa.restype = ctypes.c_char_p
    return native


@contextmanager
def one_cpu() -> Iterator[None]:
    """The first CPU that this process may use, alone, and no garbage collection."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        os.sched_setaffinity(0, allowed)
