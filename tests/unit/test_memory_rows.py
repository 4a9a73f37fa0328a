"""Rows of memory, each on machines made of files: ok, finding, not applicable, unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hwtune.changes import SysctlChange, SysfsAttribute
from tests.support import Directory, Gap, host
from tests.support.rows import diagnose_one

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult

THP = "/sys/kernel/mm/transparent_hugepage"
SWAPS = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
DISK = SWAPS + "/dev/sda2                               partition\t2097148\t\t4096\t\t-2\n"
UNUSED = SWAPS + "/dev/sda2                               partition\t2097148\t\t0\t\t-2\n"
ZRAM = SWAPS + "/dev/zram0                              partition\t2097148\t\t4096\t\t100\n"


def _row(
    tmp_path: Path, id: str, files: dict[str, Any], absent: tuple[str, ...] = (), **more: Any
) -> RowResult:
    return diagnose_one(host(tmp_path, files, absent), id, **more)


def _choice(chosen: str, *others: str) -> str:
    return " ".join([*others, f"[{chosen}]"]) + "\n"


# -- sysctls of one number -------------------------------------------------------------------

NUMBERS = [
    ("memory.swappiness", "vm.swappiness", 10, 60, "10"),
    ("memory.numa-balancing", "kernel.numa_balancing", 0, 1, "0"),
    ("memory.zone-reclaim", "vm.zone_reclaim_mode", 0, 1, "0"),
    ("memory.compaction", "vm.compaction_proactiveness", 0, 20, "0"),
    ("memory.compact-unevictable", "vm.compact_unevictable_allowed", 0, 1, "0"),
]


@pytest.mark.parametrize(("id", "key", "good", "bad", "target"), NUMBERS)
def test_sysctls(tmp_path: Path, id: str, key: str, good: int, bad: int, target: str) -> None:
    path = "/proc/sys/" + key.replace(".", "/")
    assert _row(tmp_path, id, {path: f"{good}\n"}).outcome == "ok"

    result = _row(tmp_path, id, {path: f"{bad}\n", "/proc/swaps": DISK})
    assert result.outcome == "finding"
    (finding,) = result.findings
    assert finding.subject == f"sysctl:{key}"
    assert (finding.evidence[0].source, finding.evidence[0].value) == (path, str(bad))
    assert finding.changes == [SysctlChange(key, target)]

    assert _row(tmp_path, id, {"/proc/version": "x"}, absent=(path,)).outcome == "not-applicable"
    assert _row(tmp_path, id, {"/proc/version": "x"}).outcome == "unknown"
    assert _row(tmp_path, id, {path: "lots\n"}).outcome == "unknown"
    denied = _row(tmp_path, id, {path: Gap("denied")})
    assert (denied.outcome, denied.unknowns[0].remedy) == ("unknown", "run as root")


def test_a_container_cannot_change_its_hosts_sysctls(tmp_path: Path) -> None:
    files = {
        "/proc/sys/vm/zone_reclaim_mode": "1",
        "/.dockerenv": "",
        "/proc/1/environ": "container=docker\0",
    }
    result = _row(tmp_path, "memory.zone-reclaim", files)
    (finding,) = result.findings
    assert finding.changes == []
    assert "host" in finding.advice


def test_without_swap_swappiness_decides_nothing(tmp_path: Path) -> None:
    files = {"/proc/sys/vm/swappiness": "60", "/proc/swaps": SWAPS}
    assert _row(tmp_path, "memory.swappiness", files).outcome == "not-applicable"
    assert _row(tmp_path, "memory.swappiness", {**files, "/proc/swaps": UNUSED}).outcome == "finding"


@pytest.mark.parametrize(
    ("meminfo", "outcome"),
    [
        ("SwapTotal: 8 kB\n", "finding"),
        ("SwapTotal: 0 kB\n", "not-applicable"),
        ("MemFree: 1 kB\n", "unknown"),
    ],
)
def test_swap_by_its_sum(tmp_path: Path, meminfo: str, outcome: str) -> None:
    """Where the list of areas cannot be read, meminfo tells whether there is any."""
    files = {
        "/proc/sys/vm/swappiness": "60",
        "/proc/swaps": Gap("unreadable"),
        "/proc/meminfo": f"MemTotal: 9 kB\n{meminfo}",
    }
    assert _row(tmp_path, "memory.swappiness", files).outcome == outcome


def test_another_profile_may_accept_it(tmp_path: Path) -> None:
    files = {"/proc/sys/vm/swappiness": "60"}
    assert _row(tmp_path, "memory.swappiness", files, profile="gpu-training").outcome == "ok"
    files = {"/proc/sys/vm/compact_unevictable_allowed": "1"}
    assert _row(tmp_path, "memory.compact-unevictable", files, profile="gpu-training").outcome == "ok"
    result = _row(
        tmp_path,
        "memory.swappiness",
        {"/proc/sys/vm/swappiness": "5", "/proc/swaps": DISK},
        settings=["memory.swappiness_max=1"],
    )
    assert result.findings[0].changes == [SysctlChange("vm.swappiness", "1")]


# -- swap ------------------------------------------------------------------------------------


def test_memory_in_swap_names_who_has_it(tmp_path: Path) -> None:
    files = {
        "/proc/swaps": DISK,
        "/proc/vmstat": "pswpin 12\npswpout 1024\n",
        "/proc/7/status": "Name:\tfeed\nVmSwap:\t    3072 kB\n",
        "/proc/8/status": "Name:\tlogger\nVmSwap:\t    1024 kB\n",
        "/proc/9/status": "Name:\tclean\nVmSwap:\t       0 kB\n",
        "/proc/10/status": "Name:\tkworker/0:1\n",
    }
    result = _row(tmp_path, "memory.swap-in-use", files)
    (finding,) = result.findings
    assert (result.severity, finding.subject) == ("warning", "memory")
    assert "4 MiB" in finding.message and "2 processes" in finding.message
    shown = [(item.source, item.value) for item in finding.evidence]
    assert ("/proc/7/status", "feed: VmSwap 3 MiB") in shown
    assert shown.index(("/proc/7/status", "feed: VmSwap 3 MiB")) < shown.index(
        ("/proc/8/status", "logger: VmSwap 1 MiB")
    )
    assert ("/proc/vmstat", "pswpin 12 since boot") in shown


def test_swap_that_is_memory_or_was_never_read_back_is_worth_less(tmp_path: Path) -> None:
    assert _row(tmp_path, "memory.swap-in-use", {"/proc/swaps": ZRAM}).severity == "info"
    never = {"/proc/swaps": DISK, "/proc/vmstat": "pswpin 0\npswpout 9\n"}
    assert _row(tmp_path, "memory.swap-in-use", never).severity == "info"


@pytest.mark.parametrize("swaps", [SWAPS, UNUSED])
def test_swap_that_is_not_used_is_good(tmp_path: Path, swaps: str) -> None:
    assert _row(tmp_path, "memory.swap-in-use", {"/proc/swaps": swaps}).outcome == "ok"


def test_swap_not_told_or_not_built(tmp_path: Path) -> None:
    assert _row(tmp_path, "memory.swap-in-use", {"/proc/version": "x"}).outcome == "unknown"
    assert _row(tmp_path, "memory.swap-in-use", {"/proc/swaps": "\0\1"}).outcome == "unknown"
    absent = _row(tmp_path, "memory.swap-in-use", {"/proc/version": "x"}, absent=("/proc/swaps",))
    assert absent.outcome == "not-applicable"


# -- transparent huge pages ------------------------------------------------------------------


@pytest.mark.parametrize("value", ["madvise", "never"])
def test_huge_pages_on_request_or_never_are_good(tmp_path: Path, value: str) -> None:
    assert (
        _row(tmp_path, "memory.transparent-hugepages", {f"{THP}/enabled": _choice(value, "always")}).outcome
        == "ok"
    )


def test_huge_pages_always(tmp_path: Path) -> None:
    files = {f"{THP}/enabled": _choice("always", "madvise", "never")}
    (finding,) = _row(tmp_path, "memory.transparent-hugepages", files).findings
    assert finding.changes == [SysfsAttribute(f"{THP}/enabled", "madvise")]
    assert finding.evidence[0].expected == "madvise or never"
    assert _row(tmp_path, "memory.transparent-hugepages", files, profile="gpu-training").outcome == "ok"


def test_a_size_of_its_own_is_not_ruled_by_the_top_level_never(tmp_path: Path) -> None:
    files = {
        f"{THP}/enabled": _choice("never", "always", "madvise"),
        f"{THP}/hugepages-64kB/enabled": _choice("always", "inherit", "madvise", "never"),
        f"{THP}/hugepages-2048kB/enabled": _choice("inherit", "always", "madvise", "never"),
    }
    (finding,) = _row(tmp_path, "memory.transparent-hugepages", files).findings
    assert "64kB" in finding.message and "2048kB" not in finding.message
    assert finding.changes == [SysfsAttribute(f"{THP}/hugepages-64kB/enabled", "inherit")]


def test_a_size_that_inherits_always(tmp_path: Path) -> None:
    files = {
        f"{THP}/enabled": _choice("always", "madvise", "never"),
        f"{THP}/hugepages-64kB/enabled": _choice("never", "always", "inherit", "madvise"),
        f"{THP}/hugepages-2048kB/enabled": _choice("inherit", "always", "madvise", "never"),
    }
    (finding,) = _row(tmp_path, "memory.transparent-hugepages", files).findings
    assert finding.changes == [SysfsAttribute(f"{THP}/enabled", "madvise")]


def test_huge_pages_not_built_or_not_told(tmp_path: Path) -> None:
    for id in ("memory.transparent-hugepages", "memory.thp-defrag", "memory.khugepaged"):
        assert _row(tmp_path, id, {"/proc/version": "x"}, absent=(THP,)).outcome == "not-applicable"
        assert _row(tmp_path, id, {"/proc/version": "x"}).outcome == "unknown"
    assert _row(tmp_path, "memory.transparent-hugepages", {f"{THP}/enabled": "always"}).outcome == "unknown"


def test_defrag(tmp_path: Path) -> None:
    on = {f"{THP}/enabled": _choice("madvise", "always", "never")}
    good = {**on, f"{THP}/defrag": _choice("defer+madvise", "always", "defer", "madvise", "never")}
    assert _row(tmp_path, "memory.thp-defrag", good).outcome == "ok"
    bad = {**on, f"{THP}/defrag": _choice("always", "defer"), "/proc/vmstat": "compact_stall 3\n"}
    (finding,) = _row(tmp_path, "memory.thp-defrag", bad).findings
    assert finding.changes == [SysfsAttribute(f"{THP}/defrag", "madvise")]
    assert finding.evidence[1].value == "compact_stall 3 since boot"
    off = {f"{THP}/enabled": _choice("never", "always"), f"{THP}/defrag": _choice("always")}
    assert _row(tmp_path, "memory.thp-defrag", off).outcome == "not-applicable"
    assert _row(tmp_path, "memory.thp-defrag", on).outcome == "unknown"


def test_khugepaged(tmp_path: Path) -> None:
    always = {f"{THP}/enabled": _choice("always", "madvise")}
    busy = {**always, f"{THP}/khugepaged/defrag": "1", f"{THP}/khugepaged/pages_to_scan": "4096"}
    result = _row(tmp_path, "memory.khugepaged", busy)
    assert (result.severity, result.findings[0].changes) == (
        "info",
        [SysfsAttribute(f"{THP}/khugepaged/defrag", "0")],
    )
    assert _row(tmp_path, "memory.khugepaged", {**always, f"{THP}/khugepaged/defrag": "0"}).outcome == "ok"
    assert _row(tmp_path, "memory.khugepaged", always).outcome == "unknown"
    asked = {f"{THP}/enabled": _choice("madvise"), f"{THP}/khugepaged/defrag": "1"}
    assert _row(tmp_path, "memory.khugepaged", asked).outcome == "ok"
    off = {f"{THP}/enabled": _choice("never"), f"{THP}/khugepaged/defrag": "1"}
    assert _row(tmp_path, "memory.khugepaged", off).outcome == "not-applicable"
    assert _row(tmp_path, "memory.khugepaged", busy, profile="gpu-training").outcome == "ok"
    # it makes no pages of 64 KiB
    small = {
        f"{THP}/enabled": _choice("never"),
        f"{THP}/hugepages-64kB/enabled": _choice("always"),
        f"{THP}/hugepages-2048kB/enabled": _choice("inherit"),
        f"{THP}/khugepaged/defrag": "1",
    }
    assert _row(tmp_path, "memory.khugepaged", small).outcome == "not-applicable"


# -- merged pages ----------------------------------------------------------------------------


def _ksm(
    run: int, shared: int | None = None, sharing: int = 0, available_kb: int = 1 << 20
) -> dict[str, Any]:
    files: dict[str, Any] = {
        "/sys/kernel/mm/ksm/run": f"{run}\n",
        "/sys/kernel/mm/ksm/pages_sharing": f"{sharing}\n",
        "/proc/meminfo": f"MemTotal: 9999999 kB\nMemAvailable: {available_kb} kB\n",
    }
    if shared is not None:
        files["/sys/kernel/mm/ksm/pages_shared"] = f"{shared}\n"
    return files


def test_merged_pages_are_a_finding_and_idle_ksmd_is_not(tmp_path: Path) -> None:
    result = _row(tmp_path, "memory.ksm", _ksm(1, shared=10, sharing=90))
    assert (result.severity, result.findings[0].changes) == (
        "warning",
        [SysfsAttribute("/sys/kernel/mm/ksm/run", "2")],
    )
    assert "10 merged pages" in result.findings[0].message
    assert _row(tmp_path, "memory.ksm", _ksm(1, shared=0)).outcome == "ok"
    assert _row(tmp_path, "memory.ksm", _ksm(0, shared=0)).outcome == "ok"
    assert _row(tmp_path, "memory.ksm", _ksm(2, shared=0)).outcome == "ok"


def test_ksmd_that_was_stopped_keeps_what_it_merged(tmp_path: Path) -> None:
    result = _row(tmp_path, "memory.ksm", _ksm(0, shared=10, sharing=90))
    assert result.severity == "info" and "still is" in result.findings[0].message


def test_unmerging_is_not_proposed_where_memory_does_not_suffice(tmp_path: Path) -> None:
    # 256 Ki pages of 4 KiB are 1 GiB; 1 GiB is available
    (finding,) = _row(tmp_path, "memory.ksm", _ksm(1, shared=10, sharing=1 << 18)).findings
    assert finding.changes == [] and finding.advice.startswith("Free 1 GiB")


def test_ksm_not_told_or_not_built(tmp_path: Path) -> None:
    assert _row(tmp_path, "memory.ksm", {"/proc/version": "x"}).outcome == "unknown"
    assert _row(tmp_path, "memory.ksm", _ksm(1)).outcome == "unknown"
    absent = _row(tmp_path, "memory.ksm", {"/proc/version": "x"}, absent=("/sys/kernel/mm/ksm",))
    assert absent.outcome == "not-applicable"


# -- dirty limits ----------------------------------------------------------------------------

MEMINFO = {"/proc/meminfo": "MemTotal:       10240000 kB\n"}


def _dirty(ratio: int, amount: int, background_ratio: int, background: int) -> dict[str, Any]:
    names = ("dirty_ratio", "dirty_bytes", "dirty_background_ratio", "dirty_background_bytes")
    values = (ratio, amount, background_ratio, background)
    return {f"/proc/sys/vm/{name}": f"{value}\n" for name, value in zip(names, values, strict=True)}


def test_dirty_limits_within_the_target(tmp_path: Path) -> None:
    assert _row(tmp_path, "memory.dirty-limits", _dirty(10, 0, 5, 0)).outcome == "ok"
    in_bytes = {**_dirty(0, 256 << 20, 0, 64 << 20), **MEMINFO}
    assert _row(tmp_path, "memory.dirty-limits", in_bytes).outcome == "ok"


def test_a_ratio_that_is_too_high_is_set_and_its_counterpart_cleared(tmp_path: Path) -> None:
    result = _row(tmp_path, "memory.dirty-limits", _dirty(20, 0, 10, 0))
    (finding,) = result.findings
    assert (result.severity, finding.subject) == ("info", "sysctl:vm.dirty_ratio")
    assert finding.changes == [
        SysctlChange("vm.dirty_ratio", "10", clears=("vm.dirty_bytes",)),
        SysctlChange("vm.dirty_background_ratio", "5", clears=("vm.dirty_background_bytes",)),
    ]


def test_bytes_that_are_too_many_stay_bytes(tmp_path: Path) -> None:
    # a tenth of 10,240,000 KiB is 1,048,576,000 bytes
    files = {**_dirty(0, 4 << 30, 5, 0), **MEMINFO}
    (finding,) = _row(tmp_path, "memory.dirty-limits", files).findings
    assert finding.changes == [SysctlChange("vm.dirty_bytes", "1048576000", clears=("vm.dirty_ratio",))]
    assert len(finding.evidence) == 1


def test_dirty_limits_not_told(tmp_path: Path) -> None:
    assert _row(tmp_path, "memory.dirty-limits", {"/proc/version": "x"}).outcome == "unknown"
    # in bytes, and how much memory there is is not known
    assert _row(tmp_path, "memory.dirty-limits", _dirty(0, 4 << 30, 0, 1 << 30)).outcome == "unknown"
    absent = _row(tmp_path, "memory.dirty-limits", {"/proc/version": "x"}, absent=("/proc/sys/vm",))
    assert absent.outcome == "not-applicable"


# -- pressure --------------------------------------------------------------------------------


def _pressure(full: str) -> dict[str, Any]:
    return {
        "/proc/pressure/memory": "some avg10=9.00 avg60=1.00 avg300=0.10 total=5\n"
        f"full avg10={full} avg60=0.00 avg300=0.00 total=2\n"
    }


def test_pressure(tmp_path: Path) -> None:
    assert _row(tmp_path, "memory.pressure", _pressure("0.00")).outcome == "ok"
    result = _row(tmp_path, "memory.pressure", _pressure("3.50"))
    assert (result.outcome, result.severity) == ("finding", "warning")
    assert result.findings[0].evidence[0].value == "full avg10=3.50"
    assert _row(tmp_path, "memory.pressure", {"/proc/version": "x"}).outcome == "unknown"
    off = _row(
        tmp_path, "memory.pressure", {"/proc/pressure/memory": Gap("unreadable", "Operation not supported")}
    )
    assert (off.outcome, off.unknowns[0].remedy) == ("unknown", "boot with psi=1")
    absent = _row(tmp_path, "memory.pressure", {"/proc/version": "x"}, absent=("/proc/pressure",))
    assert absent.outcome == "not-applicable"
    part = _row(tmp_path, "memory.pressure", {"/proc/pressure/memory": "some avg10=9.00 total=5"})
    assert part.outcome == "unknown"


def test_files_that_are_directories_or_garbage_leave_the_rest_known(tmp_path: Path) -> None:
    files = {
        "/proc/meminfo": Directory(),
        "/proc/vmstat": b"\xff\x00\x80",
        "/proc/swaps": "",
        f"{THP}/enabled": Directory(),
        "/proc/sys/vm/zone_reclaim_mode": "0",
    }
    assert _row(tmp_path, "memory.zone-reclaim", files).outcome == "ok"
    assert _row(tmp_path, "memory.swap-in-use", files).outcome == "unknown"
