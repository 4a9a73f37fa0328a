"""The way back: restore what change sets changed, and leave what others changed since."""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from hwtune.changes import naming
from hwtune.changes.boot import PATH as BOOT_LIST
from hwtune.changes.ledger import INTENDED, KEPT, RESTORING
from hwtune.changes.persist import irqbalance
from hwtune.changes.run import Rehearsal, Run
from hwtune.changes.stores import stores
from hwtune.changes.system import ChangeError
from hwtune.changes.targets import OwnedFile, from_key
from hwtune.changes.upkeep import keep, release

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hwtune.changes.journal import Journal
    from hwtune.changes.ledger import ChangeSet, Entry
    from hwtune.changes.run import Written
    from hwtune.changes.system import System
    from hwtune.changes.targets import Target


class Restored(msgspec.Struct):
    """What became of one entry: restored, unchanged (nothing had to be written), kept (someone
    changed it since), gone (the device is no more) or failed."""

    target: str
    before: str
    after: str
    status: str
    reason: str = ""


class Reverted(msgspec.Struct, rename={"set_id": "set"}):
    """One set. ``whole``: all of it is back, or was gone; then the set is over."""

    set_id: str
    outcomes: list[Restored]
    problems: list[str]

    @property
    def whole(self) -> bool:
        return not self.problems and all(o.status in ("restored", "unchanged", "gone") for o in self.outcomes)


class WayBack(msgspec.Struct):
    """What a revert did (or would do): its sets, and the files and commands of all of them."""

    sets: list[Reverted]
    files: list[Written]
    commands: list[str]
    reboot_required: bool

    @property
    def changed(self) -> bool:
        return bool(self.files) or any(o.status == "restored" for r in self.sets for o in r.outcomes)

    @property
    def whole(self) -> bool:
        return all(r.whole for r in self.sets)


def revert(change_set: ChangeSet, journal: Journal, system: System, force: bool = False) -> Reverted:
    """Put one set back; the journal must be open. May be run again after a crash."""
    return revert_all([change_set], journal, system, force).sets[0]


def revert_all(
    change_sets: Sequence[ChangeSet], journal: Journal, system: System, force: bool = False
) -> WayBack:
    """Put several back, the newest first; their files are written once."""
    return _take_back([s.id for s in change_sets], Run(journal, system), force)


def rehearse(
    change_sets: Sequence[ChangeSet], journal: Journal, system: System, force: bool = False
) -> WayBack:
    """The same without changing anything; the journal is only read."""
    return _take_back([s.id for s in change_sets], Rehearsal(journal, system), force)


def _take_back(ids: Sequence[str], run: Run, force: bool) -> WayBack:
    sets = [run.ledger.sets[id] for id in ids]
    boot = run.system.boot_id()
    balanced = _balanced(run, sets)
    for change_set in sets:
        if not change_set.reverting or _listed_for_boot(run, change_set):
            run.note("reverting", set=change_set.id, boot=boot)
    # the files first: a boot in between would set from them what was put back already
    problems = keep(run, ids[0], _stores_of(sets), f"revert {' '.join(ids)}", force) if ids else {}
    reboot = False
    done = []
    for change_set in sets:
        outcomes = []
        for entry in reversed(list(change_set.entries)):
            if entry.active and not entry.store and not entry.target.startswith("directory "):
                booted = change_set.boot not in ("", boot)
                ours = force or entry in balanced or (booted and _by_this_boot(run, entry, boot))
                outcome, at_boot = _restore(run, entry, booted, ours)
                outcomes.append(outcome)
                reboot |= at_boot
        # a boot that came after the list was taken back has moved nothing
        if change_set.boot not in ("", boot) and change_set.reverting_boot == boot:
            moved = [_moved_at_boot(i.key) for i in change_set.items if i.key.startswith("irqs-away ")]
            outcomes += moved
            reboot |= bool(moved)
        done.append(Reverted(change_set.id, outcomes, []))
    release(run)
    for change_set, reverted in zip(sets, done, strict=True):
        mine = _stores_of([change_set])
        reverted.problems = [f"{name}: {why}" for name, why in problems.items() if name in mine]
        failed = any(o.status == "failed" for o in reverted.outcomes)
        over = change_set.settled and change_set.left_alone
        if not failed and not over and (force or not reverted.problems):
            run.note("reverted", set=change_set.id)
    known = stores()
    reboot |= any(w.store in known and known[w.store].at_boot for w in run.files)
    return WayBack(done, run.files, run.commands, reboot)


def _balanced(run: Run, sets: Sequence[ChangeSet]) -> list[Entry]:
    """Interrupts that are hwtune's now, and that irqbalance may move as soon as its ban is lifted, which
    comes before they are put back. Where it was lifted by a run that did not end, it may have."""
    if not any(i.store == irqbalance.STORE.name for s in sets for i in s.items):
        return []
    with suppress(ChangeError):
        lifted = run.read(OwnedFile(irqbalance.DROP_IN)) is None
        entries = [e for s in sets for e in s.entries if e.target.startswith("irq ") and e.holding]
        return [e for e in entries if (lifted and run.ledger.sets[e.set_id].reverting) or _is_ours(run, e)]
    return []


def _is_ours(run: Run, entry: Entry) -> bool:
    with suppress(ChangeError):
        target = from_key(entry.target)
        return _ours(entry, target, run.read(target))
    return False


def _stores_of(sets: Iterable[ChangeSet]) -> set[str]:
    return {i.store for s in sets for i in s.items} | {e.store for s in sets for e in s.entries if e.store}


def _listed_for_boot(run: Run, change_set: ChangeSet) -> bool:
    """Whether the boot unit's list still has interrupts moved that the set wanted moved."""
    keys = [i.key for i in change_set.items if i.key.startswith("irqs-away ")]
    with suppress(ChangeError):
        listed = run.read(OwnedFile(BOOT_LIST)) if keys else None
        return listed is not None and any(f'"{key}"' in listed.get("text", "") for key in keys)
    return False


def _moved_at_boot(key: str) -> Restored:
    why = "interrupts that were moved off these CPUs at boot stay where they are until the next boot"
    return Restored(naming.of_key(key), "moved off at boot", "left alone", "unchanged", why)


def _restore(run: Run, entry: Entry, booted: bool, force: bool) -> tuple[Restored, bool]:
    """What became of an entry, and whether that takes effect at the next boot only."""
    name = naming.of_key(entry.target)
    try:
        target = from_key(entry.target)
    except ChangeError as error:
        return Restored(name, str(entry.after), str(entry.before), "failed", str(error)), False
    wanted = run.ledger.base(entry)

    def told(status: str, reason: str = "") -> tuple[Restored, bool]:
        if status == "kept" and entry.state != KEPT:
            run.note("kept", sync=False, set=entry.set_id, n=entry.n, why=reason)
        elif status in ("unchanged", "gone"):
            run.note("restored", sync=False, set=entry.set_id, n=entry.n, why=reason)
        restored = Restored(name, target.show(entry.after), target.show(wanted), status, reason)
        return restored, status == "restored" and target.at_boot

    if _above(run, entry):
        return told("unchanged", "a newer change set holds it")
    try:
        run.tidy(target)
        now = run.read(target)
        interrupted = entry.state in (INTENDED, RESTORING)
        if target.same(now, wanted) and (target.atomic or not interrupted):
            return told("unchanged", "it is so already")
        if now is None and entry.after is not None and target.kind not in ("file", "link"):
            return told("gone", "it is no longer there")
        if not _ours(entry, target, now) and not force:
            if booted and not target.lasting:
                return told("unchanged", f"the machine has booted since, and it is {target.show(now)} now")
            return told("kept", f"it is {target.show(now)} now, not what hwtune set; --force overrides that")
        run.put_back(entry, target, now, wanted)
    except ChangeError as error:
        if booted and error.number == errno.EINVAL and not target.lasting:
            # a value of another boot, with other boot arguments: rps_cpus is cut to what isolcpus= leaves
            why = (
                f"this boot does not take {target.show(wanted)} ({error}); the next one starts without hwtune"
            )
            return told("unchanged", why)[0], True
        return told("failed", str(error))
    return told("restored")


def _by_this_boot(run: Run, entry: Entry, boot: str) -> bool:
    """Whether what is there is what an older set had kept, and this boot has set again from its files: the
    newer value was never kept, as a crash came before that."""
    with suppress(ChangeError):
        target = from_key(entry.target)
        now = run.read(target)
        return any(
            target.same(now, older.after) and (not s.reverting or s.reverting_boot == boot)
            for older in run.ledger.older(entry)
            for s in [run.ledger.sets[older.set_id]]
        )
    return False


def _above(run: Run, entry: Entry) -> bool:
    """Whether a newer entry holds the target."""
    entries = run.ledger.active(entry.target)
    return any(e.holding for e in entries[entries.index(entry) + 1 :])


def _ours(entry: Entry, target: Target, now: Any) -> bool:
    """Whether what is there is of hwtune's making."""
    if target.same(now, entry.after):
        return True
    if entry.state == INTENDED:
        one, other = entry.before, entry.after
    elif entry.state == RESTORING and entry.passing is not None:
        one, other = entry.passing
    else:
        return False
    return target.same(now, one) or target.same(now, other) or target.between(now, one, other)
