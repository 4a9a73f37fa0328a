"""What still disturbs isolated CPUs while the machine runs: tasks, kernel work, ticks, watchdogs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hwtune.changes import SysctlChange, SysfsAttribute
from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.fact import NOT_PROBED, gap
from hwtune.model.intent import BOOT_CPU, housekeeping_cpus, repaired
from hwtune.remediations._isolation import (
    PARAMETERS,
    as_given,
    asked_of_tick,
    cpus_of,
    hot_or_note,
    isolcpus_given,
    out_of_scheduler,
    wanted,
    with_arguments,
    without_tick_support,
)
from hwtune.text.cpulist import format_list, format_mask, parse_list

if TYPE_CHECKING:
    from hwtune.diagnosis import Evidence
    from hwtune.fact import Fact
    from hwtune.model import Machine
    from hwtune.model.cpus import CpusetPartition, CpuTask
    from hwtune.profile import Profile

# How many of many alike things are shown one by one.
_SHOWN = 8


@row(
    "isolation.tasks",
    title="Only pinned tasks run on isolated CPUs",
    symptom="A hot thread loses its CPU to somebody else's, and its tick comes back.",
    cause=(
        "A task whose affinity holds isolated CPUs besides others was let in by its own mask: a container "
        "runtime, taskset or a service reset it. On isolated CPUs nothing balances, so threads that share a "
        "mask of several pile up on one of them."
    ),
    severity="warning",
    scope="runtime",
    risk="A task that is moved may have been put there on purpose.",
    cost="None.",
    sources=(
        "Documentation/admin-guide/cgroup-v2.rst (cpuset.cpus.partition)",
        "sched_setaffinity(2)",
        f"{PARAMETERS} (isolcpus)",
    ),
)
def tasks(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    hot = hot_or_note(verdict, machine, profile)
    if not hot:
        return verdict
    alone = out_of_scheduler(machine).get()
    apart = frozenset(alone) & frozenset(hot)
    if not apart:
        return verdict.not_applicable(
            "the scheduler still uses these CPUs: see isolation.domain-flag, isolation.isolcpus"
        )
    found = machine.cpus.tasks_on_isolated
    if not found.known:
        return verdict.unknown(f"cpu:{format_list(apart)}", found)
    # one that may no longer run where it last ran has left, and has not run since
    strangers = [
        t
        for t in found.get()
        if t.last_cpu in apart and t.last_cpu in t.cpus_allowed and not set(t.cpus_allowed) <= apart
    ]
    _strangers(verdict, [t for t in strangers if not t.kernel])
    # Workers of unbound queues follow the queues' mask (isolation.workqueues).
    _kernel_threads(verdict, [t for t in strangers if t.kernel and not t.name.startswith("kworker/")])
    _piles(verdict, found.get(), apart)
    if not verdict.findings:
        if machine.virtualization.is_container:
            return verdict.unknown(
                f"cpu:{format_list(apart)}",
                "only this container's own processes can be seen",
                remedy="run hwtune on the host",
            )
        verdict.ok(evidence(found.source, "only tasks pinned to these CPUs"))
    return verdict


def _shown(tasks: list[CpuTask], expected: str) -> list[Evidence]:
    items = [
        evidence(
            f"/proc/{t.pid}/status",
            f"{t.name}: allowed {format_list(t.cpus_allowed)}, last ran on CPU {t.last_cpu}",
            expected,
        )
        for t in tasks[:_SHOWN]
    ]
    if len(tasks) > _SHOWN:
        items.append(evidence("/proc/*/task/*", f"{len(tasks) - _SHOWN} more"))
    return items


def _strangers(verdict: Verdict, tasks: list[CpuTask]) -> None:
    if tasks:
        cpus = sorted({t.last_cpu for t in tasks if t.last_cpu is not None})
        verdict.finding(
            f"cpu:{format_list(cpus)}",
            f"{_count(tasks)} last ran on {cpus_of(cpus)} without being pinned there: {_names(tasks)}.",
            *_shown(tasks, "housekeeping CPUs, or isolated ones alone"),
            advice="Set AllowedCPUs= of their units, or the containers' cpuset, to housekeeping CPUs.",
        )


def _kernel_threads(verdict: Verdict, tasks: list[CpuTask]) -> None:
    if tasks:
        cpus = sorted({t.last_cpu for t in tasks if t.last_cpu is not None})
        verdict.finding(
            f"cpu:{format_list(cpus)}",
            f"{_count(tasks, 'unbound kernel thread')} last ran on {cpus_of(cpus)}: {_names(tasks)}.",
            *_shown(tasks, "housekeeping CPUs"),
            advice="Move them with taskset -pc, or give nohz_full=, which starts them on housekeeping CPUs.",
            severity="info",
        )


def _piles(verdict: Verdict, found: list[CpuTask], apart: frozenset[int]) -> None:
    """Threads that may run on several isolated CPUs and sit on the same one."""
    here = [t for t in found if not t.kernel and len(t.cpus_allowed) > 1 and set(t.cpus_allowed) <= apart]
    per_cpu = Counter(t.last_cpu for t in here)
    crowded = sorted(cpu for cpu, n in per_cpu.items() if n > 1 and cpu is not None)
    if crowded:
        tasks = [t for t in here if t.last_cpu in crowded]
        verdict.finding(
            f"cpu:{format_list(crowded)}",
            f"{_count(tasks, 'thread')} may run on several isolated CPUs and share {cpus_of(crowded)}: "
            "the scheduler does not spread tasks over isolated CPUs.",
            *_shown(tasks, "one CPU for each thread"),
            advice="Pin each thread to a CPU of its own, by its thread id.",
        )


def _count(tasks: list[CpuTask], noun: str = "task") -> str:
    return f"1 {noun}" if len(tasks) == 1 else f"{len(tasks)} {noun}s"


def _names(tasks: list[CpuTask]) -> str:
    names = list(dict.fromkeys(t.name for t in tasks))
    return ", ".join(names[:4]) + (f" and {len(names) - 4} others" if len(names) > 4 else "")


@row(
    "isolation.workqueues",
    title="Unbound kernel work stays on housekeeping CPUs",
    symptom="kworker/u threads take their turns on isolated CPUs.",
    cause="Unbound workqueues may use every CPU of this mask; masks of single queues only narrow it.",
    severity="warning",
    scope="runtime",
    risk="None; work that is bound to a CPU is not affected.",
    cost="Kernel work has fewer CPUs.",
    sources=(
        "Documentation/core-api/workqueue.rst",
        "kernel/workqueue.c, wqattrs_actualize_cpumask() and wq_unbound_cpumask_store()",
    ),
)
def workqueues(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    hot = hot_or_note(verdict, machine, profile)
    if not hot:
        return verdict
    unbound = machine.cpus.workqueue_cpus
    if unbound.absent:
        return verdict.not_applicable(f"this kernel has no {unbound.source}")
    if not unbound.known:
        return verdict.unknown(f"cpu:{format_list(hot)}", unbound)
    shared = sorted(set(unbound.get()) & set(hot))
    if not shared:
        # Masks that single queues have of their own, that of write-back for one, only narrow it.
        return verdict.ok(evidence(unbound.source, format_mask(unbound.get())))
    left = housekeeping_cpus(machine, hot)
    mask = format_mask(left.get()) if left.known and left.get() else ""
    writeback = machine.cpus.writeback_workqueue_cpus
    return verdict.finding(
        f"cpu:{format_list(shared)}",
        f"Unbound kernel work may run on {cpus_of(shared)}.",
        evidence(unbound.source, format_mask(unbound.get()), mask),
        *([evidence(writeback.source, format_mask(writeback.get()))] if writeback.known else []),
        changes=[SysfsAttribute(_UNBOUND, mask)] if mask else (),
        advice="" if mask else f"Write the mask of the housekeeping CPUs to {_UNBOUND}.",
    )


_UNBOUND = "/sys/devices/virtual/workqueue/cpumask"


@row(
    "isolation.tick",
    title="Tickless CPUs have had few ticks",
    symptom="nohz_full= is in force, and hot threads are interrupted at CONFIG_HZ all the same.",
    cause=(
        "The tick only stops while one runnable task is alone on the CPU, without POSIX CPU timers, perf "
        "events or an unstable clock. idle=poll keeps it running on a CPU that idles."
    ),
    severity="warning",
    scope="boot",
    risk="Depends on what keeps the tick.",
    cost="Depends on what keeps the tick.",
    sources=("Documentation/timers/no_hz.rst", "kernel/time/tick-sched.c, can_stop_full_tick()"),
)
def tick(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    hot = hot_or_note(verdict, machine, profile)
    if not hot:
        return verdict
    in_force = machine.cpus.nohz_full
    tickless = set(in_force.get() if in_force.known else asked_of_tick(machine)) & set(hot) - {BOOT_CPU}
    if not tickless or without_tick_support(machine):
        return verdict.not_applicable("the tick is not meant to stop on these CPUs: see isolation.nohz-full")
    counts = machine.irq.local_timer_counts
    if not counts.known:
        return verdict.unknown(f"cpu:{format_list(tickless)}", counts)
    quiet = {cpu: n for cpu, n in counts.get().items() if cpu in tickless}
    others = {cpu: n for cpu, n in counts.get().items() if cpu not in set(hot)}
    if not quiet or not others:
        return verdict.unknown(f"cpu:{format_list(tickless)}", f"{counts.source} has not both kinds of CPUs")
    return _compare(verdict, machine, quiet, others)


# Ticks of a tickless CPU, as a share of a housekeeping CPU's, from which on one wonders; and how
# many a second at least, as a housekeeping CPU that idles has few as well.
_TICK_SHARE = 0.5
_TICK_RATE = 50.0


def _compare(verdict: Verdict, machine: Machine, quiet: dict[int, int], others: dict[int, int]) -> Verdict:
    counts = machine.irq.local_timer_counts
    uptime = machine.kernel.uptime_s
    most = max(others.values())
    limit = most * _TICK_SHARE
    if uptime.known:
        limit = max(limit, uptime.get() * _TICK_RATE)
    ticking = sorted(cpu for cpu, n in quiet.items() if n > limit)
    worst = max(quiet, key=lambda cpu: quiet[cpu])
    housekeeper = max(others, key=lambda cpu: others[cpu])
    items = [
        evidence(
            counts.source, f"CPU {worst}: {quiet[worst]} timer interrupts since boot", "about one a second"
        ),
        evidence(counts.source, f"CPU {housekeeper} (housekeeping): {others[housekeeper]}"),
    ]
    if not ticking:
        return verdict.ok(*items)
    polling = [item for item in as_given(machine, "idle", "no idle=poll") if item.value == "idle=poll"]
    message = (
        f"{cpus_of(ticking)} had about as many timer interrupts since boot as housekeeping CPUs, "
        "although their tick is meant to stop."
    )
    if polling:
        message += " idle=poll is one cause: a CPU that polls while idle keeps its tick."
    return verdict.finding(
        f"cpu:{format_list(ticking)}",
        message,
        *items,
        *polling,
        advice=(
            f"Compare two samples of {_first_word(counts.source)} while one thread spins on an isolated CPU: "
            "counts since boot do not tell whether it is interrupted now."
        ),
    )


def _first_word(source: str) -> str:
    return source.partition(" ")[0]


@row(
    "isolation.rt-throttling",
    title="Real-time throttling is what the profile expects",
    symptom="A SCHED_FIFO thread that spins stands still for up to 50 ms each second.",
    cause=(
        "Before Linux 6.12 the kernel takes real-time tasks off a CPU once they have used "
        "sched_rt_runtime_us of each sched_rt_period_us. Since 6.12 it only does so with "
        "CONFIG_RT_GROUP_SCHED; the fair server (50 ms of each second) runs starved tasks instead."
    ),
    severity="warning",
    scope="runtime",
    risk="-1 lets a real-time thread that spins starve everything else on its CPU, kernel threads too.",
    cost="None.",
    sources=(
        "Documentation/scheduler/sched-rt-group.rst",
        "kernel/sched/rt.c and kernel/sched/deadline.c (Linux 6.12)",
    ),
)
def rt_throttling(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    runtime, period = machine.cpus.rt_runtime_us, machine.cpus.rt_period_us
    if runtime.absent:
        return verdict.not_applicable(f"this kernel has no {runtime.source}")
    if not runtime.known:
        return verdict.unknown("sysctl:kernel.sched_rt_runtime_us", runtime)
    if runtime.get() not in profile.isolation.rt_runtime_us:
        accepted = " or ".join(map(str, profile.isolation.rt_runtime_us))
        return verdict.finding(
            "sysctl:kernel.sched_rt_runtime_us",
            _share(runtime.get(), period) + " The profile accepts another value.",
            fact_evidence(runtime, accepted),
            *([fact_evidence(period)] if period.known else []),
            changes=[SysctlChange("kernel.sched_rt_runtime_us", str(max(profile.isolation.rt_runtime_us)))],
        )
    return verdict.ok(
        fact_evidence(runtime), *_servers(machine), reason=_meaning(machine, runtime.get(), period)
    )


def _share(runtime: int, period: Fact[int]) -> str:
    if runtime < 0:
        return "Real-time tasks are never throttled."
    if period.known and period.get() > 0:
        return f"Real-time tasks get {100 * runtime / period.get():g} % of a CPU's time at most."
    return f"Real-time tasks get {runtime} us of each period at most."


def _meaning(machine: Machine, runtime: int, period: Fact[int]) -> str:
    throttles = _throttles(machine)
    if runtime < 0:
        reason = "never throttled: a real-time thread that spins starves whatever else is on its CPU"
        if throttles is False:
            reason += "; the fair server still gives starved tasks their share"
        return reason
    if throttles is False:
        return "this kernel does not throttle; its fair server gives starved tasks 50 ms of each second"
    text = _share(runtime, period)
    text = text[0].lower() + text[1:].rstrip(".")
    return text if throttles else f"{text}, if this kernel throttles at all (CONFIG_RT_GROUP_SCHED)"


def _throttles(machine: Machine) -> bool | None:
    """Whether this kernel has the throttling at all; None where that is not known."""
    release, config = machine.kernel.release, machine.kernel.config
    if config.known and config.get().get("CONFIG_RT_GROUP_SCHED") == "y":
        return True
    if not release.known:
        return None
    version = release.get().split(".")
    try:
        since = (int(version[0]), int(version[1].split("-")[0]))
    except (ValueError, IndexError):
        return None
    if since < (6, 12):
        return True
    return False if config.known else None


def _servers(machine: Machine) -> list[Evidence]:
    servers = machine.cpus.fair_server
    if not servers.known:
        return []
    off = [cpu for cpu, runtime, _ in servers.get() if runtime == 0]
    return [evidence(servers.source, f"off on {cpus_of(off)}")] if off else []


@row(
    "isolation.cpuset-partition",
    title="Cpuset partitions are valid",
    symptom="cpuset.cpus.partition was written without an error, and the CPUs are not isolated.",
    cause=(
        "A partition that the kernel cannot make, or that stops being possible later, stays in the file as "
        '"isolated invalid" or "root invalid", with the reason in brackets.'
    ),
    severity="error",
    scope="runtime",
    risk="Tasks of other groups lose the partition's CPUs.",
    cost="The CPUs are the group's alone.",
    sources=("Documentation/admin-guide/cgroup-v2.rst (cpuset.cpus.partition)",),
)
def cpuset_partition(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    partitions = machine.cpus.partitions
    if partitions.absent:
        return verdict.not_applicable("version 2 of the control groups is not mounted")
    if not partitions.known:
        return verdict.unknown("kernel", partitions)
    if not partitions.get():
        return verdict.not_applicable("no control group is a cpuset partition")
    for partition in partitions.get():
        _judge_partition(verdict, partition)
    return verdict


def _judge_partition(verdict: Verdict, partition: CpusetPartition) -> None:
    item = evidence(
        f"{partition.path}/cpuset.cpus.partition", partition.state, partition.state.partition(" ")[0]
    )
    if " invalid" not in partition.state:
        verdict.ok(item)
        return
    reason = partition.state.partition("(")[2].rstrip(")")
    subject = f"cpu:{format_list(partition.cpus)}" if partition.cpus else "kernel"
    verdict.finding(
        subject,
        f"The partition {partition.path.rpartition('/')[2]} is not in force"
        + (f": {reason[0].lower()}{reason[1:]}." if reason else "."),
        item,
        advice=_partition_advice(reason),
    )


def _partition_advice(reason: str) -> str:
    text = reason.lower()
    if "parent" in text:
        return "Make the parent a valid partition first, or set cpuset.cpus.exclusive on the way (Linux 6.7)."
    if "exclusive" in text:
        return "Take these CPUs out of cpuset.cpus of the group's siblings."
    if "isolcpus" in text or "housekeeping" in text or "hk" in text:
        return "Choose CPUs that agree with isolcpus= and nohz_full=."
    return (
        "Set cpuset.cpus to online CPUs that the parent has and no sibling uses, and write the state again."
    )


@row(
    "isolation.watchdog",
    title="Watchdogs leave isolated CPUs alone",
    symptom="Every 4 s (soft lockup) or 10 s (hard lockup, by NMI) a hot thread is interrupted.",
    cause=(
        "The lockup detectors run on the CPUs of kernel.watchdog_cpumask, by default all but those of "
        "nohz_full=. The hard one also takes a performance counter of each CPU."
    ),
    severity="warning",
    scope="runtime",
    risk="A lockup on these CPUs is not reported.",
    cost="None.",
    sources=(
        "Documentation/admin-guide/lockup-watchdogs.rst",
        "Documentation/admin-guide/sysctl/kernel.rst (watchdog_cpumask)",
    ),
)
def watchdog(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    hot = hot_or_note(verdict, machine, profile)
    if not hot:
        return verdict
    detectors = [_sysctl(machine, key) for key in ("kernel.soft_watchdog", "kernel.nmi_watchdog")]
    running = [fact for fact in detectors if fact.known and fact.get() != "0"]
    if not running:
        return _no_detector(verdict, machine, detectors)
    cpus = _sysctl(machine, "kernel.watchdog_cpumask").map(parse_list)
    if not cpus.known:
        return verdict.unknown("sysctl:kernel.watchdog_cpumask", cpus)
    watched = sorted(set(cpus.get()) & set(hot))
    if not watched:
        return verdict.ok(fact_evidence(cpus))
    left = housekeeping_cpus(machine, hot)
    value = format_list(left.get()) if left.known else ""
    return verdict.finding(
        f"cpu:{format_list(watched)}",
        f"The lockup detectors interrupt {cpus_of(watched)}.",
        evidence(cpus.source, format_list(cpus.get()), value),
        *(fact_evidence(fact) for fact in running),
        changes=[SysctlChange("kernel.watchdog_cpumask", value)] if value else (),
        advice="" if value else "Set kernel.watchdog_cpumask to the housekeeping CPUs.",
    )


def _sysctl(machine: Machine, key: str) -> Fact[str]:
    return machine.kernel.sysctl.values.get(key) or gap(NOT_PROBED, f"sysctl {key}")


def _no_detector(verdict: Verdict, machine: Machine, detectors: list[Fact[str]]) -> Verdict:
    unread = [fact for fact in detectors if fact.unknown]
    off = _off_at_boot(machine)
    if unread and off:
        return verdict.ok(*off, reason="turned off at boot")
    if unread:
        return verdict.unknown("sysctl:kernel.watchdog", *unread)
    if all(fact.absent for fact in detectors):
        return verdict.not_applicable("this kernel has no lockup detectors")
    return verdict.ok(*(fact_evidence(fact) for fact in detectors if fact.known))


def _off_at_boot(machine: Machine) -> list[Evidence]:
    """The arguments that turn both detectors off, or [] where one of them is left on."""
    both = as_given(machine, "nowatchdog")
    if both:
        return both
    soft = as_given(machine, "nosoftlockup")
    hard = [item for item in as_given(machine, "nmi_watchdog") if item.value.startswith("nmi_watchdog=0")]
    return soft + hard if soft and hard else []


@row(
    "isolation.managed-irq",
    title="Interrupts that the kernel manages prefer housekeeping CPUs",
    symptom="Completions of other CPUs' I/O interrupt an isolated CPU, and nobody can move that interrupt.",
    cause=(
        "The kernel spreads the queues of NVMe drives and RAID controllers over all CPUs. With the flag "
        "managed_irq of isolcpus= it serves a queue from a housekeeping CPU wherever the queue has one."
    ),
    severity="warning",
    scope="boot",
    risk="Queues that serve isolated CPUs alone stay there; that is as it should be.",
    cost="Housekeeping CPUs serve more interrupts.",
    sources=("Documentation/core-api/irq/managed_irq.rst", f"{PARAMETERS} (isolcpus, managed_irq)"),
)
def managed_irq(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    hot = hot_or_note(verdict, machine, profile)
    if not hot:
        return verdict
    if not machine.irq.listed.known:
        return verdict.unknown(f"cpu:{format_list(hot)}", machine.irq.listed)
    managed = [irq for irq in machine.irq.irqs if irq.managed]
    if not managed and not machine.irq.counted_cpus.known:
        # the names by which they are known stand in the table
        return verdict.unknown(f"cpu:{format_list(hot)}", machine.irq.counted_cpus)
    if not managed:
        return verdict.not_applicable("no interrupt is known to be managed by the kernel")
    apart = frozenset(hot)
    wrong = [
        irq
        for irq in managed
        if irq.effective.known
        and irq.affinity.known
        and set(irq.effective.get()) & apart
        and set(irq.affinity.get()) - apart
    ]
    flagged = any("managed_irq" in parsed.flags for parsed in isolcpus_given(machine))
    if not wrong or flagged:
        return verdict.ok(
            evidence("/proc/irq/*/effective_affinity_list", f"{len(managed)} managed by the kernel"),
            reason="queues that serve isolated CPUs alone only interrupt the CPU that asked",
        )
    cpus = repaired(machine, profile, hot)
    shared = sorted({c for irq in wrong for c in irq.effective.get()} & apart)
    items = [
        evidence(
            irq.effective.source,
            f"{format_list(irq.effective.get())}: {', '.join(irq.actions)}",
            "a housekeeping CPU",
        )
        for irq in wrong[:_SHOWN]
    ]
    return verdict.finding(
        f"cpu:{format_list(shared)}",
        f"{len(wrong)} interrupts that the kernel manages are served by {cpus_of(shared)}, "
        "though housekeeping CPUs could serve them.",
        *items,
        *as_given(machine, "isolcpus", wanted(machine, "isolcpus", cpus)),
        changes=with_arguments(machine, cpus, "isolcpus"),
        advice="" if cpus else "Add the flag managed_irq to isolcpus=.",
    )
