"""The registers of a PCI function that matter here, whoever read them: config space or lspci."""

from __future__ import annotations

import msgspec

# PCI Express Base Specification, 7.5.3.2: Device/Port Type of the PCI Express Capabilities Register.
PORT_TYPES = {
    0x0: "endpoint",
    0x1: "legacy-endpoint",
    0x4: "root-port",
    0x5: "upstream",
    0x6: "downstream",
    0x7: "pcie-to-pci-bridge",
    0x8: "pci-to-pcie-bridge",
    0x9: "rc-endpoint",
    0xA: "rc-event-collector",
}

# Functions inside the root complex have no link, those on a conventional bus no such capability.
LINKLESS = ("rc-endpoint", "rc-event-collector", "conventional")

# ACS Control Register, from bit 0 on, in lspci's words.
ACS_BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")


class Registers(msgspec.Struct):
    """What was read; None where it was not. Speeds in GT/s, widths in lanes, sizes in bytes.

    ``denied``: the capabilities were not shown without privilege. ``lost``: every register reads
    all ones, as of a device that does not answer.
    """

    vendor: int | None = None
    device: int | None = None
    class_code: int | None = None
    buses: tuple[int, int] | None = None  # secondary and subordinate bus of a bridge
    port_type: str | None = None  # of PORT_TYPES, or "conventional": no PCI Express capability
    max_gts: float | None = None
    max_width: int | None = None
    current_gts: float | None = None
    current_width: int | None = None
    target_gts: float | None = None
    aspm: list[str] | None = None
    max_payload: int | None = None
    max_payload_supported: int | None = None
    max_read_request: int | None = None
    acs_capable: list[str] | None = None
    acs_enabled: list[str] | None = None
    sticky_correctable: list[str] | None = None
    sticky_uncorrectable: list[str] | None = None
    extended: bool = False  # the extended capabilities were looked at
    denied: bool = False
    lost: bool = False
