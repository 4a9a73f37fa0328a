"""Windows of latencies whose distribution is known, with memory from one to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# log-linear buckets, 1.6 % each, 1 us to 17 s: enough to tell what tests tell
TOPS = np.unique(np.round(1000 * 2 ** (np.arange(1536) / 64)).astype(np.int64))


def windows(
    seed: int,
    count: int = 120,
    samples: int = 1000,
    scale: float = 1.0,
    memory: float = 0.6,
    spread: float = 0.08,
    trend: float = 0.0,
) -> NDArray[np.uint32]:
    """Log-normal latencies around 40 us, one tick in 50 delayed by some 200 us. Each window's level and its
    number of delays follow an AR(1) of ``memory``; ``spread``: of the level, as a share. ``trend``: growth
    from the first window to the last, as a share. ``scale``: of all latencies."""
    random = np.random.default_rng(seed)
    level, noise = np.empty(count), random.normal(size=count)
    level[0] = noise[0]
    for i in range(1, count):
        level[i] = memory * level[i - 1] + np.sqrt(1 - memory**2) * noise[i]
    factor = scale * np.exp(spread * level) * (1 + trend * np.arange(count) / max(count - 1, 1))
    latency = random.lognormal(np.log(40_000), 0.25, (count, samples))
    delayed = random.random((count, samples)) < 0.02 * np.exp(spread * level)[:, None]
    latency[delayed] += random.exponential(200_000, int(delayed.sum()))
    bucket = np.searchsorted(TOPS, factor[:, None] * latency) + len(TOPS) * np.arange(count)[:, None]
    counts = np.bincount(bucket.ravel(), minlength=count * len(TOPS))
    return counts.reshape(count, len(TOPS)).astype(np.uint32)
