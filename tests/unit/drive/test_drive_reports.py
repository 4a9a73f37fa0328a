"""The reports on a drive: text in 80 columns, JSON by its schema, a page that loads nothing."""

from __future__ import annotations

import json
import re

import jsonschema
import numpy as np
import pytest

from hwtune.drive.device import Device
from hwtune.report import drive as text
from hwtune.report import drive_html
from hwtune.report.drive_plots import over_time, percentiles, strip
from hwtune.report.drive_published import NvmeLatencyReport, publish
from hwtune.report.published import encode
from hwtune.report.schema import schema
from hwtune.report.terminal import Style
from tests.support.drives import at_random, measured, phase, report, resting, train
from tests.support.page import Page

MINUTE = 60.0
NARROW = Style(80, False)


def published(kind: str) -> NvmeLatencyReport:
    stalls = {
        "regular": train(2.3, MINUTE, 1),
        "random": at_random(40, MINUTE, 8),
        "clean": np.empty(0),
    }[kind]
    rests = resting({150.0: 5e-3, 400.0: 5e-3, 1000.0: 5e-3, 2300.0: 5e-3} if kind == "regular" else {})
    found = report(measured(phase("quiet", stalls, 0.8e-3, MINUTE, 1), rests=rests), Device(pollers=[]))
    return publish(found, "box7", "6.1.0", 1_700_000_000.0)


KINDS = ("regular", "random", "clean")


@pytest.mark.parametrize("kind", KINDS)
def test_json_fits_its_schema(kind: str) -> None:
    rules = schema("nvme-latency")
    jsonschema.Draft202012Validator.check_schema(rules)
    told = json.loads(encode(published(kind)))
    jsonschema.validate(told, rules)
    assert told["schema_version"] == "1"
    assert told["captured_at"] == "2023-11-14T22:13:20+00:00"
    assert (told["drive"]["periodic"] is not None) == (kind == "regular")


@pytest.mark.parametrize("kind", KINDS)
def test_text_keeps_to_its_width(kind: str) -> None:
    told = text.render(published(kind), NARROW)
    assert told.endswith("\n")
    assert max(map(len, told.splitlines())) <= 80
    assert "box7" in told.splitlines()[0]


def test_the_text_says_what_was_found_and_why() -> None:
    told = " ".join(text.render(published("regular"), NARROW).split())
    assert "2 warnings" in told
    assert re.search(r"The drive stands still in a rhythm: stalls of about [78]\d\d us every 2.3 s\.", told)
    assert "- 26 of 26 periods had a stall, and 100% of all stalls kept time" in told
    assert "The drive sleeps: the first read after a rest of 150 ms takes 5 ms more." in told
    assert "150 ms 6 5.0" in told
    assert "garbage collection); --writes does." in told


def test_a_clean_drive_is_told_in_few_lines() -> None:
    told = text.render(published("clean"), NARROW)
    assert "nothing found" in told.splitlines()[0]
    assert "Stalls over time" not in told
    assert len(told.splitlines()) < 30


def test_the_picture_shows_when_stalls_came() -> None:
    """A stall at 15 of 60 s, ten times as long as one at 45 s: in 69 columns, columns 17 and 51."""
    found = report(measured(phase("quiet", np.array([15.0, 45.0]), np.array([10e-3, 1e-3]), MINUTE, 1)))
    lines = strip(found, 80)
    top, bottom, axis = lines[0][11:], lines[-3][11:], lines[-2][11:]
    assert top.rstrip() == " " * 17 + "#"
    assert bottom == " " * 17 + "#" + " " * 33 + "#"
    assert set(axis) == {"-"}
    assert lines[-1].endswith("60 s")


def test_the_period_is_drawn_under_the_picture() -> None:
    """2.3 s over 60 s: 26 marks, in 69 columns of 0.87 s each a column of its own."""
    found = published("regular").drive
    assert strip(found, 80)[-2].count("^") == 26


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_whole_and_loads_nothing(kind: str) -> None:
    content = drive_html.render(published(kind)).decode()
    page = Page(content)
    assert "://" not in content
    assert not any(e.tag in ("script", "img", "link", "iframe") for e in page.elements)
    dashed = [e for e in page.elements if e.attributes.get("class") == "period"]
    assert len(dashed) == (26 if kind == "regular" else 0)
    assert [e for e in page.elements if e.tag == "polyline"]


def test_a_name_in_the_page_is_escaped() -> None:
    found = publish(published("clean").drive, "<script>x</script>", "6.1\x1b[31m", 0.0)
    content = drive_html.render(found).decode()
    assert "<script>" not in content
    assert "\x1b" not in content
    assert "\x1b" not in text.render(found, NARROW)


def test_the_plots_places() -> None:
    """A stall in the middle of the time is in the middle of the plot; the curve climbs."""
    found = report(measured(phase("quiet", np.array([30.0]), 2e-3, MINUTE, 1)))
    plot = over_time(found)
    assert plot is not None
    assert plot.points[0][0] == pytest.approx(380, abs=1)
    curve = percentiles(found)
    assert curve is not None
    places = [x for x, _ in curve.points]
    heights = [y for _, y in curve.points]
    assert places == sorted(places)
    assert heights == sorted(heights, reverse=True)
    assert all(0 <= y <= 220 for y in heights)
