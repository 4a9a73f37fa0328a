"""PCI functions as sysfs has them (Documentation/ABI/testing/sysfs-bus-pci)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.fact import ABSENT, INVALID, NOT_CAPTURED, UNREADABLE, Fact, gap, known
from hwtune.model.pci import Aer, Link, PciDevice
from hwtune.text import pci_sysfs as text
from hwtune.text.cpulist import parse_list, parse_mask
from hwtune.text.number import hexadecimal

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwtune.host.base import Host

_BUS = "/sys/bus/pci/devices"
_BUSES = "/sys/class/pci_bus"
_DEVICES = "/sys/devices"

# The classes of a processor's own plumbing, hundreds of them on a server: nobody asks for their
# links. Base classes: system peripherals, signal processing (uncore counters), memory controllers.
_PLUMBING = (0x05, 0x08, 0x11)
# ... and bridges other than PCI bridges (NVSwitches are 0680) and memory expanders of CXL (0502).
_NO_PLUMBING = (0x0502, 0x0604, 0x0680)

_ASPM = {"l0s_aspm": "L0s", "l1_aspm": "L1", "l1_1_aspm": "L1.1", "l1_2_aspm": "L1.2"}


def read(host: Host) -> tuple[list[PciDevice], Fact[bool]]:
    """All functions by address, and whether the list is whole."""
    folders, listed = _folders(host)
    group_types: dict[int, Fact[str]] = {}
    return [_device(host, a, folders[a], group_types) for a in sorted(folders, key=_order)], listed


def _order(address: str) -> tuple[int, str]:
    domain, _, rest = address.partition(":")
    return int(domain, 16), rest


# -- which there are ---------------------------------------------------------------------


def _folders(host: Host) -> tuple[dict[str, list[str]], Fact[bool]]:
    """Address -> its folders (real paths), the best one first."""
    listing = host.names(_BUS)
    found: dict[str, list[str]] = {}
    by_hand = False
    for name in listing.value or ():
        if text.is_address(name):
            path = f"{_BUS}/{name}"
            real = host.resolve(path).value or path
            by_hand = by_hand or real == path
            found[name] = [real]
    if found and not by_hand:
        return found, listing.map(lambda _: True)
    if listing.known and not found and host.kind == "live":
        return {}, known(True, _BUS)
    # The kernel has links there. Folders were made by hand, and other places may know more.
    _below_buses(host, found)
    _below_devices(host, found)
    if by_hand:
        return found, gap(NOT_CAPTURED, _BUS, "it holds folders in place of links, so it may not be whole")
    return found, listing.map(lambda _: True)


def _below_buses(host: Host, found: dict[str, list[str]]) -> None:
    """/sys/class/pci_bus/DDDD:BB/device is the folder of the bridge whose bus this is."""
    for bus in host.names(_BUSES).value or ():
        folder = f"{_BUSES}/{bus}/device"
        for name in host.names(folder).value or ():
            if text.is_address(name):
                real = host.resolve(f"{folder}/{name}").value or f"{folder}/{name}"
                places = found.setdefault(name, [])
                if real not in places:
                    places.append(real)


def _below_devices(host: Host, found: dict[str, list[str]]) -> None:
    ahead = [f"{_DEVICES}/{n}" for n in host.names(_DEVICES).value or () if text.is_host_bridge(n)]
    while ahead:
        folder = ahead.pop()
        for name in host.names(folder).value or ():
            if text.is_address(name):
                path = f"{folder}/{name}"
                places = found.setdefault(name, [])
                if path not in places:
                    places.insert(0, path)
                ahead.append(path)
            elif text.is_host_bridge(name):
                ahead.append(f"{folder}/{name}")


# -- one function ------------------------------------------------------------------------


class _Files:
    """The files of one function, which hand-made trees spread over several folders."""

    __slots__ = ("folders", "host")

    def __init__(self, host: Host, folders: list[str]) -> None:
        self.host = host
        self.folders = folders

    def parse(self, name: str, parser: Callable[[str], Any]) -> Fact[Any]:
        fact = self.host.parse(f"{self.folders[0]}/{name}", parser)
        for folder in self.folders[1:]:
            if fact.known:
                break
            fact = fact.or_else(self.host.parse(f"{folder}/{name}", parser))
        return fact


def _device(host: Host, address: str, folders: list[str], group_types: dict[int, Fact[str]]) -> PciDevice:
    folder = folders[0]
    device = PciDevice(address=address, source=folder)
    for path in folders:
        device.parent, device.root = text.place(path)
        if device.root is not None:
            break
    files = _Files(host, folders)
    _identify(host, files, device)
    device.numa_node = files.parse("numa_node", int)
    if _is_plumbing(device):
        return device
    device.local_cpus = files.parse("local_cpulist", parse_list)
    if not device.local_cpus.known:
        device.local_cpus = device.local_cpus.or_else(files.parse("local_cpus", parse_mask))
    device.runtime_status = files.parse("power/runtime_status", str)
    _link(files, device)
    _errors(files, device)
    if device.is_bridge:
        return device
    device.power_control = files.parse("power/control", str)
    device.enabled = files.parse("enable", _enabled)
    physical = host.resolve(f"{folder}/physfn")
    if physical.known and text.is_address(_last(physical.get())):
        device.physical_function = _last(physical.get())
    _iommu(host, files, device, group_types)
    if device.role in ("gpu", "accelerator"):
        device.bar_bytes = files.parse("resource", text.parse_resource)
    if device.role:
        device.power_state = files.parse("power_state", str)
        _aspm(host, files, device)
    return device


def _identify(host: Host, files: _Files, device: PciDevice) -> None:
    """``uevent`` has in one read what six files say."""
    said = files.parse("uevent", text.parse_uevent)
    values: dict[str, str] = said.value or {}
    device.class_code = _hex_of(said, values.get("PCI_CLASS"), files, "class")
    vendor, _, product = values.get("PCI_ID", "").partition(":")
    device.vendor = _hex_of(said, vendor, files, "vendor")
    device.device = _hex_of(said, product, files, "device")
    vendor, _, product = values.get("PCI_SUBSYS_ID", "").partition(":")
    device.subsystem_vendor = _hex_of(said, vendor, files, "subsystem_vendor")
    device.subsystem_device = _hex_of(said, product, files, "subsystem_device")
    if "DRIVER" in values:
        device.driver = known(values["DRIVER"], said.source)
    else:
        device.driver = host.link_name(f"{files.folders[0]}/driver")
        if device.driver.gap == NOT_CAPTURED and "PCI_ID" in values:
            # the kernel names a bound driver in every uevent (drivers/base/core.c, dev_uevent)
            device.driver = gap(ABSENT, said.source, "no DRIVER= line")
    if not device.class_code.known:
        names = (n for folder in files.folders for n in host.names(folder).value or ())
        device.class_folders = sorted({n for n in names if n in ("infiniband", "net", "nvme")})


def _hex_of(said: Fact[Any], digits: str | None, files: _Files, name: str) -> Fact[int]:
    if digits:
        try:
            return known(hexadecimal(digits), said.source)
        except ValueError:
            return files.parse(name, text.parse_hex)
    return files.parse(name, text.parse_hex)


def _is_plumbing(device: PciDevice) -> bool:
    code = device.class_code.value
    if code is None or code >> 8 in _NO_PLUMBING:
        return False
    return code >> 16 in _PLUMBING or code >> 16 == 0x06


def _link(files: _Files, device: PciDevice) -> None:
    link = device.link
    if asleep(device):
        reason = asleep_gap(device)
        link.current_gts = link.current_width = link.max_gts = link.max_width = reason
        return
    link.max_gts = files.parse("max_link_speed", text.parse_speed)
    if link.max_gts.absent:
        # the files exist exactly where the function has a PCI Express capability
        none: Fact[Any] = link.max_gts
        device.link = Link(none, none, none, none)
        return
    link.max_width = _width(files, "max_link_width")
    link.current_gts = files.parse("current_link_speed", text.parse_speed)
    link.current_width = _width(files, "current_link_width")


def _width(files: _Files, name: str) -> Fact[int]:
    found = files.parse(name, text.parse_width)
    if found.gap == INVALID:
        meaning = {
            "'0'": "0: it has no link of its own",
            "'63'": "63: all ones, the device does not answer",
            "'255'": "255: unknown to the kernel",
        }.get(found.detail)
        if meaning is not None:
            return Fact(None, found.source, INVALID, meaning)
    return found


def asleep(device: PciDevice) -> bool:
    """Reading the config space or the link of a suspended function would wake it."""
    return device.runtime_status.value in ("suspended", "suspending")


def asleep_gap(device: PciDevice) -> Fact[Any]:
    source = device.runtime_status.source
    return gap(UNREADABLE, source, "runtime-suspended, and reading would wake it; read it while it is in use")


def _errors(files: _Files, device: PciDevice) -> None:
    correctable = files.parse("aer_dev_correctable", text.parse_error_counts)
    if correctable.absent:
        device.aer = Aer(correctable, correctable, correctable)
        return
    device.aer = Aer(
        correctable,
        files.parse("aer_dev_nonfatal", text.parse_error_counts),
        files.parse("aer_dev_fatal", text.parse_error_counts),
    )


def _iommu(host: Host, files: _Files, device: PciDevice, group_types: dict[int, Fact[str]]) -> None:
    device.iommu_group = host.link_name(f"{files.folders[0]}/iommu_group").map(int)
    if not device.iommu_group.known:
        device.iommu_type = device.iommu_group.map(str)
        return
    group = device.iommu_group.get()
    if group not in group_types:
        group_types[group] = host.text(f"/sys/kernel/iommu_groups/{group}/type")
    device.iommu_type = group_types[group]


def _aspm(host: Host, files: _Files, device: PciDevice) -> None:
    """The ``link`` folder has a file for each state that both ends can do, while the kernel
    controls ASPM (drivers/pci/pcie/aspm.c, aspm_ctrl_attrs_are_visible)."""
    folder = f"{files.folders[0]}/link"
    listing = host.names(folder)
    names = [name for name in _ASPM if name in (listing.value or ())]
    if not names:
        device.link.aspm = gap(ABSENT, folder, "no ASPM control") if listing.known else listing.map(_never)
        return
    enabled = []
    for name in names:
        value = host.text(f"{folder}/{name}")
        if not value.known:
            device.link.aspm = value.map(_never)
            return
        if value.get() == "1":
            enabled.append(_ASPM[name])
    device.link.aspm = known(enabled, folder)
    device.link.aspm_files = [f"{folder}/{name}" for name in names]


def _never(_: object) -> list[str]:
    raise ValueError("no value")


def _enabled(content: str) -> bool:
    return int(content) > 0


def _last(path: str) -> str:
    return path.rsplit("/", 1)[-1]
