"""Is what was applied still in force, and if not, who changed it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hwtune.changes.compile import target_from_key
from hwtune.changes.ledger import INTENDED, KEPT
from hwtune.changes.system import ChangeError

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


class Verified(msgspec.Struct):
    """One target that hwtune holds: ``wanted`` and ``now`` as a person reads them."""

    target: str
    set_id: str
    wanted: str
    now: str
    status: str
    reason: str = ""
    suspects: list[str] = []


def verify(ledger: Ledger, system: System, machine: Machine | None) -> list[Verified]:
    """Every target held by a change set in force. ``machine`` (from doctor's probes) lets a
    drift name who could have caused it; None leaves that out."""
    boot = system.boot_id()
    found = []
    for key in ledger.held_targets():
        entry = ledger.holders(key)[-1]
        target = target_from_key(key)
        result = _look(entry, target, ledger.original(key), system)
        if result.status == DRIFTED and ledger.sets[entry.set_id].boot not in ("", boot):
            result.reason = "the machine has booted since it was set"
        if result.status == DRIFTED and machine is not None:
            result.suspects = suspects(key, machine)
        found.append(result)
    return found


def _look(entry: Entry, target: Target, original: Any, system: System) -> Verified:
    def told(now: str, status: str, reason: str = "") -> Verified:
        return Verified(entry.target, entry.set_id, target.show(entry.after), now, status, reason)

    try:
        now = target.read(system)
    except ChangeError as error:
        return told("not known", UNKNOWN, str(error))
    if entry.state == INTENDED:
        made = "was" if target.same(now, entry.after) else "was not"
        return told(target.show(now), INTERRUPTED, f"the run was interrupted here; the change {made} made")
    if target.same(now, entry.after):
        return told(target.show(now), IN_FORCE)
    if entry.state == KEPT:
        return told(target.show(now), DRIFTED, "a revert left it, as someone had changed it")
    if now is None:
        return told("absent", GONE, "the device or file is no longer there")
    if target.same(now, original):
        return told(target.show(now), DRIFTED, "it is back at what it was before hwtune")
    return told(target.show(now), DRIFTED)


def suspects(key: str, machine: Machine) -> list[str]:
    """Who could have set a target to another value, from what the probes saw."""
    found: list[str] = []
    kind, _, rest = key.partition(" ")
    path = rest.rpartition(" ")[2]
    if path.startswith("/proc/sys/"):
        name = path.removeprefix("/proc/sys/").replace("/", ".")
        found += [f"{s.file}:{s.line}" for s in machine.kernel.sysctl.settings if s.key == name]
    running = [s for s in machine.service.services if s.active.known and s.active.get()]
    for service in running:
        if service.name.startswith("tuned") or (service.name.startswith("irqbalance") and "/irq/" in path):
            found.append(service.name + (f" ({service.detail})" if service.detail else ""))
        elif "cpufreq" in path and service.name.startswith(
            ("power-profiles", "tlp", "auto-cpufreq", "cpupower")
        ):
            found.append(service.name)
    if kind == "unit":
        found.append("systemctl, or a package's update")
    return list(dict.fromkeys(found))
