"""Attributes of devices that come and go: udev rules, which set them whenever the device appears.

A rule knows its device by what stays when devices are numbered anew: the serial number or world-wide
name of a drive, the address of a PCI function (udev(7): ATTR keys match and set sysfs attributes).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hwtune.changes.stores import Item, Render, Store, render_template
from hwtune.changes.system import ChangeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.changes.system import System

# after all of the system's own: 60-block-scheduler.rules, 71-*, 99-systemd.rules
PATH = "/etc/udev/rules.d/99-zz-hwtune.rules"
# what needs no escape in a match (udev(7): shell patterns, and | for alternatives) or a value
_PLAIN = re.compile(r"[A-Za-z0-9_.:/ +-]+", re.ASCII)
_PLACES = (
    (
        re.compile(r"/sys/(?:bus/pci/devices|devices/.+)/([0-9a-f]+:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])/(.+)"),
        "pci",
    ),
    (re.compile(r"/sys/(?:block|class/block)/([^/]+)/(.+)"), "block"),
    (re.compile(r"/sys/class/nvme/([^/]+)/(.+)"), "nvme"),
    (re.compile(r"/sys/class/net/([^/]+)/(.+)"), "net"),
)
# subsystem -> attributes that say which device it is, the best first
_IDENTITIES = {
    "block": ("wwid", "device/wwid", "serial", "dm/uuid", "md/uuid"),
    "nvme": ("serial", "address"),
    "net": ("address",),
}


def item(system: System, path: str, value: str) -> Item:
    """Whenever the device of the attribute appears, it is to have ``value``."""
    found = [(match, subsystem) for place, subsystem in _PLACES if (match := place.fullmatch(path))]
    if not found:
        raise ChangeError(f"{path} is no attribute of a device that udev knows")
    match, subsystem = found[0]
    name, attribute = match[1], match[2]
    if not _PLAIN.fullmatch(value) or not _PLAIN.fullmatch(attribute):
        raise ChangeError(f"{value[:40]!r} cannot stand in a udev rule")
    # Of a block device the whole disk: partitions have no queue.
    identity = _identity(system, path[: -len(attribute)], subsystem, name)
    kind = ', ENV{DEVTYPE}=="disk"' if subsystem == "block" else ""
    return Item("udev", f'SUBSYSTEM=="{subsystem}"{kind}, {identity}, ATTR{{{attribute}}}', value)


def _identity(system: System, folder: str, subsystem: str, name: str) -> str:
    for attribute in _IDENTITIES.get(subsystem, ()):
        fact = system.attribute(folder + attribute)
        # zeros are what drives without a number of their own say
        if fact.known and fact.get().strip("0-.: ") and _PLAIN.fullmatch(fact.get()):
            return f'ATTR{{{attribute}}}=="{fact.get()}"'
    if not _PLAIN.fullmatch(name):
        raise ChangeError(f"{name[:40]!r} cannot stand in a udev rule")
    return f'KERNEL=="{name}"'


def _render(system: System, items: Sequence[Item]) -> list[Render]:
    content = render_template("udev.rules.j2", items=items) if items else None
    return [Render(PATH, content)]


def _refresh(system: System, items: Sequence[Item]) -> list[list[str]]:
    # nothing is triggered: the change itself has set the values that are in force
    return [["udevadm", "control", "--reload"]]


STORE = Store("udev", _render, _refresh)
