"""nvme-latency's report as one self-contained page, as doctor's is (``hwtune.report.html``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.drive.verdicts import duration
from hwtune.report import drive as text
from hwtune.report import drive_plots as plots
from hwtune.report.html import page

if TYPE_CHECKING:
    from hwtune.report.drive_published import NvmeLatencyReport


def render(report: NvmeLatencyReport) -> bytes:
    """The page, in UTF-8."""
    drive = report.drive
    return page(
        "drive.html.j2",
        report.hostname,
        report.kernel,
        report.captured_at,
        verdict=text.verdict(drive),
        bad=bool(drive.untold) or any(f.severity == "warning" for f in drive.findings),
        about=text.about(drive),
        drive=drive,
        names=text.PHASES,
        cell=lambda value: "-" if value is None else duration(value),
        duration=duration,
        curve=plots.percentiles(drive),
        over_time=plots.over_time(drive),
        width=plots.WIDTH,
        height=plots.HEIGHT,
    )
