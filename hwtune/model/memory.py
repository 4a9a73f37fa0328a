"""Memory and the kernel's habits with it."""

from __future__ import annotations

import msgspec

from hwtune.fact import Fact, not_probed
from hwtune.model.numa import HugePagePool


class SwapArea(msgspec.Struct):
    path: str
    type: str  # partition, file
    size_bytes: int
    used_bytes: int
    priority: int


class SwappedProcess(msgspec.Struct):
    pid: int
    name: str
    swap_bytes: int


class EdacController(msgspec.Struct):
    """One memory controller's counts of corrected and uncorrected errors."""

    name: str
    corrected: Fact[int] = not_probed()
    uncorrected: Fact[int] = not_probed()
    seconds: Fact[int] = not_probed()  # since the counts were last reset, as a rule at boot
    # DIMM label or location -> (corrected, uncorrected), where the counts are kept per DIMM
    dimms: dict[str, tuple[int, int]] = {}


class MemoryFault(msgspec.Struct):
    """Memory errors of one place that the kernel log tells of; ``line`` is the first one's."""

    source: str
    line: str
    corrected: bool
    where: str  # DIMM label as logged, "" where firmware names none
    count: int = 1
    what: str = ""
    controller: str = ""  # mc0 ...
    # page frame -> how many errors; a repeat on one page is a cell that fails
    pages: dict[str, int] = {}
    overflow: bool = False  # the hardware had more errors than it could note
    seconds: float | None = None  # since boot, of the first


class Memory(msgspec.Struct):
    total_bytes: Fact[int] = not_probed()
    available_bytes: Fact[int] = not_probed()
    meminfo: Fact[dict[str, int]] = not_probed()  # /proc/meminfo, bytes (HugePages_* are counts)
    vmstat: Fact[dict[str, int]] = not_probed()  # those counters of /proc/vmstat that rows ask about
    swaps: Fact[list[SwapArea]] = not_probed()
    swapped_processes: Fact[list[SwappedProcess]] = not_probed()
    pressure: Fact[dict[str, float]] = not_probed()  # PSI memory: some_avg10, full_avg10, some_total ...
    cpu_pressure: Fact[dict[str, float]] = not_probed()
    io_pressure: Fact[dict[str, float]] = not_probed()
    thp_enabled: Fact[str] = not_probed()
    thp_defrag: Fact[str] = not_probed()
    thp_sizes: dict[str, Fact[str]] = {}  # "hugepages-64kB" -> always|inherit|madvise|never
    khugepaged_defrag: Fact[int] = not_probed()
    khugepaged_pages_to_scan: Fact[int] = not_probed()
    khugepaged_scan_sleep_ms: Fact[int] = not_probed()
    ksm_run: Fact[int] = not_probed()
    ksm_pages_shared: Fact[int] = not_probed()  # merged pages in use
    ksm_pages_sharing: Fact[int] = not_probed()  # how many more mappings share them: what is saved
    hugepages: list[HugePagePool] = []
    hugepages_listed: Fact[bool] = not_probed()
    edac: list[EdacController] = []
    edac_listed: Fact[bool] = not_probed()
    errors: list[MemoryFault] = []
    log_read: Fact[bool] = not_probed()  # whether the kernel log could be searched for errors
