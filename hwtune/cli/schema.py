"""hwtune schema: the JSON Schema of the reports."""

from __future__ import annotations

import click


@click.command("schema")
def command() -> int:
    """Print the JSON Schema of `doctor --format json`."""
    import json

    from hwtune.report.schema import schema

    click.echo(json.dumps(schema(), indent=2))
    return 0
