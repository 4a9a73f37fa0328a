"""The diagnosis table itself, as text, JSON and Markdown, and one row in full."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.diagnosis.row import Row
    from hwtune.report.terminal import Style

MENDED = {
    "runtime": "at run time",
    "service": "by a service's configuration",
    "boot": "by the next boot",
    "firmware": "in the firmware setup",
    "hands": "by a person at the box",
}


def text(rows: Sequence[Row]) -> str:
    """One line a row: id, severity, scope, title."""
    width = max((len(r.id) for r in rows), default=0)
    return "".join(f"{r.id:<{width}}  {r.severity:<8} {r.scope:<9} {r.title}\n" for r in rows)


def json(rows: Sequence[Row]) -> str:
    from json import dumps

    return dumps([r.facts() for r in rows], indent=2) + "\n"


def markdown(rows: Sequence[Row]) -> str:
    """A section a subsystem, an entry a row."""
    lines = [
        "# The diagnosis table",
        "",
        f"{len(rows)} rows, generated from the rows themselves by `hwtune table --format markdown`. A row's",
        "outcome on a machine is ok, finding, not-applicable or unknown; the severity below is that of a",
        "finding where the row does not say otherwise, the scope is what it takes to mend one.",
    ]
    subsystem = ""
    for row in rows:
        if row.subsystem != subsystem:
            subsystem = row.subsystem
            lines += ["", f"## {subsystem}"]
        lines += [
            "",
            f"### {row.id}",
            "",
            f"{row.title}. *{row.severity}, mended {MENDED[row.scope]}.*"
            + (" *Measures.*" if row.active else ""),
            "",
            f"- Symptom: {row.symptom}",
            f"- Cause: {row.cause}",
            f"- Risk: {row.risk}",
            f"- Cost: {row.cost}",
            f"- Sources: {'; '.join(row.sources)}",
        ]
    return "\n".join(lines) + "\n"


def explain(row: Row, style: Style) -> str:
    parts = [
        ("Symptom", row.symptom),
        ("Cause", row.cause),
        ("Mended", MENDED[row.scope]),
        ("Risk", row.risk),
        ("Cost", row.cost),
    ]
    lines = [f"{style.paint(row.id, 'bold')}   {style.paint(row.severity, row.severity)}", row.title, ""]
    for name, content in parts:
        lines += wrap(
            f"{name + ':':<10}{content}", style.width, subsequent_indent=" " * 10, break_long_words=False
        )
    lines += ["", "Sources:", *(f"  {source}" for source in row.sources)]
    if row.active:
        lines += ["", "This row measures: it is answered only by `hwtune doctor --active`."]
    return "\n".join(lines) + "\n"
