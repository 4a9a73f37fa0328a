"""Row: Access Control Services that send direct transfers the long way round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.diagnosis import Verdict, evidence
from hwtune.diagnosis.row import row
from hwtune.remediations import _pcie
from hwtune.remediations._pcie import Endpoint

if TYPE_CHECKING:
    from hwtune.fact import Fact
    from hwtune.model import Machine
    from hwtune.model.pci import Acs, PciDevice
    from hwtune.profile import Profile

# PCI Express Base Specification, 6.12.1.1: these send requests or completions up to the root
# complex. SrcValid and TransBlk only check addresses.
_REDIRECT = ("ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl")

_ADVICE = (
    "Boot with pci=disable_acs_redir= naming these ports (newer kernels: pci=config_acs=), if no guest and "
    "no untrusted device needs the isolation; never write one value to all ports."
)


@row(
    "pcie.acs-redirect",
    title="Direct transfers between devices take the short way",
    symptom="Transfers from GPU to GPU, NIC or drive are slow, or fail, though one switch joins them",
    cause="ACS redirection on a switch's ports sends each packet up to the root complex and the IOMMU, and "
    "down again",
    severity="warning",
    scope="boot",
    risk="Devices of one switch are no longer kept apart, and may land in one IOMMU group.",
    cost="security: isolation between these devices",
    sources=(
        "PCI Express Base Specification, 6.12: Access Control Services",
        "Linux Documentation/driver-api/pci/p2pdma.rst",
        "Linux Documentation/admin-guide/kernel-parameters.txt: pci=disable_acs_redir=, pci=config_acs=",
        "NCCL user guide, Troubleshooting: PCI Access Control Services",
    ),
)
def acs_redirect(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    if not profile.pcie.p2p:
        return verdict.not_applicable("the profile asks for no direct transfers (pcie.p2p)")
    if machine.virtualization.is_guest:
        return verdict.not_applicable("the host of this virtual machine decides on ACS")
    if any(device.driver.value == "vfio-pci" for device in machine.pci.devices):
        return verdict.not_applicable("devices are lent to guests (vfio-pci), which needs ACS")
    if machine.pci.loose_acs:
        _loose(verdict, machine.pci.loose_acs)
    by_address = machine.pci.by_address()
    ends = [e for e in _pcie.endpoints(machine) if e.device is not None and not e.linkless]
    placed = [end for end in ends if not end.alone]
    if len(placed) < len(ends):
        _unplaced(verdict, machine, [end for end in ends if end.alone])
    ways = _ways(placed, by_address)
    if not ways and not verdict.findings and not verdict.unknowns:
        if not ends:
            return verdict if machine.pci.loose_acs else _pcie.no_devices(verdict, machine)
        return verdict.not_applicable("no two devices that could transfer directly share a switch or a root")
    _judge(verdict, ways, by_address)
    return verdict


def _redirects(acs: Acs) -> list[str]:
    return [name for name in _REDIRECT if name in acs.enabled]


# -- ports on the ways between devices ------------------------------------------------------


def _ways(ends: list[Endpoint], by_address: dict[str, PciDevice]) -> dict[str, set[str]]:
    """Port -> the devices whose direct transfers pass it and could turn back below the root.

    Pairs are those of a GPU with a GPU, a network card or a drive. Ports count that face down to
    one of the two below the lowest switch that both share; for two GPUs that share but the host
    bridge, their root ports.
    """
    chains = {end.address: _pcie.way_up(end.address, by_address) for end in ends}
    found: dict[str, set[str]] = {}
    below: dict[str, list[Endpoint]] = {}
    for end in ends:
        for bridge in _pcie.uplinks(chains[end.address]):
            below.setdefault(bridge.address, []).append(end)
    upward = set(below)
    for switch, members in below.items():
        if len(members) < 2 or not any(end.role in _pcie.RESTING for end in members):
            continue
        for end in members:
            for bridge in chains[end.address]:
                if bridge.address == switch:
                    break
                if bridge.address not in upward:
                    found.setdefault(bridge.address, set()).add(end.address)
    roots: dict[str, list[Endpoint]] = {}
    for end in ends:
        if end.role in _pcie.RESTING and end.device is not None and end.device.root and chains[end.address]:
            roots.setdefault(end.device.root, []).append(end)
    for members in roots.values():
        ports = {chains[end.address][-1].address for end in members}
        if len(ports) > 1:
            for end in members:
                found.setdefault(chains[end.address][-1].address, set()).add(end.address)
    return found


def _judge(verdict: Verdict, ways: dict[str, set[str]], by_address: dict[str, PciDevice]) -> None:
    bad: list[str] = []
    for address in sorted(ways):
        acs = by_address[address].acs
        if acs.known and _redirects(acs.get()):
            bad.append(address)
        elif acs.known or acs.absent:
            verdict.ok(evidence(acs.source, "no redirection", "no redirection"))
        else:
            verdict.unknown(f"pci:{address}", acs)
    if not bad:
        return
    devices = sorted({device for address in bad for device in ways[address]})
    verdict.finding(
        f"pci:{bad[0]}",
        f"ACS redirection on {_count(len(bad))} between {_pcie.listed(devices)} sends their direct transfers "
        "up to the root complex.",
        *(
            evidence(
                by_address[address].acs.source,
                f"{address}: {' '.join(_redirects(by_address[address].acs.get()))}",
                "no redirection",
            )
            for address in bad
        ),
        advice=_ADVICE,
    )


def _count(ports: int) -> str:
    return "a port" if ports == 1 else f"{ports} ports"


# -- without the tree -----------------------------------------------------------------------


def _loose(verdict: Verdict, controls: list[Fact[Acs]]) -> None:
    """Lines without their functions: what is on can be told, but not whether a GPU is behind it."""
    redirecting = [fact for fact in controls if _redirects(fact.get())]
    checking = [fact for fact in controls if fact.get().enabled and not _redirects(fact.get())]
    if not redirecting:
        verdict.ok(evidence(controls[0].source, f"no redirection on {len(controls)} ports"))
        return
    off = len(controls) - len(redirecting) - len(checking)
    source = redirecting[0].source
    verdict.finding(
        "kernel",
        f"ACS redirects direct transfers on {len(redirecting)} of {len(controls)} ports; {len(checking)} "
        f"only check addresses, which is harmless, and {off} have it off. These lines don't say which "
        "devices are behind them: look first at the ports between GPUs and network cards.",
        evidence(source, " ".join(redirecting[0].get().enabled), "no redirection"),
        advice=_ADVICE,
    )


def _unplaced(verdict: Verdict, machine: Machine, ends: list[Endpoint]) -> None:
    """Devices and ports that somebody pasted without the rest of the tree."""
    if not any(end.role in _pcie.RESTING for end in ends):
        verdict.not_applicable("there is no GPU whose direct transfers could be redirected")
        return
    ports = [d for d in machine.pci.devices if d.is_bridge and d.root is None]
    bad = [port for port in ports if port.acs.known and _redirects(port.acs.get())]
    if not bad:
        names = _pcie.listed([end.address for end in ends])
        verdict.unknown("kernel", f"the ports above {names} are not known")
        return
    verdict.finding(
        f"pci:{bad[0].address}",
        f"ACS redirection is on at {_pcie.listed([port.address for port in bad])}. Where GPUs are to reach "
        "each other or network cards by way of it, their direct transfers go up to the root complex.",
        *(
            evidence(
                port.acs.source, f"{port.address}: {' '.join(_redirects(port.acs.get()))}", "no redirection"
            )
            for port in bad
        ),
        advice=_ADVICE,
    )
