"""The reference model in float64, from the formula in native/include/hwtune/perceptron.hpp.

It is what the engines' scores are held against, and what an ONNX file of the same model is made from.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

WIDTHS = (64, 512, 256, 128, 64, 1)
LAST_BIAS = 2.0
LAST_GAIN = 6.0


def parameters() -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Weights (inputs, outputs) and biases (outputs,) of each layer."""
    made = []
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(WIDTHS)):
        last = layer == len(WIDTHS) - 2
        whole = _whole_numbers(layer, inputs + 1, outputs)
        limit = np.sqrt(6.0 / inputs) * (LAST_GAIN if last else 1.0)
        weights = whole[:-1] * np.float32(limit * 2.0**-23)
        biases = np.array([LAST_BIAS], np.float32) if last else whole[-1] * np.float32(0.1 * 2.0**-23)
        made.append((weights, biases))
    return made


def scores(rows: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Of rows (n, 64): shape (n,), from 0 to 1."""
    *hidden, (weights, biases) = parameters()
    values = rows.astype(np.float64)
    for hidden_weights, hidden_biases in hidden:
        values = np.maximum(values @ hidden_weights.astype(np.float64) + hidden_biases, 0.0)
    logits: NDArray[np.float64] = (values @ weights.astype(np.float64) + biases)[:, 0]
    return 1.0 / (1.0 + np.exp(-logits))


def _whole_numbers(layer: int, inputs: int, outputs: int) -> NDArray[np.float32]:
    """24 random bits for each parameter, from -2^23 on: of splitmix64, whose n-th word needs no other."""
    index = np.add.outer(
        np.arange(inputs, dtype=np.uint64) << np.uint64(16), np.arange(outputs, dtype=np.uint64)
    )
    word = ((np.uint64(layer) << np.uint64(32)) + index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ word >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ word >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(31)
    whole: NDArray[np.float32] = ((word >> np.uint64(40)).astype(np.int64) - 2**23).astype(np.float32)
    return whole
