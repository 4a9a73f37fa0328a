"""Memory: sizes, swap, huge pages, what the kernel does to pages behind a process's back, and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.fact import NOT_CAPTURED, Fact, gap, known
from hwtune.model.memory import Memory, SwapArea, SwappedProcess
from hwtune.model.numa import HugePagePool
from hwtune.probes import _edac, _hugepages
from hwtune.text.meminfo import parse_counters, parse_meminfo, parse_pressure, parse_swaps, selected

if TYPE_CHECKING:
    from hwtune.host.base import Host

PART = "memory"

_THP = "/sys/kernel/mm/transparent_hugepage"
_KSM = "/sys/kernel/mm/ksm"
# Of some 200 counters, those that a row gives as evidence.
_COUNTERS = (
    "allocstall",
    "compact_",
    "cow_ksm",
    "numa_pages_migrated",
    "numa_hint_faults",
    "oom_kill",
    "pgmajfault",
    "pswp",
    "thp_collapse_alloc",
    "thp_fault_alloc",
    "thp_split_p",
)


def read(host: Host) -> Memory:
    memory = Memory()
    _read_sizes(host, memory)
    _read_swap(host, memory)
    memory.pressure = host.parse("/proc/pressure/memory", parse_pressure)
    memory.cpu_pressure = host.parse("/proc/pressure/cpu", parse_pressure)
    memory.io_pressure = host.parse("/proc/pressure/io", parse_pressure)
    _read_thp(host, memory)
    memory.ksm_run = host.integer(f"{_KSM}/run")
    memory.ksm_pages_shared = host.integer(f"{_KSM}/pages_shared")
    memory.ksm_pages_sharing = host.integer(f"{_KSM}/pages_sharing")
    _read_hugepages(host, memory)
    memory.edac, memory.edac_listed = _edac.controllers(host)
    memory.errors, memory.log_read = _edac.logged(host)
    return memory


def _read_sizes(host: Host, memory: Memory) -> None:
    memory.meminfo = host.parse("/proc/meminfo", parse_meminfo)
    if memory.meminfo.unknown:
        for document in host.documents("/proc/meminfo"):
            memory.meminfo = memory.meminfo.or_else(known(document.text, document.path).map(parse_meminfo))
    memory.total_bytes = _entry(memory.meminfo, "MemTotal")
    memory.available_bytes = _entry(memory.meminfo, "MemAvailable")
    memory.vmstat = host.parse("/proc/vmstat", parse_counters).map(
        lambda all: {name: all[name] for name in all if name.startswith(_COUNTERS)}
    )


def _entry(meminfo: Fact[dict[str, int]], name: str) -> Fact[int]:
    """One line of meminfo; ABSENT where this kernel prints none of that name."""
    if not meminfo.known:
        return Fact(None, meminfo.source, meminfo.gap, meminfo.detail)
    if name not in meminfo.get():
        return Fact(None, f"{meminfo.source} {name}", "absent")
    return known(meminfo.get()[name], meminfo.source)


def _read_swap(host: Host, memory: Memory) -> None:
    memory.swaps = host.parse("/proc/swaps", parse_swaps).map(
        lambda areas: [SwapArea(*area) for area in areas]
    )
    used = memory.swaps.known and any(area.used_bytes > 0 for area in memory.swaps.get())
    if used:
        memory.swapped_processes = _swapped(host)
    elif memory.swaps.known:
        memory.swapped_processes = known([], memory.swaps.source)
    else:
        memory.swapped_processes = Fact(None, memory.swaps.source, memory.swaps.gap, memory.swaps.detail)


def _swapped(host: Host) -> Fact[list[SwappedProcess]]:
    """Who has pages in swap, the most first. Every process is asked, so only where swap is used."""
    names = host.names("/proc")
    if not names.known:
        return names.map(lambda _: [])
    pids = [int(name) for name in names.get() if name.isdecimal() and len(name) < 10]
    if not pids:
        return gap(NOT_CAPTURED, "/proc/PID/status")
    found = []
    asked = False
    for pid in pids:
        status = host.text(f"/proc/{pid}/status")
        if not status.known:
            continue  # ended meanwhile, or not captured
        asked = True
        process = _swap_of(pid, status.get())
        if process is not None:
            found.append(process)
    if not asked:
        return gap(NOT_CAPTURED, "/proc/PID/status")
    found.sort(key=lambda process: (-process.swap_bytes, process.pid))
    return known(found, "/proc/PID/status")


def _swap_of(pid: int, status: str) -> SwappedProcess | None:
    at = status.find("\nVmSwap:")
    if at < 0:
        return None  # a kernel thread
    fields = status[at + 8 : at + 40].split()
    if not fields or not fields[0].isdecimal() or fields[0] == "0":
        return None
    name = status[5 : status.find("\n")].strip() if status.startswith("Name:") else ""
    return SwappedProcess(pid, name, int(fields[0]) * 1024)


def _read_thp(host: Host, memory: Memory) -> None:
    memory.thp_enabled = host.parse(f"{_THP}/enabled", selected)
    memory.thp_defrag = host.parse(f"{_THP}/defrag", selected)
    memory.khugepaged_defrag = host.integer(f"{_THP}/khugepaged/defrag")
    memory.khugepaged_pages_to_scan = host.integer(f"{_THP}/khugepaged/pages_to_scan")
    memory.khugepaged_scan_sleep_ms = host.integer(f"{_THP}/khugepaged/scan_sleep_millisecs")
    names = host.names(_THP)
    if names.known:
        sizes = [n for n in names.get() if n.startswith("hugepages-") and n.endswith("kB")]
        sizes.sort(key=lambda name: (len(name), name))
        memory.thp_sizes = {name: host.parse(f"{_THP}/{name}/enabled", selected) for name in sizes}


def _read_hugepages(host: Host, memory: Memory) -> None:
    memory.hugepages, memory.hugepages_listed = _hugepages.pools(host, "/sys/kernel/mm/hugepages")
    if memory.hugepages_listed.unknown:
        pool = _default_pool(memory.meminfo)
        if pool is not None:
            memory.hugepages = [pool]


def _default_pool(meminfo: Fact[dict[str, int]]) -> HugePagePool | None:
    """The pool of the default size, which is all that /proc/meminfo tells of."""
    size = _entry(meminfo, "Hugepagesize")
    if not size.known:
        return None
    pool = HugePagePool(size.get() >> 10)
    fields: Any = (("total", "Total"), ("free", "Free"), ("surplus", "Surp"), ("reserved", "Rsvd"))
    for field, name in fields:
        setattr(pool, field, _entry(meminfo, f"HugePages_{name}"))
    return pool
