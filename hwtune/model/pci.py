"""The PCI tree."""

from __future__ import annotations

import msgspec

from hwtune.fact import Fact, not_probed


class Link(msgspec.Struct):
    """A PCIe link as seen from one device. Speeds in GT/s, widths in lanes.

    ``max_*`` is what the device itself can do; ``expected_*`` the lesser of the device and the
    port above it (NCCL, hwloc and the kernel's pcie_bandwidth_available reckon so). Widths 0, 63
    and 255 and speed "Unknown" are unknown, never degraded (facts C1).
    """

    current_gts: Fact[float] = not_probed()
    current_width: Fact[int] = not_probed()
    max_gts: Fact[float] = not_probed()
    max_width: Fact[int] = not_probed()
    expected_gts: Fact[float] = not_probed()
    expected_width: Fact[int] = not_probed()
    aspm: Fact[list[str]] = not_probed()  # enabled: some of "L0s", "L1", "L1.1", "L1.2"; [] is off
    training: bool | None = None


class Acs(msgspec.Struct):
    """Access Control Services: names of what is capable and what is enabled (SrcValid, ReqRedir ...)."""

    capable: list[str]
    enabled: list[str]


class Aer(msgspec.Struct):
    """Error counts since boot by name as sysfs has them, and bits that stick until cleared."""

    correctable: Fact[dict[str, int]] = not_probed()
    nonfatal: Fact[dict[str, int]] = not_probed()
    fatal: Fact[dict[str, int]] = not_probed()
    sticky_correctable: Fact[list[str]] = not_probed()
    sticky_uncorrectable: Fact[list[str]] = not_probed()


class PciDevice(msgspec.Struct):
    """One function. ``address`` is DDDD:BB:DD.F in lower case, ``parent`` the bridge above (or
    None at a root bus), ``root`` the host bridge's name (pci0000:00)."""

    address: str
    source: str = ""  # the sysfs folder, or the pasted text
    parent: str | None = None
    root: str | None = None
    class_code: Fact[int] = not_probed()  # 24 bits: base, sub, interface
    vendor: Fact[int] = not_probed()
    device: Fact[int] = not_probed()
    subsystem_vendor: Fact[int] = not_probed()
    subsystem_device: Fact[int] = not_probed()
    name: Fact[str] = not_probed()
    driver: Fact[str] = not_probed()
    numa_node: Fact[int] = not_probed()  # -1 where the firmware does not say
    local_cpus: Fact[list[int]] = not_probed()
    physical_function: str | None = None  # of a virtual function, its physical one
    port_type: Fact[str] = not_probed()  # endpoint, legacy, root-port, upstream, downstream, rc-endpoint, bridge
    link: Link = msgspec.field(default_factory=Link)
    acs: Fact[Acs] = not_probed()
    aer: Aer = msgspec.field(default_factory=Aer)
    max_payload: Fact[int] = not_probed()  # MPS in force, bytes
    max_payload_supported: Fact[int] = not_probed()
    max_read_request: Fact[int] = not_probed()
    iommu_group: Fact[int] = not_probed()
    iommu_type: Fact[str] = not_probed()  # DMA, DMA-FQ, identity, blocked
    power_state: Fact[str] = not_probed()  # D0, D3hot, D3cold ...
    runtime_status: Fact[str] = not_probed()
    power_control: Fact[str] = not_probed()  # "on" or "auto"
    enabled: Fact[bool] = not_probed()
    msi_irqs: Fact[list[int]] = not_probed()
    bar_bytes: Fact[list[int]] = not_probed()

    @property
    def is_bridge(self) -> bool:
        return self.class_code.known and self.class_code.get() >> 8 == 0x0604

    @property
    def base_class(self) -> int | None:
        return self.class_code.get() >> 16 if self.class_code.known else None


class PciEvent(msgspec.Struct):
    """A PCIe complaint of the kernel log."""

    source: str
    line: str
    kind: str  # aer-correctable, aer-uncorrectable, bandwidth-limited, link-down, off-the-bus ...
    address: str | None = None
    detail: str = ""  # error names, or "x1 of x16"
    count: int = 1


class Pci(msgspec.Struct):
    devices: list[PciDevice] = []
    listed: Fact[bool] = not_probed()
    aspm_policy: Fact[str] = not_probed()
    iommu_present: Fact[bool] = not_probed()
    events: list[PciEvent] = []

    def by_address(self) -> dict[str, PciDevice]:
        return {device.address: device for device in self.devices}
