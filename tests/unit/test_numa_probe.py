"""NUMA nodes as sysfs and pasted texts tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwtune.probes import numa as probe
from tests.support import Directory, Gap, Link, host

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.model.numa import Numa

NODE = "/sys/devices/system/node"


def _node(id: int, cpumap: str | None, memory_kb: int, distance: str, **more: str) -> dict[str, Any]:
    path = f"{NODE}/node{id}"
    files: dict[str, Any] = {
        f"{path}/meminfo": f"Node {id} MemTotal:       {memory_kb} kB\nNode {id} MemFree:        1 kB\n",
        f"{path}/distance": distance,
        f"{path}/numastat": "numa_hit 10\nnuma_miss 0\nnuma_foreign 2\n",
    }
    if cpumap is not None:
        files[f"{path}/cpumap"] = cpumap
    files.update({f"{path}/{name}": content for name, content in more.items()})
    return files


def _read(tmp_path: Path, files: dict[str, Any], **more: Any) -> Numa:
    return probe.read(host(tmp_path, files, **more))


def test_nodes_with_gaps_in_their_numbers(tmp_path: Path) -> None:
    files = {
        **_node(0, "00000000,0000000f", 1024, "10 40 80"),
        **_node(8, "00000001,00000000", 2048, "40 10 80"),
        **_node(255, "00000000,00000000", 4096, "80 80 10"),
        f"{NODE}/online": "0,8,255\n",
    }
    numa = _read(tmp_path, files)
    first, second, third = numa.nodes
    assert [node.id for node in numa.nodes] == [0, 8, 255]
    assert (first.cpus.get(), second.cpus.get(), third.cpus.get()) == ([0, 1, 2, 3], [32], [])
    assert (first.memory_bytes.get(), first.free_bytes.get()) == (1024 * 1024, 1024)
    assert second.distances.get() == {0: 40, 8: 10, 255: 80}
    assert first.stats.get() == {"numa_hit": 10, "numa_miss": 0, "numa_foreign": 2}
    assert first.cpus.source == f"{NODE}/node0/cpumap"
    assert numa.of_cpu() == {0: 0, 1: 0, 2: 0, 3: 0, 32: 8}


def test_a_list_serves_where_the_mask_is_missing(tmp_path: Path) -> None:
    numa = _read(tmp_path, _node(0, None, 1, "10", cpulist="0-2,5\n"))
    assert (numa.nodes[0].cpus.get(), numa.nodes[0].cpus.source) == ([0, 1, 2, 5], f"{NODE}/node0/cpulist")


def test_more_distances_than_nodes_are_no_distances(tmp_path: Path) -> None:
    files = {**_node(0, "1", 1, "10 20 20"), **_node(1, "2", 1, "20 10 20")}
    numa = _read(tmp_path, files)
    assert numa.nodes[0].distances.gap == "invalid"
    assert "3 distances for 2 nodes" in numa.nodes[0].distances.detail


def test_a_kernel_without_numa(tmp_path: Path) -> None:
    numa = _read(tmp_path, {"/proc/version": "x"}, complete=True)
    assert (numa.nodes, numa.listed.absent) == ([], True)


def test_a_capture_without_nodes(tmp_path: Path) -> None:
    numa = _read(tmp_path, {"/proc/version": "x"})
    assert (numa.nodes, numa.listed.gap) == ([], "not-captured")


# -- what nodes without CPUs are made of -----------------------------------------------------


def _kinds(tmp_path: Path, files: dict[str, Any]) -> dict[int, str | None]:
    return {n.id: n.memory_kind.value for n in _read(tmp_path, files).nodes if not n.cpus.get()}


def test_the_gpus_driver_tells_which_nodes_are_its_memory(tmp_path: Path) -> None:
    files = {
        **_node(0, "f", 1024, "10 80"),
        **_node(1, "0", 1024, "80 10"),
        "/proc/driver/nvidia/gpus/0004:05:00.0/numa_status": "Node:      1\nStatus:    online\n",
    }
    assert _kinds(tmp_path, files) == {1: "gpu"}


def test_power9_numbers_them_down_from_255(tmp_path: Path) -> None:
    files = {
        **_node(0, "f", 1, "10 40 80 80"),
        **_node(8, "f0", 1, "40 10 80 80"),
        **_node(254, "0", 1, "80 80 10 80"),
        **_node(255, "0", 1, "80 80 80 10"),
    }
    assert _kinds(tmp_path, files) == {254: "gpu", 255: "gpu"}
    lonely = {**_node(0, "f", 1, "10 20"), **_node(254, "0", 1, "20 10")}  # no run that ends at 255
    assert _kinds(tmp_path, lonely) == {254: None}


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("LNXSYSTM:00/LNXSYBUS:00/ACPI0012:00/ndbus0/region5/dax5.1/dax5.0", "pmem"),
        ("platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax5.0", "cxl"),
        ("platform/hmem.1/dax5.0", "special-purpose"),
    ],
)
def test_dax_devices_tell_by_where_they_hang(tmp_path: Path, place: str, kind: str) -> None:
    files = {
        **_node(0, "f", 1024, "10 20"),
        **_node(2, "0", 1024, "20 10"),
        f"/sys/devices/{place}/target_node": "2\n",
        "/sys/bus/dax/devices/dax5.0": Link(f"../../../devices/{place}"),
    }
    assert _kinds(tmp_path, files) == {2: kind}


def test_memory_that_reads_faster_than_that_of_all_cpus(tmp_path: Path) -> None:
    files = {
        **_node(0, "f", 1024, "10 13 21"),
        **_node(1, "0", 1024, "13 10 23"),
        **_node(2, "0", 1024, "21 23 10"),
        f"{NODE}/node0/access0/initiators/read_bandwidth": "100000",
        f"{NODE}/node1/access0/initiators/read_bandwidth": "400000",
        f"{NODE}/node2/access0/initiators/read_bandwidth": "30000",
    }
    assert _kinds(tmp_path, files) == {1: "hbm", 2: None}


def test_cpus_without_memory_ask_firmware_for_the_nearest(tmp_path: Path) -> None:
    files = {
        **_node(0, "f", 0, "10 11 20"),
        **_node(1, "0", 1024, "11 10 20"),
        **_node(2, "f0", 1024, "20 20 10"),
        f"{NODE}/node0/access1/targets/node1": Directory(),
    }
    numa = _read(tmp_path, files)
    assert numa.nodes[0].nearest_memory.get() == [1]
    assert not numa.nodes[2].nearest_memory.known  # it has its own: nobody asked


# -- pasted text -----------------------------------------------------------------------------

NUMACTL = """available: 2 nodes (0-1)
node 0 cpus: 0 1
node 0 size: 100 MB
node 0 free: 40 MB
node 1 cpus: 2 3
node 1 size: 200 MB
node 1 free: 90 MB
node distances:
node   0   1
  0:  10  21
  1:  21  10
"""


def test_numactl_alone(tmp_path: Path) -> None:
    numa = _read(tmp_path, {}, documents={"numa.txt": NUMACTL})
    first, second = numa.nodes
    assert (first.cpus.get(), second.memory_bytes.get(), second.free_bytes.get()) == (
        [0, 1],
        200 << 20,
        90 << 20,
    )
    assert second.distances.get() == {0: 21, 1: 10}
    assert first.cpus.source.endswith("numa.txt")
    assert numa.online.get() == [0, 1]
    assert first.stats.gap == "not-captured" and "numa.txt" in first.stats.source


def test_lscpu_fills_what_the_tree_lacks_and_nothing_else(tmp_path: Path) -> None:
    lscpu = (
        "Architecture: x86_64\nByte Order: Little Endian\nCPU(s): 4\n"
        "NUMA node0 CPU(s):  0,2\nNUMA node1 CPU(s):  1,3\nNUMA node2 CPU(s):  9\n"
    )
    files = {**_node(0, "f", 1, "10 20"), **_node(1, None, 1, "20 10")}
    numa = _read(tmp_path, files, documents={"lscpu.txt": lscpu})
    assert [(node.id, node.cpus.get()) for node in numa.nodes] == [(0, [0, 1, 2, 3]), (1, [1, 3])]


# -- anything may lie there ------------------------------------------------------------------

_CONTENT = st.one_of(
    st.just(Directory()),
    st.just(Gap("denied")),
    st.binary(max_size=80),
    st.text(max_size=80),
    st.sampled_from(
        ["", "0", "-1", "10 20", "0-", "99999999999999999999", "ffffffff," * 40, "Node 0 MemTotal: -5 kB"]
    ),
)
_FILES = ("cpumap", "cpulist", "meminfo", "distance", "numastat", "hugepages/hugepages-2048kB/nr_hugepages")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(
    st.dictionaries(st.tuples(st.sampled_from([0, 1, 300]), st.sampled_from(_FILES)), _CONTENT, max_size=8)
)
def test_any_content_is_read_without_a_word(tmp_path: Path, contents: dict[tuple[int, str], Any]) -> None:
    numa = _read(tmp_path, {f"{NODE}/node{id}/{name}": content for (id, name), content in contents.items()})
    for node in numa.nodes:
        assert not node.cpus.known or all(cpu >= 0 for cpu in node.cpus.get())
        assert not node.memory_bytes.known or node.memory_bytes.get() >= 0
