"""From a typed change to the targets that it sets now and the items that it keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hwtune.changes import boot_loader, kinds
from hwtune.changes.persist import grub_d
from hwtune.changes.stores import Item
from hwtune.changes.system import ChangeError
from hwtune.changes.targets import (
    Attribute,
    ExclusiveSysctls,
    LoaderArgument,
    Target,
    Unit,
    sysctl_path,
)
from hwtune.changes.targets import from_key as target_from_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwtune.changes.system import System

__all__ = ["Compiled", "compile_change", "target_from_key"]


class Compiled(NamedTuple):
    """``targets``: (target, value) in the order in which they are set; ``items``: what lasts."""

    targets: list[tuple[Target, Any]]
    items: list[Item]


_EXCLUSIVE = (
    ("vm.dirty_bytes", "vm.dirty_ratio"),
    ("vm.dirty_background_bytes", "vm.dirty_background_ratio"),
)
# attributes that show their choices with the present one in brackets
_CHOICES = ("/transparent_hugepage/", "/queue/scheduler", "/parameters/policy")


def compile_change(change: kinds.Change, system: System) -> Compiled:
    """Raises ``ChangeError`` for what cannot be done on this system."""
    maker = _MAKERS.get(type(change))
    if maker is None:
        raise ChangeError(f"{type(change).__name__} cannot be applied by this version")
    return maker(change, system)


def _sysctl(change: kinds.SysctlChange, system: System) -> Compiled:
    item = Item("sysctl", change.key, change.value)
    for pair in _EXCLUSIVE:
        if change.key in pair:
            return Compiled([(ExclusiveSysctls(pair), f"{change.key} = {change.value}")], [item])
    return Compiled([(Attribute(sysctl_path(change.key)), change.value)], [item])


def _sysfs(change: kinds.SysfsAttribute, system: System) -> Compiled:
    form = "choice" if any(part in change.path for part in _CHOICES) else "text"
    if change.path.endswith("/cpumask"):
        form = "mask"
    return Compiled(
        [(Attribute(change.path, form), change.value)], [Item(change.persist, change.path, change.value)]
    )


def _unit(change: kinds.UnitState, system: System) -> Compiled:
    value = {"started": "enabled active", "stopped": "disabled inactive", "masked": "masked inactive"}[
        change.state
    ]
    return Compiled([(Unit(change.unit), value)], [])


def _kernel_arguments(change: kinds.KernelArguments, system: System) -> Compiled:
    removed = [boot_loader.name_of(name) for name in change.remove]
    groups = boot_loader.grouped(change.set)
    try:
        loader = boot_loader.find(system)
    except ChangeError as error:
        raise ChangeError(f"{error}; {boot_loader.by_hand(change.set, change.remove)}") from None
    if loader == boot_loader.GRUB:
        return Compiled([], grub_d.items(groups, removed))
    wanted = {**groups, **{name: [] for name in removed if not any(name in g.split() for g in groups)}}
    return Compiled([(LoaderArgument(loader, n), {"all": texts}) for n, texts in wanted.items()], [])


_MAKERS: dict[type, Callable[[Any, System], Compiled]] = {
    kinds.SysctlChange: _sysctl,
    kinds.SysfsAttribute: _sysfs,
    kinds.UnitState: _unit,
    kinds.KernelArguments: _kernel_arguments,
}
