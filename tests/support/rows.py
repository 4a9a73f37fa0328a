"""Put rows of the real table to a host, through the real probes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.diagnosis.engine import RowResult, judge, probe
from hwtune.diagnosis.table import choose, table
from hwtune.profile import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.host.base import Host


def diagnose(
    host: Host, *patterns: str, profile: str = "low-latency", settings: Sequence[str] = ()
) -> dict[str, RowResult]:
    """Results of the rows that match (all, without a pattern), by id. A defect fails the test."""
    machine, defects = probe(host)
    rows = [r for r in choose(table(), patterns, ()) if not r.active]
    diagnosis = judge(machine, rows, load(profile, settings), defects)
    assert not diagnosis.defects, diagnosis.defects
    return {result.id: result for result in diagnosis.results}


def findings(
    host: Host, *patterns: str, profile: str = "low-latency", settings: Sequence[str] = ()
) -> list[tuple[str, str, str]]:
    """(row, severity, subject) of every finding, in the table's order."""
    return [
        (result.id, finding.severity, finding.subject)
        for result in diagnose(host, *patterns, profile=profile, settings=settings).values()
        for finding in result.findings
    ]
