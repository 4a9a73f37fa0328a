"""The engine by TensorRT: the embedded model, an ONNX file or a plan, run as CUDA graphs by the native loop.

For each slot and size there is an execution context of its own, as a graph has the shapes and addresses of
its capture baked in.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hwtune.errors import ToolError, UsageError
from hwtune.validate.gpu import engine_cache
from hwtune.validate.gpu.engine_cache import Key
from hwtune.validate.gpu.engines import OnGpu

if TYPE_CHECKING:
    import tensorrt as trt

    from hwtune._native import Clock, GpuDevice
    from hwtune.validate.gpu.results import Options
    from hwtune.validate.gpu.tensorrt_build import Log

MISSING = "--engine tensorrt needs TensorRT 10 or 11: pip install 'hwtune[tensorrt]'"
NEEDS = "it needs float32 [N, 64] in and float32 [N] or [N, 1] out"
#: Rows of the graphs where the model leaves them open: of any other number the next larger one runs.
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
# Raised when networks are built otherwise, so that no older plan is taken for one of them.
_RECIPE = 1


class Ports(NamedTuple):
    """``fewest`` and ``most`` rows; equal where the batch is fixed."""

    rows: str
    scores: str
    fewest: int
    most: int


def tensorrt_engine(
    device: GpuDevice,
    options: Options,
    onnx: str | None,
    plan: str | None,
    batch: int,
    near_cpu: int,
    clock: Clock,
) -> OnGpu:
    """Raises ``UsageError``, ``ToolError``, one sentence each."""
    from hwtune import _native
    from hwtune.validate.gpu.tensorrt_build import make_log

    version = installed()
    device.make_current()  # TensorRT takes the GPU whose context this thread has
    log = make_log()
    code, notes = _plan(log, device, version, onnx, plan, options.precision)
    model = _load(log, code, plan or onnx, version)
    ports = ports_of(model, plan or onnx or "of hwtune")
    sizes = sizes_of(ports, batch)
    try:
        engine = _native.make_call_engine(
            device,
            clock,
            enqueue=_enqueue(log, model, ports),
            name=f"tensorrt {version} ({device.name}, {_precision(onnx, plan, options)})",
            sizes=sizes,
            streams=options.streams,
            deadline_s=options.deadline_s,
            near_cpu=near_cpu,
        )
    except (RuntimeError, OSError) as error:
        raise ToolError(f"the GPU cannot run the engine: {str(error).splitlines()[0]}") from None
    own = onnx is None and plan is None
    return OnGpu(engine, device, options, _weights(options.precision) if own else None, own, tuple(notes))


def installed() -> str:
    """Its version. Raises ``UsageError`` where it is not there, or another than 10 and 11."""
    try:
        import tensorrt as trt
    except ModuleNotFoundError:
        raise UsageError(MISSING) from None
    except (ImportError, OSError) as error:  # the Python part is there, its libraries are not
        raise ToolError(f"TensorRT is installed and cannot be loaded: {error}") from None
    version = str(trt.__version__)
    if version.split(".")[0] not in ("10", "11"):
        raise UsageError(f"--engine tensorrt needs TensorRT 10 or 11, {version} is installed")
    return version


def _precision(onnx: str | None, plan: str | None, options: Options) -> str:
    return options.precision if onnx is None and plan is None else "its own precision"


def _weights(precision: str) -> int:
    """Bytes of the embedded model's parameters."""
    return 205_825 * {"fp32": 4, "fp16": 2, "int8": 1}[precision]


# -- the plan --------------------------------------------------------------------------------


def key_of(device: GpuDevice, version: str, onnx: str | None, precision: str) -> Key:
    content = Path(onnx).read_bytes() if onnx is not None else b"the reference perceptron"
    asked = f"{_RECIPE} {precision if onnx is None else ''}".encode()
    capability = ".".join(str(number) for number in device.capability)
    driver = engine_cache.driver_version(device.driver)
    return Key(sha256(asked + b"\0" + content).hexdigest(), device.name, capability, driver, version)


def _plan(
    log: Log, device: GpuDevice, version: str, onnx: str | None, plan: str | None, precision: str
) -> tuple[bytes, list[str]]:
    """Given, kept from an earlier run, or built now; and what there is to say about it."""
    try:
        if plan is not None:
            return Path(plan).read_bytes(), []
        key = key_of(device, version, onnx, precision)
    except OSError as error:
        raise UsageError(f"the model {plan or onnx} cannot be read: {error.strerror}") from None
    kept = engine_cache.read(key.plan())
    if kept is not None and _deserialized(log, kept) is not None:
        return kept, ["The engine was built by an earlier run."]
    from hwtune.validate.gpu.tensorrt_build import build

    code, timings = build(log, onnx, precision, engine_cache.read(key.timings()) or b"")
    whys = [engine_cache.write(key.plan(), code)]
    whys.append(engine_cache.write(key.timings(), timings) if timings else "")
    return code, [f"The engine could not be kept: {why}." for why in whys[:1] if why]


def _deserialized(log: Log, code: bytes) -> Any:
    """The engine with its runtime, which has to outlive it; None where TensorRT refuses the plan."""
    import tensorrt as trt

    runtime = trt.Runtime(log.logger)
    engine = runtime.deserialize_cuda_engine(code)
    return None if engine is None else (engine, runtime)


def _load(log: Log, code: bytes, path: str | None, version: str) -> Any:
    found = _deserialized(log, code)
    if found is None:
        why = log.last("it does not say why")
        raise UsageError(
            f"TensorRT {version} cannot load the plan {path or 'that it has just built'}; a plan goes with "
            "the version "
            f"and the GPU that it was built with: {why}"
        )
    return found


# -- what it takes and gives -----------------------------------------------------------------


def ports_of(model: Any, path: str) -> Ports:
    """Raises ``UsageError`` where the model is not one of 64 features."""
    import tensorrt as trt

    engine: trt.ICudaEngine = model[0]
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    inputs = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
    outputs = [name for name in names if name not in inputs]
    if (len(inputs), len(outputs)) != (1, 1):
        told = f"has {len(inputs)} inputs and {len(outputs)} outputs"
        raise UsageError(f"the model {path} {told}; {NEEDS}")
    taken, given = (tuple(engine.get_tensor_shape(name)) for name in (inputs[0], outputs[0]))
    types = {engine.get_tensor_dtype(name) for name in (inputs[0], outputs[0])}
    shapes = len(taken) == 2 and taken[1] == 64 and given in ((taken[0],), (taken[0], 1))
    if types != {trt.float32} or not shapes:
        told = f"takes {_shape(engine, inputs[0])} and gives {_shape(engine, outputs[0])}"
        raise UsageError(f"the model {path} {told}; {NEEDS}")
    if taken[0] >= 0:
        return Ports(inputs[0], outputs[0], taken[0], taken[0])
    fewest, _, most = engine.get_tensor_profile_shape(inputs[0], 0)
    return Ports(inputs[0], outputs[0], fewest[0], most[0])


def _shape(engine: trt.ICudaEngine, name: str) -> str:
    sizes = ", ".join("N" if size < 0 else str(size) for size in tuple(engine.get_tensor_shape(name)))
    return f"{engine.get_tensor_dtype(name).name.lower()} [{sizes}]"


def sizes_of(ports: Ports, batch: int) -> list[int]:
    """Rows of the graphs, for batches of 1 to ``batch`` rows, or as many as the model takes."""
    if ports.fewest == ports.most:
        return [ports.most]
    most = min(batch, ports.most)
    sizes = {max(size, ports.fewest) for size in SIZES if size < most} | {max(most, ports.fewest)}
    return sorted(sizes)


# -- at work ---------------------------------------------------------------------------------


def _enqueue(log: Log, model: Any, ports: Ports) -> Callable[[int, int, int, int, int], None]:
    """What the native engine asks for each slot and size, twice: the first makes the context ready."""
    engine: trt.ICudaEngine = model[0]
    contexts: dict[tuple[int, int], trt.IExecutionContext] = {}

    def enqueue(stream: int, slot: int, rows: int, source: int, target: int) -> None:
        context = contexts.get((slot, rows))
        if context is None:
            context = engine.create_execution_context()
            if context is None:
                raise RuntimeError(f"TensorRT makes no context: {log.last('it does not say why')}")
            contexts[slot, rows] = context
            done = ports.fewest == ports.most or context.set_input_shape(ports.rows, (rows, 64))
            done = done and context.set_tensor_address(ports.rows, source)
            if not (done and context.set_tensor_address(ports.scores, target)):
                raise RuntimeError(f"TensorRT refuses a batch of {rows}: {log.last('it does not say why')}")
        if not context.execute_async_v3(stream):
            raise RuntimeError(f"TensorRT does not run a batch of {rows}: {log.last('it does not say why')}")

    enqueue.model = model  # type: ignore[attr-defined]  # the runtime lives as long as what it made
    return enqueue
