"""hwtune nvme-latency: how evenly a drive answers, and what makes it stall."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from hwtune.cli.duration import seconds
from hwtune.cli.options import emit, output_option
from hwtune.errors import EXIT_FINDINGS, EXIT_OK, EXIT_TOOL

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwtune.report.drive_published import NvmeLatencyReport

_LEAST_S, _MOST_S = 2.0, 3600.0


@click.command("nvme-latency")
@click.argument("target", metavar="DEVICE|PATH")
@click.option("--duration", default="60s", show_default=True, help="How long to read: 20s, 5m.")
@click.option(
    "--rate",
    type=click.FloatRange(1, 20_000),
    metavar="N",
    help="Reads a second.  [default: what leaves the drive idle most of the time, 2000 at most]",
)
@click.option(
    "--writes", is_flag=True, help="Write into a file of its own meanwhile, as garbage needs writes."
)
@click.option("--cpu", type=click.IntRange(0), metavar="N", help="The CPU to read from.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(("text", "json", "html")),
    default="text",
    show_default=True,
    help="Report format.",
)
@output_option
def command(
    target: str,
    duration: str,
    rate: float | None,
    writes: bool,
    cpu: int | None,
    format_: str,
    output: str | None,
) -> int:
    """Measure how evenly a drive answers, whether it stalls in a rhythm, and what a rest costs.

    Reads blocks of 4 KiB from DEVICE (nvme0n1, /dev/disk/by-id/...), which is opened for reading only, or
    from a file without a name that it makes in the folder PATH. What the host itself delays is taken out.
    Exit status 1 when the drive is found to stall.
    """
    from hwtune.drive.run import Job, aside, load_native
    from hwtune.drive.target import locate
    from hwtune.host.live import LiveHost
    from hwtune.report import drive_published

    load_native()
    from hwtune import _native as native

    job = Job(locate(target), LiveHost())
    job.prepare(seconds(duration, "--duration", _LEAST_S, _MOST_S), rate, writes, cpu)
    _announce(job.announcement())
    started = time.time()
    report = aside(job, native.StopFlag(), _progress(job.planned.total_s))
    system = os.uname()
    published = drive_published.publish(report, system.nodename, system.release, started)
    emit(_document(format_, published, output), output)
    if any(f.severity == "warning" for f in report.findings):
        return EXIT_FINDINGS
    return EXIT_TOOL if report.untold else EXIT_OK


def _document(format_: str, report: NvmeLatencyReport, output: str | None) -> str | bytes:
    if format_ == "json":
        from hwtune.report.published import encode

        return encode(report)
    if format_ == "html":
        from hwtune.report import drive_html

        return drive_html.render(report)
    from hwtune.report import drive
    from hwtune.report.terminal import style_for

    return drive.render(report, style_for(output))


def _announce(text: str) -> None:
    """On stderr, as the report is what goes to stdout."""
    from hwtune.report.clean import clean
    from hwtune.report.layout import paragraph
    from hwtune.report.terminal import Style

    click.echo("\n".join([*paragraph(clean(text), 0, Style(80, False)), ""]), err=True)


def _progress(total_s: float) -> Callable[[str], None]:
    """The phase that begins, on a terminal: nothing is drawn while reads are timed."""
    if sys.stderr is None or not sys.stderr.isatty():
        return lambda phase: None
    began = time.monotonic()

    def tell(phase: str) -> None:
        click.echo(f"{time.monotonic() - began:5.0f} of {total_s:.0f} s   {phase}", err=True)

    return tell
