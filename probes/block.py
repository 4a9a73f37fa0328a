"""Block devices: whole disks with their queues (Documentation/ABI/stable/sysfs-block), and mounts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hwtune.fact import Fact, gap
from hwtune.model.storage import Block, BlockDevice
from hwtune.probes import _mounts
from hwtune.text.meminfo import selected
from hwtune.text.nvme_dmesg import controller_of
from hwtune.text.pci_sysfs import is_address

if TYPE_CHECKING:
    from hwtune.host.base import Host

PART = "block"

_BLOCK = "/sys/block"
# It has partitions, too.
_CLASS = "/sys/class/block"

# No drives of their own: memory, mappings of other disks, removable media, and disks of the network.
_VIRTUAL = re.compile(r"(?:loop|ram|zram|dm-|md|nbd|sr|fd|drbd|bcache|zd)\d|rbd\d")
# One path of a multipath namespace; the disk above the paths is the one that is used.
_PATH = re.compile(r"nvme\d+c\d+n\d+")


def read(host: Host) -> Block:
    places, listed = _disks(host)
    found = Block(listed=listed)
    for name, folder in places.items():
        if _VIRTUAL.match(name) or _PATH.match(name):
            found.others.append(name)
        else:
            found.devices.append(_device(host, folder, name))
    found.devices.sort(key=lambda device: order(device.name))
    found.mounts = _mounts.read(host, list(places))
    found.fstab_discard = _mounts.fstab_discard(host)
    return found


def order(name: str) -> tuple[str, int, str]:
    """nvme2n1 before nvme10n1, sda before sdb."""
    match = re.match(r"(\D*)(\d*)(.*)", name)
    assert match is not None
    return match[1], int(match[2] or 0), match[3]


def _disks(host: Host) -> tuple[dict[str, str], Fact[bool]]:
    """Whole disks, each with the folder that it is in. The class has partitions, too; on a live host
    it has no disk that the other folder has not."""
    names = host.names(_BLOCK)
    places = dict.fromkeys(names.value or (), _BLOCK)
    listed = names.map(lambda _: True)
    if host.kind == "live":
        return places, listed
    both = host.names(_CLASS)
    every = frozenset((*places, *(both.value or ())))
    for name in both.value or ():
        if name not in places and not _is_partition(host, name, every):
            places[name] = _CLASS
    return places, listed.or_else(both.map(lambda _: True))


def _is_partition(host: Host, name: str, disks: frozenset[str]) -> bool:
    real = host.resolve(f"{_CLASS}/{name}")
    return real.known and real.get().rsplit("/", 2)[-2] in disks


def _device(host: Host, folder: str, name: str) -> BlockDevice:
    path = f"{folder}/{name}"
    real = host.resolve(path)
    path = real.value or path
    device = BlockDevice(name, pci_address=_pci_address(real))
    device.size_bytes = host.integer(f"{path}/size").map(lambda sectors: sectors * 512)
    device.rotational = host.integer(f"{path}/queue/rotational").map(bool)
    schedulers = host.text(f"{path}/queue/scheduler")
    device.scheduler = schedulers.map(_scheduler)
    device.schedulers = schedulers.map(lambda text: [word.strip("[]") for word in text.split()])
    if not name.startswith("nvme"):
        device.model = host.text(f"{path}/device/model")
        return device
    device.nvme = controller_of(name)
    device.nomerges = host.integer(f"{path}/queue/nomerges")
    device.rq_affinity = host.integer(f"{path}/queue/rq_affinity")
    device.wbt_lat_us = host.integer(f"{path}/queue/wbt_lat_usec")
    device.write_cache = host.parse(f"{path}/queue/write_cache", _write_cache)
    device.read_ahead_kb = host.integer(f"{path}/queue/read_ahead_kb")
    device.discard_granularity = host.integer(f"{path}/queue/discard_granularity")
    device.discard_max_bytes = host.integer(f"{path}/queue/discard_max_bytes")
    device.io_poll = host.integer(f"{path}/queue/io_poll")
    device.io_timeout_ms = host.integer(f"{path}/queue/io_timeout")
    device.nr_requests = host.integer(f"{path}/queue/nr_requests")
    return device


def _pci_address(real: Fact[str]) -> Fact[str]:
    if not real.known:
        return Fact(None, real.source, real.gap, real.detail)
    found = [part for part in real.get().split("/") if is_address(part)]
    return (
        Fact(found[-1], real.source, None) if found else gap("absent", real.source, "no PCI device above it")
    )


def _scheduler(text: str) -> str:
    """The one in brackets; a queue without schedulers prints just "none"."""
    return text if text and "[" not in text and len(text.split()) == 1 else selected(text)


def _write_cache(text: str) -> str:
    if text not in ("write back", "write through"):
        raise ValueError("neither write back nor write through")
    return text
