"""Interrupts that land where they hurt."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from hwtune.changes import DefaultIrqAffinity, IrqAffinity, IrqbalanceBan, KernelArguments
from hwtune.diagnosis import Verdict, evidence
from hwtune.diagnosis.row import row
from hwtune.model.intent import hot_cpus, housekeeping_cpus, repaired
from hwtune.remediations._isolation import (
    PARAMETERS,
    as_given,
    asked_of_scheduler,
    asked_of_tick,
    cpus_of,
    hot_or_note,
    listed,
)
from hwtune.text import irqbalance
from hwtune.text.cpulist import format_list, format_mask

if TYPE_CHECKING:
    from hwtune.diagnosis import Evidence
    from hwtune.fact import Fact
    from hwtune.model import Machine
    from hwtune.model.irqs import Irq
    from hwtune.profile import Profile

_AFFINITY = "Documentation/core-api/irq/irq-affinity.rst"
_EFFECTIVE = "/proc/irq/*/effective_affinity_list"
# How many of many alike things are shown one by one.
_SHOWN = 5
# The kernel refuses to move these (IRQF_NOBALANCING, or wired to the boot CPU).
_FIXED = frozenset(("timer", "cascade", "hpet0"))


def _device_irqs(machine: Machine) -> list[Irq]:
    return [irq for irq in machine.irq.irqs if not irq.per_cpu]


def _movable(irq: Irq) -> bool:
    return not irq.managed and not irq.per_cpu and not _FIXED.intersection(irq.actions)


def _served_by(irq: Irq) -> Fact[list[int]]:
    """The CPUs that serve the interrupt: those in force, or, on kernels that don't tell, those asked for."""
    return irq.affinity if irq.effective.absent else irq.effective


def _name(irq: Irq) -> str:
    return ", ".join(irq.actions) or f"IRQ {irq.number}"


def _kinds(irqs: list[Irq]) -> str:
    """Names without their last number, the most frequent first: "nvme0q* 75"."""
    kinds = Counter(re.sub(r"\d+$", "*", _name(irq)) for irq in irqs)
    shown = [f"{name} {n}" for name, n in kinds.most_common(6)]
    return ", ".join(shown) + (f" and {len(kinds) - 6} other kinds" if len(kinds) > 6 else "")


class _Nodes:
    """Nodes of interrupts, and their CPUs."""

    def __init__(self, machine: Machine) -> None:
        self.cpus = {
            n.id: frozenset(n.cpus.get()) for n in machine.numa.nodes if n.cpus.known and n.cpus.get()
        }
        self._devices = {d.address: d.numa_node.get() for d in machine.pci.devices if d.numa_node.known}

    def of(self, irq: Irq) -> int:
        """The owner's node, else what the kernel noted with the interrupt; -1 where neither knows."""
        node = self._devices.get(irq.pci_address) if irq.pci_address is not None else None
        if node is not None:
            return node
        return irq.node.get() if irq.node.known else -1

    def near(self, irq: Irq, cpus: list[int]) -> list[int]:
        """Those of ``cpus`` on the interrupt's node; all where none is."""
        return sorted(self.cpus.get(self.of(irq), frozenset()).intersection(cpus)) or cpus


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.1f} %)" if whole else "none"


@row(
    "irq.on-isolated",
    title="No device interrupts isolated CPUs",
    symptom="A hot thread stops whenever a NIC, drive or controller raises its interrupt.",
    cause=(
        "isolcpus= and nohz_full= move no interrupts: each goes where its affinity says, by default "
        "anywhere. Those that the kernel manages itself (NVMe queues) cannot be moved and are no fault."
    ),
    severity="error",
    scope="runtime",
    risk="Housekeeping CPUs take the load; a NIC with one queue per CPU then has several queues on one CPU.",
    cost="Less interrupt capacity.",
    sources=(_AFFINITY, "Documentation/core-api/irq/managed_irq.rst"),
)
def on_isolated(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    hot = hot_or_note(verdict, machine, profile)
    if not hot:
        return verdict
    irqs = _device_irqs(machine)
    judged = [irq for irq in irqs if _served_by(irq).known]
    if not judged:
        return _without_affinity(verdict, machine, hot, irqs)
    apart = frozenset(hot)
    here = [irq for irq in judged if apart.intersection(_served_by(irq).get())]
    # An interrupt without an action is nobody's: it cannot fire.
    movable = [irq for irq in here if _movable(irq) and irq.actions]
    unread = [irq for irq in irqs if irq.actions and _served_by(irq).unknown]
    if not movable:
        if unread:
            return verdict.unknown(f"cpu:{format_list(hot)}", _served_by(unread[0]))
        reason = f"the {len(here)} on isolated CPUs are managed by the kernel, or nobody's" if here else ""
        return verdict.ok(
            evidence(_EFFECTIVE, f"{len(judged)} IRQs, none on isolated CPUs that could be moved"),
            reason=reason,
        )
    return _found(verdict, machine, profile, hot, judged, here, movable)


def _without_affinity(verdict: Verdict, machine: Machine, hot: list[int], irqs: list[Irq]) -> Verdict:
    """Counts since boot do not tell where interrupts go now, only that they went there."""
    known = machine.irq.listed if irqs == [] or not irqs[0].effective.gap else _served_by(irqs[0])
    verdict.unknown(f"cpu:{format_list(hot)}", known)
    total = sum(irq.total for irq in irqs)
    on_hot = sum(irq.counts.get(cpu, 0) for irq in irqs for cpu in hot)
    if total:
        counted = machine.irq.counted_cpus.source
        verdict.unknowns[
            -1
        ].reason += (
            f"; since boot {_share(on_hot, total)} device interrupts were counted on these CPUs ({counted})"
        )
    return verdict


def _found(
    verdict: Verdict,
    machine: Machine,
    profile: Profile,
    hot: list[int],
    judged: list[Irq],
    here: list[Irq],
    movable: list[Irq],
) -> Verdict:
    apart = frozenset(hot)
    devices = _device_irqs(machine)
    total = sum(irq.total for irq in devices)
    on_hot = sum(n for irq in devices for cpu, n in irq.counts.items() if cpu in apart)
    by_movable = {irq.number: sum(n for cpu, n in irq.counts.items() if cpu in apart) for irq in movable}
    fired = sum(1 for irq in here if irq.counts)
    items = [
        evidence(
            _EFFECTIVE,
            f"{len(here)} of {len(judged)} IRQs on isolated CPUs, {fired} of them with counts",
            "none but those that the kernel manages",
        )
    ]
    if total:
        source = machine.irq.counted_cpus.source
        items.append(
            evidence(source, f"{_share(on_hot, total)} device interrupts counted on isolated CPUs", "0")
        )
    items.append(evidence(_EFFECTIVE, _kinds([irq for irq in here if irq.actions])))
    managed = [irq for irq in here if irq.managed]
    if managed:
        items.append(
            evidence(_EFFECTIVE, f"{len(managed)} managed by the kernel, which stay: {_kinds(managed)}")
        )
    left = housekeeping_cpus(machine, hot)
    busiest = sorted(movable, key=lambda irq: -by_movable[irq.number])
    for irq in busiest[:_SHOWN]:
        if by_movable[irq.number]:
            cpus = _served_by(irq)
            text = f"{format_list(cpus.get())} ({_name(irq)}, {by_movable[irq.number]} counted there)"
            items.append(evidence(cpus.source, text, format_list(left.get()) if left.known else ""))
    shared = sorted({c for irq in movable for c in _served_by(irq).get()} & apart)
    counted = sum(by_movable.values())
    message = (
        "1 IRQ that could be moved is"
        if len(movable) == 1
        else f"{len(movable)} IRQs that could be moved are"
    )
    fired_there = f"fired there {counted} times" if counted else "never fired there"
    message += f" served by {cpus_of(shared)} and {fired_there} since boot."
    changes = []
    if left.known and left.get():
        nodes = _Nodes(machine)
        changes = [
            IrqAffinity(irq.number, tuple(nodes.near(irq, left.get())), tuple(sorted(hot))) for irq in movable
        ]
    return verdict.finding(
        f"cpu:{format_list(shared)}",
        message,
        *items,
        changes=changes,
        advice="" if changes else "Write the housekeeping CPUs to /proc/irq/N/smp_affinity_list of each.",
        severity=_severity(counted, total, profile),
    )


# From this share of all device interrupts on it is no stray.
_ERROR_SHARE = 0.01


def _severity(counted: int, total: int, profile: Profile) -> str:
    """Interrupts that have not fired are worth moving; a few that have are a warning."""
    if counted <= profile.irq.on_isolated_min_count:
        return "info"
    return "error" if counted > total * _ERROR_SHARE else "warning"


@row(
    "irq.default-affinity",
    title="New interrupts do not start on isolated CPUs",
    symptom="After a driver is loaded or a device is reset, isolated CPUs are interrupted.",
    cause="A new interrupt takes its affinity from /proc/irq/default_smp_affinity, by default all CPUs.",
    severity="warning",
    scope="runtime",
    risk="None.",
    cost="Less interrupt capacity.",
    sources=(_AFFINITY, "Documentation/filesystems/proc.rst (default_smp_affinity)"),
)
def default_affinity(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    hot = hot_or_note(verdict, machine, profile)
    if not hot:
        return verdict
    default = machine.irq.default_affinity
    if default.absent:
        return verdict.not_applicable(f"this kernel has no {default.source}")
    if not default.known:
        return verdict.unknown(f"cpu:{format_list(hot)}", default)
    shared = sorted(set(default.get()) & set(hot))
    if not shared:
        return verdict.ok(evidence(default.source, format_mask(default.get())))
    left = housekeeping_cpus(machine, hot)
    cpus = left.get() if left.known else []
    return verdict.finding(
        f"cpu:{format_list(shared)}",
        f"Interrupts that are set up from now on may be served by {cpus_of(shared)}.",
        evidence(default.source, format_mask(default.get()), format_mask(cpus) if cpus else ""),
        changes=[DefaultIrqAffinity(tuple(cpus))] if cpus else (),
        advice="" if cpus else f"Write the mask of the housekeeping CPUs to {default.source}.",
    )


@row(
    "irq.irqaffinity-arg",
    title="irqaffinity= keeps interrupts off isolated CPUs from boot on",
    symptom="Isolated CPUs are interrupted from the first second, before any service can move anything.",
    cause="irqaffinity= is the default affinity while the kernel sets up its drivers; without it, all CPUs.",
    severity="warning",
    scope="boot",
    risk="None; managed interrupts do not follow it.",
    cost="Less interrupt capacity.",
    sources=(f"{PARAMETERS} (irqaffinity)", "kernel/irq/irqdesc.c, irq_affinity_setup()"),
)
def irqaffinity_arg(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    hot = hot_or_note(verdict, machine, profile)
    if not hot:
        return verdict
    arguments = machine.kernel.arguments
    if not arguments.known:
        return verdict.unknown("karg:irqaffinity", arguments)
    cpus = _for_interrupts(machine, profile, hot)
    changes = [KernelArguments(set=(f"irqaffinity={format_list(cpus)}",))] if cpus else []
    advice = "" if cpus else "Give irqaffinity= with the housekeeping CPUs."
    if not machine.kernel.has_argument("irqaffinity"):
        default = machine.irq.default_affinity
        if default.known and not set(default.get()) & set(hot):
            return verdict.ok(
                evidence(default.source, format_mask(default.get())),
                reason="irqaffinity= is not given, and the default affinity has been set without it",
            )
        return verdict.finding(
            "karg:irqaffinity",
            f"irqaffinity= is not given: interrupts set up at boot may be served by {cpus_of(hot)}.",
            evidence(arguments.source, "no irqaffinity=", f"irqaffinity={format_list(cpus)}" if cpus else ""),
            changes=changes,
            advice=advice,
        )
    named = listed(machine, "irqaffinity")
    shared = sorted(set(named) & set(hot))
    if named and not shared:
        return verdict.ok(*as_given(machine, "irqaffinity"))
    message = (
        f"irqaffinity= names the isolated {cpus_of(shared)}."
        if shared
        else "The kernel cannot read irqaffinity= and sends interrupts anywhere."
    )
    return verdict.finding(
        "karg:irqaffinity",
        message,
        *as_given(machine, "irqaffinity", f"irqaffinity={format_list(cpus)}" if cpus else ""),
        evidence(hot_cpus(machine, profile).source, f"isolated: {format_list(hot)}"),
        changes=changes,
        advice=advice,
        severity="error",
    )


def _for_interrupts(machine: Machine, profile: Profile, hot: list[int]) -> list[int]:
    """The CPUs for irqaffinity=: neither hot now, nor by the arguments that other rows propose."""
    everything = machine.cpus.possible if machine.cpus.possible.known else machine.cpus.online
    if not everything.known:
        return []
    target = set(repaired(machine, profile, hot))
    both = set(everything.get()) - set(hot) - target
    return sorted(both or set(everything.get()) - target)


@row(
    "irq.irqbalance",
    title="irqbalance keeps off isolated CPUs",
    symptom="Interrupts that were moved away come back to isolated CPUs within 10 s.",
    cause=(
        "irqbalance bans the CPUs of isolcpus= (domain) and nohz_full= by itself, but not once a ban is set "
        "in its environment, and not those of cpuset partitions or of isolcpus=managed_irq alone."
    ),
    severity="error",
    scope="service",
    risk="irqbalance is restarted and moves interrupts.",
    cost="Less interrupt capacity.",
    sources=("irqbalance cputree.c, setup_banned_cpus()", "irqbalance(1), IRQBALANCE_BANNED_CPULIST"),
)
def irqbalance_ban(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    hot = hot_or_note(verdict, machine, profile)
    if not hot:
        return verdict
    if machine.virtualization.is_container:
        return verdict.not_applicable("irqbalance and its configuration are the host's, not this container's")
    running = _running(machine)
    if running is False:
        return verdict.not_applicable("irqbalance does not run")
    environment = machine.irq.irqbalance_environment
    if environment.absent and running is None:
        return verdict.not_applicable("irqbalance is not installed: it has no environment file")
    if environment.unknown:
        return verdict.unknown("service:irqbalance", environment)
    ban = irqbalance.effective_ban(environment.get() if environment.known else {})
    if ban.empty:
        return _empty_ban(verdict, machine, hot)
    banned = _automatic(machine) if ban.cpus is None else ban.cpus
    open_ = sorted(set(hot) - set(banned))
    source = machine.irq.irqbalance_source
    if not open_:
        if ban.cpus is None:
            return verdict.ok(
                evidence(environment.source, "no ban set"), reason="irqbalance bans isolated CPUs by itself"
            )
        return verdict.ok(evidence(source, f"{ban.variable}={ban.value}"))
    wanted = sorted(set(hot) | set(ban.cpus or []))
    if ban.cpus is None:
        item = evidence(environment.source, "no ban set", f"{irqbalance.LIST}={format_list(wanted)}")
        message = (
            f"irqbalance may move interrupts to {cpus_of(open_)}: "
            "by itself it only bans CPUs of the kernel's lists."
        )
    else:
        item = evidence(source, f"{ban.variable}={ban.value}", _assignment(ban.variable, wanted))
        message = _set_ban(ban, open_)
    return verdict.finding(
        "service:irqbalance",
        message,
        item,
        evidence(hot_cpus(machine, profile).source, f"isolated: {format_list(hot)}"),
        changes=[IrqbalanceBan(tuple(wanted))],
    )


def _set_ban(ban: irqbalance.Ban, open_: list[int]) -> str:
    what = (
        f"{ban.variable} cannot be read and bans no CPU"
        if ban.invalid
        else f"{ban.variable} bans {cpus_of(ban.cpus)}"
        if ban.cpus
        else f"{ban.variable} bans no CPU"
    )
    return (
        f"{what}, and a ban that is set turns the automatic one off: "
        f"irqbalance may move interrupts to {cpus_of(open_)}."
    )


def _empty_ban(verdict: Verdict, machine: Machine, hot: list[int]) -> Verdict:
    source = machine.irq.irqbalance_source
    return verdict.finding(
        "service:irqbalance",
        f"{irqbalance.LIST} is set and empty: releases of irqbalance from 2026 on then ban no CPU, earlier "
        "ones ban isolated CPUs by themselves.",
        evidence(source, f"{irqbalance.LIST}=", _assignment(irqbalance.LIST, hot)),
        changes=[IrqbalanceBan(tuple(hot))],
        severity="warning",
    )


def _assignment(variable: str, cpus: list[int]) -> str:
    return f"{variable}={format_mask(cpus) if variable == irqbalance.MASK else format_list(cpus)}"


def _running(machine: Machine) -> bool | None:
    """Whether irqbalance runs; None where that was not seen."""
    found = [s for s in machine.service.services if s.name in ("irqbalance", "irqbalance.service")]
    for service in found:
        if service.active.known:
            return service.active.get()
    return None


def _automatic(machine: Machine) -> list[int]:
    """What irqbalance bans where nobody tells it: the kernel's lists, or what they would be."""
    isolated, tickless = machine.cpus.isolated, machine.cpus.nohz_full
    cpus = set(isolated.get() if isolated.known else asked_of_scheduler(machine))
    if not tickless.absent:
        cpus.update(tickless.get() if tickless.known else asked_of_tick(machine))
    return sorted(cpus)


@row(
    "irq.one-cpu",
    title="Interrupts are spread over CPUs",
    symptom="One CPU is busy with interrupts; network and drives get slower together.",
    cause="Nobody has spread them: irqbalance does not run, or CPUs were added after the drivers.",
    severity="warning",
    scope="runtime",
    risk="A driver may have chosen its CPU with care.",
    cost="More CPUs are interrupted.",
    sources=(_AFFINITY, "irqbalance(1)"),
)
def one_cpu(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    columns = machine.irq.counted_cpus
    if not columns.known:
        return verdict.unknown("kernel", columns)
    hot = hot_cpus(machine, profile)
    cpus = sorted(set(columns.get()) - set(hot.get() if hot.known else []))
    if len(cpus) < 2:
        return verdict.not_applicable("there is one CPU to serve interrupts")
    active = [irq for irq in _device_irqs(machine) if irq.counts and not irq.managed]
    if len(active) < _FEW:
        return verdict.not_applicable(f"{len(active)} interrupts have fired since boot: too few to be spread")
    total = sum(irq.total for irq in active)
    per_cpu: Counter[int] = Counter()
    for irq in active:
        per_cpu.update(irq.counts)
    cpu, most = per_cpu.most_common(1)[0]
    lines = [irq for irq in active if _home(irq) == cpu]
    limit = profile.irq.one_cpu_share_max
    item = evidence(
        columns.source,
        f"CPU {cpu}: {most} of {total} device interrupts, {len(lines)} of {len(active)} that have fired",
        f"at most {100 * limit:g} %",
    )
    # A single busy queue is one CPU's work; that all interrupts have the same CPU is what is wrong.
    if most <= limit * total or len(lines) <= limit * len(active):
        return verdict.ok(item)
    cause = {
        True: "irqbalance runs and has not moved them",
        False: "irqbalance does not run",
        None: "nothing balances them",
    }[_running(machine)]
    return verdict.finding(
        f"cpu:{cpu}",
        f"Of {len(columns.get())} CPUs, CPU {cpu} serves {most} of {total} device interrupts: {cause}.",
        item,
        changes=_spread(machine, active, cpus),
        advice="Start irqbalance, or spread the interrupts by hand over the CPUs of their devices' nodes.",
    )


# With fewer active interrupts than this there is nothing to spread.
_FEW = 3


def _home(irq: Irq) -> int | None:
    """The CPU that serves the interrupt now, else the one that has served it most."""
    now = irq.effective
    if now.known and len(now.get()) == 1:
        return now.get()[0]
    return max(irq.counts, key=lambda cpu: irq.counts[cpu]) if irq.counts else None


def _spread(machine: Machine, active: list[Irq], cpus: list[int]) -> list[IrqAffinity]:
    """One CPU for each, the busiest interrupts first, in turn over the CPUs of their node."""
    used: Counter[int] = Counter()
    nodes = _Nodes(machine)
    changes = []
    for irq in sorted(active, key=lambda irq: (-irq.total, irq.number)):
        if _movable(irq):
            cpu = min(nodes.near(irq, cpus), key=lambda c: (used[c], c))
            used[cpu] += 1
            if cpu != _home(irq):
                changes.append(IrqAffinity(irq.number, (cpu,)))
    return changes


@row(
    "irq.numa-distance",
    title="Interrupts are served on their device's NUMA node",
    symptom="Every packet or completion is handled with remote memory: each cache miss takes longer.",
    cause="The driver's data lie on the device's node, and the interrupt is served by a CPU of another.",
    severity="warning",
    scope="runtime",
    risk="None; interrupts move at once.",
    cost="CPUs of the device's node serve more interrupts.",
    sources=(_AFFINITY, "Documentation/ABI/testing/sysfs-bus-pci (numa_node)"),
)
def numa_distance(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    nodes = _Nodes(machine)
    if not nodes.cpus:
        listed_ = machine.numa.listed
        return verdict.unknown("kernel", "no node's CPUs are known" if listed_.known else listed_)
    if len(nodes.cpus) < 2:
        unread = [node.cpus for node in machine.numa.nodes if node.cpus.unknown]
        if unread:
            return verdict.unknown("kernel", *unread[:1])
        return verdict.not_applicable("all CPUs are on one node")
    if not machine.irq.counted_cpus.known:
        return verdict.unknown("kernel", machine.irq.counted_cpus)
    busy = [irq for irq in _busy(machine, profile) if nodes.of(irq) in nodes.cpus]
    if not busy:
        return verdict.not_applicable("no busy interrupt of a PCI device whose node is known")
    hot = hot_cpus(machine, profile)
    apart = set(hot.get() if hot.known else ())
    online = machine.cpus.online
    usable = (
        frozenset(online.get()) if online.known else frozenset[int]().union(*nodes.cpus.values())
    ) - apart
    far: dict[str, list[Irq]] = {}
    homeless = 0
    for irq in busy:
        serving = _served_by(irq)
        if not serving.known:
            verdict.unknown(f"irq:{irq.number}", serving)
        elif nodes.cpus[nodes.of(irq)].intersection(serving.get()) or not serving.get():
            verdict.ok()
        elif not nodes.cpus[nodes.of(irq)] & usable:
            # Isolation comes first: there is no CPU on that node that may be interrupted.
            homeless += 1
            verdict.ok()
        else:
            far.setdefault(irq.pci_address or "", []).append(irq)
    for address, irqs in far.items():
        node = nodes.of(irqs[0])
        _far(verdict, address, node, irqs, tuple(sorted(nodes.cpus[node] & usable)))
    if not far:
        verdict.evidence.append(
            evidence(_EFFECTIVE, f"{verdict.good} busy interrupts, each on its device's node")
        )
        if homeless:
            noun = "1 has" if homeless == 1 else f"{homeless} have"
            verdict.reasons.append(f"{noun} no housekeeping CPU on the device's node")
    return verdict


# What is busy: one a second on average since boot, or, where the uptime is not known, this many.
_BUSY_RATE = 1.0
_BUSY_COUNT = 10_000


def _busy(machine: Machine, profile: Profile) -> list[Irq]:
    """Interrupts of PCI functions that could be moved, make out a share of all, and are no rarity."""
    devices = _device_irqs(machine)
    uptime = machine.kernel.uptime_s
    least = max(
        profile.irq.busy_share_min * sum(irq.total for irq in devices),
        uptime.get() * _BUSY_RATE if uptime.known else _BUSY_COUNT,
    )
    return [irq for irq in devices if irq.pci_address is not None and _movable(irq) and irq.total > least]


def _far(verdict: Verdict, address: str, node: int, irqs: list[Irq], near: tuple[int, ...]) -> None:
    items: list[Evidence] = [
        evidence(
            _served_by(irq).source,
            f"{format_list(_served_by(irq).get())} ({_name(irq)}, {irq.total} since boot)",
            format_list(near),
        )
        for irq in sorted(irqs, key=lambda irq: -irq.total)[:_SHOWN]
    ]
    count = "1 busy interrupt" if len(irqs) == 1 else f"{len(irqs)} busy interrupts"
    verb = "is" if len(irqs) == 1 else "are"
    verdict.finding(
        f"pci:{address}",
        f"{count} of {address} on node {node} {verb} served by CPUs of another node.",
        *items,
        changes=[IrqAffinity(irq.number, near) for irq in irqs],
    )
