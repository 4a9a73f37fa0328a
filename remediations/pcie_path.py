"""Rows: the way up from GPUs, drives and network cards to the processor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.diagnosis import Verdict, evidence
from hwtune.diagnosis.row import row
from hwtune.remediations import _pcie
from hwtune.remediations._pcie import ASK, RELOAD, RESEAT, Endpoint, gts, show, show_link

if TYPE_CHECKING:
    from hwtune.fact import Fact
    from hwtune.model import Machine
    from hwtune.model.network import IbPort
    from hwtune.model.pci import BandwidthLimit, PciDevice
    from hwtune.profile import Profile

_LINK_FILES = "Linux Documentation/ABI/testing/sysfs-bus-pci, current_link_speed and max_link_width"
_AVAILABLE = "Linux drivers/pci/pci.c, pcie_bandwidth_available and __pcie_print_link_status"

_MOVE = "Move the card to a slot with more lanes, or change how BIOS setup splits the lanes."
# A port that its slot falls short of by less is not one in the wrong slot.
_NARROW = 1.05
_SMALLER = "some devices can do more than their slots, by no more than the profile allows"


@row(
    "pcie.path-bandwidth",
    title="The way up to the processor carries what the device can do",
    symptom="A device whose own link is whole is slow all the same",
    cause="A switch's uplink that trained low, or a slot with few lanes, limits everything below it",
    severity="warning",
    scope="hands",
    risk="Moving a card needs the machine powered off.",
    cost="none",
    sources=(_AVAILABLE, _LINK_FILES, "NCCL src/graph/xml.cc: the lesser of device and port at each step"),
)
def path_bandwidth(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    ends = _pcie.endpoints(machine)
    by_address = machine.pci.by_address()
    told = _logged_limits(verdict, machine, profile, ends)
    below: dict[str, list[Endpoint]] = {}
    rates = _port_rates(machine)
    for end in ends:
        if end.address in told:
            continue
        _way(verdict, machine, profile, end, by_address, below, rates.get(end.address))
    for address, affected in below.items():
        _uplink(verdict, machine, by_address[address], affected)
    if not ends and not told:
        return _pcie.no_devices(verdict, machine)
    return verdict


def _way(
    verdict: Verdict,
    machine: Machine,
    profile: Profile,
    end: Endpoint,
    by_address: dict[str, PciDevice],
    below: dict[str, list[Endpoint]],
    rate: tuple[str, float] | None,
) -> None:
    if end.linkless:
        verdict.not_applicable("the devices here have no PCI Express link of their own")
        return
    ups = _pcie.uplinks(_pcie.way_up(end.address, by_address))
    for up in ups:
        below.setdefault(up.address, []).append(end)
    now = _least([_pcie.current(end.link), *(_pcie.current(up.link) for up in ups)])
    if rate is not None and now is not None and rate[1] > now * _NARROW and not _is_low(end):
        _too_narrow(verdict, machine, end, ups, rate, now)
        return
    if end.alone and (end.device is not None or not end.link.expected_width.known):
        # What the GPU's driver calls its maximum takes the whole way into account.
        if not _pcie.in_guest(machine, end):
            verdict.unknown(end.subject, "the ports above it are not known, and so what its way up carries")
        return
    could = _least([_pcie.expected(end.link), *(_pcie.expected(up.link) for up in ups)])
    own = _pcie.capable(end.link)
    if could is None or own is None:
        if _pcie.in_guest(machine, end):
            verdict.not_applicable("this virtual machine does not show the links of its devices")
        else:
            verdict.unknown(end.subject, _pcie.first_gap(end.link.expected_width, end.link.max_width))
    elif _enough(could / own, profile) or (rate is not None and rate[1] <= could):
        reason = ""
        if could < own:
            reason = _SMALLER
        verdict.ok(
            evidence(end.link.expected_width.source, f"{could:.1f} Gb/s", f"{own:.1f} Gb/s"), reason=reason
        )
    else:
        _small_slot(verdict, machine, end, ups, could, own)


def _enough(share: float, profile: Profile) -> bool:
    """Whether the slot leaves the share that the profile asks for. What one generation makes is one
    half, though 32 of 64 GT/s come to 49 %: at 64 GT/s the kernel takes off no encoding."""
    return share >= profile.pcie.path_share_min * 128 / 130


def _is_low(end: Endpoint) -> bool:
    """Its own link is below what it could be: a matter of the rows on links."""
    now, could = _pcie.current(end.link), _pcie.expected(end.link)
    return now is not None and could is not None and now < could


def _least(values: list[float | None]) -> float | None:
    return None if any(v is None for v in values) else min(v for v in values if v is not None)


def _too_narrow(
    verdict: Verdict,
    machine: Machine,
    end: Endpoint,
    ups: list[PciDevice],
    rate: tuple[str, float],
    now: float,
) -> None:
    source, gbps = rate
    items = [
        evidence(end.link.current_gts.source, f"{show_link(end.link)}: {now:.1f} Gb/s", f"{gbps:g} Gb/s")
    ]
    items += [evidence(up.link.current_gts.source, show_link(up.link)) for up in ups]
    verdict.finding(
        end.subject,
        f"The {end.noun} has a port of {gbps:g} Gb/s, but its way up carries {now:.1f} Gb/s.",
        *items,
        evidence(source, f"{gbps:g} Gb/s"),
        advice=ASK if _pcie.in_guest(machine, end) else _MOVE,
        severity="info" if _pcie.in_guest(machine, end) else "warning",
    )


def _small_slot(
    verdict: Verdict, machine: Machine, end: Endpoint, ups: list[PciDevice], could: float, own: float
) -> None:
    link = end.link
    items = [
        evidence(
            link.expected_width.source,
            show(link.expected_gts.value, link.expected_width.value),
            show(link.max_gts.value, link.max_width.value),
        )
    ]
    items += [evidence(up.link.expected_width.source, f"uplink {show_link(up.link)}") for up in ups]
    severity = "error" if could / own < _pcie.GRAVE else "warning"
    verdict.finding(
        end.subject,
        f"The way up from the {end.noun} can carry {could / 8:.2f} of the {own / 8:.2f} GB/s that it can do "
        f"({could / own:.0%}): its slot, or a switch above it, has few lanes or an old generation.",
        *items,
        advice=ASK if _pcie.in_guest(machine, end) else _MOVE,
        severity="info" if _pcie.in_guest(machine, end) else severity,
    )


def _uplink(verdict: Verdict, machine: Machine, up: PciDevice, affected: list[Endpoint]) -> None:
    """A switch's link to the port above it."""
    link = up.link
    subject = f"pci:{up.address}"
    if not (link.current_width.known and link.expected_width.known):
        if not _pcie.in_guest(machine):
            verdict.unknown(subject, _pcie.first_gap(link.current_width, link.expected_width))
        return
    names = _pcie.listed([end.address for end in affected])
    guest = _pcie.in_guest(machine)
    if link.current_width.get() < link.expected_width.get():
        verdict.finding(
            subject,
            f"The switch above {names} has {link.current_width.get()} of {link.expected_width.get()} lanes "
            f"to the port above it ({up.parent}).",
            evidence(link.current_width.source, show_link(link), _show_expected(up)),
            advice=ASK if guest else RESEAT,
            severity="info" if guest else "error",
        )
    elif not (link.current_gts.known and link.expected_gts.known):
        verdict.unknown(subject, _pcie.first_gap(link.current_gts, link.expected_gts))
    elif link.current_gts.get() >= link.expected_gts.get():
        verdict.ok(evidence(link.current_gts.source, show_link(link), _show_expected(up)))
    elif all(end.idle is not False for end in affected):
        verdict.unknown(
            subject,
            f"the switch of {names} runs at {gts(link.current_gts.get())}, as may be while its GPU is idle",
            remedy=RELOAD,
        )
    else:
        verdict.finding(
            subject,
            f"The switch above {names} runs at {link.current_gts.get():g} of "
            f"{gts(link.expected_gts.get())} to the port above it ({up.parent}).",
            evidence(link.current_gts.source, show_link(link), _show_expected(up)),
            advice=ASK if guest else RESEAT,
            severity="info" if guest else "error",
        )


def _show_expected(device: PciDevice) -> str:
    return show(device.link.expected_gts.value, device.link.expected_width.value)


def _port_rates(machine: Machine) -> dict[str, tuple[str, float]]:
    """PCI address (of a card's first function) -> source and Gb/s of its fastest port in use."""
    rates: dict[str, tuple[str, float]] = {}

    def note(address: Fact[str], source: str, gbps: float) -> None:
        if not address.known or gbps <= 0:
            return
        card = f"{address.get()[:-1]}0"
        if card not in rates or rates[card][1] < gbps:
            rates[card] = (source, gbps)

    told = set()
    for port in machine.network.ib_ports:
        if port.rate_gbps.known and "ACTIVE" in (port.state.value or "").upper():
            note(port.pci_address, port.rate_gbps.source, port.rate_gbps.get() * _data_share(port))
            told.add(port.pci_address.value)
    for nic in machine.network.nics:
        # its interface repeats what an InfiniBand port signals
        if nic.speed_mbps.known and not nic.virtual and nic.pci_address.value not in told:
            note(nic.pci_address, nic.speed_mbps.source, nic.speed_mbps.get() / 1000)
    return rates


def _data_share(port: IbPort) -> float:
    """Up to QDR, InfiniBand calls its rate what it signals, of which 8b/10b leaves 80 % for data."""
    words = (port.rate_text.value or "").strip(" )").split()
    return 0.8 if words and words[-1] in ("SDR", "DDR", "QDR") else 1.0


# What says at boot that a link is slow and trains it up later.
_GPU_DRIVERS = ("nvidia", "nouveau", "amdgpu", "radeon", "i915", "xe")


def _logged_limits(verdict: Verdict, machine: Machine, profile: Profile, ends: list[Endpoint]) -> set[str]:
    """Judge what the log says of devices whose links are not known otherwise; their addresses."""
    seen = {
        e.address for e in ends if e.link.current_width.known and (e.link.expected_width.known or not e.alone)
    }
    roles = {end.address: end.role for end in ends}
    judged = set()
    for limit in machine.pci.bandwidth_limits:
        if limit.address in seen:
            continue
        judged.add(limit.address)
        _logged(verdict, machine, profile, limit, roles.get(limit.address))
    return judged


def _logged(
    verdict: Verdict, machine: Machine, profile: Profile, limit: BandwidthLimit, role: str | None
) -> None:
    resting = (
        role in _pcie.RESTING or limit.driver in _GPU_DRIVERS or (role is None and limit.driver == "pci")
    )
    narrow = limit.limit_width < limit.capable_width
    slow = (limit.limit_gts or 0) < (limit.capable_gts or 0)
    share = limit.available_gbps / limit.capable_gbps if limit.capable_gbps else 1.0
    if resting and slow:
        # Before its driver wakes it, a GPU's link is at its lowest speed: only the width tells.
        if not narrow:
            verdict.unknown(
                f"pci:{limit.address}",
                "the log tells of a low link speed when the device was found, as is normal for a GPU "
                f"({limit.source})",
                remedy=RELOAD,
            )
            return
        share = limit.limit_width / limit.capable_width
    shown = evidence(
        limit.source,
        f"{limit.available_gbps:g} Gb/s, {show(limit.limit_gts, limit.limit_width)} at {limit.limit_address}",
        f"{limit.capable_gbps:g} Gb/s, {show(limit.capable_gts, limit.capable_width)}",
    )
    if _enough(share, profile):
        verdict.ok(shown, reason=_SMALLER)
        return
    why = [f"x{limit.limit_width} of x{limit.capable_width}"] if narrow else []
    if slow and limit.limit_gts and limit.capable_gts:
        why.append(f"{limit.limit_gts:g} of {gts(limit.capable_gts)}")
    rest = "" if slow or limit.limit_gts is None else f"; the speed of {gts(limit.limit_gts)} is full"
    guest = _pcie.in_guest(machine)
    severity = "error" if share < _pcie.GRAVE else "warning"
    verdict.finding(
        f"pci:{limit.address}",
        f"The way up from {limit.address} carries {limit.available_gbps:g} of {limit.capable_gbps:g} Gb/s "
        f"({100 * limit.available_gbps / limit.capable_gbps:.3g} %): {' and '.join(why)} at "
        f"{limit.limit_address}{rest}.",
        shown,
        advice=ASK if guest else _MOVE,
        severity="info" if guest else severity,
    )


# -- devices that share an uplink -----------------------------------------------------------


@row(
    "pcie.shared-uplink",
    title="Devices below one switch leave each other room",
    symptom="Transfers of one device are slow in step with those of another",
    cause="All that lies below a switch shares its one link up. Direct traffic between its devices does not "
    "pass there, so network cards beside GPUs count once",
    severity="info",
    scope="hands",
    risk="Moving a card needs the machine powered off.",
    cost="none",
    sources=(
        "PCI Express Base Specification, 1.3.3: Switch",
        "Linux Documentation/driver-api/pci/p2pdma.rst: root ports are hierarchies of their own",
    ),
)
def shared_uplink(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    every = _pcie.endpoints(machine)
    ends = [end for end in every if not end.linkless]
    if not every:
        return _pcie.no_devices(verdict, machine)
    if not ends:
        return verdict.not_applicable("the devices here have no PCI Express link of their own")
    by_address = machine.pci.by_address()
    if all(end.alone for end in ends):
        return verdict.unknown("kernel", "the ports above the devices are not known")
    below: dict[str, list[Endpoint]] = {}
    for end in ends:
        for up in _pcie.uplinks(_pcie.way_up(end.address, by_address)):
            below.setdefault(up.address, []).append(end)
    shared = {address: leaves for address, leaves in below.items() if len(leaves) > 1}
    if not shared:
        return verdict.not_applicable("no two GPUs, drives or network cards are below one switch")
    needs = {end.address: _pcie.expected(end.link) or _pcie.current(end.link) for end in ends}
    # The inner switches first: no more comes out of one than its own uplink carries.
    for address in sorted(below, key=lambda a: -len(_pcie.way_up(a, by_address))):
        if address in shared:
            _share(verdict, profile, by_address[address], shared[address], needs)
        _cap(by_address[address], below[address], needs)
    return verdict


def _cap(up: PciDevice, leaves: list[Endpoint], needs: dict[str, float | None]) -> None:
    """Lower what these ask of the links above to what this one lets through."""
    room, demand = _room(up), _demand(leaves, needs)
    if room is None or demand is None or demand <= room:
        return
    for end in leaves:
        need = needs[end.address]
        needs[end.address] = None if need is None else need * room / demand


def _room(up: PciDevice) -> float | None:
    return _pcie.expected(up.link) or _pcie.current(up.link)


def _demand(leaves: list[Endpoint], needs: dict[str, float | None]) -> float | None:
    """Gb/s that these can ask of one uplink together; None where that is not known of one."""
    sums = {"compute": 0.0, "network": 0.0, "storage": 0.0}
    for end in leaves:
        need = needs[end.address]
        if need is None:
            return None
        kind = "compute" if end.role in _pcie.RESTING else "storage" if end.role == "nvme" else "network"
        sums[kind] += need
    # A network card beside a GPU talks to it directly: of the two, the greater one loads the uplink.
    return max(sums["compute"], sums["network"]) + sums["storage"]


def _share(
    verdict: Verdict,
    profile: Profile,
    up: PciDevice,
    leaves: list[Endpoint],
    needs: dict[str, float | None],
) -> None:
    subject = f"pci:{up.address}"
    room, demand = _room(up), _demand(leaves, needs)
    if room is None or demand is None:
        verdict.unknown(subject, "the links of the switch or of the devices below it are not known")
        return
    limit = profile.pcie.uplink_ratio_max
    shown = evidence(
        up.link.expected_width.source if up.link.expected_width.known else up.link.current_width.source,
        f"{demand / 8:.1f} GB/s over {room / 8:.1f} GB/s ({demand / room:.1f} times)",
        f"at most {limit:g} times",
    )
    if demand / room <= limit:
        verdict.ok(shown)
        return
    names = _pcie.listed([f"{_pcie.NOUNS[end.role]} {end.address}" for end in leaves])
    verdict.finding(
        subject,
        f"{names} share one uplink; together they can ask for {demand / room:.1f} times what it carries.",
        shown,
        advice="Spread these devices over more root ports, or keep their bulk transfers apart in time.",
    )
