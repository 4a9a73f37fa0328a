"""Kernel arguments where GRUB is configured as Debian does it: a drop-in that comes last (facts:
grub-mkconfig sources /etc/default/grub.d/*.cfg after /etc/default/grub, sorted by name)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes import boot_loader
from hwtune.changes.stores import Item, Render, Store, render_template
from hwtune.changes.system import ChangeError
from hwtune.text import cmdline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.changes.system import System

# after 50-cloudimg-settings.cfg, which assigns the variable, and kdump-tools.cfg, which adds to it
PATH = "/etc/default/grub.d/zz-hwtune.cfg"
MENU = "/boot/grub/grub.cfg"
_UPDATE = "/usr/sbin/update-grub"


def items(groups: dict[str, list[str]], removed: Sequence[str]) -> list[Item]:
    """``groups`` as ``boot_loader.grouped`` makes them; an item without a value only removes."""
    found = [Item("kargs", names, " ".join(texts)) for names, texts in groups.items()]
    return found + [Item("kargs", name, "") for name in removed if not any(name in g.split() for g in groups)]


def _render(system: System, items: Sequence[Item]) -> list[Render]:
    if not items:
        return [Render(PATH, None)]
    names = _names(items)
    added = _arguments(items)
    configured = _configured(system)
    if configured is not None:
        boot_loader.check_length(configured, names, added)
    return [Render(PATH, content(items))]


def content(items: Sequence[Item]) -> str:
    """The drop-in's text."""
    return render_template("grub.cfg.j2", names=_names(items), arguments=_arguments(items))


def _names(items: Sequence[Item]) -> list[str]:
    return list(dict.fromkeys(name for item in items for name in item.key.split()))


def _arguments(items: Sequence[Item]) -> list[str]:
    return [text for item in items for text in item.value.split()]


def _configured(system: System) -> str | None:
    """The default entry's arguments in the menu as it is now, with those of hwtune."""
    from hwtune.probes import _boot

    found = _boot.read(system.host).next
    return found.get() if found.known else None


def _refresh(system: System, items: Sequence[Item]) -> list[list[str]]:
    if system.host.exists(_UPDATE).value:
        return [[_UPDATE]]
    return [[boot_loader.MKCONFIG, "-o", MENU]]


def _check(system: System, items: Sequence[Item]) -> None:
    """That the menu's default entry has come out as meant."""
    configured = _configured(system)
    if configured is None or not items:
        return
    arguments = cmdline.parse(configured)
    texts = [argument.text for argument in arguments]
    missing = [text for text in _arguments(items) if text not in texts]
    wanted = set(_arguments(items))
    names = set(_names(items))
    kept = [a.text for a in arguments if a.name in names and a.text not in wanted]
    if missing:
        raise ChangeError(f"{MENU} was made anew and its default entry has no {' '.join(missing)}")
    if kept:
        raise ChangeError(f"{MENU} was made anew and its default entry still has {' '.join(kept)}")


def _running(system: System, item: Item) -> str | None:
    cmdline_now = system.host.text("/proc/cmdline")
    if not cmdline_now.known:
        return None
    names = item.key.split()
    return " ".join(a.text for a in cmdline.parse(cmdline_now.get()) if a.name in names)


STORE = Store("kargs", _render, _refresh, _check, at_boot=True, running=_running)
