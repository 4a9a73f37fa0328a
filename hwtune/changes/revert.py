"""The way back: restore what a change set changed, and leave what others changed since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hwtune.changes.apply import Writer, write_stores
from hwtune.changes.compile import target_from_key
from hwtune.changes.ledger import INTENDED, Entry, Ledger
from hwtune.changes.system import ChangeError

if TYPE_CHECKING:
    from hwtune.changes.journal import Journal
    from hwtune.changes.ledger import ChangeSet
    from hwtune.changes.system import System


class Restored(msgspec.Struct):
    """What became of one entry: restored, unchanged (it was so already), kept (someone changed it
    since), gone (the device or file is no more) or failed."""

    target: str
    before: str
    after: str
    status: str
    reason: str = ""


class Reverted(msgspec.Struct):
    set_id: str
    outcomes: list[Restored]
    problems: list[str]

    @property
    def whole(self) -> bool:
        return not self.problems and all(o.status in ("restored", "unchanged", "gone") for o in self.outcomes)


def revert(change_set: ChangeSet, journal: Journal, system: System, force: bool = False) -> Reverted:
    """Put one set back; the journal must be open. May be run again after a crash."""
    journal.append("reverting", set=change_set.id)
    outcomes = []
    ledger = Ledger(journal.records()[0])
    mine = ledger.sets[change_set.id]
    for entry in reversed(mine.entries):
        if entry.active and not entry.stored:
            outcomes.append(_restore(entry, ledger, journal, system, force))
            ledger = Ledger(journal.records()[0])
    names = {item.store for item in mine.items}
    problems = []
    if names:
        writer = Writer(journal, system, change_set.id, first=max((e.n for e in mine.entries), default=0) + 1)
        problems = write_stores(writer, names, f"revert {change_set.id}", refresh_always=True)
    if not problems:
        _release_stored(journal, system, change_set.id)
    if not problems and not any(o.status == "failed" for o in outcomes):
        journal.append("reverted", set=change_set.id)
    return Reverted(change_set.id, outcomes, problems)


def _restore(entry: Entry, ledger: Ledger, journal: Journal, system: System, force: bool) -> Restored:
    target = target_from_key(entry.target)
    holders = ledger.holders(entry.target)
    position = (
        holders.index(entry)
        if entry in holders
        else next(i for i, e in enumerate(holders) if (e.set_id, e.n) == (entry.set_id, entry.n))
    )
    on_top = position == len(holders) - 1
    wanted: Any = ledger.original(entry.target) if position == 0 else holders[position - 1].after

    def settle(status: str, reason: str = "") -> Restored:
        record = "kept" if status == "kept" else "restored"
        if status != "failed":
            journal.append(record, set=entry.set_id, n=entry.n, why=reason)
        return Restored(entry.target, target.show(entry.after), target.show(wanted), status, reason)

    if not on_top:
        return settle("unchanged", "a newer change set holds it")
    try:
        now = target.read(system)
        if target.same(now, wanted):
            return settle("unchanged", "it is so already")
        if now is None and entry.after is not None:
            return settle("gone", "it is no longer there")
        ours = target.same(now, entry.after) or (entry.state == INTENDED and target.same(now, entry.before))
        if not ours and not force:
            return settle(
                "kept", f"it is {target.show(now)} now, not what hwtune set; --force overrides that"
            )
        target.write(system, wanted)
        now = target.read(system)
        if not target.same(now, wanted):
            return settle("failed", f"it reads back as {target.show(now)}")
    except ChangeError as error:
        return settle("failed", str(error))
    return settle("restored")


def _release_stored(journal: Journal, system: System, set_id: str) -> None:
    """The files of stores follow the items in force: once they are written, the set holds none."""
    for entry in reversed(Ledger(journal.records()[0]).sets[set_id].entries):
        if entry.active and entry.stored and not entry.target.startswith("directory "):
            journal.append("restored", set=set_id, n=entry.n, why="")
    _sweep_directories(journal, system)


def _sweep_directories(journal: Journal, system: System) -> None:
    """Directories that hwtune made go when every set that held them is on its way back and
    nothing is left in them."""
    ledger = Ledger(journal.records()[0])
    for key in sorted(ledger.held_targets(), reverse=True):  # the deepest first
        holders = ledger.holders(key)
        if not key.startswith("directory ") or not all(ledger.sets[e.set_id].reverting for e in holders):
            continue
        target = target_from_key(key)
        target.write(system, ledger.original(key))
        if target.same(target.read(system), ledger.original(key)):
            for entry in holders:
                journal.append("restored", set=entry.set_id, n=entry.n, why="")
