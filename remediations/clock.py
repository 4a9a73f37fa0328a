"""Rows: the clock that programs read, and whether it is right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.changes import KernelArguments, SysfsAttribute
from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.remediations._common import fix

if TYPE_CHECKING:
    from hwtune.diagnosis.verdict import Evidence
    from hwtune.model import Machine
    from hwtune.model.kernel import Clock, UnstableTsc
    from hwtune.profile import Profile

_CURRENT = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_TIMEKEEPING = "Linux Documentation/timers/timekeeping.rst"
# Counters of the chipset, slow to read and shared by all CPUs, and none at all (jiffies).
_SLOW = ("hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies", "hyperv_clocksource_msr")
# What a clock without any keeper is said to be off by at most: NTP_PHASE_LIMIT of the kernel.
_UNKEPT_US = 16_000_000


def _when(seconds: float | None) -> str:
    return "" if seconds is None else f" at {int(seconds)} s"


def _tsc_line(unstable: UnstableTsc) -> str:
    cpu = "" if unstable.cpu is None else f" on CPU {unstable.cpu}"
    reason = f" ({unstable.reason})" if unstable.reason else ""
    return f"kernel gave up the TSC{cpu}{_when(unstable.seconds)}{reason}"


@row(
    "clock.source",
    title="Clocksource",
    symptom="Each reading of the time costs a microsecond or more, and more so when all CPUs read it.",
    cause="The time comes from a chipset counter by a system call, not from a counter of the CPU.",
    severity="error",
    scope="runtime",
    risk="A TSC that the kernel rightly rejected runs apart between CPUs.",
    cost="None.",
    sources=(_TIMEKEEPING, "Linux Documentation/admin-guide/kernel-parameters.txt, clocksource=, tsc="),
)
def source(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    clock = machine.clock
    if clock.source.absent:
        return verdict.not_applicable("this kernel names no clocksource")
    if not clock.source.known:
        return verdict.unknown("clock", clock.source)
    accepted = profile.clock.sources
    name = clock.source.get()
    expected = _expected(machine, accepted)
    if name in accepted:
        return verdict.ok(fact_evidence(clock.source, expected))
    items = [fact_evidence(clock.source, expected)]
    if clock.available.known:
        items.append(fact_evidence(clock.available))
    why = ""
    if clock.tsc_unstable.known:
        unstable = clock.tsc_unstable.get()
        items.append(evidence(unstable.source, unstable.line))
        why = f": the {_tsc_line(unstable)}"
    slow = name in _SLOW
    message = f"The clock is {name}, which the profile does not accept{why}."
    if name == "jiffies":
        message = f"The clock is jiffies{why}: it moves with the tick alone, by 1 to 10 ms at a time."
    elif slow:
        read = "every clock_gettime() is a system call that reads one shared register"
        message = f"The clock is {name}{why}; {read}."
    mend = _mend(machine, accepted)
    return verdict.finding("clock", message, *items, **mend, severity=None if slow else "warning")


# Boards of x86 alone have these (drivers/clocksource/acpi_pm.c, arch/x86/kernel/hpet.c).
_X86 = ("hpet", "acpi_pm")


def _expected(machine: Machine, accepted: list[str]) -> str:
    """Of the accepted sources, those that this machine has; all where that is not known."""
    available = machine.clock.available
    own = [name for name in accepted if available.known and name in available.get()]
    if own:
        return " or ".join(own)
    x86 = machine.clock.tsc_flags.known or machine.clock.tsc_unstable.known
    return "tsc" if x86 or machine.clock.source.value in _X86 else " or ".join(accepted)


def _mend(machine: Machine, accepted: list[str]) -> dict[str, Any]:
    clock = machine.clock
    forced = [a for a in ("clocksource", "notsc", "tsc") if _forces(machine, a)]
    available = clock.available.get() if clock.available.known else []
    better = next((name for name in accepted if name in available), None)
    if forced:
        changes: list[Any] = [KernelArguments(remove=tuple(forced))]
        if better is not None and not clock.tsc_unstable.known:
            changes.insert(0, SysfsAttribute(_CURRENT, better))
        return fix(machine, *changes)
    if better is not None and not (better == "tsc" and clock.tsc_unstable.known):
        return fix(machine, SysfsAttribute(_CURRENT, better))
    if clock.tsc_unstable.known:
        return {"advice": "Update the firmware, and reboot: the kernel tries the TSC again at each boot."}
    return {"advice": "Look in the kernel log of this boot for why the CPU's own counter was rejected."}


def _forces(machine: Machine, name: str) -> bool:
    values = machine.kernel.argument_values(name)
    if name == "tsc":
        return "unstable" in values
    return bool(values)


@row(
    "clock.tsc",
    title="Time stamp counter",
    symptom="Time stamps of different CPUs disagree, or stop while a CPU sleeps.",
    cause="The TSC's rate or count is not the same at all times on all CPUs.",
    severity="error",
    scope="firmware",
    risk="tsc=reliable hides a TSC that is not.",
    cost="None.",
    sources=(
        "Linux arch/x86/kernel/tsc.c, tsc_sync.c",
        "Linux kernel/time/clocksource.c, the watchdog",
        "Intel SDM vol. 3B, invariant TSC",
    ),
)
def tsc(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    clock = machine.clock
    if clock.tsc_unstable.known:
        unstable = clock.tsc_unstable.get()
        return verdict.finding(
            "clock",
            f"The {_tsc_line(unstable)}.",
            evidence(unstable.source, unstable.line, "no such line"),
            *([fact_evidence(clock.source)] if clock.source.known else []),
            advice="Update the firmware, and reboot: the kernel tries the TSC again at each boot.",
        )
    if clock.tsc_flags.absent:
        return verdict.not_applicable("this CPU has no TSC")
    if not clock.tsc_flags.known:
        return verdict.unknown("clock", clock.tsc_flags)
    missing = [flag for flag in ("constant_tsc", "nonstop_tsc") if flag not in clock.tsc_flags.get()]
    if missing:
        return _not_invariant(verdict, machine, missing)
    if clock.source.known and clock.source.get() == "tsc":
        # A TSC that was marked unstable is not the clocksource any longer.
        return verdict.ok(fact_evidence(clock.tsc_flags), fact_evidence(clock.source))
    if clock.tsc_unstable.unknown:
        return verdict.unknown("clock", clock.tsc_unstable)
    return verdict.ok(fact_evidence(clock.tsc_flags), fact_evidence(clock.tsc_unstable))


def _not_invariant(verdict: Verdict, machine: Machine, missing: list[str]) -> Verdict:
    clock = machine.clock
    if machine.virtualization.is_guest:
        return verdict.not_applicable("the hypervisor does not offer this guest an invariant TSC")
    if machine.virtualization.is_guest is None:
        return verdict.unknown("clock", machine.virtualization.hypervisor)
    return verdict.finding(
        "clock",
        f"The CPU promises no TSC of constant rate that never stops: it lacks {' and '.join(missing)}.",
        fact_evidence(clock.tsc_flags, "constant_tsc, nonstop_tsc"),
        advice="Take time stamps by clock_gettime() on this machine, never by rdtsc.",
        severity="warning",
    )


@row(
    "clock.sync",
    title="Clock kept right",
    symptom="Time stamps of this machine drift against those of others and of the exchange.",
    cause="No daemon (chronyd, ntpd, ptp4l with phc2sys) steers the kernel's clock.",
    severity="warning",
    scope="service",
    risk="A clock that is far off is stepped when a daemon starts.",
    cost="None.",
    sources=(
        "adjtimex(2), STA_UNSYNC",
        "chrony.conf(5), rtcsync",
        "Linux kernel/time/ntp.c, NTP_PHASE_LIMIT",
    ),
)
def sync(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    clock = machine.clock
    daemons = clock.sync_services
    if len(daemons) > 1:
        return verdict.finding(
            "clock",
            f"{' and '.join(daemons)} steer the clock at the same time, against each other.",
            evidence("running daemons", ", ".join(daemons), "one"),
            advice=f"Stop all of them but one: keep {daemons[0]}, or the one that is configured.",
        )
    if clock.synchronized.absent:
        return verdict.not_applicable("this system has no adjtimex()")
    if not clock.synchronized.known:
        return verdict.unknown("clock", clock.synchronized)
    running = f"{daemons[0]} runs" if daemons else ""
    if clock.synchronized.get():
        return verdict.ok(
            evidence(clock.synchronized.source, "synchronised"), *_errors(clock), reason=running
        )
    if clock.max_error_us.known and clock.max_error_us.get() < _UNKEPT_US:
        return verdict.unknown(
            "clock",
            f"{clock.synchronized.source} says unsynchronised, and yet has an error bound of "
            f"{clock.max_error_us.get()} us, as chronyd without rtcsync leaves it",
            remedy="add rtcsync to chrony.conf, or ask chronyc tracking",
        )
    if not profile.clock.synchronized:
        return verdict.ok(
            evidence(clock.synchronized.source, "unsynchronised"), reason="the profile does not ask for it"
        )
    return verdict.finding(
        "clock",
        f"No daemon vouches for the clock{f', though {running}' if running else ''}: it is unsynchronised.",
        evidence(clock.synchronized.source, "unsynchronised (STA_UNSYNC)", "synchronised"),
        *_errors(clock),
        advice="Run chronyd with rtcsync, or ptp4l and phc2sys where the NIC has a hardware clock.",
    )


def _errors(clock: Clock) -> list[Evidence]:
    items = []
    if clock.estimated_error_us.known and clock.estimated_error_us.get() < _UNKEPT_US:
        items.append(
            evidence(clock.estimated_error_us.source, f"estimated error {clock.estimated_error_us.get()} us")
        )
    items.extend(evidence("/sys/class/ptp", name) for name in clock.ptp_clocks[:2])
    return items


@row(
    "clock.timer-stall",
    title="Timer interrupts that took too long",
    symptom="Every timer of a CPU was late at once.",
    cause="The CPU was away (SMI, hypervisor, firmware) or a timer's handler ran for long.",
    severity="warning",
    scope="firmware",
    risk="None: it is told of in the log.",
    cost="None.",
    sources=("Linux kernel/time/hrtimer.c, hrtimer_interrupt()",),
)
def timer_stall(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    stalls = machine.clock.stalls
    if stalls.absent:
        return verdict.not_applicable("this kernel keeps no log (CONFIG_PRINTK)")
    if not stalls.known:
        return verdict.unknown("clock", stalls)
    most = profile.clock.timer_stall_max_us
    long = [stall for stall in stalls.get() if stall.nanoseconds > most * 1000]
    if not long:
        items = [evidence(stall.source, stall.line, f"at most {most} us") for stall in stalls.get()[:4]]
        return verdict.ok(*(items or [evidence(stalls.source, "no timer interrupt was found too long")]))
    worst = max(long, key=lambda stall: stall.nanoseconds)
    who = "the hypervisor" if machine.virtualization.is_guest else "an SMI or the hypervisor"
    return verdict.finding(
        "clock",
        f"A timer interrupt took {worst.nanoseconds / 1e6:.1f} ms{_when(worst.seconds)}: a CPU was away.",
        *(evidence(stall.source, stall.line, f"at most {most} us") for stall in long[:4]),
        advice=f"Find what took the CPU away: run hwtune jitter, and look for {who}.",
    )
