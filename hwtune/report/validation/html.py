"""validate's report as one self-contained page, as doctor's is (``hwtune.report.html``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.report.digest import moment
from hwtune.report.html import page
from hwtune.report.terminal import Style
from hwtune.report.validation import text
from hwtune.validate.reading import us
from hwtune.validate.results import LEVELS, NAMES
from hwtune.validate.run import END_TO_END

if TYPE_CHECKING:
    from hwtune.report.validation.published import About
    from hwtune.validate.results import Results

_WIDE = Style(10_000, False)  # the page wraps by itself


def render(results: Results, about: About) -> bytes:
    """The page, in UTF-8."""
    stages = {**results.stages, END_TO_END: results.end_to_end}
    return page(
        "validate.html.j2",
        about.hostname,
        about.kernel,
        moment(about.started),
        verdict=text.verdict(results),
        bad=results.sla.met is not True or results.worse or bool(results.run.failure),
        run=results.run,
        told=_told(text.run_lines(results, _WIDE)),
        placement=results.placement,
        levels=[NAMES[name] for name, _ in LEVELS],
        stages=[
            (name, stage, [text.cell(getattr(stage, f"{level}_us")) for level, _ in LEVELS])
            for name, stage in stages.items()
        ],
        cell=text.cell,
        us=us,
        entries=text.entries(results),
        attribution=results.attribution,
        outliers=results.outliers,
        readings=results.readings,
    )


def _told(lines: list[str]) -> list[str]:
    return [line.strip() for line in lines if line.strip()]
