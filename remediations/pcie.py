"""Rows: the links of GPUs, drives and network cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from hwtune.diagnosis import Verdict, evidence
from hwtune.diagnosis.row import row
from hwtune.remediations import _pcie
from hwtune.remediations._pcie import ASK, RELOAD, RESEAT, Endpoint, gts, show_link

if TYPE_CHECKING:
    from hwtune.fact import Fact
    from hwtune.model import Machine
    from hwtune.profile import Profile

N = TypeVar("N", int, float)

_LINK_FILES = "Linux Documentation/ABI/testing/sysfs-bus-pci, current_link_speed and max_link_width"
_SPEC_LINK = "PCI Express Base Specification, 7.5.3.6 to 7.5.3.8: Link Capabilities, Control and Status"

_COMPARE = (
    "Compare with the port above it (lspci -vvv as root); if that can do more, reseat the card and check "
    "riser, lanes and BIOS setup."
)

# How many alike devices make a rule that one breaks.
_PEERS = 4


@row(
    "pcie.link-width",
    title="Links have all their lanes",
    symptom="Transfers take twice as long or longer, always",
    cause="A link that lost lanes in training (bad contact, riser, cable, damaged lane) has that much less "
    "bandwidth; both ends offer more",
    severity="error",
    scope="hands",
    risk="Reseating needs the machine powered off.",
    cost="none",
    sources=(_LINK_FILES, _SPEC_LINK, "nvidia-smi(1), pcie.link.width.current: may be reduced when idle"),
)
def link_width(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    ends = _pcie.endpoints(machine)
    if not ends:
        return _pcie.no_devices(verdict, machine)
    for end in ends:
        link = end.link
        if _no_link(verdict, machine, end, link.current_width):
            continue
        target, sure = _target(machine, end, link.current_width, link.expected_width, link.max_width)
        peers = None
        if target is None and link.max_width.unknown:
            target, peers = _peer_value(end, ends, "current_width")
        if target is None:
            verdict.unknown(end.subject, _pcie.first_gap(link.expected_width, link.max_width))
        elif link.current_width.get() >= target:
            verdict.ok(evidence(link.current_width.source, f"x{link.current_width.get()}", f"x{target}"))
        else:
            _narrow(verdict, machine, end, target, sure, peers)
    return verdict


def _narrow(
    verdict: Verdict,
    machine: Machine,
    end: Endpoint,
    target: int,
    sure: bool,
    peers: int | None,
) -> None:
    link = end.link
    width = link.current_width.get()
    severity, advice = _severity(machine, end, sure), _advice(machine, end, sure)
    told = _told(machine, end, sure, peers, f"x{width}", f"x{target}")
    if end.idle and severity != "info":
        # nvidia-smi(1): generation and width "may be reduced when the GPU is not in use"
        severity, advice = "info", f"Look again under load. {advice}"
        told += " The GPU is idle, and may have put lanes to rest."
    elif end.idle is None and severity != "info":
        severity = "warning"
        told += " This was read while the GPU may be idle: look again under load."
    verdict.finding(
        end.subject,
        told,
        evidence(link.current_width.source, f"x{width}", f"x{target}"),
        advice=advice,
        severity=severity,
    )


@row(
    "pcie.link-speed",
    title="Links run at their full speed",
    symptom="Transfers take twice as long or longer, always",
    cause="A link that could not train at the speed of both its ends (signal quality, riser, BIOS limit) "
    "has a fraction of the bandwidth",
    severity="error",
    scope="hands",
    risk="Reseating needs the machine powered off.",
    cost="none",
    sources=(_LINK_FILES, _SPEC_LINK, "nvidia-smi(1), pcie.link.gen.current: may be reduced when idle"),
)
def link_speed(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    ends = _pcie.endpoints(machine)
    if not ends:
        return _pcie.no_devices(verdict, machine)
    for end in ends:
        link = end.link
        if _no_link(verdict, machine, end, link.current_gts):
            continue
        target, sure = _target(machine, end, link.current_gts, link.expected_gts, link.max_gts)
        peers = None
        if target is None and link.max_gts.unknown and end.role not in _pcie.RESTING:
            target, peers = _peer_value(end, ends, "current_gts")
        if target is None:
            verdict.unknown(end.subject, _pcie.first_gap(link.expected_gts, link.max_gts))
        elif link.current_gts.get() >= target:
            verdict.ok(evidence(link.current_gts.source, gts(link.current_gts.get()), gts(target)))
        elif end.idle is not False:
            state = "is idle" if end.idle else "may be idle"
            verdict.unknown(
                end.subject,
                f"the link runs at {link.current_gts.get():g} of {gts(target)}, as is normal for a GPU that "
                f"{state} ({link.current_gts.source})",
                remedy=RELOAD,
            )
        else:
            _slow(verdict, machine, end, target, sure, peers)
    return verdict


def _slow(
    verdict: Verdict, machine: Machine, end: Endpoint, target: float, sure: bool, peers: int | None
) -> None:
    link = end.link
    told = _told(machine, end, sure, peers, gts(link.current_gts.get()), gts(target))
    items = [evidence(link.current_gts.source, gts(link.current_gts.get()), gts(target))]
    advice = _advice(machine, end, sure)
    limit = end.port.link.target_gts if end.port is not None else None
    if limit is not None and limit.known and limit.get() < target:
        # LnkCtl2 of the port that faces the device: the most that it may train to
        told += f" The port is told to train to {gts(limit.get())} at most."
        items.append(evidence(limit.source, gts(limit.get()), gts(target)))
        advice = "Raise the slot's link speed in BIOS setup to Auto or to the device's generation."
    elif link.target_gts.known and link.target_gts.get() > link.current_gts.get():
        items.append(evidence(link.target_gts.source, f"target {gts(link.target_gts.get())}"))
    verdict.finding(end.subject, told, *items, advice=advice, severity=_severity(machine, end, sure))


def _no_link(verdict: Verdict, machine: Machine, end: Endpoint, fact: Fact[float] | Fact[int]) -> bool:
    """Whether there is nothing to judge, with the reason noted."""
    if fact.known:
        return False
    if end.linkless:
        verdict.not_applicable("the devices here have no PCI Express link of their own")
    elif _pcie.in_guest(machine, end):
        verdict.not_applicable("this virtual machine does not show the links of its devices")
    else:
        verdict.unknown(end.subject, fact)
    return True


def _target(
    machine: Machine, end: Endpoint, now: Fact[N], both: Fact[N], own: Fact[N]
) -> tuple[N | None, bool]:
    """What the value should be, and whether both ends of the link say so."""
    if both.known:
        return both.get(), True
    if own.known and (now.get() >= own.get() or end.alone or _pcie.in_guest(machine, end)):
        # Without its port in sight: at its best, or said with that reserve.
        return own.get(), False
    return None, False


def _peer_value(end: Endpoint, ends: list[Endpoint], field: str) -> tuple[Any, int | None]:
    """What all others of its model have, and their number, where it alone has less.

    That it has what the others have proves nothing: all may be low.
    """
    model = _model(end)
    others = [getattr(e.link, field) for e in ends if e is not end and _model(e) == model]
    if model is None or len(others) < _PEERS or not all(other.known for other in others):
        return None, None
    values = {other.get() for other in others}
    common = values.pop()
    if values or getattr(end.link, field).get() >= common:
        return None, None
    return common, len(others)


def _model(end: Endpoint) -> tuple[object, ...] | None:
    """Vendor and device; InfiniBand cards without these are compared with each other."""
    device = end.device
    if device is None:
        return None
    if device.vendor.known and device.device.known:
        return device.vendor.get(), device.device.get()
    return ("infiniband",) if end.role == "infiniband" else None


def _severity(machine: Machine, end: Endpoint, sure: bool) -> str:
    if _pcie.in_guest(machine, end):
        return "info"
    if sure:
        return "error"
    now, most = _pcie.current(end.link), _pcie.capable(end.link)
    # Both low at once, or little left, is more than a slot that is small by design.
    both = (
        end.link.current_gts.known
        and end.link.max_gts.known
        and end.link.current_gts.get() < end.link.max_gts.get()
        and end.link.current_width.known
        and end.link.max_width.known
        and end.link.current_width.get() < end.link.max_width.get()
    )
    share = now / most if now is not None and most else 1.0
    return "error" if both or share <= _pcie.GRAVE else "warning"


def _told(machine: Machine, end: Endpoint, sure: bool, peers: int | None, value: str, target: str) -> str:
    link = end.link
    if _pcie.in_guest(machine, end):
        told = f"This virtual machine gives the {end.noun} {value} of the {target} that it can do."
    elif peers is not None:
        told = f"The {end.noun} runs at {value}; {peers} others like it run at {target}."
    elif sure:
        told = f"The {end.noun} runs at {value}, though both ends of its link can do {target}."
    else:
        told = f"The {end.noun} runs at {value} and can do {target}; what its port can do is not known here."
    now = _pcie.current(link)
    most = _pcie.expected(link) if sure else _pcie.capable(link)
    if now is None or most is None or now >= most:
        return told
    full = link.expected_gts if sure else link.max_gts
    if end.idle is not False and link.current_gts.get() < full.get():
        return told  # at rest the speed says nothing, nor does the product
    return told + f" In all {show_link(link)}: {now / 8:.2f} of {most / 8:.2f} GB/s ({now / most:.0%})."


def _advice(machine: Machine, end: Endpoint, sure: bool) -> str:
    if _pcie.in_guest(machine, end):
        return ASK
    return RESEAT if sure else _COMPARE
