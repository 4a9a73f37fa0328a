"""What the reports say alike: counts in words, what mends a finding, what is unknown and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hwtune.diagnosis.verdict import ERROR, FINDING, INFO, NOT_APPLICABLE, OK, UNKNOWN, WARNING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hwtune.diagnosis.engine import Diagnosis
    from hwtune.diagnosis.verdict import Finding

_MORE = "a capture that holds more (`hwtune capture`, as root)"
_WHOLE_SUBSYSTEM = 3  # rows from which "clock.*" is easier to read than their names


class Fix(NamedTuple):
    """What mends a finding: ``steps``, a clause for each change; ``when`` they take effect, if not
    at once; ``advice``, a sentence on what no change can do."""

    steps: list[str]
    when: str
    advice: str


class Unread(NamedTuple):
    """Rows that the same ``remedy`` would make known ("": none is known), each id with its reasons."""

    remedy: str
    rows: dict[str, list[str]]


def moment(seconds: float | None) -> str | None:
    """A time since the epoch in ISO 8601, UTC; None where it is not known or no date (a manifest
    may say anything)."""
    if seconds is None:
        return None
    from datetime import datetime, timezone

    try:
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return None


def number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def tally(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """(severity or outcome, count in words) of what a reader is to look at."""
    counts = diagnosis.summary()["by_severity"]
    words = [(ERROR, number(counts[ERROR], "error")), (WARNING, number(counts[WARNING], "warning"))]
    if counts[INFO]:
        words.append((INFO, f"{counts[INFO]} to note"))
    return [*words, (UNKNOWN, f"{diagnosis.count(UNKNOWN)} unknown")]


def outcomes(diagnosis: Diagnosis) -> str:
    """All rows by outcome, as one sentence."""
    names = {OK: "ok", FINDING: "finding", NOT_APPLICABLE: "not applicable", UNKNOWN: "unknown"}
    counts = ", ".join(f"{diagnosis.count(outcome)} {name}" for outcome, name in names.items())
    return f"{number(len(diagnosis.results), 'row')}: {counts}."


def fix_of(finding: Finding) -> Fix:
    waits = any(change.scope == "boot" for change in finding.changes)
    return Fix(
        [change.describe() for change in finding.changes],
        "takes effect at the next boot" if waits else "",
        finding.advice,
    )


def common_fix(findings: Sequence[Finding]) -> Fix | None:
    """The fix that several findings share, to be told once; None where they don't."""
    fixes = [fix_of(finding) for finding in findings]
    return fixes[0] if len(fixes) > 1 and all(fix == fixes[0] for fix in fixes) else None


def unread(diagnosis: Diagnosis) -> list[Unread]:
    """What is unknown, by what would make it known, so that one remedy is read once. Rows that
    found something and could not judge the rest are among them."""
    # the innermost: reasons in their order, each once
    groups: dict[str, dict[str, dict[str, None]]] = {}
    for result in diagnosis.results:
        for item in result.unknowns:
            remedy = item.remedy or (_MORE if "is not in the snapshot" in item.reason else "")
            groups.setdefault(remedy, {}).setdefault(result.id, {})[item.reason] = None
        if result.outcome == UNKNOWN and not result.unknowns:  # a row that came to no verdict
            groups.setdefault("", {})[result.id] = {result.reason: None}
    if "" in groups:
        groups[""] = groups.pop("")  # last
    return [
        Unread(remedy, {id: list(reasons) for id, reasons in rows.items()}) for remedy, rows in groups.items()
    ]


def unread_title(diagnosis: Diagnosis) -> str:
    """ "unknown (91 rows, and 2 findings in part)"."""
    partly = sum(1 for r in diagnosis.results if r.unknowns and r.outcome != UNKNOWN)
    rest = f", and {number(partly, 'finding')} in part" if partly else ""
    return f"unknown ({number(diagnosis.count(UNKNOWN), 'row')}{rest})"


def abridged(ids: Iterable[str], all_ids: Sequence[str]) -> list[str]:
    """The ids, a subsystem whose rows are all among them as "clock.*", which is also how ``--only``
    takes it; ``all_ids``: of every row that was judged."""
    of: dict[str, list[str]] = {}
    for id in ids:
        of.setdefault(id.partition(".")[0], []).append(id)
    totals: dict[str, int] = {}
    for id in all_ids:
        subsystem = id.partition(".")[0]
        totals[subsystem] = totals.get(subsystem, 0) + 1
    names: list[str] = []
    for subsystem, members in of.items():
        if len(members) == totals[subsystem] and len(members) >= _WHOLE_SUBSYSTEM:
            names.append(f"{subsystem}.*")
        else:
            names += members
    return names
