"""Affinities of interrupts (Linux Documentation/core-api/irq/irq-affinity.rst).

Numbers of interrupts change from boot to boot, so that a target also has what the interrupt is: the
PCI function that owns it and the names of its actions.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from hwtune.changes.system import ChangeError
from hwtune.changes.targets.base import Target, Value
from hwtune.text.cpulist import format_list, parse_list

if TYPE_CHECKING:
    from hwtune.changes.system import System

_IRQS = "/proc/irq"
_DEVICES = "/sys/bus/pci/devices"
# what is in /proc/irq/N beside a folder for each action (kernel/irq/proc.c)
_FILES = frozenset(
    (
        "affinity_hint",
        "effective_affinity",
        "effective_affinity_list",
        "node",
        "smp_affinity",
        "smp_affinity_list",
        "spurious",
    )
)
NOBODY = "-"
_NOT = " not "
# EIO before Linux 6.12, EPERM since (kernel/irq/proc.c, write_irq_affinity)
_MANAGED = (errno.EIO, errno.EPERM)

_owners: WeakKeyDictionary[System, dict[int, str]] = WeakKeyDictionary()


class IrqSetting(Target):
    """The CPUs that one interrupt was asked to go to (smp_affinity_list; it may be served by another
    one until it fires next). The value is a CPU list, None where there is no such interrupt. A value
    that is wanted may end in "not LIST": any CPUs but these will do, since irqbalance or a driver may
    choose among the others."""

    kind = "irq"

    def __init__(self, number: int, owner: str, actions: str) -> None:
        self.number = number
        self.owner = owner
        self.actions = actions

    @classmethod
    def of(cls, system: System, number: int) -> IrqSetting:
        """The interrupt that has this number now."""
        actions = _actions(system, number)
        if actions is None:
            raise ChangeError(f"there is no IRQ {number} any more")
        return cls(number, _owner(system, number), actions)

    @classmethod
    def from_rest(cls, rest: str) -> IrqSetting:
        number, owner, actions = rest.split(" ", 2)
        return cls(int(number), owner, actions)

    @property
    def key(self) -> str:
        return f"irq {self.number} {self.owner} {self.actions}"

    def read(self, system: System) -> Value:
        number = self.locate(system)
        if number is None:
            return None
        fact = system.attribute(f"{_IRQS}/{number}/smp_affinity_list")
        if fact.absent:
            return None
        if not fact.known:
            raise ChangeError(fact.why())
        return fact.get()

    def write(self, system: System, value: Value) -> None:
        number = self.locate(system)
        if number is None or value is None:
            raise ChangeError(f"there is no IRQ of {self._name()} any more")
        cpus = value.partition(_NOT)[0]
        try:
            system.write_attribute(f"{_IRQS}/{number}/smp_affinity_list", cpus)
        except ChangeError as error:
            raise ChangeError(self._why(number, cpus, error), error.number) from None

    def same(self, one: Value, other: Value) -> bool:
        if one is None or other is None:
            return one is other
        try:
            (cpus, away), (other_cpus, other_away) = _parsed(one), _parsed(other)
        except ValueError:
            return bool(one == other)
        free = away | other_away
        return cpus == other_cpus or bool(free and not free & cpus and not free & other_cpus)

    def show(self, value: Value) -> str:
        return "absent" if value is None else f"CPUs {value.partition(_NOT)[0]}"

    def locate(self, system: System) -> int | None:
        """The number that the interrupt has now; None where it is gone, or is one of several."""
        if self._is(system, self.number):
            return self.number
        if self.owner == NOBODY and not self.actions:
            return None
        names = system.host.names(_IRQS)
        numbers = [int(n) for n in names.get() if n.isdecimal()] if names.known else []
        found = [n for n in numbers if self._is(system, n)]
        return found[0] if len(found) == 1 else None

    def _is(self, system: System, number: int) -> bool:
        return _actions(system, number) == self.actions and _owner(system, number) == self.owner

    def _name(self) -> str:
        return " ".join(part for part in (self.actions, self.owner) if part and part != NOBODY) or "nobody"

    def _why(self, number: int, value: str, error: ChangeError) -> str:
        if error.number in _MANAGED:
            return (
                f"IRQ {number} ({self._name()}) is managed by the kernel, which lets nobody move it; "
                "isolcpus=managed_irq at boot keeps it off isolated CPUs"
            )
        if error.number == errno.ENOSPC:
            return f"CPUs {value} have no interrupt vector left for IRQ {number}; choose more CPUs"
        if error.number == errno.EINVAL:
            return f"none of CPUs {value} is online to serve IRQ {number}"
        return str(error)


def off(cpus: str, away: str) -> str:
    """The value of an interrupt that is to go to ``cpus``, and may be anywhere but on ``away``."""
    return f"{cpus}{_NOT}{away}" if away else cpus


def _parsed(value: str) -> tuple[frozenset[int], frozenset[int]]:
    cpus, _, away = value.partition(_NOT)
    return frozenset(parse_list(cpus)), frozenset(parse_list(away))


class IrqsAway(Target):
    """That no interrupt that can be moved is served by these CPUs. The value is the list of those
    that still are, by number; "" is what is wanted. Only the boot unit sets it."""

    kind = "irqs-away"

    def __init__(self, cpus: str) -> None:
        self.cpus = frozenset(parse_list(cpus))
        self._fixed: set[int] = set()  # those that turned out to be managed

    @property
    def key(self) -> str:
        return f"irqs-away {format_list(self.cpus)}"

    def read(self, system: System) -> Value:
        return ",".join(str(number) for number, _ in self._here(system))

    def write(self, system: System, value: Value) -> None:
        """Move each to the other CPUs that it may go to already, or where there are none, to those
        of its node, or to all others."""
        left = self._elsewhere(system)
        failed = []
        for number, cpus in self._here(system):
            wanted = [cpu for cpu in cpus if cpu in left]
            if not wanted:
                near = self._near(system, number)
                wanted = [cpu for cpu in left if cpu in near] or left
            try:
                system.write_attribute(f"{_IRQS}/{number}/smp_affinity_list", format_list(wanted))
            except ChangeError as error:
                if error.number not in _MANAGED:
                    failed.append(str(error))
                self._fixed.add(number)
        if failed:
            raise ChangeError("; ".join(failed[:3]) + (f"; and {len(failed) - 3} more" if failed[3:] else ""))

    def told(self, before: Value, after: Value) -> str:
        numbers = [int(number) for number in before.split(",")]
        moved = format_list({number for number in numbers if number not in self._fixed})
        fixed = format_list({number for number in numbers if number in self._fixed})
        parts = [f"moved IRQs {moved}"] if moved else []
        if fixed:
            parts.append(f"IRQs {fixed} stay, as the kernel manages them")
        return "; ".join(parts)

    def _near(self, system: System, number: int) -> list[int]:
        node = system.host.integer(f"{_IRQS}/{number}/node")
        if not node.known or node.get() < 0:
            return []
        cpus = system.host.parse(f"/sys/devices/system/node/node{node.get()}/cpulist", parse_list)
        return cpus.get() if cpus.known else []

    def _elsewhere(self, system: System) -> list[int]:
        online = system.host.parse("/sys/devices/system/cpu/online", parse_list)
        if not online.known:
            raise ChangeError(online.why())
        left = [cpu for cpu in online.get() if cpu not in self.cpus]
        if not left:
            raise ChangeError(f"there is no CPU but {format_list(self.cpus)}")
        return left

    def _here(self, system: System) -> list[tuple[int, list[int]]]:
        """Interrupts with an action that may be served by these CPUs, with all that may serve them."""
        names = system.host.names(_IRQS)
        if not names.known:
            raise ChangeError(names.why())
        found = []
        for number in sorted(int(n) for n in names.get() if n.isdecimal()):
            if number in self._fixed or not _actions(system, number):
                continue
            # what was asked for, not what is in force: a move happens when the interrupt fires next
            cpus = system.host.parse(f"{_IRQS}/{number}/smp_affinity_list", parse_list)
            if cpus.known and self.cpus.intersection(cpus.get()):
                found.append((number, cpus.get()))
        return found


def _actions(system: System, number: int) -> str | None:
    """The names of the actions, None where there is no such interrupt."""
    names = system.host.names(f"{_IRQS}/{number}")
    if not names.known:
        return None
    return ", ".join(name for name in names.get() if name not in _FILES)


def _owner(system: System, number: int) -> str:
    """The PCI function of a message-signalled interrupt; "-" for all others."""
    known = _owners.get(system)
    if known is None or number not in known:
        known = _owners[system] = _scan(system)
        known.setdefault(number, NOBODY)
    return known[number]


def _scan(system: System) -> dict[int, str]:
    found: dict[int, str] = {}
    devices = system.host.names(_DEVICES)
    for address in devices.get() if devices.known else ():
        vectors = system.host.names(f"{_DEVICES}/{address}/msi_irqs")
        for name in vectors.get() if vectors.known else ():
            if name.isdecimal():
                found[int(name)] = address
    numbers = system.host.names(_IRQS)
    for name in numbers.get() if numbers.known else ():
        if name.isdecimal():
            found.setdefault(int(name), NOBODY)
    return found
