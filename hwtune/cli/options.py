"""Options that several commands share."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwtune.host.base import Host


def profile_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override one value of the profile; may be repeated.",
    )(function)
    return click.option(
        "--profile",
        default="low-latency",
        metavar="NAME|FILE",
        help="A built-in profile (`hwtune profiles`) or a TOML file.  [default: low-latency]",
    )(function)


def snapshot_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--snapshot",
        metavar="PATH",
        help="Diagnose a captured machine: a folder, an archive, a sosreport, or pasted outputs.",
    )(function)


def output_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("-o", "--output", metavar="FILE", help="Write the report to FILE.")(function)


def open_host(snapshot: str | None) -> Host:
    """The live host, or the snapshot at a path."""
    if snapshot is None:
        from hwtune.host.live import LiveHost

        return LiveHost()
    from hwtune.host.snapshot import open_snapshot

    return open_snapshot(snapshot)


def need_output(output: str | None) -> None:
    """Find out before the work whether its report can be written. What is no regular file (a pipe, whose
    reader would see its end) is left to the writing."""
    from hwtune.errors import UsageError

    if output is None or (os.path.exists(output) and not os.path.isfile(output)):
        return
    try:
        os.close(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from None


def emit(content: str | bytes, output: str | None) -> None:
    """Print a report, or write it to the file that the user named."""
    from hwtune.errors import ToolError, UsageError

    if output is None:
        if sys.stdout is None:
            raise ToolError("standard output is closed: name a file with -o.")
        click.echo(content, nl=False)
        return
    from hwtune.cli.output import write_file

    try:
        write_file(output, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from None
