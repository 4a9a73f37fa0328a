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
    from hwtune.cli.changing import need_root, the_journal
    from hwtune.report.clean import clean
    from hwtune.report.published import encode

    need_root("read the journal")
    records, broken = the_journal().records()
    sets = list(reversed(Ledger(records).sets.values()))
    if format_ == "json":
        told = [
            {
                "set": s.id,
                "time": s.time,
                "status": s.status,
                "command": s.command,
                "changes": [
                    {
                        "target": e.target,
                        "before": e.before,
                        "after": e.after,
                        "state": e.state,
                        "change": e.change,
                    }
                    for e in s.entries
                ],
            }
            for s in sets
        ]
        emit(encode({"schema_version": "1", "sets": told, "journal": broken}), output)
        return EXIT_OK
    lines = [f"journal: {sentence}" for sentence in broken]
    for s in sets:
        lines.append(f"{s.id}   {s.time}   {s.status}   {s.command}")
        lines += [
            f"  {e.state:<10}{change}"
            for change, e in {e.change: e for e in s.entries if not e.stored}.items()
        ]
    emit("\n".join(map(clean, lines)) + "\n" if lines else "hwtune has changed nothing here.\n", output)
    return EXIT_OK
