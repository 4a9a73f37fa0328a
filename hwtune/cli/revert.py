"""hwtune revert: put it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hwtune.cli.options import emit, output_option
from hwtune.errors import EXIT_FINDINGS, EXIT_OK, UsageError

if TYPE_CHECKING:
    from hwtune.changes.ledger import ChangeSet, Ledger
    from hwtune.changes.revert import Reverted


@click.command("revert")
@click.argument("set_id", metavar="[ID]", required=False)
@click.option("--all", "all_", is_flag=True, help="Every change set, the newest first.")
@click.option("--check", is_flag=True, help="Change nothing; say which sets would be put back.")
@click.option("--force", is_flag=True, help="Restore also what someone else has changed since.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--format", "format_", type=click.Choice(("text", "json")), default="text", show_default=True)
@output_option
def command(
    set_id: str | None,
    all_: bool,
    check: bool,
    force: bool,
    yes: bool,
    format_: str,
    output: str | None,
) -> int:
    """Put back the newest change set, the one called ID (`hwtune history`), or all of them."""
    from hwtune.changes.ledger import Ledger
    from hwtune.changes.revert import revert
    from hwtune.changes.system import System
    from hwtune.cli.changing import confirm, need_root, opened, the_journal

    need_root("revert changes")
    if set_id is not None and all_:
        raise UsageError("say an ID or --all, not both")
    journal, system = the_journal(), System()
    chosen = _choose(Ledger(journal.records()[0]), set_id, all_)
    if not chosen:
        emit("There is nothing to revert.\n", output)
        return EXIT_OK
    if check:
        emit("".join(f"would revert {s.id} of {s.time}: {s.command}\n" for s in chosen), output)
        return EXIT_OK
    if not confirm(f"Revert {', '.join(s.id for s in chosen)}?", yes):
        return EXIT_OK
    with opened(journal, "revert"):
        # once more, now that nobody else can write it
        chosen = _choose(Ledger(journal.records()[0]), set_id, all_)
        done = [revert(s, journal, system, force) for s in chosen]
    _report(done, format_, output)
    return EXIT_OK if all(r.whole for r in done) else EXIT_FINDINGS


def _choose(ledger: Ledger, set_id: str | None, all_: bool) -> list[ChangeSet]:
    active = list(reversed(ledger.active_sets()))
    if all_:
        return active
    if set_id is None:
        return active[:1]
    if set_id not in ledger.sets:
        from difflib import get_close_matches

        near = get_close_matches(set_id, list(ledger.sets), n=1)
        raise UsageError(f"there is no change set {set_id}" + (f"; did you mean {near[0]}?" if near else ""))
    return [s for s in active if s.id == set_id]


def _report(done: list[Reverted], format_: str, output: str | None) -> None:
    from hwtune.report.clean import clean
    from hwtune.report.published import encode

    if format_ == "json":
        emit(encode({"schema_version": "1", "changed": True, "sets": done}), output)
        return
    lines = []
    for reverted in done:
        lines.append(f"{reverted.set_id}" + ("" if reverted.whole else "   not whole"))
        for o in reverted.outcomes:
            reason = f"   ({o.reason})" if o.reason else ""
            lines.append(f"  {o.status:<11}{o.target.partition(' ')[2]}   {o.before} -> {o.after}{reason}")
        lines += [f"  problem    {problem}" for problem in reverted.problems]
    emit("\n".join(map(clean, lines)) + "\n", output)
