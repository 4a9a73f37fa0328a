"""hwtune apply: mend what doctor found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hwtune.cli.options import emit, need_output, output_option, profile_options
from hwtune.errors import EXIT_FINDINGS, EXIT_OK, ToolError, UsageError

if TYPE_CHECKING:
    from hwtune.changes.apply import Applied, Outcome
    from hwtune.changes.plan import Plan
    from hwtune.validate.before_after import BeforeAfter
    from hwtune.validate.run import Run

ALLOWED = ("boot", "service", "link")
EXPORTS = ("script", "sysctl", "tuned", "ansible")


def _allow(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    words = tuple(w.strip() for w in (value or "").split(",") if w.strip())
    for word in words:
        if word not in ALLOWED:
            raise UsageError(f"--allow takes {', '.join(ALLOWED)}, not {word!r}")
    return words


@click.command("apply")
@profile_options
@click.option("--only", multiple=True, metavar="GLOB", help="Mend only findings of rows that match.")
@click.option("--skip", multiple=True, metavar="GLOB", help="Leave out rows that match.")
@click.option("--check", is_flag=True, help="Change nothing; say exactly what would be done.")
@click.option("--diff", is_flag=True, help="Show old and new values, and the lines of files.")
@click.option("--runtime-only", is_flag=True, help="Set values now; keep nothing across a boot.")
@click.option(
    "--allow",
    callback=_allow,
    metavar="LIST",
    help="Permit what disrupts: boot (takes a reboot), service (a restart), link (a NIC reset).",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--validate",
    is_flag=True,
    help="Measure before and after, ten seconds each, whether P99 got better or worse.",
)
@click.option(
    "--export",
    "export_",
    type=click.Choice(EXPORTS),
    help="Change nothing; write the plan for another tool to carry out.",
)
@click.option("--format", "format_", type=click.Choice(("text", "json")), default="text", show_default=True)
@output_option
def command(
    profile: str,
    settings: tuple[str, ...],
    only: tuple[str, ...],
    skip: tuple[str, ...],
    check: bool,
    diff: bool,
    runtime_only: bool,
    allow: tuple[str, ...],
    yes: bool,
    validate: bool,
    export_: str | None,
    format_: str,
    output: str | None,
) -> int:
    """Mend what doctor finds, so that `hwtune revert` can put everything back.

    Each change is written to the journal, with the value before it, and is on the disk before the
    change is made. A second apply finds nothing to do.
    """
    from hwtune.changes.apply import apply, rehearse
    from hwtune.changes.ledger import Ledger
    from hwtune.changes.plan import make_plan
    from hwtune.cli import changing
    from hwtune.diagnosis.engine import judge, probe
    from hwtune.diagnosis.table import choose, table
    from hwtune.profile import load

    if validate and (check or export_ is not None):
        raise UsageError("--validate measures what was changed; --check and --export change nothing")
    targets = load(profile, settings)
    rows = choose([r for r in table() if not r.active], only, skip)
    changing.need_root("apply changes")
    need_output(output)
    system, journal = changing.the_system(), changing.the_journal()
    machine, defects = probe(system.host)
    results = judge(machine, rows, targets, defects).results
    line = " ".join(_command_line())

    def planned() -> Plan:
        changing.need_whole_journal(journal)
        return make_plan(results, system, Ledger(journal.records().records), allow, runtime_only)

    if export_ is not None:
        from hwtune.changes.export import export

        emit(export(export_, planned()), output)
        return EXIT_OK
    if check:
        return _report(rehearse(planned(), journal, system), diff, format_, output, check=True)
    with changing.opened(journal, line):
        plan = planned()
        if not plan.idle and (not yes or (diff and format_ == "text")):
            click.echo(_text(rehearse(plan, journal, system), diff, check=True), nl=False, err=True)
        if not plan.idle and not changing.confirm("Go ahead?", yes):
            click.echo("Nothing was changed.", err=True)
            return EXIT_OK
        before = _measured("before") if validate and not plan.idle else None
        applied = apply(plan, journal, system, line)
        measured, problem = _compared(before) if applied.changed else (None, "")
        if problem:
            applied.problems.append(problem)
    return _report(applied, diff and not yes, format_, output, check=False, measured=measured)


def _measured(when: str) -> Run:
    """Raises ``ToolError``; before a change, nothing was touched yet."""
    from hwtune.cli.progress import progress
    from hwtune.validate.before_after import DURATION_S, run_once

    with progress(DURATION_S) as shown:
        run = run_once(shown)
    if run.failure:
        raise ToolError(f"the run {when} the change failed: {run.failure}")
    if when == "before" and run.interrupted:
        raise ToolError("the run before the change was interrupted; nothing was changed")
    return run


def _compared(before: Run | None) -> tuple[BeforeAfter | None, str]:
    """The comparison, or why there is none: what was applied is told all the same."""
    if before is None:
        return None, ""
    from hwtune.validate.before_after import compare

    try:
        return compare(before, _measured("after")), ""
    except ToolError as error:
        return None, f"validate: {error}"


def _command_line() -> list[str]:
    import sys

    return ["hwtune", *sys.argv[1:]]


def _report(
    applied: Applied,
    diff: bool,
    format_: str,
    output: str | None,
    check: bool,
    measured: BeforeAfter | None = None,
) -> int:
    if format_ == "json":
        from hwtune.report.changes import of_apply
        from hwtune.report.published import encode

        emit(encode(of_apply(applied, check, measured)), output)
    else:
        emit(_text(applied, diff, check, measured), output)
    worse = measured is not None and measured.verdict == "worse"
    return EXIT_OK if applied.whole and not worse else EXIT_FINDINGS


_WORDS = {"planned": "would", "not-allowed": "not allowed"}


def _text(applied: Applied, diff: bool, check: bool, measured: BeforeAfter | None = None) -> str:
    from hwtune.cli.changing import count, file_lines
    from hwtune.report.clean import clean

    lines = []
    for outcome in applied.outcomes:
        if outcome.status != "unchanged" or check:
            lines += _outcome_lines(outcome, diff, check)
    lines += file_lines(applied.files, applied.commands, diff, check)
    lines += [f"{'problem':<12}{problem}" for problem in applied.problems]
    changed = sum(o.status in ("planned", "changed") for o in applied.outcomes)
    if not applied.changed:
        word = "to change" if applied.whole else "would be changed" if check else "was changed"
        lines.append(f"Nothing {word}.")
    elif check:
        lines.append(f"{count(changed, 'change')} to make.")
    elif not changed and not applied.files:
        lines.append("What an interrupted run had left undone, or someone has undone, is done.")
    else:
        lines.append(f"Change set {applied.set_id}; `hwtune revert {applied.set_id}` puts it back.")
    if applied.reboot_required:
        lines.append("Some of it takes effect at the next boot.")
    if measured is not None:
        lines += _measured_lines(measured)
    return "".join(clean(line) + "\n" for line in lines)


def _outcome_lines(outcome: Outcome, diff: bool, check: bool) -> list[str]:
    word = "is so" if outcome.status == "unchanged" else _WORDS.get(outcome.status, outcome.status)
    values = f"   {outcome.before} -> {outcome.after}" if outcome.before or outcome.after else ""
    told = outcome.status not in ("unchanged", "not-allowed") and not (diff and check)
    takes = f"   (takes a {outcome.disruption})" if outcome.disruption and outcome.status == "planned" else ""
    reason = f"   ({outcome.reason})" if outcome.reason and outcome.status != "unchanged" else ""
    lines = [f"{word:<12}{outcome.description}{values if told else ''}{takes}{reason}"]
    if check:
        lines.append(f"{'':<12}for {', '.join(outcome.rows)}")
    if diff and check and values and outcome.status == "planned":
        lines += [f"{'':<12}  - {outcome.before}", f"{'':<12}  + {outcome.after}"]
    return lines


def _measured_lines(found: BeforeAfter) -> list[str]:
    before, after = ("lost" if us is None else f"{us:,.1f} us" for us in (found.before_us, found.after_us))
    line = f"P99 end to end: {before} before, {after} after"
    if found.change_pct is not None:
        line += f", {found.change_pct:+.0f} %"
    if found.low_pct is not None and found.high_pct is not None:
        line += f" (95 % interval {found.low_pct:+.0f} to {found.high_pct:+.0f} %)"
    verdict = f"{found.verdict} by more than {found.limit_pct:g} %"
    lines = [f"{line}: {found.verdict if found.verdict == 'cannot be told' else verdict}."]
    return lines + [f"  {note}" for note in (found.why, *found.differs) if note]
