"""Rows: InfiniBand and RoCE ports."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.remediations import _nic, _pcie
from hwtune.remediations._nic import call_port, ib_subject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.fact import Fact
    from hwtune.model import Machine
    from hwtune.model.network import IbPort
    from hwtune.profile import Profile

_SYSFS = "Linux Documentation/ABI/stable/sysfs-class-infiniband"
_IBTA = "InfiniBand Architecture Specification, volume 1"


def _ports(verdict: Verdict, machine: Machine) -> list[IbPort]:
    """The ports, or [] once it has been noted why there are none."""
    network = machine.network
    if network.ib_ports:
        return network.ib_ports
    if network.ib_listed.known or network.ib_listed.absent:
        verdict.not_applicable("there is no RDMA device")
    else:
        verdict.unknown("kernel", network.ib_listed)
    return []


def _is_ethernet(port: IbPort) -> bool:
    return port.link_layer.value == "Ethernet"


# -- state ----------------------------------------------------------------------------------


@row(
    "ib.port-state",
    title="InfiniBand ports are active",
    symptom="Collective operations hang or take another rail; a GPU has no way out.",
    cause="No signal reaches the port, or no subnet manager has set it up.",
    severity="error",
    scope="hands",
    risk="None.",
    cost="None.",
    sources=(f"{_SYSFS} (state, phys_state)", f"{_IBTA}, 14.2.5.6: PortInfo"),
)
def port_state(machine: Machine, profile: Profile) -> Verdict:
    """A port that nobody has ever used is no fault: cards with two ports often have one unplugged."""
    verdict = Verdict()
    missing: list[tuple[str, Sequence[Fact[Any]]]] = []
    ports = _ports(verdict, machine)
    for port in ports:
        state = port.state
        if not state.known:
            missing.append((ib_subject(port), [state]))
        elif state.get().startswith("ACTIVE"):
            verdict.ok(fact_evidence(state))
        elif _is_ethernet(port):
            verdict.not_applicable(f"{call_port(port)} is an Ethernet port: nic.link judges it")
        elif state.get() == "DOWN":
            unread = _down(verdict, port, ports, machine)
            if unread:
                missing.append((ib_subject(port), unread))
        else:
            _waits(verdict, port)
    _nic.unknown(verdict, missing)
    return verdict


def _waits(verdict: Verdict, port: IbPort) -> None:
    """INIT: the link is up, and no subnet manager has spoken to the port; ARMED: not to the end."""
    items = [fact_evidence(port.state, "ACTIVE")]
    if port.physical_state.known:
        items.append(fact_evidence(port.physical_state))
    verdict.finding(
        ib_subject(port),
        f"{call_port(port)} is in state {port.state.get()}: no subnet manager has set it up.",
        *items,
        advice="Check that a subnet manager (opensm, or the switch's) runs in this fabric and sees the port.",
        severity=None if port.state.get() == "INIT" else "warning",
    )


_WHY = {
    "Polling": "no signal: cable, transceiver or switch port",
    "Disabled": "it was disabled",
    "Sleep": "it sleeps",
    "LinkErrorRecovery": "it recovers from errors",
    "PortConfigurationTraining": "it is training the link",
}


def _down(
    verdict: Verdict, port: IbPort, ports: list[IbPort], machine: Machine
) -> Sequence[Fact[Any]] | None:
    physical = port.physical_state
    items = [fact_evidence(port.state, "ACTIVE")]
    if physical.known:
        items.append(fact_evidence(physical, "LinkUp"))
    used = _was_used(port, machine)
    if used is None:
        return [fact for fact in (port.lid, port.counters) if not fact.known][:1] or [physical]
    if not used:
        verdict.ok(*items, reason=f"nothing shows that {call_port(port)} is in use")
        return None
    verdict.finding(
        ib_subject(port),
        f"{call_port(port)} is down"
        + (f" and {physical.get()} ({_WHY[physical.get()]})" if physical.value in _WHY else "")
        + f"; {used}.",
        *items,
        advice=f"Check cable, transceiver and switch port of {call_port(port)}.",
    )
    return None


def _was_used(port: IbPort, machine: Machine) -> str | None:
    """What shows that a port is meant to have a link; "" where nothing does, None where that is
    not known."""
    lid = port.lid.value
    if lid not in (None, 0, 0xFFFF):
        return f"a subnet manager once gave it the address {lid}"
    lost = (port.counters.value or {}).get("link_downed")
    if lost:
        return f"it has lost its link {_at_least('link_downed', lost)} times"
    up = [nic for nic in _nic.physical(machine) if nic.name in port.netdevs and nic.admin_up.value]
    if up:
        return f"its interface {up[0].name} is up"
    return None if lid is None and lost is None else ""


# -- rate -----------------------------------------------------------------------------------


@row(
    "ib.rate",
    title="Ports at the rate of their kind",
    symptom="One rail is slower than the others, and all wait for it.",
    cause="A cable, transceiver or switch port of an older speed, lost lanes, or an old setting of the port.",
    severity="warning",
    scope="hands",
    risk="None.",
    cost="None.",
    sources=(f"{_SYSFS} (rate)", f"{_IBTA}, 14.2.5.6: LinkWidthActive, LinkSpeedActive"),
)
def rate(machine: Machine, profile: Profile) -> Verdict:
    """Compares ports with the profile, with what their interface says, with ports of the same card
    and with the same kind of cards. The rate of a port that is down says nothing."""
    verdict = Verdict()
    missing: list[tuple[str, Sequence[Fact[Any]]]] = []
    judged = []
    for port in _ports(verdict, machine):
        if not port.state.known:
            missing.append((ib_subject(port), [port.state]))
        elif not port.state.get().startswith("ACTIVE"):
            verdict.not_applicable(f"{call_port(port)} is {port.state.get()}: its rate is not that of a link")
        elif port.physical_state.gap == "invalid":
            missing.append((ib_subject(port), [port.physical_state]))
        elif not port.rate_gbps.known:
            missing.append((ib_subject(port), [port.rate_gbps]))
        else:
            judged.append(port)
    usual = _usual(machine, judged)
    for port in judged:
        if not _slow(verdict, machine, profile, port, usual) and not _beside(verdict, machine, port, judged):
            verdict.ok(evidence(port.rate_text.source, f"{call_port(port)}: {port.rate_text.get()}"))
    _nic.unknown(verdict, missing)
    return verdict


# A port that is slower than others with the chip may be of a board for less: a note, no more.
_CHIP = "chip "


def _kind(machine: Machine, port: IbPort) -> str | None:
    """What ports are alike by: the board, or the card's ids."""
    layer = port.link_layer.value
    if layer is None:
        return None
    if port.board_id.known:
        return f"{layer} {port.board_id.get()}"
    if port.adapter.known and port.adapter.get():
        return f"{layer} {_CHIP}{port.adapter.get()}"
    device = machine.pci.by_address().get(port.pci_address.value or "") if port.pci_address.known else None
    if device is None or not (device.vendor.known and device.device.known and device.subsystem_device.known):
        return None
    return f"{layer} {device.vendor.get():04x}:{device.device.get():04x}:{device.subsystem_device.get():04x}"


def _usual(machine: Machine, ports: list[IbPort]) -> dict[str, tuple[float, int]]:
    """Kind -> the rate that most ports of it have, and how many of them. None of fewer than three."""
    by_kind: dict[str, list[float]] = {}
    for port in ports:
        kind = _kind(machine, port)
        if kind is not None:
            by_kind.setdefault(kind, []).append(port.rate_gbps.get())
    found = {}
    for kind, rates in by_kind.items():
        most, count = Counter(rates).most_common(1)[0]
        if len(rates) >= 3 and count * 2 > len(rates):
            found[kind] = (most, count)
    return found


def _slow(
    verdict: Verdict, machine: Machine, profile: Profile, port: IbPort, usual: dict[str, tuple[float, int]]
) -> bool:
    now, name = port.rate_gbps.get(), call_port(port)
    wanted = profile.nic.ib_rate_min_gbps
    kind = _kind(machine, port) or ""
    most, count = usual.get(kind, (0.0, 0))
    chip = _CHIP in kind
    says = _interface_says(machine, port)
    message, better = "", 0.0
    severity = "info" if _is_ethernet(port) else "error" if wanted and now < wanted else None
    if wanted and now < wanted and not _is_ethernet(port):
        message, better = f"the profile wants {wanted} Gb/s", float(wanted)
    elif now < most:
        like, severity = ("whose card has the same chip", "info") if chip else ("of the same kind", severity)
        message, better = f"{count} ports {like} run at {most:g} Gb/s", most
    elif says is not None and says[1] > now * 1.01:
        message, better = f"its interface {says[0]} says {says[1]:g} Gb/s", says[1]
    elif port.lanes.value == 1 and port.link_layer.value == "InfiniBand":
        message, better = "one lane of its cable works", 4 * now
    if not message:
        return False
    items = [evidence(port.rate_text.source, port.rate_text.get(), f"{better:g} Gb/s")]
    if says is not None:
        items.append(evidence(says[2], f"{says[0]}: {says[1]:g} Gb/s"))
    verdict.finding(
        ib_subject(port),
        f"{name} runs at {now:g} Gb/s; {message}.",
        *items,
        advice=f"Check cable, transceiver and switch port of {name}: which speed and width each end offers.",
        severity=severity,
    )
    return True


def _interface_says(machine: Machine, port: IbPort) -> tuple[str, float, str] | None:
    """(interface, Gb/s, source) of the port's IPoIB interface, which should say the same."""
    for nic in _nic.physical(machine):
        if nic.name in port.netdevs and nic.speed_mbps.known and nic.link_layer.value == "infiniband":
            return nic.name, nic.speed_mbps.get() / 1000, nic.speed_mbps.source
    return None


def _beside(verdict: Verdict, machine: Machine, port: IbPort, ports: list[IbPort]) -> bool:
    """A port that is slower than the other one of its card, which may be meant so."""
    card = (port.pci_address.value or "").rpartition(".")[0]
    if not card:
        return False
    others = [p for p in ports if p is not port and (p.pci_address.value or "").rpartition(".")[0] == card]
    faster = [p for p in others if p.rate_gbps.get() > port.rate_gbps.get()]
    if not faster:
        return False
    best = max(faster, key=lambda p: p.rate_gbps.get())
    items = [evidence(p.rate_text.source, f"{call_port(p)}: {p.rate_text.get()}") for p in (port, best)]
    room = _room(machine, port)
    more = ""
    if room is not None and room[0] < 2 * best.rate_gbps.get():
        items.append(evidence(room[1], f"PCIe link: {room[0]:.0f} Gb/s"))
        both = f"two ports at {best.rate_gbps.get():g} Gb/s"
        more = f" The card's PCIe link ({room[0]:.0f} Gb/s) could not carry {both}."
    verdict.finding(
        ib_subject(port),
        f"Port {port.port} of this card ({call_port(port)}) runs at {port.rate_gbps.get():g} Gb/s, "
        f"port {best.port} ({call_port(best)}) at {best.rate_gbps.get():g} Gb/s.{more}",
        *items,
        advice=f"Check whether {call_port(port)} is meant for a slower network, else its cable and switch.",
        severity="info",
    )
    return True


def _room(machine: Machine, port: IbPort) -> tuple[float, str] | None:
    """What the card's PCIe link carries in one direction, in Gb/s, and who says so."""
    if port.slot_gbps.known:
        return port.slot_gbps.get(), port.slot_gbps.source
    device = machine.pci.by_address().get(port.pci_address.value or "")
    found = _pcie.current(device.link) if device is not None else None
    return (found, device.link.current_gts.source) if found is not None and device is not None else None


# -- errors ---------------------------------------------------------------------------------


# Counters stay at their end and do not wrap (PortCounters: 4, 8 and 16 bits); newer cards have wider ones.
_ENDS = {
    "symbol_error": 65_535,
    "link_error_recovery": 255,
    "link_downed": 255,
    "port_rcv_errors": 65_535,
    "local_link_integrity_errors": 15,
    "excessive_buffer_overrun_errors": 15,
}
_WORDS = {
    "link_downed": "link losses",
    "link_error_recovery": "recoveries of the link",
    "symbol_error": "symbol errors",
    "port_rcv_errors": "packets received with errors",
    "local_link_integrity_errors": "times of too many link errors",
    "excessive_buffer_overrun_errors": "times of overrun buffers",
}
_FEW = 10


def _at_least(name: str, count: int) -> str:
    return f"at least {count:,}" if count == _ENDS[name] else f"{count:,}"


@row(
    "ib.errors",
    title="InfiniBand links without errors",
    symptom="Retransmissions, and pauses of a second and more where the link was lost.",
    cause="A bad cable or transceiver, or a link partner that was reset.",
    severity="warning",
    scope="hands",
    risk="None.",
    cost="None.",
    sources=(f"{_SYSFS} (counters)", f"{_IBTA}, 16.1.3.5: PortCounters stay at their end"),
)
def errors(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    missing: list[tuple[str, Sequence[Fact[Any]]]] = []
    for port in _ports(verdict, machine):
        if _is_ethernet(port):
            verdict.not_applicable("nic.errors judges Ethernet ports")
        elif port.counters.absent:
            verdict.not_applicable("the device counts no errors of its ports")
        elif not port.counters.known:
            missing.append((ib_subject(port), [port.counters]))
        else:
            _judge_errors(verdict, profile, port)
    _nic.unknown(verdict, missing)
    return verdict


def _judge_errors(verdict: Verdict, profile: Profile, port: IbPort) -> None:
    counts = port.counters.get()
    packets = counts.get("port_rcv_packets", 0)
    bad = []
    for name in _WORDS:
        count = counts.get(name, 0)
        if name in ("link_downed", "link_error_recovery"):
            wrong = count > profile.nic.link_losses_max
        elif name == "port_rcv_errors":
            share = _nic.per_million(count, packets + count)
            wrong = count >= _FEW and share > profile.nic.link_errors_per_million_max
        else:
            wrong = count >= _ENDS[name]
        if wrong:
            bad.append(name)
    if not bad:
        total = ", ".join(f"{name} {counts[name]}" for name in _WORDS if counts.get(name)) or "no errors"
        verdict.ok(evidence(port.counters.source, f"{call_port(port)}: {total}"))
        return
    said = ", ".join(f"{_at_least(name, counts[name])} {_WORDS[name]}" for name in bad)
    ends = " (a counter at its end counts no further)" if any(counts[n] == _ENDS[n] for n in bad) else ""
    verdict.finding(
        ib_subject(port),
        f"{call_port(port)} has counted {said}{ends}.",
        *(evidence(f"{port.counters.source}/{name}", counts[name], _limit(name, profile)) for name in bad),
        advice=f"Clear the counters of {call_port(port)} (perfquery -R); if they grow, swap its cable.",
    )


def _limit(name: str, profile: Profile) -> str:
    if name in ("link_downed", "link_error_recovery"):
        return f"at most {profile.nic.link_losses_max}"
    return f"below {_ENDS[name]}" if name != "port_rcv_errors" else "0"
