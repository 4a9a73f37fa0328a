"""Everything of HWTUNE_REALDATA that can be opened is diagnosed, and told in both forms."""

from __future__ import annotations

import json
import os
import time
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from hwtune.diagnosis.engine import judge, probe
from hwtune.diagnosis.table import table
from hwtune.errors import UsageError
from hwtune.host.snapshot import open_snapshot
from hwtune.profile import builtin, load
from hwtune.report.published import encode, publish
from hwtune.report.schema import schema
from hwtune.report.terminal import Style
from hwtune.report.text import render
from tests.snapshots.machines import folders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jsonschema import Draft202012Validator

    from hwtune.host.captured import SnapshotHost

# Seconds of CPU time: of one machine, and of all together.
ONE_S, ALL_S = 5.0, 150.0
# Reports that are held against the schema, of each folder.
SAMPLE = 2

_spent: list[float] = []
_opened: list[str] = []


def _sources() -> list[str]:
    return sorted(path.name for root in folders() for path in root.iterdir() if path.is_dir())


def _machines(folder: Path) -> Iterator[tuple[str, SnapshotHost]]:
    """Each file and each folder that opens, with its name."""
    for place, _, names in os.walk(folder):
        for path in (place, *(f"{place}/{name}" for name in sorted(names))):
            try:
                host = open_snapshot(path)
            except UsageError as error:
                assert str(error).endswith(".") and str(error).isprintable()
                continue
            yield path, host


@cache
def _validator() -> Draft202012Validator:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema())


@pytest.mark.timeout(150)
@pytest.mark.parametrize("source", _sources() or ["(none)"])
def test_everything_that_opens(realdata: Path, source: str) -> None:
    held = 0
    for path, host in _machines(realdata / source):
        began = time.process_time()
        machine, defects = probe(host)
        rows = [row for row in table() if not row.active]
        for name in builtin():
            profile = load(name)
            diagnosis = judge(machine, rows, profile, defects)
            assert diagnosis.defects == [], path
            for verbose in (False, True):
                _check_text(render(diagnosis, host, profile, Style(80, False), verbose), path)
            report = json.loads(encode(publish(diagnosis, host, profile)))
            _check_report(report, path)
            if held < SAMPLE:
                _validator().validate(report)
        held += 1
        _opened.append(path)
        _spent.append(time.process_time() - began)
        assert _spent[-1] < ONE_S or held <= SAMPLE, path
    assert held, "nothing that opens"


def _check_text(text: str, path: str) -> None:
    """No character that a terminal would obey, and lines that fit, but for words that are longer."""
    assert all(line.isprintable() for line in text.split("\n")), path
    for line in text.split("\n"):
        assert len(line) <= 80 or len(line.split()) <= 2, (path, line)


def _check_report(report: dict[str, Any], path: str) -> None:
    counts = {
        outcome: report["summary"][outcome] for outcome in ("ok", "finding", "not-applicable", "unknown")
    }
    assert sum(counts.values()) == len(report["rows"]), path
    for row in report["rows"]:
        assert bool(row["findings"]) == (row["outcome"] == "finding"), (path, row["id"])
        # what is unknown, or beside the point, says why
        assert row["reason"] or row["outcome"] in ("ok", "finding"), (path, row["id"])
        for finding in row["findings"]:
            assert finding["evidence"] or finding["advice"], (path, row["id"])


def test_the_sweep_is_whole_and_quick(realdata: Path) -> None:
    """Comes last: what the tests above have opened, and what that took."""
    if len(_spent) < 100:
        pytest.skip("the sweep above was not run")
    assert len(_opened) > 500
    assert sum(_spent) < ALL_S
