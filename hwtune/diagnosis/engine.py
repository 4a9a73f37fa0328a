"""Host -> probes -> Machine -> rows -> results."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import msgspec

from hwtune.diagnosis.verdict import FINDING, OUTCOMES, SEVERITIES, UNKNOWN, Evidence, Finding, Unknown
from hwtune.fact import json_form
from hwtune.model import Machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hwtune.diagnosis.row import Row
    from hwtune.host.base import Host
    from hwtune.profile import Profile


class RowResult(msgspec.Struct):
    """What one row said."""

    id: str
    outcome: str
    severity: str | None  # of the worst finding; None without one
    scope: str
    title: str
    reason: str
    findings: list[Finding]
    unknowns: list[Unknown]
    evidence: list[Evidence]


class Defect(msgspec.Struct):
    """A probe or a row that failed: a fault of hwtune (or of a plug-in), never of the machine."""

    where: str
    error: str


class Diagnosis(msgspec.Struct):
    machine: Machine
    results: list[RowResult]
    defects: list[Defect] = []

    def count(self, outcome: str) -> int:
        return sum(1 for r in self.results if r.outcome == outcome)

    def summary(self) -> dict[str, Any]:
        by_severity = {
            severity: sum(1 for r in self.results for f in r.findings if f.severity == severity)
            for severity in reversed(SEVERITIES)
        }
        return {**{o: self.count(o) for o in OUTCOMES}, "by_severity": by_severity}

    def worst(self) -> str | None:
        """The highest severity of any finding."""
        present = {f.severity for r in self.results for f in r.findings}
        return next((s for s in reversed(SEVERITIES) if s in present), None)


def probe(host: Host) -> tuple[Machine, list[Defect]]:
    """Let every probe fill its part. A probe is a module of ``hwtune.probes`` with ``PART`` (the
    Machine's field) and ``read(host)``; a third party's is such a module or object by entry point,
    its part kept in ``machine.extra``."""
    import hwtune.probes as package
    from hwtune.plugins import load

    machine = Machine()
    defects: list[Defect] = []
    for name in sorted(m.name for m in iter_modules(package.__path__)):
        if name.startswith("_"):
            continue
        module = import_module(f"{package.__name__}.{name}")
        part = _read(module, host, defects)
        if part is not None:
            setattr(machine, module.PART, part)
    for plugin in load("hwtune.probes"):
        _read_extra(plugin, host, machine, defects)
    return machine, defects


def _read_extra(plugin: Any, host: Host, machine: Machine, defects: list[Defect]) -> None:
    """A third party's part, if reports can hold it."""
    if not isinstance(getattr(plugin, "PART", None), str):
        defects.append(Defect(f"probe {plugin}", "it has no PART"))
        return
    part = _read(plugin, host, defects)
    try:
        msgspec.to_builtins(part, enc_hook=json_form)
    except (TypeError, ValueError, RecursionError) as error:
        defects.append(Defect(f"probe {plugin.PART}", str(error)))
        return
    if part is not None:
        machine.extra[plugin.PART] = part


def _read(module: Any, host: Host, defects: list[Defect]) -> Any:
    # The one place where any exception is caught: a probe that stumbles over one machine's oddity
    # must not take the other twelve parts with it. It is reported, and its part stays unknown.
    try:
        return module.read(host)
    except MemoryError:  # of the run, not of the probe
        raise
    except Exception as error:
        defects.append(Defect(f"probe {module.PART}", _describe(error)))
        return None


def judge(
    machine: Machine, rows: Iterable[Row], profile: Profile, defects: Sequence[Defect] = ()
) -> Diagnosis:
    """Put every row's question to the machine."""
    found = list(defects)
    results = [_result(row, machine, profile, found) for row in rows]
    return Diagnosis(machine, results, found)


def _result(row: Row, machine: Machine, profile: Profile, defects: list[Defect]) -> RowResult:
    try:
        verdict = row.check(machine, profile)
    except MemoryError:
        raise
    except Exception as error:  # as in _read: told as a defect, and the row's answer is not known
        defects.append(Defect(f"row {row.id}", _describe(error)))
        reason = f"a defect of hwtune: {_describe(error)}"
        return RowResult(
            row.id, UNKNOWN, None, row.scope, row.title, reason, [], [Unknown("kernel", reason)], []
        )
    for finding in verdict.findings:
        finding.severity = finding.severity or row.severity
    worst = max((SEVERITIES.index(f.severity) for f in verdict.findings), default=None)
    return RowResult(
        row.id,
        verdict.outcome,
        None if worst is None else SEVERITIES[worst],
        row.scope,
        row.title,
        verdict.reason,
        verdict.findings,
        verdict.unknowns,
        [] if verdict.outcome == FINDING else verdict.evidence,
    )


def _describe(error: Exception) -> str:
    """The exception and the last place of it in a file, so that a report is worth something."""
    trace = error.__traceback__
    place = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f" at {code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}{place}"
