"""Rows of NUMA nodes: memory, balance, misses, contradictions, numbering."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support import host
from tests.support.rows import diagnose_one

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult

NODE = "/sys/devices/system/node"
ROWS = (
    "numa.memoryless-node",
    "numa.memory-balance",
    "numa.misses",
    "numa.buggy-topology",
    "numa.cpu-numbering",
)


def _nodes(
    *nodes: tuple[str, int],
    distances: tuple[str, ...] | None = None,
    stats: tuple[tuple[int, int], ...] | None = None,
) -> dict[str, Any]:
    """(CPU list, MiB) of each node; numastat as (hits, foreign)."""
    files: dict[str, Any] = {}
    for id, (cpus, mebibytes) in enumerate(nodes):
        path = f"{NODE}/node{id}"
        files[f"{path}/cpulist"] = f"{cpus}\n"
        files[f"{path}/meminfo"] = f"Node {id} MemTotal: {mebibytes * 1024} kB\nNode {id} MemFree: 64 kB\n"
        row = ["10" if other == id else "21" for other in range(len(nodes))]
        files[f"{path}/distance"] = distances[id] if distances else " ".join(row)
        hits, foreign = stats[id] if stats else (1000, 0)
        files[f"{path}/numastat"] = f"numa_hit {hits}\nnuma_miss 0\nnuma_foreign {foreign}\n"
    return files


def _row(tmp_path: Path, id: str, files: dict[str, Any], **more: Any) -> RowResult:
    settings = more.pop("settings", ())
    return diagnose_one(host(tmp_path, files, **more), id, settings=settings)


HEALTHY = _nodes(("0-3", 64_000), ("4-7", 64_512))


@pytest.mark.parametrize("id", ROWS)
def test_two_equal_nodes_are_good(tmp_path: Path, id: str) -> None:
    assert _row(tmp_path, id, HEALTHY).outcome == "ok"


@pytest.mark.parametrize("id", ROWS)
def test_nodes_not_told_and_no_nodes(tmp_path: Path, id: str) -> None:
    assert _row(tmp_path, id, {"/proc/version": "x"}).outcome == "unknown"
    assert _row(tmp_path, id, {"/proc/version": "x"}, complete=True).outcome == "not-applicable"


@pytest.mark.parametrize("id", ["numa.memory-balance", "numa.misses", "numa.cpu-numbering"])
def test_one_node_has_nothing_to_compare(tmp_path: Path, id: str) -> None:
    assert _row(tmp_path, id, _nodes(("0-3", 64_000))).outcome == "not-applicable"


@pytest.mark.parametrize("id", ["numa.memoryless-node", "numa.buggy-topology", "numa.cpu-numbering"])
def test_cpus_not_told(tmp_path: Path, id: str) -> None:
    files = {path: content for path, content in HEALTHY.items() if path != f"{NODE}/node1/cpulist"}
    assert _row(tmp_path, id, files).outcome == "unknown"


# -- numa.memoryless-node --------------------------------------------------------------------


def test_a_node_of_cpus_without_memory(tmp_path: Path) -> None:
    files = _nodes(
        ("0-3", 0), ("4-7", 64_000), ("8-11", 64_000), distances=("10 12 32", "12 10 32", "32 32 10")
    )
    result = _row(tmp_path, "numa.memoryless-node", files)
    (finding,) = result.findings
    assert (result.severity, finding.subject) == ("warning", "node:0")
    assert "4 of 12 CPUs and no memory" in finding.message and "distance 12 (of node 1)" in finding.message
    assert "nodes 1-2" in finding.advice


def test_memory_that_firmware_keeps_in_a_node_of_its_own_is_near(tmp_path: Path) -> None:
    files = {
        **_nodes(("0-3", 0), ("", 64_000), distances=("10 11", "11 10")),
        f"{NODE}/node0/access1/targets/node1/uevent": "",
    }
    result = _row(tmp_path, "numa.memoryless-node", files)
    assert result.outcome == "ok" and "the memory of node 0 is node 1" in result.reason


def test_memory_without_cpus_is_no_fault(tmp_path: Path) -> None:
    files = {
        **_nodes(("0-3", 64_000), ("", 16_128), ("", 0)),
        "/proc/driver/nvidia/gpus/0004:05:00.0/numa_status": "Node:  1\n",
    }
    result = _row(tmp_path, "numa.memoryless-node", files)
    assert (result.outcome, result.reason) == (
        "ok",
        "node 1: GPU memory of 15.8 GiB; node 2: neither CPUs nor memory",
    )


def test_memory_not_told(tmp_path: Path) -> None:
    files = {path: content for path, content in HEALTHY.items() if path != f"{NODE}/node1/meminfo"}
    assert _row(tmp_path, "numa.memoryless-node", files).outcome == "unknown"
    assert _row(tmp_path, "numa.memory-balance", files).outcome == "unknown"


# -- numa.memory-balance ---------------------------------------------------------------------


def test_half_the_memory_on_one_node(tmp_path: Path) -> None:
    result = _row(tmp_path, "numa.memory-balance", _nodes(("0-3", 65_536), ("4-7", 32_768)))
    (finding,) = result.findings
    assert (result.severity, finding.subject) == ("info", "node:1")
    assert finding.message == "Node 1 has 32 GiB of memory, node 0 64 GiB."
    assert (
        _row(
            tmp_path,
            "numa.memory-balance",
            _nodes(("0-3", 65_536), ("4-7", 32_768)),
            settings=["numa.memory_ratio_max=2.0"],
        ).outcome
        == "ok"
    )


def test_nodes_of_gpu_memory_or_of_none_are_not_compared(tmp_path: Path) -> None:
    assert (
        _row(tmp_path, "numa.memory-balance", _nodes(("0-3", 64_000), ("4-7", 64_000), ("", 16_000))).outcome
        == "ok"
    )
    assert (
        _row(tmp_path, "numa.memory-balance", _nodes(("0-3", 64_000), ("4-7", 0))).outcome == "not-applicable"
    )


def test_a_virtual_machines_memory_is_its_hypervisors_choice(tmp_path: Path) -> None:
    files = {
        **_nodes(("0-3", 65_536), ("4-7", 32_768)),
        "/proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu lm hypervisor\n",
    }
    assert _row(tmp_path, "numa.memory-balance", files, complete=True).outcome == "not-applicable"


# -- numa.misses -----------------------------------------------------------------------------


def test_misses(tmp_path: Path) -> None:
    files = _nodes(("0-3", 64_000), ("4-7", 64_000), stats=((900, 20), (900, 180)))
    result = _row(tmp_path, "numa.misses", files)  # 200 of 2000
    (finding,) = result.findings
    assert (result.severity, finding.subject) == ("info", "node:1")
    assert finding.evidence[0].value == "200 of 2000 pages since boot, 10.00%"
    few = _nodes(("0-3", 64_000), ("4-7", 64_000), stats=((990, 0), (990, 20)))
    assert _row(tmp_path, "numa.misses", few).outcome == "ok"  # 20 of 2000, 1 %
    fresh = _nodes(("0-3", 64_000), ("4-7", 64_000), stats=((0, 0), (0, 0)))
    assert _row(tmp_path, "numa.misses", fresh).outcome == "ok"


def test_misses_not_counted_or_not_told(tmp_path: Path) -> None:
    off = {**HEALTHY, "/proc/sys/vm/numa_stat": "0\n"}
    assert _row(tmp_path, "numa.misses", off).outcome == "unknown"
    part = {**HEALTHY, f"{NODE}/node1/numastat": "numa_hit 5\n"}
    assert _row(tmp_path, "numa.misses", part).outcome == "unknown"


# -- numa.buggy-topology ---------------------------------------------------------------------


def test_a_node_that_is_no_nearer_to_itself(tmp_path: Path) -> None:
    files = _nodes(("0-3", 64), ("4-7", 64), distances=("10 10", "21 10"))
    result = _row(tmp_path, "numa.buggy-topology", files)
    assert result.severity == "warning"
    assert result.findings[0].subject == "node:0"


def test_directions_of_unlike_distance_are_legal_and_seldom_meant(tmp_path: Path) -> None:
    files = _nodes(("0-3", 64), ("4-7", 64), distances=("10 20", "21 10"))
    result = _row(tmp_path, "numa.buggy-topology", files)
    assert (result.outcome, result.severity) == ("finding", "info")
    assert [item.value for item in result.findings[0].evidence] == ["20 to node 1", "21 to node 0"]


def test_cpus_of_two_nodes(tmp_path: Path) -> None:
    result = _row(tmp_path, "numa.buggy-topology", _nodes(("0-4", 64), ("4-7", 64)))
    assert [finding.subject for finding in result.findings] == ["cpu:4"]


def test_cpus_of_no_node(tmp_path: Path) -> None:
    files = {**_nodes(("0-3", 64), ("4-6", 64)), "/sys/devices/system/cpu/online": "0-7\n"}
    result = _row(tmp_path, "numa.buggy-topology", files)
    assert [finding.subject for finding in result.findings] == ["cpu:7"]
    assert "belong to no node" in result.findings[0].message


def test_distances_not_told(tmp_path: Path) -> None:
    files = {**HEALTHY, f"{NODE}/node1/distance": "21\n"}
    assert _row(tmp_path, "numa.buggy-topology", files).outcome == "unknown"


# -- numa.cpu-numbering ----------------------------------------------------------------------

DEALT = _nodes(("0,2,4,6", 64), ("1,3,5,7", 64))


def test_numbers_dealt_out_over_the_nodes_are_worth_knowing(tmp_path: Path) -> None:
    result = _row(tmp_path, "numa.cpu-numbering", DEALT)
    assert result.outcome == "ok"
    assert result.reason.startswith("CPU n is on node n modulo 2")
    one_node = {**DEALT, "/sys/devices/system/cpu/isolated": "2,4,6\n"}
    assert _row(tmp_path, "numa.cpu-numbering", one_node).outcome == "ok"


def test_a_hot_range_that_spans_nodes(tmp_path: Path) -> None:
    files = {**DEALT, "/sys/devices/system/cpu/isolated": "4-7\n"}
    result = _row(tmp_path, "numa.cpu-numbering", files)
    (finding,) = result.findings
    assert (result.severity, finding.subject) == ("info", "cpu:4-7")
    assert "node 0 has CPUs 0,2,4,6" in finding.advice
    # blocks of numbers are what a range is made for
    blocks = {**HEALTHY, "/sys/devices/system/cpu/isolated": "2-7\n"}
    assert _row(tmp_path, "numa.cpu-numbering", blocks).outcome == "ok"
