"""The kinds of change that hwtune knows. Each names its target and the value it wants.

``scope`` says what it takes to be in force: "runtime" at once, "service" a restart of a service,
"boot" the next boot. ``disruption`` names what a user must allow: "" for none, "link-reset",
"service-restart", "reboot".
"""

from __future__ import annotations

import msgspec


class _Change(msgspec.Struct, frozen=True, tag_field="kind"):
    """The fields that all kinds share are properties, so that each kind holds only its own data."""

    @property
    def scope(self) -> str:
        return "runtime"

    @property
    def disruption(self) -> str:
        return ""

    def describe(self) -> str:
        """One imperative clause for a person."""
        raise TypeError(f"{type(self).__name__} has no description")


class SysctlChange(_Change, frozen=True, tag="sysctl"):
    """``clears``: keys that this one excludes (vm.dirty_bytes and vm.dirty_ratio are one unit)."""

    key: str
    value: str
    clears: tuple[str, ...] = ()

    def describe(self) -> str:
        return f"set sysctl {self.key} = {self.value}"


class SysfsAttribute(_Change, frozen=True, tag="sysfs"):
    """``persist``: how it survives a boot: "unit" (boot-time unit) or "udev" (a rule)."""

    path: str
    value: str
    persist: str = "unit"

    def describe(self) -> str:
        return f"write {self.value} to {self.path}"


class IrqAffinity(_Change, frozen=True, tag="irq-affinity"):
    """``away``: the CPUs that are to be free of interrupts, for those that appear at a later boot."""

    irq: int
    cpus: tuple[int, ...]
    away: tuple[int, ...] = ()

    def describe(self) -> str:
        from hwtune.text.cpulist import format_list

        return f"move IRQ {self.irq} to CPUs {format_list(self.cpus)}"


class DefaultIrqAffinity(_Change, frozen=True, tag="irq-default-affinity"):
    cpus: tuple[int, ...]

    def describe(self) -> str:
        from hwtune.text.cpulist import format_list

        return f"set the default IRQ affinity to CPUs {format_list(self.cpus)}"


class IrqbalanceBan(_Change, frozen=True, tag="irqbalance-ban"):
    """Keep irqbalance off these CPUs, in its own environment file."""

    cpus: tuple[int, ...]

    @property
    def scope(self) -> str:
        return "service"

    @property
    def disruption(self) -> str:
        return "service-restart"

    def describe(self) -> str:
        from hwtune.text.cpulist import format_list

        return f"ban irqbalance from CPUs {format_list(self.cpus)} and restart it"


class KernelArguments(_Change, frozen=True, tag="kernel-arguments"):
    """``set`` replaces every argument of these names by these texts ("name=value" or "name");
    ``remove`` drops arguments by name."""

    set: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()

    @property
    def scope(self) -> str:
        return "boot"

    @property
    def disruption(self) -> str:
        return "reboot"

    def describe(self) -> str:
        parts = []
        if self.set:
            parts.append("boot with " + " ".join(self.set))
        if self.remove:
            parts.append("drop the boot argument " + " ".join(self.remove))
        return " and ".join(parts)


class ModuleOption(_Change, frozen=True, tag="module-option"):
    module: str
    option: str
    value: str

    @property
    def scope(self) -> str:
        return "boot"

    @property
    def disruption(self) -> str:
        return "reboot"

    def describe(self) -> str:
        return f"load module {self.module} with {self.option}={self.value}"


class UnitState(_Change, frozen=True, tag="unit"):
    """``state``: "started", "stopped" (both also enabled or disabled), or "masked"."""

    unit: str
    state: str

    @property
    def scope(self) -> str:
        return "service"

    @property
    def disruption(self) -> str:
        return "service-restart"

    def describe(self) -> str:
        verb = {"started": "enable and start", "stopped": "stop and disable", "masked": "mask"}[self.state]
        return f"{verb} {self.unit}"


class CpusetPartition(_Change, frozen=True, tag="cpuset-partition"):
    name: str
    cpus: tuple[int, ...]

    def describe(self) -> str:
        from hwtune.text.cpulist import format_list

        return f"make an isolated cpuset partition of CPUs {format_list(self.cpus)}"


class CpuLatencyRequest(_Change, frozen=True, tag="cpu-latency"):
    """A service that holds /dev/cpu_dma_latency open: the request lives as long as the file is."""

    microseconds: int

    @property
    def scope(self) -> str:
        return "service"

    def describe(self) -> str:
        return f"hold a CPU latency request of {self.microseconds} us in a small service"


class NvmeLatencyTolerance(_Change, frozen=True, tag="nvme-latency-tolerance"):
    """power/pm_qos_latency_tolerance_us of a controller; 0 turns autonomous power states off."""

    controller: str
    value: str

    def describe(self) -> str:
        return f"set the latency tolerance of {self.controller} to {self.value} us"


class NicSetting(_Change, frozen=True, tag="nic"):
    """``group``: coalesce, rings, channels, features or pause; ``values`` in the words of ethtool(8):
    ("adaptive-rx", "off"), ("rx-usecs", "8"), ("rx-lro", "off")."""

    interface: str
    group: str
    values: tuple[tuple[str, str], ...]

    @property
    def disruption(self) -> str:
        # many drivers start the link anew for these
        return "link-reset" if self.group in ("rings", "channels", "pause") else ""

    def describe(self) -> str:
        return f"set {self.group} of {self.interface}: " + " ".join(f"{k}={v}" for k, v in self.values)


class GpuSetting(_Change, frozen=True, tag="gpu"):
    """``setting``: persistence, power-limit (mW), locked-clocks ("min,max" MHz), compute-mode."""

    gpu: str  # PCI address
    setting: str
    value: str

    def describe(self) -> str:
        return f"set {self.setting} of GPU {self.gpu} to {self.value}"


class FileContent(_Change, frozen=True, tag="file"):
    path: str
    content: str
    mode: int = 0o644

    def describe(self) -> str:
        return f"write {self.path}"


Change = (
    SysctlChange
    | SysfsAttribute
    | IrqAffinity
    | DefaultIrqAffinity
    | IrqbalanceBan
    | KernelArguments
    | ModuleOption
    | UnitState
    | CpusetPartition
    | CpuLatencyRequest
    | NvmeLatencyTolerance
    | NicSetting
    | GpuSetting
    | FileContent
)
