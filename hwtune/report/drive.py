"""nvme-latency's report for a person: what was found and on what it rests, the numbers, stalls over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune import __version__
from hwtune.drive.verdicts import duration
from hwtune.report.clean import clean
from hwtune.report.digest import number
from hwtune.report.drive_plots import strip
from hwtune.report.layout import flow, paragraph

if TYPE_CHECKING:
    from hwtune.drive.results import DriveReport, Latency
    from hwtune.report.drive_published import NvmeLatencyReport
    from hwtune.report.terminal import Style

PHASES = {"quiet": "quiet", "writes": "beside writes", "after": "after writes"}
_HEAD, _CELL = 16, 10
_RESTS_HEAD = 12


def render(report: NvmeLatencyReport, style: Style) -> str:
    """The whole report, ending with a newline."""
    drive = report.drive
    lines = _headline(report, style)
    lines += [line for told in about(drive) for line in paragraph(clean(told), 0, style)]
    lines += ["", *_table(drive, style), ""]
    lines += _findings(drive, style)
    picture = strip(drive, style.width)
    if picture:
        lines += [
            style.paint(f"Stalls over time, the longest of each {_column(drive, style)}", "bold"),
            *picture,
        ]
        if drive.periodic is not None:
            lines.append("           ^ where the period found says that they come")
        lines.append("")
    lines += _rests(drive, style)
    lines += _rest(drive, style)
    return "\n".join(lines).rstrip("\n") + "\n"


def _column(drive: DriveReport, style: Style) -> str:
    return duration(1e6 * drive.phases[0].seconds / (style.width - 11))


def _headline(report: NvmeLatencyReport, style: Style) -> list[str]:
    parts = [f"hwtune {__version__}", clean(report.hostname or "unnamed machine")]
    parts.append(f"Linux {clean(report.kernel)}" if report.kernel else "kernel not known")
    parts.append(verdict(report.drive))
    return [style.paint(line, "bold") for line in flow(parts, style.width)]


def verdict(drive: DriveReport) -> str:
    """In a few words."""
    if drive.untold:
        return "cannot be told"
    warnings = sum(f.severity == "warning" for f in drive.findings)
    return number(warnings, "warning") if warnings else "nothing found"


def about(drive: DriveReport) -> list[str]:
    """What was measured and how, in sentences."""
    target, method = drive.target, drive.method
    name = target.name or target.path
    model = f" ({target.model})" if target.model else ""
    what = f"a file in {target.path} on {name}{model}" if target.kind == "file" else f"{target.path}{model}"
    how = "io_uring" if method.io_uring else "pread"
    told = [
        f"{what}: reads of {method.block_bytes:,} bytes, one at a time, {method.rate:,.0f} a second,"
        f" by {how} on"
        f" CPU {method.cpu}, {method.seconds:.0f} s in all."
    ]
    told += [f"Note: {note}." for note in (*target.notes, *drive.notes)]
    if method.interrupted:
        told.append("Interrupted: this is what was measured until then.")
    if drive.untold:
        told.append(f"No verdict: {drive.untold}.")
    return told


def _table(drive: DriveReport, style: Style) -> list[str]:
    titles = ("reads", "P50", "P90", "P99", "P99.9", "max")
    lines = [style.paint(f"{'':<{_HEAD}}" + "".join(f"{t:>{_CELL}}" for t in titles), "bold")]
    for phase in drive.phases:
        lines.append(_row(PHASES.get(phase.name, phase.name), phase.response))
        lines.append(_row("  without host", phase.drive))
        failed = f", {phase.failed:,} reads failed" if phase.failed else ""
        lines.append(
            f"  {number(phase.stalls, 'stall')} of the drive above {duration(drive.threshold_us)},"
            f" {phase.host_stalls:,} with the host's share{failed}"
        )
    for noise in drive.noise:
        where = "beside the reads" if noise.io else "without I/O"
        lines.append(
            f"  CPU {where}: taken {noise.stolen_pct:.2g} % of the time,"
            f" {noise.gaps / noise.seconds:,.0f} gaps a"
            f" second, longest {duration(noise.longest_us)}"
        )
    return [piece for line in lines for piece in (paragraph(line, 0, style, 4) if len(line) > 80 else [line])]


def _row(name: str, found: Latency) -> str:
    values = (found.p50_us, found.p90_us, found.p99_us, found.p999_us, found.max_us)
    cells = ["-" if v is None else duration(v) for v in values]
    return f"{name:<{_HEAD}}{found.count:>{_CELL},}" + "".join(f"{c:>{_CELL}}" for c in cells)


def _findings(drive: DriveReport, style: Style) -> list[str]:
    lines = []
    for finding in drive.findings:
        word = "WARNING" if finding.severity == "warning" else "NOTE"
        lines.append(f"{style.paint(word, finding.severity)}  {finding.kind}")
        lines += paragraph(clean(finding.says), 2, style)
        for clause in finding.rests_on:
            lines += paragraph(f"- {clean(clause)}", 4, style, 6)
        if finding.advice:
            lines += paragraph(clean(finding.advice), 2, style)
        lines.append("")
    if not drive.periodic and drive.not_periodic and not drive.untold:
        lines += [*paragraph(f"No period: {drive.not_periodic}.", 0, style), ""]
    return lines


def _rests(drive: DriveReport, style: Style) -> list[str]:
    if not drive.rests:
        return []
    lines = [style.paint(f"{'first read after a rest of':<28}{'times':>7}{'median':>10}{'max':>10}", "bold")]
    for rest in drive.rests:
        shown = duration(1000 * rest.rest_ms)
        lines.append(f"  {shown:<26}{rest.count:>7}{duration(rest.median_us):>10}{duration(rest.max_us):>10}")
    if drive.waking is None and not drive.untold:
        lines += paragraph("No cost of waking up that shows.", 2, style)
    return [*lines, ""]


def _rest(drive: DriveReport, style: Style) -> list[str]:
    lines = [line for told in drive.device for line in paragraph(clean(told), 0, style)]
    names = [phase.name for phase in drive.phases]
    if "writes" not in names:
        told = "Not looked at: whether writes make reads stall (garbage collection); --writes does."
        lines += paragraph(told, 0, style)
    return lines
