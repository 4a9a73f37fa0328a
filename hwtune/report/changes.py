"""The shapes of ``apply``, ``verify``, ``history`` and ``revert --format json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hwtune.changes import naming
from hwtune.changes.apply import Outcome
from hwtune.changes.revert import Reverted
from hwtune.changes.system import decode_file
from hwtune.changes.verify import Verified
from hwtune.report.published import SCHEMA_VERSION
from hwtune.validate.before_after import BeforeAfter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hwtune.changes.apply import Applied
    from hwtune.changes.ledger import ChangeSet
    from hwtune.changes.revert import WayBack
    from hwtune.changes.run import Written


class FileChange(msgspec.Struct):
    """A file, link or directory: ``action`` is create, replace or remove; ``diff`` in the unified form,
    "" for what has no lines."""

    path: str
    kind: str
    store: str
    action: str
    diff: str


class ApplyReport(msgspec.Struct):
    """What ``hwtune apply --format json`` prints. With ``check`` nothing was changed, and all of it is
    what would be. ``validation``: with --validate, where something was changed and could be measured."""

    schema_version: str
    changed: bool
    check: bool
    set: str | None
    changes: list[Outcome]
    files: list[FileChange]
    commands: list[str]
    problems: list[str]
    reboot_required: bool
    validation: BeforeAfter | None


class SetState(msgspec.Struct):
    """A change set that is not reverted."""

    set: str
    time: str
    status: str


class VerifyReport(msgspec.Struct):
    """What ``hwtune verify --format json`` prints. ``running``: who changes the machine right now;
    ``journal``: what is wrong with it."""

    schema_version: str
    in_force: bool
    sets: list[SetState]
    changes: list[Verified]
    running: str
    journal: list[str]


class HistoryEntry(msgspec.Struct):
    """One target; ``key`` and the values as the journal has them. ``store``: of a file that follows
    from the settings in force, the store that writes it."""

    target: str
    key: str
    change: str
    before: Any
    after: Any
    state: str
    store: str
    why: str


class HistorySet(msgspec.Struct):
    """One change set; ``kept``: what lasts across boots, "sysctl:vm.swappiness = 1"."""

    set: str
    time: str
    status: str
    command: str
    changes: list[HistoryEntry]
    kept: list[str]


class HistoryReport(msgspec.Struct):
    """What ``hwtune history --format json`` prints, the newest set first."""

    schema_version: str
    sets: list[HistorySet]
    running: str
    journal: list[str]


class RevertReport(msgspec.Struct):
    """What ``hwtune revert --format json`` prints. With ``check`` nothing was changed, and all of it
    is what would be."""

    schema_version: str
    changed: bool
    check: bool
    sets: list[Reverted]
    files: list[FileChange]
    commands: list[str]
    reboot_required: bool


REPORTS = {
    "apply": ApplyReport,
    "verify": VerifyReport,
    "history": HistoryReport,
    "revert": RevertReport,
}


def of_apply(applied: Applied, check: bool, measured: BeforeAfter | None = None) -> ApplyReport:
    return ApplyReport(
        SCHEMA_VERSION,
        applied.changed,
        check,
        None if check else applied.set_id,
        applied.outcomes,
        file_changes(applied.files),
        applied.commands,
        applied.problems,
        applied.reboot_required,
        measured,
    )


def of_revert(back: WayBack, check: bool) -> RevertReport:
    return RevertReport(
        SCHEMA_VERSION,
        back.changed,
        check,
        back.sets,
        file_changes(back.files),
        back.commands,
        back.reboot_required,
    )


def of_history(sets: Iterable[ChangeSet], running: str, journal: list[str]) -> HistoryReport:
    return HistoryReport(SCHEMA_VERSION, [_history_set(s, running) for s in sets], running, journal)


def _history_set(change_set: ChangeSet, running: str) -> HistorySet:
    entries = [
        HistoryEntry(naming.of_key(e.target), e.target, e.change, e.before, e.after, e.state, e.store, e.why)
        for e in change_set.entries
    ]
    kept = [f"{naming.of_item(i.store, i.key)} = {i.value}".rstrip(" =") for i in change_set.items]
    return HistorySet(
        change_set.id, change_set.time, status(change_set, running), change_set.command, entries, kept
    )


def status(change_set: ChangeSet, running: str) -> str:
    """Its status; what looks interrupted may be a run that is still at it."""
    found = change_set.status
    return "in progress" if running and found in ("interrupted", "revert unfinished") else found


def file_changes(written: Iterable[Written]) -> list[FileChange]:
    """What became of each path, in the order of the first writing; nothing of one that ends as it began."""
    first: dict[str, Written] = {}
    last: dict[str, Written] = {}
    for w in written:
        first.setdefault(w.target.key, w)
        last[w.target.key] = w
    found = []
    for key, begin in first.items():
        before, after = begin.before, last[key].after
        if begin.target.same(before, after):
            continue
        kind, _, path = key.partition(" ")
        action = "create" if before is None else "remove" if after is None else "replace"
        found.append(FileChange(path, kind, begin.store, action, _diff(kind, path, before, after)))
    return found


def _diff(kind: str, path: str, before: Any, after: Any) -> str:
    from difflib import unified_diff

    old, new = _lines(kind, before), _lines(kind, after)
    return "\n".join(
        unified_diff(
            old,
            new,
            path if before is not None else "/dev/null",
            path if after is not None else "/dev/null",
            lineterm="",
        )
    )


def _lines(kind: str, value: Any) -> list[str]:
    if value is None or kind == "directory":
        return []
    if kind == "link":
        return [f"-> {value}"]
    state = decode_file(value)
    return [] if state is None else state.content.decode("utf-8", "replace").splitlines()
