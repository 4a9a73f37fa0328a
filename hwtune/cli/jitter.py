"""hwtune jitter: how quiet is each CPU, and what disturbs it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from hwtune.cli.duration import seconds
from hwtune.cli.options import emit, output_option, profile_options
from hwtune.errors import EXIT_FINDINGS, EXIT_OK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hwtune.diagnosis.engine import RowResult
    from hwtune.jitter.measure import Measured
    from hwtune.jitter.plan import Plan
    from hwtune.jitter.results import CpuJitter, JitterReport
    from hwtune.model import Machine
    from hwtune.profile import Profile

_LEAST_S, _MOST_S = 0.1, 86_400.0


@click.command("jitter")
@profile_options
@click.option(
    "--cpus",
    metavar="LIST",
    help="CPUs to measure (`2,4-6`, `all`).  [default: those meant for hot threads, else all]",
)
@click.option(
    "--duration",
    default="10s",
    show_default=True,
    metavar="TIME",
    help="How long to measure each CPU: 10s, 5m, 1h.",
)
@click.option(
    "--threshold-ns",
    type=click.IntRange(1, 1_000_000_000),
    metavar="N",
    help="What counts as a gap.  [default: eight steps of the loop]",
)
@click.option("--one-by-one", is_flag=True, help="Measure one CPU after the other, not side by side.")
@click.option(
    "--wakeup",
    is_flag=True,
    help="Then measure how late timers wake a thread, as cyclictest does, for the same time.",
)
@click.option(
    "--format", "format_", type=click.Choice(("text", "json", "html")), default="text", show_default=True
)
@output_option
def command(
    profile: str,
    settings: tuple[str, ...],
    cpus: str | None,
    duration: str,
    threshold_ns: int | None,
    one_by_one: bool,
    wakeup: bool,
    format_: str,
    output: str | None,
) -> int:
    """Measure how long and how often each CPU is taken from a thread that never rests, and by whom.

    One loop a CPU reads the clock and keeps every gap. As root each gap gets its cause by name, from a trace
    of the kernel; else the kernel's counters tell what fired. Exit status 1 when a CPU is not fit for a hot
    thread by the profile's limits.
    """
    from hwtune.diagnosis.engine import probe
    from hwtune.host.live import LiveHost
    from hwtune.jitter.plan import announcement
    from hwtune.profile import load
    from hwtune.tracing import outlook

    asked_s = seconds(duration, "--duration", _LEAST_S, _MOST_S)
    targets = load(profile, settings)
    measure = _measure()
    machine, _ = probe(LiveHost())
    planned = _plan(machine, targets, cpus, asked_s, threshold_ns, one_by_one)
    _announce(announcement(planned, *outlook(planned.cpus)))
    from hwtune.jitter import wakeup as wakeups

    if wakeup:
        _announce(wakeups.announcement(planned.cpus, planned.duration_s))
    measured = measure(planned, _progress(planned))
    report = _report(measured, planned, machine, targets)
    if wakeup and not report.interrupted:
        report.wakeups, report.interrupted = wakeups.measure_wakeups(planned.cpus, planned.duration_s)
    if format_ == "json":
        from hwtune.report.published import encode

        emit(encode(report), output)
    elif format_ == "html":
        from hwtune.report.jitter_html import render as page

        emit(page(report), output)
    else:
        from hwtune.report.jitter import render
        from hwtune.report.terminal import style_for

        emit(render(report, style_for(output)), output)
    return EXIT_OK if report.fit else EXIT_FINDINGS


def _announce(text: str) -> None:
    """On stderr, as the report is what goes to stdout."""
    from hwtune.report.clean import clean
    from hwtune.report.layout import paragraph
    from hwtune.report.terminal import Style

    click.echo("\n".join([*paragraph(clean(text), 0, Style(80, False)), ""]), err=True)


def _measure() -> Callable[[Plan, Callable[[float], None]], Measured]:
    try:
        from hwtune.jitter.measure import measure
    except ImportError as error:
        from hwtune.errors import ToolError

        raise ToolError(
            f"jitter needs hwtune's native module, which cannot be loaded ({error}); install a C++ compiler "
            "and Python's headers, then hwtune again"
        ) from None
    return measure


def _plan(
    machine: Machine,
    targets: Profile,
    cpus: str | None,
    duration: float,
    threshold_ns: int | None,
    one_by_one: bool,
) -> Plan:
    from hwtune.jitter.plan import plan
    from hwtune.model.intent import hot_cpus
    from hwtune.validate.surroundings import settable

    online = machine.cpus.online.value or sorted(os.sched_getaffinity(0))
    hot = hot_cpus(machine, targets)
    return plan(cpus, duration, threshold_ns, one_by_one, hot.value or [], settable(online))


def _progress(planned: Plan) -> Callable[[float], None]:
    """A line that counts the seconds, on a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        return lambda elapsed: None
    shown = -1

    def tell(elapsed: float) -> None:
        nonlocal shown
        if int(elapsed) != shown:
            shown = int(elapsed)
            text = f"\r{min(shown, int(planned.total_s))} of {planned.total_s:g} s"
            end = "\r\x1b[K" if elapsed >= planned.total_s else ""
            click.echo(text + end, nl=False, err=True)

    return tell


def _report(measured: Measured, planned: Plan, machine: Machine, targets: Profile) -> JitterReport:
    from hwtune import __version__
    from hwtune.jitter.analysis import analyse, rows_to_see
    from hwtune.jitter.results import FIT, ClockInfo, JitterReport, TraceInfo
    from hwtune.report.digest import moment
    from hwtune.report.published import SCHEMA_VERSION, Tool

    virtual = machine.virtualization.is_guest
    cpus = analyse(measured, targets.jitter, virtual)
    clock = measured.clock
    recording = measured.recording
    return JitterReport(
        schema_version=SCHEMA_VERSION,
        tool=Tool("hwtune", __version__),
        hostname=machine.kernel.hostname.value,
        kernel=machine.kernel.release.value,
        captured_at=moment(measured.started),
        profile=targets.name,
        virtual=virtual,
        duration_s=planned.duration_s,
        one_by_one=planned.one_by_one,
        interrupted=measured.interrupted,
        gap_max_us=targets.jitter.gap_max_us,
        stolen_max_pct=targets.jitter.stolen_max_pct,
        fit=bool(cpus) and all(cpu.verdict == FIT for cpu in cpus),
        clock=ClockInfo(clock.source, clock.why, clock.cost_ns, clock.step_ns),
        trace=TraceInfo(recording.traced, recording.why, recording.notes),
        cpus=cpus,
        rows=rows_to_see(cpus, _judged(cpus, machine, targets), targets.jitter.gap_max_us),
        wakeups=[],
        not_counted=list(recording.counted.missing),
    )


def _judged(cpus: Iterable[CpuJitter], machine: Machine, targets: Profile) -> list[RowResult]:
    """What the rows that the causes point at say of this machine."""
    from hwtune.diagnosis.engine import judge
    from hwtune.diagnosis.table import table

    named = {row for cpu in cpus for culprit in cpu.causes for row in culprit.rows}
    return judge(machine, [row for row in table() if row.id in named], targets).results
