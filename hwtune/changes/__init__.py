"""Typed changes: what would mend a finding. Data only; carrying them out is apply's work."""

from hwtune.changes.kinds import (
    Change,
    CpuLatencyRequest,
    CpusetPartition,
    DefaultIrqAffinity,
    FileContent,
    GpuSetting,
    IrqAffinity,
    IrqbalanceBan,
    KernelArguments,
    ModuleOption,
    NicSetting,
    NvmeLatencyTolerance,
    SysctlChange,
    SysfsAttribute,
    UnitState,
)

__all__ = [
    "Change",
    "CpuLatencyRequest",
    "CpusetPartition",
    "DefaultIrqAffinity",
    "FileContent",
    "GpuSetting",
    "IrqAffinity",
    "IrqbalanceBan",
    "KernelArguments",
    "ModuleOption",
    "NicSetting",
    "NvmeLatencyTolerance",
    "SysctlChange",
    "SysfsAttribute",
    "UnitState",
]
