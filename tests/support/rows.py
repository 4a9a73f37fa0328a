"""One row's word on a fake machine, through snapshot, probes and engine as doctor goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.diagnosis.engine import judge, probe
from hwtune.diagnosis.table import find, table
from hwtune.profile import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.diagnosis.engine import RowResult
    from hwtune.host.base import Host


def diagnose(
    host: Host, *ids: str, profile: str = "low-latency", settings: Sequence[str] = ()
) -> dict[str, RowResult]:
    """Row id -> what it says. Fails on a defect of any probe or of these rows."""
    machine, defects = probe(host)
    diagnosis = judge(machine, [find(table(), id) for id in ids], load(profile, settings), defects)
    assert not diagnosis.defects, diagnosis.defects
    return {result.id: result for result in diagnosis.results}


def diagnose_one(
    host: Host, id: str, profile: str = "low-latency", settings: Sequence[str] = ()
) -> RowResult:
    return diagnose(host, id, profile=profile, settings=settings)[id]
