"""Isolated partitions of cgroup v2 (Linux Documentation/admin-guide/cgroup-v2.rst, "Cpuset").

The group is a slice of systemd's, directly below the root: systemd then keeps the cpuset controller
on, and a service is put in with Slice=. A partition takes its CPUs out of the scheduler's balancing
and nothing else: the tick, interrupts and per-CPU kernel threads stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes.system import ChangeError
from hwtune.changes.targets.base import Target, Value
from hwtune.text.cpulist import parse_list

if TYPE_CHECKING:
    from hwtune.changes.system import System

_ROOT = "/sys/fs/cgroup"
NONE = "no partition"


class Partition(Target):
    """The value is "isolated 2-3", or "no partition" where the slice does not run or is a plain one.
    A partition that the kernel does not accept reads "isolated invalid (why)"."""

    kind = "cpuset"
    atomic = False

    def __init__(self, name: str) -> None:
        # a dash in the name of a slice would make it the child of another
        self.name = name.removesuffix(".slice").replace("-", "_")
        self.slice = f"{self.name}.slice"
        self.folder = f"{_ROOT}/{self.slice}"

    @property
    def key(self) -> str:
        return f"cpuset {self.name}"

    def need(self, system: System) -> None:
        """Raises ``ChangeError`` where the kernel or systemd cannot do it."""
        controllers = system.attribute(f"{_ROOT}/cgroup.controllers")
        if not controllers.known:
            raise ChangeError(
                "this machine does not use cgroup v2 throughout (systemd.unified_cgroup_hierarchy)"
            )
        if "cpuset" not in controllers.get().split():
            raise ChangeError("cgroup v2 has no cpuset controller here")
        if not system.host.exists("/run/systemd/system").value:
            raise ChangeError("systemd does not run here, and the partition is a slice of its")

    def read(self, system: System) -> Value:
        state = system.attribute(f"{self.folder}/cpuset.cpus.partition")
        if state.absent:
            return NONE
        if not state.known:
            raise ChangeError(state.why())
        if state.get() == "member":
            return NONE
        cpus = system.attribute(f"{self.folder}/cpuset.cpus")
        return f"{state.get()} {cpus.get()}" if cpus.known and "invalid" not in state.get() else state.get()

    def write(self, system: System, value: Value) -> None:
        if value == NONE:
            self._end(system)
            return
        kind, _, cpus = str(value).partition(" ")
        if kind != "isolated":
            raise ChangeError(f"{value} is no partition that hwtune makes")
        system.run(["systemctl", "start", self.slice])
        system.run(["systemctl", "set-property", "--runtime", self.slice, f"AllowedCPUs={cpus}"])
        try:
            system.write_attribute(f"{self.folder}/cpuset.cpus.partition", "isolated")
        except ChangeError as error:
            self._end(system)
            raise error
        now = self.read(system)
        if not self.same(now, value):
            self._end(system)
            raise ChangeError(f"the kernel does not accept the partition: {now}")

    def same(self, one: Value, other: Value) -> bool:
        if one == other:
            return True
        (kind, _, cpus), (other_kind, _, other_cpus) = str(one).partition(" "), str(other).partition(" ")
        try:
            return kind == other_kind == "isolated" and parse_list(cpus) == parse_list(other_cpus)
        except ValueError:
            return False

    def _end(self, system: System) -> None:
        """Give the CPUs back. Services in the slice would be stopped with it, so they come first."""
        populated = system.attribute(f"{self.folder}/cgroup.events")
        if populated.known and "populated 1" in populated.get():
            raise ChangeError(f"processes run in {self.slice}; stop their services first")
        if system.attribute(f"{self.folder}/cpuset.cpus.partition").known:
            system.write_attribute(f"{self.folder}/cpuset.cpus.partition", "member")
        system.run(["systemctl", "stop", self.slice])
        # drops the run-time property with its file below /run
        system.run(["systemctl", "revert", self.slice])
