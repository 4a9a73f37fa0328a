"""jitter's report as one self-contained page, as doctor's is (``hwtune.report.html``)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hwtune.jitter.analysis import time
from hwtune.jitter.results import FIT
from hwtune.report import drive_plots as plots
from hwtune.report.html import page
from hwtune.tracing import title

if TYPE_CHECKING:
    from hwtune.jitter.results import CpuJitter, JitterReport

# Of a slice of time: what is stolen of it, from a millionth to all.
_DECADES = 6


def heat(stolen_ns: int, slice_ns: float) -> float:
    """How much of a slice was stolen, from 0 (under a millionth) to 1 (all), by decades."""
    if stolen_ns <= 0 or slice_ns <= 0:
        return 0.0
    return round(min(max(1 + math.log10(stolen_ns / slice_ns) / _DECADES, 0.0), 1.0), 3)


def strip(cpu: CpuJitter) -> list[float]:
    slices = len(cpu.over_time_ns)
    return [heat(ns, cpu.observed_ns / slices) for ns in cpu.over_time_ns]


def render(report: JitterReport) -> bytes:
    """The page, in UTF-8."""
    fit = sum(cpu.verdict == FIT for cpu in report.cpus)
    return page(
        "jitter.html.j2",
        report.hostname,
        report.kernel,
        report.captured_at,
        report=report,
        verdict=f"{fit} of {len(report.cpus)} CPUs fit for a hot thread",
        duration=time,
        cell=lambda ns: "-" if ns is None else time(ns),
        title=title,
        strips=[(cpu, strip(cpu)) for cpu in report.cpus],
        curves=[
            (cpu, plots.curve_plot([(share, ns / 1000) for share, ns in cpu.curve])) for cpu in report.cpus
        ],
        width=plots.WIDTH,
        height=plots.HEIGHT,
    )
