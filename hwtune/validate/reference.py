"""What the native feature stage computes, written down the plain way: each row anew from the ticks before it.

The table of columns and the rules for what is not a price stand in native/include/hwtune/features.hpp.
Slow (milliseconds a row): it is what the tests hold the incremental code against.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

WINDOW_TICKS = (8, 16, 32, 64, 128, 256, 512, 1024)
HALF_LIVES_NS = tuple(float(1 << power) for power in range(14, 30, 2))
WIDTH = 64
PRICE_LIMIT = 2.0**36
PRICE_SMALLEST = 2.0**-28
PRICE_UNITS = 2.0**80  # in which all prices are integers
SKEW_UNIT = 2.0**-42


class Ticks(NamedTuple):
    """n ticks, in the order of their arrival."""

    time_ns: NDArray[np.uint64]  # (n,)
    prices: NDArray[np.float64]  # (n, 3): bid, ask, price of the trade
    sizes: NDArray[np.uint32]  # (n, 4): bid, ask, volume of the trade, aggressor (0: the seller)


def features(ticks: Ticks, at: int) -> NDArray[np.float64]:
    """The row of tick ``at``, shape (64,), from ticks 0 to ``at``."""
    time_ns, prices, sizes = ticks.time_ns[: at + 1], ticks.prices[: at + 1], ticks.sizes[: at + 1]
    price, volume = _trades(prices[:, 2], sizes[:, 2])
    size = sizes.astype(np.float64)
    bought = np.where(sizes[:, 3] != 0, volume, 0.0)
    skew = _skew(prices[:, 0], prices[:, 1], price)
    rounded_skew = np.rint(skew / SKEW_UNIT) * SKEW_UNIT
    quoted = size[:, 0] + size[:, 1]

    row = np.zeros((8, 8))
    for lane, ticks_in_window in enumerate(WINDOW_TICKS):
        last = slice(max(0, at + 1 - ticks_in_window), at + 1)
        row[0, lane] = _vwap_distance(price[last], volume[last]) / np.sqrt(ticks_in_window)
        row[1, lane] = _ratio((size[last, 0] - size[last, 1]).sum(), quoted[last].sum())
        row[2, lane] = rounded_skew[last].mean()
        row[3, lane] = _ratio((2 * bought - volume)[last].sum(), volume[last].sum())
    row[0] = np.clip(row[0], -1.0, 1.0)

    now = np.maximum.accumulate(time_ns)
    age_ns = (now[-1] - now).astype(np.float64)
    for lane, half_life_ns in enumerate(HALF_LIVES_NS):
        weight = np.exp2(-age_ns / half_life_ns)
        row[4, lane] = 1.0 / weight.sum()
        row[5, lane] = (0.5 + (weight * bought).sum()) / (1.0 + (weight * volume).sum())
        row[6, lane] = (0.5 + (weight * size[:, 0]).sum()) / (1.0 + (weight * quoted).sum())
        row[7, lane] = (0.5 + (weight * (0.5 + 0.5 * skew)).sum()) / (1.0 + weight.sum())
    return row.reshape(WIDTH)


def _trades(
    prices: NDArray[np.float64], volumes: NDArray[np.uint32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Prices and volumes, where a trade without a price has the last one and no volume."""
    good = np.abs(prices) < PRICE_LIMIT
    last_good = np.maximum.accumulate(np.where(good, np.arange(len(prices)), -1))
    price = np.where(last_good >= 0, prices[last_good], 0.0)
    price = np.where(np.abs(price) < PRICE_SMALLEST, 0.0, price)
    return price, np.where(good, volumes, 0).astype(np.float64)


def _skew(
    bid: NDArray[np.float64], ask: NDArray[np.float64], price: NDArray[np.float64]
) -> NDArray[np.float64]:
    quoted = (np.abs(bid) < PRICE_LIMIT) & (np.abs(ask) < PRICE_LIMIT) & (bid < ask)
    bid, ask = np.where(quoted, bid, -1.0), np.where(quoted, ask, 1.0)
    inside = np.clip(price, bid, ask)
    return np.where(quoted, ((inside - bid) - (ask - inside)) / (ask - bid), 0.0)


def _vwap_distance(price: NDArray[np.float64], volume: NDArray[np.float64]) -> float:
    """Of the last price from the VWAP, in basis points of that price; exact until the last step."""
    units = [int(value) for value in price * PRICE_UNITS]
    lots = [int(value) for value in volume]
    if units[-1] == 0 or sum(lots) == 0:
        return 0.0
    vwap = Fraction(sum(p * v for p, v in zip(units, lots, strict=True)), sum(lots))
    return float((units[-1] - vwap) / abs(units[-1]) * 10_000)


def _ratio(above: float, below: float) -> float:
    return above / below if below else 0.0
