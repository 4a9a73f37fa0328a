"""hwtune completion: the completion script of a shell."""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def command(shell: str) -> int:
    """Print the completion script of SHELL, for example

    hwtune completion bash > ~/.local/share/bash-completion/completions/hwtune
    """
    from click.shell_completion import get_completion_class

    from hwtune.cli import cli
    from hwtune.errors import ToolError

    kind = get_completion_class(shell)
    if kind is None:
        raise ToolError(f"there is no completion for {shell}")
    # source() alone: ``kind.source`` of bash would run the shell to learn its version
    script = kind(cli, {}, "hwtune", "_HWTUNE_COMPLETE")
    click.echo(script.source_template % script.source_vars())
    return 0
