"""How the samples of native/bench become rows. No clock is in here: the samples are made up."""

from __future__ import annotations

import json

import pytest

from bench.queues import Sample, judge, label, read


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (0, 0, "here"),
        (120, 130, "near"),
        (400, 380, "far"),
        (100, 131, None),  # more than 1.3 times
        (120, 400, None),
        (240, 260, None),  # of two classes, however close
    ],
)
def test_a_sample_has_the_class_of_both_probes_or_none(before, after, expected):
    assert label(before, after) == expected


def row(**over: object) -> str:
    fields = {
        "round": 0,
        "test": "saturated",
        "queue": "hwtune",
        "bytes": 32,
        "capacity": 1024,
        "ns": 4.0,
        "p99_ns": 0.0,
        "probes_ns": [120.0, 121.0],
        "preempted": 0,
        "complete": True,
        "count": 9,
    }
    return json.dumps({**fields, **over})


def test_disturbed_samples_are_dropped_and_counted():
    lines = [
        row(),
        row(preempted=1),
        row(complete=False),
        row(probes_ns=[120.0, 400.0]),
        json.dumps({"fifo": True}),
    ]
    samples, dropped = read(lines)
    assert samples == [Sample(0, "saturated", "hwtune", (32, 1024), "near", 4.0, 0.0)]
    assert dropped == 3


def of(
    test: str, queue: str, values: list[float], where: str = "near", p99: float = 0.0, size=(32, 1024)
) -> list[Sample]:
    return [Sample(i, test, queue, size, where, ns, p99) for i, ns in enumerate(values)]


def test_the_ratio_is_the_median_over_rounds_against_the_best_peer():
    samples = (
        of("saturated", "hwtune", [4, 5, 6])
        + of("saturated", "boost", [9, 8, 60])  # the lowest single value does not make it the best
        + of("saturated", "moodycamel", [10, 10, 10])
    )
    (result,) = judge(samples)
    assert result.other_name == "boost"
    # 4/9, 5/8, 6/60
    assert result.ratio == pytest.approx(4 / 9)
    assert (result.ours, result.other, result.unit) == (5, 9, "ns")
    assert result.target == pytest.approx(0.4)
    assert result.met is False


def test_near_and_far_are_never_mixed_and_have_their_own_targets():
    samples = (
        of("producer-bound", "hwtune", [10, 10, 10])
        + of("producer-bound", "boost", [20, 20, 20])
        + of("producer-bound", "hwtune", [40, 40, 40], "far")
        + of("producer-bound", "boost", [60, 60, 60], "far")
    )
    far, near = judge(samples)
    assert (near.ratio, near.met) == (0.5, True)
    assert (far.ratio, far.met) == (pytest.approx(2 / 3), False)
    assert "far" in far.name


def test_rounds_without_a_partner_do_not_count_and_few_make_no_row():
    alone = of("saturated", "hwtune", [4, 4, 4]) + of("saturated", "boost", [8, 8, 8])[:2]
    assert judge(alone) == []
    shifted = of("saturated", "hwtune", [1, 4, 4, 4]) + of("saturated", "boost", [8, 8, 8, 8])[1:]
    (result,) = judge(shifted)
    assert result.ratio == 0.5


def test_a_round_trip_has_its_median_against_two_and_its_p99():
    samples = of("round-trip", "hwtune", [60] * 3, p99=80)
    samples += of("round-trip", "boost", [100] * 3, p99=100)
    samples += of("round-trip", "moodycamel", [80] * 3, p99=500)
    rows = {(r.name.split(", ")[-1], r.other_name): (r.ratio, r.met) for r in judge(samples)}
    assert rows == {
        ("P50", "boost"): (0.6, True),
        ("P50", "moodycamel"): (0.75, True),
        ("P99", "boost"): (0.8, False),
    }


def test_limits_in_nanoseconds():
    samples = of("pair", "hwtune", [4, 6, 9], "here") + of(
        "record", "histogram", [3] * 3, "here", size=(0, 0)
    )
    pair, record = judge(samples)
    assert (pair.ours, pair.other, pair.ratio, pair.met) == (6, 8.0, 0.75, True)
    assert (record.ratio, record.met) == (1.2, False)


def test_queues_of_others_get_rows_without_a_target_and_are_not_the_best():
    samples = (
        of("saturated", "hwtune", [4] * 3)
        + of("saturated", "boost", [8] * 3)
        + of("saturated", "mine", [2] * 3)
    )
    boost, mine = judge(samples)
    assert (boost.other_name, boost.met) == ("boost", False)
    assert (mine.other_name, mine.ratio, mine.met) == ("mine", 2.0, None)
