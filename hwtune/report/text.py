"""doctor's report for a person: what is wrong first, then what is not known, then the count."""

from __future__ import annotations

from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING

from hwtune import __version__
from hwtune.diagnosis.verdict import NOT_APPLICABLE, OK, SEVERITIES
from hwtune.report.box import picture
from hwtune.report.clean import clean
from hwtune.report.digest import abridged, common_fix, fix_of, outcomes, tally, unread, unread_title
from hwtune.report.layout import flow, paragraph

if TYPE_CHECKING:
    from hwtune.diagnosis.engine import Diagnosis, RowResult
    from hwtune.diagnosis.verdict import Evidence
    from hwtune.host.base import Host
    from hwtune.profile import Profile
    from hwtune.report.digest import Fix
    from hwtune.report.terminal import Style

_EVIDENCE_MAX = 6  # lines of evidence of one finding; the JSON report has them all
_FINDINGS_MAX = 8  # findings of one row, likewise
_STEPS_MAX = 3  # changes of one finding, likewise


def render(diagnosis: Diagnosis, host: Host, profile: Profile, style: Style, verbose: bool = False) -> str:
    """The whole report, ending with a newline."""
    lines = [*_headline(diagnosis, host, profile, style), ""]
    lines += _picture(diagnosis, profile, style)
    lines += _notes(getattr(host, "warnings", []), style)
    for severity in reversed(SEVERITIES):
        for result in diagnosis.results:
            lines += _row(result, severity, style)
    lines += _unknowns(diagnosis, style, verbose)
    if verbose:
        lines += _quiet_rows(diagnosis, style)
    lines += _defects(diagnosis, style)
    lines += _way_on(diagnosis, host, style)
    lines += paragraph(outcomes(diagnosis) + ("" if verbose else " -v names them."), 0, style)
    return "\n".join(lines) + "\n"


def _way_on(diagnosis: Diagnosis, host: Host, style: Style) -> list[str]:
    """What the reader can do next, where software can mend something on this very machine."""
    mended = sum(1 for r in diagnosis.results if any(f.changes for f in r.findings))
    if host.kind != "live" or not mended:
        return []
    rows = "1 of these rows" if mended == 1 else f"{mended} of these rows"
    text = f"`hwtune apply` can mend {rows}, and `hwtune revert` puts it back; --check says what it would do."
    return [*paragraph(text, 0, style), ""]


def _headline(diagnosis: Diagnosis, host: Host, profile: Profile, style: Style) -> list[str]:
    kernel = diagnosis.machine.kernel
    parts = [f"hwtune {__version__}", clean(kernel.hostname.value or "unnamed machine")]
    parts.append(f"Linux {clean(kernel.release.get())}" if kernel.release.known else "kernel not known")
    parts.append(f"profile {clean(profile.name)}")
    if host.kind != "live":
        parts.append("from a snapshot")
    lines = flow(parts, style.width)
    right = ", ".join(words for _, words in tally(diagnosis))
    if len(lines[-1]) + 3 + len(right) <= style.width:
        lines[-1] += right.rjust(style.width - len(lines[-1]))
    else:
        lines.append(right)
    return [style.paint(line, "bold") for line in lines]


def _picture(diagnosis: Diagnosis, profile: Profile, style: Style) -> list[str]:
    nodes = picture(diagnosis.machine, profile)
    lines = []
    indent = max((len(n.name) for n in nodes), default=0) + 5
    for node in nodes:
        pieces = [
            piece
            for part in map(clean, node.parts)
            for piece in wrap(part, style.width - indent, break_long_words=False, break_on_hyphens=False)
        ]
        first, *rest = flow(pieces, style.width - indent)
        name = style.paint(node.name, "bold") + " " * (indent - 2 - len(node.name))
        lines.append(f"  {name}{first}".rstrip())
        lines += [" " * indent + line for line in rest]
    return [*lines, ""] if lines else []


def _notes(warnings: list[str], style: Style) -> list[str]:
    lines = []
    for warning in warnings:
        lines += paragraph(f"Note: {clean(warning)}", 0, style)
    return [*lines, ""] if lines else []


def _row(result: RowResult, severity: str, style: Style) -> list[str]:
    findings = [f for f in result.findings if f.severity == severity]
    if not findings:
        return []
    subjects = [clean(f.subject) for f in findings]
    lines = _row_head(
        severity, result.id, subjects[0] if len(subjects) == 1 else f"{len(subjects)} found", style
    )
    common = common_fix(findings)
    for finding in findings[:_FINDINGS_MAX]:
        message = finding.message if len(findings) == 1 else f"{finding.subject}: {finding.message}"
        lines += paragraph(clean(message), 2, style)
        lines += _evidence(finding.evidence, style)
        if common is None:
            lines += _fix("Fix", fix_of(finding), style)
    if len(findings) > _FINDINGS_MAX:
        rest = ", ".join(subjects[_FINDINGS_MAX:])
        lines += paragraph(f"... and {len(findings) - _FINDINGS_MAX} more: {rest}", 2, style)
    if common is not None:
        lines += _fix("Fix of each", common, style)
    return [*lines, ""]


def _row_head(severity: str, id: str, subject: str, style: Style) -> list[str]:
    label = severity.upper()
    head = f"{style.paint(label, severity)}{' ' * (8 - len(label))}{style.paint(id, 'bold')}"
    gap = style.width - 8 - len(id) - len(subject)
    if gap < 3:
        return [head, *paragraph(subject, 8, style)]
    return [head + " " * gap + subject]


def _evidence(items: list[Evidence], style: Style) -> list[str]:
    lines = []
    shown = items[:_EVIDENCE_MAX]
    for expected, run in groupby(shown, key=lambda item: item.expected):
        lines += _alike(list(run), clean(expected), style)
    if len(items) > _EVIDENCE_MAX:
        lines.append(f"    ... and {len(items) - _EVIDENCE_MAX} more (--format json has them all)")
    return lines


def _alike(items: list[Evidence], expected: str, style: Style) -> list[str]:
    """Evidence that should all be the same, which is said once unless there is room in each line."""
    told = [(clean(item.source), clean(item.value)) for item in items]
    target = f"should be {expected}" if expected else ""
    whole = [f"    {'   '.join(p for p in (*pair, target) if p)}" for pair in told]
    if max(map(len, whole)) <= style.width:
        return whole
    lines = []
    for source, value in told:
        line = f"    {source}   {value}"
        if len(line) <= style.width:
            lines.append(line.rstrip())
        else:
            lines += paragraph(source, 4, style) + paragraph(value, 6, style)
    if target:
        lines += paragraph(target if len(items) == 1 else f"each {target}", 6, style)
    return lines


def _fix(title: str, fix: Fix, style: Style) -> list[str]:
    steps, when, advice = fix
    parts = steps[:_STEPS_MAX]
    if len(steps) > _STEPS_MAX:
        parts.append(f"and {len(steps) - _STEPS_MAX} more like these")
    text = "; ".join(parts) + (f" ({when})" if when else "")
    text = ". ".join(p for p in (text, advice) if p)
    return paragraph(f"{title}: {clean(text)}", 2, style) if text else []


def _unknowns(diagnosis: Diagnosis, style: Style, verbose: bool) -> list[str]:
    groups = unread(diagnosis)
    if not groups:
        return []
    lines = [style.paint(f"{unread_title(diagnosis)}: what would make them known", "bold")]
    every = [result.id for result in diagnosis.results]
    for remedy, rows in groups:
        lines += paragraph(f"{clean(remedy)}:" if remedy else "no remedy is known; the reasons:", 2, style)
        if verbose:
            for id, reasons in rows.items():
                lines.append(f"    {id}")
                for reason in reasons[:_EVIDENCE_MAX]:
                    lines += paragraph(clean(reason), 6, style)
        elif remedy:
            lines += paragraph(", ".join(abridged(rows, every)), 4, style)
        else:
            lines += _reasons(rows, style)
    return [*lines, ""]


def _reasons(rows: dict[str, list[str]], style: Style) -> list[str]:
    """Rows that are unknown for the same reasons, in a line."""
    alike: dict[str, list[str]] = {}
    for id, reasons in rows.items():
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        alike.setdefault(reasons[0] + more, []).append(id)
    lines = []
    for reason, ids in alike.items():
        lines += paragraph(f"{', '.join(ids)}: {clean(reason)}", 4, style, 6)
    return lines


def _quiet_rows(diagnosis: Diagnosis, style: Style) -> list[str]:
    lines = []
    for outcome, title in ((OK, "ok"), (NOT_APPLICABLE, "not applicable")):
        rows = [r for r in diagnosis.results if r.outcome == outcome]
        if not rows:
            continue
        lines.append(style.paint(f"{title} ({len(rows)})", "bold"))
        for result in rows:
            told = result.reason or "; ".join(f"{e.source} {e.value}" for e in result.evidence[:2])
            lines.append(f"  {result.id}")
            if told:
                lines += paragraph(clean(told), 6, style)
        lines.append("")
    return lines


def _defects(diagnosis: Diagnosis, style: Style) -> list[str]:
    lines = []
    for defect in diagnosis.defects:
        lines += paragraph(
            clean(f"A defect of hwtune, please report it: {defect.where}: {defect.error}"), 0, style
        )
    return [*lines, ""] if lines else []
