"""Rows: errors on PCIe links, links that went down, and slots without enough power."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.diagnosis import Verdict, evidence
from hwtune.diagnosis.row import row
from hwtune.remediations import _pcie
from hwtune.text import aer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hwtune.diagnosis.verdict import Evidence
    from hwtune.fact import Fact
    from hwtune.model import Machine
    from hwtune.model.pci import PciDevice, PciEvent
    from hwtune.profile import Profile

_COUNTERS = (
    "Linux Documentation/ABI/testing/sysfs-bus-pci-devices-aer (counts may be at the link's other end)"
)
_AER_DOC = "Linux Documentation/PCI/pcieaer-howto.rst"
_SPEC = "PCI Express Base Specification, 6.2 and 7.8.4: Error Signaling, Advanced Error Reporting"

_SIGNAL = (
    "Reseat the device, check its cable, riser and slot, and turn ASPM off for this link to see if it ends."
)


class _Trouble:
    """What is known of the errors of one link, by whoever counted them."""

    __slots__ = ("addresses", "counted", "errors", "evidence", "logged", "unexplained")

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.errors: list[str] = []
        self.counted = 0
        self.logged = 0
        self.unexplained = 0  # log lines of functions that have no counter
        self.evidence: list[Evidence] = []

    def add(self, address: str, errors: Iterable[str], item: Evidence) -> None:
        if address not in self.addresses:
            self.addresses.append(address)
        self.errors += [e for e in errors if e and e not in self.errors]
        self.evidence.append(item)


# What a driver's name says of its device.
_DRIVERS = {"nvme": "NVMe drive", "mlx5_core": "NIC", "ice": "NIC", "ixgbe": "NIC", "nvidia": "GPU"}


class _Tree:
    """Which function is at the other end of a link."""

    def __init__(self, machine: Machine) -> None:
        self.by_address = machine.pci.by_address()
        self.below: dict[str, str] = {}
        for device in machine.pci.devices:
            if device.parent is not None:
                self.below.setdefault(device.parent, device.address)
        # what the log says of functions that are not in the tree
        self.nouns = {e.address: _DRIVERS[e.driver] for e in machine.pci.events if e.driver in _DRIVERS}

    def link(self, address: str, event: PciEvent | None = None) -> tuple[str, ...]:
        """The link on which ``address`` saw errors, by its ends: the device, then the port above."""
        device = self.by_address.get(address)
        if device is None:
            return self._told(address, event)
        if device.is_bridge and address in self.below and not self._leads_up(device):
            return self.below[address], address
        return (address,) if device.parent is None else (address, device.parent)

    def _told(self, address: str, event: PciEvent | None) -> tuple[str, ...]:
        """By the log's own words, in which a port names the device that it heard from."""
        if event is None or event.partner is None:
            return (address,)
        return (event.partner, address) if event.driver == "pcieport" else (address, event.partner)

    def _leads_up(self, device: PciDevice) -> bool:
        chain = [device, *_pcie.way_up(device.address, self.by_address)]
        return any(bridge is device for bridge in _pcie.uplinks(chain))

    def name(self, address: str) -> str:
        """ "NVMe drive 0000:03:00.0", or the address alone."""
        device = self.by_address.get(address)
        noun = _pcie.NOUNS.get(device.role) if device is not None else self.nouns.get(address)
        return f"{noun} {address}" if noun else address


# -- corrected ------------------------------------------------------------------------------


@row(
    "pcie.aer-correctable",
    title="Links do not need to send again",
    symptom="Some transfers take microseconds longer; the log fills with AER messages, each an interrupt",
    cause="A receiver got a damaged packet and asked for it again: bad contact, cable, riser, or a link that "
    "wakes badly from ASPM",
    severity="warning",
    scope="hands",
    risk="Reseating needs the machine powered off.",
    cost="none",
    sources=(_COUNTERS, _AER_DOC, _SPEC),
)
def aer_correctable(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    tree = _Tree(machine)
    troubles: dict[tuple[str, ...], _Trouble] = {}
    counted = _count_corrected(verdict, machine, tree, troubles)
    for event in machine.pci.events:
        if event.kind == "aer-correctable":
            _note_log(tree, event, troubles, counted)
    for link, trouble in troubles.items():
        _judge_corrected(verdict, machine, profile, tree, link[0], trouble)
    told = {address for trouble in troubles.values() for address in trouble.addresses}
    bits = [(d, d.aer.sticky_correctable) for d in machine.pci.devices if d.address not in told]
    _sticky(verdict, bits, "needed packets sent again", "aer_dev_correctable")
    return _the_rest(verdict, machine, "correctable")


def _count_corrected(
    verdict: Verdict, machine: Machine, tree: _Tree, troubles: dict[tuple[str, ...], _Trouble]
) -> set[str]:
    """The functions that have counters."""
    counted = set()
    for device in machine.pci.devices:
        counts = device.aer.correctable
        if not counts.known:
            continue
        counted.add(device.address)
        bad = _bad(counts.get())
        if not bad:
            verdict.ok(*_zero(device, counts, "0"))
            continue
        trouble = troubles.setdefault(tree.link(device.address), _Trouble())
        trouble.counted += sum(bad.values())
        trouble.add(device.address, bad, evidence(counts.source, bad, "none, or few"))
    return counted


def _zero(device: PciDevice, fact: Fact[Any], value: str) -> list[Evidence]:
    """Evidence that all is well; of the devices in question, not of every bridge."""
    return [evidence(fact.source, value)] if device.role in _pcie.NOUNS else []


def _bad(counts: dict[str, int]) -> dict[str, int]:
    """Counts above 0 of errors that a healthy machine does not leave behind, by short name."""
    named = {aer.name(name): count for name, count in counts.items() if not name.startswith("TOTAL_ERR")}
    return {name: count for name, count in named.items() if count > 0 and name not in aer.HARMLESS}


def _note_log(
    tree: _Tree, event: PciEvent, troubles: dict[tuple[str, ...], _Trouble], counted: set[str]
) -> None:
    errors = event.detail.split(", ") if event.detail else []
    if errors and all(error in aer.HARMLESS for error in errors):
        return
    address = event.address or "unknown"
    trouble = troubles.setdefault(tree.link(address, event), _Trouble())
    trouble.logged += event.count
    if address not in counted:
        trouble.unexplained += event.count
    trouble.add(address, errors, _log_evidence(event))


def _log_evidence(event: PciEvent) -> Evidence:
    times = f"{event.count} times " if event.count > 1 else ""
    span = ""
    if event.count > 1 and event.first_s is not None and event.last_s is not None:
        span = f" within {max(event.last_s - event.first_s, 0.001):.3g} s"
    what = ", ".join(aer.explain(e) for e in event.detail.split(", ")) if event.detail else event.line
    ids = f" [{event.ids}]" if event.ids else ""
    return evidence(event.source, f"{event.address}{ids}: {times}{what}{span}", "none")


def _judge_corrected(
    verdict: Verdict, machine: Machine, profile: Profile, tree: _Tree, address: str, trouble: _Trouble
) -> None:
    limit = profile.pcie.aer_corrected_per_hour_max
    uptime = machine.kernel.uptime_s
    what = ", ".join(aer.explain(error) for error in trouble.errors) or "corrected errors"
    where = _pcie.listed(trouble.addresses)
    name = tree.name(address)
    if trouble.unexplained:
        verdict.finding(
            f"pci:{address}",
            f"The link of {name} had {_times(trouble.logged)} of {what}, seen at {where}.",
            *trouble.evidence,
            advice=_SIGNAL,
        )
    elif not uptime.known:
        verdict.finding(
            f"pci:{address}",
            f"The link of {name} had {_times(trouble.counted)} of {what} since boot; how long ago that was, "
            "and so the rate, is not known.",
            *trouble.evidence,
            advice="Read the counters again after an hour, and look whether they rise.",
            severity="info",
        )
    else:
        # A machine that came up a minute ago has not had the time to be judged by the hour.
        rate = trouble.counted / max(uptime.get() / 3600, 1)
        if rate <= limit:
            verdict.ok(
                *trouble.evidence, reason=f"few corrected errors since boot, no more than {limit:g} an hour"
            )
            return
        verdict.finding(
            f"pci:{address}",
            f"The link of {name} has {rate:.3g} corrected errors an hour ({what}), seen at {where}.",
            *trouble.evidence,
            evidence(uptime.source, f"{uptime.get() / 3600:.1f} h since boot", f"at most {limit:g} an hour"),
            advice=_SIGNAL,
        )


def _times(count: int) -> str:
    return "one case" if count == 1 else f"{count} cases"


def _sticky(
    verdict: Verdict, devices: list[tuple[PciDevice, Fact[list[str]]]], meaning: str, counter: str
) -> None:
    """Bits of the status registers, which stay until software clears them: there was an error, but
    not how many and when. All functions in one finding."""
    found: list[tuple[PciDevice, list[str], str]] = []
    for device, fact in devices:
        if not fact.known:
            continue
        errors = [error for error in fact.get() if error not in aer.HARMLESS]
        if errors:
            found.append((device, errors, fact.source))
        else:
            verdict.ok(*_zero(device, fact, "no error bit set"))
    if not found:
        return
    # the device itself before its port: that is what a reader looks for
    found.sort(key=lambda item: (item[0].is_bridge, item[0].address))
    errors = list(dict.fromkeys(error for _, names, _ in found for error in names))
    nouns = [
        _pcie.NOUNS.get(device.role, "port" if device.is_bridge else "function") for device, _, _ in found
    ]
    numbers = ", ".join(f"{nouns.count(noun)} x {noun}" for noun in dict.fromkeys(nouns))
    first = found[0][0].address
    verdict.finding(
        f"pci:{first}",
        f"Links {meaning} at some time ({', '.join(aer.explain(e) for e in errors)}): {numbers}. The bits "
        "stay until they are cleared and count nothing, so no rate is known.",
        *(evidence(source, f"{device.address}: {', '.join(names)}") for device, names, source in found),
        advice=f"Read {counter} of these devices in sysfs twice, an hour apart, and look whether it rises.",
        severity="info",
    )


def _the_rest(verdict: Verdict, machine: Machine, field: str) -> Verdict:
    """Devices that neither have counters nor showed their bits: the log's silence has to do."""
    log = machine.kernel.log_known
    mute = False
    for device in machine.pci.devices:
        counts, bits = getattr(device.aer, field), device.aer.sticky_correctable
        if device.role not in _pcie.NOUNS or device.physical_function is not None or bits.known:
            continue
        if counts.unknown and not log.known:
            verdict.unknown(f"pci:{device.address}", counts, log)
        elif not counts.known:
            mute = True
    if (mute or not machine.pci.listed.known) and log.known:
        verdict.ok(
            evidence(log.source, "no PCIe error"), reason="where nothing counts errors, the log tells of none"
        )
    elif mute:
        verdict.not_applicable("the devices here do not report errors (no Advanced Error Reporting)")
    if verdict.findings or verdict.good or verdict.unknowns or verdict.inapplicable:
        return verdict
    unread = [device.class_code for device in machine.pci.devices if device.class_code.unknown]
    if unread:
        return verdict.unknown("kernel", *unread[:1])
    if machine.pci.listed.known or machine.pci.listed.absent:
        return verdict.not_applicable("there is no PCI Express device whose errors could be known")
    return verdict.unknown("kernel", machine.pci.listed, log)


# -- uncorrected ----------------------------------------------------------------------------


@row(
    "pcie.aer-uncorrectable",
    title="No PCIe transfer was lost",
    symptom="A device stalls, loses requests, or is gone until it is reset",
    cause="A packet was lost or made no sense: a device or a link that fails, or firmware and driver at odds",
    severity="error",
    scope="hands",
    risk="Reseating needs the machine powered off.",
    cost="none",
    sources=(_COUNTERS, _AER_DOC, _SPEC, "UEFI Specification, appendix N.2.7: PCI Express Error Section"),
)
def aer_uncorrectable(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    tree = _Tree(machine)
    told = set()
    for device in machine.pci.devices:
        if _count_lost(verdict, tree, device):
            told.add(device.address)
    _log_lost(verdict, machine, tree)
    bits = [(d, d.aer.sticky_uncorrectable) for d in machine.pci.devices if d.address not in told]
    _sticky(verdict, bits, "lost a transfer", "aer_dev_nonfatal and aer_dev_fatal")
    return _the_rest(verdict, machine, "nonfatal")


def _count_lost(verdict: Verdict, tree: _Tree, device: PciDevice) -> bool:
    """Whether its counters tell of errors."""
    found = False
    for kind, counts in (("fatal", device.aer.fatal), ("non-fatal", device.aer.nonfatal)):
        if not counts.known:
            continue
        bad = _bad(counts.get())
        if not bad:
            verdict.ok(*_zero(device, counts, "0"))
            continue
        found = True
        verdict.finding(
            f"pci:{device.address}",
            f"{tree.name(device.address)} had {_times(sum(bad.values()))} of {kind} errors since boot: "
            f"{', '.join(aer.explain(name) for name in bad)}.",
            evidence(counts.source, bad, "none"),
            advice=_LOST,
        )
    return found


_LOST = (
    "Look in the log for what came before, update the device's firmware, then reseat or replace the device."
)


def _log_lost(verdict: Verdict, machine: Machine, tree: _Tree) -> None:
    lost = [e for e in machine.pci.events if e.kind in ("aer-nonfatal", "aer-fatal")]
    failed = [e for e in machine.pci.events if e.kind == "recovery-failed"]
    sole = len({event.address for event in lost}) == 1
    for event in lost:
        link = tree.link(event.address or "", event)
        mine = [f for f in failed if sole or f.address in link or f.partner in link]
        failed = [f for f in failed if f not in mine]
        kind = "fatal" if event.kind == "aer-fatal" else "non-fatal"
        what = ", ".join(aer.explain(e) for e in event.detail.split(", ")) if event.detail else event.line
        told = f"Uncorrected ({kind}) PCIe error at {tree.name(event.address or '')}: {what}."
        if event.count > 1:
            told = f"{event.count} uncorrected ({kind}) PCIe errors at {event.address}: {what}."
        if mine:
            gone = [f.address or "" for f in mine if "can't recover" in f.detail] or [mine[0].address or ""]
            told += f" The kernel could not recover {_pcie.listed(gone)}: it is gone until it is reset."
        verdict.finding(
            f"pci:{event.address}",
            told,
            evidence(event.source, event.line, "none"),
            *(evidence(f.source, f.line, "none") for f in mine),
            advice=_LOST,
        )
    for event in failed:
        verdict.finding(
            f"pci:{event.address}",
            f"The kernel could not recover {event.address} from a PCIe error: it is gone until it is reset.",
            evidence(event.source, event.line, "none"),
            advice=_LOST,
        )


# -- links and power ------------------------------------------------------------------------


@row(
    "pcie.link-down",
    title="No device lost its link",
    symptom="A device disappears, or comes back slower",
    cause="The link was lost or would not train, or the device no longer answers",
    severity="error",
    scope="hands",
    risk="Reseating needs the machine powered off.",
    cost="none",
    sources=(
        "Linux drivers/pci/hotplug/pciehp_ctrl.c: Link Down, Card not present",
        "Linux drivers/pci/quirks.c, pcie_failed_link_retrain",
        "Linux drivers/pci/pci.c: device inaccessible",
    ),
)
def link_down(machine: Machine, profile: Profile) -> Verdict:
    told = {
        "link-down": ("lost its link, or was pulled", "warning"),
        "retrained": ("would not train, and was set to its lowest speed", "error"),
        "inaccessible": ("does not answer and cannot be woken", "error"),
    }
    return _logged(machine, told, "Reseat the device and check its slot, riser and cable.")


@row(
    "pcie.slot-power",
    title="Slots give their cards enough power",
    symptom="A card slows down or drops out under load",
    cause="The card asked for more power than the slot says that it can give",
    severity="warning",
    scope="hands",
    risk="Moving a card needs the machine powered off.",
    cost="none",
    sources=("Linux drivers/net/ethernet/mellanox/mlx5/core/events.c: insufficient power on the PCIe slot",),
)
def slot_power(machine: Machine, profile: Profile) -> Verdict:
    told = {"slot-power": ("gets too little power from its slot", "warning")}
    return _logged(
        machine, told, "Move the card to a slot that gives it the power, or plug in its own power cable."
    )


def _logged(machine: Machine, told: dict[str, tuple[str, str]], advice: str) -> Verdict:
    """Findings for events of the log; without any, the log has to be there to say so."""
    verdict = Verdict()
    tree = _Tree(machine)
    for event in machine.pci.events:
        if event.kind in told:
            message, severity = told[event.kind]
            times = f", {event.count} times" if event.count > 1 else ""
            verdict.finding(
                f"pci:{event.address}",
                f"{tree.name(event.address or '')} {message}{times}.",
                evidence(event.source, event.line, "none"),
                advice=advice,
                severity=severity,
            )
    log = machine.kernel.log_known
    if verdict.findings:
        return verdict
    if machine.pci.listed.absent or (machine.pci.listed.known and not machine.pci.devices):
        return verdict.not_applicable("this machine has no PCI device")
    if not log.known:
        return verdict.unknown("kernel", log)
    return verdict.ok(evidence(log.source, "nothing of the kind"))
