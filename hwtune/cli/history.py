"""hwtune history: the change sets."""

from __future__ import annotations

import click

from hwtune.cli.options import emit, output_option
from hwtune.errors import EXIT_OK


@click.command("history")
@click.option("--format", "format_", type=click.Choice(("text", "json")), default="text", show_default=True)
@output_option
def command(format_: str, output: str | None) -> int:
    """List the change sets, the newest first, with what each changed."""
    from hwtune.changes.ledger import Ledger
    from hwtune.cli import changing
    from hwtune.report.changes import HistoryReport, of_history
    from hwtune.report.clean import clean
    from hwtune.report.published import encode

    changing.need_root("read the journal")
    journal = changing.the_journal()
    running = journal.busy()
    records, torn, damaged = journal.records()
    # a run that is writing has its last line half done
    report = of_history(
        reversed(Ledger(records).sets.values()), running, damaged if running else [*torn, *damaged]
    )
    if format_ == "json":
        emit(encode(report), output)
        return EXIT_OK

    def told(report: HistoryReport) -> list[str]:
        lines = [f"journal: {sentence}" for sentence in report.journal]
        if report.running:
            lines.append(f"running: {report.running}")
        for s in report.sets:
            lines.append(f"{s.set}   {s.time}   {s.status}   {s.command}")
            of_change = {e.change: e for e in s.changes if not e.store}
            lines += [f"  {e.state:<10}{change}" for change, e in of_change.items()]
            if s.status == "in force":
                lines += [f"  {'lasts':<10}{kept}" for kept in s.kept]
        return lines

    lines = told(report)
    if not report.sets:
        lines.append("hwtune has changed nothing here.")
    emit("".join(clean(line) + "\n" for line in lines), output)
    return EXIT_OK
