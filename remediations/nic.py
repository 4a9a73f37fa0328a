"""Rows: the links of network interfaces, and the firmware of their cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.fact import Fact
from hwtune.remediations import _nic
from hwtune.remediations._common import plural
from hwtune.remediations._nic import call, gbps, opening, per_million, ppm, subject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.model import Machine
    from hwtune.model.network import Nic
    from hwtune.profile import Profile

_CLASS = "Linux Documentation/ABI/testing/sysfs-class-net"


# -- links ----------------------------------------------------------------------------------


@row(
    "nic.link",
    title="Interfaces that are meant to have a link have one",
    symptom="No traffic on a port, or a bond that one failure away from that.",
    cause="A cable, transceiver or switch port is out, or the interface was taken down.",
    severity="warning",
    scope="hands",
    risk="None.",
    cost="None.",
    sources=(
        f"{_CLASS} (carrier, operstate)",
        "Linux Documentation/networking/operstates.rst",
    ),
)
def link(machine: Machine, profile: Profile) -> Verdict:
    """A port that nothing was ever plugged into is no fault, though many systems take all up."""
    verdict = Verdict()
    nics = _nic.physical(machine)
    if not nics:
        return _nic.none_here(verdict, machine)
    missing: list[tuple[str, Sequence[Fact[Any]]]] = []
    for nic in nics:
        if nic.carrier.value or (nic.carrier.unknown and nic.operstate.value == "up"):
            verdict.ok(evidence(*_state(nic)))
        elif not _stands_apart(verdict, machine, nic) and (unread := _dark(verdict, nic)):
            missing.append((subject(nic), unread))
    _nic.unknown(verdict, missing)
    return verdict


def _state(nic: Nic) -> tuple[str, str]:
    if nic.carrier.known:
        return nic.carrier.source, f"{nic.name} {'has a' if nic.carrier.get() else 'no'} link"
    return nic.operstate.source, f"{nic.name} {nic.operstate.value}"


def _stands_apart(verdict: Verdict, machine: Machine, nic: Nic) -> bool:
    """An interface of an InfiniBand port: down where its port and most others are up. Where the
    port itself is down, that is told once, by ib.port-state."""
    port = _nic.port_of(machine, nic)
    if port is None or nic.link_layer.value != "infiniband":
        return False
    if port.state.known and port.state.get() != "ACTIVE":
        verdict.not_applicable(f"{nic.name} has no link as its port is {port.state.get()}")
        return True
    others = [n for n in _nic.physical(machine) if n is not nic and n.link_layer.value == "infiniband"]
    up = [n for n in others if n.carrier.value]
    if not port.state.known or len(up) * 2 <= len(others) or nic.operstate.value != "down":
        return False
    items = [fact_evidence(nic.operstate, "up"), fact_evidence(port.state)]
    if nic.carrier_changes.known:
        items.append(fact_evidence(nic.carrier_changes))
    verdict.finding(
        subject(nic),
        f"{nic.name} is down, while its InfiniBand port {_nic.call_port(port)} is ACTIVE and "
        f"{len(up)} of {plural(len(others), 'other interface')} of this kind are up.",
        *items,
        advice=f"Look in the log for why {nic.name} went down, and bring it up (ip link set {nic.name} up).",
    )
    return True


def _dark(verdict: Verdict, nic: Nic) -> Sequence[Fact[Any]] | None:
    """An interface without a link: a finding where something shows that it should have one."""
    name = nic.name
    if nic.admin_up.value is False:
        if nic.master.known:
            verdict.finding(
                subject(nic),
                f"{name} belongs to {nic.master.get()} and is down.",
                fact_evidence(nic.admin_up, "up"),
                fact_evidence(nic.master),
                advice=f"Bring {name} up (ip link set {name} up), or take it out of {nic.master.get()}.",
            )
        else:
            verdict.ok(fact_evidence(nic.admin_up), reason=f"{name} is not in use (down)")
        return None
    up = nic.admin_up.value is True
    if not up or (nic.carrier.unknown and nic.operstate.value != "down"):
        return [fact for fact in (nic.carrier, nic.operstate, nic.admin_up) if not fact.known][:1]
    return _unplugged(verdict, nic)


def _unplugged(verdict: Verdict, nic: Nic) -> Sequence[Fact[Any]] | None:
    items = [evidence(*_state(nic), "a link"), fact_evidence(nic.admin_up, "")]
    had = _had_link(nic)
    if nic.routed.value:
        items.append(evidence(nic.routed.source, f"routes lead to {nic.name}"))
        message = f"{nic.name} is up and has routes, but no link."
    elif nic.master.known:
        items.append(fact_evidence(nic.master))
        message = f"{nic.name} has no link, so {nic.master.get()} runs without it."
    elif had.value:
        items.append(
            fact_evidence(nic.carrier_changes if nic.carrier_up_count.unknown else nic.carrier_up_count)
        )
        message = f"{nic.name} has lost its link: it had one since its driver was loaded."
    elif had.unknown and nic.routed.unknown:
        return [had, nic.routed]
    else:
        verdict.ok(evidence(*_state(nic)), reason=f"{nic.name} is up and was never plugged in")
        return None
    verdict.finding(
        subject(nic),
        message,
        *items,
        advice=f"Check cable, transceiver and switch port of {nic.name}, or take the interface down.",
        severity="error" if nic.routed.value else None,
    )
    return None


def _had_link(nic: Nic) -> Fact[bool]:
    """Whether it has ever had a link: drivers begin without one, which is the first change."""
    if nic.carrier_up_count.known:
        return nic.carrier_up_count.map(lambda count: count > 0)
    return nic.carrier_changes.map(lambda changes: changes >= 3)


@row(
    "nic.flaps",
    title="Links that stay up",
    symptom="Gaps of a second and more in the traffic, each time that the link comes back.",
    cause="A cable, transceiver or switch port loses the signal, or somebody resets the interface.",
    severity="warning",
    scope="hands",
    risk="None.",
    cost="None.",
    sources=(
        "Linux Documentation/ABI/testing/sysfs-class-net (carrier_changes)",
        "Linux net/sched/sch_generic.c, netif_carrier_off",
    ),
)
def flaps(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    nics = [nic for nic in _nic.physical(machine) if nic.admin_up.value is not False]
    if not nics:
        return (
            _nic.none_here(verdict, machine)
            if not _nic.physical(machine)
            else verdict.not_applicable(_nic.NO_LINK)
        )
    missing: list[tuple[str, Sequence[Fact[Any]]]] = []
    for nic in nics:
        changes = nic.carrier_changes
        if changes.absent:
            verdict.not_applicable("this kernel does not count changes of the link")
        elif not changes.known:
            missing.append((subject(nic), [changes]))
        else:
            _lost(verdict, machine, profile, nic)
    _nic.unknown(verdict, missing)
    return verdict


def _lost(verdict: Verdict, machine: Machine, profile: Profile, nic: Nic) -> None:
    changes = nic.carrier_changes
    # The first two are the start without a link, and the link.
    losses = max(0, (changes.get() - 1) // 2)
    expected = f"at most {2 * profile.nic.link_losses_max + 2}"
    if losses <= profile.nic.link_losses_max:
        verdict.ok(fact_evidence(changes))
        return
    items = [fact_evidence(changes, expected)]
    uptime = machine.kernel.uptime_s
    a_day, since = None, "since its driver was loaded"
    if uptime.known and uptime.get() > 0:
        days = uptime.get() / 86400
        a_day, since = losses / days, f"in {days:.1f} days"
        items.append(evidence(uptime.source, f"{days:.1f} days"))
    verdict.finding(
        subject(nic),
        f"{opening(nic)} has lost its link {losses} times {since}.",
        *items,
        advice=f"Look in the log for what happened then, and swap cable or transceiver of {call(nic)}.",
        severity="info" if a_day is not None and a_day < 1 else None,
    )


@row(
    "nic.speed",
    title="Links at the speed that both ends offer",
    symptom="Every packet takes longer on the wire: 1,500 bytes need 12 us at 1 Gb/s, 120 us at 100 Mb/s.",
    cause="Autonegotiation settled on less: a cable with a broken pair, an old switch port, a fixed setting.",
    severity="warning",
    scope="hands",
    risk="None.",
    cost="None.",
    sources=(f"{_CLASS} (speed, duplex)", f"{_nic.ETHTOOL}: link modes", f"{_nic.NETLINK} (LINKMODES_GET)"),
)
def speed(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    return _nic.judge(verdict, machine, _speed)


# From this factor on below what the card could do it is hardly meant so.
_FAR_BELOW = 10


def _speed(verdict: Verdict, nic: Nic) -> Sequence[Fact[Any]] | None:
    if nic.link_layer.value == "infiniband":
        verdict.not_applicable("ib.rate judges InfiniBand ports")
        return None
    if nic.duplex.value == "half":
        verdict.finding(
            subject(nic),
            f"{opening(nic)} runs in half duplex: it cannot send while it receives.",
            fact_evidence(nic.duplex, "full"),
            advice=f"Set both ends of {call(nic)} to autonegotiation.",
        )
        return None
    if nic.speed_mbps.absent:
        verdict.not_applicable("a virtual interface without a speed")
        return None
    if not nic.speed_mbps.known:
        return [nic.speed_mbps]
    if nic.max_speed_mbps.absent:
        verdict.ok(
            fact_evidence(nic.speed_mbps), reason=f"the driver of {nic.name} does not say what it could do"
        )
        return None
    if not nic.max_speed_mbps.known:
        return [nic.max_speed_mbps]
    _compare(verdict, nic)
    return None


def _compare(verdict: Verdict, nic: Nic) -> None:
    now, most = nic.speed_mbps.get(), nic.max_speed_mbps.get()
    # What it offers is known where it negotiates; an optical link has no say in this.
    offered = nic.advertised_speed_mbps.value if nic.autoneg.value else None
    partner = nic.partner_speed_mbps.value
    both = min(offered or most, partner) if partner is not None else None
    best = both if both is not None and now < both else most
    items = [
        evidence(nic.speed_mbps.source, gbps(now), gbps(best)),
        evidence(nic.max_speed_mbps.source, f"{call(nic)} supports {gbps(most)}"),
    ]
    if partner is not None:
        items.append(evidence(nic.partner_speed_mbps.source, f"the link partner offers {gbps(partner)}"))
    if both is not None and now < both:
        verdict.finding(
            subject(nic),
            f"{opening(nic)} runs at {gbps(now)}, though both ends offer {gbps(both)}.",
            *items,
            advice=f"Swap the cable of {call(nic)}, and check that neither end has a fixed speed.",
        )
    elif now * _FAR_BELOW > (offered or most):
        why = "" if now >= most else f"{nic.name} runs at {gbps(now)}; it could do {gbps(most)}"
        verdict.ok(fact_evidence(nic.speed_mbps), reason=why)
    else:
        because = f": the link partner offers {gbps(partner)}" if partner is not None else ""
        verdict.finding(
            subject(nic),
            f"{opening(nic)} runs at {gbps(now)}, and could do {gbps(most)}{because}.",
            *items,
            advice=f"Connect {call(nic)} to a faster port, or check its cable and the port's setting.",
            severity="info",
        )


@row(
    "nic.errors",
    title="No packets damaged on the wire",
    symptom="Lost packets that nobody dropped, and retransmissions.",
    cause="A dirty or bad connector, cable or transceiver: the checksum of the frame does not match.",
    severity="warning",
    scope="hands",
    risk="None.",
    cost="None.",
    sources=(
        f"{_nic.STATISTICS} (rx_crc_errors, rx_frame_errors)",
        "IEEE 802.3, 30.3.1.1.6 aFrameCheckSequenceErrors",
    ),
)
def errors(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()

    def check(verdict: Verdict, nic: Nic) -> Sequence[Fact[Any]] | None:
        return _errors(verdict, profile, nic)

    return _nic.judge(verdict, machine, check)


# The same event under the names that drivers give it.
_DAMAGED = (
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_fcs_errors",
    "rx_align_errors",
    "align_errors",
    "rx_crc_errors_phy",
    "rx_symbol_err_phy",
)
# Fewer may come from plugging in.
_FEW_ERRORS = 10


def _errors(verdict: Verdict, profile: Profile, nic: Nic) -> Sequence[Fact[Any]] | None:
    found = _nic.counts(nic, _DAMAGED)
    if not found.known:
        return [found]
    damaged = max(found.get().values())
    if not damaged:
        verdict.ok(evidence(found.source, f"{nic.name}: none damaged"))
        return None
    packets = _nic.received(nic)
    if packets is None:
        return [_nic.uncounted(found)]
    total = packets + damaged
    share = per_million(damaged, total)
    shown = {name: count for name, count in found.get().items() if count}
    limit = profile.nic.link_errors_per_million_max
    if damaged < _FEW_ERRORS or share <= limit:
        verdict.ok(
            evidence(found.source, shown), reason=f"{nic.name}: {damaged:,} damaged of {total:,} packets"
        )
        return None
    verdict.finding(
        subject(nic),
        f"{damaged:,} of {total:,} packets ({ppm(share)} per million) arrived damaged at {call(nic)}.",
        evidence(found.source, shown, f"at most {limit:g} per million"),
        advice=f"Clean or swap cable and transceivers of {call(nic)}.",
    )
    return None


@row(
    "nic.firmware",
    title="One firmware on cards of one kind",
    symptom="Cards of the same kind behave differently.",
    cause="One of them was left out of an update, or was replaced.",
    severity="info",
    scope="firmware",
    risk="An update resets the card.",
    cost="None.",
    sources=(f"{_nic.ETHTOOL} -i", "Linux Documentation/ABI/stable/sysfs-class-infiniband (fw_ver)"),
)
def firmware(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    versions = _versions(machine)
    if not versions:
        if not _nic.physical(machine) and not (machine.network.ib_ports and machine.network.listed.known):
            return _nic.none_here(verdict, machine)
        running = [nic for nic in _nic.physical(machine) if _nic.running(nic)]
        unread = [(subject(nic), [nic.firmware]) for nic in running if nic.firmware.unknown]
        if unread and len(running) > 1:
            _nic.unknown(verdict, unread)
            return verdict
        return verdict.not_applicable("no two cards here are of one kind and tell their firmware")
    for kind, cards in versions.items():
        _alike(verdict, kind, cards)
    return verdict


def _versions(machine: Machine) -> dict[str, dict[str, tuple[str, Fact[str]]]]:
    """Kind -> card -> (subject, version), of kinds with several cards; a card's ports count once."""
    devices = machine.pci.by_address()
    found: dict[str, dict[str, tuple[str, Fact[str]]]] = {}

    def note(address: Fact[str], version: Fact[str], name: str, board: str) -> None:
        if not address.known or not version.known:
            return
        device = devices.get(address.get())
        kind = board
        if (
            not kind
            and device is not None
            and device.subsystem_device.known
            and device.physical_function is None
        ):
            ids = (device.vendor, device.device, device.subsystem_vendor, device.subsystem_device)
            kind = ":".join(f"{fact.value:04x}" for fact in ids if fact.value is not None)
        if kind:
            found.setdefault(kind, {}).setdefault(address.get().rpartition(".")[0], (name, version))

    for port in machine.network.ib_ports:
        note(port.pci_address, port.firmware, _nic.ib_subject(port), port.board_id.value or "")
    told = {card for cards in found.values() for card in cards}
    for nic in _nic.physical(machine):
        if (nic.pci_address.value or "").rpartition(".")[0] not in told:
            note(nic.pci_address, nic.firmware, subject(nic), "")
    return {kind: cards for kind, cards in found.items() if len(cards) > 1}


def _alike(verdict: Verdict, kind: str, cards: dict[str, tuple[str, Fact[str]]]) -> None:
    by_version: dict[str, list[tuple[str, Fact[str]]]] = {}
    for entry in cards.values():
        by_version.setdefault(entry[1].get(), []).append(entry)
    ordered = sorted(by_version.items(), key=lambda item: -len(item[1]))
    usual, alike = ordered[0]
    if len(ordered) == 1:
        verdict.ok(evidence(alike[0][1].source, f"{usual} on {len(cards)} cards ({kind})"))
    for version, others in ordered[1:]:
        one = len(others) == 1
        verdict.finding(
            others[0][0],
            f"{plural(len(others), 'card')} of kind {kind} {'has' if one else 'have'} firmware {version}; "
            f"{usual} is on {len(alike)} of them.",
            *(fact_evidence(fact, usual) for _, fact in others[:4]),
            fact_evidence(alike[0][1]),
            advice="Bring all cards of this kind to one firmware.",
        )
