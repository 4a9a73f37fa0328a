"""The PCI tree: functions, links, errors, and what the kernel's log says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import Fact
from hwtune.model.pci import Pci
from hwtune.probes import _pci_links, _pci_sysfs
from hwtune.text.pci_sysfs import parse_policy

if TYPE_CHECKING:
    from hwtune.host.base import Host

PART = "pci"


def read(host: Host) -> Pci:
    devices, listed = _pci_sysfs.read(host)
    _pci_links.expect(devices)
    return Pci(
        devices=devices,
        listed=listed,
        aspm_policy=host.parse("/sys/module/pcie_aspm/parameters/policy", parse_policy),
        iommu_present=_iommu(host),
    )


def _iommu(host: Host) -> Fact[bool]:
    """An IOMMU in use has groups, or at least an entry of its class."""
    groups = host.names("/sys/kernel/iommu_groups")
    if groups.known and not groups.get():
        return host.names("/sys/class/iommu").or_else(groups).map(bool)
    return groups.map(bool)
