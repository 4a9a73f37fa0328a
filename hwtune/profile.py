"""Profiles: the targets and thresholds that rows judge by.

A profile is TOML with one table a subsystem. ``low-latency`` holds every key; any other profile
``extends`` one and names only what differs. Every key has a field below; an unknown key is an
error that names the nearest one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from hwtune.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT = "low-latency"
_FOLDER = os.path.join(os.path.dirname(__file__), "profiles")


class MemoryTargets(msgspec.Struct, forbid_unknown_fields=True):
    swappiness_max: int
    # accepted values of .../transparent_hugepage/enabled and .../defrag; a change sets the first
    transparent_hugepages: list[str]
    thp_defrag: list[str]
    dirty_ratio_max_pct: int
    dirty_background_ratio_max_pct: int
    zone_reclaim_mode: int
    numa_balancing: int
    compaction_proactiveness_max: int
    compact_unevictable: bool  # whether compaction may move memory that a process has locked
    pressure_full_max_pct: float  # of the last 10 s in which everything waited for memory (PSI)
    ecc_corrected_max: int  # corrected errors of one controller that are still no finding


class CpuTargets(msgspec.Struct, forbid_unknown_fields=True):
    governor: list[str]
    min_frequency_pct: int  # lower limit of the clock, in percent of the highest; 0 for any
    energy_preference: list[str]  # accepted energy_performance_preference where no governor forces it
    energy_bias_max: int  # energy_perf_bias: 0 performance ... 15 powersave
    max_idle_latency_us: int  # exit latency of the deepest idle state that may stay enabled
    turbo: Literal["on", "off", "any"]
    throttle_events_error: int  # thermal throttle events since boot from which on they are an error
    wakeup_latency_max_us: int  # of a measured wake-up (cyclictest, rtla)


class IsolationTargets(msgspec.Struct, forbid_unknown_fields=True):
    required: bool  # whether a box without any isolated CPU is a finding
    cpus: str  # the CPUs meant for hot threads: a list, or "auto" for what the kernel isolates
    # what takes them out of the scheduler's balancing: the boot argument, or a cpuset partition at run time
    method: Literal["isolcpus", "partition"]
    rt_runtime_us: list[int]


class IrqTargets(msgspec.Struct, forbid_unknown_fields=True):
    one_cpu_share_max: float  # share of all device interrupts that one CPU may take
    on_isolated_min_count: int  # interrupts on isolated CPUs since boot that are no more than worth a note
    busy_share_min: float  # share of all device interrupts from which on one interrupt is busy


class NumaTargets(msgspec.Struct, forbid_unknown_fields=True):
    miss_share_max: float  # of the pages since boot that another node had to give
    memory_ratio_max: float  # of the largest to the smallest memory of nodes that have CPUs


class PcieTargets(msgspec.Struct, forbid_unknown_fields=True):
    p2p: bool  # whether direct transfers between devices matter (ACS redirection is then a finding)
    path_share_min: float  # of a device's own bandwidth, that its slot and the switches above may leave
    uplink_ratio_max: float  # what the devices below a switch can ask for over what its uplink carries
    aspm: bool  # whether ASPM may stay on for drives, NICs and GPUs
    runtime_pm: bool  # whether these may suspend while the machine runs
    aer_corrected_per_hour_max: float  # of one link, on average since boot
    iommu_types: list[str]  # of the IOMMU groups of these devices; a change sets the first


class NvmeTargets(msgspec.Struct, forbid_unknown_fields=True):
    apst: bool  # whether autonomous power states may stay on
    scheduler: list[str]
    percentage_used_warning: int
    # Power cuts are a finding where all three are exceeded: their share of the power cycles, their
    # number per day of operation, and their number (installation and tests leave a few dozen).
    unsafe_shutdown_share_max: float
    unsafe_shutdowns_per_day_max: float
    unsafe_shutdowns_min: int
    hot_share_max: float  # of the time in operation that a drive may have spent too hot or throttled
    stall_max_us: float  # that a drive may hold a read up now and then (`hwtune doctor --active`)
    discard_mounts: bool  # whether file systems may be mounted with the option discard


class GpuTargets(msgspec.Struct, forbid_unknown_fields=True):
    persistence: bool
    locked_clocks: bool  # whether an idle GPU whose SM clock falls is a finding
    shared: bool  # whether several programs may take turns on one GPU
    nic_per_gpu: bool  # whether every GPU is to have a NIC beside it


class NicTargets(msgspec.Struct, forbid_unknown_fields=True):
    rx_usecs_max: int  # that a NIC, or the kernel in its place, may hold back an interrupt
    adaptive_coalescing: bool  # whether a NIC may choose that delay itself
    lro: bool  # whether a NIC may merge packets that it received
    pause: bool  # whether the link partner may stop a NIC (flow control)
    drops_per_million_max: float  # of the packets received
    drops_per_million_note: float  # below it, lost packets are no finding
    squeezes_per_million_max: float  # times that a CPU gave up with packets left, of the packets it had
    link_errors_per_million_max: float  # packets damaged on the cable
    link_losses_max: int
    busy_poll_us: int  # of net.core.busy_read and busy_poll at least; 0 leaves it to each socket
    af_xdp: bool  # whether programs need AF_XDP without copies
    ib_rate_min_gbps: int  # of each active InfiniBand port; 0 compares them with each other only


class ClockTargets(msgspec.Struct, forbid_unknown_fields=True):
    sources: list[str]
    synchronized: bool  # whether something must keep the clock right
    timer_stall_max_us: int  # of a timer interrupt that the kernel complained of


class JitterTargets(msgspec.Struct, forbid_unknown_fields=True):
    gap_max_us: float  # that a CPU may be taken from a hot thread at once (`hwtune jitter`)
    stolen_max_pct: float  # of the time, in all


class ServiceTargets(msgspec.Struct, forbid_unknown_fields=True):
    tuned_profiles: list[str]  # of tuned's own profiles (patterns) those that suit this kind of machine


class Profile(msgspec.Struct, forbid_unknown_fields=True):
    """All targets, by subsystem; units stand in the keys' names."""

    name: str
    description: str
    memory: MemoryTargets
    cpu: CpuTargets
    isolation: IsolationTargets
    irq: IrqTargets
    numa: NumaTargets
    pcie: PcieTargets
    nvme: NvmeTargets
    gpu: GpuTargets
    nic: NicTargets
    clock: ClockTargets
    jitter: JitterTargets
    service: ServiceTargets


def builtin() -> list[str]:
    """The names of the built-in profiles, the default first."""
    names = sorted(n[:-5] for n in os.listdir(_FOLDER) if n.endswith(".toml"))
    return [DEFAULT, *(n for n in names if n != DEFAULT)]


def load(name: str = DEFAULT, settings: Sequence[str] = ()) -> Profile:
    """The profile called ``name`` (built in, or a path to a TOML file) with ``key=value``
    settings on top. Raises ``UsageError`` with one sentence for anything wrong with it."""
    values = _resolve(name, ())
    for setting in settings:
        _set(values, setting)
    try:
        return msgspec.convert(values, Profile)
    except msgspec.ValidationError as error:
        raise UsageError(f"profile {name}: {_explain(str(error), values)}") from None


def _resolve(name: str, seen: tuple[str, ...]) -> dict[str, Any]:
    path = os.path.join(_FOLDER, name + ".toml") if "/" not in name and not name.endswith(".toml") else name
    if path in seen:
        raise UsageError(f"profile {name} extends itself")
    values = _read(name, path)
    parent = values.pop("extends", None)
    if parent is None and path != os.path.join(_FOLDER, DEFAULT + ".toml"):
        parent = DEFAULT
    if parent is None:
        return values
    if not isinstance(parent, str):
        raise UsageError(f"profile {name}: extends must name one profile")
    if parent not in builtin() and "/" in path and not parent.startswith("/"):
        parent = os.path.join(os.path.dirname(path), parent)
    base = _resolve(parent, (*seen, path))
    _merge(base, values, name)
    base["name"] = values.get("name", os.path.basename(name).removesuffix(".toml"))
    return base


def _read(name: str, path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            content = file.read(1 << 20)
        values = msgspec.toml.decode(content)
    except FileNotFoundError:
        raise UsageError(f"there is no profile {name}{_near(name, builtin())}") from None
    except OSError as error:
        raise UsageError(f"profile {path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"profile {path} is not valid TOML: {error}") from None
    if not isinstance(values, dict):
        raise UsageError(f"profile {path} is not a TOML table")
    return values


def _merge(base: dict[str, Any], values: dict[str, Any], name: str, prefix: str = "") -> None:
    for key, value in values.items():
        if key not in base:
            raise UsageError(f"profile {name}: unknown key {prefix}{key}{_near(prefix + key, _keys())}")
        if isinstance(base[key], dict):
            if not isinstance(value, dict):
                raise UsageError(f"profile {name}: {prefix}{key} must be a table")
            _merge(base[key], value, name, f"{prefix}{key}.")
        else:
            base[key] = value


def _set(values: dict[str, Any], setting: str) -> None:
    key, sign, text = setting.partition("=")
    if not sign:
        raise UsageError(f"--set takes KEY=VALUE, not {setting!r}")
    if key not in _keys():
        raise UsageError(f"unknown key {key}{_near(key, _keys())}")
    table, _, field = key.partition(".")
    values[table][field] = _value(text, values[table][field], key)


def _value(text: str, current: Any, key: str) -> Any:
    """``text`` in the type of the key's present value; lists are separated by commas."""
    if isinstance(current, list):
        kind = type(current[0]) if current else str
        return [_value(part.strip(), kind(), key) for part in text.split(",")]
    if isinstance(current, bool):
        if text.lower() in ("true", "yes", "on", "1"):
            return True
        if text.lower() in ("false", "no", "off", "0"):
            return False
        raise UsageError(f"{key} is either true or false, not {text!r}")
    if isinstance(current, (int, float)):
        try:
            return int(text) if isinstance(current, int) else float(text)
        except ValueError:
            raise UsageError(f"{key} is a number, not {text!r}") from None
    return text


def _keys() -> list[str]:
    return [
        f"{table.name}.{field.name}"
        for table in msgspec.structs.fields(Profile)
        if isinstance(table.type, type) and issubclass(table.type, msgspec.Struct)
        for field in msgspec.structs.fields(table.type)
    ]


def _near(word: str, words: Sequence[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, words, n=1, cutoff=0.4)
    return f"; did you mean {near[0]}?" if near else ""


def _explain(message: str, values: dict[str, Any]) -> str:
    """msgspec's "... - at `$.memory.x`" with the path in a user's words."""
    text, _, where = message.partition(" - at `$")
    return f"{where.strip('`.')}: {text}" if where else text
