"""Names of PCI functions, for people: of the ones that people speak of.

udevd keeps the names that it looked up at boot in small files (/run/udev/data). Where it does not
run, the hardware database itself is asked, once for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import known
from hwtune.text.udev_pci import name, parse_database

if TYPE_CHECKING:
    from hwtune.host.base import Host
    from hwtune.model.pci import PciDevice

_NAMED = ("gpu", "nvme", "nic", "infiniband", "accelerator", "storage")


def read(host: Host, devices: list[PciDevice]) -> None:
    nameless: dict[str, list[PciDevice]] = {}
    for device in devices:
        if device.name.known or device.role not in _NAMED:
            continue
        record = host.parse(f"/run/udev/data/+pci:{device.address}", parse_database)
        found = name(record.value or {})
        if found is not None:
            device.name = known(found, record.source)
        elif device.vendor.known and device.device.known:
            # how the hardware database spells it (udev's 20-pci-vendor-model.hwdb)
            key = f"pci:v{device.vendor.get():08X}d{device.device.get():08X}"
            nameless.setdefault(key, []).append(device)
    if nameless:
        _ask(host, nameless)


def _ask(host: Host, nameless: dict[str, list[PciDevice]]) -> None:
    answer = host.ask("hwdb", *sorted(nameless))
    said = answer.value if isinstance(answer.value, dict) else {}
    for key, devices in nameless.items():
        properties = said.get(key)
        found = name(properties) if isinstance(properties, dict) else None
        for device in devices:
            if found is not None:
                device.name = known(found, f"hwdb({key})")
            elif not answer.known:
                device.name = answer.map(str)
