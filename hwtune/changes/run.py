"""A run: the journal, what it says (in step with it), and the hand that changes the machine.

The same code carries a plan out and rehearses it. A ``Rehearsal`` reads the machine, writes nothing,
and answers as if it had: what ``--check`` tells is what the run itself would do.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from hwtune.changes.ledger import Ledger
from hwtune.changes.system import ChangeError, temporary_of
from hwtune.changes.targets import OwnedFile, OwnedLink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.changes.journal import Journal
    from hwtune.changes.ledger import Entry
    from hwtune.changes.stores import Item, Store
    from hwtune.changes.system import System
    from hwtune.changes.targets import Target


_KINDS = ("file", "link", "directory")


class Written(NamedTuple):
    """A file, link or directory that was (or would be) written: values as its target has them."""

    store: str
    target: Target
    before: Any
    after: Any


class Run:
    """Changes the machine. The journal must be open."""

    rehearsed = False

    def __init__(self, journal: Journal, system: System) -> None:
        self.journal = journal
        self.system = system
        self.ledger = Ledger(journal.records().records)
        self.files: list[Written] = []
        self.commands: list[str] = []

    # -- the machine --------------------------------------------------------------------

    def read(self, target: Target) -> Any:
        return target.read(self.system)

    def write(self, target: Target, value: Any) -> None:
        target.write(self.system, value)

    def command(self, argv: Sequence[str]) -> None:
        self.commands.append(" ".join(argv))
        self.system.run(argv)

    def check(self, store: Store, items: Sequence[Item]) -> None:
        store.check(self.system, items)

    def tidy(self, target: Target) -> None:
        """Remove what a crash in the middle of a write left beside a target."""
        target.tidy(self.system)

    def listed(self, folder: str) -> list[str]:
        """The names in a folder that is there."""
        return self.system.names(folder)

    # -- the journal --------------------------------------------------------------------

    def note(self, record: str, *, sync: bool = True, **fields: Any) -> None:
        self.ledger.take(self.journal.append(record, sync=sync, **fields))

    def set(
        self, set_id: str, target: Target, before: Any, after: Any, change: str, store: str = ""
    ) -> Entry:
        """Make ``target`` hold ``after`` instead of ``before``, which it holds now. Raises
        ``ChangeError`` when that fails; what was half done is then undone."""
        n = self._intend(set_id, target, before, after, change, store)
        try:
            self.write(target, after)
            self._expect(target, after)
        except ChangeError as error:
            undone, why = self._undo(target, before, error)
            self.note("failed", sync=False, set=set_id, n=n, error=why, undone=undone)
            raise ChangeError(why, error.number) from None
        # not waited for: without it the entry stays intended, and the next look settles it
        self.note("done", sync=False, set=set_id, n=n)
        self._tell(store, target, before, after)
        return self.ledger.sets[set_id].by_number[n]

    def take_over(self, set_id: str, target: Target, value: Any, change: str) -> list[Entry]:
        """What another set holds already, this one holds from now on as well: whichever of the two is
        reverted first leaves the value to the other, and the last one puts back what was there before
        both. Nothing is written to the machine."""
        holders = self.ledger.holders(target.key)
        if not holders or holders[-1].set_id == set_id or not target.same(holders[-1].after, value):
            return []
        n = self._intend(set_id, target, value, value, change)
        self.note("done", sync=False, set=set_id, n=n)
        return [self.ledger.sets[set_id].by_number[n]]

    def _intend(
        self, set_id: str, target: Target, before: Any, after: Any, change: str, store: str = ""
    ) -> int:
        entries = self.ledger.sets[set_id].entries
        n = entries[-1].n + 1 if entries else 1
        self.note(
            "intent",
            set=set_id,
            n=n,
            target=target.key,
            before=before,
            after=after,
            change=change,
            store=store,
        )
        return n

    def put_back(self, entry: Entry, target: Target, now: Any, to: Any, why: str = "") -> None:
        """Write ``to`` where an entry had its value. Raises ``ChangeError``; may be done again."""
        self.note("restoring", set=entry.set_id, n=entry.n, now=now, to=to)
        self.write(target, to)
        self._expect(target, to)
        self.note("restored", sync=False, set=entry.set_id, n=entry.n, why=why)
        self._tell(entry.store, target, now, to)

    def _tell(self, store: str, target: Target, before: Any, after: Any) -> None:
        if target.kind in _KINDS:
            self.files.append(Written(store, target, before, after))

    def _expect(self, target: Target, value: Any) -> None:
        now = self.read(target)
        if not target.same(now, value):
            raise ChangeError(f"it reads back as {target.show(now)}", errno.EINVAL)

    def _undo(self, target: Target, before: Any, error: ChangeError) -> tuple[bool, str]:
        """Put back what a failed write may have left: whether it is as it was, and the reason of it
        all."""
        try:
            if not target.same(self.read(target), before):
                self.write(target, before)
                self._expect(target, before)
        except ChangeError as second:
            return False, f"{error}; and what it was could not be put back: {second}"
        return True, str(error)


class Rehearsal(Run):
    """Changes nothing; the journal need not be open."""

    rehearsed = True

    def __init__(self, journal: Journal, system: System) -> None:
        super().__init__(journal, system)
        self._values: dict[str, Any] = {}

    def read(self, target: Target) -> Any:
        key = target.key
        return self._values[key] if key in self._values else target.read(self.system)

    def write(self, target: Target, value: Any) -> None:
        self._values[target.key] = value

    def command(self, argv: Sequence[str]) -> None:
        self.commands.append(" ".join(argv))

    def check(self, store: Store, items: Sequence[Item]) -> None:
        """What the system would say of files that are not there cannot be known."""

    def tidy(self, target: Target) -> None:
        if isinstance(target, (OwnedFile, OwnedLink)):
            self._values[f"file {temporary_of(target.path)}"] = None

    def listed(self, folder: str) -> list[str]:
        names = set(self.system.names(folder)) if self.system.directory(folder) else set()
        for key, value in self._values.items():
            kind, _, path = key.partition(" ")
            if kind in _KINDS and path.rpartition("/")[0] == folder:
                names.discard(path.rpartition("/")[2])
                if value is not None:
                    names.add(path.rpartition("/")[2])
        return sorted(names)

    def note(self, record: str, *, sync: bool = True, **fields: Any) -> None:
        # through JSON, so that values are what the journal would give back
        self.ledger.take(msgspec.json.decode(msgspec.json.encode({"record": record, **fields})))
