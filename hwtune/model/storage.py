"""Block devices and NVMe controllers."""

from __future__ import annotations

import msgspec

from hwtune.fact import Fact, not_probed


class BlockDevice(msgspec.Struct):
    """One whole disk (no partition). Of disks other than NVMe, only what says which kind they are."""

    name: str
    model: Fact[str] = not_probed()
    size_bytes: Fact[int] = not_probed()
    rotational: Fact[bool] = not_probed()
    scheduler: Fact[str] = not_probed()
    schedulers: Fact[list[str]] = not_probed()
    nomerges: Fact[int] = not_probed()
    rq_affinity: Fact[int] = not_probed()
    wbt_lat_us: Fact[int] = not_probed()  # 0 is off; UNREADABLE where writeback throttling has no say
    write_cache: Fact[str] = not_probed()  # the kernel's view: "write back" or "write through"
    read_ahead_kb: Fact[int] = not_probed()
    discard_granularity: Fact[int] = not_probed()  # bytes; 0: the device takes no discard
    discard_max_bytes: Fact[int] = not_probed()
    io_poll: Fact[int] = not_probed()
    io_timeout_ms: Fact[int] = not_probed()
    nr_requests: Fact[int] = not_probed()
    pci_address: Fact[str] = not_probed()
    nvme: str | None = None  # the controller's name; of a multipath disk, the first one


class Mount(msgspec.Struct):
    """``device`` as the mount table names it; ``disks`` are the whole disks that it lies on, as far
    as sysfs tells (through partitions and the device mapper)."""

    device: str
    target: str
    fstype: str
    options: list[str]
    disks: list[str] = []


class PowerState(msgspec.Struct):
    """An NVMe power state of Identify Controller; latencies in microseconds, 0 = not reported."""

    index: int
    max_power_mw: int | None
    non_operational: bool
    entry_us: int
    exit_us: int


class PowerTransition(msgspec.Struct):
    """A line of the table of feature 0Ch: after ``idle_ms`` in ``state`` the drive enters ``target``."""

    state: int
    target: int
    idle_ms: int


class Smart(msgspec.Struct):
    """The SMART / Health log (02h). Temperatures in degrees Celsius, times as the log has them."""

    critical_warning: Fact[int] = not_probed()
    temperature_c: Fact[int] = not_probed()  # ABSENT where the drive reports 0 K
    available_spare: Fact[int] = not_probed()
    spare_threshold: Fact[int] = not_probed()
    percentage_used: Fact[int] = not_probed()
    data_units_read: Fact[int] = not_probed()  # of 1,000 * 512 bytes
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
    failed_status: int | None = None  # the NVMe status with which the drive refused the log


class LatencyFinding(msgspec.Struct):
    """``kind`` and ``severity`` as in hwtune.drive.results; ``us``: how long it holds a read up, 0 where
    that is no length; ``rests_on``: a clause each."""

    kind: str
    severity: str
    says: str
    rests_on: list[str]
    advice: str
    us: float = 0.0


class DriveLatency(msgspec.Struct):
    """What reads of a drive took, measured by ``doctor --active``. Microseconds unless a name says else;
    stalls without the host's share. ``untold``: why there is no verdict."""

    disk: str
    seconds: float
    reads: int
    p50_us: float | None
    p99_us: float | None
    p999_us: float | None
    max_us: float | None
    stalls: int
    longest_stall_us: float
    period_s: float | None
    period_stall_us: float | None
    untold: str
    findings: list[LatencyFinding]


class NvmeController(msgspec.Struct):
    """``name`` is the kernel's (nvme0), or that of the pasted text where it names no device."""

    name: str
    pci_address: Fact[str] = not_probed()
    transport: Fact[str] = not_probed()  # pcie, tcp, rdma, fc, loop ...
    state: Fact[str] = not_probed()  # live, resetting, connecting, dead ...
    model: Fact[str] = not_probed()
    serial: Fact[str] = not_probed()
    firmware: Fact[str] = not_probed()
    version: Fact[str] = not_probed()  # of the NVMe specification, "1.4"
    numa_node: Fact[int] = not_probed()
    queue_count: Fact[int] = not_probed()  # with the admin queue
    namespaces: list[str] = []  # disks; of a multipath namespace, the disk above its paths
    paths: list[str] = []  # hidden disks of single paths (nvme1c2n1)
    answers: Fact[bool] = not_probed()  # whether it answered admin commands in time
    apst_supported: Fact[bool] = not_probed()
    apst_enabled: Fact[bool] = not_probed()  # feature 0Ch, APSTE
    apst_transitions: Fact[list[PowerTransition]] = not_probed()
    latency_tolerance: Fact[str] = not_probed()  # power/pm_qos_latency_tolerance_us
    power_states: Fact[list[PowerState]] = not_probed()
    volatile_write_cache_present: Fact[bool] = not_probed()
    volatile_write_cache_enabled: Fact[bool] = not_probed()  # feature 06h
    warning_temp_c: Fact[int] = not_probed()  # ABSENT where the drive reports none
    critical_temp_c: Fact[int] = not_probed()
    thermal_management: Fact[list[int]] = not_probed()  # [TMT1, TMT2] in degrees Celsius, 0 = off
    host_memory_buffer_kib: Fact[int] = not_probed()  # that the drive prefers to have, 0 = none
    smart: Smart = msgspec.field(default_factory=Smart)
    latency: Fact[DriveLatency] = not_probed()  # measured only when asked for


class NvmeEvent(msgspec.Struct):
    """A complaint of the kernel log about a drive; equal ones are counted.

    ``kind``: timeout, interrupt-lost, controller-down, not-ready, removed, reset, io-error,
    media-error. ``line`` is the first one's; ``seconds`` since boot of the first and the last.
    """

    source: str
    line: str
    kind: str
    controller: str | None = None
    count: int = 1
    detail: str = ""  # "CSTS=0xffffffff", "QID 0", "read, LBA 32545872" ...
    first_seconds: float | None = None
    last_seconds: float | None = None


class Block(msgspec.Struct):
    """``devices``: whole disks. ``others``: the names of loop, RAM, mapped and other virtual ones."""

    devices: list[BlockDevice] = []
    others: list[str] = []
    listed: Fact[bool] = not_probed()
    mounts: Fact[list[Mount]] = not_probed()
    fstab_discard: Fact[list[str]] = not_probed()  # mount points with the option in /etc/fstab

    def by_name(self) -> dict[str, BlockDevice]:
        return {device.name: device for device in self.devices}


class Nvme(msgspec.Struct):
    controllers: list[NvmeController] = []
    listed: Fact[bool] = not_probed()
    default_max_latency_us: Fact[int] = not_probed()  # nvme_core.default_ps_max_latency_us
    io_timeout_s: Fact[int] = not_probed()
    poll_queues: Fact[int] = not_probed()
    events: list[NvmeEvent] = []
    log_known: Fact[bool] = not_probed()  # False: a part of a log, so that what it lacks means nothing
