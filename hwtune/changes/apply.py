"""Carry out a plan: each change written down before it is made, alone in its failure."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import msgspec

from hwtune import __version__
from hwtune.changes.ledger import INTENDED, RESTORING
from hwtune.changes.persist import irqbalance
from hwtune.changes.plan import TO_DO
from hwtune.changes.run import Rehearsal, Run
from hwtune.changes.system import ChangeError
from hwtune.changes.targets import from_key
from hwtune.changes.upkeep import keep, release

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.changes.journal import Journal
    from hwtune.changes.ledger import ChangeSet, Entry
    from hwtune.changes.plan import Plan, PlannedChange
    from hwtune.changes.run import Written
    from hwtune.changes.stores import Item
    from hwtune.changes.system import System


class Outcome(msgspec.Struct):
    """What became of one change. ``target`` names what it is about ("sysctl:vm.swappiness"), the
    same on every run; ``before`` and ``after`` are for a person; ``status`` is planned (by --check),
    changed, unchanged, failed or not-allowed."""

    id: str
    kind: str
    target: str
    description: str
    rows: list[str]
    before: str
    after: str
    status: str
    reason: str = ""
    disruption: str = ""
    reboot_required: bool = False


class Applied(msgspec.Struct):
    """``files``: what was written for settings to last; ``commands``: what was run so that the system
    takes notice. Of a rehearsal, what would be."""

    set_id: str | None
    outcomes: list[Outcome]
    problems: list[str]
    files: list[Written] = []
    commands: list[str] = []

    @property
    def changed(self) -> bool:
        return bool(self.files or self.commands) or any(
            o.status in ("changed", "planned") for o in self.outcomes
        )

    @property
    def reboot_required(self) -> bool:
        return any(o.status in ("changed", "planned") and o.reboot_required for o in self.outcomes)

    @property
    def whole(self) -> bool:
        """Whether all that was asked for is so."""
        return not self.problems and all(
            o.status in ("changed", "planned", "unchanged") for o in self.outcomes
        )


def apply(plan: Plan, journal: Journal, system: System, command: str) -> Applied:
    """Carry out what the plan has to do. The journal must be open."""
    return _carry_out(plan, Run(journal, system), command)


def rehearse(plan: Plan, journal: Journal, system: System, command: str = "") -> Applied:
    """The same without changing anything; the journal is only read."""
    return _carry_out(plan, Rehearsal(journal, system), command)


def _carry_out(plan: Plan, run: Run, command: str) -> Applied:
    _recover(run)
    outcomes = {c.id: planned_outcome(c) for c in plan.changes}
    todo = plan.to_do()
    problems = [f"{name}: {why}" for name, why in plan.problems.items()]
    if not todo and not plan.stores:
        return Applied(None, list(outcomes.values()), problems)
    set_id = _new_set_id(run)
    run.note(
        "begin",
        sync=False,
        set=set_id,
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        boot=run.system.boot_id(),
        command=command,
        version=__version__,
    )
    stages = _Stages(run, set_id, outcomes)
    ahead = [c for c in todo if _bans(c)]
    if ahead:
        # irqbalance is to know of its ban before interrupts are moved, lest it moves them back
        problems += stages.carry_out(ahead, ())
    problems += stages.carry_out([c for c in todo if c not in ahead], plan.stores)
    if stages.kept:
        release(run)
    run.note("end", set=set_id)
    if run.rehearsed:
        for outcome in outcomes.values():
            outcome.status = "planned" if outcome.status == "changed" else outcome.status
    return Applied(set_id, list(outcomes.values()), problems, run.files, run.commands)


def _bans(change: PlannedChange) -> bool:
    return any(item.store == irqbalance.STORE.name for item in change.items)


class _Stages:
    """Changes are made in turn, each stage with its files."""

    def __init__(self, run: Run, set_id: str, outcomes: dict[str, Outcome]) -> None:
        self.run = run
        self.set_id = set_id
        self.outcomes = outcomes
        self.made: dict[str, list[Entry]] = {}
        self.done: list[PlannedChange] = []
        self.kept = False  # whether any store was looked after

    def carry_out(self, changes: Sequence[PlannedChange], stores: Sequence[str]) -> list[str]:
        """Make these, and keep them and what is in these stores. Of what could not be kept, why."""
        run, set_id = self.run, self.set_id
        before = set(run.ledger.items())
        for change in changes:
            entries = _make(run, set_id, change, self.outcomes[change.id])
            if entries is not None:
                self.made[change.id] = entries
                self.done.append(change)
                news = any(not e.handed_over for e in entries) or not before.issuperset(change.items)
                self.outcomes[change.id].status = "changed" if news else "unchanged"
        names = {i.store for c in changes if c.id in self.made for i in c.items} | set(stores)
        if not names:
            return []
        self.kept = True
        _note_items(run, set_id, self.done)
        failed = keep(run, set_id, names, f"keep the settings of {set_id}", unfinished=stores)
        again = _withdraw(run, set_id, self.done, failed, self.made, self.outcomes)
        self.done = [c for c in self.done if not any(i.store in failed for i in c.items)]
        return [f"{name}: {why}" for name, why in {**again, **failed}.items()]


def _make(run: Run, set_id: str, change: PlannedChange, outcome: Outcome) -> list[Entry] | None:
    """Set the targets of one change. When one fails, those before it are put back, and there is None."""
    entries: list[Entry] = []
    try:
        for planned in change.targets:
            # once more: a person may have thought for long, or a change before this one set it too
            now = run.read(planned.target)
            if planned.target.same(now, planned.after):
                entries += run.take_over(set_id, planned.target, now, change.description)
                continue
            entries.append(run.set(set_id, planned.target, now, planned.after, change.description))
    except ChangeError as error:
        outcome.status, outcome.reason = "failed", str(error) + _take_back(run, entries)
        return None
    return entries


def _take_back(run: Run, entries: list[Entry]) -> str:
    """Put back what a change set before it failed; the end of a sentence where that fails too."""
    problems = []
    for entry in reversed(entries):
        try:
            target = from_key(entry.target)
            now = run.read(target)
            why = "another part of the change failed"
            if target.same(now, entry.before):
                run.note("restored", sync=False, set=entry.set_id, n=entry.n, why=why)
            else:
                run.put_back(entry, target, now, entry.before, why)
        except ChangeError as error:
            problems.append(f"; and {entry.target.rpartition(' ')[2]} could not be put back: {error}")
    return "".join(problems)


def _note_items(run: Run, set_id: str, changes: list[PlannedChange]) -> None:
    items: list[Item] = list(dict.fromkeys(item for c in changes for item in c.items))
    run.note("items", set=set_id, items=[list(item) for item in items])


def _withdraw(
    run: Run,
    set_id: str,
    done: list[PlannedChange],
    failed: dict[str, str],
    made: dict[str, list[Entry]],
    outcomes: dict[str, Outcome],
) -> dict[str, str]:
    """Undo the changes that could not be kept across boots: half done is not done. Of stores that
    cannot be written even then, why."""
    bad = [c for c in done if any(item.store in failed for item in c.items)]
    if not bad:
        return {}
    # the files first: a boot in between would set from them what was put back already
    _note_items(run, set_id, [c for c in done if c not in bad])
    names = {item.store for c in bad for item in c.items}
    again = keep(run, set_id, names, f"take back what could not be kept of {set_id}")
    for change in reversed(bad):
        why = "; ".join(failed[s] for s in dict.fromkeys(i.store for i in change.items) if s in failed)
        outcomes[change.id].status = "failed"
        outcomes[change.id].reason = why + _take_back(run, made[change.id])
    return again


def _recover(run: Run) -> None:
    """Settle what a crash left open: look at each change that was announced, whether it was made. The
    machine stays as it is, as the plan was made by it."""
    for change_set in list(run.ledger.sets.values()):
        if change_set.reverted:
            continue
        for entry in change_set.entries:
            if entry.state in (INTENDED, RESTORING):
                _settle(run, change_set, entry)
        if not change_set.ended and not change_set.reverting:
            run.note("end", set=change_set.id, recovered=True)


def _settle(run: Run, change_set: ChangeSet, entry: Entry) -> None:
    try:
        target = from_key(entry.target)
        run.tidy(target)
        now = run.read(target)
        if change_set.ended or change_set.reverting:
            return  # an earlier run could not settle it, or a revert will
        if entry.state == RESTORING:
            to = entry.before if entry.passing is None else entry.passing[1]
            if target.same(now, to):
                run.note("restored", sync=False, set=change_set.id, n=entry.n, why="")
            elif target.same(now, entry.after):
                run.note("done", sync=False, set=change_set.id, n=entry.n)
        elif target.same(now, entry.after):
            run.note("done", sync=False, set=change_set.id, n=entry.n)
        elif target.same(now, entry.before) and target.atomic:
            run.note(
                "failed",
                sync=False,
                set=change_set.id,
                n=entry.n,
                error="a crash came before it",
                undone=True,
            )
    except ChangeError:
        return  # it cannot be looked at: it stays as it is in the journal, and verify says why


def planned_outcome(change: PlannedChange) -> Outcome:
    """The outcome of a change that has not been tried."""
    status = (
        "planned"
        if change.status == TO_DO
        else {"in-force": "unchanged", "impossible": "failed"}.get(change.status, change.status)
    )
    return Outcome(
        change.id,
        change.kind,
        change.target,
        change.description,
        change.rows,
        change.before,
        change.after,
        status,
        change.reason,
        change.disruption,
        change.change.scope == "boot",
    )


def _new_set_id(run: Run) -> str:
    """Sorts by time, and names one set for a person to type."""
    while True:
        name = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + f"-{os.urandom(2).hex()}"
        if name not in run.ledger.sets:
            return name
