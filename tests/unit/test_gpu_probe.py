"""The GPU probe: which GPUs there are by files and texts, and one list out of many sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hwtune.fact import known
from hwtune.model import paths
from hwtune.model.gpu import subject, subject_at
from hwtune.model.pci import PciDevice
from hwtune.probes import gpu as probe
from tests.support import Link, host
from tests.support.gpu import H100, machine, pci_gpu
from tests.support.pci import BRIDGE, GPU, IB, NIC, function
from tests.support.rows import diagnose_one

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.model.machine import Gpus

MELLANOX = (0x15B3, 0x1021)
GEN5_X16 = ("32.0 GT/s PCIe", "16", "32.0 GT/s PCIe", "16")


def read(tmp_path: Path, files: dict[str, Any], complete: bool = True, **documents: str) -> Gpus:
    named = {f"{name}.txt": text for name, text in documents.items()}
    return probe.read(host(tmp_path, files, complete=complete, documents=named))


# -- what the kernel lists ------------------------------------------------------------------


def test_gpus_are_display_controllers_of_two_vendors(tmp_path: Path) -> None:
    files = {
        **pci_gpu("0000:07:00.0"),
        **pci_gpu("0000:08:00.0", "amdgpu", vendor="0x1002", kind="0x038000"),
        **pci_gpu("0000:09:00.0", "ast", vendor="0x1a03", kind="0x030000"),  # a BMC's
        **pci_gpu("0000:0a:00.0", None, kind="0x068000"),  # an NVSwitch
        **pci_gpu("0000:0b:00.1", "snd_hda_intel", kind="0x040300"),  # the sound of a card
    }
    gpus = read(tmp_path, files)
    assert [(g.address, g.vendor, g.driver.value) for g in gpus.gpus] == [
        ("0000:07:00.0", "nvidia", "nvidia"),
        ("0000:08:00.0", "amd", "amdgpu"),
    ]
    assert gpus.gpus[0].numa_node.get() == 0
    assert gpus.host.listed.known
    assert gpus.host.nvswitches.get() == 1


def test_one_file_rules_gpus_out(tmp_path: Path) -> None:
    files = {"/proc/bus/pci/devices": "0000\t80861237\t0\n0018\t1af41000\tb\n", **pci_gpu("0000:07:00.0")}
    gpus = read(tmp_path, files)
    assert (gpus.gpus, gpus.host.listed.source) == ([], "/proc/bus/pci/devices")
    files["/proc/bus/pci/devices"] += "0700\t10de2330\t10\n"
    assert len(read(tmp_path / "b", files).gpus) == 1


def test_a_machine_without_pci_has_no_gpu_and_an_uncaptured_one_may(tmp_path: Path) -> None:
    assert read(tmp_path / "a", {"/proc/version": "Linux\n"}).host.listed.known
    assert not read(tmp_path / "b", {"/proc/version": "Linux\n"}, complete=False).host.listed.known


def test_the_module_tells_of_itself_and_its_gpus(tmp_path: Path) -> None:
    files = {
        "/proc/driver/nvidia/version": (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
            "GCC version:  gcc version 12.2.0\n"
        ),
        "/proc/driver/nvidia/params": 'ResmanDebugLevel: 4294967295\nRegistryDwords: "A=1;B=2"\n',
        "/proc/driver/nvidia/gpus/0000:07:00.0/information": (
            "Model: \t\t NVIDIA L4\nIRQ:   \t\t 30\nGPU UUID: \t GPU-????????-????-????-????-????????????\n"
        ),
    }
    gpus = read(tmp_path, files)
    assert gpus.host.driver_version.get() == "570.86.15"
    assert gpus.host.driver_parameters.get() == {
        "ResmanDebugLevel": "4294967295",
        "RegistryDwords": "A=1;B=2",
    }
    (gpu,) = gpus.gpus
    assert (gpu.address, gpu.name.get(), gpu.uuid.known) == ("0000:07:00.0", "NVIDIA L4", False)


@pytest.mark.parametrize("content", ["", "\x00\xff" * 40, "no colon at all", ":" * 5000])
def test_any_content_is_read(tmp_path: Path, content: str) -> None:
    files = {
        **pci_gpu("0000:07:00.0"),
        "/proc/driver/nvidia/version": content,
        "/proc/driver/nvidia/params": content,
        "/proc/driver/nvidia/gpus/0000:07:00.0/information": content,
        "/proc/bus/pci/devices/x": content,  # a folder in the file's place
        "/etc/environment": content,
        "/etc/nccl.conf": content,
        "/sys/bus/pci/devices/0000:07:00.0/local_cpulist": content,
    }
    gpus = read(tmp_path, files, smi=content, q=f"==============NVSMI LOG==============\n{content}")
    assert gpus.gpus[0].address == "0000:07:00.0"
    assert not gpus.host.driver_version.known


def test_pasted_lists_of_pci_functions(tmp_path: Path) -> None:
    lspci = (
        "07:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n"
        "08:00.0 Bridge: NVIDIA Corporation GH100 [H100 NVSwitch] (rev a1)\n"
        "09:00.0 VGA compatible controller: ASPEED Technology, Inc. ASPEED Graphics Family (rev 52)\n"
    )
    gpus = read(tmp_path, {}, complete=False, lspci=lspci)
    assert [g.address for g in gpus.gpus] == ["0000:07:00.0"]
    assert gpus.host.nvswitches.get() == 1
    # somebody may have cut out these lines
    assert not gpus.host.listed.known


# -- one list -------------------------------------------------------------------------------


def test_indices_follow_the_order_of_the_bus(tmp_path: Path) -> None:
    links = (
        "GPU 0: NVIDIA A100 (UUID: GPU-00000000-0000-4000-8000-000000000000)\n\t Link 0: 25 GB/s\n"
        "GPU 1: NVIDIA A100 (UUID: GPU-00000000-0000-4000-8000-000000000001)\n\t Link 0: <inactive>\n"
    )
    files = {**pci_gpu("0000:4e:00.0"), **pci_gpu("0000:0f:00.0")}
    gpus = read(tmp_path, files, links=links).gpus
    assert [(g.index, g.address) for g in gpus] == [(0, "0000:0f:00.0"), (1, "0000:4e:00.0")]
    assert [g.nvlinks.get()[0].active.get() for g in gpus] == [True, False]


def test_indices_of_fewer_gpus_are_not_matched(tmp_path: Path) -> None:
    links = "GPU 0: NVIDIA A100 (UUID: GPU-00000000-0000-4000-8000-000000000000)\n\t Link 0: 25 GB/s\n"
    files = {**pci_gpu("0000:4e:00.0"), **pci_gpu("0000:0f:00.0")}
    gpus = read(tmp_path, files, links=links).gpus
    assert [(g.index, g.address) for g in gpus] == [(0, None), (None, "0000:0f:00.0"), (None, "0000:4e:00.0")]


def test_a_text_that_names_no_gpu_is_of_the_only_one(tmp_path: Path) -> None:
    fragment = "    Remapped Rows\n        Correctable Error : 1\n        Pending : Yes\n"
    text = f"==============NVSMI LOG==============\n{fragment}"
    (gpu,) = read(tmp_path / "a", pci_gpu("0000:07:00.0"), q=text).gpus
    assert (gpu.address, gpu.remap_pending.get()) == ("0000:07:00.0", True)
    files = {**pci_gpu("0000:07:00.0"), **pci_gpu("0000:0f:00.0")}
    several = read(tmp_path / "b", files, q=text).gpus
    assert [(g.address, g.remap_pending.known) for g in several] == [
        ("0000:07:00.0", False),
        ("0000:0f:00.0", False),
        (None, True),
    ]
    assert subject(several, several[2]) == "gpu:unknown"
    assert subject(several, several[0]) == "pci:0000:07:00.0"


def test_nvml_comes_before_pasted_texts(tmp_path: Path) -> None:
    text = (
        "==============NVSMI LOG==============\nAttached GPUs : 1\nGPU 00000000:07:00.0\n"
        "    Product Name : NVIDIA H100 PCIe\n    Serial Number : 1\n    Display Mode : Enabled\n"
        "    Persistence Mode : Disabled\n"
    )
    captured = machine(
        tmp_path, {**H100, "nvmlDeviceGetName": {"error": "UNKNOWN"}}, documents={"q.txt": text}
    )
    (gpu,) = probe.read(captured).gpus
    assert (gpu.index, gpu.address) == (0, "0000:07:00.0")
    assert gpu.persistence.get() is True
    assert gpu.name.get() == "NVIDIA H100 PCIe"
    assert subject_at([gpu], "0000:07:00.0") == "gpu:0"
    assert subject_at([gpu], "0000:08:00.0") == "pci:0000:08:00.0"


@pytest.mark.parametrize(
    "inside",
    [
        '<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">',
        '<!ENTITY x SYSTEM "file:///etc/hostname">',
        '<!ENTITY % p SYSTEM "http://192.0.2.1/x.dtd"> %p;',
    ],
)
def test_entities_of_a_pasted_xml_are_refused(tmp_path: Path, inside: str) -> None:
    name = "&b;" if " b " in inside else "&x;" if " x " in inside else "x"
    text = (
        f'<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log [{inside}]>\n<nvidia_smi_log>\n'
        f'<attached_gpus>1</attached_gpus>\n<gpu id="00000000:07:00.0"><product_name>{name}</product_name>'
        "</gpu>\n</nvidia_smi_log>\n"
    )
    gpus = read(tmp_path, {}, complete=False, q=text)
    assert gpus.gpus == []
    assert gpus.host.listed.gap == "invalid"


# -- ways between functions -----------------------------------------------------------------


def _tree(*functions: tuple[str, str | None, str | None, int]) -> dict[str, PciDevice]:
    return {
        address: PciDevice(address, parent=parent, root=root, numa_node=known(node, "numa_node"))
        for address, parent, root, node in functions
    }


def test_ways_as_nvidia_smi_names_them() -> None:
    tree = _tree(
        ("port1", None, "pci0000:00", 0),
        ("up", "port1", "pci0000:00", 0),  # one switch with three ports
        ("down1", "up", "pci0000:00", 0),
        ("down2", "up", "pci0000:00", 0),
        ("down3", "up", "pci0000:00", 0),
        ("gpu", "down1", "pci0000:00", 0),
        ("nic", "down2", "pci0000:00", 0),
        ("up2", "down3", "pci0000:00", 0),  # a switch below the switch
        ("down4", "up2", "pci0000:00", 0),
        ("nvme", "down4", "pci0000:00", 0),
        ("port2", None, "pci0000:00", 0),
        ("host", "port2", "pci0000:00", 0),
        ("near", None, "pci0000:40", 0),
        ("far", None, "pci0000:80", 1),
        ("nowhere", None, "pci0000:c0", -1),
        ("unplaced", None, None, 0),
    )

    def way(other: str) -> str | None:
        return paths.way(tree["gpu"], tree[other], tree)

    assert {other: way(other) for other in ("nic", "nvme", "host", "near", "far", "nowhere", "unplaced")} == {
        "nic": "PIX",
        "nvme": "PXB",
        "host": "PHB",
        "near": "NODE",
        "far": "SYS",
        "nowhere": "NODE/SYS",
        "unplaced": None,
    }
    # two functions of one card
    assert paths.way(tree["gpu"], _tree(("gpu.1", "down1", "pci0000:00", 0))["gpu.1"], tree) == "PIX"


def test_a_tree_that_runs_in_circles_ends() -> None:
    tree = _tree(("a", "b", "pci0000:00", 0), ("b", "a", "pci0000:00", 0), ("c", None, "pci0000:00", 0))
    assert paths.way(tree["a"], tree["c"], tree) == "PHB"


def _switch(bus: int, *below: tuple[str, int, tuple[int, int], str]) -> dict[str, Any]:
    """A root port with a switch, and functions below ports of it: (address, class, ids, driver)."""
    top = f"pci0000:{bus:02x}/0000:{bus:02x}:01.0"
    up = f"{top}/0000:{bus + 1:02x}:00.0"
    files = {
        **function(top, BRIDGE, GEN5_X16, driver="pcieport"),
        **function(up, BRIDGE, GEN5_X16, driver="pcieport"),
    }
    for number, (address, kind, ids, driver) in enumerate(below):
        port = f"{up}/0000:{bus + 2:02x}:{number:02x}.0"
        files |= function(port, BRIDGE, GEN5_X16, driver="pcieport")
        files |= function(f"{port}/{address}", kind, GEN5_X16, ids, driver, vendor=f"0x{ids[0]:04x}\n")
        files[f"/sys/devices/{port}/{address}/class"] = f"0x{kind:06x}\n"
    return files


def test_nic_affinity_of_a_pci_tree(tmp_path: Path) -> None:
    h100 = (0x10DE, 0x2330)
    files = {
        **_switch(0x10, ("0000:13:00.0", GPU, h100, "nvidia"), ("0000:14:00.0", IB, MELLANOX, "mlx5_core")),
        **_switch(0x40, ("0000:43:00.0", GPU, h100, "nvidia"), ("0000:44:00.0", NIC, MELLANOX, "mlx5_core")),
        **_switch(0x80, ("0000:83:00.0", GPU, h100, "nvidia")),
        # for management: one lane
        **function("pci0000:80/0000:80:05.0", NIC, ("5.0 GT/s PCIe", "1", "5.0 GT/s PCIe", "1"), MELLANOX),
    }
    captured = host(tmp_path, files)
    result = diagnose_one(captured, "gpu.nic-affinity")
    assert [(f.subject, f.severity) for f in result.findings] == [("pci:0000:83:00.0", "info")]
    assert "0000:14:00.0, 0000:44:00.0 (NODE)" in result.findings[0].message


_NETS = {"0000:14:00.0": "eth0", "0000:44:00.0": "eth1"}


def _beside_nics(driver: str) -> dict[str, Any]:
    """Two GPUs, each with a NIC beside it that has an interface, and no file on links or speeds."""
    h100 = (0x10DE, 0x2330)
    files = {
        **_switch(0x10, ("0000:13:00.0", GPU, h100, "nvidia"), ("0000:14:00.0", NIC, MELLANOX, driver)),
        **_switch(0x40, ("0000:43:00.0", GPU, h100, "nvidia"), ("0000:44:00.0", NIC, MELLANOX, driver)),
    }
    files = {path: text for path, text in files.items() if not path.endswith(("_link_speed", "_link_width"))}
    folders = {path.rsplit("/", 1)[0] for path in files if path.startswith("/sys/devices/")}
    for folder in sorted(folders):
        name = _NETS.get(folder.rsplit("/", 1)[1])
        if name is not None:
            files[f"{folder}/net/{name}/address"] = "02:00:00:00:00:01\n"
            files[f"{folder}/net/{name}/device"] = Link("../..")
            files[f"/sys/class/net/{name}"] = Link(f"../..{folder.removeprefix('/sys')}/net/{name}")
    return files


def test_nics_of_which_nothing_tells_the_speed_are_not_taken_for_slow(tmp_path: Path) -> None:
    result = diagnose_one(host(tmp_path / "a", _beside_nics("e1000e")), "gpu.nic-affinity")
    assert (result.outcome, result.findings) == ("unknown", [])
    assert "how fast eth0 beside it is" in result.unknowns[0].reason
    # nor does one that is fast elsewhere make them so
    files = _beside_nics("e1000e") | _switch(0x80, ("0000:83:00.0", IB, MELLANOX, "mlx5_core"))
    assert diagnose_one(host(tmp_path / "b", files), "gpu.nic-affinity").outcome == "unknown"


def test_nics_that_their_driver_tells_to_be_fast(tmp_path: Path) -> None:
    result = diagnose_one(host(tmp_path, _beside_nics("mlx5_core")), "gpu.nic-affinity")
    assert result.outcome == "ok"
    assert [item.value for item in result.evidence] == [
        "pci:0000:13:00.0 - eth0 (PIX)",
        "pci:0000:43:00.0 - eth1 (PIX)",
    ]


def test_the_place_of_a_gpu_in_a_link_is_no_folder(tmp_path: Path) -> None:
    """A link to nowhere, as captures that left /sys/devices out have it."""
    files = {"/sys/bus/pci/devices/0000:07:00.0": Link("../../../devices/pci0000:00/0000:07:00.0")}
    assert read(tmp_path, files, complete=False).gpus == []
