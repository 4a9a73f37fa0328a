"""hwtune table: the rows of the diagnosis table."""

from __future__ import annotations

import click

from hwtune.cli.options import emit, output_option


@click.command("table")
@click.option("--only", multiple=True, metavar="GLOB", help="List only rows that match; may be repeated.")
@click.option(
    "--format", "format_", type=click.Choice(("text", "json", "markdown")), default="text", show_default=True
)
@output_option
def command(only: tuple[str, ...], format_: str, output: str | None) -> int:
    """List the rows of the diagnosis table: what hwtune asks a machine."""
    from hwtune.diagnosis.table import choose, table
    from hwtune.report import rows

    chosen = choose(table(), only, ())
    emit({"text": rows.text, "json": rows.json, "markdown": rows.markdown}[format_](chosen), output)
    return 0
