"""CPUs that are slowed down, missing, of the wrong kind, or not up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes import SysfsAttribute
from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.fact import Fact, known
from hwtune.model.intent import hot_cpus
from hwtune.remediations._common import fix, plural
from hwtune.remediations._cpu import BASE, PARAMETERS, is_x86, megahertz, subject
from hwtune.text.cpulist import format_list
from hwtune.text.number import finite

if TYPE_CHECKING:
    from hwtune.diagnosis import Evidence
    from hwtune.model import Machine
    from hwtune.model.cpus import Cpu, Throttle
    from hwtune.profile import Profile

_THERM_THROT = "drivers/thermal/intel/therm_throt.c (Linux 6.12)"


# -- cpu.throttled ---------------------------------------------------------------------------


@row(
    "cpu.throttled",
    title="No CPU was throttled by heat",
    symptom="All work slows down for moments or for good, most under the highest load.",
    cause="The CPU reached its temperature limit and lowered its own clock.",
    severity="error",
    scope="hands",
    risk="none",
    cost="none",
    sources=(_THERM_THROT, "Intel SDM volume 3, Thermal Monitoring and Protection"),
)
def throttled(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    cpus = machine.cpus
    for package in cpus.throttles:
        _judge_package(verdict, package, profile)
    if cpus.throttles:
        return verdict
    if machine.virtualization.is_guest:
        return verdict.not_applicable("a guest does not see the throttling of its host's CPUs")
    vendor = cpus.vendor.value
    if vendor is not None and vendor != "GenuineIntel":
        return verdict.not_applicable(f"the kernel counts throttling of Intel's CPUs only, not of {vendor}")
    if cpus.throttles_listed.absent:
        return verdict.not_applicable("this kernel counts no throttling (no thermal_throttle)")
    return verdict.unknown("kernel", cpus.throttles_listed)


def _judge_package(verdict: Verdict, package: Throttle, profile: Profile) -> None:
    who = subject(package.cpus)
    counts = [count for count in (package.package_events, package.core_events) if count is not None]
    if not counts:
        verdict.unknown(who, f"no throttle count could be read from {package.source}")
        return
    items = _counts(package)
    if not any(counts):
        verdict.ok(*items)
        return
    title = "The CPUs" if package.package is None else f"Package {package.package}"
    told = []
    if package.package_events is not None:
        told.append(f"{package.package_events} package events")
    if package.core_events is not None:
        told.append(f"{package.core_events} events of CPU {package.core_cpu}")
    lasted = f", for {package.total_ms / 1000:.1f} s in all" if package.total_ms else ""
    verdict.finding(
        who,
        f"{title} throttled by heat since boot: {' and '.join(told)}{lasted}.",
        *items,
        advice="Check fans, air flow, heat sinks and the inlet temperature.",
        severity="error" if max(counts) >= profile.cpu.throttle_events_error else "warning",
    )


def _counts(package: Throttle) -> list[Evidence]:
    """With the file of the CPU that has the highest count, where it is a file."""
    items = []
    for name, count, cpu in (
        ("package", package.package_events, package.package_cpu),
        ("core", package.core_events, package.core_cpu),
    ):
        if count is not None:
            sysfs = package.source.startswith("/sys/")
            source = f"{BASE}/cpu{cpu}/thermal_throttle/{name}_throttle_count" if sysfs else package.source
            items.append(evidence(source, count if sysfs else f"{name} events {count} (CPU {cpu})", 0))
    return items


# -- cpu.prochot -----------------------------------------------------------------------------

_NOTES = {
    "prochot": (
        "The log tells of PROCHOT, the signal by which board, BMC or power supply slow a CPU down.",
        "warning",
    ),
    "firmware": ("The firmware lowered the highest clock.", "warning"),
    "power-limit": ("The CPU met its power limit, at which it lowers its own clock.", "info"),
}
# A clock that was measured over a short time is off by some percent.
_MEASURED_SLACK = 0.1


@row(
    "cpu.prochot",
    title="Nothing outside of the CPU holds its clock down",
    symptom="All CPUs of a package run at a few hundred MHz, whatever governor and load.",
    cause="Board, BMC or power supply assert PROCHOT, or a power limit is in force; no setting shows it.",
    severity="warning",
    scope="hands",
    risk="none",
    cost="none",
    sources=(
        _THERM_THROT,
        "arch/x86/kernel/cpu/aperfmperf.c (the clock of /proc/cpuinfo is measured)",
        "drivers/cpufreq/powernv-cpufreq.c (Linux 6.12)",
    ),
)
def prochot(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    cpus = machine.cpus
    for note in cpus.clock_notes:
        message, severity = _NOTES[note.kind]
        verdict.finding(
            "kernel",
            message,
            evidence(note.source, note.text, "no such line"),
            advice="Look into the BMC's event log for power supplies, power caps and temperatures.",
            severity=severity,
        )
    if machine.virtualization.is_guest:
        return verdict.not_applicable("a guest does not see the clock of its host's CPUs")
    if is_x86(machine) is False:
        return verdict.not_applicable("the kernel of this architecture measures no clocks")
    packages: dict[int | None, list[Cpu]] = {}
    for cpu in cpus.cpus:
        if cpu.mhz is not None:
            packages.setdefault(cpu.package, []).append(cpu)
    if not packages:
        return verdict.unknown("kernel", "/proc/cpuinfo tells no clocks")
    for members in packages.values():
        _judge_clocks(verdict, machine, members)
    return verdict


def _judge_clocks(verdict: Verdict, machine: Machine, members: list[Cpu]) -> None:
    """One package, by the fastest of its CPUs: PROCHOT and package limits leave none out."""
    who = subject(cpu.id for cpu in members)
    fastest = max(members, key=lambda cpu: cpu.mhz or 0)
    mhz = fastest.mhz or 0.0
    if not _measured(machine, members):
        verdict.unknown(who, "the clocks in /proc/cpuinfo are not measured ones")
        return
    floor = _floor(machine, {cpu.id for cpu in members})
    nominal = _nominal(machine, fastest.id)
    shown = f"{mhz:.0f} MHz, the fastest of {plural(len(members), 'CPU')}"
    if floor is not None and mhz < floor.get() / 1000 * (1 - _MEASURED_SLACK):
        verdict.finding(
            who,
            f"The fastest CPU runs at {mhz:.0f} MHz, below the lowest clock that it can be set to.",
            evidence("/proc/cpuinfo", shown, f"at least {megahertz(floor.get())}"),
            fact_evidence(floor),
            advice="Look into the BMC's event log for PROCHOT, power caps and lost power supplies.",
        )
    elif nominal is not None and mhz >= nominal.get() / 1000 * (1 - _MEASURED_SLACK):
        verdict.ok(evidence("/proc/cpuinfo", shown, f"at least {megahertz(nominal.get())}"))
    else:
        verdict.unknown(
            who,
            f"the CPUs ran at {mhz:.0f} MHz when they were read, which idle ones may do, too",
            remedy="run doctor again while the CPUs are busy",
        )


def _measured(machine: Machine, members: list[Cpu]) -> bool:
    """Whether the kernel can measure (APERF, MPERF), and did: a constant is the same everywhere."""
    flags = machine.cpus.flags.value or []
    return "aperfmperf" in flags and (len(members) == 1 or len({cpu.mhz for cpu in members}) > 1)


def _floor(machine: Machine, cpus: set[int]) -> Fact[int] | None:
    """The lowest clock that any of the CPUs can be set to."""
    floors = [
        p.hardware_min_khz for p in machine.cpus.policies if p.hardware_min_khz.known and cpus & set(p.cpus)
    ]
    return min(floors, key=lambda fact: fact.get(), default=None)


def _nominal(machine: Machine, cpu: int) -> Fact[int] | None:
    """The clock without turbo, in kHz: of its policy, of ACPI, or of the name of an Intel model."""
    for policy in machine.cpus.policies:
        if cpu in policy.cpus and policy.base_khz.known and policy.base_khz.get() > 0:
            return policy.base_khz
    # firmware may leave it at 0, which is no clock
    if machine.cpus.nominal_khz.known and machine.cpus.nominal_khz.get() > 0:
        return machine.cpus.nominal_khz
    name = machine.cpus.model_name
    head, at, tail = (name.value or "").rpartition("@")
    number = tail.strip().removesuffix("GHz")
    try:
        return known(int(finite(number) * 1e6), name.source) if at and head and tail.endswith("GHz") else None
    except ValueError:
        return None


# -- cpu.offline -----------------------------------------------------------------------------


@row(
    "cpu.offline",
    title="All CPUs that are there are in use",
    symptom="Less throughput than an equal box; CPU lists that name CPUs which are not there.",
    cause="A CPU was taken offline and not put back, or firmware and boot arguments leave it out.",
    severity="warning",
    scope="runtime",
    risk="A CPU that was offline on purpose (the sibling of a hot one) gets tasks and interrupts again.",
    cost="none",
    sources=("Documentation/ABI/stable/sysfs-devices-system-cpu", f"{PARAMETERS} (maxcpus, nosmt)"),
)
def offline(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    cpus = machine.cpus
    missing = _offline(machine)
    if not missing.known:
        return verdict.unknown("kernel", missing)
    if not missing.get():
        return verdict.ok(evidence(missing.source, "none offline"))
    off = missing.get()
    shown = evidence(missing.source, f"{format_list(off)} offline", "none")
    control = cpus.smt_control
    online = len(cpus.online.value or [])
    if (
        control.known
        and (control.get() in ("off", "forceoff") or control.get().isdecimal())
        and len(off) <= _threads(control.get(), online)
    ):
        return verdict.ok(
            shown, fact_evidence(control), reason="SMT is switched off: the siblings are offline by intent"
        )
    for name in ("maxcpus", "nosmt"):
        if machine.kernel.has_argument(name):
            given = evidence(machine.kernel.arguments.source, name)
            return verdict.ok(shown, given, reason=f"the boot argument {name} leaves CPUs offline")
    return _offline_finding(verdict, machine, profile, off, shown)


def _threads(control: str, online: int) -> int:
    """How many CPUs SMT control can explain: the siblings of those that are online (x86 has two
    threads a core; where the control is a number, powerpc, up to eight)."""
    return online * 7 if control.isdecimal() else online


def _offline(machine: Machine) -> Fact[list[int]]:
    """Present CPUs that are not online. Those only possible (room for hotplug) are none."""
    cpus = machine.cpus
    if cpus.present.known and cpus.online.known:
        online = set(cpus.online.get())
        return known([c for c in cpus.present.get() if c not in online], cpus.present.source)
    # The kernel's list also names CPUs that are not there; an empty one leaves no question, nor do
    # CPUs that say it of themselves, each in its folder.
    told = cpus.offline
    if told.known and (not told.get() or told.source != f"{BASE}/offline"):
        return told
    return cpus.present if not cpus.present.known else cpus.online


def _offline_finding(
    verdict: Verdict, machine: Machine, profile: Profile, off: list[int], shown: Evidence
) -> Verdict:
    hot = hot_cpus(machine, profile)
    alone = [c for c in machine.cpus.cpus if hot.value and c.id in hot.get() and c.siblings == [c.id]]
    meant = bool(alone) and len(off) <= len(alone)
    advice = "If they are offline to keep hot CPUs without a sibling, leave them so." if meant else ""
    mend = fix(machine, *(SysfsAttribute(f"{BASE}/cpu{cpu}/online", "1") for cpu in off))
    if advice:
        mend.setdefault("advice", advice)
    return verdict.finding(
        subject(off),
        f"{plural(len(off), 'CPU')} {'is' if len(off) == 1 else 'are'} present and not online.",
        shown,
        fact_evidence(machine.cpus.online),
        severity="info" if meant else None,
        **mend,
    )


# -- cpu.microcode-mitigations ---------------------------------------------------------------

# Boot arguments by which somebody chose to do without (kernel-parameters.txt)
_CHOSEN = (
    "mitigations", "nopti", "pti", "nospectre_v1", "nospectre_v2", "spectre_v2", "spec_store_bypass_disable",
    "nospec_store_bypass_disable", "l1tf", "mds", "tsx_async_abort", "kvm.nx_huge_pages", "srbds",
    "mmio_stale_data", "retbleed", "spec_rstack_overflow", "gather_data_sampling",
    "reg_file_data_sampling", "spectre_bhi", "indirect_target_selection", "tsa", "vmscape",
)  # fmt: skip


# Documentation/ABI/testing/sysfs-devices-system-cpu (vulnerabilities); itlb_multihit speaks of KVM, and
# of the processor where the kernel has no KVM whose guests could do harm (admin-guide/hw-vuln/multihit.rst)
_OPEN = ("Vulnerable", "KVM: Vulnerable")
_COVERED = ("Not affected", "Mitigation", "KVM: Mitigation", "Processor vulnerable")


@row(
    "cpu.microcode-mitigations",
    title="Known weaknesses of the CPU are covered",
    symptom="none in speed: a program can read memory that is not its own",
    cause="The microcode lacks what the kernel needs for a mitigation, or the mitigation is switched off.",
    severity="warning",
    scope="firmware",
    risk="Mitigations cost system calls and context switches some time; measure before and after.",
    cost="throughput",
    sources=("Documentation/admin-guide/hw-vuln (Linux 6.12)", f"{PARAMETERS} (mitigations)"),
)
def mitigations(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    cpus = machine.cpus
    if cpus.vulnerabilities_listed.absent:
        return verdict.not_applicable("this kernel does not report on vulnerabilities of the CPU")
    if not cpus.vulnerabilities_listed.known or not cpus.vulnerabilities:
        return verdict.unknown("kernel", cpus.vulnerabilities_listed)
    open_to: dict[str, Fact[str]] = {}
    for name, fact in cpus.vulnerabilities.items():
        if not fact.known:
            verdict.unknown("kernel", fact)
        elif fact.get().startswith(_OPEN):
            open_to[name] = fact
        elif fact.get().startswith(_COVERED):
            verdict.ok()
        else:
            remedy = "ask who runs the host" if fact.get().startswith("Unknown") else ""
            verdict.unknown("kernel", f"{name}: the kernel says {fact.get()[:80]!r}", remedy=remedy)
    if open_to:
        _open_finding(verdict, machine, open_to)
    if cpus.microcode.known:
        verdict.evidence.append(fact_evidence(cpus.microcode))
    return verdict


def _open_finding(verdict: Verdict, machine: Machine, open_to: dict[str, Fact[str]]) -> None:
    names = ", ".join(open_to)
    items = [fact_evidence(fact, "Not affected or Mitigation") for fact in open_to.values()]
    arguments = machine.kernel.arguments
    chosen = [a.text for a in arguments.value or [] if a.name in _CHOSEN and _gives_up(a.name, a.value)]
    if chosen:
        verdict.finding(
            f"karg:{chosen[0].partition('=')[0]}",
            f"{' '.join(chosen)} leaves the CPU open to {names}.",
            *(evidence(arguments.source, text) for text in chosen),
            *items,
            advice="Keep it so only where no untrusted code runs on this box.",
            severity="info",
        )
    elif machine.virtualization.is_guest:
        verdict.finding(
            "kernel",
            f"As far as this guest can see, the CPU is open to {names}.",
            *items,
            advice="Ask who runs the host for current microcode and for the CPU flags that come with it.",
            severity="info",
        )
    else:
        verdict.finding(
            "kernel",
            f"The CPU is open to {names}.",
            *items,
            *([fact_evidence(machine.cpus.microcode)] if machine.cpus.microcode.known else []),
            advice="Install the current microcode (firmware, or the distribution's package) and kernel.",
        )


def _gives_up(name: str, value: str | None) -> bool:
    if name.startswith("no"):
        return True
    return value in ("off", "no", "0") or (name == "mitigations" and (value or "").startswith("off"))


# -- cpu.hybrid-mix --------------------------------------------------------------------------


@row(
    "cpu.hybrid-mix",
    title="The hot CPUs are performance cores",
    symptom="The same thread is much slower on some CPUs than on others.",
    cause="On hybrid parts the efficient cores have less of everything: clock, cache, width.",
    severity="warning",
    scope="boot",
    risk="none",
    cost="none",
    sources=(
        "tools/perf/Documentation/intel-hybrid.txt (Linux 6.12)",
        "Documentation/scheduler/sched-capacity.rst",
    ),
)
def hybrid_mix(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    hybrid = machine.cpus.hybrid
    if hybrid.absent or hybrid.value is False:
        return verdict.not_applicable("all cores are of one kind")
    hot = hot_cpus(machine, profile)
    if hot.known and not hot.get():
        return verdict.not_applicable("no CPU is kept apart for hot threads")
    if not hybrid.known or not hot.known:
        return verdict.unknown("kernel", hybrid if not hybrid.known else hot)
    kinds = {cpu.id: cpu.core_type for cpu in machine.cpus.cpus}
    small = [cpu for cpu in hot.get() if kinds.get(cpu) == "efficient"]
    unsure = [cpu for cpu in hot.get() if kinds.get(cpu) is None]
    if small:
        large = [cpu for cpu, kind in kinds.items() if kind == "performance"]
        return verdict.finding(
            subject(small),
            f"{plural(len(small), 'hot CPU')} of {len(hot.get())} lie on efficient cores.",
            evidence(
                hybrid.source, f"{format_list(small)} efficient", f"performance cores: {format_list(large)}"
            ),
            evidence(hot.source, f"hot CPUs {format_list(hot.get())}"),
            advice="Keep performance cores apart for the hot threads, and the efficient ones for all else.",
        )
    if unsure:
        return verdict.unknown(subject(unsure), "the kind of these cores is not known")
    return verdict.ok(evidence(hybrid.source, f"{format_list(hot.get())} are performance cores"))
