"""Is what was applied still in force, and if not, who changed it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hwtune.changes import naming
from hwtune.changes.ledger import DONE, RESTORING, same
from hwtune.changes.stores import stores
from hwtune.changes.system import ChangeError
from hwtune.changes.targets import from_key

if TYPE_CHECKING:
    from hwtune.changes.ledger import Entry, Ledger
    from hwtune.changes.system import System
    from hwtune.changes.targets import Target
    from hwtune.model import Machine

IN_FORCE = "in-force"
DRIFTED = "drifted"
GONE = "gone"
PENDING = "pending-reboot"
UNKNOWN = "unknown"
INTERRUPTED = "interrupted"


class Verified(msgspec.Struct, rename={"set_id": "set"}):
    """One thing that hwtune holds: ``wanted`` and ``now`` as a person reads them. ``status`` is
    in-force, drifted, gone, pending-reboot, unknown or interrupted."""

    target: str
    set_id: str
    wanted: str
    now: str
    status: str
    reason: str = ""
    suspects: list[str] = []


def verify(ledger: Ledger, system: System, machine: Machine | None) -> list[Verified]:
    """Everything that a change set in force holds or keeps. ``machine`` (from doctor's probes) lets a
    drift name who could have caused it; None leaves that out."""
    boot = system.boot_id()
    found = []
    for key in ledger.held_targets():
        entry = ledger.holders(key)[-1]
        booted = ledger.sets[entry.set_id].boot not in ("", boot)
        result = _look(entry, ledger, system, booted)
        if result.status == IN_FORCE and _is_back(entry, ledger):
            continue
        if result.status == DRIFTED and machine is not None:
            result.suspects = suspects(key, result.now, machine)
        if entry.store:
            keeper = ledger.keeper(entry.store)
            result.set_id = keeper.id if keeper is not None else entry.set_id
        found.append(result)
    return found + _at_boot(ledger, system, boot) + _checked(ledger, system)


def _is_back(entry: Entry, ledger: Ledger) -> bool:
    """Whether what was written last is what was there before hwtune: it holds nothing there."""
    return bool(entry.store) and same(entry.target, entry.after, ledger.original(entry.target))


def _look(entry: Entry, ledger: Ledger, system: System, booted: bool) -> Verified:
    result = Verified(naming.of_key(entry.target), entry.set_id, "", "not known", UNKNOWN)
    try:
        target = from_key(entry.target)
        result.wanted = target.show(entry.after)
        now = target.read(system)
        result.now = target.show(now)
        if entry.state == DONE and target.at_boot and target.same(now, entry.after):
            running = target.running(system, entry.after)
            if running is not None:
                result.now = target.show(running)
                result.status, result.reason = _pending(running, entry.after, booted)
                return result
    except ChangeError as error:
        result.reason = str(error)
        return result
    result.status, result.reason = _judge(entry, target, now, ledger, booted)
    return result


def _judge(entry: Entry, target: Target, now: Any, ledger: Ledger, booted: bool) -> tuple[str, str]:
    if entry.state != DONE:
        if entry.why:
            return INTERRUPTED, entry.why
        if entry.state == RESTORING:
            to = entry.before if entry.passing is None else entry.passing[1]
            back = "is" if target.same(now, to) else "is not"
            return INTERRUPTED, f"a run did not finish putting this back; it {back} as it was before"
        made = "was" if target.same(now, entry.after) else "was not"
        return INTERRUPTED, f"the run was interrupted here; the change {made} made"
    if target.same(now, entry.after):
        return IN_FORCE, ""
    if now is None:
        return GONE, "the device or file is no longer there"
    reasons = []
    if target.same(now, ledger.base(entry)):
        reasons.append("it is back at what it was before")
    if booted and not target.lasting:
        reasons.append("the machine has booted since it was set")
    return DRIFTED, " and ".join(reasons)


def _at_boot(ledger: Ledger, system: System, boot: str) -> list[Verified]:
    """What is kept for the next boot: whether this one has it already."""
    found = []
    known = stores()
    for item in ledger.items():
        store = known.get(item.store)
        running = store.running(system, item) if store is not None and store.at_boot else None
        if running is None:
            continue
        keeper = next(s for s in reversed(ledger.sets.values()) if item in s.items and not s.reverting)
        status, reason = _pending(running, item.value, keeper.boot not in ("", boot))
        name = naming.of_item(item.store, item.key)
        found.append(
            Verified(name, keeper.id, item.value or "not given", running or "not given", status, reason)
        )
    return found


def _checked(ledger: Ledger, system: System) -> list[Verified]:
    """What the system says, asked about the stores that can ask."""
    found = []
    for name, store in stores().items():
        keeper = ledger.keeper(name)
        if keeper is None:
            continue
        try:
            store.check(system, [i for i in ledger.items() if i.store == name])
        except ChangeError as error:
            found.append(
                Verified(f"store:{name}", keeper.id, "in force", "not in force", DRIFTED, str(error))
            )
    return found


def _pending(running: Any, wanted: Any, booted: bool) -> tuple[str, str]:
    if running == wanted:
        return IN_FORCE, ""
    if booted:
        return DRIFTED, "the machine has booted since, without it: see what boot loader and entry it took"
    return PENDING, "it takes effect at the next boot"


def suspects(key: str, now: str, machine: Machine) -> list[str]:
    """Who could have set a target to the value it has now, from what the probes saw."""
    found: list[str] = []
    kind, _, rest = key.partition(" ")
    path = rest.rpartition(" ")[2]
    if path.startswith("/proc/sys/"):
        found += _sysctl_files(naming.of_key(key).removeprefix("sysctl:"), now, machine)
    running = [s for s in machine.service.services if s.active.known and s.active.get()]
    for service in running:
        if service.name.startswith("tuned") or (
            service.name.startswith("irqbalance") and (kind == "irq" or "/irq/" in path)
        ):
            found.append(service.name + (f" ({service.detail})" if service.detail else ""))
        elif "cpufreq" in path and service.name.startswith(
            ("power-profiles", "tlp", "auto-cpufreq", "cpupower")
        ):
            found.append(service.name)
    if kind == "unit":
        found.append("systemctl, or a package's update")
    return list(dict.fromkeys(found))


def _sysctl_files(name: str, now: str, machine: Machine) -> list[str]:
    """The lines of sysctl.d files that set this value; where none does, all that set the key."""
    from hwtune.changes.places import SYSCTL

    lines = [
        s
        for s in (*machine.kernel.sysctl.settings, *machine.kernel.sysctl.unread)
        if s.key == name and s.file != SYSCTL
    ]
    exact = [s for s in lines if s.value is not None and s.value.split() == now.split()]
    return [f"{s.file}:{s.line}" for s in exact or lines]
