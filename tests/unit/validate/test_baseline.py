"""Is it worse? The decision's error rates by simulation, and what it says where it cannot tell."""

from __future__ import annotations

import numpy as np
import pytest

from hwtune.validate.baseline import NOT_WORSE, UNTOLD, WORSE, Sample, decide
from tests.support.windows import TOPS, windows


def verdicts(runs, limit, scale, **shape):
    """Of runs whose true change is ``scale``."""
    found = []
    for seed in range(runs):
        before = Sample(windows(2 * seed, **shape), 0)
        now = Sample(windows(2 * seed + 1, scale=scale, **shape), 0)
        found.append(decide(before, now, TOPS, limit).verdict)
    return found


def test_false_alarms_are_rare_even_where_no_worsening_at_all_is_allowed():
    """A/A: the same machine twice, its noise with memory. 2.5 % are expected; 5 % are promised."""
    found = verdicts(200, 0, 1.0, memory=0.6, count=80, samples=500)
    assert found.count(WORSE) <= 10


def test_false_alarms_are_rarer_still_with_the_usual_limit():
    found = verdicts(60, 10, 1.0, memory=0.9, samples=500)
    assert found.count(WORSE) <= 3


def test_a_regression_of_a_fifth_is_found():
    found = verdicts(20, 5, 1.2, count=240, samples=2000, spread=0.05)
    assert found.count(WORSE) >= 17


def test_a_regression_of_15_percent_is_found_where_none_is_allowed():
    found = verdicts(20, 0, 1.15, count=240, samples=2000, spread=0.05)
    assert found.count(WORSE) >= 17


def test_a_run_that_is_the_same_is_told_to_be_not_worse():
    found = verdicts(20, 10, 1.0, count=240, samples=2000, spread=0.03)
    assert found.count(NOT_WORSE) >= 17
    assert WORSE not in found


def test_a_difference_that_noise_hides_cannot_be_told_and_it_says_how_long_would():
    found = [
        decide(Sample(windows(s, 60, 300), 0), Sample(windows(s + 500, 60, 300, 1.12), 0), TOPS, 5)
        for s in range(10)
    ]
    untold = [d for d in found if d.verdict == UNTOLD]
    assert len(untold) >= 7
    for decision in untold:
        assert "times as long" in decision.why or "near the limit" in decision.why
        assert decision.low_pct < 5 < decision.high_pct


def test_longer_runs_tell_more():
    short, long = (decide(Sample(windows(1, n), 0), Sample(windows(2, n), 0), TOPS, 10) for n in (40, 800))
    assert long.high_pct - long.low_pct < short.high_pct - short.low_pct


def test_the_change_is_within_its_interval():
    found = decide(Sample(windows(1), 0), Sample(windows(2, scale=1.5), 0), TOPS, 10)
    assert found.verdict == WORSE
    assert found.low_pct < found.change_pct < found.high_pct
    assert found.change_pct == pytest.approx(50, abs=20)
    assert found.now / found.before == pytest.approx(1 + found.change_pct / 100)


def test_faster_is_not_worse():
    assert decide(Sample(windows(1), 0), Sample(windows(2, scale=0.5), 0), TOPS, 0).verdict == NOT_WORSE


def test_lost_ticks_count_as_slower_than_any():
    whole, lossy = Sample(windows(1), 0), Sample(windows(2), 5000)
    found = decide(whole, lossy, TOPS, 10)
    assert (found.verdict, found.now, found.change_pct) == (WORSE, None, None)
    assert decide(lossy, whole, TOPS, 10).verdict == NOT_WORSE
    assert decide(lossy, lossy, TOPS, 10).verdict == UNTOLD
    # 0.8 % lost: P99 of all is P99.8 of those that came
    some = decide(whole, Sample(windows(2), 960), TOPS, 10)
    assert some.verdict == WORSE and some.now > found.before


def test_too_little_to_compare():
    whole = Sample(windows(1), 0)
    few = decide(whole, Sample(windows(2, 30, 9), 0), TOPS, 10)
    assert (few.verdict, few.why) == (UNTOLD, "this run has 270 ticks; at least 299 are needed")
    short = decide(Sample(windows(2, 19), 0), whole, TOPS, 10)
    assert short.verdict == UNTOLD
    assert short.why == "the baseline has 19 windows of time; at least 20 are needed"
    assert short.change_pct is not None and short.low_pct is None
    empty = decide(whole, Sample(np.zeros((0, len(TOPS)), dtype=np.uint32), 0), TOPS, 10)
    assert empty.verdict == UNTOLD
