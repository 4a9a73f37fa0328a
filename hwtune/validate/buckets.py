"""The buckets of ``hwtune._native.Histogram`` (HdrHistogram's, from 1 ns with 3 digits) as arrays: 2,048 of
width 1, then 1,024 in each further power of two."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HALF = 1024
#: up to 2^37 ns, which is the first power of two above 100 s
COUNT = 28 * _HALF


@lru_cache(maxsize=1)
def tops() -> NDArray[np.int64]:
    """The highest value of each bucket, nanoseconds; read only."""
    index = np.arange(COUNT, dtype=np.int64)
    power = np.maximum(index // _HALF - 1, 0)
    low = np.where(index < 2 * _HALF, index, (_HALF + index % _HALF) << power)
    found: NDArray[np.int64] = low + (np.int64(1) << power) - 1
    found.flags.writeable = False
    return found


def index_of(ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bucket of each value; longer ones go to the last."""
    return np.minimum(np.searchsorted(tops(), ns), COUNT - 1)


# -- the coarse ones -------------------------------------------------------------------------

_COARSE_HALF = 64
#: of stages by windows: 128 of width 1, then 64 in each further power of two, up to 2^37 ns
COARSE = 32 * _COARSE_HALF


@lru_cache(maxsize=1)
def coarse() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The lowest and the highest value of each coarse bucket, nanoseconds; read only."""
    index = np.arange(COARSE, dtype=np.int64)
    power = np.maximum(index // _COARSE_HALF - 1, 0)
    low = np.where(index < 2 * _COARSE_HALF, index, (_COARSE_HALF + index % _COARSE_HALF) << power)
    high: NDArray[np.int64] = low + (np.int64(1) << power) - 1
    for found in (low, high):
        found.flags.writeable = False
    return low, high


def coarse_index_of(ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The coarse bucket of each value; longer ones go to the last."""
    return np.minimum(np.searchsorted(coarse()[1], ns), COARSE - 1)
