"""Which CPUs the machine means to keep for hot threads: a question that many rows share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import INVALID, UNREADABLE, Fact, gap, known
from hwtune.text.cpulist import parse_list
from hwtune.text.isolcpus import parse_isolcpus

if TYPE_CHECKING:
    from hwtune.model import Machine
    from hwtune.profile import Profile

# The CPU that starts the others: 0, unless a crash kernel was started on another one.
BOOT_CPU = 0


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
    """INVALID is kept for a list that the kernel itself could not have read."""
    arguments = machine.kernel.arguments
    if not arguments.known:
        kind = UNREADABLE if arguments.gap == INVALID else arguments.gap
        return Fact(None, arguments.source, kind, arguments.detail)
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
    return known(
        sorted({c for p in partitions.get() if p.state == "isolated" for c in p.cpus}), partitions.source
    )


def existing_cpus(machine: Machine) -> Fact[list[int]]:
    """The CPUs that the machine has or may get. A list in a file or argument may name others."""
    cpus = machine.cpus
    for fact in (cpus.possible, cpus.present):
        if fact.known and fact.get():
            return fact
    # the kernel lists as offline every possible CPU that is not online
    if cpus.online.known and cpus.offline.known:
        both = sorted({*cpus.online.get(), *cpus.offline.get()})
        return known(both, f"{cpus.online.source} + {cpus.offline.source}")
    return cpus.possible if cpus.possible.unknown else cpus.present


def hot_cpus(machine: Machine, profile: Profile) -> Fact[list[int]]:
    """The CPUs meant for hot threads, of those that exist (``named_cpus``, ``existing_cpus``).

    [] means that the machine keeps no CPU apart (known). A gap means that none of the sources
    could be read.
    """
    named, exist = named_cpus(machine, profile), existing_cpus(machine)
    if not (named.known and exist.known):
        return named
    there = frozenset(exist.get())
    return known([c for c in named.get() if c in there], named.source)


def named_cpus(machine: Machine, profile: Profile) -> Fact[list[int]]:
    """The CPUs that are named for hot threads: by the profile's ``isolation.cpus``, or with "auto"
    by isolcpus=, the kernel's isolated file or an isolated cpuset partition; where none of them
    names any, by nohz_full, which is as good as a statement of intent."""
    if profile.isolation.cpus != "auto":
        try:
            return known(parse_list(profile.isolation.cpus, last_cpu(machine)), "profile isolation.cpus")
        except ValueError as error:
            return gap("invalid", "profile isolation.cpus", str(error))
    facts = [machine.cpus.isolated, requested_isolated(machine), isolated_partitions(machine)]
    found = _union(facts) or _union([machine.cpus.nohz_full, requested_nohz_full(machine)])
    if found is not None:
        return found
    answered = [f for f in facts[:2] if f.known]
    if answered:
        return known([], answered[0].source)
    unread = next((f for f in facts[:2] if f.unknown), facts[0])
    return Fact(None, unread.source, unread.gap, unread.detail)


def _union(facts: list[Fact[list[int]]]) -> Fact[list[int]] | None:
    """The CPUs that any of the facts names, or None where none does."""
    usable = [f for f in facts if f.known and f.get()]
    if not usable:
        return None
    cpus = {c for f in usable for c in f.get()}
    return known(sorted(cpus), " + ".join(dict.fromkeys(f.source for f in usable)))


def housekeeping_cpus(machine: Machine, hot: list[int]) -> Fact[list[int]]:
    """The online CPUs that are not hot: where everything else belongs."""
    apart = frozenset(hot)
    return machine.cpus.online.map(lambda cpus: [c for c in cpus if c not in apart])


def split_cores(machine: Machine, hot: list[int]) -> list[list[int]]:
    """Groups of SMT siblings that are partly hot and partly not (online CPUs only)."""
    groups = machine.cpus.smt
    if not groups.known:
        return []
    online = frozenset(machine.cpus.online.get()) if machine.cpus.online.known else None
    apart = frozenset(hot)
    found = []
    for group in groups.get():
        here = [c for c in group if online is None or c in online]
        if 0 < sum(c in apart for c in here) < len(here):
            found.append(here)
    return found


def repaired(machine: Machine, profile: Profile, hot: list[int]) -> list[int]:
    """The set that boot arguments should name in place of ``hot``: without the boot CPU, without
    CPUs that do not exist, and of whole cores only.

    All rows propose this one set, so that their changes agree. Half-hot cores are left out, or
    made whole where that would leave none; the other way round where the profile names the CPUs.
    [] where no housekeeping CPU would be left.
    """
    online = frozenset(machine.cpus.online.get()) if machine.cpus.online.known else None
    exist = frozenset(machine.cpus.possible.get()) if machine.cpus.possible.known else online
    kept = {c for c in hot if c != BOOT_CPU and (exist is None or c in exist)}
    halves = split_cores(machine, sorted(kept))
    without = kept - {c for core in halves for c in core}
    whole = without | {c for core in halves if BOOT_CPU not in core for c in core}
    choice = (without, whole) if profile.isolation.cpus == "auto" else (whole, without)
    for candidate in (*choice, kept):
        if candidate and (online is None or online - candidate):
            return sorted(candidate)
    return []
