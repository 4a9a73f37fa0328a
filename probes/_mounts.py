"""Mounts of block devices, and the disks that they lie on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hwtune.fact import Fact
from hwtune.model.storage import Mount
from hwtune.text.mounts import Entry, parse_fstab, parse_mountinfo, parse_mounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.host.base import Host

_TABLES = (
    ("/proc/self/mountinfo", parse_mountinfo),
    ("/proc/self/mounts", parse_mounts),
    ("/proc/mounts", parse_mounts),
)
_LIMIT = 8 << 20  # a container host has thousands of mounts
_DEPTH = 8  # of mappings upon mappings
_PARTITION = re.compile(r"p?\d+")


def read(host: Host, disks: Sequence[str]) -> Fact[list[Mount]]:
    """One entry for each device; bind mounts of it have the same file system behind them."""
    table = _table(host)
    if not table.known:
        return table.map(lambda _: [])
    lookup = _Disks(host, disks)
    found: dict[tuple[str, str], Mount] = {}
    for entry in table.get():
        if not entry.device.startswith("/dev/") or entry.fstype == "devtmpfs":
            continue
        key = (entry.device, entry.number)
        if key not in found:
            below = sorted(lookup.of_mount(entry))
            found[key] = Mount(entry.device, entry.target, entry.fstype, entry.options, below)
    return Fact(list(found.values()), table.source, None)


def _table(host: Host) -> Fact[list[Entry]]:
    first: Fact[list[Entry]] | None = None
    for path, parser in _TABLES:
        table = host.parse(path, parser, _LIMIT)
        if table.known:
            return table
        first = first or table
    assert first is not None
    return first


def fstab_discard(host: Host) -> Fact[list[str]]:
    entries = host.parse("/etc/fstab", parse_fstab)
    return entries.map(
        lambda all: [entry.target for entry in all if "discard" in entry.options and entry.fstype != "swap"]
    )


class _Disks:
    """Finds the whole disks below a device."""

    def __init__(self, host: Host, disks: Sequence[str]) -> None:
        self._host = host
        self._disks = frozenset(disks)
        self._known: dict[str, frozenset[str]] = {}
        self._mappings: dict[str, str] | None = None

    def of_mount(self, entry: Entry) -> frozenset[str]:
        """By the device's number, where the file system shows it; by its name otherwise."""
        key = entry.number if entry.number and not entry.number.startswith("0:") else entry.device
        if key not in self._known:
            self._known[key] = self._find(key)
        return self._known[key]

    def _find(self, key: str) -> frozenset[str]:
        if not key.startswith("/"):
            real = self._host.resolve(f"/sys/dev/block/{key}")
            return self._below(real.get(), 0) if real.known else frozenset()
        name = key.rpartition("/")[2]
        if key.startswith("/dev/mapper/"):
            name = self._mapping(name)
        elif name not in self._disks:
            name = self._whole(name)
        if name not in self._disks:
            return frozenset()
        return self._below(self._host.resolve(f"/sys/block/{name}").value or f"/sys/block/{name}", 0)

    def _below(self, path: str, depth: int) -> frozenset[str]:
        """The disks that the device at the real path consists of."""
        parts = path.rsplit("/", 2)
        name = parts[-1]
        if len(parts) == 3 and parts[-2] in self._disks:
            return frozenset((parts[-2],))  # a partition
        slaves = self._host.names(f"{path}/slaves")
        if not slaves.value or depth >= _DEPTH:
            return frozenset((name,)) if name in self._disks else frozenset()
        found: set[str] = set()
        for slave in slaves.value:
            real = self._host.resolve(f"{path}/slaves/{slave}")
            if real.known:
                found |= self._below(real.get(), depth + 1)
        return frozenset(found)

    def _whole(self, name: str) -> str:
        """The disk of a partition by its name: sda of sda1, nvme0n1 of nvme0n1p2."""
        for length in range(len(name) - 1, 0, -1):
            if name[:length] in self._disks and _PARTITION.fullmatch(name[length:]):
                return name[:length]
        return ""

    def _mapping(self, name: str) -> str:
        """dm-N of a mapping's name."""
        if self._mappings is None:
            found = {}
            for disk in self._disks:
                if disk.startswith("dm-"):
                    title = self._host.text(f"/sys/block/{disk}/dm/name")
                    if title.known:
                        found[title.get()] = disk
            self._mappings = found
        return self._mappings.get(name, "")
