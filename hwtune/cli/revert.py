"""hwtune revert: put it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hwtune.cli.options import emit, need_output, output_option
from hwtune.errors import EXIT_FINDINGS, EXIT_OK, UsageError

if TYPE_CHECKING:
    from hwtune.changes.ledger import ChangeSet, Ledger
    from hwtune.changes.revert import WayBack


@click.command("revert")
@click.argument("set_id", metavar="[ID]", required=False)
@click.option("--all", "all_", is_flag=True, help="Every change set, the newest first.")
@click.option("--check", is_flag=True, help="Change nothing; say exactly what would be put back.")
@click.option("--diff", is_flag=True, help="Show the lines of files too.")
@click.option("--force", is_flag=True, help="Restore also what someone else has changed since.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--format", "format_", type=click.Choice(("text", "json")), default="text", show_default=True)
@output_option
def command(
    set_id: str | None,
    all_: bool,
    check: bool,
    diff: bool,
    force: bool,
    yes: bool,
    format_: str,
    output: str | None,
) -> int:
    """Put back the newest change set, the one called ID (`hwtune history`), or all of them."""
    from hwtune.changes.ledger import Ledger
    from hwtune.changes.revert import rehearse, revert_all
    from hwtune.cli import changing

    changing.need_root("revert changes")
    if set_id is not None and all_:
        raise UsageError("say an ID or --all, not both")
    need_output(output)
    journal, system = changing.the_journal(), changing.the_system()

    def chosen() -> list[ChangeSet]:
        return choose(Ledger(journal.records().records), set_id, all_, force)

    if check or not chosen():
        return _report(rehearse(chosen(), journal, system, force), diff, format_, output, check)
    with changing.opened(journal, "hwtune revert"):
        for sentence in journal.records().damaged:
            click.echo(f"hwtune: {sentence}; what stands before and after it is put back", err=True)
        sets = chosen()  # once more, now that nobody else can write it
        if not yes:
            plan = rehearse(sets, journal, system, force)
            click.echo(_text(plan, diff, check=True), nl=False, err=True)
        if not changing.confirm("Go ahead?", yes):
            click.echo("Nothing was changed.", err=True)
            return EXIT_OK
        back = revert_all(sets, journal, system, force)
    return _report(back, diff, format_, output, check)


def choose(ledger: Ledger, set_id: str | None, all_: bool, force: bool) -> list[ChangeSet]:
    """The sets to put back, the newest first."""
    active = list(reversed(ledger.active_sets()))
    if all_:
        return active
    if set_id is None:
        # one that is back but for what someone else changed is over, unless that is to be overridden
        return [s for s in active if force or not s.left_alone][:1]
    if set_id not in ledger.sets:
        from difflib import get_close_matches

        near = get_close_matches(set_id, list(ledger.sets), n=1)
        raise UsageError(f"there is no change set {set_id}" + (f"; did you mean {near[0]}?" if near else ""))
    return [s for s in active if s.id == set_id]


def _report(back: WayBack, diff: bool, format_: str, output: str | None, check: bool) -> int:
    if format_ == "json":
        from hwtune.report.changes import of_revert
        from hwtune.report.published import encode

        emit(encode(of_revert(back, check)), output)
    else:
        emit(_text(back, diff, check), output)
    return EXIT_OK if back.whole else EXIT_FINDINGS


def _text(back: WayBack, diff: bool, check: bool) -> str:
    from hwtune.cli.changing import file_lines
    from hwtune.report.clean import clean

    lines = []
    for reverted in back.sets:
        lines.append(reverted.set_id + ("" if reverted.whole else "   not whole"))
        for o in reverted.outcomes:
            word = "would" if check and o.status == "restored" else o.status
            reason = f"   ({o.reason})" if o.reason else ""
            lines.append(f"  {word:<11}{o.target}   {o.before} -> {o.after}{reason}")
        lines += [f"  {'problem':<11}{problem}" for problem in reverted.problems]
    lines += file_lines(back.files, back.commands, diff, check)
    if not back.sets:
        lines.append("There is nothing to revert.")
    if back.reboot_required:
        lines.append("Some of it takes effect at the next boot.")
    return "".join(clean(line) + "\n" for line in lines)
