"""doctor's report as metrics in Prometheus's text format, for node_exporter's textfile collector.

    hwtune doctor --format prometheus -o /var/lib/node_exporter/hwtune.prom

A row's outcome is a set of states, as node_systemd_unit_state is: 1 for the one that holds, 0 for
the others, so that no series comes and goes with it. A finding is a series while it is there. All
are gauges, since every run judges anew. No sample carries a time, which the collector would refuse.
Format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from hwtune import __version__
from hwtune.diagnosis.verdict import OUTCOMES
from hwtune.report.clean import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hwtune.diagnosis.engine import Diagnosis
    from hwtune.host.base import Host
    from hwtune.profile import Profile

    Samples = Iterable[tuple[dict[str, str], float]]


def render(diagnosis: Diagnosis, host: Host, profile: Profile) -> bytes:
    """The whole exposition, in UTF-8."""
    parts = [
        family("hwtune_doctor_info", "What was diagnosed, by what.", [(_info(diagnosis, host, profile), 1)])
    ]
    if host.captured_at is not None and isfinite(host.captured_at):
        parts.append(
            family(
                "hwtune_doctor_timestamp_seconds",
                "When the machine was read, in seconds since the epoch.",
                [({}, host.captured_at)],
            )
        )
    parts += [
        family(
            "hwtune_doctor_defects",
            "Probes and rows that failed by a fault of hwtune or of a plug-in.",
            [({}, len(diagnosis.defects))],
        ),
        family(
            "hwtune_row_outcome",
            "Whether a row of the diagnosis table has this outcome.",
            (
                ({"row": r.id, "outcome": outcome}, int(r.outcome == outcome))
                for r in diagnosis.results
                for outcome in OUTCOMES
            ),
        ),
        family(
            "hwtune_findings",
            "Findings of a row by severity and subject.",
            _findings(diagnosis),
        ),
        family(
            "hwtune_findings_by_severity",
            "Findings of all rows by severity.",
            (({"severity": s}, n) for s, n in diagnosis.summary()["by_severity"].items()),
        ),
    ]
    return "".join(parts).encode()


def _info(diagnosis: Diagnosis, host: Host, profile: Profile) -> dict[str, str]:
    """Labels; "" for what is not known, which to Prometheus is a label that is not there."""
    kernel = diagnosis.machine.kernel
    return {
        "version": __version__,
        "profile": profile.name,
        "source": host.kind,
        "hostname": kernel.hostname.value or "",
        "kernel": kernel.release.value or "",
    }


def _findings(diagnosis: Diagnosis) -> Samples:
    """Counted: a row may have two findings of one subject, and no series may be told twice."""
    counts: dict[tuple[str, str, str], int] = {}
    for result in diagnosis.results:
        for finding in result.findings:
            key = (result.id, finding.severity, clean(finding.subject))
            counts[key] = counts.get(key, 0) + 1
    for (row, severity, subject), count in counts.items():
        yield {"row": row, "severity": severity, "subject": subject}, count


def family(name: str, about: str, samples: Samples) -> str:
    """One metric with all its samples, as a gauge."""
    lines = [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
    for labels, value in samples:
        told = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(f"{name}{{{told}}} {value!r}" if told else f"{name} {value!r}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """A label's value: the three characters that the format escapes. What cannot be printed (a
    terminal escape, half a surrogate) is shown as in the other reports."""
    return clean(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
