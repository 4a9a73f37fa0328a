"""Writes small ONNX files: the reference model, for whoever runs ONNX, and what the tests need.

ONNX is protobuf (onnx/onnx.proto of onnx/onnx; the numbers below are its field numbers and enum values).
A file of a few operators needs none of its libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hwtune.validate import perceptron

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

FLOAT = 1  # TensorProto.DataType
INT64 = 7
FLOAT64 = 11
IR_VERSION = 8  # and opset 13: read by every onnxruntime since 1.14
OPSET = 13


class Port(NamedTuple):
    """An input or output. A dimension that is a name is open."""

    name: str
    shape: Sequence[int | str]
    element: int = FLOAT


class Node(NamedTuple):
    operator: str
    inputs: Sequence[str]
    output: str


def reference_model() -> bytes:
    """The perceptron of ``hwtune.validate.perceptron``: ``rows`` [N, 64] to ``scores`` [N, 1]."""
    nodes: list[Node] = []
    initializers: dict[str, NDArray[np.float32]] = {}
    value = "rows"
    layers = perceptron.parameters()
    for layer, (weights, biases) in enumerate(layers):
        last = layer == len(layers) - 1
        initializers |= {f"weights{layer}": weights, f"biases{layer}": biases}
        nodes.append(Node("Gemm", (value, f"weights{layer}", f"biases{layer}"), f"sums{layer}"))
        value = "scores" if last else f"values{layer}"
        nodes.append(Node("Sigmoid" if last else "Relu", (f"sums{layer}",), value))
    return model(nodes, [Port("rows", ("N", 64))], [Port("scores", ("N", 1))], initializers)


def model(
    nodes: Sequence[Node],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    initializers: Mapping[str, NDArray[np.float32] | NDArray[np.int64]],
) -> bytes:
    """A ModelProto."""
    graph = b"".join(
        [
            *(_bytes(1, _node(node)) for node in nodes),
            _bytes(2, b"hwtune"),
            *(_bytes(5, _tensor(name, values)) for name, values in initializers.items()),
            *(_bytes(11, _port(port)) for port in inputs),
            *(_bytes(12, _port(port)) for port in outputs),
        ]
    )
    opset = _bytes(1, b"") + _number(2, OPSET)
    return _number(1, IR_VERSION) + _bytes(7, graph) + _bytes(8, opset)


def _node(node: Node) -> bytes:
    inputs = b"".join(_bytes(1, name.encode()) for name in node.inputs)
    return inputs + _bytes(2, node.output.encode()) + _bytes(4, node.operator.encode())


def _tensor(name: str, values: NDArray[np.float32] | NDArray[np.int64]) -> bytes:
    sizes = b"".join(_number(1, size) for size in values.shape)
    element, layout = (FLOAT, "<f4") if values.dtype == np.float32 else (INT64, "<i8")
    return sizes + _number(2, element) + _bytes(8, name.encode()) + _bytes(9, values.astype(layout).tobytes())


def _port(port: Port) -> bytes:
    sizes = (_bytes(2, size.encode()) if isinstance(size, str) else _number(1, size) for size in port.shape)
    shape = b"".join(_bytes(1, size) for size in sizes)
    tensor = _number(1, port.element) + _bytes(2, shape)
    return _bytes(1, port.name.encode()) + _bytes(2, _bytes(1, tensor))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
