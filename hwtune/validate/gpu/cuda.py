"""The reference perceptron as one kernel (perceptron.cu), which needs neither TensorRT nor nvcc."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hwtune.errors import ToolError, UsageError
from hwtune.validate.gpu import nvrtc
from hwtune.validate.gpu.engines import OnGpu

if TYPE_CHECKING:
    from hwtune._native import Clock, GpuDevice
    from hwtune.validate.gpu.results import Options

SOURCE = Path(__file__).parents[1] / "perceptron.cu"
THREADS = 512  # of a block, as in the source
_NUMBERS = {"fp32": "float32", "fp16": "float16"}


def cuda_engine(device: GpuDevice, options: Options, batch: int, near_cpu: int, clock: Clock) -> OnGpu:
    """With a graph for each number of rows. Raises ``UsageError``, ``ToolError``."""
    from hwtune import _native

    if options.precision not in _NUMBERS:
        known = " and ".join(_NUMBERS)
        raise UsageError(f"--engine cuda has {known}, not {options.precision}; --engine tensorrt has more")
    image = nvrtc.image(SOURCE.read_bytes(), SOURCE.name, device.capability, device.driver)
    numbers = parameters(options.precision)
    try:
        engine = _native.make_kernel_engine(
            device,
            clock,
            image=image,
            kernel=f"hwtune_perceptron_{options.precision}",
            parameters=numbers,
            threads=THREADS,
            name=f"cuda ({device.name}, {options.precision})",
            sizes=list(range(1, batch + 1)),
            streams=options.streams,
            deadline_s=options.deadline_s,
            near_cpu=near_cpu,
        )
    except (RuntimeError, OSError) as error:
        raise ToolError(f"the GPU cannot run the engine: {error}") from None
    return OnGpu(engine, device, options, len(numbers), True)


def parameters(precision: str) -> bytes:
    """Of each layer the weights, input by input, then the biases."""
    import numpy as np

    from hwtune.validate import perceptron

    parts = [part.ravel() for layer in perceptron.parameters() for part in layer]
    return np.concatenate(parts).astype(_NUMBERS[precision]).tobytes()
