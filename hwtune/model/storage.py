"""Block devices and NVMe controllers."""

from __future__ import annotations

import msgspec

from hwtune.fact import Fact, not_probed


class BlockDevice(msgspec.Struct):
    """One whole disk (no partition)."""

    name: str
    model: Fact[str] = not_probed()
    size_bytes: Fact[int] = not_probed()
    rotational: Fact[bool] = not_probed()
    scheduler: Fact[str] = not_probed()
    schedulers: Fact[list[str]] = not_probed()
    nomerges: Fact[int] = not_probed()
    rq_affinity: Fact[int] = not_probed()
    wbt_lat_us: Fact[int] = not_probed()
    write_cache: Fact[str] = not_probed()  # the kernel's view: "write back" or "write through"
    read_ahead_kb: Fact[int] = not_probed()
    discard_granularity: Fact[int] = not_probed()
    discard_max_bytes: Fact[int] = not_probed()
    io_poll: Fact[int] = not_probed()
    nr_requests: Fact[int] = not_probed()
    pci_address: Fact[str] = not_probed()
    nvme: str | None = None  # the controller's name
    queue_cpus: dict[int, list[int]] = {}  # blk-mq hardware queue -> CPUs


class Mount(msgspec.Struct):
    device: str
    target: str
    fstype: str
    options: list[str]


class PowerState(msgspec.Struct):
    """An NVMe power state of Identify Controller; latencies in microseconds, 0 = not reported."""

    index: int
    max_power_mw: int | None
    non_operational: bool
    entry_us: int
    exit_us: int


class Smart(msgspec.Struct):
    """The SMART / Health log (02h). Temperatures in degrees Celsius, times as the log has them."""

    critical_warning: Fact[int] = not_probed()
    temperature_c: Fact[int] = not_probed()
    available_spare: Fact[int] = not_probed()
    spare_threshold: Fact[int] = not_probed()
    percentage_used: Fact[int] = not_probed()
    data_units_read: Fact[int] = not_probed()
    data_units_written: Fact[int] = not_probed()
    power_cycles: Fact[int] = not_probed()
    power_on_hours: Fact[int] = not_probed()
    unsafe_shutdowns: Fact[int] = not_probed()
    media_errors: Fact[int] = not_probed()
    error_log_entries: Fact[int] = not_probed()
    warning_temp_minutes: Fact[int] = not_probed()
    critical_temp_minutes: Fact[int] = not_probed()
    thermal_transitions: Fact[list[int]] = not_probed()  # [light, heavy] counts
    thermal_seconds: Fact[list[int]] = not_probed()


class NvmeController(msgspec.Struct):
    name: str
    pci_address: Fact[str] = not_probed()
    transport: Fact[str] = not_probed()
    state: Fact[str] = not_probed()  # live, resetting, connecting, dead ...
    model: Fact[str] = not_probed()
    serial: Fact[str] = not_probed()
    firmware: Fact[str] = not_probed()
    numa_node: Fact[int] = not_probed()
    queue_count: Fact[int] = not_probed()  # with the admin queue
    namespaces: list[str] = []
    apst_supported: Fact[bool] = not_probed()
    apst_enabled: Fact[bool] = not_probed()  # feature 0Ch, APSTE
    latency_tolerance: Fact[str] = not_probed()  # power/pm_qos_latency_tolerance_us
    power_states: Fact[list[PowerState]] = not_probed()
    volatile_write_cache_present: Fact[bool] = not_probed()
    volatile_write_cache_enabled: Fact[bool] = not_probed()  # feature 06h
    warning_temp_c: Fact[int] = not_probed()
    critical_temp_c: Fact[int] = not_probed()
    thermal_management: Fact[list[int]] = not_probed()  # [TMT1, TMT2] in degrees Celsius, 0 = off
    host_memory_buffer_mb: Fact[int] = not_probed()
    smart: Smart = msgspec.field(default_factory=Smart)


class NvmeEvent(msgspec.Struct):
    """A complaint of the kernel log about a drive."""

    source: str
    line: str
    kind: str  # timeout, controller-down, removed, reset, media-error
    controller: str | None = None
    count: int = 1


class Block(msgspec.Struct):
    devices: list[BlockDevice] = []
    listed: Fact[bool] = not_probed()
    mounts: Fact[list[Mount]] = not_probed()


class Nvme(msgspec.Struct):
    controllers: list[NvmeController] = []
    listed: Fact[bool] = not_probed()
    default_max_latency_us: Fact[int] = not_probed()  # nvme_core.default_ps_max_latency_us
    io_timeout_s: Fact[int] = not_probed()
    poll_queues: Fact[int] = not_probed()
    events: list[NvmeEvent] = []
