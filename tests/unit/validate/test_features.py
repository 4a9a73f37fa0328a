"""The incremental feature stage against the plain one, to 1e-9 of each value, none too small to count."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwtune import _native as native
from hwtune.validate.reference import Ticks, features

PRICES = st.floats(0.01, 1e6) | st.sampled_from([100.0, 100.01, 99.99, 100.02, 6.8e10, 1e-8, 0.0, -37.63])
ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True)
SIZES = st.integers(0, 1000) | st.sampled_from([0, 1, 2**32 - 1])
PART = 50_000  # ticks whose rows are in memory at once
STEPS_NS = st.integers(0, 10**6) | st.sampled_from([0, 1, 2**14, 2**28, 10**12, 2**62])


@st.composite
def streams(draw, prices=PRICES):
    """A few ticks that come again and again, so that streams are long and examples small."""
    tick = st.tuples(STEPS_NS, prices, prices, prices, SIZES, SIZES, SIZES, st.integers(0, 1))
    few = draw(st.lists(tick, min_size=1, max_size=12))
    order = draw(st.lists(st.integers(0, len(few) - 1), min_size=1, max_size=40))
    picked = [few[which] for which in order * draw(st.integers(1, 60))]
    time_ns, now = [], 0
    for step, *_ in picked:
        now = min(now + step, 2**64 - 1)
        time_ns.append(now)
    return Ticks(
        np.array(time_ns, np.uint64),
        np.array([tick[1:4] for tick in picked], np.float64),
        np.array([tick[4:8] for tick in picked], np.uint32),
    )


def random_walk(count: int, seed: int) -> Ticks:
    random = np.random.default_rng(seed)
    price = np.round(250 + 0.01 * np.cumsum(random.integers(-2, 3, count)), 2)
    bid = price - 0.01 * random.integers(0, 3, count)
    prices = np.stack([bid, bid + 0.01 * random.integers(0, 4, count), price], axis=1)
    sizes = random.integers(0, 5_000, (count, 4), dtype=np.uint32)
    sizes[:, 3] %= 2
    steps = random.exponential(2_000, count) * np.where(random.random(count) < 1e-4, 1e6, 1)
    return Ticks(np.cumsum(steps).astype(np.uint64), prices, sizes)


def assert_equal_at(ticks: Ticks, positions) -> None:
    """On every instruction set of this machine; and all rows are numbers in range."""
    expected = {at: features(ticks, at) for at in positions}
    for isa in native.cpu_isas():
        window = native.FeatureWindow(isa)
        for start in range(0, len(ticks.time_ns), PART):
            values = window.values(*(column[start : start + PART] for column in ticks))
            assert np.isfinite(values).all()
            assert (np.abs(values) <= 1).all()
            assert (values[:, 32:] >= 0).all()
            for at in expected.keys() & range(start, start + PART):
                here = f"{isa}, {at}"
                np.testing.assert_allclose(values[at - start], expected[at], rtol=1e-9, atol=0, err_msg=here)


@settings(deadline=None, max_examples=40)
@given(streams(), st.data())
def test_random_streams_equal_the_reference(ticks, data):
    last = len(ticks.time_ns) - 1
    assert_equal_at(ticks, {last, data.draw(st.integers(0, last))})


@settings(deadline=None, max_examples=40)
@given(streams(prices=ANY_FLOAT))
def test_whatever_comes_in_is_answered_with_numbers_in_range(ticks):
    assert_equal_at(ticks, {len(ticks.time_ns) - 1})


def test_a_stream_of_a_million_ticks_has_not_drifted():
    ticks = random_walk(1_200_000, seed=4)
    assert_equal_at(ticks, [0, 7, 8, 1023, 1024, 5_000, 600_123, 1_048_576, 1_199_998, 1_199_999])


def test_a_million_ticks_at_one_instant_have_not_drifted():
    ticks = random_walk(1_000_000, seed=5)
    ticks.time_ns[:] = 123_456_789
    assert_equal_at(ticks, [999_999])


def test_a_huge_trade_leaves_no_trace_in_what_comes_after():
    ticks = random_walk(3_000, seed=6)
    ticks.prices[100] = (6.8e10, 6.81e10, 6.8e10)
    ticks.sizes[100, :3] = 2**32 - 1
    assert_equal_at(ticks, [99, 100, 101, 107, 108, 1_123, 1_124, 2_999])


def test_equal_prices_are_at_their_vwap_exactly():
    ticks = random_walk(2_000, seed=7)
    ticks.prices[:] = (0.1, 0.3, 0.1)
    values = native.FeatureWindow().values(*ticks)
    assert (values[:, :8] == 0).all()


def test_a_call_goes_on_where_the_last_one_ended():
    ticks = random_walk(3_000, seed=8)
    whole = native.FeatureWindow().rows(*ticks)
    window = native.FeatureWindow()
    parts = [
        window.rows(*(column[cut] for column in ticks))
        for cut in (slice(0, 1), slice(1, 1100), slice(1100, None))
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert whole.dtype == np.float32
    assert whole.shape == (3_000, 64)


def test_no_ticks_make_no_rows():
    assert native.FeatureWindow().rows(*random_walk(0, seed=9)).shape == (0, 64)


def test_shapes_that_do_not_fit_are_refused():
    time_ns, prices, sizes = random_walk(10, seed=10)
    window = native.FeatureWindow()
    for wrong in [
        (time_ns[:9], prices, sizes),
        (time_ns, prices[:, :2].copy(), sizes),
        (time_ns, prices, sizes[:, :3].copy()),
    ]:
        with pytest.raises(ValueError, match="needs n times"):
            window.rows(*wrong)
    with pytest.raises(TypeError):
        window.rows(time_ns, prices.astype(np.float32), sizes)
