"""doctor's report as one self-contained page: to mail, to keep, to hang beside a machine's record.

It loads nothing and runs nothing (and its Content-Security-Policy forbids both), so it opens the same
from a mail, a file share or a CI artefact. Names in it come from machines that may be hostile: the
template escapes every value, and ``clean`` shows what cannot be printed.
"""

from __future__ import annotations

from re import search, split
from typing import TYPE_CHECKING, Any

from hwtune import __version__
from hwtune.diagnosis.verdict import INFO, NOT_APPLICABLE, OK, SEVERITIES
from hwtune.report.box import picture
from hwtune.report.clean import clean
from hwtune.report.digest import common_fix, fix_of, moment, outcomes, tally, unread, unread_title
from hwtune.report.rows import MENDED

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jinja2
    from markupsafe import Markup

    from hwtune.diagnosis.engine import Diagnosis, RowResult
    from hwtune.diagnosis.row import Row
    from hwtune.host.base import Host
    from hwtune.profile import Profile

_TITLES = {"error": "Errors", "warning": "Warnings", INFO: "To note"}


def render(
    diagnosis: Diagnosis, host: Host, profile: Profile, rows: Sequence[Row], verbose: bool = False
) -> bytes:
    """The page, in UTF-8. ``rows``: those that were judged, for what each asks and why.
    ``verbose``: with its lists unfolded."""
    kernel = diagnosis.machine.kernel
    nodes = picture(diagnosis.machine, profile)
    page = (
        environment()
        .get_template("doctor.html.j2")
        .render(
            version=__version__,
            hostname=kernel.hostname.value or "unnamed machine",
            kernel=kernel.release.value,
            profile=profile.name,
            live=host.kind == "live",
            origin=host.origin,
            time=(moment(host.captured_at) or "").removesuffix("+00:00"),
            warnings=getattr(host, "warnings", []),
            tally=tally(diagnosis),
            outcomes=outcomes(diagnosis),
            nodes=nodes,
            columns=[
                any(n.cpus for n in nodes),
                any(n.isolated for n in nodes),
                any(n.memory for n in nodes),
            ],
            defects=diagnosis.defects,
            severities=_severities(diagnosis),
            unread=unread(diagnosis),
            unread_title=unread_title(diagnosis),
            quiet=_quiet(diagnosis),
            about={row.id: row for row in rows},
            mended=MENDED,
            fix_of=fix_of,
            verbose=verbose,
        )
    )
    return page.encode()


def page(template: str, hostname: str | None, kernel: str | None, at: str | None, **values: Any) -> bytes:
    """A page in UTF-8. All have the head of one report: tool, machine, and when (``at``, ISO 8601, UTC)."""
    text = (
        environment()
        .get_template(template)
        .render(
            version=__version__,
            hostname=hostname or "unnamed machine",
            kernel=kernel,
            time=(at or "").removesuffix("+00:00"),
            **values,
        )
    )
    return text.encode()


def environment() -> jinja2.Environment:
    """That of all pages: every value is escaped, and a name that is not there is an error."""
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("hwtune", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
        finalize=_shown,
    )
    found.filters["soft"] = _soft
    return found


def _shown(value: Any) -> Any:
    """What the template prints, before it is escaped. Markup (what a macro of the template made) has
    been here already, piece by piece."""
    return clean(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _soft(text: str) -> Markup:
    """Text that wraps after slashes and commas rather than amid a name or a range of CPUs, and is
    copied as it was."""
    from markupsafe import Markup

    return Markup(" ").join(
        Markup("<wbr>").join(
            Markup("<span>{}</span>").format(piece) if search("[0-9]-[0-9]", piece) else piece
            for piece in split("(?<=[/,])", word)
        )
        for word in clean(text).split(" ")
    )


def _severities(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """The severities that anything has, the worst first, each with its rows and their findings."""
    found = []
    for severity in reversed(SEVERITIES):
        rows = [
            {"result": result, "findings": findings, "common": common_fix(findings)}
            for result in diagnosis.results
            if (findings := [f for f in result.findings if f.severity == severity])
        ]
        if rows:
            found.append({"name": severity, "title": _TITLES[severity], "rows": rows})
    return found


def _quiet(diagnosis: Diagnosis) -> list[tuple[str, list[RowResult]]]:
    """What asks nothing of the reader, by outcome."""
    titles = {OK: "Ok", NOT_APPLICABLE: "Not applicable"}
    groups = [
        (title, [r for r in diagnosis.results if r.outcome == outcome]) for outcome, title in titles.items()
    ]
    return [(title, results) for title, results in groups if results]
