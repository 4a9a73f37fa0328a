"""What the journal says is in force: change sets, the targets they hold, the items they keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.changes.stores import Item, merged
from hwtune.changes.system import ChangeError
from hwtune.changes.targets import from_key

if TYPE_CHECKING:
    from collections.abc import Iterable

# the states of an entry
INTENDED = "intended"  # written down; a crash may have come before or after the change itself
DONE = "done"
FAILED = "failed"  # and what was there before is there
RESTORING = "restoring"  # as INTENDED, on the way back
RESTORED = "restored"
KEPT = "kept"  # a revert found that someone had changed it since, and left it


class Entry:
    """One target that a set changed. ``below`` is the entry whose value this one found there; None
    where it found a value that was not hwtune's."""

    __slots__ = (
        "after",
        "before",
        "below",
        "change",
        "clean",
        "n",
        "passing",
        "set_id",
        "state",
        "store",
        "target",
        "why",
    )

    def __init__(self, set_id: str, record: dict[str, Any], below: Entry | None) -> None:
        self.set_id = set_id
        self.n = int(record["n"])
        self.target = str(record["target"])
        self.before = record["before"]
        self.after = record["after"]
        self.change = str(record.get("change", ""))
        #: of a file that follows from the items in force, the store that writes it
        self.store = str(record.get("store", ""))
        self.below = below
        #: whether the system had taken notice of all of the store's files before this one
        self.clean = False
        self.state = INTENDED
        self.why = ""
        #: (value found, value about to be written) of a way back that began
        self.passing: tuple[Any, Any] | None = None

    @property
    def active(self) -> bool:
        return self.state in (INTENDED, DONE, RESTORING, KEPT)

    @property
    def handed_over(self) -> bool:
        """Whether the value was there already, held by the set below."""
        return self.below is not None and same(self.target, self.before, self.after)

    @property
    def holding(self) -> bool:
        """Whether hwtune wants its value to be there."""
        return self.active and self.state != KEPT


class ChangeSet:
    """What one apply did. ``boot`` is the boot id under which it ran."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.id = str(record["set"])
        self.time = str(record.get("time", ""))
        self.boot = str(record.get("boot", ""))
        self.command = str(record.get("command", ""))
        self.entries: list[Entry] = []
        self.by_number: dict[int, Entry] = {}
        self.items: list[Item] = []
        self.ended = False
        self.recovered = False
        self.reverting = False
        #: the boot in which the way back began, or the last one that still began with what the set keeps
        self.reverting_boot = ""
        self.settled = False  # a revert came to its end
        self.reverted = False

    @property
    def empty(self) -> bool:
        """Whether nothing came of it: all that it tried failed, and is as it was."""
        return self.ended and not self.items and not any(e.active for e in self.entries)

    @property
    def active(self) -> bool:
        return not self.reverted and not self.empty

    @property
    def left_alone(self) -> bool:
        """Whether a revert did all but what someone else had changed."""
        return self.settled and any(e.state == KEPT for e in self.entries)

    @property
    def status(self) -> str:
        """One word or two for a person."""
        if self.reverted:
            return "reverted"
        if self.reverting:
            return "partly reverted" if self.left_alone else "revert unfinished"
        if not self.ended:
            return "interrupted"
        return "nothing changed" if self.empty else "in force"


class Ledger:
    """All sets, in the order of the journal."""

    def __init__(self, records: Iterable[dict[str, Any]] = ()) -> None:
        self.sets: dict[str, ChangeSet] = {}
        #: stores whose files were written, and of which the system has not taken notice since
        self.stale: set[str] = set()
        self._originals: dict[str, Any] = {}
        self._held: dict[str, list[Entry]] = {}
        #: how many of a target's entries were over when hwtune last began to hold it
        self._over: dict[str, int] = {}
        for record in records:
            self.take(record)

    def take(self, record: dict[str, Any]) -> None:
        """One more record of the journal."""
        kind = record["record"]
        if kind == "torn":
            return
        if kind == "begin":
            self.sets[str(record["set"])] = ChangeSet(record)
            return
        if kind == "refreshed":
            self.stale.discard(str(record["store"]))
            return
        found = self.sets.get(str(record.get("set")))
        if found is None:  # its beginning was on a line that is damaged: told by the journal's reader
            found = self.sets[str(record.get("set"))] = ChangeSet({"set": record.get("set")})
        if kind == "intent":
            self._intend(found, record)
        elif kind in (DONE, FAILED, RESTORING, RESTORED, KEPT):
            self._settle(found, record, kind)
        elif kind == "items":
            found.items = [Item(*item) for item in record["items"]]
        elif kind == "end":
            found.ended = True
            found.recovered = bool(record.get("recovered"))
        elif kind == "reverting":
            found.reverting = True
            found.reverting_boot = str(record.get("boot", ""))
        elif kind == "reverted":
            found.settled = True
            found.reverted = not any(e.state == KEPT for e in found.entries)

    def _intend(self, found: ChangeSet, record: dict[str, Any]) -> None:
        target = str(record["target"])
        held = self._held.setdefault(target, [])
        active = [e for e in held if e.active]
        below = active[-1] if active and same(target, active[-1].after, record["before"]) else None
        entry = Entry(found.id, record, below)
        if not active:
            self._originals[target] = entry.before
            self._over[target] = len(held)
        found.entries.append(entry)
        found.by_number[entry.n] = entry
        held.append(entry)
        if entry.store:
            entry.clean = entry.store not in self.stale
            self.stale.add(entry.store)

    def _settle(self, found: ChangeSet, record: dict[str, Any], state: str) -> None:
        entry = found.by_number.get(int(record["n"]))
        if entry is None:
            return
        entry.why = str(record.get("why", record.get("error", "")))
        if state == RESTORING:
            entry.passing = (record["now"], record["to"])
        elif state == FAILED:
            if not record.get("undone", True):
                return  # something of it may be there: it stays intended
            if entry.clean:
                self.stale.discard(entry.store)
        entry.state = state

    # -- questions ----------------------------------------------------------------------

    def active_sets(self) -> list[ChangeSet]:
        return [s for s in self.sets.values() if s.active]

    def items(self) -> list[Item]:
        """The items in force: of sets that are neither reverted nor being reverted; of two with
        one store and key the newer."""
        return merged(*(s.items for s in self.sets.values() if not s.reverting and not s.reverted))

    def keeper(self, store: str) -> ChangeSet | None:
        """The newest set with items in force in a store."""
        return next(
            (
                s
                for s in reversed(self.sets.values())
                if not s.reverting and not s.reverted and any(i.store == store for i in s.items)
            ),
            None,
        )

    def holders(self, target: str) -> list[Entry]:
        """The entries whose value hwtune wants at a target, the oldest first: the last one counts."""
        return [e for e in self._held.get(target, []) if e.holding]

    def active(self, target: str) -> list[Entry]:
        """The same, with those that a revert left alone."""
        return [e for e in self._held.get(target, []) if e.active]

    def older(self, entry: Entry) -> list[Entry]:
        """The entries that came to its target before it, those that are over too."""
        entries = self._held.get(entry.target, [])
        return entries[: entries.index(entry)]

    def held_targets(self) -> list[str]:
        return [t for t, entries in self._held.items() if any(e.holding for e in entries)]

    def original(self, target: str) -> Any:
        """The value that the target had before hwtune held it."""
        return self._originals[target]

    def base(self, entry: Entry) -> Any:
        """The value that is to be there once the entry is gone: that of the set before, as long as
        it holds it, else what that one found. What someone else had set in between comes back."""
        while entry.below is not None:
            if entry.below.holding:
                return entry.below.after
            entry = entry.below
        return entry.before

    def written(self, target: str) -> list[Any]:
        """Everything that hwtune wrote, or was about to write, there since it holds the target. What it
        wrote before that was taken back: who has the like of it there again is someone else."""
        return [e.after for e in self._held.get(target, [])[self._over.get(target, 0) :]]


def same(target: str, one: Any, other: Any) -> bool:
    """Whether two values of a target mean the same."""
    try:
        return from_key(target).same(one, other)
    except ChangeError:  # a kind that only another version knows: as they stand
        return bool(one == other)
