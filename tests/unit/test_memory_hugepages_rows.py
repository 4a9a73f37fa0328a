"""The row of huge page pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support import host
from tests.support.rows import diagnose_one

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult

POOLS = "/sys/kernel/mm/hugepages"


def _pool(kib: int, total: int, free: int = 0, surplus: int = 0, folder: str = POOLS) -> dict[str, Any]:
    path = f"{folder}/hugepages-{kib}kB"
    return {
        f"{path}/nr_hugepages": f"{total}\n",
        f"{path}/free_hugepages": f"{free}\n",
        f"{path}/surplus_hugepages": f"{surplus}\n",
    }


def _row(tmp_path: Path, files: dict[str, Any], cmdline: str | None = "", **more: Any) -> RowResult:
    if cmdline is not None:
        files = {**files, "/proc/cmdline": f"BOOT_IMAGE=/vmlinuz {cmdline}\n"}
    return diagnose_one(host(tmp_path, files, **more), "memory.hugepages")


def test_a_pool_as_asked_for(tmp_path: Path) -> None:
    result = _row(tmp_path, _pool(1 << 20, 16, free=16), "hugepagesz=1G hugepages=16")
    assert (result.outcome, result.reason) == ("ok", "16 huge pages of 1 GiB, 16 of them free")


def test_none_asked_for_and_none_there(tmp_path: Path) -> None:
    result = _row(
        tmp_path, {**_pool(2048, 0), **_pool(1 << 20, 0)}, "default_hugepagesz=1G hugepagesz=2M hugepages=0"
    )
    assert (result.outcome, result.reason) == (
        "ok",
        "no huge page of 2 MiB is reserved; no huge page of 1 GiB is reserved",
    )


def test_fewer_than_asked_for_at_boot(tmp_path: Path) -> None:
    result = _row(tmp_path, _pool(1 << 20, 12), "hugepagesz=1G hugepages=0:8,1:8")
    (finding,) = result.findings
    assert (result.severity, finding.subject) == ("warning", "karg:hugepages")
    assert finding.message.startswith("16 huge pages of 1 GiB were asked for at boot, and the pool has 12")
    assert [(item.source, item.value, item.expected) for item in finding.evidence] == [
        ("/proc/cmdline", "hugepagesz=1G hugepages=0:8,1:8", ""),
        (f"{POOLS}/hugepages-1048576kB/nr_hugepages", "12", "16"),
    ]


def test_an_argument_without_a_size_is_for_the_default_one(tmp_path: Path) -> None:
    files = {
        **_pool(2048, 10),
        **_pool(1 << 20, 0),
        "/proc/meminfo": "MemTotal: 1 kB\nHugepagesize:    2048 kB\n",
    }
    assert _row(tmp_path, files, "hugepages=10").outcome == "ok"
    assert _row(tmp_path, files, "hugepages=11").outcome == "finding"
    files.pop("/proc/meminfo")
    assert _row(tmp_path, files, "hugepages=11").outcome == "unknown"


def test_a_size_that_is_not_there(tmp_path: Path) -> None:
    (finding,) = _row(tmp_path, _pool(2048, 0), "hugepagesz=1G hugepages=4").findings
    assert "1 GiB" in finding.message


def test_fewer_than_a_sysctl_file_asks_for(tmp_path: Path) -> None:
    files = {
        **_pool(2048, 100),
        "/proc/meminfo": "MemTotal: 1 kB\nHugepagesize:    2048 kB\n",
        "/etc/sysctl.d/10-pages.conf": "vm.nr_hugepages = 50\n",
        "/etc/sysctl.d/20-pages.conf": "# more\nvm.nr_hugepages = 128\n",
    }
    (finding,) = _row(tmp_path, files, complete=True).findings
    assert finding.subject == "sysctl:vm.nr_hugepages"
    assert finding.evidence[0].source == "/etc/sysctl.d/20-pages.conf:2"
    files["/etc/sysctl.d/20-pages.conf"] = "vm.nr_hugepages = 100\n"
    assert _row(tmp_path, files, complete=True).outcome == "ok"


def test_surplus_pages_are_worth_a_note(tmp_path: Path) -> None:
    result = _row(tmp_path, _pool(2048, 20, surplus=4))
    assert (result.outcome, result.severity) == ("finding", "info")


def test_a_node_of_hot_cpus_without_a_page(tmp_path: Path) -> None:
    node = "/sys/devices/system/node/node"
    files = {
        **_pool(2048, 512, free=512),
        **_pool(2048, 512, folder=f"{node}0/hugepages"),
        **_pool(2048, 0, folder=f"{node}1/hugepages"),
        f"{node}0/cpumap": "3\n",
        f"{node}1/cpumap": "c\n",
        "/sys/devices/system/cpu/isolated": "3\n",
    }
    (finding,) = _row(tmp_path, files).findings
    assert finding.subject == "node:1"
    assert finding.evidence[0].source == f"{node}1/hugepages/hugepages-2048kB/nr_hugepages"
    files["/sys/devices/system/cpu/isolated"] = "1\n"
    assert _row(tmp_path, files).outcome == "ok"


def test_pools_of_the_default_size_are_told_by_meminfo_too(tmp_path: Path) -> None:
    files = {
        "/proc/meminfo": "MemTotal: 1 kB\nHugePages_Total: 8\nHugePages_Free: 3\nHugepagesize: 2048 kB\n"
    }
    result = _row(tmp_path, files, "hugepages=8")
    assert (result.outcome, result.reason) == ("ok", "8 huge pages of 2 MiB, 3 of them free")


def test_not_told_and_not_built(tmp_path: Path) -> None:
    assert _row(tmp_path, {"/proc/version": "x"}).outcome == "unknown"
    assert _row(tmp_path, _pool(2048, 0), None).outcome == "unknown"  # what was asked for is not known
    absent = _row(tmp_path, {"/proc/version": "x"}, absent=(POOLS,))
    assert absent.outcome == "not-applicable"
    broken = {f"{POOLS}/hugepages-2048kB/nr_hugepages": "many"}
    assert _row(tmp_path, broken).outcome == "unknown"
