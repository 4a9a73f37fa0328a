"""Reports for programs and browsers, of machines that others captured: they parse, and count alike."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hwtune.diagnosis.engine import judge, probe
from hwtune.diagnosis.table import table
from hwtune.host.snapshot import open_snapshot
from hwtune.profile import load
from hwtune.report import html, junit, prometheus
from tests.snapshots.machines import folders
from tests.support.page import Page

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [row for row in table() if not row.active]


def _machines() -> list[str]:
    found = [
        str(path.relative_to(root))
        for root in folders()
        for pattern in ("node-tuning-operator/*", "derived/*.gz", "reports/*/")
        for path in root.glob(pattern)
    ]
    return sorted(found) or ["(none)"]


@pytest.mark.parametrize("name", _machines())
def test_every_format_parses_and_counts_alike(realdata: Path, name: str) -> None:
    host, profile = open_snapshot(str(realdata / name)), load()
    machine, defects = probe(host)
    diagnosis = judge(machine, ROWS, profile, defects)
    counts = diagnosis.summary()
    failing = sum(1 for r in diagnosis.results if r.severity in ("warning", "error"))

    suites = ElementTree.fromstring(junit.render(diagnosis, host, profile, "warning"))
    assert len(list(suites.iter("testcase"))) == len(ROWS)
    assert len(list(suites.iter("failure"))) == failing
    assert len(list(suites.iter("skipped"))) == counts["unknown"] + counts["not-applicable"]

    series: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(prometheus.render(diagnosis, host, profile).decode()):
        for sample in family.samples:
            key = str(sorted(sample.labels.items()))
            assert key not in series.setdefault(sample.name, {})
            series[sample.name][key] = sample.value
    assert sum(series["hwtune_row_outcome"].values()) == len(ROWS)
    found = sum(counts["by_severity"].values())
    assert sum(series.get("hwtune_findings", {}).values()) == found

    page = Page(html.render(diagnosis, host, profile, ROWS).decode())
    assert len(page.all("div", "finding")) == found
    listed = {e.text for e in page.all("th") if e.attributes["scope"] == "row" and "main" in e.path}
    assert listed == {r.id for r in diagnosis.results if r.outcome != "finding" or r.unknowns}
