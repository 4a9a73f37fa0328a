"""TensorRT networks and plans, for TensorRT 10 and 11.

Networks are strongly typed: 11 has no others, 10 is told. So the precision of a user's ONNX file is the
file's own, and that of the embedded model is built in: halves with casts at both ends, INT8 by explicit
quantization.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hwtune.errors import ToolError, UsageError

if TYPE_CHECKING:
    import numpy as np
    import tensorrt as trt
    from numpy.typing import NDArray

# Rows of the optimization profile: fewest, those that kernels are chosen for, most.
PROFILE = (1, 32, 128)
INPUT, OUTPUT = "rows", "scores"
_WORKSPACE = 1 << 30
_LEVELS = 127  # of INT8, symmetric
_CALIBRATION_ROWS = 4096


class Log(NamedTuple):
    """A logger, and the errors that it was told, the newest last."""

    logger: trt.ILogger
    errors: list[str]

    def last(self, otherwise: str) -> str:
        return " ".join(self.errors[-1].split())[:300] if self.errors else otherwise


def make_log() -> Log:
    """Silent: what is an error is told by who asks."""
    import tensorrt as trt

    errors: list[str] = []

    class Logger(trt.ILogger):  # type: ignore[misc]  # of no type where TensorRT is not installed
        def __init__(self) -> None:
            trt.ILogger.__init__(self)  # a class of C++, which insists

        def log(self, severity: trt.ILogger.Severity, msg: str) -> None:
            if severity in (trt.ILogger.Severity.INTERNAL_ERROR, trt.ILogger.Severity.ERROR):
                errors.append(msg)

    return Log(Logger(), errors)


def build(log: Log, onnx: str | None, precision: str, timings: bytes) -> tuple[bytes, bytes]:
    """A plan, and the timing cache as it is now. ``timings``: an earlier one, or b"". Raises ``UsageError``
    for a model that can't be used, ``ToolError`` where TensorRT can't build."""
    import tensorrt as trt

    builder = trt.Builder(log.logger)
    flag = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    strongly = 1 << int(flag) if flag is not None and _major(trt) < 11 else 0
    network = builder.create_network(strongly)
    kept: list[Any] = []  # TensorRT looks at weights until the plan is built
    parser: Any = None
    if onnx is None:
        define(network, precision, kept)
    else:
        parser = trt.OnnxParser(network, log.logger)
        if not parser.parse_from_file(onnx):
            why = parser.get_error(0).desc() if parser.num_errors else log.last("it does not say why")
            raise UsageError(f"TensorRT cannot read the model {onnx}: {' '.join(str(why).split())[:300]}")
    config = _configure(builder, network, onnx)
    _set_timings(config, timings)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise ToolError(f"TensorRT cannot build the engine: {log.last('it does not say why')}")
    cache = config.get_timing_cache()
    return bytes(plan), bytes(cache.serialize()) if cache is not None else b""


def _major(module: Any) -> int:
    return int(str(module.__version__).split(".")[0])


def _configure(builder: trt.Builder, network: trt.INetworkDefinition, onnx: str | None) -> trt.IBuilderConfig:
    import tensorrt as trt

    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, _WORKSPACE)
    config.clear_flag(trt.BuilderFlag.TF32)  # on by default, and ten bits short of FP32
    config.max_aux_streams = 0  # a second stream has to be waited for
    if network.num_inputs != 1:
        raise UsageError(f"the model {onnx} has {network.num_inputs} inputs; it needs one, float32 [N, 64]")
    first = network.get_input(0)
    shape = tuple(first.shape)
    if -1 in shape:
        if shape[1:] != (64,):
            raise UsageError(f"the model {onnx} takes {list(shape)}; it needs float32 [N, 64]")
        profile = builder.create_optimization_profile()
        low, usual, high = ((rows, *shape[1:]) for rows in PROFILE)
        profile.set_shape(first.name, low, usual, high)
        config.add_optimization_profile(profile)
    return config


def _set_timings(config: trt.IBuilderConfig, timings: bytes) -> None:
    """One that does not fit this GPU or TensorRT is not used."""
    cache = config.create_timing_cache(timings)
    if timings and (cache is None or not config.set_timing_cache(cache, False)):
        cache = config.create_timing_cache(b"")
        timings = b""
    if not timings and cache is not None:
        config.set_timing_cache(cache, False)


# -- the embedded model ----------------------------------------------------------------------


def define(network: trt.INetworkDefinition, precision: str, kept: list[Any]) -> None:
    """The perceptron of ``hwtune.validate.perceptron``: float32 [N, 64] in, float32 [N, 1] out."""
    import numpy as np
    import tensorrt as trt

    from hwtune.validate import perceptron

    half = precision == "fp16"
    number = np.float16 if half else np.float32
    layers = perceptron.parameters()
    value = network.add_input(INPUT, trt.float32, (-1, 64))
    value = network.add_cast(value, trt.float16).get_output(0) if half else value
    scales = _activation_scales() if precision == "int8" else []
    for layer, (weights, biases) in enumerate(layers):
        last = layer == len(layers) - 1
        matrix = _constant(network, weights.astype(number), kept)
        # The last layer is a vector, which gains nothing and loses most.
        if precision == "int8" and not last:
            value = _quantized(network, value, scales[layer], kept)
            matrix = _quantized(network, matrix, float(np.abs(weights).max()) / _LEVELS, kept)
        none = trt.MatrixOperation.NONE
        product = network.add_matrix_multiply(value, none, matrix, none).get_output(0)
        bias = _constant(network, biases.astype(number).reshape(1, -1), kept)
        sums = network.add_elementwise(product, bias, trt.ElementWiseOperation.SUM).get_output(0)
        kind = trt.ActivationType.SIGMOID if last else trt.ActivationType.RELU
        value = network.add_activation(sums, kind).get_output(0)
    value = network.add_cast(value, trt.float32).get_output(0) if half else value
    value.name = OUTPUT
    network.mark_output(value)


def _constant(network: trt.INetworkDefinition, numbers: NDArray[Any], kept: list[Any]) -> trt.ITensor:
    import numpy as np
    import tensorrt as trt

    numbers = np.array(numbers, order="C")  # which leaves one without a dimension as it is
    kept.append(numbers)
    return network.add_constant(numbers.shape, trt.Weights(numbers)).get_output(0)


def _quantized(
    network: trt.INetworkDefinition, value: trt.ITensor, scale: float, kept: list[Any]
) -> trt.ITensor:
    """Through INT8 and back: TensorRT moves the pair across the product (explicit quantization)."""
    import numpy as np

    one = _constant(
        network, np.array(scale, np.float32), kept
    )  # a scale for the whole tensor has no dimension
    narrow = network.add_quantize(value, one).get_output(0)
    return network.add_dequantize(narrow, one).get_output(0)


def _activation_scales() -> list[float]:
    """Of the input of each layer: the largest value that it has on random rows, as INT8's largest."""
    import numpy as np

    from hwtune.validate import perceptron

    values: NDArray[np.float32] = (
        np.random.default_rng(1).uniform(-1, 1, (_CALIBRATION_ROWS, 64)).astype(np.float32)
    )
    scales = []
    for weights, biases in perceptron.parameters():
        scales.append(float(np.abs(values).max()) / _LEVELS)
        values = np.maximum(values @ weights + biases, np.float32(0))
    return scales
