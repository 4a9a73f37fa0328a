"""The PCI tree: functions, links, errors, and what the kernel's log says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.model.pci import Pci
from hwtune.probes import (
    _kernel_log,
    _pci_config,
    _pci_documents,
    _pci_links,
    _pci_log,
    _pci_names,
    _pci_sysfs,
)
from hwtune.text.pci_sysfs import parse_policy

if TYPE_CHECKING:
    from hwtune.fact import Fact
    from hwtune.host.base import Host

PART = "pci"


def read(host: Host) -> Pci:
    devices, listed = _pci_sysfs.read(host)
    _pci_config.read(host, devices)
    listed, loose = _pci_documents.read(host, devices, listed)
    _pci_links.expect(devices)
    _pci_names.read(host, devices)
    lines, _ = _kernel_log.lines(host)
    events, limits = _pci_log.read(lines)
    return Pci(
        devices=devices,
        listed=listed,
        aspm_policy=host.parse("/sys/module/pcie_aspm/parameters/policy", parse_policy),
        iommu_present=_iommu(host),
        loose_acs=loose,
        events=events,
        bandwidth_limits=limits,
    )


def _iommu(host: Host) -> Fact[bool]:
    """An IOMMU in use has groups, or at least an entry of its class."""
    groups = host.names("/sys/kernel/iommu_groups")
    if groups.known and not groups.get():
        return host.names("/sys/class/iommu").or_else(groups).map(bool)
    return groups.map(bool)
