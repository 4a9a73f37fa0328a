"""CPUs that sleep too deeply to answer in time, and what was measured of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hwtune.changes import CpuLatencyRequest, KernelArguments, SysfsAttribute
from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.remediations._common import fix, plural
from hwtune.remediations._cpu import BASE, CPUIDLE, PARAMETERS, is_x86, judged_cpus, subject
from hwtune.text.cpulist import format_list

if TYPE_CHECKING:
    from typing import Any

    from hwtune.diagnosis import Evidence
    from hwtune.model import Machine
    from hwtune.model.cpus import IdleGroup, IdleState, Measured
    from hwtune.profile import Profile

# What /dev/cpu_dma_latency says where nobody asks (PM_QOS_CPU_LATENCY_DEFAULT_VALUE)
_NO_REQUEST = 2_000_000_000
_QOS = "Documentation/power/pm_qos_interface.rst (Linux 6.12)"
_RESUME = "Documentation/ABI/testing/sysfs-devices-power (pm_qos_resume_latency_us)"


# -- cpu.idle-states -------------------------------------------------------------------------


@row(
    "cpu.idle-states",
    title="No idle state takes longer to leave than the profile allows",
    symptom="The first packet after a pause is late by tens or hundreds of microseconds.",
    cause=(
        "A deep idle state powers down caches and voltage. Leaving it takes its exit latency, which every "
        "interrupt that meets the CPU asleep pays."
    ),
    severity="warning",
    scope="service",
    risk="The CPUs get warmer, and turbo has less room, as idle cores leave it less power.",
    cost="power",
    sources=(CPUIDLE, _QOS, _RESUME, f"{PARAMETERS} (idle, intel_idle.max_cstate, processor.max_cstate)"),
)
def idle_states(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    how = _never_sleeps(machine)
    if how:
        return verdict.ok(*how, reason=f"{how[0].value} keeps the CPUs from idle states")
    if not machine.cpus.idle_groups:
        return _without_states(verdict, machine, profile)
    only = judged_cpus(machine, profile)
    limits = _Limits(machine)
    for group in machine.cpus.idle_groups:
        members = [cpu for cpu in group.cpus if only is None or cpu in only]
        if members:
            _judge_group(verdict, machine, profile, group, members, limits, only is not None)
    if only is not None and not (verdict.good or verdict.findings or verdict.unknowns):
        verdict.unknown(subject(only), "the idle states of the hot CPUs were not read")
    return verdict


def _never_sleeps(machine: Machine) -> list[Evidence]:
    """idle=poll or halt (x86), nohlt (the others): Documentation/admin-guide/kernel-parameters.txt."""
    arguments = machine.kernel.arguments
    idle = [value for value in machine.kernel.argument_values("idle") if value in ("poll", "halt")]
    if idle and is_x86(machine) is not False:
        return [evidence(arguments.source, f"idle={idle[-1]}")]
    if machine.kernel.has_argument("nohlt") and is_x86(machine) is False:
        return [evidence(arguments.source, "nohlt")]
    return []


class _Limits:
    """The latency requests in force: one for all CPUs, and each CPU's own."""

    def __init__(self, machine: Machine) -> None:
        cpus = machine.cpus
        self.request = cpus.latency_request_us
        self.listed = cpus.resume_latency_listed
        self._own: dict[int, int | None] = {}
        self.texts: dict[int, str] = {}
        for members, text in cpus.resume_latency:
            limit = _resume_limit(text)
            for cpu in members:
                self.texts[cpu] = text
                if limit is not None:
                    self._own[cpu] = limit

    def own(self, cpu: int) -> int | None:
        """The CPU's own limit in microseconds; None where it is not known."""
        if cpu in self._own:
            return self._own[cpu]
        return _NO_REQUEST if self.listed.absent else None


def _resume_limit(text: str) -> int | None:
    """0 stands for no limit and "n/a" for none that could be kept: no latency at all."""
    if text == "n/a":
        return 0
    return (int(text) or _NO_REQUEST) if text.isdecimal() else None


class _Sorted(NamedTuple):
    held: list[int]  # a request keeps them from the deep states
    open: list[int]
    unknown: list[int]


def _judge_group(
    verdict: Verdict,
    machine: Machine,
    profile: Profile,
    group: IdleGroup,
    members: list[int],
    limits: _Limits,
    apart: bool,
) -> None:
    budget = profile.cpu.max_idle_latency_us
    doubtful = [s for s in group.states if _doubtful(s, budget)]
    deep = [
        s for s in group.states if s.disabled is False and s.latency_us is not None and s.latency_us > budget
    ]
    if not deep and not doubtful:
        deepest = _deepest(group.states)
        shown = f"{deepest.name} {deepest.latency_us} us" if deepest is not None else "no state"
        source = deepest.path if deepest is not None else f"{BASE}/cpu{members[0]}/cpuidle"
        off = [s.name for s in group.states if s.disabled]
        note = f"; {', '.join(off)} switched off, which leaves turbo less room" if off else ""
        verdict.ok(
            evidence(source, f"{shown}, the deepest that is enabled", f"at most {budget} us"),
            reason=f"the deepest enabled state is {shown}{note}",
        )
        return
    if not deep:
        state = doubtful[0]
        verdict.unknown(
            subject(members), f"{state.path} ({state.name}): its latency or its disable was not read"
        )
        return
    found = _sort(members, limits, budget, min(s.latency_us or 0 for s in deep))
    if found.held:
        held = limits.request if limits.request.known and limits.request.get() <= budget else None
        shown_limit = f"{held.get()} us" if held is not None else limits.texts.get(found.held[0], "")
        source = (
            held.source if held is not None else f"{BASE}/cpu{found.held[0]}/power/pm_qos_resume_latency_us"
        )
        verdict.ok(
            evidence(source, shown_limit, f"at most {budget} us"),
            reason=f"a latency request keeps CPUs {format_list(found.held)} from deeper states",
        )
    if found.unknown:
        what = limits.request if not limits.request.known else limits.listed
        names = ", ".join(f"{s.name} ({s.latency_us} us)" for s in deep)
        remedy = "" if what.gap == "denied" else "run hwtune capture as root, or doctor on the machine itself"
        verdict.unknown(
            subject(found.unknown),
            f"{names} enabled, and whether a latency request forbids it is not known: {what.why()}",
            remedy="run as root" if what.gap == "denied" else remedy,
        )
    if found.open:
        _deep_finding(verdict, machine, profile, deep, found.open, limits, apart)


def _doubtful(state: IdleState, budget: int) -> bool:
    """Whether it is not known that the state is off or shallow enough."""
    if state.disabled is True or (state.latency_us is not None and state.latency_us <= budget):
        return False
    return state.disabled is None or state.latency_us is None


def _deepest(states: list[IdleState]) -> IdleState | None:
    enabled = [s for s in states if s.disabled is False and s.latency_us is not None]
    return max(enabled, key=lambda s: s.latency_us or 0, default=None)


def _sort(members: list[int], limits: _Limits, budget: int, least: int) -> _Sorted:
    """``least``: the exit latency of the shallowest of the deep states; a limit below it keeps the
    governor from all of them."""
    held: list[int] = []
    free: list[int] = []
    unknown: list[int] = []
    request = limits.request.value if limits.request.known else None
    if limits.request.absent:
        request = _NO_REQUEST
    for cpu in members:
        own = limits.own(cpu)
        known_limits = [limit for limit in (request, own) if limit is not None]
        if any(limit < least for limit in known_limits):
            held.append(cpu)
        elif len(known_limits) < 2:
            unknown.append(cpu)
        else:
            free.append(cpu)
    return _Sorted(held, free, unknown)


def _deep_finding(
    verdict: Verdict,
    machine: Machine,
    profile: Profile,
    deep: list[IdleState],
    cpus: list[int],
    limits: _Limits,
    apart: bool,
) -> None:
    budget = profile.cpu.max_idle_latency_us
    worst = max(deep, key=lambda s: s.latency_us or 0)
    request = limits.request
    items = [
        evidence(f"{s.path}/latency", f"{s.name} {s.latency_us} us", f"at most {budget} us") for s in deep
    ]
    if request.known:
        shown = "no request" if request.get() >= _NO_REQUEST else f"{request.get()} us"
        items.append(evidence(request.source, shown, f"at most {budget} us"))
    if apart:
        changes = [
            SysfsAttribute(f"{BASE}/cpu{cpu}/cpuidle/state{state.index}/disable", "1")
            for cpu in cpus
            for state in deep
        ]
        mend = fix(machine, *changes)
    else:
        mend = fix(machine, CpuLatencyRequest(budget))
    verdict.finding(
        subject(cpus),
        f"{plural(len(cpus), 'CPU')} may enter {worst.name}, which takes {worst.latency_us} us to leave.",
        *items,
        **mend,
    )


def _without_states(verdict: Verdict, machine: Machine, profile: Profile) -> Verdict:
    cpus, kernel = machine.cpus, machine.kernel
    none = cpus.idle_driver.known and cpus.idle_driver.get() == "none"
    if cpus.idle_listed.absent or none:
        shown = fact_evidence(cpus.idle_driver if none else cpus.idle_listed)
        if machine.virtualization.is_guest is False and is_x86(machine):
            return verdict.ok(shown, reason="no cpuidle driver runs: the CPUs halt in C1")
        return verdict.not_applicable(
            "no cpuidle driver runs here: the hypervisor or the firmware decides how CPUs idle"
        )
    if machine.virtualization.is_guest:
        return verdict.not_applicable("the hypervisor decides how the CPUs of a guest idle")
    if not kernel.arguments.known:
        return verdict.unknown("kernel", cpus.idle_listed)
    limited = _limited_by_arguments(machine)
    if limited:
        return verdict.ok(*limited, reason="boot arguments leave no state below C1")
    measured = [m for m in cpus.measured if m.max_us > profile.cpu.max_idle_latency_us]
    if not measured:
        return verdict.unknown("kernel", cpus.idle_listed, remedy="capture the machine with hwtune capture")
    return _measured_finding(verdict, machine, profile, measured)


def _limited_by_arguments(machine: Machine) -> list[Evidence]:
    """Both drivers kept to C1: intel_idle.max_cstate=0 only switches that driver off, and
    acpi_idle, which then takes over, heeds processor.max_cstate (whose 0 is 1)."""
    kernel = machine.kernel
    if any(v.lower() in ("1", "y", "on") for v in kernel.argument_values("cpuidle.off")) and is_x86(machine):
        return [evidence(kernel.arguments.source, "cpuidle.off=1")]
    found = []
    for name in ("processor.max_cstate", "intel_idle.max_cstate"):
        values = kernel.argument_values(name)
        if not values or values[-1] not in ("0", "1"):
            return []
        found.append(evidence(kernel.arguments.source, f"{name}={values[-1]}"))
    return found


def _measured_finding(
    verdict: Verdict, machine: Machine, profile: Profile, measured: list[Measured]
) -> Verdict:
    worst = max(measured, key=lambda m: m.max_us)
    average = f" at an average of {worst.average_us:g}" if worst.average_us is not None else ""
    budget = profile.cpu.max_idle_latency_us
    return verdict.finding(
        "kernel",
        f"No boot argument limits idle states; wake-ups of up to {worst.max_us:g} us{average} were measured.",
        evidence(
            machine.kernel.arguments.source,
            "none of idle, intel_idle.max_cstate, processor.max_cstate",
            f"states up to {budget} us",
        ),
        evidence(
            worst.source,
            f"maximum {worst.max_us:g} us ({worst.tool})",
            f"at most {budget} us from idle states",
        ),
        changes=(CpuLatencyRequest(budget),),
        advice="Measure again with the request held: if the maxima stay, the idle states do not cause them.",
    )


# -- cpu.idle-poll ---------------------------------------------------------------------------


@row(
    "cpu.idle-poll",
    title="Idle CPUs do not spin",
    symptom="Hot CPUs, loud fans, no turbo; with SMT each idle thread slows its sibling down.",
    cause=(
        "idle=poll (nohlt elsewhere than on x86) makes every idle CPU run a loop: all cores burn power that "
        "turbo could have lent to the busy ones. It also keeps the tick of nohz_full CPUs alive in idle."
    ),
    severity="warning",
    scope="boot",
    risk="Wake-ups take the exit latency of a shallow state instead of none.",
    cost="none",
    sources=(f"{PARAMETERS} (idle, nohlt)", CPUIDLE, _RESUME),
)
def idle_poll(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    kernel = machine.kernel
    if not kernel.arguments.known:
        return verdict.unknown("kernel", kernel.arguments)
    x86 = is_x86(machine)
    name, given = ("idle", "poll") if x86 is not False else ("nohlt", "")
    if given not in kernel.argument_values(name):
        return verdict.ok(reason=f"{name}{'=' if given else ''}{given} is not given")
    if x86 is None:
        return verdict.unknown("kernel", "whether idle=poll means anything: the architecture is not known")
    text = "idle=poll" if x86 else "nohlt"
    online = machine.cpus.online
    count = f"all {len(online.get())} CPUs" if online.known and online.get() else "all CPUs"
    verdict.finding(
        f"karg:{name}",
        f"{text} makes {count} spin when idle: heat, and no room for turbo.",
        evidence(kernel.arguments.source, text, "absent"),
        **_drop(machine, name),
    )
    for other in ("intel_idle.max_cstate", "processor.max_cstate") if x86 else ():
        for value in kernel.argument_values(other)[-1:]:
            verdict.finding(
                f"karg:{other}",
                f"{other}={value} has no effect under idle=poll.",
                evidence(kernel.arguments.source, f"{other}={value}", "absent, or idle=poll absent"),
                advice=f"Drop either {other} or idle=poll from the boot arguments.",
                severity="info",
            )
    return verdict


def _drop(machine: Machine, name: str) -> dict[str, Any]:
    mend = fix(machine, KernelArguments(remove=(name,)))
    mend.setdefault(
        "advice", "Keep single CPUs awake, where it pays, with n/a in their power/pm_qos_resume_latency_us."
    )
    return mend


# -- cpu.latency-outliers --------------------------------------------------------------------


@row(
    "cpu.latency-outliers",
    title="Measured wake-ups are in bounds",
    symptom="Single wake-ups are late by a hundred microseconds or more.",
    cause="Something holds a CPU: an idle state, an interrupt, firmware (SMI), a driver, a lock.",
    severity="warning",
    scope="hands",
    risk="none",
    cost="none",
    sources=("rt-tests cyclictest(8)", "Documentation/tools/rtla (Linux 6.12)"),
)
def latency_outliers(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    measured = machine.cpus.measured
    if not measured:
        return verdict.not_applicable("no output of cyclictest or rtla was given")
    most = profile.cpu.wakeup_latency_max_us
    for source in dict.fromkeys(m.source for m in measured):
        mine = [m for m in measured if m.source == source]
        late = [m for m in mine if m.max_us > most]
        if late:
            _outliers(verdict, source, late, mine, most)
        else:
            worst = max(mine, key=lambda m: m.max_us)
            verdict.ok(evidence(source, f"maximum {worst.max_us:g} us", f"at most {most} us"))
    return verdict


def _outliers(verdict: Verdict, source: str, late: list[Measured], mine: list[Measured], most: int) -> None:
    cpus = sorted({m.cpu for m in late if m.cpu is not None})
    worst = max(late, key=lambda m: m.max_us)
    # others of the same kind of latency: an interrupt's is a part of its thread's
    others = [m.max_us for m in mine if m.kind == worst.kind and m not in late]
    rest = f"; the others stay at or below {max(others):g} us" if others else "; no CPU is much better"
    where = (
        f"CPUs {format_list(cpus)}"
        if len(cpus) > 1
        else f"CPU {cpus[0]}"
        if cpus
        else "threads " + ", ".join(str(m.thread) for m in late)
    )
    verdict.finding(
        subject(cpus) if cpus else "kernel",
        f"Wake-ups of up to {worst.max_us:g} us were measured on {where}{rest}.",
        *(evidence(source, _figures(m), f"at most {most} us") for m in late),
        *(
            evidence(source, _figures(m))
            for m in mine
            if m.kind != worst.kind and m.cpu == worst.cpu and m not in late
        ),
        advice="Trace what runs there at such a moment with rtla timerlat top --auto THRESHOLD.",
    )


def _figures(line: Measured) -> str:
    who = f"CPU {line.cpu}" if line.cpu is not None else f"thread {line.thread}"
    kind = f"{line.kind} " if line.kind else ""
    average = f", average {line.average_us:g} us" if line.average_us is not None else ""
    return f"{who}: {kind}maximum {line.max_us:g} us{average}"
