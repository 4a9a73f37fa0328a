"""CPU clocks: governors, limits, turbo, energy hints, drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes import SysfsAttribute
from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.remediations._common import HOST_ONLY, fix, plural
from hwtune.remediations._cpu import (
    AMD_PSTATE,
    BASE,
    CPUFREQ,
    INTEL_PSTATE,
    PARAMETERS,
    megahertz,
    note_unknown,
    policies_or_note,
    subject,
)

if TYPE_CHECKING:
    from typing import Any

    from hwtune.diagnosis import Evidence
    from hwtune.fact import Fact
    from hwtune.model import Machine
    from hwtune.model.cpus import FrequencyPolicy
    from hwtune.profile import Profile

# Limits are compared with this much of slack: drivers round to their own steps.
_SLACK = 0.005


def _cpus(policies: list[FrequencyPolicy]) -> list[int]:
    return sorted({cpu for policy in policies for cpu in policy.cpus})


# -- cpu.governor ----------------------------------------------------------------------------

_GOVERNORS = {
    "powersave": "keeps the clock at its lowest",
    "ondemand": "raises the clock only after a CPU was seen busy",
    "conservative": "raises the clock step by step after a CPU was seen busy",
    "schedutil": "follows the scheduler's estimate of the load, which lags behind a burst",
    "userspace": "leaves the clock where a program last put it",
}


@row(
    "cpu.governor",
    title="The frequency governor keeps the clock up",
    symptom="The first work after a pause is slow; P99 is far above the median at low load.",
    cause="A governor that follows the load lowers the clock in every pause, and raises it again too late.",
    severity="warning",
    scope="runtime",
    risk="The CPUs get warmer; a box with little cooling may throttle.",
    cost="power",
    sources=(CPUFREQ, INTEL_PSTATE),
)
def governor(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    wanted = profile.cpu.governor
    wrong: dict[str, list[FrequencyPolicy]] = {}
    unread: list[tuple[FrequencyPolicy, Fact[Any]]] = []
    for policy in policies_or_note(verdict, machine):
        if not policy.governor.known:
            unread.append((policy, policy.governor))
        elif policy.governor.get() in wanted:
            verdict.ok()
        else:
            wrong.setdefault(policy.governor.get(), []).append(policy)
    note_unknown(verdict, unread)
    for name, policies in wrong.items():
        _governor_finding(verdict, machine, name, policies, wanted)
    if verdict.good:
        good = next(p for p in machine.cpus.policies if p.governor.known and p.governor.get() in wanted)
        verdict.evidence.append(fact_evidence(good.governor, " or ".join(wanted)))
    return verdict


def _governor_finding(
    verdict: Verdict, machine: Machine, name: str, policies: list[FrequencyPolicy], wanted: list[str]
) -> None:
    first = policies[0]
    what = _GOVERNORS.get(name, "may lower the clock")
    if name == "powersave" and first.driver.value in ("intel_pstate", "amd-pstate-epp"):
        what = f"lets {first.driver.value} lower the clock of a CPU with little to do"
    offered = first.governors.value
    target = next((g for g in wanted if offered is not None and g in offered), None)
    items = [fact_evidence(first.governor, " or ".join(wanted))]
    if target is None:
        if offered is not None:
            items.append(evidence(first.governors.source, " ".join(offered), f"has {wanted[0]}"))
        advice = f"Load the module cpufreq_{wanted[0]}, if this kernel has it, and choose that governor."
        mend: dict[str, Any] = {"advice": advice}
    else:
        mend = fix(machine, *(SysfsAttribute(f"{p.path}/scaling_governor", target) for p in policies))
    verdict.finding(subject(_cpus(policies)), f"The governor {name} {what}.", *items, **mend)


# -- cpu.frequency-limits --------------------------------------------------------------------


@row(
    "cpu.frequency-limits",
    title="Nothing caps the clock below what the hardware can do",
    symptom="All work is slower than on an equal box, busy or not.",
    cause=(
        "A lower scaling_max_freq, max_perf_pct or a firmware limit (ACPI _PPC) outlives whoever set it: a "
        "power saving profile, a tuner, a cap of the rack's power."
    ),
    severity="warning",
    scope="runtime",
    risk="A cap that was set for cooling or the power supply is lost.",
    cost="power",
    sources=(CPUFREQ, INTEL_PSTATE, "drivers/cpufreq/freq_table.c, acpi-cpufreq.c (Linux 6.12)"),
)
def frequency_limits(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    capped: list[FrequencyPolicy] = []
    low: list[FrequencyPolicy] = []
    by_firmware: list[FrequencyPolicy] = []
    unread: list[tuple[FrequencyPolicy, Fact[Any]]] = []
    policies = policies_or_note(verdict, machine)
    for policy in policies:
        highest = _highest(policy)
        if not highest.known or not policy.max_khz.known:
            unread.append((policy, highest if not highest.known else policy.max_khz))
        elif _below(policy.max_khz.get(), highest.get()) and not _only_turbo(machine, policy):
            capped.append(policy)
        elif policy.bios_limit_khz.known and _below(policy.bios_limit_khz.get(), highest.get()):
            by_firmware.append(policy)
        elif _floor_too_low(policy, highest.get(), profile.cpu.min_frequency_pct):
            low.append(policy)
        else:
            verdict.ok()
    note_unknown(verdict, unread)
    _capped(verdict, machine, capped)
    _firmware(verdict, by_firmware)
    _low(verdict, machine, profile, low)
    if policies:
        _percentages(verdict, machine, profile)
    if verdict.good and not verdict.findings:
        first = policies[0]
        verdict.evidence.append(fact_evidence(first.max_khz, f"the highest, {_highest(first).value}"))
    return verdict


def _highest(policy: FrequencyPolicy) -> Fact[int]:
    """As far as scaling_max_freq goes. With acpi-cpufreq that is the highest of its table: its
    cpuinfo_max_freq may be the boost clock, which that limit does not name and does not prevent."""
    if policy.driver.value == "acpi-cpufreq" and policy.table_max_khz.known:
        return policy.table_max_khz
    return policy.hardware_max_khz


def _below(value: int, limit: int) -> bool:
    return value < limit * (1 - _SLACK)


def _only_turbo(machine: Machine, policy: FrequencyPolicy) -> bool:
    """Turbo is switched off (cpu.turbo judges that), and the limit leaves all of the rest."""
    if machine.cpus.turbo.value is not False:
        return False
    base = policy.base_khz
    return not base.known or not _below(policy.max_khz.get(), base.get())


def _floor_too_low(policy: FrequencyPolicy, highest: int, percent: int) -> bool:
    # the governor performance asks for the upper limit; the lower one then has no say
    if percent <= 0 or policy.governor.value == "performance" or not policy.min_khz.known:
        return False
    return policy.min_khz.get() * 100 < highest * percent * (1 - _SLACK)


def _capped(verdict: Verdict, machine: Machine, policies: list[FrequencyPolicy]) -> None:
    if not policies:
        return
    worst = min(policies, key=lambda p: p.max_khz.get() / _highest(p).get())
    verdict.finding(
        subject(_cpus(policies)),
        f"The clock is capped at {megahertz(worst.max_khz.get())} of {megahertz(_highest(worst).get())}.",
        fact_evidence(worst.max_khz, _highest(worst).get()),
        fact_evidence(_highest(worst)),
        **fix(
            machine, *(SysfsAttribute(f"{p.path}/scaling_max_freq", str(_highest(p).get())) for p in policies)
        ),
    )


def _firmware(verdict: Verdict, policies: list[FrequencyPolicy]) -> None:
    if not policies:
        return
    worst = min(policies, key=lambda p: p.bios_limit_khz.get() / _highest(p).get())
    verdict.finding(
        subject(_cpus(policies)),
        f"The firmware allows {megahertz(worst.bios_limit_khz.get())} of {megahertz(_highest(worst).get())}.",
        fact_evidence(worst.bios_limit_khz, _highest(worst).get()),
        advice="Look in the BIOS and the BMC for a power cap or a lost power supply.",
    )


def _low(verdict: Verdict, machine: Machine, profile: Profile, policies: list[FrequencyPolicy]) -> None:
    if not policies:
        return
    percent = profile.cpu.min_frequency_pct
    first = policies[0]
    floors = [(p, -(-_highest(p).get() * percent // 100)) for p in policies]
    verdict.finding(
        subject(_cpus(policies)),
        f"The clock may fall to {megahertz(first.min_khz.get())}, below {percent} % of the highest.",
        fact_evidence(first.min_khz, f"at least {floors[0][1]}"),
        **fix(machine, *(SysfsAttribute(f"{p.path}/scaling_min_freq", str(floor)) for p, floor in floors)),
    )


def _percentages(verdict: Verdict, machine: Machine, profile: Profile) -> None:
    """intel_pstate's own limits, in percent of the highest P-state, for all CPUs."""
    cpus = machine.cpus
    if cpus.max_perf_pct.known and cpus.max_perf_pct.get() < 100:
        verdict.finding(
            subject(_cpus(cpus.policies)),
            f"intel_pstate may use {cpus.max_perf_pct.get()} % of the performance at most.",
            fact_evidence(cpus.max_perf_pct, 100),
            **fix(machine, SysfsAttribute(f"{BASE}/intel_pstate/max_perf_pct", "100")),
        )
    least = profile.cpu.min_frequency_pct
    if cpus.min_perf_pct.known and cpus.min_perf_pct.get() < least:
        verdict.finding(
            subject(_cpus(cpus.policies)),
            f"intel_pstate may go down to {cpus.min_perf_pct.get()} % of the performance.",
            fact_evidence(cpus.min_perf_pct, f"at least {least}"),
            **fix(machine, SysfsAttribute(f"{BASE}/intel_pstate/min_perf_pct", str(least))),
        )


# -- cpu.turbo -------------------------------------------------------------------------------


@row(
    "cpu.turbo",
    title="Turbo is as the profile wants it",
    symptom="Slower without turbo; with it, clock and latencies move with the load of other cores.",
    cause="Turbo lends a core the power that others leave unused: fast, and not the same every moment.",
    severity="warning",
    scope="runtime",
    risk="Another clock than the one that was measured with.",
    cost="Power with turbo, speed without it.",
    sources=(INTEL_PSTATE, CPUFREQ),
)
def turbo(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    fact, wanted = machine.cpus.turbo, profile.cpu.turbo
    if fact.absent:
        return verdict.not_applicable("this kernel has no switch for turbo (no_turbo, boost)")
    if not fact.known:
        if wanted == "any":
            return verdict.not_applicable("the profile takes turbo on and off alike")
        return verdict.unknown("kernel", fact)
    state = "on" if fact.get() else "off"
    shown = evidence(fact.source, f"turbo {state}", "" if wanted == "any" else f"turbo {wanted}")
    if wanted in ("any", state):
        return verdict.ok(
            shown, reason=f"turbo is {state}" + ("; the profile takes either" if wanted == "any" else "")
        )
    inverse = fact.source.endswith("no_turbo")
    value = "1" if (wanted == "on") != inverse else "0"
    online = machine.cpus.online
    return verdict.finding(
        subject(online.get()) if online.known and online.get() else "kernel",
        f"Turbo is {state}, and the profile wants it {wanted}.",
        shown,
        **fix(machine, SysfsAttribute(fact.source, value)),
    )


# -- cpu.energy-preference -------------------------------------------------------------------

# The numbers behind the words (drivers/cpufreq/intel_pstate.c, amd-pstate.c)
_PREFERENCES = {"0": "performance", "128": "balance_performance", "192": "balance_power", "255": "power"}


@row(
    "cpu.energy-preference",
    title="The hardware is told to prefer speed",
    symptom="The clock rises late under load although no limit is in its way.",
    cause=(
        "Where the hardware chooses the clock (HWP, CPPC), energy_performance_preference tells it how much "
        "speed to give up for power."
    ),
    severity="warning",
    scope="runtime",
    risk="The CPUs get warmer.",
    cost="power",
    sources=(INTEL_PSTATE, AMD_PSTATE),
)
def energy_preference(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    wanted = profile.cpu.energy_preference
    wrong: dict[str, list[FrequencyPolicy]] = {}
    unread: list[tuple[FrequencyPolicy, Fact[Any]]] = []
    for policy in policies_or_note(verdict, machine):
        fact = policy.preference
        if policy.governor.value == "performance":
            # the drivers then force the preference, and refuse a write to it with EBUSY
            verdict.ok(reason="the governor performance forces the preference")
        elif fact.absent or fact.gap == "not-probed":
            verdict.not_applicable("this driver has no energy_performance_preference")
        elif not fact.known:
            unread.append((policy, fact))
        elif _PREFERENCES.get(fact.get(), fact.get()) in wanted:
            verdict.ok()
        else:
            wrong.setdefault(fact.get(), []).append(policy)
    note_unknown(verdict, unread)
    for value, policies in wrong.items():
        _preference_finding(verdict, machine, profile, value, policies)
    return verdict


def _preference_finding(
    verdict: Verdict, machine: Machine, profile: Profile, value: str, policies: list[FrequencyPolicy]
) -> None:
    first, wanted = policies[0], profile.cpu.energy_preference
    by_governor = first.governor.value not in profile.cpu.governor
    mend: dict[str, Any] = {"changes": ()}
    if machine.virtualization.is_container:
        mend = {"advice": HOST_ONLY}
    elif by_governor and "performance" in profile.cpu.governor:
        mend = {
            "advice": "Set the governor to performance (cpu.governor): the driver then forces the preference."
        }
    else:
        target = next((w for w in wanted if w in (first.preferences.value or [])), None)
        if target is not None:
            changes = [SysfsAttribute(f"{p.path}/energy_performance_preference", target) for p in policies]
            mend = fix(machine, *changes)
    verdict.finding(
        subject(_cpus(policies)),
        f"The hardware is told to weigh speed against power as {value}.",
        fact_evidence(first.preference, " or ".join(wanted)),
        severity="info" if by_governor else None,
        **mend,
    )


# -- cpu.energy-bias -------------------------------------------------------------------------


@row(
    "cpu.energy-bias",
    title="Intel's energy/performance bias leans to speed",
    symptom="The clock, and that of the uncore, rises late under load.",
    cause="energy_perf_bias (0 performance ... 15 powersave) is the hint before HWP, and still the uncore's.",
    severity="warning",
    scope="runtime",
    risk="The CPUs get warmer.",
    cost="power",
    sources=("Documentation/admin-guide/pm/intel_epb.rst (Linux 6.12)",),
)
def energy_bias(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    cpus, most = machine.cpus, profile.cpu.energy_bias_max
    if cpus.energy_bias_listed.absent:
        return verdict.not_applicable("these CPUs, or this kernel, have no energy_perf_bias")
    if not cpus.energy_bias_listed.known:
        return verdict.unknown("kernel", cpus.energy_bias_listed)
    # with EPP at work (Skylake and newer) the bias only concerns what lies outside of the cores
    superseded = any(p.preference.known for p in cpus.policies)
    for members, text in cpus.energy_bias:
        source = f"{BASE}/cpu{members[0]}/power/energy_perf_bias"
        if not text.isdecimal():
            verdict.unknown(subject(members), f"{source} says {text[:20]!r}")
        elif int(text) <= most:
            verdict.ok(evidence(source, text, f"at most {most}"))
        else:
            verdict.finding(
                subject(members),
                f"energy_perf_bias is {text}: the CPU may trade speed for power.",
                evidence(source, text, f"at most {most}"),
                severity="info" if superseded else None,
                **fix(
                    machine,
                    *(SysfsAttribute(f"{BASE}/cpu{c}/power/energy_perf_bias", str(most)) for c in members),
                ),
            )
    return verdict


# -- cpu.driver-mode -------------------------------------------------------------------------

_DRIVERS = {
    "intel_pstate": {"active": ("intel_pstate",), "passive": ("intel_cpufreq",)},
    "amd_pstate": {"active": ("amd-pstate-epp",), "passive": ("amd-pstate",), "guided": ("amd-pstate",)},
}


@row(
    "cpu.driver-mode",
    title="The frequency driver is the one that was asked for",
    symptom="Knobs that the documentation of the asked driver names are not there.",
    cause="A driver whose hardware interface (HWP, CPPC) is off in the BIOS leaves the CPU to another one.",
    severity="warning",
    scope="firmware",
    risk="none",
    cost="none",
    sources=(f"{PARAMETERS} (intel_pstate, amd_pstate, cpufreq.off)", AMD_PSTATE),
)
def driver_mode(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    policies = policies_or_note(verdict, machine)
    if not policies:
        return verdict
    driver = policies[0].driver
    if not driver.known:
        return verdict.unknown(subject(_cpus(policies)), driver)
    if not machine.kernel.arguments.known:
        return verdict.unknown("kernel", machine.kernel.arguments)
    for name, modes in _DRIVERS.items():
        asked = [value for value in machine.kernel.argument_values(name) if value in modes]
        if not asked:
            continue
        if driver.get() in modes[asked[-1]]:
            return verdict.ok(_asked(machine, name, asked[-1]), fact_evidence(driver))
        if _switched_later(machine, name, driver.get()):
            mode = machine.cpus.pstate_driver.get()
            return verdict.ok(
                fact_evidence(machine.cpus.pstate_driver), reason=f"switched at run time to {mode}"
            )
        return verdict.finding(
            subject(_cpus(policies)),
            f"{name}={asked[-1]} is asked for, but {driver.get()} sets the clocks of "
            f"{plural(len(_cpus(policies)), 'CPU')}.",
            _asked(machine, name, asked[-1]),
            fact_evidence(driver, " or ".join(modes[asked[-1]])),
            advice="Switch CPPC (AMD) or Speed Shift (Intel) on in the BIOS.",
        )
    status = machine.cpus.pstate_driver
    return verdict.ok(
        fact_evidence(driver),
        *([fact_evidence(status)] if status.known else []),
        reason=f"{driver.get()} runs",
    )


def _asked(machine: Machine, name: str, mode: str) -> Evidence:
    return evidence(machine.kernel.arguments.source, f"{name}={mode}")


def _switched_later(machine: Machine, name: str, driver: str) -> bool:
    """Whether another mode of the same driver runs: a write to its status file did that."""
    return machine.cpus.pstate_driver.known and driver in {d for ds in _DRIVERS[name].values() for d in ds}
