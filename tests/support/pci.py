"""PCI functions as files, for fake machines."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tests.support import Link

if TYPE_CHECKING:
    from tests.support import Directory

GPU, NVME, NIC, IB, BRIDGE, VGA = 0x030200, 0x010802, 0x020000, 0x020700, 0x060400, 0x030000

_TYPES = {"endpoint": 0, "root-port": 4, "upstream": 5, "downstream": 6}

Files = dict[str, "str | bytes | Link | Directory"]


def function(
    path: str,
    class_code: int,
    link: tuple[str, str, str, str] | None = ("16.0 GT/s PCIe", "4", "16.0 GT/s PCIe", "4"),
    ids: tuple[int, int] = (0x144D, 0xA808),
    driver: str = "nvme",
    **files: str | bytes,
) -> Files:
    """The files of the function at ``path`` ("pci0000:00/0000:00:01.0/0000:01:00.0").

    ``link``: current speed and width, then the most of both. ``files``: further ones by name,
    with "__" for "/" (power__control).
    """
    folder = f"/sys/devices/{path}"
    address = path.rsplit("/", 1)[-1]
    found: Files = {
        f"/sys/bus/pci/devices/{address}": Link(f"../../../devices/{path}"),
        f"{folder}/uevent": (
            f"DRIVER={driver}\nPCI_CLASS={class_code:X}\nPCI_ID={ids[0]:04X}:{ids[1]:04X}\n"
            f"PCI_SUBSYS_ID=1028:0001\nPCI_SLOT_NAME={address}\n"
        ),
        f"{folder}/numa_node": "0\n",
    }
    if link is not None:
        names = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
        found.update({f"{folder}/{name}": f"{text}\n" for name, text in zip(names, link, strict=True)})
    found.update({f"{folder}/{name.replace('__', '/')}": text for name, text in files.items()})
    return found


def config(
    kind: str = "endpoint",
    *,
    payload: int = 256,
    supported: int = 512,
    request: int = 512,
    aspm: int = 0,
    target: int = 4,
    acs: tuple[int, int] | None = None,
    correctable: int = 0,
    uncorrectable: int = 0,
    link: tuple[int, int, int, int] = (4, 4, 4, 4),
    buses: tuple[int, int] | None = None,
    class_code: int = NVME,
) -> bytes:
    """4,096 bytes of config space: PCI Express at 40h, AER at 100h, ACS (capable, enabled) at 150h.

    ``link``: codes of the current speed, lanes, the most of both. Offsets as in the PCI Express Base
    Specification, chapter 7.
    """
    content = bytearray(4096)
    struct.pack_into("<HHHHI", content, 0, 0x144D, 0xA808, 0x0006, 0x0010, class_code << 8)
    if buses is not None:
        content[0x0E] = 1
        content[0x19], content[0x1A] = buses
    content[0x34] = 0x40
    speed, lanes, max_speed, max_lanes = link
    struct.pack_into("<HH", content, 0x40, 0x0010, _TYPES[kind] << 4 | 2)
    struct.pack_into("<I", content, 0x44, _code(supported))
    struct.pack_into("<H", content, 0x48, _code(payload) << 5 | _code(request) << 12)
    struct.pack_into("<I", content, 0x4C, max_lanes << 4 | max_speed)
    struct.pack_into("<HH", content, 0x50, aspm, lanes << 4 | speed)
    struct.pack_into("<H", content, 0x70, target)
    following = 0x150 if acs is not None else 0
    struct.pack_into("<I", content, 0x100, following << 20 | 0x1_0001)
    struct.pack_into("<I", content, 0x104, uncorrectable)
    struct.pack_into("<I", content, 0x110, correctable)
    if acs is not None:
        struct.pack_into("<IHH", content, 0x150, 0x1_000D, *acs)
    return bytes(content)


def _code(size: int) -> int:
    return {128: 0, 256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}[size]


X16 = ("32.0 GT/s PCIe", "16", "32.0 GT/s PCIe", "16")
X4 = ("16.0 GT/s PCIe", "4", "16.0 GT/s PCIe", "4")

# What rules a hypervisor out: firmware that names a maker of boxes.
BARE_METAL: Files = {
    "/proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu tsc msr\n",
    "/sys/class/dmi/id/sys_vendor": "Example Corp.\n",
    "/sys/class/dmi/id/product_name": "Box 1\n",
}
GUEST: Files = {
    "/proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu tsc msr hypervisor\n",
    "/sys/class/dmi/id/sys_vendor": "QEMU\n",
    "/sys/class/dmi/id/product_name": "Standard PC (Q35 + ICH9, 2009)\n",
}


def drive(
    link: tuple[str, str, str, str] = X4, port: tuple[str, str, str, str] = X4, **files: str | bytes
) -> Files:
    """An NVMe drive 0000:01:00.0 below root port 0000:00:01.0, on bare metal."""
    return {
        **BARE_METAL,
        **function("pci0000:00/0000:00:01.0", BRIDGE, port, (0x8086, 0x1), "pcieport"),
        **function("pci0000:00/0000:00:01.0/0000:01:00.0", NVME, link, **files),
    }


def switch(
    below: dict[str, tuple[int, tuple[str, str, str, str]]],
    uplink: tuple[str, str, str, str] = X16,
    acs: dict[str, tuple[int, int]] | None = None,
) -> Files:
    """Root port 00:01.0, switch 01:00.0, and a downstream port 02:NN.0 for each of ``below``: the bus of
    the device, its class and its link."""
    top = "pci0000:00/0000:00:01.0/0000:01:00.0"
    files = {
        **BARE_METAL,
        **function(
            "pci0000:00/0000:00:01.0",
            BRIDGE,
            X16,
            (0x8086, 0x1),
            "pcieport",
            config=config("root-port", class_code=BRIDGE),
        ),
        **function(
            top, BRIDGE, uplink, (0x1000, 0xC030), "pcieport", config=config("upstream", class_code=BRIDGE)
        ),
    }
    for number, (bus, (class_code, link)) in enumerate(below.items()):
        port = f"0000:02:{number:02x}.0"
        space = config("downstream", class_code=BRIDGE, acs=(acs or {}).get(bus, (0x7F, 0)))
        files.update(function(f"{top}/{port}", BRIDGE, link, (0x1000, 0xC030), "pcieport", config=space))
        files.update(
            function(
                f"{top}/{port}/0000:{bus}:00.0", class_code, link, (0x10DE, 0x2330), "driver", config=config()
            )
        )
    return files
