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
    target_gts: Fact[float] = not_probed()  # LnkCtl2: the speed that a port is told to train to
    aspm: Fact[list[str]] = not_probed()  # enabled: some of "L0s", "L1", "L1.1", "L1.2"; [] is off
    aspm_files: list[str] = []  # those of its link/ folder that can turn these off


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


# Display controllers that are no GPU: of BMCs, and of virtual machines. Vendor ids as in pci.ids:
# Matrox, ASPEED, Huawei iBMC, Cirrus, QEMU (two), Red Hat (QXL), virtio, VMware, Hyper-V.
_PLAIN_DISPLAYS = (0x102B, 0x1A03, 0x19E5, 0x1013, 0x1234, 0x1111, 0x1B36, 0x1AF4, 0x15AD, 0x1414)

# Base class and subclass (PCI Code and ID Assignment Specification) -> what people call it.
_ROLES = {
    0x0108: "nvme",
    0x0302: "gpu",
    0x0604: "bridge",
    0x0B40: "accelerator",
    0x0C06: "infiniband",
}
_BASE_ROLES = {0x01: "storage", 0x02: "nic", 0x03: "gpu", 0x12: "accelerator"}

# What the folders of device classes below a function say, where its class is not known.
_FOLDER_ROLES = {"infiniband": "infiniband", "nvme": "nvme", "net": "nic"}


class PciDevice(msgspec.Struct, rename={"class_code": "class"}):
    """One function. ``address`` is DDDD:BB:DD.F in lower case, ``parent`` the bridge above (or
    None at a root bus), ``root`` the host bridge's name (pci0000:00); both are None where the
    device's place in the tree is not known."""

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
    # endpoint, legacy-endpoint, root-port, upstream, downstream, rc-endpoint, bridge ...
    port_type: Fact[str] = not_probed()
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
    bar_bytes: Fact[list[int]] = not_probed()
    class_folders: list[str] = []  # below it: net, infiniband, nvme; only where the class is unknown

    @property
    def is_bridge(self) -> bool:
        return self.class_code.known and self.class_code.get() >> 8 == 0x0604

    @property
    def role(self) -> str:
        """gpu, nvme, nic, infiniband, accelerator, storage, bridge, or "" for all others."""
        code = self.class_code.value
        if code is None:
            return next((_FOLDER_ROLES[name] for name in self.class_folders), "")
        if code >> 16 == 0x03 and self.vendor.value in _PLAIN_DISPLAYS:
            return ""
        if code >> 8 == 0x0207:
            return "infiniband"
        return _ROLES.get(code >> 8) or _BASE_ROLES.get(code >> 16, "")

    @property
    def base_class(self) -> int | None:
        return self.class_code.get() >> 16 if self.class_code.known else None


class PciEvent(msgspec.Struct):
    """A PCIe complaint of the kernel log; like ones are counted in one.

    ``kind``: aer-correctable, aer-nonfatal, aer-fatal, recovery-failed, link-down, retrained,
    inaccessible, slot-power, off-the-bus. ``detail``: the names of the errors, or what the line
    says. ``partner``: the function at the other end of the link, where a line names both.
    ``first_s`` and ``last_s``: seconds since boot, where the lines have them.
    """

    source: str
    line: str
    kind: str
    address: str | None = None
    detail: str = ""
    count: int = 1
    driver: str = ""  # that the line names before the address: pcieport, nvme ...
    ids: str = ""  # "144d:a808", where a line has them
    partner: str | None = None
    first_s: float | None = None
    last_s: float | None = None


class BandwidthLimit(msgspec.Struct):
    """A line of the kernel log: what the way to a device could carry when it was found, and what
    the device could do (pcie_print_link_status). ``driver`` is "pci" where the bus said so, before
    a driver took the device."""

    source: str
    line: str
    driver: str
    address: str
    available_gbps: float
    capable_gbps: float
    limit_address: str
    limit_gts: float | None
    limit_width: int
    capable_gts: float | None
    capable_width: int


class Pci(msgspec.Struct):
    devices: list[PciDevice] = []
    listed: Fact[bool] = not_probed()
    aspm_policy: Fact[str] = not_probed()
    iommu_present: Fact[bool] = not_probed()
    loose_acs: list[Fact[Acs]] = []  # ACS controls that somebody pasted without their functions
    events: list[PciEvent] = []
    bandwidth_limits: list[BandwidthLimit] = []

    def by_address(self) -> dict[str, PciDevice]:
        return {device.address: device for device in self.devices}
