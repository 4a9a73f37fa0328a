"""Memory, nodes and clocks of machines captured elsewhere, and of public reports."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from hwtune.errors import UsageError
from hwtune.host.snapshot import open_snapshot
from hwtune.probes import clock, memory, numa
from tests.support.rows import diagnose

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult


def _report(realdata: Path, name: str, *ids: str) -> dict[str, RowResult]:
    return diagnose(open_snapshot(str(realdata / "reports" / name)), *ids)


def _archive(realdata: Path, path: str, *ids: str) -> dict[str, RowResult]:
    return diagnose(open_snapshot(str(realdata / path)), *ids)


# -- reports: what their what.md says --------------------------------------------------------


def test_31_an_uncorrected_error_names_its_dimm(realdata: Path) -> None:
    result = _report(realdata, "31-edac-ue-and-firmware-pcie-error", "memory.ecc-errors")["memory.ecc-errors"]
    (finding,) = result.findings
    assert result.severity == "error"
    assert "CPU_SrcID#1_MC#1_Chan#2_DIMM#0" in finding.message
    assert "more than the hardware could note" in finding.message  # OVERFLOW


def test_33_one_corrected_error_found_by_scrubbing(realdata: Path) -> None:
    result = _report(realdata, "33-edac-single-scrub-ce", "memory.ecc-errors")["memory.ecc-errors"]
    (finding,) = result.findings
    assert result.severity == "warning"
    assert finding.message.startswith(
        "1 corrected memory error at CPU_SrcID#1_Ha#0_Chan#0_DIMM#0 (page 0xee30a0)"
    )
    assert "One alone is no fault; a repeat at the same page is." in finding.message


def test_56_the_tsc_was_given_up_for_hpet(realdata: Path) -> None:
    name = "56-tsc-unstable-switched-to-hpet"
    results = _report(realdata, name, "clock.source", "clock.tsc", "clock.timer-stall")
    source = results["clock.source"]
    assert source.severity == "error"
    assert source.findings[0].evidence[0].value == "hpet"
    assert "on CPU 5 at 335323 s" in source.findings[0].message
    assert source.findings[0].changes == [] and "reboot" in source.findings[0].advice
    assert results["clock.tsc"].severity == "error"
    (stall,) = results["clock.timer-stall"].findings
    assert "6.7 ms" in stall.message and "6663395 ns" in stall.evidence[0].value


def test_58_two_of_four_nodes_have_no_memory(realdata: Path) -> None:
    name = "58-threadripper-nps4-two-nodes-no-memory"
    result = _report(realdata, name, "numa.memoryless-node")["numa.memoryless-node"]
    assert (result.severity, [f.subject for f in result.findings]) == ("warning", ["node:0", "node:3"])
    assert [f.evidence[1].value for f in result.findings] == ["0-5,24-29", "18-23,42-47"]
    for finding in result.findings:
        assert "12 of 48 CPUs" in finding.message and "distance 12" in finding.message
        assert "nodes 1-2" in finding.advice


def test_59_the_memory_of_gpus_is_no_fault(realdata: Path) -> None:
    ids = ("numa.memoryless-node", "numa.memory-balance", "numa.buggy-topology", "numa.cpu-numbering")
    results = _report(realdata, "59-power9-gpu-memory-as-nodes", *ids)
    assert {result.outcome for result in results.values()} == {"ok"}
    assert results["numa.memoryless-node"].reason == "nodes 252-255: GPU memory of 15.8 GiB"
    nodes = numa.read(open_snapshot(str(realdata / "reports/59-power9-gpu-memory-as-nodes"))).nodes
    assert [node.id for node in nodes] == [0, 8, 252, 253, 254, 255]


def test_61_numbers_dealt_out_over_four_nodes(realdata: Path) -> None:
    name = "61-4-socket-interleaved-cpu-numbers"
    result = _report(realdata, name, "numa.cpu-numbering")["numa.cpu-numbering"]
    assert result.outcome == "ok"
    assert result.reason.startswith("CPU n is on node n modulo 4")
    nodes = numa.read(open_snapshot(str(realdata / "reports" / name))).nodes
    assert [node.cpus.get() for node in nodes] == [list(range(first, 128, 4)) for first in range(4)]


# -- trees -----------------------------------------------------------------------------------


def test_the_isolated_rt_box(realdata: Path) -> None:
    """EXPECTED.md 1: even CPUs are of node 0, no huge page is reserved, devices on both nodes."""
    ids = (
        "memory.hugepages",
        "numa.cpu-numbering",
        "numa.device-node",
        "numa.memoryless-node",
        "clock.source",
    )
    results = _archive(realdata, "node-tuning-operator/bare-metal-worker1.internal.tgz", *ids)
    assert (results["memory.hugepages"].outcome, results["memory.hugepages"].reason) == (
        "ok",
        "no huge page of 1 GiB is reserved",
    )
    (numbering,) = results["numa.cpu-numbering"].findings
    assert numbering.message.startswith("CPU n is on node n modulo 2")
    assert results["numa.device-node"].outcome == "ok"  # hot CPUs are on both nodes
    assert results["numa.memoryless-node"].outcome == "ok"
    assert results["clock.source"].outcome == "unknown"  # not in the capture


def test_numastat_of_four_nodes(realdata: Path) -> None:
    path = "pcp/qa/linux/sysfs-numa-001.tgz"
    results = _archive(realdata, path, "numa.misses", "numa.memoryless-node", "clock.source")
    with tarfile.open(realdata / path) as archive:
        stats: dict[str, int] = {"numa_hit": 0, "numa_foreign": 0}
        for member in archive:
            if member.name.endswith("/numastat"):
                content = archive.extractfile(member)
                assert content is not None
                for line in content.read().decode().splitlines():
                    name, number = line.split()
                    if name in stats:
                        stats[name] += int(number)
    total = stats["numa_hit"] + stats["numa_foreign"]
    (finding,) = results["numa.misses"].findings
    assert finding.evidence[0].value.startswith(f"{stats['numa_foreign']} of {total} pages since boot")
    assert results["numa.memoryless-node"].outcome == "ok"
    assert results["clock.source"].outcome == "ok"  # kvm-clock


def test_huge_pages_of_four_sizes(realdata: Path) -> None:
    path = "pcp/qa/linux/sysfs-hugepages-003.tgz"
    machine = memory.read(open_snapshot(str(realdata / path)))
    assert {pool.size_kb: pool.total.get() for pool in machine.hugepages} == {
        64: 0,
        2048: 2000,
        32768: 0,
        1 << 20: 100,
    }
    (pool,) = (pool for pool in machine.hugepages if pool.size_kb == 2048)
    assert (pool.free.get(), pool.surplus.get(), pool.reserved.get()) == (2000, 4, 8)
    result = _archive(realdata, path, "memory.hugepages")["memory.hugepages"]
    assert (result.outcome, result.severity) == ("finding", "info")  # 4 surplus pages


def test_memory_tiers_and_gpu_memory_are_no_faults(realdata: Path) -> None:
    for name in (
        "fakeheteromemtiers",
        "fakememinitiators-1np2c+1npp+gi",
        "nvidiagpunumanodes",
        "memorysidecaches",
    ):
        path = f"hwloc/tests/hwloc/linux/{name}.tar.bz2"
        assert _archive(realdata, path, "numa.memoryless-node")["numa.memoryless-node"].outcome == "ok", name


def test_cpus_that_two_nodes_claim(realdata: Path) -> None:
    path = "hwloc/tests/hwloc/linux/fakeheterocpunuma.tar.bz2"
    result = _archive(realdata, path, "numa.buggy-topology")["numa.buggy-topology"]
    assert {"cpu:20-23", "cpu:16-19"} <= {finding.subject for finding in result.findings}


def _archives(realdata: Path) -> list[Path]:
    kinds = (".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
    return [
        path for path in sorted(realdata.rglob("*")) if path.name.endswith(kinds) and "/x86/" not in str(path)
    ]


def test_every_archive_is_read_without_a_fault(realdata: Path) -> None:
    read = 0
    for path in [*_archives(realdata), *sorted((realdata / "reports").iterdir())]:
        try:
            host = open_snapshot(str(path))
        except UsageError:
            continue  # holds no machine
        parts: list[Any] = [memory.read(host), numa.read(host), clock.read(host)]
        assert len({node.id for node in parts[1].nodes}) == len(parts[1].nodes), path
        read += 1
    if read < 50:
        pytest.fail(f"only {read} archives could be opened")
