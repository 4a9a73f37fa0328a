"""hwtune verify: is what was applied still in force?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hwtune.cli.options import emit, output_option
from hwtune.errors import EXIT_FINDINGS, EXIT_OK

if TYPE_CHECKING:
    from hwtune.report.changes import VerifyReport

_SETTLED = ("in force", "partly reverted")


@click.command("verify")
@click.option("--format", "format_", type=click.Choice(("text", "json")), default="text", show_default=True)
@output_option
def command(format_: str, output: str | None) -> int:
    """Say for each change whether it is in force, drifted (and who may have done it), gone, or
    waiting for a boot. Exit status 1 when any is not in force."""
    from hwtune.changes.ledger import Ledger
    from hwtune.changes.verify import DRIFTED, IN_FORCE, verify
    from hwtune.cli import changing
    from hwtune.diagnosis.engine import probe
    from hwtune.report.changes import SetState, VerifyReport, status
    from hwtune.report.published import SCHEMA_VERSION, encode

    changing.need_root("read the journal")
    system, journal = changing.the_system(), changing.the_journal()
    running = journal.busy()
    records, torn, damaged = journal.records()
    ledger = Ledger(records)
    found = verify(ledger, system, None)
    if any(v.status == DRIFTED for v in found):
        # only a drift needs to know who else turns knobs here
        found = verify(ledger, system, probe(system.host)[0])
    sets = [SetState(s.id, s.time, status(s, running)) for s in ledger.active_sets()]
    broken = damaged if running else [*torn, *damaged]
    whole = (
        not damaged and all(v.status == IN_FORCE for v in found) and all(s.status in _SETTLED for s in sets)
    )
    report = VerifyReport(SCHEMA_VERSION, whole, sets, found, running, broken)
    emit(encode(report) if format_ == "json" else _text(report), output)
    return EXIT_OK if whole else EXIT_FINDINGS


def _text(report: VerifyReport) -> str:
    from hwtune.report.clean import clean

    lines = [f"{'journal':<16}{sentence}" for sentence in report.journal]
    if report.running:
        lines.append(f"{'running':<16}{report.running}")
    for v in report.changes:
        lines.append(f"{v.status:<16}{v.target}   {v.wanted}")
        if v.status != "in-force":
            lines.append(f"{'':<16}is {v.now} now" + (f": {v.reason}" if v.reason else ""))
        if v.suspects:
            lines.append(f"{'':<16}could have been set by {', '.join(v.suspects)}")
    lines += [f"{'set':<16}{s.set} is {s.status}" for s in report.sets if s.status != "in force"]
    if not report.changes and not report.sets:
        lines.append("hwtune holds nothing here.")
    elif report.in_force and report.changes:
        lines.append("Everything is in force.")
    return "".join(clean(line) + "\n" for line in lines)
