"""What a row says of a machine.

A row may judge many things (each drive, each CPU). It notes each one in a ``Verdict``; the
outcome follows from the notes: any finding makes the row a finding; else anything unknown makes
it unknown; else anything that was found good makes it ok; else it does not apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hwtune.fact import Fact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.changes import Change

OK = "ok"
FINDING = "finding"
NOT_APPLICABLE = "not-applicable"
UNKNOWN = "unknown"
OUTCOMES = (OK, FINDING, NOT_APPLICABLE, UNKNOWN)

INFO = "info"
WARNING = "warning"
ERROR = "error"
SEVERITIES = (INFO, WARNING, ERROR)


class Evidence(msgspec.Struct, frozen=True):
    """Where it stands, what it is, and what it should be ("" where there is no target)."""

    source: str
    value: str
    expected: str = ""


class Finding(msgspec.Struct):
    """One thing that is wrong, with its evidence and what mends it."""

    subject: str
    message: str
    evidence: list[Evidence]
    changes: list[Any] = []  # of hwtune.changes.Change
    advice: str = ""
    severity: str = WARNING


class Unknown(msgspec.Struct):
    """Something that could not be judged: why, and what would make it known."""

    subject: str
    reason: str
    remedy: str = ""


def evidence(source: str, value: object, expected: object = "") -> Evidence:
    return Evidence(source, _show(value), _show(expected))


def fact_evidence(fact: Fact[Any], expected: object = "") -> Evidence:
    """The evidence of a known fact, or of its absence, with its own source."""
    return Evidence(fact.source, "absent" if fact.absent else _show(fact.value), _show(expected))


class Verdict:
    """Collects what a row finds. Methods return the verdict, so that a row can end with one."""

    __slots__ = ("evidence", "findings", "good", "inapplicable", "reasons", "unknowns")

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.unknowns: list[Unknown] = []
        self.inapplicable: list[str] = []
        self.reasons: list[str] = []
        self.evidence: list[Evidence] = []
        self.good = 0

    def ok(self, *items: Evidence, reason: str = "") -> Verdict:
        """Something was read and is as it should be."""
        self.good += 1
        self.evidence.extend(items)
        if reason:
            self.reasons.append(reason)
        return self

    def finding(
        self,
        subject: str,
        message: str,
        *items: Evidence,
        changes: Sequence[Change] = (),
        advice: str = "",
        severity: str | None = None,
    ) -> Verdict:
        """Something is wrong. Without ``severity`` the row's own is taken."""
        self.findings.append(Finding(subject, message, list(items), list(changes), advice, severity or ""))
        return self

    def unknown(self, subject: str, *facts: Fact[Any] | str, remedy: str = "") -> Verdict:
        """Something could not be judged, because of facts that are not known (or for a reason
        given in words)."""
        reason = "; ".join(f if isinstance(f, str) else f.why() for f in facts)
        if not remedy and any(not isinstance(f, str) and f.gap == "denied" for f in facts):
            remedy = "run as root"
        self.unknowns.append(Unknown(subject, reason, remedy))
        return self

    def not_applicable(self, reason: str) -> Verdict:
        """The question does not arise here."""
        self.inapplicable.append(reason)
        return self

    @property
    def outcome(self) -> str:
        if self.findings:
            return FINDING
        if self.unknowns:
            return UNKNOWN
        if self.good:
            return OK
        if self.inapplicable:
            return NOT_APPLICABLE
        return UNKNOWN

    @property
    def reason(self) -> str:
        """Why the outcome is what it is, where that is not said by findings."""
        outcome = self.outcome
        if outcome == UNKNOWN:
            return "; ".join(dict.fromkeys(u.reason for u in self.unknowns)) or "the row came to no verdict"
        if outcome == NOT_APPLICABLE:
            return "; ".join(dict.fromkeys(self.inapplicable))
        return "; ".join(dict.fromkeys(self.reasons))


def _show(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is True or value is False:
        return "yes" if value else "no"
    if isinstance(value, (list, tuple, set, frozenset)):
        if value and all(type(v) is int for v in value):
            from hwtune.text.cpulist import format_list

            return format_list(set(value))
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items()) or "none"
    return str(value)
