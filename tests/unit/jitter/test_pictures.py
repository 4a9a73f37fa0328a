"""jitter's pictures: time stolen over time, percentile curves, the page and the strip in the terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from hwtune.jitter.analysis import SLICES, curve, over_time
from hwtune.report.jitter import _shade
from hwtune.report.jitter_html import heat

CPU = max(os.sched_getaffinity(0))


def numbers(*values):
    return np.array(values, np.int64)


def test_a_gap_counts_in_each_slice_for_its_part():
    """120 slices of 100 ns: 30 ns at 10; 250 ns from 350, which ends with its third slice."""
    found = over_time(numbers(10, 350), numbers(30, 250), 12_000)
    assert len(found) == SLICES == 120
    assert found[:7] == [30, 0, 0, 50, 100, 100, 0]
    assert sum(found) == 280
    assert over_time(numbers(), numbers(), 12_000) == [0] * 120


def test_a_curve_has_the_percentiles_that_there_are_gaps_for():
    told = curve(numbers(*range(1, 101)))
    assert told == [
        (0.0, 1),
        (0.25, 25),
        (0.5, 50),
        (0.75, 75),
        (0.9, 90),
        (0.95, 95),
        (0.99, 99),
        (1.0, 100),
    ]
    assert curve(numbers()) == []
    assert curve(numbers(7)) == [(0.0, 7), (0.25, 7), (1.0, 7)]


@pytest.mark.parametrize(
    ("stolen", "level"), [(0, 0.0), (1, 0.0), (1000, 0.5), (1_000_000, 1.0), (2_000_000, 1.0)]
)
def test_heat_goes_by_decades(stolen, level):
    assert heat(stolen, 1_000_000) == level


@pytest.mark.parametrize(
    ("share", "mark"), [(0, " "), (1e-5, "."), (0.0002, ":"), (0.001, "-"), (0.05, "="), (0.3, "#"), (1, "#")]
)
def test_marks_go_by_decades(share, mark):
    assert _shade(share) == mark


def run(*more):
    argv = [sys.executable, "-m", "hwtune", "jitter", "--cpus", str(CPU), "--duration", "0.3", *more]
    return subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False)


def test_the_page_stands_alone():
    page = run("--format", "html", "--wakeup").stdout
    assert page.count("<html") == 1 and page.rstrip().endswith("</html>")
    assert not re.search(r"<script|<link|src=|url\(|https?://", page)
    assert f"CPU {CPU}" in page
    assert "<rect" in page and "<polyline" in page
    assert "Wake-ups by timer" in page


def test_the_strip_in_the_terminal():
    lines = run().stdout.splitlines()
    strips = [line for line in lines if re.fullmatch(rf" *{CPU}   \|[ .:=#-]{{60}}\|", line)]
    assert len(strips) == 1
    assert all(len(line) <= 80 for line in lines)


def test_the_slices_are_in_the_json():
    (cpu,) = json.loads(run("--format", "json").stdout)["cpus"]
    assert len(cpu["over_time_ns"]) == 120
    if not cpu["gaps_not_kept"]:
        assert abs(sum(cpu["over_time_ns"]) - cpu["stolen_ns"]) <= cpu["gaps"] + 120
