"""Options of modules, in a modprobe.d file that comes after all others (modprobe.d(5): files are
taken in the order of their names, and of an option that is given twice the module takes the last)."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from hwtune.changes.stores import Item, Render, Store, render_template
from hwtune.changes.system import ChangeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.changes.system import System

PATH = "/etc/modprobe.d/zz-hwtune.conf"
_NAME = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_VALUE = re.compile(r"[A-Za-z0-9_.,:=;/+-]*", re.ASCII)
_LISTING_S, _BUILDING_S = 120.0, 900.0


def item(system: System, module: str, option: str, value: str) -> Item:
    """Raises ``ChangeError`` for a module that is part of the kernel, which modprobe never loads."""
    if not (_NAME.fullmatch(module) and _NAME.fullmatch(option) and _VALUE.fullmatch(value)):
        raise ChangeError(f"{module} {option}={value} cannot stand in a modprobe.d file")
    name = module.replace("-", "_")
    builtin = system.host.text(f"/lib/modules/{_release(system)}/modules.builtin")
    if builtin.known and any(_module(line) == name for line in builtin.get().splitlines()):
        raise ChangeError(
            f"{module} is built into this kernel, which takes {name}.{option}={value} as a boot argument"
        )
    return Item("modprobe", f"{name} {option}", value)


def _release(system: System) -> str:
    found = system.host.text("/proc/sys/kernel/osrelease")
    return found.get() if found.known else os.uname().release


def _module(path: str) -> str:
    """The module's name in ".../drivers/nvme/host/nvme-core.ko.xz"."""
    return path.strip().rpartition("/")[2].partition(".")[0].replace("-", "_")


def _render(system: System, items: Sequence[Item]) -> list[Render]:
    options: dict[str, list[str]] = {}
    for i in items:
        module, _, option = i.key.partition(" ")
        options.setdefault(module, []).append(f"{option}={i.value}")
    content = render_template("modprobe.conf.j2", options=options) if items else None
    return [Render(PATH, content)]


def _refresh(system: System, items: Sequence[Item]) -> list[list[str]]:
    """A module that is loaded in the initramfs has its options from there."""
    for lister, image, build in (
        ("lsinitramfs", f"/boot/initrd.img-{_release(system)}", ["update-initramfs", "-u"]),
        ("lsinitrd", "", ["dracut", "--force"]),
    ):
        listed = system.host.command([lister, image] if image else [lister], _LISTING_S)
        if listed.absent:
            continue
        # without a listing, the image may hold anything: build it
        if not listed.known or listed.get().status or _holds(listed.get().stdout, items):
            return [build]
    return []


def _holds(listing: str, items: Sequence[Item]) -> bool:
    inside = {_module(line) for line in listing.splitlines() if ".ko" in line}
    own = PATH.lstrip("/") in listing  # of an option that is no longer wanted
    return own or any(i.key.partition(" ")[0] in inside for i in items)


def _running(system: System, item: Item) -> str | None:
    """None where the module is not loaded, or does not show the option."""
    module, _, option = item.key.partition(" ")
    now = system.attribute(f"/sys/module/{module}/parameters/{option}")
    if not now.known:
        return None
    bools = {"1": "Y", "y": "Y", "0": "N", "n": "N"}
    text = now.get()
    same = text in ("Y", "N") and bools.get(item.value.lower(), item.value) == text
    return item.value if same else text


STORE = Store("modprobe", _render, _refresh, at_boot=True, running=_running)
