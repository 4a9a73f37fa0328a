"""doctor's report as JUnit XML, for CI systems that show tests.

A testsuite is a subsystem, a testcase a row. A row with findings that count for ``--fail-on``
failed, one that is unknown or does not apply was skipped, the others passed; a defect of hwtune is
an error. Jenkins (its junit plug-in) shows the attribute ``message`` and the text of the first
element that tells a testcase's outcome, GitLab (Gitlab::Ci::Parsers::Test::Junit) the text alone: so
there is one such element at most, and its text says all. There are no times: a row takes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from hwtune import __version__
from hwtune.diagnosis.verdict import FINDING, NOT_APPLICABLE, SEVERITIES, UNKNOWN
from hwtune.report.clean import clean
from hwtune.report.digest import fix_of, moment

if TYPE_CHECKING:
    from hwtune.diagnosis.engine import Defect, Diagnosis, RowResult
    from hwtune.diagnosis.verdict import Finding
    from hwtune.host.base import Host
    from hwtune.profile import Profile

_STEPS_MAX = 10  # changes of one finding; the JSON report has them all
_ROW = "row "  # what a defect of a row begins with; the id follows


def render(diagnosis: Diagnosis, host: Host, profile: Profile, fail_on: str) -> bytes:
    """The whole document, in UTF-8. ``fail_on``: a severity, or "never"."""
    failing = SEVERITIES[SEVERITIES.index(fail_on) :] if fail_on in SEVERITIES else ()
    defects = {d.where: d for d in diagnosis.defects}
    suites: dict[str, list[ElementTree.Element]] = {}
    for result in diagnosis.results:
        subsystem = result.id.partition(".")[0]
        defect = defects.pop(_ROW + result.id, None)
        suites.setdefault(subsystem, []).append(_case(result, failing, defect))
    for where, defect in defects.items():
        suites.setdefault("hwtune", []).append(_defective(where, defect))
    root = ElementTree.Element("testsuites", name="hwtune doctor")
    about = _about(diagnosis, host)
    for name, cases in suites.items():
        attributes = {"name": clean(name), **counts(cases), **about}
        suite = ElementTree.SubElement(root, "testsuite", attributes)
        suite.append(_properties(diagnosis, host, profile))
        suite.extend(cases)
    for key, value in counts(list(root.iter("testcase"))).items():
        root.set(key, value)
    ElementTree.indent(root)
    body: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return body + b"\n"


def _case(result: RowResult, failing: tuple[str, ...], defect: Defect | None) -> ElementTree.Element:
    case = _empty_case(result.id)
    counting = [f for f in _worst_first(result) if f.severity in failing]
    if defect is not None:
        outcome(case, "error", clean(defect.error), [clean(defect.error)])
    elif counting:
        more = f" (and {len(counting) - 1} more)" if len(counting) > 1 else ""
        message = f"{clean(counting[0].subject)}: {clean(counting[0].message)}{more}"
        outcome(case, "failure", message, _told(result), result.severity or "")
    elif result.outcome == UNKNOWN:
        outcome(case, "skipped", f"unknown: {clean(result.reason)}", _unread(result))
    elif result.outcome == NOT_APPLICABLE:
        reason = f"not applicable: {clean(result.reason)}"
        outcome(case, "skipped", reason, [reason])
    elif result.outcome == FINDING:
        # nothing that counts: the testcase passes, and tells what it found all the same
        ElementTree.SubElement(case, "system-out").text = "\n".join(_told(result))
    return case


def _defective(where: str, defect: Defect) -> ElementTree.Element:
    case = _empty_case(f"hwtune.{where}")
    outcome(case, "error", clean(defect.error), [clean(defect.error)])
    return case


def _empty_case(id: str) -> ElementTree.Element:
    # Jenkins takes what stands before the last dot of a classname for its package.
    subsystem = id.partition(".")[0]
    return ElementTree.Element("testcase", classname=clean(f"hwtune.{subsystem}"), name=clean(id))


def outcome(case: ElementTree.Element, tag: str, message: str, lines: list[str], type: str = "") -> None:
    """Say how a testcase came out: failure, error or skipped."""
    element = ElementTree.SubElement(case, tag, message=message)
    if type:
        element.set("type", type)
    element.text = "\n".join(lines)


def _told(result: RowResult) -> list[str]:
    """All findings of a row, with evidence and fix, the worst first, and what it could not judge."""
    blocks = [_finding(finding) for finding in _worst_first(result)]
    if result.unknowns:
        blocks.append(_unread(result))
    lines = [line for block in blocks for line in ("", *block)]
    return lines[1:]


def _worst_first(result: RowResult) -> list[Finding]:
    return sorted(result.findings, key=lambda f: -SEVERITIES.index(f.severity))


def _finding(finding: Finding) -> list[str]:
    lines = [f"{finding.severity}: {clean(finding.subject)}: {clean(finding.message)}"]
    for item in finding.evidence:
        target = f" (should be {clean(item.expected)})" if item.expected else ""
        lines.append(f"  {clean(item.source)}: {clean(item.value)}{target}")
    steps, when, advice = fix_of(finding)
    lines += [f"Fix: {clean(step)}" for step in steps[:_STEPS_MAX]]
    if len(steps) > _STEPS_MAX:
        lines.append(f"Fix: and {len(steps) - _STEPS_MAX} more like these")
    if when:
        lines[-1] += f" ({when})"
    if advice:
        lines.append(f"Fix: {clean(advice)}")
    return lines


def _unread(result: RowResult) -> list[str]:
    lines = []
    for item in result.unknowns:
        remedy = f" (what would make it known: {clean(item.remedy)})" if item.remedy else ""
        lines.append(f"unknown: {clean(item.subject)}: {clean(item.reason)}{remedy}")
    return lines or [f"unknown: {clean(result.reason)}"]


def counts(cases: list[ElementTree.Element]) -> dict[str, str]:
    """Attributes of a testsuite."""
    tags = [child.tag for case in cases for child in case]
    return {
        "tests": str(len(cases)),
        "failures": str(tags.count("failure")),
        "errors": str(tags.count("error")),
        "skipped": str(tags.count("skipped")),
    }


def _about(diagnosis: Diagnosis, host: Host) -> dict[str, str]:
    """Attributes of every testsuite: the machine and the time that it was read."""
    hostname, time = diagnosis.machine.kernel.hostname.value, moment(host.captured_at)
    found = {"hostname": clean(hostname) if hostname else None, "timestamp": time}
    return {key: value for key, value in found.items() if value}


def _properties(diagnosis: Diagnosis, host: Host, profile: Profile) -> ElementTree.Element:
    element = ElementTree.Element("properties")
    facts = {
        "hwtune": __version__,
        "profile": profile.name,
        "kernel": diagnosis.machine.kernel.release.value,
        "source": host.kind,
    }
    for name, value in facts.items():
        if value:
            ElementTree.SubElement(element, "property", name=name, value=clean(value))
    return element
