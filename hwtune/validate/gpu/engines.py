"""The engines on a GPU by name, checked against the CPU engine before they are measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hwtune.errors import ToolError, UsageError
from hwtune.validate.gpu.results import Options

if TYPE_CHECKING:
    from hwtune._native import Clock, GpuDevice, GpuEngine

NAMES = ("cuda", "tensorrt")
#: Largest difference from the CPU engine that counts as equal, by precision. INT8 promises none.
TOLERANCE = {"fp32": 1e-5, "fp16": 1e-3, "int8": None}
_ROWS = 256  # scored by both
# No rounding comes near this; what does has computed something else.
_ABSURD = 0.25


class OnGpu(NamedTuple):
    """``weights_bytes``: what a batch reads of the model; null where that is not known. ``reference``:
    whether it is the perceptron that the CPU engine has too. ``notes``: sentences."""

    engine: GpuEngine
    device: GpuDevice
    options: Options
    weights_bytes: int | None
    reference: bool
    notes: tuple[str, ...] = ()


def make(
    name: str, onnx: str | None, plan: str | None, options: Options, batch: int, near_cpu: int, clock: Clock
) -> OnGpu:
    """``batch``: rows at most. Raises ``UsageError``, ``ToolError``, one sentence each."""
    if name == "tensorrt":
        from hwtune.validate.gpu import tensorrt

        tensorrt.installed()
        device = open_device(options.index)
        return tensorrt.tensorrt_engine(device, options, onnx, plan, batch, near_cpu, clock)
    from hwtune.validate.gpu.cuda import cuda_engine

    return cuda_engine(open_device(options.index), options, batch, near_cpu, clock)


def open_device(index: int) -> GpuDevice:
    from hwtune import _native

    try:
        return _native.make_gpu_device(index)
    except ValueError as error:
        raise UsageError(f"--gpu {index}: {error}") from None
    except RuntimeError as error:
        raise ToolError(f"no engine can run on a GPU here: {error}") from None


def difference(made: OnGpu) -> float | None:
    """The largest between its scores and the CPU engine's; None for a model that the CPU engine lacks.

    Raises ``ToolError`` where the scores cannot be those of the model, or the GPU fails."""
    if not made.reference:
        return None
    import numpy as np

    from hwtune import _native

    rows = np.random.default_rng(1).uniform(-1, 1, (_ROWS, 64)).astype(np.float32)
    try:
        scores = made.engine.infer(rows)
    except RuntimeError as error:
        raise ToolError(f"the engine {made.engine.name} failed before the run: {error}") from None
    apart = np.abs(scores.astype(np.float64) - _native.make_cpu_engine(32).infer(rows))
    worst = float(apart.max())
    if not worst < _ABSURD:  # also where it is no number
        raise ToolError(
            f"the engine {made.engine.name} computes something else than the CPU engine (apart by "
            f"{worst:.3g}); "
            "times of a wrong result mean nothing"
        )
    return worst
