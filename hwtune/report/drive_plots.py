"""Pictures of a drive's reads: of characters for a terminal, and as coordinates for a page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from hwtune.drive.verdicts import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.drive.results import DriveReport

_HEIGHT = 4
_LABEL = 9


def strip(report: DriveReport, width: int) -> list[str]:
    """The longest stall of each span of time, on a logarithmic scale; below the axis where the period found
    says that stalls are due. [] without stalls."""
    seconds = report.phases[0].seconds if report.phases else 0.0
    if not report.stalls or seconds <= 0:
        return []
    columns = width - _LABEL - 2
    longest = [0.0] * columns
    for stall in report.stalls:
        at = min(int(stall.at_s / seconds * columns), columns - 1)
        longest[at] = max(longest[at], stall.us)
    levels = _levels(min(s.us for s in report.stalls), max(s.us for s in report.stalls))
    lines = []
    for level in reversed(levels):
        cells = "".join("#" if one >= level * 0.999 else " " for one in longest)
        lines.append(f"{duration(level):>{_LABEL}} |{cells}".rstrip())
    lines.append(" " * _LABEL + " +" + _marks(report, seconds, columns))
    end = f"{seconds:.3g} s"
    lines.append(" " * (_LABEL + 2) + "0 s" + end.rjust(columns - 3))
    return lines


def _levels(least: float, most: float) -> list[float]:
    """Evenly spaced in logarithm; one where all stalls are alike."""
    if most < 1.2 * least:
        return [least]
    step = (math.log(most) - math.log(least)) / _HEIGHT
    return [math.exp(math.log(least) + step * i) for i in range(_HEIGHT)]


def _marks(report: DriveReport, seconds: float, columns: int) -> str:
    axis = ["-"] * columns
    for at in due(report, seconds):
        axis[min(int(at / seconds * columns), columns - 1)] = "^"
    return (
        "".join(axis) if report.periodic and seconds / report.periodic.period_s <= columns else "-" * columns
    )


def due(report: DriveReport, seconds: float) -> list[float]:
    """When the period found says that stalls come, in seconds."""
    period = report.periodic
    if period is None:
        return []
    first = period.phase_s % period.period_s
    return [first + i * period.period_s for i in range(int((seconds - first) / period.period_s) + 1)]


# -- for a page ------------------------------------------------------------------------------------


class Axis(NamedTuple):
    """Ticks: (place, label)."""

    ticks: list[tuple[float, str]]


class Plot(NamedTuple):
    """``points``: places; ``path``: of an SVG polyline; ``lines``: places of vertical lines; all in a box
    of WIDTH times HEIGHT with y downwards."""

    points: list[tuple[float, float]]
    path: str
    lines: list[float]
    across: list[tuple[float, str]]
    up: list[tuple[float, str]]


WIDTH, HEIGHT = 760.0, 220.0
_MOST_LINES = 400


def over_time(report: DriveReport) -> Plot | None:
    """Stalls over time, with the period found."""
    seconds = report.phases[0].seconds if report.phases else 0.0
    if not report.stalls or seconds <= 0:
        return None
    scale = _Log([s.us for s in report.stalls])
    lines = [at / seconds * WIDTH for at in due(report, seconds)]
    return Plot(
        [(round(s.at_s / seconds * WIDTH, 2), scale(s.us)) for s in report.stalls],
        "",
        [round(x, 2) for x in lines] if len(lines) <= _MOST_LINES else [],
        [(round(i / 6 * WIDTH, 2), f"{i / 6 * seconds:.3g} s") for i in range(7)],
        scale.ticks(),
    )


def percentiles(report: DriveReport) -> Plot | None:
    """Latency against the share of reads that were no slower, in nines."""
    return curve_plot(report.curve)


def curve_plot(told: Sequence[tuple[float, float]]) -> Plot | None:
    """The same of any (share, us); None where there is no curve to draw."""
    curve = [(share, us) for share, us in told if us > 0]
    if len(curve) < 2:
        return None
    scale = _Log([us for _, us in curve])
    most = -math.log10(1 - curve[-2][0]) + 0.5

    def across(share: float) -> float:
        nines = -math.log10(1 - share) if share < 1 else most
        return round(nines / most * WIDTH, 2)

    shares = ((0.0, "min"), (0.5, "P50"), (0.9, "P90"), (0.99, "P99"), (0.999, "P99.9"), (0.9999, "P99.99"))
    points = [(across(share), scale(us)) for share, us in curve]
    return Plot(
        points,
        " ".join(f"{x},{y}" for x, y in points),
        [],
        [(across(s), name) for s, name in shares if s <= curve[-2][0]] + [(WIDTH, "max")],
        scale.ticks(),
    )


class _Log:
    """A logarithmic scale from below the least to above the greatest value."""

    def __init__(self, values: list[float]) -> None:
        self._low = math.floor(math.log10(min(values)) * 3) / 3
        self._high = max(math.ceil(math.log10(max(values)) * 3) / 3, self._low + 1 / 3)

    def __call__(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return round(HEIGHT * (1 - share), 2)

    def ticks(self) -> list[tuple[float, str]]:
        found = []
        for third in range(round(self._low * 3), round(self._high * 3) + 1):
            value = (1, 2, 5)[third % 3] * 10.0 ** (third // 3)
            if self._low <= math.log10(value) <= self._high:
                found.append((self(value), duration(value)))
        return found
