"""NVMe controllers as sysfs has them (drivers/nvme/host/sysfs.c, multipath.c)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hwtune.fact import ABSENT, Fact, gap
from hwtune.model.storage import NvmeController
from hwtune.text.nvme_dmesg import controller_of
from hwtune.text.pci_sysfs import is_address

if TYPE_CHECKING:
    from hwtune.host.base import Host

_CLASS = "/sys/class/nvme"
_BLOCK = "/sys/block"
_PCI = "/sys/bus/pci/devices"

_NAME = re.compile(r"nvme\d+")
_NAMESPACE = re.compile(r"nvme(\d+)(c\d+)?n(\d+)")
_LATENCY = re.compile(r"\d{1,10}|any|auto")


def read(host: Host) -> tuple[list[NvmeController], Fact[bool]]:
    """All controllers by number, and whether the list is whole."""
    names = host.names(_CLASS)
    folders = {name: f"{_CLASS}/{name}" for name in names.value or () if _NAME.fullmatch(name)}
    if names.unknown:
        _by_disks(host, folders)
        _by_functions(host, folders)
    controllers = [_controller(host, name, folders[name]) for name in folders]
    return sorted(controllers, key=lambda c: number(c.name)), names.map(lambda _: True)


def number(name: str) -> tuple[int, str]:
    """For sorting: by the number of a kernel's name; names of texts come last."""
    return (int(name[4:]), "") if _NAME.fullmatch(name) else (1 << 32, name)


# -- where the class is not captured ------------------------------------------------------


def _by_disks(host: Host, folders: dict[str, str]) -> None:
    """A disk lies in its controller's folder; before 4.4 beside it, in that of the PCI function."""
    for disk in host.names(_BLOCK).value or ():
        name = controller_of(disk)
        real = host.resolve(f"{_BLOCK}/{disk}") if name else None
        if name is None or real is None or not real.known:
            continue
        above = real.get().rpartition("/")[0]
        if above.rpartition("/")[2] == name or above.endswith("/block"):
            folders.setdefault(name, above)


def _by_functions(host: Host, folders: dict[str, str]) -> None:
    if folders:
        return
    for address in host.names(_PCI).value or ():
        for name in host.names(f"{_PCI}/{address}/nvme").value or ():
            if _NAME.fullmatch(name):
                folders.setdefault(name, f"{_PCI}/{address}/nvme/{name}")


# -- one controller -----------------------------------------------------------------------


def _controller(host: Host, name: str, folder: str) -> NvmeController:
    real = host.resolve(folder)
    path = real.value or folder
    controller = NvmeController(name)
    for field, file in (("model", "model"), ("serial", "serial"), ("firmware", "firmware_rev")):
        setattr(controller, field, host.text(f"{path}/{file}"))
    controller.transport = host.text(f"{path}/transport")
    controller.state = host.text(f"{path}/state")
    controller.pci_address = _address(host, real, path)
    controller.numa_node = host.integer(f"{path}/numa_node")
    if not controller.numa_node.known:
        controller.numa_node = controller.numa_node.or_else(host.integer(f"{path}/device/numa_node"))
    _namespaces(host, controller, path)
    controller.queue_count = host.integer(f"{path}/queue_count")
    if not controller.queue_count.known:
        controller.queue_count = controller.queue_count.or_else(_hardware_queues(host, controller, path))
    controller.latency_tolerance = host.parse(f"{path}/power/pm_qos_latency_tolerance_us", _tolerance)
    return controller


def _address(host: Host, real: Fact[str], path: str) -> Fact[str]:
    """From its place in the device tree; a controller of a fabric has no PCI function."""
    found = [part for part in (real.value or "").split("/") if is_address(part)]
    if found:
        return Fact(found[-1], real.source, None)
    said = host.text(f"{path}/address")
    if said.known and not is_address(said.get()):
        return gap(ABSENT, said.source, said.get())
    return said


def _namespaces(host: Host, controller: NvmeController, path: str) -> None:
    disks = set()
    for name in host.names(path).value or ():
        match = _NAMESPACE.fullmatch(name)
        if match is not None:
            disks.add(f"nvme{match[1]}n{match[3]}")
            if match[2]:
                controller.paths.append(name)
    controller.namespaces = sorted(disks, key=lambda disk: int(disk.rpartition("n")[2]))


def _hardware_queues(host: Host, controller: NvmeController, path: str) -> Fact[int]:
    """With the admin queue, from the queues that the block layer has, for kernels without a count."""
    for disk in controller.paths or controller.namespaces:
        queues = host.names(f"{path}/{disk}/mq")
        if queues.known:
            return queues.map(lambda names: 1 + sum(name.isdecimal() for name in names))
    return controller.queue_count


def _tolerance(text: str) -> str:
    """Microseconds, "any", or "auto" for no constraint (drivers/base/power/sysfs.c)."""
    if not _LATENCY.fullmatch(text):
        raise ValueError("no latency")
    return text
