"""cpufreq: policies, governors and limits; turbo; the modes of intel_pstate and amd_pstate; EPB.

Layout: Documentation/admin-guide/pm/{cpufreq,intel_pstate,amd-pstate}.rst (Linux 6.12). There is
one cpufreq driver at a time, so what the driver decides (its name, the governors, which optional
files there are) is read of the first policy only; what each policy sets is read of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import Fact, known
from hwtune.model.cpus import FrequencyPolicy
from hwtune.probes._cpu_topology import BASE
from hwtune.text.cpulist import MAX_CPUS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hwtune.host.base import Host
    from hwtune.model.cpus import Cpu, Cpus

_OPTIONAL = (
    "energy_performance_preference",
    "scaling_available_frequencies",
    "base_frequency",
    "bios_limit",
)


def read(host: Host, cpus: Cpus, asked: list[Cpu]) -> None:
    folders, cpus.policies_listed = _folders(host, asked)
    if folders:
        cpus.policies = _policies(host, folders)
    first = asked[0].id if asked else 0
    cpus.nominal_khz = host.integer(f"{BASE}/cpu{first}/acpi_cppc/nominal_freq").map(lambda mhz: mhz * 1000)
    cpus.pstate_driver = _pstate(host)
    cpus.min_perf_pct = host.integer(f"{BASE}/intel_pstate/min_perf_pct")
    cpus.max_perf_pct = host.integer(f"{BASE}/intel_pstate/max_perf_pct")
    cpus.turbo = _turbo(host)
    cpus.energy_bias, cpus.energy_bias_listed = per_cpu(host, asked, "power/energy_perf_bias")


def _folders(host: Host, asked: list[Cpu]) -> tuple[list[tuple[int, str]], Fact[bool]]:
    """(id, folder) of each policy. Before Linux 4.3 a policy's folder was cpuN/cpufreq, where
    newer kernels have a link to it."""
    common = host.names(f"{BASE}/cpufreq")
    numbers = sorted(int(n[6:]) for n in common.value or [] if n.startswith("policy") and n[6:].isdecimal())
    if numbers:
        return [(n, f"{BASE}/cpufreq/policy{n}") for n in numbers], common.map(bool)
    own = [(cpu.id, f"{BASE}/cpu{cpu.id}/cpufreq") for cpu in asked]
    first = host.names(own[0][1]) if own else common
    if own and first.known:
        return own, known(True, f"{BASE}/cpu*/cpufreq")
    # An empty common folder is what a kernel without a driver has, and what a capture may have left
    # of a full one: the CPU's own entry tells which, as only a host that knows says "absent".
    if own and common.known:
        return [], first.map(bool)
    return [], common.or_else(first).map(bool)


def _policies(host: Host, folders: list[tuple[int, str]]) -> list[FrequencyPolicy]:
    present = host.names(folders[0][1]).value or []
    optional = {name for name in _OPTIONAL if name in present}
    driver = host.parse(f"{folders[0][1]}/scaling_driver", word)
    governors = host.parse(f"{folders[0][1]}/scaling_available_governors", str.split)
    preferences: dict[str | None, Fact[list[str]]] = {}
    found: list[FrequencyPolicy] = []
    covered: set[int] = set()
    for number, folder in folders:
        if number in covered:
            continue
        policy = _policy(host, number, folder, optional)
        policy.driver, policy.governors = driver, governors
        # which preferences are on offer depends on the governor (amd-pstate: "performance" alone)
        governor = policy.governor.value
        if governor not in preferences:
            name = f"{folder}/energy_performance_available_preferences"
            preferences[governor] = host.parse(name, str.split)
        policy.preferences = preferences[governor]
        covered.update(policy.cpus)
        found.append(policy)
    return found


def _policy(host: Host, number: int, folder: str, optional: Iterable[str]) -> FrequencyPolicy:
    cpus = host.parse(f"{folder}/affected_cpus", _spaced)
    if not cpus.value:
        cpus = host.parse(f"{folder}/related_cpus", _spaced)
    policy = FrequencyPolicy(id=number, cpus=cpus.value or [number], path=folder)
    policy.governor = host.parse(f"{folder}/scaling_governor", word)
    policy.min_khz = host.integer(f"{folder}/scaling_min_freq")
    policy.max_khz = host.integer(f"{folder}/scaling_max_freq")
    policy.hardware_min_khz = host.integer(f"{folder}/cpuinfo_min_freq")
    policy.hardware_max_khz = host.integer(f"{folder}/cpuinfo_max_freq")
    if "energy_performance_preference" in optional:
        policy.preference = host.parse(f"{folder}/energy_performance_preference", word)
    if "scaling_available_frequencies" in optional:
        policy.table_max_khz = host.parse(f"{folder}/scaling_available_frequencies", _highest)
    if "base_frequency" in optional:
        policy.base_khz = host.integer(f"{folder}/base_frequency")
    if "bios_limit" in optional:
        policy.bios_limit_khz = host.integer(f"{folder}/bios_limit")
    return policy


def word(text: str) -> str:
    """The one word of a file that always has one: an empty one was not captured as it was."""
    if not text:
        raise ValueError("empty")
    return text


def _spaced(text: str) -> list[int]:
    """CPU numbers with blanks between them, as cpufreq prints its masks."""
    numbers = [int(word) for word in text.split()]
    if any(not 0 <= number < MAX_CPUS for number in numbers):
        raise ValueError("not CPU numbers")
    return sorted(set(numbers))


def _highest(text: str) -> int:
    return max(int(word) for word in text.split())


def _pstate(host: Host) -> Fact[str]:
    intel = host.parse(f"{BASE}/intel_pstate/status", word)
    if intel.known:
        return intel.map(lambda status: f"intel_pstate {status}")
    amd = host.parse(f"{BASE}/amd_pstate/status", word)
    return amd.map(lambda status: f"amd_pstate {status}") if amd.known else intel


def _turbo(host: Host) -> Fact[bool]:
    no_turbo = host.parse(f"{BASE}/intel_pstate/no_turbo", _flag)
    if no_turbo.known:
        return no_turbo.map(lambda off: not off)
    return host.parse(f"{BASE}/cpufreq/boost", _flag).or_else(no_turbo)


def _flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError(text)
    return text == "1"


def per_cpu(host: Host, asked: list[Cpu], name: str) -> tuple[list[tuple[list[int], str]], Fact[bool]]:
    """One small file of every CPU, as (CPUs, text) groups of equal texts; and whether it is there.
    All CPUs have it or none: where the first one has not, the others are not asked."""
    groups: dict[str, list[int]] = {}
    first: Fact[str] | None = None
    for cpu in asked:
        text = host.text(f"{BASE}/cpu{cpu.id}/{name}")
        first = first or text
        if not first.known:
            break
        if text.known:
            groups.setdefault(text.get(), []).append(cpu.id)
    if first is None:
        first = host.text(f"{BASE}/cpu0/{name}")
    return [(members, text) for text, members in groups.items()], first.map(lambda _: True)
