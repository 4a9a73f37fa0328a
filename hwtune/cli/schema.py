"""hwtune schema: the JSON Schema of the reports."""

from __future__ import annotations

import click

REPORTS = ("doctor", "apply", "verify", "history", "revert", "validate", "jitter", "nvme-latency")


@click.command("schema")
@click.argument("report", type=click.Choice(REPORTS), default="doctor")
def command(report: str) -> int:
    """Print the JSON Schema of a report's `--format json`: doctor (without an argument), apply,
    verify, history, revert, validate, jitter or nvme-latency."""
    import json

    from hwtune.report.schema import schema

    click.echo(json.dumps(schema(report), indent=2))
    return 0
