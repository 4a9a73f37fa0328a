from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.drive.schedule import RESTS, RESTS_SHORT, around, rests, steady


@given(st.floats(0.05, 5), st.floats(100, 3000), st.integers(0, 2**32))
def test_steady_reads_come_at_the_rate_and_at_uneven_times(duration: float, rate: float, seed: int) -> None:
    due = steady(duration, rate, seed)
    assert due.dtype == np.uint64
    assert due[-1] < duration * 1e9
    gaps = np.diff(due.astype(np.int64)) * rate / 1e9
    assert ((gaps > 0.49) & (gaps < 1.51)).all()
    if duration * rate > 500:
        assert len(due) == pytest.approx(duration * rate, rel=0.1)
        assert gaps.std() == pytest.approx(1 / np.sqrt(12), rel=0.15)  # of a uniform law one wide


def test_each_rest_is_as_long_as_it_says() -> None:
    found = rests([(5, 3), (100, 2)], seed=1)
    gaps_ms = np.diff(found.due_ns.astype(np.int64)) / 1e6
    assert sorted(found.rest_ms) == [5, 5, 5, 100, 100]
    assert gaps_ms[found.first - 1] == pytest.approx(found.rest_ms)
    others = np.delete(gaps_ms, found.first - 1)
    assert others == pytest.approx(np.full(len(others), 1.0))  # these keep the drive awake
    assert found.duration_s == pytest.approx(0.215 + (len(others) + 1) * 0.001)


def test_rests_come_in_an_order_of_chance() -> None:
    assert list(rests(RESTS, 1).rest_ms) != list(rests(RESTS, 2).rest_ms)
    assert list(rests(RESTS, 1).rest_ms) == list(rests(RESTS, 1).rest_ms)


def test_rests_lie_on_both_sides_of_what_the_kernel_lets_drives_sleep_after() -> None:
    for sleep_ms in (100, 2000):
        assert any(rest < sleep_ms for rest, _ in RESTS)
        assert any(rest > sleep_ms for rest, _ in RESTS)
    assert rests(RESTS, 1).duration_s < 20
    assert rests(RESTS_SHORT, 1).duration_s < 4


def test_the_drives_own_times_are_added() -> None:
    """A drive that sleeps after 1,500 ms: rests of 1,050 and 1,950 ms."""
    assert around([(1, 4), (400, 4)], [1500], 2500) == [(1.0, 4), (400.0, 4), (1050.0, 4), (1950.0, 4)]
    assert around([(1, 4)], [60_000], 2500) == [(1.0, 4)]  # nobody waits a minute
