"""A row of the diagnosis table, and the decorator that makes one of a check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hwtune.diagnosis.verdict import Verdict
    from hwtune.model import Machine
    from hwtune.profile import Profile

    Check = Callable[[Machine, Profile], Verdict]

# What it takes to mend a finding of the row: a write at run time, a service's configuration, the
# next boot, the firmware setup, or a person's hands in the box.
SCOPES = ("runtime", "service", "boot", "firmware", "hands")

# Rows in the order in which their modules were imported; see hwtune.diagnosis.table.
_ROWS: list[Row] = []


class Row:
    """One question put to a machine. ``sources``: primary sources, one short reference each."""

    __slots__ = (
        "active",
        "cause",
        "check",
        "cost",
        "id",
        "measures",
        "module",
        "risk",
        "scope",
        "severity",
        "sources",
        "symptom",
        "title",
    )

    def __init__(
        self,
        check: Check,
        id: str,
        title: str,
        symptom: str,
        cause: str,
        severity: str,
        scope: str,
        risk: str,
        cost: str,
        sources: Sequence[str],
        active: bool,
        measures: bool = False,
    ) -> None:
        self.check = check
        self.id = id
        self.title = title
        self.symptom = symptom
        self.cause = cause
        self.severity = severity
        self.scope = scope
        self.risk = risk
        self.cost = cost
        self.sources = tuple(sources)
        self.active = active
        self.measures = measures
        self.module = check.__module__

    @property
    def subsystem(self) -> str:
        return self.id.partition(".")[0]

    def facts(self) -> dict[str, Any]:
        """The row without its check, for tables and JSON."""
        return {
            "id": self.id,
            "title": self.title,
            "symptom": self.symptom,
            "cause": self.cause,
            "severity": self.severity,
            "scope": self.scope,
            "risk": self.risk,
            "cost": self.cost,
            "sources": list(self.sources),
            "active": self.active,
        }


def row(
    id: str,
    *,
    title: str,
    symptom: str,
    cause: str,
    severity: str,
    scope: str,
    risk: str,
    cost: str,
    sources: Sequence[str],
    active: bool = False,
    measures: bool = False,
) -> Callable[[Check], Check]:
    """Make a check a row of the table.

    ``title``: what is asked, in a few words. ``symptom``: what the user sees when it is wrong.
    ``cause``: why that hurts. ``severity`` (info, warning, error) of a finding that names none
    itself. ``risk``: what mending can break. ``cost``: what mending costs for good (power,
    security, throughput). ``active``: measures instead of reading, so it runs only when asked;
    ``measures``: it reads, and judges what was measured besides where that was asked for.
    """

    def register(check: Check) -> Check:
        _ROWS.append(
            Row(check, id, title, symptom, cause, severity, scope, risk, cost, sources, active, measures)
        )
        return check

    return register


def registered() -> list[Row]:
    return list(_ROWS)
