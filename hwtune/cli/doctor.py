"""hwtune doctor: the main job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hwtune.cli.options import emit, open_host, output_option, profile_options, snapshot_option
from hwtune.errors import EXIT_FINDINGS, EXIT_OK, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.diagnosis.engine import Diagnosis
    from hwtune.diagnosis.row import Row
    from hwtune.host.base import Host
    from hwtune.profile import Profile

FAIL_ON = ("info", "warning", "error", "never")
FORMATS = ("text", "json", "junit", "prometheus", "html")


@click.command("doctor")
@profile_options
@snapshot_option
@click.option(
    "--only", multiple=True, metavar="GLOB", help="Judge only rows that match (`pcie.*`); may be repeated."
)
@click.option("--skip", multiple=True, metavar="GLOB", help="Leave out rows that match; may be repeated.")
@click.option(
    "--active",
    is_flag=True,
    help="Measure too: each NVMe drive is read for some 20 s, all within a minute.",
)
@click.option(
    "--fail-on",
    type=click.Choice(FAIL_ON),
    default="warning",
    show_default=True,
    help="Exit with 1 when there is a finding of this severity or a higher one.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="Report format.",
)
@click.option("-v", "--verbose", is_flag=True, help="Name every row, the good ones and the unknown ones too.")
@output_option
def command(
    profile: str,
    settings: tuple[str, ...],
    snapshot: str | None,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    active: bool,
    fail_on: str,
    format_: str,
    verbose: bool,
    output: str | None,
) -> int:
    """Find what makes the latency tail long on this machine, or on a captured one.

    Reads only, needs no root (what it may not read it reports as unknown), takes seconds; with --active a
    minute, in which it writes nothing either.
    """
    from hwtune.diagnosis.engine import judge, probe
    from hwtune.diagnosis.table import choose, table
    from hwtune.profile import load

    targets = load(profile, settings)
    rows = choose(table(), only, skip)
    if active and snapshot is not None:
        raise UsageError("--active measures this machine; a snapshot can only be read.")
    host = open_host(snapshot)
    if active and any(row.active or row.measures for row in rows):
        host.active = True
        host.asked = frozenset(row.id for row in rows if row.active or row.measures)
        _announce(host.asked)
    machine, defects = probe(host)
    diagnosis = judge(machine, rows, targets, defects)
    if format_ == "text":
        from hwtune.report import text
        from hwtune.report.terminal import style_for

        emit(text.render(diagnosis, host, targets, style_for(output), verbose), output)
    else:
        emit(_document(format_, diagnosis, host, targets, rows, fail_on, verbose), output)
    return _status(diagnosis, fail_on)


_DOES = {
    "nvme.latency-jitter": "Reads each NVMe drive in blocks of 4 KiB, at most 2000 times a second, for\n"
    "some 26 s, all drives within a minute; one CPU a drive is fully busy meanwhile.\n",
    "numa.buggy-topology": "Reads memory of its own (64 to 512 MiB) from each node's CPUs, one thread at\n"
    "a time, for at most 20 s.\n",
}


def _announce(asked: frozenset[str]) -> None:
    """On stderr, as the report is what goes to stdout."""
    what = "".join(text for id, text in _DOES.items() if id in asked)
    click.echo(f"{what}Writes nothing. Ctrl-C ends it, and the report follows.\n", err=True)


def _document(
    format_: str,
    diagnosis: Diagnosis,
    host: Host,
    profile: Profile,
    rows: Sequence[Row],
    fail_on: str,
    verbose: bool,
) -> bytes:
    """The report for a program or a browser. Each format is imported when it is asked for."""
    if format_ == "json":
        from hwtune.report import published

        return published.encode(published.publish(diagnosis, host, profile))
    if format_ == "junit":
        from hwtune.report import junit

        return junit.render(diagnosis, host, profile, fail_on)
    if format_ == "prometheus":
        from hwtune.report import prometheus

        return prometheus.render(diagnosis, host, profile)
    from hwtune.report import html

    return html.render(diagnosis, host, profile, rows, verbose)


def _status(diagnosis: Diagnosis, fail_on: str) -> int:
    worst = diagnosis.worst()
    if fail_on == "never" or worst is None or FAIL_ON.index(worst) < FAIL_ON.index(fail_on):
        return EXIT_OK
    return EXIT_FINDINGS
