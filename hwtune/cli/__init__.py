"""The command line. Commands are loaded when they are called, so that ``--version`` costs nothing."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import Any

import click

from hwtune import __version__
from hwtune.errors import EXIT_TOOL, EXIT_USAGE, HwtuneError

# name -> (module, one line for --help); a command's function in its module is called ``command``
COMMANDS = {
    "doctor": ("hwtune.cli.doctor", "Find what makes the latency tail long, with evidence. Reads only."),
    "apply": ("hwtune.cli.apply", "Mend what doctor finds, so that it can all be put back."),
    "verify": ("hwtune.cli.verify", "Say whether what was applied is still in force, and who changed it."),
    "history": ("hwtune.cli.history", "List what was applied, and when."),
    "revert": ("hwtune.cli.revert", "Put back what was applied."),
    "validate": ("hwtune.cli.validate", "Measure a trading path's latency, stage by stage, against an SLA."),
    "jitter": ("hwtune.cli.jitter", "Measure how quiet each CPU is, and name what disturbs it."),
    "nvme-latency": (
        "hwtune.cli.nvme_latency",
        "Measure how evenly a drive answers, and what makes it stall.",
    ),
    "capture": ("hwtune.cli.capture", "Record everything doctor reads into one file, to diagnose elsewhere."),
    "table": ("hwtune.cli.table", "List the rows of the diagnosis table."),
    "explain": ("hwtune.cli.explain", "Explain one row: symptom, cause, cost, risk, sources."),
    "profiles": ("hwtune.cli.profiles", "List the profiles, or print one with all its values."),
    "schema": ("hwtune.cli.schema", "Print the JSON Schema of the reports."),
    "completion": ("hwtune.cli.completion", "Print the completion script of a shell."),
}

# Containers made since the last look for cycles; Python's own 700 is for programs that run for long.
_COLLECT_AFTER = 100_000


class Commands(click.Group):
    """A group that imports a command's module when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name][0]).command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], list(COMMANDS), n=1)
            hint = f"; did you mean {near[0]}?" if near else "; `hwtune --help` lists them"
            raise click.UsageError(f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="hwtune %(version)s")
def cli() -> None:
    """The doctor for low-latency and GPU-inference Linux boxes.

    Exit status: 0 nothing at or above --fail-on, 1 findings, 2 bad usage or unreadable input,
    3 hwtune could not do its work.
    """


def main() -> None:
    """Run the command line and exit. Every error is one sentence on stderr."""
    # What a run makes it keeps to its end. Looking for rubbish among it, time and again and twice
    # more at the exit, costs a short run a seventh of its time and finds next to nothing.
    gc.set_threshold(_COLLECT_AFTER)
    _keep_standard_streams()
    try:
        status = cli.main(prog_name="hwtune", standalone_mode=False)
    except click.exceptions.Exit as error:
        status = error.exit_code
    except click.ClickException as error:
        status = _complain(error.format_message(), EXIT_USAGE)
    except HwtuneError as error:
        status = _complain(str(error), error.exit_status)
    except BrokenPipeError:  # the reader went away (`| head`): what it wanted it has
        sys.stderr.close()
        status = 0
    except (KeyboardInterrupt, click.Abort):
        status = _complain("interrupted", 130)
    except MemoryError:
        status = _complain("there is not memory enough for what was read", EXIT_TOOL)
    except OSError as error:
        # what is printed is the only thing that is written without a name
        place = error.filename or "what was to be printed"
        status = _complain(f"{place}: {error.strerror or error}", EXIT_TOOL)
    gc.freeze()
    sys.exit(status if isinstance(status, int) else 0)


def _keep_standard_streams() -> None:
    """Where the caller has closed one (``>&-``), nothing that is opened may take its number: what is
    meant for a terminal would go there."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _complain(message: str, status: int) -> int:
    from hwtune.report.clean import clean

    click.echo(f"hwtune: {clean(' '.join(message.split()))}", err=True)
    return status
