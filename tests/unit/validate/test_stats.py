"""Percentiles, their intervals and drift, against what is worked out by hand and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.validate import buckets, stats
from tests.support.windows import TOPS, windows

TEN = np.array([10, 20, 30, 40, 50, 60, 70, 80, 90, 100])


def one_each():
    return np.ones(10, dtype=np.int64)


# -- buckets -----------------------------------------------------------------------------------


def test_buckets_are_hdrhistograms():
    tops = buckets.tops()
    assert len(tops) == buckets.COUNT == 28 * 1024
    assert tops[:3].tolist() == [0, 1, 2]
    assert tops[2047] == 2047  # the last of width 1
    assert tops[2048] == 2049  # 2048 and 2049
    assert tops[3071] == 4095
    assert tops[3072] == 4099  # width 4
    assert tops[-1] == 2**37 - 1
    assert (np.diff(tops) > 0).all()


@given(st.integers(0, 2**37 - 1))
def test_a_value_lies_in_its_bucket(value):
    index = int(buckets.index_of(np.array([value]))[0])
    assert value <= buckets.tops()[index]
    assert index == 0 or value > buckets.tops()[index - 1]
    assert buckets.tops()[index] - value <= value / 1000


def test_what_is_longer_goes_to_the_last_bucket():
    assert buckets.index_of(np.array([2**40]))[0] == buckets.COUNT - 1


def test_coarse_buckets_are_a_64th_wide():
    low, high = buckets.coarse()
    assert len(low) == len(high) == buckets.COARSE == 2048
    # one wide up to 127, two up to 255, ... and the last power of two ends at 2^37 - 1
    assert (low[127], high[127], low[128], high[128]) == (127, 127, 128, 129)
    assert (low[192], high[192], low[2047], high[2047]) == (256, 259, 127 << 30, (1 << 37) - 1)
    assert (low[1:] == high[:-1] + 1).all()
    assert list(buckets.coarse_index_of(np.array([0, 129, 130, 2**40]))) == [0, 128, 129, 2047]


# -- percentiles -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("q", "value"), [(0.5, 50), (0.51, 60), (0.9, 90), (0.99, 100), (0.07, 10), (0.1, 10), (1.0, 100)]
)
def test_quantile_is_the_value_at_the_rank(q, value):
    assert stats.quantile(one_each(), TEN, q) == value


def test_quantile_counts_missing_ticks_above_all_others():
    assert stats.quantile(one_each(), TEN, 0.5, missing=2) == 60  # the 6th of 12
    assert stats.quantile(one_each(), TEN, 0.9, missing=1) == 100  # the 10th of 11
    assert stats.quantile(one_each(), TEN, 0.9, missing=2) is None  # the 11th of 12 never came


def test_quantile_of_nothing():
    assert stats.quantile(np.zeros(10, dtype=np.int64), TEN, 0.5) is None


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=400),
    st.sampled_from([0.5, 0.9, 0.99, 0.999]),
)
def test_quantile_is_that_of_the_sorted_samples(samples, q):
    counts = np.bincount(samples, minlength=10)
    ordered = sorted(samples)
    # exact arithmetic: q is a number of thousandths
    rank = -(-round(q * 1000) * len(ordered) // 1000)
    assert stats.quantile(counts, TEN, q) == TEN[ordered[rank - 1]]


def test_least_samples():
    # ln 0.05 / ln q, worked out: 298.07, 2994.2, 29955.8
    assert [stats.least_samples(q) for q in (0.5, 0.9, 0.99, 0.999, 0.9999)] == [5, 29, 299, 2995, 29956]


# -- order statistics --------------------------------------------------------------------------


def test_order_interval_of_a_median():
    # n = 10: P(2 <= B(10, 1/2) <= 8) = 1002/1024 = 0.9785, the narrowest of 95 % that is symmetrical
    assert stats.order_interval(one_each(), TEN, 0.5) == (20, 90)


def test_order_interval_needs_samples_on_both_sides():
    spread = np.zeros(1000, dtype=np.int64)
    spread[:367] = 1
    assert stats.order_interval(spread, np.arange(1000), 0.99) is None
    spread[367] = 1  # 0.99^368 = 0.0248, the first below 2.5 %
    found = stats.order_interval(spread, np.arange(1000), 0.99)
    assert found is not None and found.high == 367


def test_order_interval_of_many_samples_is_the_normal_one():
    # n = 100,000: the ranks are 99,000 -+ 1.96 * sqrt(990) = 61.7
    found = stats.order_interval(np.ones(100_000, dtype=np.int64), np.arange(1, 100_001), 0.99)
    assert found == (98_938, 99_063)


def test_order_intervals_of_few_and_of_many_samples_agree():
    for q in (0.5, 0.9, 0.99):
        low, high = stats._ranks(20_000, q)
        spread = 1.96 * math.sqrt(20_000 * q * (1 - q))
        assert abs(low - (20_000 * q - spread)) < 2.5
        assert abs(high - (20_000 * q + spread)) < 2.5


def test_order_interval_covers():
    random = np.random.default_rng(7)
    tops = np.arange(1, 1001)
    truth = 990
    hits = 0
    for _ in range(400):
        counts = np.bincount(random.integers(0, 1000, 3000), minlength=1000)
        low, high = stats.order_interval(counts, tops, 0.99)
        hits += low <= truth <= high
    assert 370 <= hits <= 400  # 380 expected, four standard deviations are 17


# -- intervals by windows ----------------------------------------------------------------------


def coverage(runs, **shape):
    together = sum(windows(10_000 + i, count=400, **shape).sum(axis=0, dtype=np.int64) for i in range(4))
    truth = stats.quantile(together, TOPS, 0.99)
    found = [stats.interval(windows(seed, **shape), TOPS, 0.99) for seed in range(runs)]
    return sum(told.low <= truth <= told.high for told in found) / runs


@pytest.mark.parametrize(("memory", "least"), [(0.0, 0.9), (0.6, 0.9), (0.9, 0.75)])
def test_intervals_cover_also_where_windows_remember(memory, least):
    assert coverage(80, memory=memory) >= least


def test_order_statistics_alone_would_not():
    """What the windows are for: a level that wanders makes independent intervals far too narrow."""
    shape = {"memory": 0.9, "spread": 0.3, "samples": 4000}
    together = sum(windows(10_000 + i, count=400, **shape).sum(axis=0, dtype=np.int64) for i in range(4))
    truth = stats.quantile(together, TOPS, 0.99)
    alone = blocks = 0
    for seed in range(40):
        run = windows(seed, **shape)
        low, high = stats.order_interval(run.sum(axis=0, dtype=np.int64), TOPS, 0.99)
        alone += low <= truth <= high
        told = stats.interval(run, TOPS, 0.99)
        blocks += told.low <= truth <= told.high
    assert alone < 20 < 28 < blocks


def test_intervals_are_no_narrower_than_order_statistics():
    run = windows(3)
    low, high = stats.order_interval(run.sum(axis=0, dtype=np.int64), TOPS, 0.99)
    told = stats.interval(run, TOPS, 0.99)
    assert told.low <= low and told.high >= high
    assert told.low <= stats.quantile(run.sum(axis=0, dtype=np.int64), TOPS, 0.99) <= told.high


def test_intervals_are_the_same_at_each_run():
    assert stats.interval(windows(3), TOPS, 0.99) == stats.interval(windows(3), TOPS, 0.99)


def test_too_few_ticks_or_windows_are_told():
    few = windows(1, count=30, samples=10)
    assert stats.interval(few, TOPS, 0.99).why == "at least 368 ticks are needed, 300 were measured"
    short = windows(1, count=19, samples=1000)
    told = stats.interval(short, TOPS, 0.99, window_s=0.5)
    assert told.why == "at least 20 windows (10 s) are needed, there are 19"
    assert told.low is None and told.high is None
    empty = np.zeros((30, len(TOPS)), dtype=np.uint32)
    assert "368 ticks are needed, 0 were" in stats.interval(empty, TOPS, 0.99).why


def test_a_percentile_among_the_lost_ticks_has_no_interval():
    run = windows(1)
    assert "never came through" in stats.interval(run, TOPS, 0.99, missing=5000).why


def test_lost_ticks_raise_the_interval():
    run = windows(1)
    assert stats.interval(run, TOPS, 0.99, missing=600).low > stats.interval(run, TOPS, 0.99).low


def test_windows_without_ticks_are_borne():
    run = windows(1)
    run[10:20] = 0
    told = stats.interval(run, TOPS, 0.99)
    assert told.low < told.high


def test_block_length_grows_with_memory():
    random = np.random.default_rng(1)
    noise = random.normal(size=2000)
    walk = np.empty(2000)
    walk[0] = noise[0]
    for i in range(1, 2000):
        walk[i] = 0.95 * walk[i - 1] + noise[i]
    assert stats._memory(noise) <= 3
    assert stats._memory(walk) >= 20
    assert stats._memory(np.ones(100)) == 1
    assert stats.block_length(noise[:120]) >= 10, "a twelfth of the run at least"


@pytest.mark.parametrize(("degrees", "value"), [(3, 3.182), (5, 2.571), (11, 2.201), (30, 2.042)])
def test_students_t(degrees, value):
    assert stats._student(degrees) == pytest.approx(value, rel=0.01)


# -- drift -------------------------------------------------------------------------------------


def test_drift_is_seldom_told_of_a_steady_run():
    told = [stats.drift(windows(seed, memory=0.6), TOPS, 0.99).direction for seed in range(100)]
    assert told.count("none") >= 94  # 99 expected


def test_drift_is_told_with_its_size():
    found = [stats.drift(windows(seed, 300, 2000, trend=0.4), TOPS, 0.99) for seed in range(18)]
    assert sum(d.direction == "rises" for d in found) >= 15
    assert np.median([d.change_pct for d in found]) == pytest.approx(40, abs=10)
    falling = stats.drift(windows(1, 300, 2000, trend=-0.4), TOPS, 0.99)
    assert falling.direction == "falls" and falling.change_pct < -25


def test_drift_of_a_short_run_is_not_told():
    assert stats.drift(windows(1, count=7), TOPS, 0.99).why == "the run is too short to tell a drift"
    few = stats.drift(windows(1, count=100, samples=20), TOPS, 0.99)
    assert few.direction == "" and few.p_value is None


def test_drift_of_what_never_changes_is_none():
    flat = np.zeros((100, len(TOPS)), dtype=np.uint32)
    flat[:, 300] = 1000
    found = stats.drift(flat, TOPS, 0.99)
    assert (found.direction, found.change_pct, found.p_value) == ("none", 0.0, 1.0)
