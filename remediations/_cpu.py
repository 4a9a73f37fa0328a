"""What several rows on CPUs share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.model.intent import hot_cpus
from hwtune.text.cpulist import format_list

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from hwtune.diagnosis import Verdict
    from hwtune.fact import Fact
    from hwtune.model import Machine
    from hwtune.model.cpus import FrequencyPolicy
    from hwtune.profile import Profile

BASE = "/sys/devices/system/cpu"

CPUFREQ = "Documentation/admin-guide/pm/cpufreq.rst (Linux 6.12)"
CPUIDLE = "Documentation/admin-guide/pm/cpuidle.rst (Linux 6.12)"
INTEL_PSTATE = "Documentation/admin-guide/pm/intel_pstate.rst (Linux 6.12)"
AMD_PSTATE = "Documentation/admin-guide/pm/amd-pstate.rst (Linux 6.12)"
PARAMETERS = "Documentation/admin-guide/kernel-parameters.txt"

_X86 = ("x86_64", "i386", "i686")


def subject(cpus: Iterable[int]) -> str:
    return f"cpu:{format_list(set(cpus))}"


def is_x86(machine: Machine) -> bool | None:
    for architecture in (machine.cpus.architecture, machine.kernel.architecture):
        if architecture.known:
            return architecture.get() in _X86
    return None


def policies_or_note(verdict: Verdict, machine: Machine) -> list[FrequencyPolicy]:
    """The cpufreq policies, or [] once it has been noted why there are none to judge."""
    cpus = machine.cpus
    if cpus.policies:
        return cpus.policies
    if cpus.policies_listed.unknown:
        verdict.unknown("kernel", cpus.policies_listed)
    elif machine.virtualization.is_guest:
        verdict.not_applicable("the hypervisor sets the clock: this guest has no cpufreq")
    else:
        verdict.not_applicable("no cpufreq driver runs here: firmware or the hypervisor sets the clock")
    return []


def note_unknown(verdict: Verdict, unread: list[tuple[FrequencyPolicy, Fact[Any]]]) -> None:
    """One note for all policies whose file is missing for the same reason, with the first one's."""
    groups: dict[tuple[str, str | None], list[tuple[FrequencyPolicy, Fact[Any]]]] = {}
    for policy, fact in unread:
        groups.setdefault((fact.source.rpartition("/")[2], fact.gap), []).append((policy, fact))
    for pairs in groups.values():
        verdict.unknown(subject(cpu for policy, _ in pairs for cpu in policy.cpus), pairs[0][1])


def judged_cpus(machine: Machine, profile: Profile) -> set[int] | None:
    """The hot CPUs where some are kept apart, else None, which means all."""
    hot = hot_cpus(machine, profile)
    return set(hot.get()) if hot.known and hot.get() else None


def megahertz(khz: float) -> str:
    """ "3.7 GHz", "800 MHz"."""
    return f"{khz / 1e6:.3g} GHz" if khz >= 1e6 else f"{khz / 1e3:.0f} MHz"
