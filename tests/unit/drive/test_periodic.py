"""Is it regular: stalls of known drives, and none where there is nothing to find."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwtune.drive.periodic import LEAST_CYCLES, schedule_of, stalls
from tests.support.drives import USUAL_S, at_random, bursts, due, latencies, searched, train

MINUTE = 60.0


@pytest.mark.parametrize("others", [0, 13], ids=["alone", "among others"])
@pytest.mark.parametrize("seed", range(30))
def test_the_stall_of_the_mission_is_found(seed: int, others: int) -> None:
    """0.8 ms every 2.3 s: 26 stalls a minute; half as many more at random times do not hide them."""
    stray = at_random(others, MINUTE, 1000 + seed)
    every = np.concatenate((train(2.3, MINUTE, seed), stray))
    found = searched(every, 0.8e-3, MINUTE, seed)
    assert found is not None
    assert found.period_s == pytest.approx(2.3, rel=0.02)
    assert found.amplitude_s == pytest.approx(0.8e-3, rel=0.2)
    assert found.chance <= 0.001
    assert found.cycles == 26


@pytest.mark.parametrize(
    ("period_s", "stall_s", "duration_s"),
    [(0.05, 0.8e-3, 30.0), (0.5, 3e-3, 30.0), (2.3, 0.8e-3, 20.0), (6.0, 20e-3, 60.0), (1.1, 0.3e-3, 30.0)],
)
def test_other_periods_and_lengths(period_s: float, stall_s: float, duration_s: float) -> None:
    for seed in range(4):
        found = searched(train(period_s, duration_s, seed), stall_s, duration_s, seed)
        assert found is not None
        assert found.period_s == pytest.approx(period_s, rel=0.02)
        assert found.amplitude_s == pytest.approx(stall_s, rel=0.25)


@settings(max_examples=15, deadline=None)
@given(st.floats(0.1, 2.5), st.floats(0.8e-3, 5e-3), st.integers(0, 2**32))
def test_any_rhythm_is_found(period_s: float, stall_s: float, seed: int) -> None:
    """Of at least twelve periods, with stalls that some read of 2,000 a second meets every time."""
    found = searched(train(period_s, 30.0, seed), stall_s, 30.0, seed)
    assert found is not None
    assert found.period_s == pytest.approx(period_s, rel=0.02)
    assert found.amplitude_s == pytest.approx(stall_s, rel=0.25)


def test_the_phase_says_when_the_stalls_come() -> None:
    starts = 1.7 + 2.3 * np.arange(25)
    found = searched(starts, 0.8e-3, MINUTE, 3)
    assert found is not None
    assert found.phase_s == pytest.approx(1.7, abs=0.02)


def test_seven_periods_are_too_few() -> None:
    """Eight are needed: a minute holds no eight periods of 8 s."""
    assert LEAST_CYCLES == 8
    for seed in range(5):
        assert searched(train(8.0, MINUTE, seed), 0.8e-3, MINUTE, seed) is None


def test_a_train_that_stops_halfway_is_none() -> None:
    """Regular for 24 s of 60: most periods saw no stall."""
    assert searched(0.3 + 1.0 * np.arange(24), 0.8e-3, MINUTE, 1) is None


def _false_alarms(kind: str) -> int:
    count = 0
    for seed in range(50):
        random = np.random.default_rng(seed)
        if kind == "clean":
            starts = np.empty(0)
        elif kind == "random":
            starts = at_random(float(random.choice([8, 26, 26, 80, 300])), MINUTE, seed)
        elif kind == "bursts":
            starts = bursts(int(random.integers(5, 30)), 12, MINUTE, 0.02, seed)
        else:  # comes and goes with the load
            starts = np.concatenate(
                (at_random(40, MINUTE / 3, seed), MINUTE / 2 + at_random(60, MINUTE / 2, seed + 999))
            )
        lengths = random.exponential(1e-3, len(starts)) + 0.2e-3
        count += searched(starts, lengths, MINUTE, seed) is not None
    return count


def test_no_period_where_there_is_none() -> None:
    """Under 1 % of 200 sets: one alarm at most."""
    assert sum(_false_alarms(kind) for kind in ("clean", "random", "bursts", "changing")) <= 1


def test_stalls_are_put_together_and_measured() -> None:
    """Reads at 0, 1, 2 ... ms of 80 us; from 10 ms on nothing is answered for 3.5 ms: those due at 10, 11, 12
    and 13 ms are late, and the stall is one, 3.5 ms long."""
    times = np.arange(40) * 1e-3
    taken = latencies(times, np.array([0.01]), 3.5e-3, 1)
    plan = schedule_of(times)
    found = stalls(times, taken, plan)
    assert found.starts == pytest.approx([0.01])
    assert found.lengths == pytest.approx([3.5e-3], abs=20e-6)
    assert found.usual_s == pytest.approx(USUAL_S, rel=0.05)


def test_two_stalls_stay_two() -> None:
    times = due(1.0, 2000, 1)
    found = stalls(times, latencies(times, np.array([0.2, 0.21]), 2e-3, 1), schedule_of(times))
    assert found.starts == pytest.approx([0.2, 0.21], abs=1e-3)


def test_a_steady_drive_has_no_stalls_however_coarse_the_clock() -> None:
    times = due(5.0, 2000, 1)
    taken = np.round(latencies(times, np.empty(0), 0.0, 1), 5)  # in steps of 10 us
    assert len(stalls(times, taken, schedule_of(times)).starts) == 0
