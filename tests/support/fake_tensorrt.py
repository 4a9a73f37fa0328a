"""A ``tensorrt`` for tests, as nobody installs the real one where there is no GPU: what hwtune calls of it,
with the names, arguments and answers of TensorRT's Python API (tensorrt-stubs 10.13; for 11 less what its
migration guide removes). Networks are recorded and checked (types as in a strongly typed one, shapes),
``evaluate`` computes what they say. What runs on the stream is the reference kernel of the fake driver
(tests/support/fake_cuda.py), whatever the network says.

``FAKE_TENSORRT`` holds JSON: {"version": "10.13.0.35", "build": "why it fails", "enqueue": "why it fails",
"stale": true (no timing cache fits), "log": FILE that gets a line a build}.
"""

from __future__ import annotations

import ctypes
import enum
import json
import os
import pickle
import types
import weakref
from pathlib import Path
from typing import Any

import numpy as np

SCENE: dict[str, Any] = {"version": "10.13.0.35", **json.loads(os.environ.get("FAKE_TENSORRT", "{}"))}
__version__ = SCENE["version"]
_MAJOR = int(__version__.split(".")[0])


def install(folder: Path) -> Path:
    """``folder``, which goes to the front of PYTHONPATH."""
    package = folder / "tensorrt"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
    return folder


class DataType(enum.Enum):
    FLOAT = np.float32
    HALF = np.float16
    INT8 = np.int8


float32, float16, int8 = DataType.FLOAT, DataType.HALF, DataType.INT8
NetworkDefinitionCreationFlag = enum.IntEnum(
    "NetworkDefinitionCreationFlag",
    {"EXPLICIT_BATCH": 0, "STRONGLY_TYPED": 1} if _MAJOR < 11 else {"STRONGLY_TYPED": 0},
)
BuilderFlag = enum.Enum("BuilderFlag", ["TF32", "REFIT"] + (["FP16", "INT8"] if _MAJOR < 11 else []))
MemoryPoolType = enum.Enum("MemoryPoolType", ["WORKSPACE"])
MatrixOperation = enum.Enum("MatrixOperation", ["NONE", "TRANSPOSE"])
ElementWiseOperation = enum.Enum("ElementWiseOperation", ["SUM", "PROD"])
ActivationType = enum.Enum("ActivationType", ["RELU", "SIGMOID"])
TensorIOMode = enum.Enum("TensorIOMode", ["NONE", "INPUT", "OUTPUT"])


class ILogger:
    class Severity(enum.Enum):
        INTERNAL_ERROR = 0
        ERROR = 1
        WARNING = 2

    def __init__(self) -> None:
        self.ready = True


def _complain(logger: ILogger, message: str) -> None:
    assert logger.ready  # whose __init__ was called
    logger.log(ILogger.Severity.WARNING, "a warning is no error")  # type: ignore[attr-defined]
    logger.log(ILogger.Severity.ERROR, message)  # type: ignore[attr-defined]


class Weights:
    """A view: whoever made it keeps the array until the plan is built."""

    def __init__(self, array: np.ndarray) -> None:
        assert array.flags.c_contiguous
        self.array = weakref.ref(array)


class Tensor:
    def __init__(self, shape: tuple[int, ...], dtype: DataType, op: tuple[Any, ...]) -> None:
        self.shape, self.dtype, self.op, self.name = tuple(shape), dtype, op, ""


class _Layer:
    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def get_output(self, index: int) -> Tensor:
        assert index == 0
        return self._tensor


class Network:
    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []

    @property
    def num_inputs(self) -> int:
        return len(self.inputs)

    def get_input(self, index: int) -> Tensor:
        return self.inputs[index]

    def add_input(self, name: str, dtype: DataType, shape: tuple[int, ...]) -> Tensor:
        self.inputs.append(Tensor(shape, dtype, ("input",)))
        self.inputs[-1].name = name
        return self.inputs[-1]

    def add_constant(self, shape: tuple[int, ...], weights: Weights) -> _Layer:
        array = weights.array()
        assert array is not None and array.shape == tuple(shape)
        return _Layer(Tensor(shape, DataType(array.dtype.type), ("constant", weights)))

    def add_cast(self, tensor: Tensor, to_type: DataType) -> _Layer:
        return _Layer(Tensor(tensor.shape, to_type, ("cast", tensor)))

    def add_matrix_multiply(self, a: Tensor, how_a: Any, b: Tensor, how_b: Any) -> _Layer:
        assert how_a is how_b is MatrixOperation.NONE
        assert a.dtype is b.dtype and a.shape[1] == b.shape[0]
        return _Layer(Tensor((a.shape[0], b.shape[1]), a.dtype, ("product", a, b)))

    def add_elementwise(self, a: Tensor, b: Tensor, how: Any) -> _Layer:
        assert how is ElementWiseOperation.SUM
        assert a.dtype is b.dtype and len(a.shape) == len(b.shape) and b.shape == (1, a.shape[1])
        return _Layer(Tensor(a.shape, a.dtype, ("sum", a, b)))

    def add_activation(self, tensor: Tensor, how: Any) -> _Layer:
        return _Layer(Tensor(tensor.shape, tensor.dtype, (how.name, tensor)))

    def add_quantize(self, tensor: Tensor, scale: Tensor) -> _Layer:
        assert scale.shape == () and tensor.dtype is scale.dtype is float32
        return _Layer(Tensor(tensor.shape, int8, ("quantize", tensor, scale)))

    def add_dequantize(self, tensor: Tensor, scale: Tensor) -> _Layer:
        assert scale.shape == () and tensor.dtype is int8
        return _Layer(Tensor(tensor.shape, float32, ("dequantize", tensor, scale)))

    def mark_output(self, tensor: Tensor) -> None:
        self.outputs.append(tensor)


def evaluate(tensor: Tensor, rows: np.ndarray) -> np.ndarray:
    """What the network says, in its own types (products summed in float32)."""
    kind, *of = tensor.op
    if kind == "input":
        return rows
    if kind == "constant":
        found = of[0].array()
        assert found is not None
        return found
    given = [evaluate(one, rows) for one in of]
    wide = [np.asarray(one, np.float32) for one in given]
    if kind == "product":
        return (wide[0] @ wide[1]).astype(tensor.dtype.value)
    if kind == "sum":
        return (wide[0] + wide[1]).astype(tensor.dtype.value)
    if kind == "RELU":
        return np.maximum(given[0], tensor.dtype.value(0))
    if kind == "SIGMOID":
        return (1 / (1 + np.exp(-wide[0]))).astype(tensor.dtype.value)
    if kind == "quantize":
        return np.clip(np.rint(wide[0] / wide[1]), -128, 127).astype(np.int8)
    if kind == "dequantize":
        return wide[0] * wide[1]
    return given[0].astype(tensor.dtype.value)  # a cast


class Profile:
    def __init__(self) -> None:
        self.shapes: dict[str, list[tuple[int, ...]]] = {}

    def set_shape(self, name: str, low: Any, usual: Any, high: Any) -> None:
        self.shapes[name] = [tuple(low), tuple(usual), tuple(high)]


class TimingCache:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def serialize(self) -> bytes:
        return self.content


class Config:
    def __init__(self) -> None:
        self.max_aux_streams = 7
        self.flags = {BuilderFlag.TF32}
        self.profiles: list[Profile] = []
        self.cache: TimingCache | None = None
        self.workspace = 0

    def set_memory_pool_limit(self, pool: Any, size: int) -> None:
        self.workspace = size

    def clear_flag(self, flag: Any) -> None:
        self.flags.discard(flag)

    def add_optimization_profile(self, profile: Profile) -> int:
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def create_timing_cache(self, content: bytes) -> TimingCache:
        return TimingCache(content)

    def set_timing_cache(self, cache: TimingCache, ignore_mismatch: bool) -> bool:
        assert ignore_mismatch is False  # timings of another GPU would choose slow kernels
        if cache.content and SCENE.get("stale"):
            return False
        self.cache = cache
        return True

    def get_timing_cache(self) -> TimingCache | None:
        return self.cache


class Builder:
    def __init__(self, logger: ILogger) -> None:
        self.logger = logger
        self.made: list[Any] = []

    def create_network(self, flags: int = 0) -> Network:
        return Network(flags)

    def create_builder_config(self) -> Config:
        return Config()

    def create_optimization_profile(self) -> Profile:
        return Profile()

    def build_serialized_network(self, network: Network, config: Config) -> bytes | None:
        if "log" in SCENE:
            with open(SCENE["log"], "a", encoding="utf-8") as file:
                file.write("built\n")
        if SCENE.get("build"):
            _complain(self.logger, SCENE["build"])
            return None
        _weights_live(network.outputs)
        assert config.cache is not None
        config.cache.content += b"timed;"
        first, last = network.inputs[0], network.outputs[0]
        profile = config.profiles[0].shapes[first.name] if config.profiles else [first.shape] * 3
        ports = [
            (first.name, "INPUT", first.dtype.name, first.shape),
            (last.name, "OUTPUT", last.dtype.name, last.shape),
        ]
        told = {
            "flags": network.flags,
            "tf32": BuilderFlag.TF32 in config.flags,
            "aux": config.max_aux_streams,
            "profile": profile,
        }
        return b"PLAN" + pickle.dumps((__version__, ports, profile, told))


def _weights_live(tensors: Any) -> None:
    for tensor in tensors:
        for part in tensor.op[1:]:
            if isinstance(part, Weights):
                assert part.array() is not None, "weights were let go before the plan was built"
            else:
                _weights_live([part])


def a_plan(
    *ports: tuple[str, str, str, tuple[int, ...]], profile: Any = None, version: str = __version__
) -> bytes:
    """A plan file of these tensors, for tests of what is refused."""
    return b"PLAN" + pickle.dumps((version, list(ports), profile, {}))


class OnnxParser:
    """Of files that the tests write: JSON of a batch (-1 is open) and a width."""

    def __init__(self, network: Network, logger: ILogger) -> None:
        self.network, self.problems = network, []  # type: ignore[var-annotated]

    def parse_from_file(self, path: str) -> bool:
        try:
            told = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError:
            self.problems.append("no such\n operator")
            return False
        for number in range(told.get("inputs", 1)):
            self.network.add_input(f"in{number}", float32, (told["batch"], told["width"]))
        given = Tensor((told["batch"], 1), float32, ("cast", self.network.inputs[0]))
        given.name = "out"
        self.network.mark_output(given)
        return True

    @property
    def num_errors(self) -> int:
        return len(self.problems)

    def get_error(self, index: int) -> Any:
        return types.SimpleNamespace(desc=lambda: self.problems[index])


class Runtime:
    def __init__(self, logger: ILogger) -> None:
        self.logger = logger

    def deserialize_cuda_engine(self, plan: bytes) -> Engine | None:
        if plan[:4] != b"PLAN":
            _complain(self.logger, "Magic tag does not match")
            return None
        version, ports, profile, _ = pickle.loads(plan[4:])
        if version != __version__:
            _complain(self.logger, f"The engine plan file is of version {version}")
            return None
        return Engine(self, ports, profile)


class Engine:
    def __init__(self, runtime: Runtime, ports: Any, profile: Any) -> None:
        self._runtime = weakref.ref(runtime)
        self._ports = {
            name: (TensorIOMode[mode], DataType[dtype], shape) for name, mode, dtype, shape in ports
        }
        self._profile = profile
        self._memory: Any = None

    num_io_tensors = property(lambda self: len(self._ports))

    def get_tensor_name(self, index: int) -> str:
        return list(self._ports)[index]

    def get_tensor_mode(self, name: str) -> Any:
        return self._ports[name][0]

    def get_tensor_dtype(self, name: str) -> DataType:
        return self._ports[name][1]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self._ports[name][2]

    def get_tensor_profile_shape(self, name: str, index: int) -> Any:
        assert self.get_tensor_mode(name) is TensorIOMode.INPUT and index == 0
        return self._profile

    def create_execution_context(self) -> Context:
        assert self._runtime() is not None, "the runtime was let go before its engine"
        return Context(self)

    def kernel(self) -> tuple[Any, Any, Any]:
        """The driver, the reference kernel, its parameters on the GPU."""
        if self._memory is None:
            from hwtune.validate.gpu.cuda import parameters

            cuda = ctypes.CDLL("libcuda.so.1")
            module, function, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
            numbers = parameters("fp32")
            _good(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(len(numbers))))
            _good(cuda.cuModuleLoadData(ctypes.byref(module), b"\x7fELF"))
            _good(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"hwtune_perceptron_fp32"))
            _good(cuda.cuMemcpyHtoD_v2(memory, numbers, ctypes.c_size_t(len(numbers))))
            self._memory = cuda, module, function, memory
        cuda, _, function, memory = self._memory
        return cuda, function, memory

    def __del__(self) -> None:
        if self._memory is not None:
            cuda, module, _, memory = self._memory
            cuda.cuMemFree_v2(memory)
            cuda.cuModuleUnload(module)


def _good(code: int) -> None:
    if code != 0:
        raise RuntimeError(f"Cuda Runtime (error {code})")


class Context:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._rows = 0
        self._at: dict[str, int] = {}

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        low, _, high = self._engine._profile
        self._rows = shape[0]
        return low[0] <= shape[0] <= high[0]

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self._at[name] = memory
        return name in self._engine._ports

    def execute_async_v3(self, stream_handle: int) -> bool:
        logger = self._engine._runtime().logger  # type: ignore[union-attr]
        if SCENE.get("enqueue"):
            _complain(logger, SCENE["enqueue"])
            return False
        source, target = (
            next(self._at[name] for name, (mode, *_) in self._engine._ports.items() if mode is wanted)
            for wanted in (TensorIOMode.INPUT, TensorIOMode.OUTPUT)
        )
        rows = self._rows or self._engine.get_tensor_shape(self._engine.get_tensor_name(0))[0]
        cuda, function, memory = self._engine.kernel()
        given = [ctypes.c_uint64(source), ctypes.c_uint64(target), memory]
        arguments = (ctypes.c_void_p * 3)(*(ctypes.addressof(one) for one in given))
        grid = (rows, 1, 1, 512, 1, 1, 0)
        code = cuda.cuLaunchKernel(function, *grid, ctypes.c_void_p(stream_handle), arguments, None)
        return bool(code == 0)
