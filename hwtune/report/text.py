"""doctor's report for a person: what is wrong first, then what is not known, then the count."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from hwtune import __version__
from hwtune.diagnosis.verdict import ERROR, FINDING, INFO, NOT_APPLICABLE, OK, SEVERITIES, UNKNOWN, WARNING
from hwtune.report.box import picture
from hwtune.report.clean import clean

if TYPE_CHECKING:
    from hwtune.diagnosis.engine import Diagnosis, RowResult
    from hwtune.diagnosis.verdict import Evidence, Finding
    from hwtune.host.base import Host
    from hwtune.profile import Profile
    from hwtune.report.terminal import Style

_NEEDS = {
    "runtime": "",
    "service": "",
    "boot": "takes effect at the next boot",
    "firmware": "in the firmware setup",
    "hands": "in the box, by hand",
}
_EVIDENCE_MAX = 6  # lines of evidence of one finding; the JSON report has them all
_FINDINGS_MAX = 8  # findings of one row, likewise


def render(diagnosis: Diagnosis, host: Host, profile: Profile, style: Style, verbose: bool = False) -> str:
    """The whole report, ending with a newline."""
    lines = [_headline(diagnosis, host, profile, style), ""]
    lines += _picture(diagnosis, profile, style)
    for warning in getattr(host, "warnings", []):
        lines += _paragraph(f"Note: {clean(warning)}", 0, style)
    for severity in reversed(SEVERITIES):
        for result in diagnosis.results:
            lines += _row(result, severity, style)
    lines += _unknowns(diagnosis, style, verbose)
    if verbose:
        lines += _quiet_rows(diagnosis, style)
    lines += _defects(diagnosis, style)
    lines.append(_count(diagnosis, verbose))
    return "\n".join(lines) + "\n"


def _headline(diagnosis: Diagnosis, host: Host, profile: Profile, style: Style) -> str:
    kernel = diagnosis.machine.kernel
    parts = [f"hwtune {__version__}", clean(kernel.hostname.value or "unnamed machine")]
    parts.append(f"Linux {clean(kernel.release.get())}" if kernel.release.known else "kernel not known")
    parts.append(f"profile {clean(profile.name)}")
    if host.kind != "live":
        parts.append("from a snapshot")
    left = "   ".join(parts)
    right = _tally(diagnosis)
    if len(left) + 3 + len(right) <= style.width:
        line = left + " " * (style.width - len(left) - len(right)) + right
    else:
        line = f"{left}\n{right}"
    return style.paint(line, "bold")


def _tally(diagnosis: Diagnosis) -> str:
    counts = diagnosis.summary()["by_severity"]
    words = [_number(counts[ERROR], "error"), _number(counts[WARNING], "warning")]
    if counts[INFO]:
        words.append(f"{counts[INFO]} to note")
    words.append(f"{diagnosis.count(UNKNOWN)} unknown")
    return ", ".join(words)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _picture(diagnosis: Diagnosis, profile: Profile, style: Style) -> list[str]:
    nodes = picture(diagnosis.machine, profile)
    lines = []
    indent = max((len(n.name) for n in nodes), default=0) + 5
    for node in nodes:
        head = f"  {style.paint(node.name, 'bold')}{' ' * (indent - 2 - len(node.name))}"
        line, used = head, indent
        for i, part in enumerate(map(clean, _grouped(node.parts))):
            if i and used + len(part) > style.width:
                lines.append(line.rstrip())
                line, used = " " * indent, indent
            line += part + "   "
            used += len(part) + 3
        lines.append(line.rstrip())
    return [*lines, ""] if lines else []


def _grouped(parts: list[str]) -> list[str]:
    """Parts as they are; those that are equal are counted, those that differ in their first word
    alone (drives, ports) are named together."""
    counted = {part: parts.count(part) for part in dict.fromkeys(parts)}
    alike: dict[str, list[str]] = {}
    for part, count in counted.items():
        name, _, rest = part.partition(" ")
        if count == 1 and rest and name[-1].isdigit() and not name.isdigit():
            alike.setdefault(rest, []).append(part)
    found: list[str] = []
    for part, count in counted.items():
        rest = part.partition(" ")[2]
        group = alike.get(rest, [])
        if part not in group or len(group) == 1:
            found.append(part if count == 1 else f"{count} {part}")
        elif part == group[0]:
            found.append(f"{', '.join(p.partition(' ')[0] for p in group)} {rest}")
    return found


def _row(result: RowResult, severity: str, style: Style) -> list[str]:
    findings = [f for f in result.findings if f.severity == severity]
    if not findings:
        return []
    subjects = [clean(f.subject) for f in findings]
    label = severity.upper()
    subject = subjects[0] if len(subjects) == 1 else f"{len(subjects)} found"
    left = f"{label:<8}{result.id}"
    gap = max(3, style.width - len(left) - len(subject))
    head = style.paint(label, severity) + " " * (8 - len(label)) + style.paint(result.id, "bold")
    lines = [head + " " * gap + subject]
    for finding in findings[:_FINDINGS_MAX]:
        message = finding.message if len(findings) == 1 else f"{finding.subject}: {finding.message}"
        lines += _paragraph(clean(message), 2, style)
        lines += _evidence(finding.evidence, style)
        lines += _remedy(finding, result, style)
    if len(findings) > _FINDINGS_MAX:
        rest = ", ".join(subjects[_FINDINGS_MAX:])
        lines += _paragraph(f"... and {len(findings) - _FINDINGS_MAX} more: {rest}", 2, style)
    return [*lines, ""]


def _evidence(items: list[Evidence], style: Style) -> list[str]:
    lines = []
    for item in items[:_EVIDENCE_MAX]:
        source, value, expected = clean(item.source), clean(item.value), clean(item.expected)
        text = f"{source}   {value}" if value else source
        if expected:
            text += f"   should be {expected}"
        if len(text) + 4 <= style.width:
            lines.append(f"    {text}")
            continue
        lines += _paragraph(source, 4, style)
        lines += _paragraph(f"is {value}", 6, style)
        if expected:
            lines += _paragraph(f"should be {expected}", 6, style)
    if len(items) > _EVIDENCE_MAX:
        lines.append(f"    ... and {len(items) - _EVIDENCE_MAX} more (--format json has them all)")
    return lines


def _remedy(finding: Finding, result: RowResult, style: Style) -> list[str]:
    described = [c.describe() for c in finding.changes]
    parts = described[:3]
    if len(described) > 3:
        parts.append(f"and {len(described) - 3} more like these")
    text = "; ".join(parts)
    needs = _NEEDS[result.scope]
    if text and any(c.scope == "boot" for c in finding.changes):
        text += " (takes effect at the next boot)"
    elif not text and finding.advice and needs:
        return _paragraph(f"Fix: {clean(finding.advice)}", 2, style)
    if text and finding.advice:
        text = f"{text}. {finding.advice}"
    text = text or finding.advice
    return _paragraph(f"Fix: {clean(text)}", 2, style) if text else []


def _unknowns(diagnosis: Diagnosis, style: Style, verbose: bool) -> list[str]:
    """Grouped by what would make them known, so that one remedy is read once."""
    unknown = [r for r in diagnosis.results if r.unknowns]
    if not unknown:
        return []
    groups: dict[str, dict[str, list[str]]] = {}
    for result in unknown:
        for item in result.unknowns:
            rows = groups.setdefault(item.remedy or _kind(item.reason), {})
            rows.setdefault(result.id, []).append(item.reason)
    lines = [style.paint(f"unknown ({_number(len(unknown), 'row')}): what would make them known", "bold")]
    for remedy, rows in groups.items():
        lines += _paragraph(f"{clean(remedy)}:", 2, style)
        if not verbose:
            lines += _paragraph(", ".join(rows), 4, style)
            continue
        for id, reasons in rows.items():
            lines.append(f"    {id}")
            for reason in list(dict.fromkeys(reasons))[:_EVIDENCE_MAX]:
                lines += _paragraph(clean(reason), 6, style)
    return [*lines, ""]


def _kind(reason: str) -> str:
    if "is not in the snapshot" in reason:
        return "a capture that holds more (`hwtune capture`, as root)"
    return "see the reason of each with -v"


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
                lines += _paragraph(clean(told), 6, style)
        lines.append("")
    return lines


def _defects(diagnosis: Diagnosis, style: Style) -> list[str]:
    lines = []
    for defect in diagnosis.defects:
        lines += _paragraph(
            clean(f"A defect of hwtune, please report it: {defect.where}: {defect.error}"), 0, style
        )
    return [*lines, ""] if lines else []


def _count(diagnosis: Diagnosis, verbose: bool) -> str:
    text = (
        f"{_number(len(diagnosis.results), 'row')}: {diagnosis.count(OK)} ok, {diagnosis.count(FINDING)} finding, "
        f"{diagnosis.count(NOT_APPLICABLE)} not applicable, {diagnosis.count(UNKNOWN)} unknown."
    )
    return text if verbose else text + " -v names them."


def _paragraph(text: str, indent: int, style: Style) -> list[str]:
    """Wrapped to the width; ids, paths and arguments are never broken."""
    return wrap(
        text,
        style.width,
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
