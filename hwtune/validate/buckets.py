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
