"""GPUs and the links between them."""

from __future__ import annotations

import msgspec

from hwtune.fact import Fact, not_probed
from hwtune.model.pci import Link


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
    persistence: Fact[bool] = not_probed()
    compute_mode: Fact[str] = not_probed()
    mig: Fact[bool] = not_probed()
    virtual: Fact[bool] = not_probed()  # vGPU guest
    performance_state: Fact[int] = not_probed()  # 0 is P0
    clocks: Fact[dict[str, int]] = not_probed()  # sm, memory, graphics, video
    max_clocks: Fact[dict[str, int]] = not_probed()
    application_clocks: Fact[dict[str, int]] = not_probed()
    locked_clocks: Fact[list[int]] = not_probed()
    event_reasons: Fact[list[str]] = not_probed()  # active clock event reasons, by field name
    throttle_counters_us: Fact[dict[str, int]] = not_probed()
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
    ecc_counts: Fact[dict[str, int]] = not_probed()  # "volatile.uncorrectable", "aggregate.sram..." ...
    retired_pages: Fact[dict[str, int]] = not_probed()
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
    fabric_state: Fact[str] = not_probed()
    fabric_status: Fact[str] = not_probed()
    fabric_health: Fact[str] = not_probed()
    recovery_action: Fact[str] = not_probed()
    lost: bool = False


class GpuPair(msgspec.Struct):
    """How two devices of the topology matrix reach each other: NV#, PIX, PXB, PHB, NODE, SYS."""

    first: str  # "GPU0", "NIC2"
    second: str
    path: str
    source: str
    p2p: str | None = None  # OK, CNS, GNS, TNS, NS, DR ... for reads


class GpuEvent(msgspec.Struct):
    """An Xid or another complaint of the driver in the kernel log."""

    source: str
    line: str
    kind: str  # xid, lost, nvlink ...
    xid: int | None = None
    address: str | None = None
    count: int = 1


class GpuHost(msgspec.Struct):
    """What concerns all GPUs of the host."""

    driver_version: Fact[str] = not_probed()
    cuda_version: Fact[str] = not_probed()
    nvml: Fact[bool] = not_probed()  # True: the library answered
    driver_parameters: Fact[dict[str, str]] = not_probed()  # /proc/driver/nvidia/params
    fabric_manager: Fact[str] = not_probed()  # unit state
    nvswitches: Fact[int] = not_probed()
    environment: dict[str, list[tuple[str, str]]] = {}  # NAME -> [(source, value)]
    pairs: list[GpuPair] = []
    nic_names: dict[str, str] = {}  # "NIC0" -> "mlx5_0"
    affinity: dict[str, str] = {}  # "GPU0" -> CPU affinity as printed
    events: list[GpuEvent] = []
