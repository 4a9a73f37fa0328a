"""GPUs and the links between them."""

from __future__ import annotations

import msgspec

from hwtune.fact import Fact, not_probed
from hwtune.model.pci import Link

# Why a GPU's clocks are below their maximum (NVML API reference, NvmlClocksEventReasons), as bits.
# hw_slowdown is also raised for a moment at any change of the P-state; the two after it say why.
EVENT_REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}

# PCIe generation -> GT/s
GENERATIONS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}


class NvLink(msgspec.Struct):
    link: int
    active: Fact[bool] = not_probed()
    version: Fact[int] = not_probed()
    remote_type: Fact[str] = not_probed()  # gpu, switch, npu, unknown
    remote_address: Fact[str] = not_probed()
    speed_mbps: Fact[int] = not_probed()  # MB/s
    errors: Fact[dict[str, int]] = not_probed()


class GpuProcess(msgspec.Struct):
    pid: int
    name: str
    kind: str  # compute, graphics
    memory_bytes: int | None


class Gpu(msgspec.Struct):
    """One GPU. Clocks in MHz, power in milliwatts, temperatures in degrees Celsius."""

    index: int | None
    address: str | None  # DDDD:BB:DD.F, lower case
    source: str = ""
    name: Fact[str] = not_probed()
    vendor: str = "nvidia"
    uuid: Fact[str] = not_probed()
    architecture: Fact[str] = not_probed()
    driver: Fact[str] = not_probed()  # the kernel driver that is bound: nvidia, nouveau, vfio-pci ...
    persistence: Fact[bool] = not_probed()
    compute_mode: Fact[str] = not_probed()  # Default, Exclusive_Process, Prohibited
    mig: Fact[bool] = not_probed()
    mig_pending: Fact[bool] = not_probed()  # what the mode will be after the next reset
    virtualization: Fact[str] = not_probed()  # none, pass-through, vgpu, host-vgpu, host-vsga
    performance_state: Fact[int] = not_probed()  # 0 is P0
    clocks: Fact[dict[str, int]] = not_probed()  # sm, memory, graphics, video
    max_clocks: Fact[dict[str, int]] = not_probed()
    application_clocks: Fact[dict[str, int]] = not_probed()
    default_application_clocks: Fact[dict[str, int]] = not_probed()
    event_reasons: Fact[list[str]] = not_probed()  # active clock event reasons, as in EVENT_REASONS
    throttle_counters_us: Fact[dict[str, int]] = not_probed()  # since the driver was loaded, by reason
    power_mw: Fact[int] = not_probed()
    power_limit_mw: Fact[int] = not_probed()  # enforced
    power_default_mw: Fact[int] = not_probed()
    power_min_mw: Fact[int] = not_probed()
    power_max_mw: Fact[int] = not_probed()
    temperature_c: Fact[int] = not_probed()
    slowdown_c: Fact[int] = not_probed()
    memory_total_bytes: Fact[int] = not_probed()
    memory_used_bytes: Fact[int] = not_probed()
    utilization_pct: Fact[int] = not_probed()
    ecc_enabled: Fact[bool] = not_probed()
    ecc_pending: Fact[bool] = not_probed()
    # "volatile.dram_uncorrectable", "aggregate.double_bit.total" ...: as nvidia-smi -q -x names them
    ecc_counts: Fact[dict[str, int]] = not_probed()
    sram_threshold_exceeded: Fact[bool] = not_probed()
    retired_pages: Fact[dict[str, int]] = not_probed()  # single_bit, double_bit
    retired_pending: Fact[bool] = not_probed()
    remapped_rows: Fact[dict[str, int]] = not_probed()  # correctable, uncorrectable
    remap_pending: Fact[bool] = not_probed()
    remap_failed: Fact[bool] = not_probed()
    link: Link = msgspec.field(default_factory=Link)
    replay_count: Fact[int] = not_probed()
    cpu_affinity: Fact[list[int]] = not_probed()
    numa_node: Fact[int] = not_probed()
    processes: Fact[list[GpuProcess]] = not_probed()
    nvlinks: Fact[list[NvLink]] = not_probed()  # ABSENT where the GPU has none
    nvlinks_all_inactive: Fact[bool] = not_probed()  # True where nvidia-smi says so without a list
    fabric_state: Fact[str] = not_probed()  # Not Started, In Progress, Completed; ABSENT without a fabric
    fabric_status: Fact[str] = not_probed()
    fabric_health: Fact[str] = not_probed()  # Healthy, Unhealthy, Limited Capacity
    fabric_problems: Fact[list[str]] = not_probed()  # what the health is made of: route unhealthy ...
    recovery_action: Fact[str] = not_probed()  # None, GPU Reset, Node Reboot ...
    lost: Fact[bool] = not_probed()  # True where the driver says that the GPU is lost
    labelled: bool = True  # False where the text that told of it names no GPU

    @property
    def idle(self) -> bool | None:
        """Whether nothing runs, as far as the clocks and the utilization say; None: not known.

        An idle GPU may train its PCIe link down and lower its clocks (facts C2).
        """
        if self.event_reasons.known and "gpu_idle" in self.event_reasons.get():
            return True
        if self.utilization_pct.known and self.utilization_pct.get() > 0:
            return False
        if self.performance_state.known and self.performance_state.get() >= 5:
            return True
        if self.performance_state.known and self.event_reasons.known and self.performance_state.get() == 0:
            return False
        return None


class GpuPair(msgspec.Struct):
    """How two devices of the topology matrix reach each other: NV#, PIX, PXB, PHB, NODE, SYS."""

    first: str  # "GPU0", "NIC2"
    second: str
    path: str
    source: str
    p2p: str | None = None  # OK, CNS, GNS, TNS, NS, DR, U: the worst of reads and writes
    p2p_source: str = ""


class GpuEvent(msgspec.Struct):
    """An Xid or another complaint of the driver in the kernel log, with how often it came."""

    source: str
    line: str  # the first of them
    kind: str  # xid, sxid (of an NVSwitch), lost, mismatch, init-failed, probe-failed
    xid: int | None = None
    address: str | None = None  # DDDD:BB:DD.F
    caused_by: int | None = None  # the Xid that the line names as its cause
    process: str = ""
    detail: str = ""  # the rest of the line; for sxid "fatal" or "non-fatal"
    count: int = 1


class GpuHost(msgspec.Struct):
    """What concerns all GPUs of the host."""

    listed: Fact[bool] = not_probed()  # True: all GPUs of the machine are in the list
    driver_version: Fact[str] = not_probed()  # of the loaded kernel module
    cuda_version: Fact[str] = not_probed()
    nvml: Fact[bool] = not_probed()  # True: the library answered; False: detail of nvml_error
    nvml_error: str = ""  # name of the NVML error, "HUNG" or "CRASHED", and at which call
    driver_parameters: Fact[dict[str, str]] = not_probed()  # /proc/driver/nvidia/params
    nvswitches: Fact[int] = not_probed()
    environment: dict[str, list[tuple[str, str]]] = {}  # NAME -> [(source, value)]
    environment_known: Fact[bool] = not_probed()
    module_options: dict[str, list[tuple[str, str]]] = {}  # option of nvidia -> [(source, value)]
    pairs: list[GpuPair] = []
    matrix: str = ""  # the pasted matrix of the topology, which names NICs where NVML does not
    rows_missing: dict[str, str] = {}  # "GPU4" -> the text whose matrix lacks (part of) its row
    nic_names: dict[str, str] = {}  # "NIC0" -> "mlx5_0"
    affinity: dict[str, str] = {}  # "GPU0" -> CPU affinity as printed
    events: list[GpuEvent] = []
    log_known: Fact[bool] = not_probed()


def subject(gpus: list[Gpu], gpu: Gpu) -> str:
    """How findings name a GPU: by its index, else by its PCI address. The only one of a text that
    names none is the first in the list."""
    if gpu.index is not None:
        return f"gpu:{gpu.index}"
    if gpu.address is not None:
        return f"pci:{gpu.address}"
    return "gpu:0" if len(gpus) == 1 else "gpu:unknown"


def subject_at(gpus: list[Gpu], address: str) -> str:
    """The same for a GPU of which only the PCI address is known."""
    for gpu in gpus:
        if gpu.address == address:
            return subject(gpus, gpu)
    return f"pci:{address}"
