"""What several rows on isolation ask: which CPUs, from which arguments, and what those should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes import KernelArguments
from hwtune.diagnosis import evidence
from hwtune.fact import Fact, known
from hwtune.model.intent import hot_cpus, isolated_partitions, last_cpu, repaired
from hwtune.text.cpulist import format_list, parse_list
from hwtune.text.isolcpus import Isolcpus, format_isolcpus, parse_isolcpus

if TYPE_CHECKING:
    from hwtune.diagnosis import Evidence, Verdict
    from hwtune.model import Machine
    from hwtune.profile import Profile

ISOLATED = "/sys/devices/system/cpu/isolated"
ISOLATION_C = "kernel/sched/isolation.c (Linux 6.12)"
PARAMETERS = "Documentation/admin-guide/kernel-parameters.txt"


def hot_or_note(verdict: Verdict, machine: Machine, profile: Profile) -> list[int]:
    """The hot CPUs, or [] once it has been noted why there are none to judge."""
    hot = hot_cpus(machine, profile)
    if not hot.known:
        verdict.unknown("kernel", f"which CPUs are kept apart is not known: {hot.why()}")
        return []
    if not hot.get():
        verdict.not_applicable(f"no CPU is kept apart ({hot.source})")
    return hot.get()


def cpus_of(cpus: list[int]) -> str:
    """The words for a set of CPUs in a sentence."""
    return f"CPU {cpus[0]}" if len(cpus) == 1 else f"CPUs {format_list(cpus)}"


def is_x86(machine: Machine) -> bool | None:
    architecture = machine.kernel.architecture
    return architecture.get() in ("x86_64", "i386", "i686") if architecture.known else None


def isolcpus_given(machine: Machine) -> list[Isolcpus]:
    """Every isolcpus= that the kernel can read."""
    last = last_cpu(machine)
    found = []
    for value in machine.kernel.argument_values("isolcpus"):
        try:
            found.append(parse_isolcpus(value, last))
        except ValueError:
            continue
    return found


def asked_of_scheduler(machine: Machine) -> list[int]:
    """The CPUs of the isolcpus= that means the scheduler's domains; of several lists the kernel
    takes the first."""
    return next((i.cpus for i in isolcpus_given(machine) if i.domain), [])


def asked_of_tick(machine: Machine) -> list[int]:
    """The CPUs that nohz_full= or isolcpus=nohz, names, as far as they can be read."""
    found = set(listed(machine, "nohz_full"))
    found.update(c for i in isolcpus_given(machine) if "nohz" in i.flags for c in i.cpus)
    return sorted(found)


def out_of_scheduler(machine: Machine) -> Fact[list[int]]:
    """CPUs that the load balancer leaves alone: by the kernel's own list (by the command line
    where that was not read) and by valid isolated cpuset partitions."""
    isolated = machine.cpus.isolated
    partitions = isolated_partitions(machine)
    cpus = set(isolated.get() if isolated.known else asked_of_scheduler(machine))
    sources = [isolated.source if isolated.known else machine.kernel.arguments.source]
    if partitions.known and partitions.get():
        cpus.update(partitions.get())
        sources.append(partitions.source)
    return known(sorted(cpus), " + ".join(sources))


def listed(machine: Machine, name: str) -> list[int]:
    """The CPUs of all arguments of a name; values that are no CPU list are passed over."""
    found: set[int] = set()
    last = last_cpu(machine)
    for value in machine.kernel.argument_values(name):
        try:
            found.update(parse_list(value, last))
        except ValueError:
            continue
    return sorted(found)


def as_given(machine: Machine, name: str, expected: str = "") -> list[Evidence]:
    """The argument as it stands in the command line, each time that it does."""
    arguments = machine.kernel.arguments
    if not arguments.known:
        return []
    return [evidence(arguments.source, a.text, expected) for a in arguments.get() if a.name == name]


def wanted(machine: Machine, name: str, cpus: list[int]) -> str:
    """The whole argument for these CPUs; flags of an isolcpus= that is given stay."""
    if name != "isolcpus":
        return f"{name}={format_list(cpus)}"
    given = [flag for parsed in isolcpus_given(machine) for flag in parsed.flags]
    return f"isolcpus={format_isolcpus(cpus, tuple(dict.fromkeys(('domain', 'managed_irq', *given))))}"


def with_arguments(machine: Machine, cpus: list[int], *names: str) -> list[KernelArguments]:
    """The change that gives these arguments for these CPUs; none without CPUs."""
    return (
        [KernelArguments(set=tuple(wanted(machine, name, cpus) for name in names))] if cpus and names else []
    )


def isolating_arguments(machine: Machine, hot: list[int]) -> tuple[str, ...]:
    """Which of the isolating arguments are given. An rcu_nocbs= of more CPUs than the hot ones has
    reasons of its own."""
    names = [name for name in ("isolcpus", "nohz_full") if machine.kernel.has_argument(name)]
    offloaded = listed(machine, "rcu_nocbs")
    if offloaded and set(offloaded) <= set(hot):
        names.append("rcu_nocbs")
    return tuple(names)


def why_others(machine: Machine, profile: Profile, hot: list[int]) -> str:
    """A sentence for where the proposed set is not the one that is named now."""
    if repaired(machine, profile, hot) == hot:
        return ""
    return (
        " The set proposed is of whole cores without the boot CPU (isolation.smt-split, isolation.boot-cpu)."
    )


def without_tick_support(machine: Machine) -> list[Evidence]:
    """What shows that the kernel was built without CONFIG_NO_HZ_FULL; [] where nothing does."""
    kernel = machine.kernel
    found = []
    if machine.cpus.nohz_full.absent:
        found.append(evidence(machine.cpus.nohz_full.source, "absent", "a list of CPUs"))
    if kernel.config.known and kernel.config.get().get("CONFIG_NO_HZ_FULL", "y") != "y":
        found.append(evidence(kernel.config.source, "CONFIG_NO_HZ_FULL is not set", "CONFIG_NO_HZ_FULL=y"))
    found.extend(evidence(line.source, line.text) for line in kernel.log if "nohz unsupported" in line.text)
    found.extend(ignored(machine, "nohz_full"))
    return found


def without_offload_support(machine: Machine) -> list[Evidence]:
    """What shows that the kernel was built without CONFIG_RCU_NOCB_CPU."""
    kernel = machine.kernel
    found = []
    if kernel.config.known and kernel.config.get().get("CONFIG_RCU_NOCB_CPU", "y") != "y":
        found.append(
            evidence(kernel.config.source, "CONFIG_RCU_NOCB_CPU is not set", "CONFIG_RCU_NOCB_CPU=y")
        )
    return found + ignored(machine, "rcu_nocbs")


def ignored(machine: Machine, name: str) -> list[Evidence]:
    """The kernel's word that it does not know an argument."""
    unknown = machine.kernel.unknown_parameters
    if not unknown.known:
        return []
    return [
        evidence(unknown.source, f"unknown kernel command line parameter {text}")
        for text in unknown.get()
        if text.partition("=")[0] == name
    ]
