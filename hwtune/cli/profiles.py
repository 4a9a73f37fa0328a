"""hwtune profiles: the built-in profiles and their values."""

from __future__ import annotations

import click

from hwtune.cli.options import profile_options


@click.command("profiles")
@click.argument("name", required=False)
@profile_options
def command(name: str | None, profile: str, settings: tuple[str, ...]) -> int:
    """List the built-in profiles, or print NAME (built in, or a TOML file) with all its values.

    What is printed is a profile itself: save it, change it, and give it to --profile.
    """
    import msgspec

    from hwtune.profile import builtin, load

    if name is None:
        for each in builtin():
            click.echo(f"{each:<16}{load(each, settings).description}")
        return 0
    click.echo(_toml(msgspec.to_builtins(load(name, settings))), nl=False)
    return 0


def _toml(values: dict[str, object]) -> str:
    lines = [f"{k} = {_literal(v)}" for k, v in values.items() if not isinstance(v, dict)]
    for name, table in values.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]", *(f"{k} = {_literal(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def _literal(value: object) -> str:
    # a JSON string, number, boolean or list of these reads the same in TOML
    import json

    return json.dumps(value)
