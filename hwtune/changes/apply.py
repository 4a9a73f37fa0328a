"""Carry out a plan: each change written down before it is made, alone in its failure."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

from hwtune.changes.ledger import Ledger
from hwtune.changes.plan import TO_DO
from hwtune.changes.stores import stores
from hwtune.changes.system import ChangeError, FileState, encode_file
from hwtune.changes.targets import Directory, OwnedFile, OwnedLink

if TYPE_CHECKING:
    from hwtune.changes.journal import Journal
    from hwtune.changes.plan import Plan, PlannedChange
    from hwtune.changes.stores import Item, Render
    from hwtune.changes.system import System
    from hwtune.changes.targets import Target


class Outcome(msgspec.Struct):
    """What became of one change: ``status`` is changed, unchanged, failed or not-allowed."""

    id: str
    kind: str
    target: str
    rows: list[str]
    before: str
    after: str
    status: str
    reason: str = ""
    reboot_required: bool = False


class Applied(msgspec.Struct):
    set_id: str | None
    outcomes: list[Outcome]
    problems: list[str]

    @property
    def changed(self) -> bool:
        return any(o.status == "changed" for o in self.outcomes)

    @property
    def reboot_required(self) -> bool:
        return any(o.status == "changed" and o.reboot_required for o in self.outcomes)


class Writer:
    """Sets targets for one change set, journalling each before and after."""

    def __init__(self, journal: Journal, system: System, set_id: str, first: int = 1) -> None:
        self.journal = journal
        self.system = system
        self.set_id = set_id
        self._next = first

    def set(self, target: Target, before: Any, after: Any, change: str, stored: bool = False) -> None:
        """Make ``target`` hold ``after``. Raises ``ChangeError`` when that fails; what was half
        done is then undone."""
        n = self._next
        self._next += 1
        self.journal.append(
            "intent",
            set=self.set_id,
            n=n,
            target=target.key,
            before=before,
            after=after,
            change=change,
            stored=stored,
        )
        try:
            target.write(self.system, after)
            now = target.read(self.system)
            if not target.same(now, after):
                raise ChangeError(f"it reads back as {target.show(now)}")
        except ChangeError as error:
            self.journal.append("failed", set=self.set_id, n=n, error=self._undo(target, before, error))
            raise
        self.journal.append("done", set=self.set_id, n=n)

    def _undo(self, target: Target, before: Any, error: ChangeError) -> str:
        """Put back what a failed write may have left. The reason, with what could not be undone."""
        try:
            if before is not None and not target.same(target.read(self.system), before):
                target.write(self.system, before)
        except ChangeError as second:
            return f"{error}; and it could not be put back: {second}"
        return str(error)


def apply(plan: Plan, journal: Journal, system: System, command: str) -> Applied:
    """Carry out what the plan has to do. The journal must be open."""
    outcomes = {c.id: planned_outcome(c) for c in plan.changes}
    if not plan.to_do():
        return Applied(None, list(outcomes.values()), [])
    set_id = new_set_id()
    journal.append(
        "begin",
        set=set_id,
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        boot=system.boot_id(),
        command=command,
    )
    writer = Writer(journal, system, set_id)
    items: list[Item] = []
    for change in plan.to_do():
        outcome = outcomes[change.id]
        try:
            for planned in change.targets:
                if planned.differs:
                    writer.set(planned.target, planned.before, planned.after, change.description)
            items += change.items
            outcome.status = "changed"
        except ChangeError as error:
            outcome.status, outcome.reason = "failed", str(error)
    problems = []
    if items:
        journal.append("items", set=set_id, items=[list(item) for item in items])
        problems = write_stores(writer, {i.store for i in items}, f"keep the settings of {set_id}")
    journal.append("end", set=set_id)
    return Applied(set_id, list(outcomes.values()), problems)


def write_stores(writer: Writer, names: set[str], change: str, refresh_always: bool = False) -> list[str]:
    """Make the files of these stores hold what the journal says is in force, and let the system
    take notice. A sentence for each store that could not be written; the others are."""
    ledger = Ledger(writer.journal.records()[0])
    problems = []
    known = stores()
    for name in sorted(names):
        store = known[name]
        items = [i for i in ledger.items() if i.store == name]
        try:
            changed = False
            for wanted in store.render(writer.system, items):
                changed |= _write_owned(writer, ledger, wanted, change)
            if changed or refresh_always:
                for argv in store.refresh(writer.system, items):
                    writer.system.run(argv)
                store.check(writer.system, items)
        except ChangeError as error:
            problems.append(f"{name}: {error}")
    return problems


def _write_owned(writer: Writer, ledger: Ledger, render: Render, change: str) -> bool:
    """Whether the file or link had to be written."""
    path, content = render.path, render.content
    target: Target = OwnedLink(path) if render.link else OwnedFile(path)
    now = target.read(writer.system)
    writer.system.discard_temporary(path)
    holders = ledger.holders(target.key)
    known = [*ledger.written(target.key), ledger.original(target.key)] if holders else [now]
    if not any(target.same(now, value) for value in known):
        raise ChangeError(f"{path} was edited since hwtune wrote it; move the edits to a file of your own")
    if content is None:
        wanted = ledger.original(target.key) if holders else now
    elif render.link:
        wanted = content
    else:
        wanted = encode_file(
            FileState(content.encode(), render.mode, 0 if os.geteuid() == 0 else os.geteuid(), _group())
        )
    if target.same(now, wanted):
        return False
    if wanted is not None:
        for folder in _missing_parents(writer.system, path):
            writer.set(Directory(folder), None, "present", change, stored=True)
    writer.set(target, now, wanted, change, stored=True)
    return True


def _group() -> int:
    return 0 if os.geteuid() == 0 else os.getegid()


def _missing_parents(system: System, path: str) -> list[str]:
    missing = []
    folder = os.path.dirname(path)
    while folder != "/" and not system.directory(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing[::-1]


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
        change.description,
        change.rows,
        "; ".join(t.target.show(t.before) for t in change.targets),
        "; ".join(t.target.show(t.after) for t in change.targets),
        status,
        change.reason,
        change.change.scope == "boot",
    )


def new_set_id() -> str:
    """Sorts by time, and names one set for a person to type."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + f"-{os.urandom(2).hex()}"
