"""hwtune explain: one row, in full."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def _ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from hwtune.diagnosis.table import table

    return [CompletionItem(r.id) for r in table() if r.id.startswith(incomplete)]


@click.command("explain")
@click.argument("row", shell_complete=_ids)
def command(row: str) -> int:
    """Explain ROW: what it asks, why that matters, what mending it costs and risks, who says so."""
    from hwtune.diagnosis.table import find, table
    from hwtune.report.rows import explain
    from hwtune.report.terminal import style_for

    click.echo(explain(find(table(), row), style_for(None)), nl=False)
    return 0
