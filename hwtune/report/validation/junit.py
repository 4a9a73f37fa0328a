"""validate's report as JUnit XML: a testcase each for the SLA, the baseline and every budget.

Failures are what the exit status counts: a missed SLA, and a run that is worse than its baseline. What cannot
be told was skipped; a stage that overspent passes and says so; an engine that failed is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from hwtune import __version__
from hwtune.report.clean import clean
from hwtune.report.digest import moment
from hwtune.report.junit import counts, outcome
from hwtune.report.terminal import Style
from hwtune.report.validation import text
from hwtune.validate.baseline import UNTOLD, WORSE
from hwtune.validate.reading import us

if TYPE_CHECKING:
    from hwtune.report.validation.published import About
    from hwtune.validate.results import Results

_STYLE = Style(100, False)


def render(results: Results, about: About) -> bytes:
    """The whole document, in UTF-8."""
    cases = [_sla(results, about), *_budgets(results)]
    if results.comparison is not None:
        cases.append(_baseline(results))
    root = ElementTree.Element("testsuites", {"name": "hwtune validate", **counts(cases)})
    attributes = {"name": "validate", **counts(cases)}
    told = {"hostname": about.hostname and clean(about.hostname), "timestamp": moment(about.started)}
    attributes |= {key: value for key, value in told.items() if value}
    suite = ElementTree.SubElement(root, "testsuite", attributes)
    suite.append(_properties(results, about))
    suite.extend(cases)
    ElementTree.indent(root)
    body: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return body + b"\n"


def _case(name: str) -> ElementTree.Element:
    return ElementTree.Element("testcase", classname="hwtune.validate", name=name)


def _sla(results: Results, about: About) -> ElementTree.Element:
    """With the whole text report, so that who reads of the failure has the numbers."""
    case, sla = _case("sla"), results.sla
    whole = text.render(results, about, _STYLE).splitlines()
    if results.run.failure:
        outcome(case, "error", clean(f"the engine failed: {results.run.failure}"), whole)
    elif sla.met is None:
        outcome(case, "skipped", clean(f"cannot be told: {sla.why}"), whole)
    elif not sla.met:
        told = sla.why if sla.p99_us is None else f"P99 {us(sla.p99_us)} of {us(sla.limit_us)}"
        outcome(case, "failure", clean(told), whole, "sla")
    else:
        ElementTree.SubElement(case, "system-out").text = "\n".join(whole)
    return case


def _budgets(results: Results) -> list[ElementTree.Element]:
    found = []
    for name, stage in results.stages.items():
        if stage.budget_us is None:
            continue
        case = _case(f"budget.{name}")
        if stage.p99_us is None:
            outcome(case, "skipped", why := stage.unknown["p99_us"], [why])
        else:
            state = "over" if stage.over_budget_us is not None else "within"
            told = f"P99 {us(stage.p99_us)} is {state} the budget of {us(stage.budget_us)}"
            ElementTree.SubElement(case, "system-out").text = told
        found.append(case)
    return found


def _baseline(results: Results) -> ElementTree.Element:
    case, comparison = _case("baseline"), results.comparison
    assert comparison is not None
    told = text.baseline(comparison).says
    if comparison.verdict == WORSE:
        outcome(case, "failure", told, [told], "regression")
    elif comparison.verdict == UNTOLD:
        outcome(case, "skipped", told, [told])
    else:
        ElementTree.SubElement(case, "system-out").text = told
    return case


def _properties(results: Results, about: About) -> ElementTree.Element:
    element = ElementTree.Element("properties")
    facts = {
        "hwtune": __version__,
        "engine": results.run.engine,
        "arrivals": about.arrivals_name,
        "rate": f"{results.run.rate:g}",
        "cpus": ",".join(str(cpu) for cpu in results.run.cpus.values()),
        "kernel": about.kernel,
    }
    for name, value in facts.items():
        if value:
            ElementTree.SubElement(element, "property", name=name, value=clean(value))
    return element
