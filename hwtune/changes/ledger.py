"""What the journal says is in force: change sets, the targets they hold, the items they keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.changes.stores import Item

if TYPE_CHECKING:
    from collections.abc import Iterable

# the states of an entry
INTENDED = "intended"  # written down; a crash may have come before or after the change itself
DONE = "done"
FAILED = "failed"
RESTORED = "restored"
KEPT = "kept"  # a revert found that someone had changed it since, and left it


class Entry:
    """One target that a set changed."""

    __slots__ = ("after", "before", "change", "n", "set_id", "state", "stored", "target", "why")

    def __init__(
        self, set_id: str, n: int, target: str, before: Any, after: Any, change: str, stored: bool
    ) -> None:
        self.set_id = set_id
        self.n = n
        self.target = target
        self.before = before
        self.after = after
        self.change = change
        self.stored = stored  # a file of a store, whose content follows from the items in force
        self.state = INTENDED
        self.why = ""

    @property
    def active(self) -> bool:
        return self.state in (INTENDED, DONE, KEPT)


class ChangeSet:
    """What one apply did. ``boot`` is the boot id under which it ran."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.id = str(record["set"])
        self.time = str(record.get("time", ""))
        self.boot = str(record.get("boot", ""))
        self.command = str(record.get("command", ""))
        self.entries: list[Entry] = []
        self.items: list[Item] = []
        self.ended = False
        self.reverting = False
        self.reverted = False

    @property
    def active(self) -> bool:
        return not self.reverted

    @property
    def status(self) -> str:
        """One word or two for a person."""
        if self.reverted:
            return "reverted"
        if self.reverting:
            return (
                "revert interrupted" if not any(e.state == KEPT for e in self.entries) else "partly reverted"
            )
        if not self.ended:
            return "interrupted"
        return "in force"


class Ledger:
    """All sets, in the order of the journal."""

    def __init__(self, records: Iterable[dict[str, Any]]) -> None:
        self.sets: dict[str, ChangeSet] = {}
        self.originals: dict[str, Any] = {}
        self._held: dict[str, list[Entry]] = {}
        for record in records:
            self._take(record)

    def _take(self, record: dict[str, Any]) -> None:
        kind = record["record"]
        if kind == "begin":
            change_set = ChangeSet(record)
            self.sets[change_set.id] = change_set
            return
        found = self.sets.get(str(record.get("set")))
        if found is None:  # its beginning was on a line that is damaged: told by the journal's reader
            found = self.sets[str(record.get("set"))] = ChangeSet({"set": record.get("set")})
        if kind == "intent":
            self._intend(found, record)
        elif kind in (DONE, FAILED, RESTORED, KEPT):
            self._settle(found, record, kind)
        elif kind == "items":
            found.items = [Item(*item) for item in record["items"]]
        elif kind == "end":
            found.ended = True
        elif kind == "reverting":
            found.reverting = True
        elif kind == "reverted":
            found.reverted = not any(e.state == KEPT for e in found.entries)

    def _intend(self, found: ChangeSet, record: dict[str, Any]) -> None:
        entry = Entry(
            found.id,
            int(record["n"]),
            str(record["target"]),
            record["before"],
            record["after"],
            str(record.get("change", "")),
            bool(record.get("stored")),
        )
        found.entries.append(entry)
        held = self._held.setdefault(entry.target, [])
        if not any(e.active for e in held):
            self.originals[entry.target] = entry.before
        held.append(entry)

    def _settle(self, found: ChangeSet, record: dict[str, Any], state: str) -> None:
        for entry in found.entries:
            if entry.n == record["n"]:
                entry.state = state
                entry.why = str(record.get("why", record.get("error", "")))

    # -- questions ----------------------------------------------------------------------

    def active_sets(self) -> list[ChangeSet]:
        return [s for s in self.sets.values() if s.active]

    def items(self, without: Iterable[str] = ()) -> list[Item]:
        """The items in force: of sets that are neither reverted nor being reverted; of two with
        one store and key the newer."""
        left_out = set(without)
        chosen: dict[tuple[str, str], Item] = {}
        for change_set in self.active_sets():
            if change_set.id in left_out or change_set.reverting:
                continue
            for item in change_set.items:
                chosen.pop((item.store, item.key), None)
                chosen[item.store, item.key] = item
        return list(chosen.values())

    def holders(self, target: str) -> list[Entry]:
        """The entries that hold a target now, the oldest first; the last one's value is in force."""
        return [e for e in self._held.get(target, []) if e.active]

    def held_targets(self) -> list[str]:
        return [t for t, entries in self._held.items() if any(e.active for e in entries)]

    def original(self, target: str) -> Any:
        """The value that the target had before hwtune first held it."""
        return self.originals[target]

    def written(self, target: str) -> list[Any]:
        """Everything that hwtune ever wrote, or was about to write, there."""
        return [e.after for e in self._held.get(target, [])]
