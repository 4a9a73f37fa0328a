"""Percentiles of bucketed latencies, and how far they can be believed.

Latencies of one run are no independent samples: what disturbs one tick disturbs those after it. So the
interval of a percentile is drawn from whole windows of time, in blocks as long as their memory lasts
(circular block bootstrap; Politis and Romano 1992, block length by Politis and White 2004 as corrected by
Patton, Politis and White 2009). Order statistics, which take samples for independent, give the least width
that it may have.

Counts are in buckets; ``tops`` are the buckets' highest values in ascending order. A percentile is the top
of the bucket that holds it, as HdrHistogram has it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Counts = NDArray[np.integer]

CONFIDENCE = 0.95
DRAWS = 1000
# Fewer windows tell nothing of how the run varied.
LEAST_WINDOWS = 20
_EXACT = 20_000  # samples up to which ranks are counted out by the binomial distribution
_MOST_BLOCKS = 12
_Z = 1.959964  # the normal distribution's 97.5 % point


class Interval(NamedTuple):
    low: int
    high: int


class Told(msgspec.Struct, frozen=True):
    """An interval, or ``why`` there is none."""

    low: int | None
    high: int | None
    why: str = ""


def least_samples(q: float, confidence: float = CONFIDENCE) -> int:
    """Below so many, no sample is a bound of the percentile: the largest of n lies below it with probability
    q^n. P99 needs 299, P99.9 2,995, P99.99 29,956 at 95 %."""
    return math.ceil(math.log(1 - confidence) / math.log(q))


def quantile(counts: Counts, tops: Counts, q: float, missing: int = 0) -> int | None:
    """The value that a share ``q`` of all samples does not exceed. ``missing``: samples that never came to
    an end, above all others. None where it is one of them, or there are no samples."""
    total = int(counts.sum())
    rank = _rank(q, total + missing)
    if total == 0 or rank > total:
        return None
    return int(tops[np.searchsorted(np.cumsum(counts), rank)])


def _rank(q: float, total: int) -> int:
    """From 1; what rounding adds to an exact product is not one more."""
    return max(1, math.ceil(q * total - 1e-9 * max(total, 1)))


# -- order statistics ------------------------------------------------------------------------


def order_interval(counts: Counts, tops: Counts, q: float, missing: int = 0) -> Interval | None:
    """Two-sided, for independent samples: the values at the ranks between which the percentile lies with
    95 %. None where there are too few, or the upper one is missing."""
    completed = int(counts.sum())
    total = completed + missing
    low, high = _ranks(total, q)
    if low < 1 or high > completed:
        return None
    cumulated = np.cumsum(counts)
    return Interval(*(int(tops[np.searchsorted(cumulated, rank)]) for rank in (low, high)))


def _ranks(total: int, q: float) -> tuple[int, int]:
    if total > _EXACT:
        middle, spread = total * q, _Z * math.sqrt(total * q * (1 - q))
        return math.floor(middle - spread), math.ceil(middle + spread) + 1
    # P(at most k of n samples lie below the percentile)
    steps = np.arange(total)
    ratio = np.log((total - steps) / (steps + 1)) + math.log(q / (1 - q))
    logs = np.concatenate(([0.0], np.cumsum(ratio))) + total * math.log(1 - q)
    at_most = np.cumsum(np.exp(logs))
    tail = (1 - CONFIDENCE) / 2
    # the r-th value is above the percentile when at most r - 1 samples are below it
    low = int(np.searchsorted(at_most, tail, side="right"))
    high = int(np.searchsorted(at_most, 1 - tail)) + 1
    return low, high


# -- the block bootstrap ---------------------------------------------------------------------


def interval(
    windows: Counts, tops: Counts, q: float, missing: int = 0, window_s: float = 0.0, seed: int = 1
) -> Told:
    """Of a percentile of all windows together, with 95 %. ``windows``: shape (windows, buckets)."""
    counts = windows.sum(axis=0, dtype=np.int64)
    total = int(counts.sum()) + missing
    independent = order_interval(counts, tops, q, missing)
    if independent is None:
        if quantile(counts, tops, q, missing) is None and total:
            return Told(None, None, "it lies among the ticks that never came through")
        needed = _least_two_sided(q)
        return Told(None, None, f"at least {needed:,} ticks are needed, {total:,} were measured")
    if len(windows) < LEAST_WINDOWS:
        needed_s = f" ({LEAST_WINDOWS * window_s:g} s)" if window_s else ""
        return Told(
            None, None, f"at least {LEAST_WINDOWS} windows{needed_s} are needed, there are {len(windows)}"
        )
    share = q * total / max(int(counts.sum()), 1)
    drawn = bootstrap(windows, tops, min(share, 1.0), seed=seed)
    low, high = np.exp(np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]))
    return Told(min(int(low), independent.low), max(int(high), independent.high))


def _least_two_sided(q: float) -> int:
    return math.ceil(math.log((1 - CONFIDENCE) / 2) / math.log(q))


def bootstrap(
    windows: Counts, tops: Counts, q: float, draws: int = DRAWS, seed: int = 1
) -> NDArray[np.float64]:
    """The logarithm of the percentile of ``draws`` runs put together from blocks of this one's windows."""
    series = exceedances(windows, q)
    block = block_length(series)
    weights = _weights(len(windows), block, draws, np.random.default_rng(seed))
    table, values = _upper_part(windows, tops, q)
    cumulated = np.cumsum(weights @ table, axis=1)
    ranks = np.ceil(q * cumulated[:, -1] - 1e-6)
    drawn = np.log(values[np.argmax(cumulated >= ranks[:, None], axis=1)])
    # what so few blocks make too narrow: Student's t in place of the normal distribution
    count = len(windows) / block
    wider = _student(count - 1) / _Z * math.sqrt(count / (count - 1))
    middle = drawn.mean()
    widened: NDArray[np.float64] = middle + (drawn - middle) * wider
    return widened


def exceedances(windows: Counts, q: float) -> NDArray[np.float64]:
    """Of each window the share of its samples above the percentile of all: the series whose memory
    decides how long blocks must be. Windows without samples have the mean."""
    counts = windows.sum(axis=0, dtype=np.int64)
    cut = int(np.searchsorted(np.cumsum(counts), _rank(q, int(counts.sum()))))
    totals = windows.sum(axis=1, dtype=np.float64)
    above = windows[:, cut + 1 :].sum(axis=1, dtype=np.float64)
    mean = above.sum() / max(totals.sum(), 1.0)
    shares: NDArray[np.float64] = np.where(totals > 0, above / np.maximum(totals, 1.0), mean)
    return shares


def block_length(series: NDArray[np.float64]) -> int:
    """Windows a block: as long as the memory that shows, or as a twelfth of the run, since a weak memory
    does not show in so few windows and widens the interval all the same."""
    return max(_memory(series), math.ceil(len(series) / _MOST_BLOCKS))


def _memory(series: NDArray[np.float64]) -> int:
    """Politis and White's choice for the circular block bootstrap."""
    count = len(series)
    longest = max(1, min(math.ceil(3 * math.sqrt(count)), count // 3))
    deviations = series - series.mean()
    covariance = np.array([deviations[: count - k] @ deviations[k:] / count for k in range(count // 2)])
    if len(covariance) < 2 or covariance[0] <= 0:
        return 1
    correlation = covariance / covariance[0]
    # the lag after which K in a row are as small as chance makes them
    run = max(5, math.ceil(math.log10(count)))
    bound = 2 * math.sqrt(math.log10(count) / count)
    small = np.abs(correlation[1:]) < bound
    memory = next((m for m in range(len(small)) if small[m : m + run].all()), len(small))
    if memory == 0:
        return 1
    lags = np.arange(1, min(2 * memory, len(covariance) - 1) + 1)
    flat_top = np.clip(2 * (1 - lags / (2 * memory)), 0, 1)
    slope = 2 * float((flat_top * lags * covariance[lags]).sum())
    level = float(covariance[0] + 2 * (flat_top * covariance[lags]).sum())
    if level <= 0:
        return longest
    best = (1.5 * (slope / level) ** 2) ** (1 / 3) * count ** (1 / 3)
    return int(min(max(1, math.ceil(best)), longest))


def _weights(count: int, block: int, draws: int, random: np.random.Generator) -> NDArray[np.float64]:
    """How often each window is in each draw: shape (draws, windows)."""
    starts = random.integers(0, count, size=(draws, math.ceil(count / block)))
    members = (starts[:, :, None] + np.arange(block)).reshape(draws, -1)[:, :count] % count
    flat = (members + count * np.arange(draws)[:, None]).ravel()
    return np.bincount(flat, minlength=draws * count).reshape(draws, count).astype(np.float64)


def _upper_part(windows: Counts, tops: Counts, q: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The buckets that a draw's percentile may fall into, empty ones left out; all below are one."""
    counts = windows.sum(axis=0, dtype=np.int64)
    floor = max(0.0, 1 - 20 * (1 - q))
    cut = int(np.searchsorted(np.cumsum(counts), _rank(floor, int(counts.sum()))))
    used = np.flatnonzero(counts[cut + 1 :]) + cut + 1
    below = windows[:, : cut + 1].sum(axis=1, dtype=np.float64)[:, None]
    table = np.hstack((below, windows[:, used].astype(np.float64)))
    return table, np.concatenate((tops[[cut]], tops[used])).astype(np.int64)


def _student(degrees: float) -> float:
    """The 97.5 % point of Student's t (Cornish and Fisher's expansion)."""
    z = _Z
    return (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    )


# -- drift -----------------------------------------------------------------------------------


class Drift(msgspec.Struct, frozen=True):
    """How the percentile moved over the run: by ``change_pct`` from its beginning to its end (the median
    slope between parts of it, Theil and Sen). ``p_value``: the chance of so steady a trend without any
    (Mann and Kendall). ``direction``: rises, falls, none; "" where ``why`` says that it cannot be told."""

    direction: str
    change_pct: float | None
    p_value: float | None
    parts: int
    why: str = ""


_CHANCE = 0.01  # a drift is told where chance alone would make one as steady less often than this
_PARTS = (8, 24)  # of which a trend is judged
_PART_SAMPLES = 1000  # of each at least, for a P99 of ten samples above it


def drift(windows: Counts, tops: Counts, q: float) -> Drift:
    """Parts are as long as the memory of the windows, or longer, so that they are about independent."""
    total = int(windows.sum(dtype=np.int64))
    memory = _memory(_level(exceedances(windows, q))) if len(windows) >= LEAST_WINDOWS else 1
    parts = min(_PARTS[1], len(windows) // memory, total // _PART_SAMPLES)
    if parts < _PARTS[0]:
        return Drift("", None, None, max(parts, 0), "the run is too short to tell a drift")
    pieces = np.array_split(np.arange(len(windows)), parts)
    found = [quantile(windows[piece].sum(axis=0, dtype=np.int64), tops, q) for piece in pieces]
    levels = np.log([value for value in found if value])
    if len(levels) < _PARTS[0]:
        return Drift("", None, None, len(levels), "too many parts of the run have no ticks")
    slope, p_value = _trend(levels)
    change = 100 * math.expm1(slope * (len(levels) - 1))
    sure = p_value < _CHANCE and slope != 0
    direction = ("rises" if slope > 0 else "falls") if sure else "none"
    return Drift(direction, change, p_value, len(levels))


def _level(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Without its linear trend, which would be taken for memory."""
    place = np.arange(len(series)) - (len(series) - 1) / 2
    rest: NDArray[np.float64] = series - place * (place @ series) / (place @ place)
    return rest


def _trend(levels: NDArray[np.float64]) -> tuple[float, float]:
    """(Theil-Sen slope a part, two-sided p of Mann and Kendall's test, ties allowed for)."""
    count = len(levels)
    first, second = np.triu_indices(count, 1)
    steps = levels[second] - levels[first]
    slope = float(np.median(steps / (second - first)))
    score = float(np.sign(steps).sum())
    _, ties = np.unique(levels, return_counts=True)
    variance = count * (count - 1) * (2 * count + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())
    if variance <= 0 or score == 0:
        return slope, 1.0
    z = (abs(score) - 1) / math.sqrt(variance / 18)
    return slope, math.erfc(z / math.sqrt(2))
