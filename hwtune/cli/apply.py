"""hwtune apply: mend what doctor found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hwtune.cli.options import emit, output_option, profile_options
from hwtune.errors import EXIT_FINDINGS, EXIT_OK, UsageError

if TYPE_CHECKING:
    from hwtune.changes.apply import Applied
    from hwtune.changes.plan import Plan

ALLOWED = ("boot", "service", "link")


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
@click.option("--diff", is_flag=True, help="Show old and new values, and the files.")
@click.option("--runtime-only", is_flag=True, help="Set values now; keep nothing across a boot.")
@click.option(
    "--allow",
    callback=_allow,
    metavar="LIST",
    help="Permit what disrupts: boot (takes a reboot), service (a restart), link (a NIC reset).",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
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
    format_: str,
    output: str | None,
) -> int:
    """Mend what doctor finds, so that `hwtune revert` can put everything back.

    Each change is written to the journal, with the value before it, and is on the disk before the
    change is made. A second apply finds nothing to do.
    """
    from hwtune.changes.apply import apply
    from hwtune.changes.ledger import Ledger
    from hwtune.changes.plan import make_plan
    from hwtune.changes.system import System
    from hwtune.cli.changing import confirm, need_root, opened, the_journal
    from hwtune.diagnosis.engine import judge, probe
    from hwtune.diagnosis.table import choose, table
    from hwtune.profile import load

    targets = load(profile, settings)
    rows = choose([r for r in table() if not r.active], only, skip)
    need_root("apply changes")
    system, journal = System(), the_journal()
    machine, defects = probe(system.host)
    results = judge(machine, rows, targets, defects).results
    line = " ".join(_command_line())

    def planned() -> Plan:
        return make_plan(results, system, Ledger(journal.records()[0]), allow, runtime_only)

    if check:
        return _report_plan(planned(), diff, format_, output)
    with opened(journal, line):
        plan = planned()
        if plan.to_do():
            if not yes or (diff and format_ == "text"):
                click.echo(_plan_text(plan, diff), nl=False, err=format_ != "text")
            if not confirm(f"Make {_count(len(plan.to_do()), 'change')}?", yes):
                click.echo("Nothing was changed.", err=True)
                return EXIT_OK
        applied = apply(plan, journal, system, line)
    return _report_applied(applied, format_, output)


def _command_line() -> list[str]:
    import sys

    return ["hwtune", *sys.argv[1:]]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _report_plan(plan: Plan, diff: bool, format_: str, output: str | None) -> int:
    if format_ == "json":
        emit(_encode(_plan_json(plan)), output)
    else:
        emit(_plan_text(plan, diff), output)
    return EXIT_OK if all(c.status in ("to-do", "in-force") for c in plan.changes) else EXIT_FINDINGS


def _plan_json(plan: Plan) -> dict[str, Any]:
    from hwtune.changes.apply import planned_outcome

    return {
        "changed": bool(plan.to_do()),
        "check": True,
        "set": None,
        "changes": [planned_outcome(c) for c in plan.changes],
        "problems": [],
        "reboot_required": any(c.change.scope == "boot" for c in plan.to_do()),
    }


def _plan_text(plan: Plan, diff: bool) -> str:
    from hwtune.report.clean import clean

    lines = []
    for change in plan.changes:
        word = {"to-do": "would", "in-force": "is so", "not-allowed": "not allowed", "impossible": "cannot"}
        reason = f"   ({change.reason})" if change.reason and change.status != "in-force" else ""
        lines.append(clean(f"{word[change.status]:<12}{change.description}{reason}"))
        lines.append(clean(f"{'':<12}for {', '.join(change.rows)}"))
        if diff and change.status == "to-do":
            for target in change.targets:
                if target.differs:
                    lines.append(clean(f"{'':<12}  {target.target.key.partition(' ')[2]}"))
                    lines.append(clean(f"{'':<12}  - {target.target.show(target.before)}"))
                    lines.append(clean(f"{'':<12}  + {target.target.show(target.after)}"))
            for item in change.items:
                lines.append(clean(f"{'':<12}  kept across boots by {item.store}: {item.key} = {item.value}"))
    todo = len(plan.to_do())
    lines.append(_count(todo, "change") + " to make." if todo else "Nothing to change.")
    return "\n".join(lines) + "\n"


def _report_applied(applied: Applied, format_: str, output: str | None) -> int:
    failed = [o for o in applied.outcomes if o.status in ("failed", "not-allowed")]
    if format_ == "json":
        emit(
            _encode(
                {
                    "changed": applied.changed,
                    "check": False,
                    "set": applied.set_id,
                    "changes": applied.outcomes,
                    "problems": applied.problems,
                    "reboot_required": applied.reboot_required,
                }
            ),
            output,
        )
    else:
        emit(_applied_text(applied), output)
    return EXIT_FINDINGS if failed or applied.problems else EXIT_OK


def _applied_text(applied: Applied) -> str:
    from hwtune.report.clean import clean

    lines = []
    for outcome in applied.outcomes:
        if outcome.status == "unchanged":
            continue
        change = f"   {outcome.before} -> {outcome.after}" if outcome.before or outcome.after else ""
        reason = f"   ({outcome.reason})" if outcome.reason else ""
        lines.append(clean(f"{outcome.status:<12}{outcome.target}{change}{reason}"))
    lines += [clean(f"problem     {problem}") for problem in applied.problems]
    if applied.set_id is None:
        lines.append("Nothing to change.")
    else:
        lines.append(f"Change set {applied.set_id}; `hwtune revert {applied.set_id}` puts it back.")
    if applied.reboot_required:
        lines.append("Some of it takes effect at the next boot.")
    return "\n".join(lines) + "\n"


def _encode(value: Any) -> bytes:
    from hwtune.report.published import encode

    return encode({"schema_version": "1", **value})
