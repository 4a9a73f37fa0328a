"""Rows of devices and the nodes that they hang off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support import Directory, Link, host
from tests.support.rows import diagnose_one

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult

NODE = "/sys/devices/system/node"
CPU = "/sys/devices/system/cpu"
TWO_NODES = {
    f"{NODE}/node0/cpulist": "0-3\n",
    f"{NODE}/node1/cpulist": "4-7\n",
    f"{NODE}/node0/distance": "10 21\n",
    f"{NODE}/node1/distance": "21 10\n",
    f"{CPU}/online": "0-7\n",
}
HOT_0 = {f"{CPU}/isolated": "2-3\n"}
BARE_METAL = {
    "/proc/cpuinfo": (
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nflags\t\t: fpu lm\n"
    ),
    "/sys/class/dmi/id/sys_vendor": "Dell Inc.\n",
    "/sys/class/dmi/id/product_name": "PowerEdge R740\n",
}
GUEST = {"/proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu lm hypervisor\n"}
GPU = ("0x030200", "0x10de")
NIC = ("0x020000", "0x15b3")
DRIVE = ("0x010802", "0x144d")
BMC_VGA = ("0x030000", "0x1a03")


def _pci(address: str, what: tuple[str, str], node: int | None) -> dict[str, Any]:
    real = f"/sys/devices/pci0000:{address[5:7]}/{address}"
    files: dict[str, Any] = {
        f"{real}/class": f"{what[0]}\n",
        f"{real}/vendor": f"{what[1]}\n",
        f"{real}/device": "0x1234\n",
        f"/sys/bus/pci/devices/{address}": Link(f"../../../devices/pci0000:{address[5:7]}/{address}"),
    }
    if node is not None:
        files[f"{real}/numa_node"] = f"{node}\n"
    return files


def _nic(name: str, address: str, operstate: str) -> dict[str, Any]:
    real = f"/sys/devices/pci0000:{address[5:7]}/{address}/net/{name}"
    return {
        f"{real}/operstate": f"{operstate}\n",
        f"{real}/device": Link("../.."),
        f"/sys/class/net/{name}": Link(f"../../devices/pci0000:{address[5:7]}/{address}/net/{name}"),
    }


def _row(tmp_path: Path, id: str, *parts: dict[str, Any], **more: Any) -> RowResult:
    files: dict[str, Any] = {}
    for part in parts:
        files.update(part)
    return diagnose_one(host(tmp_path, files, **more), id)


# -- numa.device-node ------------------------------------------------------------------------


def test_a_gpu_beside_the_hot_cpus(tmp_path: Path) -> None:
    near = _pci("0000:3b:00.0", GPU, 0)
    assert _row(tmp_path, "numa.device-node", TWO_NODES, HOT_0, near).outcome == "ok"


def test_a_gpu_on_the_other_node(tmp_path: Path) -> None:
    result = _row(tmp_path, "numa.device-node", TWO_NODES, HOT_0, _pci("0000:5e:00.0", GPU, 1))
    (finding,) = result.findings
    assert (result.severity, finding.subject) == ("warning", "pci:0000:5e:00.0")
    assert finding.message == "0000:5e:00.0 is on node 1, and all hot CPUs are on node 0."
    assert ("/sys/devices/system/node/node1/distance", "21 from node 1 to node 0") in [
        (item.source, item.value) for item in finding.evidence
    ]


def test_hot_cpus_on_both_nodes_are_near_to_all(tmp_path: Path) -> None:
    both = {f"{CPU}/isolated": "2-5\n"}
    gpus = (_pci("0000:3b:00.0", GPU, 0), _pci("0000:5e:00.0", GPU, 1))
    assert _row(tmp_path, "numa.device-node", TWO_NODES, both, *gpus).outcome == "ok"


def test_gpus_of_one_node_are_one_finding(tmp_path: Path) -> None:
    gpus = (_pci("0000:5e:00.0", GPU, 1), _pci("0000:5f:00.0", GPU, 1), _pci("0000:3b:00.0", GPU, 0))
    (finding,) = _row(tmp_path, "numa.device-node", TWO_NODES, HOT_0, *gpus).findings
    assert finding.subject == "node:1"
    assert "0000:5e:00.0, 0000:5f:00.0 are on node 1" in finding.message


def test_a_second_nic_on_the_other_node_is_worth_a_note(tmp_path: Path) -> None:
    near, far = _pci("0000:3b:00.0", NIC, 0), _pci("0000:5e:00.0", NIC, 1)
    assert _row(tmp_path, "numa.device-node", TWO_NODES, HOT_0, near, far).severity == "info"
    assert _row(tmp_path, "numa.device-node", TWO_NODES, HOT_0, far).severity == "warning"


def test_drives_are_seldom_hot_and_a_management_controller_is_no_gpu(tmp_path: Path) -> None:
    drive = _pci("0000:5e:00.0", DRIVE, 1)
    assert _row(tmp_path, "numa.device-node", TWO_NODES, HOT_0, drive).severity == "info"
    both = _row(tmp_path, "numa.device-node", TWO_NODES, HOT_0, drive, _pci("0000:3b:00.0", DRIVE, 0))
    assert both.outcome == "ok"
    vga = _row(
        tmp_path, "numa.device-node", TWO_NODES, HOT_0, _pci("0000:5e:00.0", BMC_VGA, 1), complete=True
    )
    assert vga.outcome == "not-applicable"


def test_nothing_hot_or_nothing_to_choose(tmp_path: Path) -> None:
    gpu = _pci("0000:5e:00.0", GPU, 1)
    none = {f"{CPU}/isolated": "\n", "/proc/cmdline": "quiet\n"}
    assert _row(tmp_path, "numa.device-node", TWO_NODES, none, gpu).outcome == "not-applicable"
    one = {f"{NODE}/node0/cpulist": "0-7\n"}
    assert _row(tmp_path, "numa.device-node", one, HOT_0, gpu).outcome == "not-applicable"
    assert _row(tmp_path, "numa.device-node", HOT_0, gpu, complete=True).outcome == "not-applicable"


def test_what_is_not_told(tmp_path: Path) -> None:
    gpu = _pci("0000:5e:00.0", GPU, 1)
    assert _row(tmp_path, "numa.device-node", TWO_NODES, gpu).outcome == "unknown"  # which CPUs are hot
    assert _row(tmp_path, "numa.device-node", HOT_0, gpu).outcome == "unknown"  # which nodes there are
    assert _row(tmp_path, "numa.device-node", TWO_NODES, HOT_0).outcome == "unknown"  # which devices
    lost = _row(tmp_path, "numa.device-node", TWO_NODES, HOT_0, _pci("0000:5e:00.0", GPU, None))
    assert lost.outcome == "unknown"


# -- numa.node-unknown -----------------------------------------------------------------------


def test_firmware_that_does_not_say(tmp_path: Path) -> None:
    gpu = _pci("0000:5e:00.0", GPU, -1)
    result = _row(tmp_path, "numa.node-unknown", TWO_NODES, BARE_METAL, gpu, complete=True)
    (finding,) = result.findings
    assert (result.severity, finding.changes) == ("warning", [])
    assert finding.evidence[0].value == "-1"
    guest = _row(tmp_path, "numa.node-unknown", TWO_NODES, GUEST, gpu, complete=True)
    assert guest.severity == "info" and "hypervisor" in guest.findings[0].message
    nic = _row(
        tmp_path, "numa.node-unknown", TWO_NODES, BARE_METAL, _pci("0000:5e:00.0", NIC, -1), complete=True
    )
    assert nic.severity == "info"


def test_node_unknown_is_good_unknown_or_no_question(tmp_path: Path) -> None:
    assert _row(tmp_path, "numa.node-unknown", TWO_NODES, _pci("0000:5e:00.0", GPU, 1)).outcome == "ok"
    assert (
        _row(tmp_path, "numa.node-unknown", TWO_NODES, _pci("0000:5e:00.0", GPU, None)).outcome == "unknown"
    )
    one = {f"{NODE}/node0/cpulist": "0-7\n"}
    assert _row(tmp_path, "numa.node-unknown", one, _pci("0000:5e:00.0", GPU, -1)).outcome == "not-applicable"
    none = _row(
        tmp_path, "numa.node-unknown", TWO_NODES, {"/sys/bus/pci/devices": Directory()}, complete=True
    )
    assert none.outcome == "not-applicable"


# -- numa.node-interleaving ------------------------------------------------------------------


def _sockets(*packages: int) -> dict[str, Any]:
    last = len(packages) - 1
    files: dict[str, Any] = {f"{CPU}/online": f"0-{last}\n", f"{CPU}/present": f"0-{last}\n"}
    for cpu, package in enumerate(packages):
        topology = f"{CPU}/cpu{cpu}/topology"
        files[f"{topology}/physical_package_id"] = f"{package}\n"
        files[f"{topology}/core_id"] = "0\n"
        files[f"{topology}/thread_siblings_list"] = f"{cpu}\n"
    return files


ONE_NODE = {f"{NODE}/node0/cpulist": "0-1\n"}


def test_two_sockets_as_one_node(tmp_path: Path) -> None:
    result = _row(tmp_path, "numa.node-interleaving", ONE_NODE, _sockets(0, 1), BARE_METAL, complete=True)
    (finding,) = result.findings
    assert (result.severity, finding.subject) == ("warning", "node:0")
    assert "interleaving" in finding.advice
    given = {"/proc/cmdline": "quiet numa=off\n"}
    result = _row(
        tmp_path, "numa.node-interleaving", ONE_NODE, _sockets(0, 1), BARE_METAL, given, complete=True
    )
    assert result.findings[0].advice == "Boot without numa=off."


@pytest.mark.parametrize(("family", "model"), [(15, 4), (6, 15), (6, 29)])
def test_sockets_on_a_front_side_bus_have_one_memory(tmp_path: Path, family: int, model: int) -> None:
    text = BARE_METAL["/proc/cpuinfo"].replace(": 6\n", f": {family}\n").replace(": 85\n", f": {model}\n")
    old = {**BARE_METAL, "/proc/cpuinfo": text}
    result = _row(tmp_path, "numa.node-interleaving", ONE_NODE, _sockets(0, 1), old, complete=True)
    assert result.outcome == "not-applicable"


def test_interleaving_is_no_question_or_not_told(tmp_path: Path) -> None:
    id = "numa.node-interleaving"
    assert _row(tmp_path, id, ONE_NODE, _sockets(0, 0), BARE_METAL, complete=True).outcome == "not-applicable"
    assert _row(tmp_path, id, TWO_NODES, _sockets(0, 1), BARE_METAL, complete=True).outcome == "ok"
    assert _row(tmp_path, id, ONE_NODE, _sockets(0, 1), GUEST, complete=True).outcome == "not-applicable"
    assert _row(tmp_path, id, ONE_NODE).outcome == "unknown"
    assert _row(tmp_path, id, ONE_NODE, _sockets(0, 1)).outcome == "unknown"
