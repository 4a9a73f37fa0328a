"""Rows: packets that get lost between the wire and the socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.changes import NicSetting, SysctlChange
from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.fact import Fact, known
from hwtune.remediations import _nic
from hwtune.remediations._common import fix, sysctl_number
from hwtune.remediations._nic import (
    by_queue,
    call,
    counts,
    opening,
    per_million,
    ppm,
    received,
    subject,
    uncounted,
)
from hwtune.text.cpulist import format_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.diagnosis.verdict import Evidence
    from hwtune.model import Machine
    from hwtune.model.network import Nic, SoftnetCpu
    from hwtune.profile import Profile

_MISSED = (
    "rx_missed_errors",
    "rx_fifo_errors",
    "rx_missed",
    "rx_out_of_buffer",
    "rx_discards_phy",
    "rx_discards",
)


def lost(nic: Nic) -> tuple[Fact[int], Evidence | None]:
    """Packets that the NIC had no room for, and the counters that say so.

    Drivers count one event under two names, so that the highest stands for all.
    """
    found = counts(nic, _MISSED)
    if found.known:
        shown = [f"{name} {count:,}" for name, count in found.get().items() if count]
        text = ", ".join(shown) or f"{nic.name}: none lost"
        return found.map(lambda values: max(values.values())), evidence(found.source, text)
    own = nic.driver_statistics
    queues = by_queue(own.value or {}, "rx_drops_no_frags")
    if queues:
        text = f"rx_drops_no_frags {sum(queues):,} in {len(queues)} queues"
        return known(sum(queues), own.source), evidence(own.source, text)
    return Fact(None, found.source, found.gap, found.detail), None


@row(
    "nic.drops",
    title="No packets lost for want of room",
    symptom="Gaps in a feed, retransmissions, and a tail of the length of the retransmission timer.",
    cause="Bursts come faster than the driver gives buffers back: the ring is full.",
    severity="warning",
    scope="runtime",
    risk="A larger ring takes longer to fall out of the cache; setting it resets the link on many drivers.",
    cost="Memory, a few MiB.",
    sources=(f"{_nic.STATISTICS} (rx_missed_errors, rx_fifo_errors)",),
)
def drops(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()

    def check(verdict: Verdict, nic: Nic) -> Sequence[Fact[Any]] | None:
        return _drops(verdict, profile, nic)

    return _nic.judge(verdict, machine, check)


# Fewer say nothing, however few packets there were.
_FEW = 5


def _drops(verdict: Verdict, profile: Profile, nic: Nic) -> Sequence[Fact[Any]] | None:
    count, shown = lost(nic)
    if count.absent:
        verdict.not_applicable("the driver does not count packets that were lost for want of room")
        return None
    if not count.known or shown is None:
        return [count]
    if not count.get():
        verdict.ok(shown)
        return None
    packets = received(nic)
    if packets is None:
        return [uncounted(count)]
    total = packets + count.get()
    share = per_million(count.get(), total)
    said = f"{count.get():,} of {total:,} packets ({ppm(share)} per million)"
    if count.get() < _FEW or share < profile.nic.drops_per_million_note:
        verdict.ok(shown, reason=f"{nic.name} has lost {said}")
        return None
    items = [
        evidence(shown.source, shown.value, f"at most {profile.nic.drops_per_million_note:g} per million")
    ]
    extra = (nic.driver_statistics.value or {}).get("rx_no_buffer_count", 0)
    if extra:
        items.append(evidence(nic.driver_statistics.source, f"rx_no_buffer_count {extra:,}"))
    few = share <= profile.nic.drops_per_million_max
    verdict.finding(
        subject(nic),
        f"{opening(nic)} has lost {said} since its driver was loaded, as it had no room for them.",
        *items,
        advice=_room(nic, few),
        severity="info" if few else None,
    )
    return None


def _room(nic: Nic, few: bool) -> str:
    if nic.rings.known:
        size, most = nic.rings.get().get("rx"), nic.rings.get().get("rx_max")
        if size is not None and most is not None and size >= most:
            return f"Give the interrupts of {call(nic)} CPUs of their own: its RX ring cannot grow ({size})."
    name = nic.name if nic.name != "?" else "IF"
    when = " if the count grows" if few else ""
    return f"Raise the RX ring{when} (ethtool -g {name} shows how far, ethtool -G {name} rx N sets it)."


@row(
    "nic.rings",
    title="Receive rings that hold a burst",
    symptom="Packets are lost in bursts, while the CPUs have time.",
    cause="The ring of buffers for received packets is smaller than a burst, and could be larger.",
    severity="warning",
    scope="runtime",
    risk="The link is reset on many drivers: the interface is away for some seconds.",
    cost="Memory, a few MiB; packets may wait longer where the CPU is too slow.",
    sources=(f"{_nic.ETHTOOL} -g, -G", f"{_nic.NETLINK} (RINGS_GET)"),
)
def rings(machine: Machine, profile: Profile) -> Verdict:
    """A small ring is good for latency: it is only judged by what it has lost."""
    verdict = Verdict()

    def check(verdict: Verdict, nic: Nic) -> Sequence[Fact[Any]] | None:
        return _rings(verdict, machine, profile, nic)

    return _nic.judge(verdict, machine, check)


def _rings(verdict: Verdict, machine: Machine, profile: Profile, nic: Nic) -> Sequence[Fact[Any]] | None:
    if nic.rings.absent or (nic.rings.known and not {"rx", "rx_max"} <= nic.rings.get().keys()):
        verdict.not_applicable("the driver does not let its rings be set")
        return None
    count, shown = lost(nic)
    unread: list[Fact[Any]] = [fact for fact in (nic.rings, count) if fact.unknown]
    if unread:
        return unread
    size, most = nic.rings.get()["rx"], nic.rings.get()["rx_max"]
    if count.absent or shown is None:
        verdict.not_applicable("the driver does not count packets that were lost for want of room")
        return None
    packets = received(nic)
    if count.get() and packets is None:
        return [uncounted(count)]
    share = per_million(count.get(), (packets or 0) + count.get())
    if count.get() < _FEW or share <= profile.nic.drops_per_million_max or size >= most:
        verdict.ok(evidence(nic.rings.source, f"{nic.name}: rx {size} of {most}"), shown)
        return None
    # All of it, at once: the counters go back to the boot, so that half of it would be found wanting
    # again right after it was set.
    verdict.finding(
        subject(nic),
        f"{opening(nic)} has lost {count.get():,} packets ({ppm(share)} per million) with a ring of {size}; "
        f"{most} are possible.",
        evidence(nic.rings.source, f"rx {size}", f"rx {most}"),
        shown,
        **fix(machine, NicSetting(nic.name, "rings", (("rx", str(most)),))),
    )
    return None


@row(
    "nic.softnet",
    title="CPUs that keep up with received packets",
    symptom="Packets wait for the next round of the softirq, or are dropped between driver and socket.",
    cause="One CPU gets more packets than it can handle: few queues, or interrupts on too few CPUs.",
    severity="warning",
    scope="runtime",
    risk="A longer round of the softirq holds threads on that CPU up longer.",
    cost="Memory, or longer softirqs.",
    sources=(
        "Linux net/core/net-procfs.c, softnet_seq_show",
        "Linux Documentation/admin-guide/sysctl/net.rst (netdev_max_backlog, netdev_budget)",
    ),
)
def softnet(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    cpus, targets = machine.network.softnet, profile.nic
    if cpus.absent:
        return verdict.not_applicable("this kernel has no /proc/net/softnet_stat")
    if not cpus.known:
        return verdict.unknown("kernel", cpus)
    dropping = [c for c in cpus.get() if c.dropped >= _FEW]
    squeezed = [c for c in cpus.get() if c.squeezed >= _FEW_SQUEEZES]
    if (dropping or squeezed) and not machine.network.received.known:
        return verdict.unknown("kernel", machine.network.received)
    dropping = [c for c in dropping if _share(machine, c, c.dropped) > targets.drops_per_million_max]
    squeezed = [c for c in squeezed if _share(machine, c, c.squeezed) > targets.squeezes_per_million_max]
    if dropping:
        _backlog(verdict, machine, profile, dropping)
    if squeezed:
        _squeezed(verdict, machine, profile, squeezed)
    if not dropping and not squeezed:
        gone, times = sum(c.dropped for c in cpus.get()), sum(c.squeezed for c in cpus.get())
        verdict.ok(evidence(cpus.source, f"dropped {gone:,}, time_squeeze {times:,}"))
    return verdict


_FEW_SQUEEZES = 100
# Ten times the kernel's own. A value by that of now would be found wanting again right after it was
# set, as the counters go back to the boot.
_ROOM = 10_000
_WRAP = 1 << 32


def _handled(machine: Machine, cpu: SoftnetCpu) -> int:
    """The packets that a CPU has handled: its own count while that cannot have wrapped, and else at
    most what all interfaces have received (each packet twice, where containers hand them on)."""
    received = 2 * machine.network.received.get()
    return cpu.processed if received < _WRAP else max(received, cpu.processed)


def _share(machine: Machine, cpu: SoftnetCpu, part: int) -> float:
    return per_million(part, _handled(machine, cpu) + part)


def _of(cpus: Sequence[SoftnetCpu]) -> str:
    return f"cpu:{format_list([c.cpu for c in cpus])}"


def _backlog(verdict: Verdict, machine: Machine, profile: Profile, cpus: list[SoftnetCpu]) -> None:
    gone = sum(c.dropped for c in cpus)
    worst = max(cpus, key=lambda c: _share(machine, c, c.dropped))
    limit = f"at most {profile.nic.drops_per_million_max:g} per million dropped"
    text = f"CPU {worst.cpu}: {worst.dropped:,} dropped, {_handled(machine, worst):,} handled"
    items = [evidence(machine.network.softnet.source, text, limit)]
    backlog = sysctl_number(machine, "net.core.netdev_max_backlog")
    mend: dict[str, Any] = {
        "advice": "Raise net.core.netdev_max_backlog, or spread receiving over more CPUs."
    }
    if backlog.known and backlog.get() < _ROOM:
        items.append(fact_evidence(backlog, str(_ROOM)))
        mend = fix(machine, SysctlChange("net.core.netdev_max_backlog", str(_ROOM)))
    elif backlog.known:
        items.append(fact_evidence(backlog))
        mend = {"advice": "Spread receiving over more CPUs; the counts are those since boot."}
    verdict.finding(
        _of(cpus),
        f"The backlog of received packets ran over: {gone:,} packets were dropped since boot.",
        *items,
        **mend,
    )


def _squeezed(verdict: Verdict, machine: Machine, profile: Profile, cpus: list[SoftnetCpu]) -> None:
    worst = max(cpus, key=lambda c: _share(machine, c, c.squeezed))
    limit = f"at most {profile.nic.squeezes_per_million_max:g} per million"
    text = f"CPU {worst.cpu}: time_squeeze {worst.squeezed:,} in {_handled(machine, worst):,} packets"
    items = [evidence(machine.network.softnet.source, text, limit)]
    for key in ("net.core.netdev_budget", "net.core.netdev_budget_usecs"):
        value = sysctl_number(machine, key)
        if value.known:
            items.append(fact_evidence(value))
    verdict.finding(
        _of(cpus),
        f"The softirq gave up {sum(c.squeezed for c in cpus):,} times since boot with packets left.",
        *items,
        advice="Spread the interrupts of the NICs over more CPUs, or raise net.core.netdev_budget.",
        severity="info",
    )


_ALLOWANCES = {
    "bw_in_allowance_exceeded": "bandwidth in",
    "bw_out_allowance_exceeded": "bandwidth out",
    "pps_allowance_exceeded": "packets per second",
    "conntrack_allowance_exceeded": "tracked connections",
    "linklocal_allowance_exceeded": "packets per second to local services (DNS, metadata, time)",
}


@row(
    "nic.allowance",
    title="Within what the cloud instance may send",
    symptom="Packets wait or vanish while neither CPU nor ring is full.",
    cause="The provider shapes traffic beyond what the instance type allows.",
    severity="warning",
    scope="hands",
    risk="None.",
    cost="A larger instance.",
    sources=("Amazon EC2 User Guide: metrics for the ENA driver (*_allowance_exceeded)",),
)
def allowance(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    if not _nic.physical(machine):
        return _nic.none_here(verdict, machine)
    nics = [nic for nic in _nic.physical(machine) if nic.driver.value == "ena"]
    if not nics:
        unread = [(subject(n), [n.driver]) for n in _nic.physical(machine) if n.driver.unknown]
        if unread and machine.virtualization.is_guest is not False:
            _nic.unknown(verdict, unread)
            return verdict
        return verdict.not_applicable("no NIC here is Amazon's ENA")
    for nic in nics:
        own = nic.driver_statistics
        if not own.known:
            verdict.unknown(subject(nic), own)
            continue
        over = {name: own.get()[name] for name in _ALLOWANCES if own.get().get(name)}
        packets = (received(nic) or 0) + (nic.statistics.value or {}).get("tx_packets", 0)
        if not any(name in own.get() for name in _ALLOWANCES):
            verdict.not_applicable(f"this version of the ENA driver does not count them ({own.source})")
        elif not over:
            verdict.ok(evidence(own.source, f"{nic.name}: none exceeded"))
        else:
            share = per_million(max(over.values()), packets)
            verdict.finding(
                subject(nic),
                f"Traffic of {nic.name} went beyond the instance's allowance of "
                f"{' and '.join(_ALLOWANCES[name] for name in over)}.",
                *(evidence(own.source, f"{name} {count:,} packets", "0") for name, count in over.items()),
                advice="Take an instance type with a higher allowance, or spread the load over time.",
                severity="info" if packets and share <= profile.nic.drops_per_million_max else None,
            )
    return verdict
