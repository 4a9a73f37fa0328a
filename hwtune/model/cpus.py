"""CPUs: topology, frequency, idle states, isolation."""

from __future__ import annotations

import msgspec

from hwtune.fact import Fact, not_probed


class Cache(msgspec.Struct):
    """One cache: ``level`` 1..4, ``type`` Data, Instruction or Unified, and the CPUs that share it."""

    level: int
    type: str
    size_bytes: int | None
    cpus: list[int]


class Cpu(msgspec.Struct):
    """One logical CPU, by kernel number."""

    id: int
    package: int | None = None
    die: int | None = None
    cluster: int | None = None
    core: int | None = None
    siblings: list[int] | None = None  # SMT siblings, itself included; None where unknown
    node: int | None = None
    core_type: str | None = None  # "performance" or "efficient" on hybrid parts, else None
    capacity: int | None = None  # cpu_capacity, 0..1024, where the kernel has it
    mhz: float | None = None  # the clock at the moment of reading, as /proc/cpuinfo of x86 says it


class FrequencyPolicy(msgspec.Struct):
    """One cpufreq policy and the CPUs it governs. Frequencies in kHz, as sysfs has them."""

    id: int
    cpus: list[int]
    driver: Fact[str] = not_probed()
    governor: Fact[str] = not_probed()
    governors: Fact[list[str]] = not_probed()
    preference: Fact[str] = not_probed()  # energy_performance_preference
    preferences: Fact[list[str]] = not_probed()
    min_khz: Fact[int] = not_probed()  # scaling_min_freq
    max_khz: Fact[int] = not_probed()  # scaling_max_freq
    hardware_min_khz: Fact[int] = not_probed()  # cpuinfo_min_freq
    hardware_max_khz: Fact[int] = not_probed()  # cpuinfo_max_freq
    # the highest of scaling_available_frequencies: as far as scaling_max goes with acpi-cpufreq,
    # whose cpuinfo_max_freq may lie above (boost)
    table_max_khz: Fact[int] = not_probed()
    base_khz: Fact[int] = not_probed()  # base_frequency
    bios_limit_khz: Fact[int] = not_probed()  # what the firmware allows now (ACPI _PPC)
    path: str = ""  # the policy's folder


class IdleState(msgspec.Struct):
    """One cpuidle state: exit latency in microseconds, as the kernel believes it."""

    index: int
    name: str
    latency_us: int | None
    disabled: bool | None  # by a user or a driver; None where unknown
    path: str = ""  # cpuN/cpuidle/stateK of the group's first CPU


class IdleGroup(msgspec.Struct):
    """CPUs whose idle states are alike."""

    cpus: list[int]
    states: list[IdleState]


class Throttle(msgspec.Struct):
    """Thermal throttle event counts since boot of one package: each the highest of its CPUs, as
    every CPU counts the package's events anew. ``package`` is None where the CPUs' packages are
    not known."""

    package: int | None
    source: str
    cpus: list[int]
    package_events: int | None = None
    package_cpu: int | None = None  # the CPU with that highest count
    core_events: int | None = None
    core_cpu: int | None = None
    total_ms: int | None = None  # how long it was throttled, where the kernel keeps that
    power_limit_events: int | None = None


class ClockNote(msgspec.Struct):
    """A line of the kernel's log on clocks held down from outside: "prochot", "power-limit" or
    "firmware" (OpenPOWER's OCC)."""

    kind: str
    text: str
    source: str


class CpuTask(msgspec.Struct):
    """A task that may run, or last ran, on a CPU meant to be alone."""

    pid: int
    name: str
    kernel: bool
    cpus_allowed: list[int]
    last_cpu: int | None
    bound: bool  # may run on exactly one CPU


class CpusetPartition(msgspec.Struct):
    """A cgroup v2 cpuset that asks to be a partition root."""

    path: str
    state: str  # as read back: "isolated", "root", "isolated invalid (<reason>)" ...
    cpus: list[int]


class Cpus(msgspec.Struct):
    """All CPUs and how they are set. Lists are CPU numbers, sorted."""

    possible: Fact[list[int]] = not_probed()
    present: Fact[list[int]] = not_probed()
    online: Fact[list[int]] = not_probed()
    offline: Fact[list[int]] = not_probed()
    # what the kernel says it isolates (/sys/devices/system/cpu/isolated, .../nohz_full)
    isolated: Fact[list[int]] = not_probed()
    nohz_full: Fact[list[int]] = not_probed()
    # groups of CPUs that share a core, the ones of a single CPU left out
    smt: Fact[list[list[int]]] = not_probed()
    smt_control: Fact[str] = not_probed()  # on, off, forceoff, notsupported, notimplemented, a number
    # how many there are, of what is online
    package_count: Fact[int] = not_probed()
    core_count: Fact[int] = not_probed()
    threads_per_core: Fact[int] = not_probed()
    model_name: Fact[str] = not_probed()
    vendor: Fact[str] = not_probed()  # GenuineIntel, AuthenticAMD, HygonGenuine, ARM ...
    architecture: Fact[str] = not_probed()  # x86_64, aarch64 ...
    family: Fact[int] = not_probed()
    model: Fact[int] = not_probed()
    microcode: Fact[str] = not_probed()
    flags: Fact[list[str]] = not_probed()
    cpus: list[Cpu] = []
    caches: list[Cache] = []
    hybrid: Fact[bool] = not_probed()  # cores of two kinds

    policies: list[FrequencyPolicy] = []
    policies_listed: Fact[bool] = not_probed()
    nominal_khz: Fact[int] = not_probed()  # of the first CPU, by ACPI (CPPC); without turbo
    pstate_driver: Fact[str] = not_probed()  # "intel_pstate active", "amd_pstate passive" ...
    turbo: Fact[bool] = not_probed()  # True where boost frequencies are allowed
    min_perf_pct: Fact[int] = not_probed()  # of intel_pstate
    max_perf_pct: Fact[int] = not_probed()
    energy_bias: list[tuple[list[int], str]] = []  # CPUs, energy_perf_bias
    energy_bias_listed: Fact[bool] = not_probed()

    idle_driver: Fact[str] = not_probed()
    idle_governor: Fact[str] = not_probed()
    idle_groups: list[IdleGroup] = []
    idle_listed: Fact[bool] = not_probed()
    latency_request_us: Fact[int] = not_probed()  # what /dev/cpu_dma_latency says now
    resume_latency: list[tuple[list[int], str]] = []  # CPUs, pm_qos_resume_latency_us
    resume_latency_listed: Fact[bool] = not_probed()

    throttles: list[Throttle] = []
    throttles_listed: Fact[bool] = not_probed()
    clock_notes: list[ClockNote] = []
    clock_notes_listed: Fact[bool] = not_probed()  # whether there was a log to look into
    vulnerabilities: dict[str, Fact[str]] = {}
    vulnerabilities_listed: Fact[bool] = not_probed()

    tasks_on_isolated: Fact[list[CpuTask]] = not_probed()
    workqueue_cpus: Fact[list[int]] = not_probed()
    writeback_workqueue_cpus: Fact[list[int]] = not_probed()
    rt_runtime_us: Fact[int] = not_probed()
    rt_period_us: Fact[int] = not_probed()
    fair_server: Fact[list[tuple[int, int, int]]] = not_probed()  # CPU, runtime ns, period ns
    partitions: Fact[list[CpusetPartition]] = not_probed()
    cgroup_isolated: Fact[list[int]] = not_probed()  # /sys/fs/cgroup/cpuset.cpus.isolated
    # latency figures that somebody measured and pasted: tool, CPU, microseconds
    measured: list[Measured] = []


class Measured(msgspec.Struct):
    """One line of cyclictest or rtla output, microseconds. cyclictest numbers its threads, which
    are CPUs only where it pinned them so: then ``cpu`` is None and ``thread`` is set."""

    tool: str
    source: str
    max_us: float
    cpu: int | None = None
    thread: int | None = None
    average_us: float | None = None
    kind: str = ""  # "irq", "thread", "user" for timerlat, "single", "total" for osnoise
