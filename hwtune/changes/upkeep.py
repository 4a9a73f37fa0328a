"""The files of the stores: what they are to hold, and making them hold it."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from hwtune.changes.run import Written
from hwtune.changes.stores import Item, Store, stores
from hwtune.changes.system import ChangeError, FileState, encode_file, temporary_of
from hwtune.changes.targets import Directory, OwnedFile, OwnedLink, from_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from hwtune.changes.ledger import Entry, Ledger
    from hwtune.changes.run import Run
    from hwtune.changes.stores import Render
    from hwtune.changes.system import System
    from hwtune.changes.targets import Target

    Read = Callable[[Target], Any]


class Step(NamedTuple):
    """One file, link or folder that is not as it is to be."""

    target: Target
    before: Any
    after: Any


def steps(
    store: Store, items: Sequence[Item], read: Read, ledger: Ledger, system: System, force: bool = False
) -> list[Step]:
    """What has to be written for a store to hold these items, in order. Raises ``ChangeError`` where
    it cannot, or where a file was edited by others (``force`` overrides that)."""
    mine = [i for i in items if i.store == store.name]
    found: list[Step] = []
    made: set[str] = set()
    for render in store.render(system, mine):
        step = _step(render, read, ledger, force)
        if step is None:
            continue
        if step.after is not None:
            for folder in _missing_parents(render.path, read):
                if folder not in made:
                    made.add(folder)
                    found.append(Step(Directory(folder), None, "present"))
        found.append(step)
    return found


def _step(render: Render, read: Read, ledger: Ledger, force: bool) -> Step | None:
    target: Target = OwnedLink(render.path) if render.link else OwnedFile(render.path)
    now = read(target)
    held = bool(ledger.holders(target.key))
    if held and not force:
        known = [*ledger.written(target.key), ledger.original(target.key)]
        if not any(target.same(now, value) for value in known):
            raise ChangeError(
                f"{render.path} was edited since hwtune wrote it; move the edits to a file of your own"
            )
    if render.content is None:
        after = ledger.original(target.key) if held else now
    elif render.link:
        after = render.content
    else:
        owner, group = (0, 0) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
        after = encode_file(FileState(render.content.encode(), render.mode, owner, group))
    return None if target.same(now, after) else Step(target, now, after)


def _missing_parents(path: str, read: Read) -> list[str]:
    missing = []
    folder = os.path.dirname(path)
    while folder != "/" and read(Directory(folder)) is None:
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing[::-1]


def unfinished(read: Read, ledger: Ledger, system: System) -> tuple[list[str], dict[str, str]]:
    """Stores whose files are not as the items in force want them (a crash came before they were
    written, or someone removed them), or that the system does not follow (someone stopped their service),
    and of those that cannot be looked at, why."""
    items = ledger.items()
    names = {i.store for i in items} | ledger.stale
    names |= {e.store for t in ledger.held_targets() for e in ledger.holders(t) if e.store}
    open_: list[str] = []
    problems: dict[str, str] = {}
    for name in in_order(names):
        try:
            store = _known(name)
            if (
                steps(store, items, read, ledger, system)
                or name in ledger.stale
                or not _followed(store, [i for i in items if i.store == name], system)
            ):
                open_.append(name)
        except ChangeError as error:
            problems[name] = str(error)
    return open_, problems


def _followed(store: Store, items: Sequence[Item], system: System) -> bool:
    try:
        store.check(system, items)
    except ChangeError:
        return False
    return True


def keep(
    run: Run,
    set_id: str,
    names: Iterable[str],
    change: str,
    force: bool = False,
    unfinished: Collection[str] = (),
) -> dict[str, str]:
    """Make the files of these stores hold the items in force, and let the system take notice of what
    changed, and of those that are ``unfinished``. Of each store where that failed, why; the others are
    done."""
    problems: dict[str, str] = {}
    for name in in_order(names):
        try:
            store = _known(name)
            items = run.ledger.items()
            mine = [i for i in items if i.store == name]
            for render in store.render(run.system, mine):
                run.tidy(OwnedFile(render.path))
            for step in steps(store, items, run.read, run.ledger, run.system, force):
                run.set(set_id, step.target, step.before, step.after, change, name)
            if name in run.ledger.stale or name in unfinished:
                for argv in store.refresh(run.system, mine):
                    run.command(argv)
                run.check(store, mine)
                run.note("refreshed", sync=False, store=name)
        except ChangeError as error:
            problems[name] = str(error)
    return problems


def release(run: Run) -> None:
    """Let go of what nobody needs any more: of files of stores that are as they were before hwtune, and
    of folders that hwtune made, once nothing of hwtune's is in them. Folders of other changes' files
    stay as long as the change does."""
    for target, entries in _held(run, "file", "link"):
        # what cannot be looked at or removed stays held, and verify says why
        with suppress(ChangeError):
            _release_file(run, target, entries)
    for target, entries in sorted(_held(run, "directory"), key=lambda t: t[0].key, reverse=True):
        if _on_the_way_back(run, entries) or all(e.store for e in entries):
            with suppress(ChangeError):
                _release_folder(run, target, entries)


def _release_file(run: Run, target: Target, entries: Sequence[Entry]) -> None:
    original = run.ledger.original(target.key)
    unwanted = _on_the_way_back(run, entries) or target.same(entries[-1].after, original)
    if unwanted and target.same(run.read(target), original):
        for entry in entries:
            run.note("restored", sync=False, set=entry.set_id, n=entry.n, why="")


def _release_folder(run: Run, target: Target, entries: Sequence[Entry]) -> None:
    why = ""
    if run.read(target) is not None:
        path = target.key.partition(" ")[2]
        left = run.listed(path)
        if any(_holds_below(run, path, name) for name in left):
            return
        if left:
            why = "others use it by now"
        else:
            run.write(target, None)
            run.files.append(Written(entries[-1].store, target, "present", None))
    for entry in entries:
        run.note("restored", sync=False, set=entry.set_id, n=entry.n, why=why)


def _held(run: Run, *kinds: str) -> list[tuple[Target, list[Entry]]]:
    """Files of stores, and folders, with the entries that hold them."""
    found = []
    for key in run.ledger.held_targets():
        entries = run.ledger.holders(key)
        kind = key.partition(" ")[0]
        if kind in kinds and (kind == "directory" or all(e.store for e in entries)):
            found.append((from_key(key), entries))
    return found


def _on_the_way_back(run: Run, entries: Sequence[Entry]) -> bool:
    return all(run.ledger.sets[e.set_id].reverting for e in entries)


def _holds_below(run: Run, folder: str, name: str) -> bool:
    """Whether that is hwtune's: something it holds, or what a crash left beside it."""
    held = (key.partition(" ") for key in run.ledger.held_targets())
    return any(
        f"{folder}/{name}" in (path, temporary_of(path))
        for kind, _, path in held
        if kind in ("file", "link", "directory")
    )


def in_order(names: Iterable[str]) -> list[str]:
    """Names of stores in the order in which they are written, unknown ones at the end."""
    order = list(stores())
    wanted = set(names)
    return [n for n in order if n in wanted] + sorted(wanted.difference(order))


def _known(name: str) -> Store:
    found = stores().get(name)
    if found is None:
        raise ChangeError(f"this version knows no {name} store; use the one that wrote the journal")
    return found
