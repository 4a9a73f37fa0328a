"""From a typed change to the targets that it sets now and the items that it keeps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from hwtune.changes import boot_loader, kinds
from hwtune.changes.persist import boot_unit, grub_d, modprobe_d, udev_rules
from hwtune.changes.stores import EXCLUSIVE, Item
from hwtune.changes.system import ChangeError, FileState, encode_file
from hwtune.changes.targets import (
    Attribute,
    Directory,
    ExclusiveSysctls,
    GpuAttribute,
    IrqsAway,
    IrqSetting,
    LoaderArgument,
    NicGroup,
    OwnedFile,
    Partition,
    Target,
    Unit,
    sysctl_path,
)
from hwtune.changes.targets import from_key as target_from_key
from hwtune.changes.targets.irq import off
from hwtune.text.cpulist import format_list, format_mask

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwtune.changes.system import System

__all__ = ["Compiled", "compile_change", "target_from_key"]


class Compiled(NamedTuple):
    """``targets``: (target, value) in the order in which they are set; ``items``: what lasts."""

    targets: list[tuple[Target, Any]]
    items: list[Item]


def compile_change(change: kinds.Change, system: System) -> Compiled:
    """Raises ``ChangeError`` for what cannot be done on this system."""
    maker = _MAKERS.get(type(change))
    if maker is None:
        raise ChangeError(f"{type(change).__name__} cannot be applied by this version")
    return maker(change, system)


# -- sysctls ----------------------------------------------------------------------------------

_CPU_LISTS = ("kernel.watchdog_cpumask",)
# Those that are there before systemd-sysctl runs: the kernel proper, and what is built into it. All
# others may belong to a module that is loaded later, and are set once more by the boot unit.
_EARLY = ("kernel.", "vm.", "fs.", "net.core.", "net.ipv4.", "net.unix.", "dev.")
_EARLY_BUT = ("fs.nfs.", "fs.xfs.", "net.ipv4.conf.", "net.ipv4.neigh.", "net.ipv4.vs.", "dev.raid.")


def _sysctl(change: kinds.SysctlChange, system: System) -> Compiled:
    items = [Item("sysctl", change.key, change.value)]
    for pair in EXCLUSIVE:
        if change.key in pair:
            return Compiled([(ExclusiveSysctls(pair), f"{change.key} = {change.value}")], items)
    target = Attribute(sysctl_path(change.key), "list" if change.key in _CPU_LISTS else "text")
    value = _completed(target, change.value, system)
    key = change.key.replace("/", ".")
    if not key.startswith(_EARLY) or key.startswith(_EARLY_BUT):
        items.append(boot_unit.item(target, value))
    return Compiled([(target, value)], items)


def _completed(target: Attribute, value: str, system: System) -> str:
    """A value for the first of several numbers leaves the others (kernel.printk, as proc_dointvec
    of kernel/sysctl.c does it), and they are there when it is read back."""
    now = target.read(system)
    if target.form != "text" or now is None:
        return value
    given, present = value.split(), str(now).split()
    return " ".join(given + present[len(given) :])


# -- attributes of sysfs ----------------------------------------------------------------------

# attributes that show their choices with the present one in brackets
_CHOICES = ("/transparent_hugepage/", "/queue/scheduler", "/parameters/policy")
_SUBSTATES = ("l1_1_aspm", "l1_2_aspm", "l1_1_pcipm", "l1_2_pcipm")


def _sysfs(change: kinds.SysfsAttribute, system: System) -> Compiled:
    path = os.path.normpath(change.path)
    form = "choice" if any(part in path for part in _CHOICES) else "text"
    if path.endswith("/cpumask"):
        form = "mask"
    target = Attribute(path, form)
    value = _as_shown(path, change.value, system)
    kept = (
        udev_rules.item(system, path, change.value)
        if change.persist == "udev"
        else boot_unit.item(target, value)
    )
    return Compiled([*_companions(path, change.value, system), (target, value)], [kept])


def _as_shown(path: str, value: str, system: System) -> str:
    """The value as the attribute will show it. Raises ``ChangeError`` for a choice that it has not."""
    fact = system.attribute(path)
    text = fact.get() if fact.known else ""
    if "[" in text:
        choices = text.replace("[", " ").replace("]", " ").split()
        if value not in choices:
            raise ChangeError(f"{path} has no {value}, only {', '.join(choices)}")
    if path.startswith("/sys/module/") and text in ("Y", "N"):  # a bool, by any of its names
        return {"1": "Y", "y": "Y", "on": "Y", "0": "N", "n": "N", "off": "N"}.get(value.lower(), value)
    return value


def _companions(path: str, value: str, system: System) -> list[tuple[Target, Any]]:
    """ASPM of a link: turning L1 off turns its substates off, and turning one on turns L1 on
    (drivers/pci/pcie/aspm.c, aspm_attr_store_common). Setting them one by one, the substates before
    L1 on the way off, has the way back (in the opposite order) end with each as it was."""
    folder, _, name = path.rpartition("/")
    if not folder.endswith("/link"):
        return []
    if name == "l1_aspm" and value == "0":
        others = [(Attribute(f"{folder}/{other}"), "0") for other in _SUBSTATES]
        return [(target, wanted) for target, wanted in others if target.read(system) == "1"]
    if name in _SUBSTATES and value == "1":
        return [(Attribute(f"{folder}/l1_aspm"), "1")]
    return []


def _nvme_latency(change: kinds.NvmeLatencyTolerance, system: System) -> Compiled:
    path = f"/sys/class/nvme/{change.controller}/power/pm_qos_latency_tolerance_us"
    if system.attribute(path).absent:
        raise ChangeError(f"{change.controller} has no power states that it enters by itself")
    return Compiled([(Attribute(path), change.value)], [udev_rules.item(system, path, change.value)])


# -- interrupts -------------------------------------------------------------------------------


def _irq(change: kinds.IrqAffinity, system: System) -> Compiled:
    target = IrqSetting.of(system, change.irq)
    away = format_list(change.away)
    value = off(format_list(change.cpus), away)
    items = [boot_unit.item(target, value)]
    if away:  # for those that appear at a later boot
        items.append(boot_unit.item(IrqsAway(away), ""))
    return Compiled([(target, value)], items)


def _default_irq(change: kinds.DefaultIrqAffinity, system: System) -> Compiled:
    target = Attribute("/proc/irq/default_smp_affinity", "mask")
    value = format_mask(change.cpus)
    return Compiled([(target, value)], [boot_unit.item(target, value)])


def _irqbalance(change: kinds.IrqbalanceBan, system: System) -> Compiled:
    from hwtune.changes.persist import irqbalance

    irqbalance.need(system)
    return Compiled([], [Item("irqbalance", "banned", format_list(change.cpus))])


# -- boot -------------------------------------------------------------------------------------


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


def _module_option(change: kinds.ModuleOption, system: System) -> Compiled:
    return Compiled([], [modprobe_d.item(system, change.module, change.option, change.value)])


# -- services ---------------------------------------------------------------------------------


def _unit(change: kinds.UnitState, system: System) -> Compiled:
    target = Unit(change.unit).real(system)
    now = target.read(system)
    if now is None:
        raise ChangeError(f"there is no {change.unit} here")
    enabled = now.partition(" ")[0]
    if enabled.startswith("masked") and change.state == "started":
        raise ChangeError(f"{change.unit} was masked by an administrator; systemctl unmask it, if it may run")
    kept = enabled if enabled in Unit.FIXED or enabled.startswith("masked") else ""
    value = {
        "started": f"{kept or 'enabled'} active",
        "stopped": f"{kept or 'disabled'} inactive",
        "masked": "masked inactive",
    }[change.state]
    return Compiled([(target, value)], [])


def _cpu_latency(change: kinds.CpuLatencyRequest, system: System) -> Compiled:
    if not system.host.exists("/dev/cpu_dma_latency").value:
        raise ChangeError("this kernel has no /dev/cpu_dma_latency")
    return Compiled([], [Item("cpu-latency", "microseconds", str(change.microseconds))])


def _partition(change: kinds.CpusetPartition, system: System) -> Compiled:
    target = Partition(change.name)
    value = f"isolated {format_list(change.cpus)}"
    target.need(system)
    return Compiled([(target, value)], [boot_unit.item(target, value)])


# -- devices ----------------------------------------------------------------------------------


def _nic(change: kinds.NicSetting, system: System) -> Compiled:
    target = NicGroup(change.interface, change.group, tuple(name for name, _ in change.values))
    value = target.value(system, dict(change.values))
    return Compiled([(target, value)], [boot_unit.item(target, value)])


def _gpu(change: kinds.GpuSetting, system: System) -> Compiled:
    target = GpuAttribute(change.gpu, change.setting)
    return Compiled([(target, change.value)], [boot_unit.item(target, change.value)])


# -- files ------------------------------------------------------------------------------------


def _file(change: kinds.FileContent, system: System) -> Compiled:
    folders: list[tuple[Target, Any]] = []
    folder = os.path.dirname(change.path)
    while folder != "/" and not system.directory(folder):
        folders.append((Directory(folder), "present"))
        folder = os.path.dirname(folder)
    owner, group = (0, 0) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    state = encode_file(FileState(change.content.encode(), change.mode, owner, group))
    return Compiled([*folders[::-1], (OwnedFile(change.path), state)], [])


_MAKERS: dict[type, Callable[[Any, System], Compiled]] = {
    kinds.SysctlChange: _sysctl,
    kinds.SysfsAttribute: _sysfs,
    kinds.IrqAffinity: _irq,
    kinds.DefaultIrqAffinity: _default_irq,
    kinds.IrqbalanceBan: _irqbalance,
    kinds.KernelArguments: _kernel_arguments,
    kinds.ModuleOption: _module_option,
    kinds.UnitState: _unit,
    kinds.CpusetPartition: _partition,
    kinds.CpuLatencyRequest: _cpu_latency,
    kinds.NvmeLatencyTolerance: _nvme_latency,
    kinds.NicSetting: _nic,
    kinds.GpuSetting: _gpu,
    kinds.FileContent: _file,
}
