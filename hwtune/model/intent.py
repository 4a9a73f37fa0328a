"""Which CPUs the machine means to keep for hot threads: a question that many rows share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import NOT_CAPTURED, Fact, gap, known
from hwtune.text.cpulist import parse_list
from hwtune.text.isolcpus import parse_isolcpus

if TYPE_CHECKING:
    from hwtune.model import Machine
    from hwtune.profile import Profile


def last_cpu(machine: Machine) -> int | None:
    """What ``N`` stands for in the kernel's CPU lists: nr_cpu_ids - 1."""
    for fact in (machine.cpus.possible, machine.cpus.present, machine.cpus.online):
        if fact.known and fact.get():
            return max(fact.get())
    return None


def requested_isolated(machine: Machine) -> Fact[list[int]]:
    """The CPUs that isolcpus= names, whatever its flags. [] when the argument is not given."""
    return _requested(machine, "isolcpus")


def requested_nohz_full(machine: Machine) -> Fact[list[int]]:
    return _requested(machine, "nohz_full")


def _requested(machine: Machine, name: str) -> Fact[list[int]]:
    arguments = machine.kernel.arguments
    if not arguments.known:
        return Fact(None, arguments.source, arguments.gap, arguments.detail)
    found: set[int] = set()
    last = last_cpu(machine)
    for value in machine.kernel.argument_values(name):
        try:
            found.update(parse_isolcpus(value, last).cpus if name == "isolcpus" else parse_list(value, last))
        except ValueError as error:
            return gap("invalid", f"{arguments.source} {name}=", str(error))
    return known(sorted(found), arguments.source)


def isolated_partitions(machine: Machine) -> Fact[list[int]]:
    """CPUs of cgroup v2 cpuset partitions that are isolated and valid."""
    partitions = machine.cpus.partitions
    if not partitions.known:
        return Fact(None, partitions.source, partitions.gap, partitions.detail)
    return known(sorted({c for p in partitions.get() if p.state == "isolated" for c in p.cpus}), partitions.source)


def hot_cpus(machine: Machine, profile: Profile) -> Fact[list[int]]:
    """The CPUs meant for hot threads: the profile's ``isolation.cpus``, or with "auto" all that
    isolcpus=, the kernel's isolated file or an isolated cpuset partition names.

    [] means that the machine keeps no CPU apart (known). A gap means that none of the sources
    could be read.
    """
    if profile.isolation.cpus != "auto":
        try:
            return known(parse_list(profile.isolation.cpus, last_cpu(machine)), "profile isolation.cpus")
        except ValueError as error:
            return gap("invalid", "profile isolation.cpus", str(error))
    facts = [machine.cpus.isolated, requested_isolated(machine), isolated_partitions(machine)]
    usable = [f for f in facts if f.known and f.get()]
    if usable:
        return known(sorted({c for f in usable for c in f.get()}), " + ".join(dict.fromkeys(f.source for f in usable)))
    answered = [f for f in facts[:2] if f.known]
    if answered:
        return known([], answered[0].source)
    return gap(NOT_CAPTURED, facts[0].source, facts[0].why())


def housekeeping_cpus(machine: Machine, hot: list[int]) -> Fact[list[int]]:
    """The online CPUs that are not hot: where everything else belongs."""
    online = machine.cpus.online
    return online.map(lambda cpus: [c for c in cpus if c not in set(hot)])
