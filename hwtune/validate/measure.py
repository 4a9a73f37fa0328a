"""From a request to a run: the engine, the pipeline, and a watch over its CPUs."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

import msgspec

from hwtune.errors import ToolError, UsageError
from hwtune.validate.arrivals import Arrivals
from hwtune.validate.gpu.results import Options
from hwtune.validate.placement import Placement

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwtune._native import Clock, Engine
    from hwtune.tracing import Watch
    from hwtune.validate.gpu.engines import OnGpu
    from hwtune.validate.pipeline import Plan, Progress
    from hwtune.validate.results import Attribution
    from hwtune.validate.run import Run

_WINDOWS = 120
_BATCH = 32  # rows at most
# native/include/hwtune/pipeline.hpp names its threads so
_THREADS = ("hwtune-ticks", "hwtune-compute", "hwtune-orders")
# The kernel's buffers are emptied so often; a second of a busy CPU's events fits them many times over.
_DRAIN_S = 0.5


class Request(msgspec.Struct, frozen=True):
    """``engine``: cpu, null, onnx, cuda or tensorrt. ``plan`` and ``gpu`` are for the last two.
    ``outlier_us``: 0 takes twice the P99 of the warm-up, ``sla_us`` at most."""

    engine: str
    onnx: str | None
    arrivals: Arrivals
    duration_s: float
    warmup_s: float
    seed: int
    placement: Placement
    outlier_us: float
    sla_us: float
    plan: str | None = None
    gpu: Options = Options()


def measure(request: Request, shown: Callable[[float], None] | None = None) -> tuple[Run, Attribution]:
    """``shown`` is told the seconds that have gone by. Raises ``ToolError``, ``UsageError``."""
    try:
        from hwtune import _native
    except ImportError as error:
        raise ToolError(f"the native module, which measures, is not there: {error}") from None
    from hwtune.tracing import watch
    from hwtune.validate import pipeline
    from hwtune.validate.gpu import engines
    from hwtune.validate.gpu.clocks import Sampler
    from hwtune.validate.gpu.results import tell

    clock = _native.make_clock()
    on_gpu = _on_gpu(request, clock)
    engine = make_engine(request.engine, request.onnx) if on_gpu is None else on_gpu.engine
    apart = None if on_gpu is None else engines.difference(on_gpu)
    sampler = nullcontext() if on_gpu is None else Sampler(on_gpu.device.pci, request.placement.rest)
    with watch(sorted(set(request.placement.cpus.values())), clock) as watched:
        look = _Look(watched, shown)
        with sampler as sampled:
            run = pipeline.run(_plan(request), engine, clock, look, look.begin)
    if on_gpu is not None and sampled is not None:
        run.gpu = tell(on_gpu, run, apart, sampled.told())
    from hwtune.validate.attributed import attributed

    return run, attributed(watched.recording, run, look.threads, _is_virtual())


def _plan(request: Request) -> Plan:
    from hwtune.validate.pipeline import Plan

    source = request.arrivals
    return Plan(
        cpus=request.placement.cpus,
        rest=tuple(request.placement.rest),
        arrivals=source.kind,
        rate=source.rate,
        burst_size=source.burst_size,
        seed=request.seed,
        recorded=source.ticks,
        warmup_s=request.warmup_s,
        duration_s=request.duration_s,
        outlier_threshold_ns=round(request.outlier_us * 1000),
        outlier_ceiling_ns=round(request.sla_us * 1000),
        batch_limit=_BATCH,
        windows=_WINDOWS,
    )


def _on_gpu(request: Request, clock: Clock) -> OnGpu | None:
    from hwtune.validate.gpu import engines

    if request.engine not in engines.NAMES:
        return None
    near = request.placement.cpus["compute"]
    return engines.make(request.engine, request.onnx, request.plan, request.gpu, _BATCH, near, clock)


def make_engine(name: str, onnx: str | None) -> Engine:
    """Raises ``UsageError``, ``ToolError``."""
    from hwtune import _native

    if onnx is not None:
        from hwtune.validate.onnx import onnx_engine

        return onnx_engine(onnx, _BATCH)
    try:
        if name == "null":
            return _native.make_null_engine(_BATCH)
        return _native.make_cpu_engine(_BATCH)
    except (OSError, ValueError) as error:
        raise ToolError(f"the engine cannot be made: {error}") from None


class _Look:
    """What is done while the pipeline runs, on the CPU of the rest: little, and seldom."""

    def __init__(self, watched: Watch, shown: Callable[[float], None] | None) -> None:
        self._watched = watched
        self._shown = shown
        self._next = time.monotonic() + _DRAIN_S
        self._said = 0
        #: of the pipeline, by the kernel's ids
        self.threads: frozenset[int] = frozenset()

    def begin(self, _started_ns: int) -> None:
        """While the warm-up runs: which threads are the pipeline's, by the names that it gave them."""
        found = []
        for thread in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{thread}/comm", encoding="utf-8", errors="replace") as file:
                    if file.read().strip() in _THREADS:
                        found.append(int(thread))
            except OSError:  # it has ended
                continue
        self.threads = frozenset(found)

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _DRAIN_S
        self._watched.drain()
        if self._shown is not None and int(progress.elapsed_s) != self._said:
            self._said = int(progress.elapsed_s)
            self._shown(progress.elapsed_s)


def _is_virtual() -> bool | None:
    from hwtune.host.live import LiveHost
    from hwtune.probes import virtualization

    return virtualization.read(LiveHost()).is_guest


def model_digest(path: str | None) -> str:
    """Of the model's bytes, so that runs with different ones are not compared; "" without a model. Raises
    ``UsageError``."""
    if path is None:
        return ""
    from hashlib import sha256

    digest = sha256()
    try:
        if not os.path.isfile(path):
            raise UsageError(f"there is no model {path}")
        with open(path, "rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError as error:
        raise UsageError(f"the model {path} cannot be read: {error.strerror}") from None
    return digest.hexdigest()[:16]
