"""The PCI probe on trees of files: who is whose parent, links, gaps, names, pasted texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwtune.fact import ABSENT, DENIED, INVALID, NOT_CAPTURED, UNREADABLE
from hwtune.host.live import LiveHost
from hwtune.model.pci import Pci, PciDevice
from hwtune.probes import pci
from tests.support import Link, host, tree
from tests.support.pci import BRIDGE, GPU, NIC, NVME, VGA, X4, X16, Files, config, drive, function, switch


def _read(tmp_path: Path, files: Files, **more: object) -> Pci:
    return pci.read(host(tmp_path, files, **more))  # type: ignore[arg-type]


def _one(found: Pci, address: str) -> PciDevice:
    return found.by_address()[address]


def test_tree_with_domains_beyond_four_digits(tmp_path: Path) -> None:
    vmd = "pci0000:00/0000:00:0e.0"
    files = {
        **function(vmd, 0x010400, None, (0x8086, 0x467F), "vmd"),
        **function(f"{vmd}/pci10000:e0/10000:e0:06.0", BRIDGE, X4, (0x8086, 0x1), "pcieport"),
        **function(f"{vmd}/pci10000:e0/10000:e0:06.0/10000:e1:00.0", NVME),
    }
    found = _read(tmp_path, files)
    assert [d.address for d in found.devices] == ["0000:00:0e.0", "10000:e0:06.0", "10000:e1:00.0"]
    nvme = _one(found, "10000:e1:00.0")
    assert (nvme.parent, nvme.root) == ("10000:e0:06.0", "pci10000:e0")
    assert _one(found, "10000:e0:06.0").parent is None
    assert (nvme.vendor.get(), nvme.device.get(), nvme.class_code.get()) == (0x144D, 0xA808, NVME)
    assert (nvme.driver.get(), nvme.role) == ("nvme", "nvme")
    assert found.listed.get() is True


def test_single_files_where_there_is_no_uevent(tmp_path: Path) -> None:
    folder = "/sys/devices/pci0000:00/0000:00:02.0"
    files: Files = {
        "/sys/bus/pci/devices/0000:00:02.0": Link("../../../devices/pci0000:00/0000:00:02.0"),
        f"{folder}/class": "0x030000\n",
        f"{folder}/vendor": "0x8086\n",
        f"{folder}/driver": Link("../../../bus/pci/drivers/i915"),
    }
    device = _one(_read(tmp_path, files), "0000:00:02.0")
    assert (device.class_code.get(), device.vendor.get(), device.driver.get()) == (VGA, 0x8086, "i915")
    assert device.device.gap == NOT_CAPTURED


def test_without_the_list_of_the_bus_the_tree_is_walked(tmp_path: Path) -> None:
    files = {k: v for k, v in drive().items() if not k.startswith("/sys/bus")}
    found = _read(tmp_path, files)
    assert [d.address for d in found.devices] == ["0000:00:01.0", "0000:01:00.0"]
    assert _one(found, "0000:01:00.0").parent == "0000:00:01.0"
    assert found.listed.gap == NOT_CAPTURED


def test_folders_in_place_of_links_are_a_list_made_by_hand(tmp_path: Path) -> None:
    files: Files = {
        "/sys/bus/pci/devices/0000:8d:00.0/infiniband/mlx5_0/node_type": "1: CA\n",
        "/sys/class/pci_bus/0000:8d/device/0000:8d:00.0/current_link_speed": "16 GT/s\n",
        "/sys/class/pci_bus/0000:8d/device/0000:8d:00.0/current_link_width": "16\n",
    }
    found = _read(tmp_path, files)
    card = _one(found, "0000:8d:00.0")
    assert (card.link.current_gts.get(), card.link.current_width.get()) == (16.0, 16)
    assert card.role == "infiniband"
    assert (card.parent, card.root) == (None, None)
    assert found.listed.gap == NOT_CAPTURED


@pytest.mark.parametrize(("width", "word"), [("0", "no link"), ("63", "does not answer"), ("255", "unknown")])
def test_widths_that_mean_unknown(tmp_path: Path, width: str, word: str) -> None:
    device = _one(_read(tmp_path, drive(("Unknown", width, "16.0 GT/s PCIe", "4"))), "0000:01:00.0")
    assert device.link.current_width.gap == INVALID
    assert word in device.link.current_width.why()
    assert device.link.current_gts.gap == INVALID


def test_expected_is_the_lesser_of_both_ends(tmp_path: Path) -> None:
    # a Gen5 x16 GPU below a Gen4 x8 switch port, whose switch hangs on a Gen5 x16 root port
    port = ("16.0 GT/s PCIe", "8", "16.0 GT/s PCIe", "8")
    files = switch({"03": (GPU, X16)}, uplink=("32.0 GT/s PCIe", "8", "32.0 GT/s PCIe", "8"))
    top = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0"
    files.update(function(top, BRIDGE, port, (0x1000, 0xC030), "pcieport"))
    found = _read(tmp_path, {k: v for k, v in files.items() if not k.endswith("/config")})
    gpu, down, up, root = (
        _one(found, a) for a in ("0000:03:00.0", "0000:02:00.0", "0000:01:00.0", "0000:00:01.0")
    )
    assert (gpu.link.expected_gts.get(), gpu.link.expected_width.get()) == (16.0, 8)
    # the port's own link is the one below it, the switch's the one above
    assert (down.link.expected_gts.get(), down.link.expected_width.get()) == (16.0, 8)
    assert (up.link.expected_gts.get(), up.link.expected_width.get()) == (32.0, 8)
    assert (root.link.expected_gts.get(), root.link.expected_width.get()) == (32.0, 8)


def test_a_suspended_device_is_not_woken(tmp_path: Path) -> None:
    files = drive(power__runtime_status="suspended\n", power__control="auto\n", config=config())
    device = _one(_read(tmp_path, files), "0000:01:00.0")
    assert device.link.current_gts.gap == UNREADABLE
    assert "suspended" in device.link.current_gts.why()
    assert device.max_payload.gap == UNREADABLE
    assert device.power_control.get() == "auto"


def test_config_space_without_privilege(tmp_path: Path) -> None:
    device = _one(_read(tmp_path, drive(config=config()[:64])), "0000:01:00.0")
    assert device.max_payload.gap == DENIED
    assert device.acs.gap == DENIED
    assert device.link.current_gts.known


def test_registers_from_config_space(tmp_path: Path) -> None:
    files = drive(config=config(payload=256, aspm=2, correctable=1))
    device = _one(_read(tmp_path, files, complete=True), "0000:01:00.0")
    assert device.port_type.get() == "endpoint"
    assert device.max_payload.get() == 256
    assert device.max_payload.source == "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/config"
    assert device.link.aspm.get() == ["L1"]
    assert device.aer.sticky_correctable.get() == ["RxErr"]
    assert device.acs.gap == ABSENT


def test_aspm_by_the_kernels_own_switches(tmp_path: Path) -> None:
    files = drive(link__l1_aspm="1\n", link__l1_2_aspm="1\n", link__clkpm="0\n", config=config())
    device = _one(_read(tmp_path, files), "0000:01:00.0")
    assert device.link.aspm.get() == ["L1", "L1.2"]
    folder = "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/link"
    assert device.link.aspm_files == [f"{folder}/l1_aspm", f"{folder}/l1_2_aspm"]


def test_no_switch_for_aspm_does_not_mean_that_it_is_off(tmp_path: Path) -> None:
    files = drive(config=config()[:64])
    device = _one(_read(tmp_path, files, complete=True), "0000:01:00.0")
    assert device.link.aspm.gap == DENIED


def test_virtual_functions_and_groups(tmp_path: Path) -> None:
    base = "pci0000:00/0000:00:01.0"
    files = {
        **drive(),
        **function(f"{base}/0000:01:10.0", NIC, ("Unknown", "0", "Unknown", "0"), driver="iavf"),
        f"/sys/devices/{base}/0000:01:10.0/physfn": Link("../0000:01:00.0"),
        f"/sys/devices/{base}/0000:01:00.0/iommu_group": Link("../../../../kernel/iommu_groups/7"),
        "/sys/kernel/iommu_groups/7/type": "DMA-FQ\n",
    }
    found = _read(tmp_path, files)
    assert _one(found, "0000:01:10.0").physical_function == "0000:01:00.0"
    nvme = _one(found, "0000:01:00.0")
    assert (nvme.iommu_group.get(), nvme.iommu_type.get()) == (7, "DMA-FQ")
    assert found.iommu_present.get() is True


def test_names_of_udev_before_those_of_the_hardware_database(tmp_path: Path) -> None:
    files = {
        **drive(),
        "/run/udev/data/+pci:0000:01:00.0": (
            "I:123\nE:ID_VENDOR_FROM_DATABASE=Samsung\nE:ID_MODEL_FROM_DATABASE=PM983\n"
        ),
    }
    device = _one(_read(tmp_path, files), "0000:01:00.0")
    assert device.name.get() == "Samsung PM983"
    answer = {
        "pci:v0000144Dd0000A808": {"ID_VENDOR_FROM_DATABASE": "Maker", "ID_MODEL_FROM_DATABASE": "Drive"}
    }
    question = ("hwdb", "pci:v0000144Dd0000A808")
    device = _one(_read(tmp_path, drive(), libraries={question: answer}), "0000:01:00.0")
    assert device.name.get() == "Maker Drive"
    assert _one(_read(tmp_path, drive()), "0000:01:00.0").name.gap == NOT_CAPTURED


def test_displays_of_management_controllers_are_no_gpus() -> None:
    from hwtune.fact import known

    def role(class_code: int, vendor: int) -> str:
        return PciDevice("0000:01:00.0", class_code=known(class_code, ""), vendor=known(vendor, "")).role

    assert role(VGA, 0x1A03) == ""  # ASPEED
    assert role(VGA, 0x102B) == ""  # Matrox
    assert role(VGA, 0x1AF4) == ""  # virtio
    assert role(VGA, 0x10DE) == "gpu"
    assert role(GPU, 0x10DE) == "gpu"
    assert role(0x068000, 0x10DE) == ""  # NVSwitch
    assert role(0x120000, 0x1DA3) == "accelerator"
    assert role(0x020700, 0x15B3) == "infiniband"


def test_pasted_listing_of_a_whole_box(tmp_path: Path) -> None:
    text = """\
00:00.0 Host bridge: Example bridge
\tControl: I/O-
00:01.0 PCI bridge: Example root port
\tBus: primary=00, secondary=01, subordinate=01, sec-latency=0
\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00
\t\tLnkCap:\tPort #1, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s (ok), Width x4 (downgraded)
01:00.0 Non-Volatile memory controller: Example drive (prog-if 02 [NVM Express])
\tControl: I/O-
\tCapabilities: [70] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x4, ASPM L1
\t\tLnkSta:\tSpeed 16GT/s (ok), Width x4 (ok)
\tKernel driver in use: nvme
02:00.0 Ethernet controller: A card whose port was cut out
\tControl: I/O-
\tCapabilities: [70] Express (v2) Endpoint, MSI 00
"""
    found = _read(tmp_path, {}, documents={"lspci.txt": text})
    nvme = _one(found, "0000:01:00.0")
    assert (nvme.parent, nvme.root) == ("0000:00:01.0", "pci0000:00")
    assert nvme.link.expected_width.get() == 4
    assert nvme.link.current_gts.source.endswith("lspci.txt")
    assert nvme.class_code.get() == NVME
    orphan = _one(found, "0000:02:00.0")
    assert (orphan.parent, orphan.root) == (None, None)
    assert orphan.driver.gap == ABSENT
    assert orphan.iommu_group.gap == NOT_CAPTURED
    assert found.listed.get() is True


def test_the_tree_is_believed_before_a_text(tmp_path: Path) -> None:
    text = (
        "01:00.0 Non-Volatile memory controller: Old\n\t\tLnkSta:\tSpeed 2.5GT/s, Width x1\n\tNUMA node: 1\n"
    )
    device = _one(_read(tmp_path, drive(), documents={"lspci.txt": text}), "0000:01:00.0")
    assert device.link.current_gts.get() == 16.0
    assert device.numa_node.get() == 0
    assert device.name.get() == "Old"


def test_hostile_files_leave_gaps(tmp_path: Path) -> None:
    files = drive(("\x00\xff", "", "junk", "9" * 500), numa_node="?", config=b"\x00" * 4096)
    files["/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/uevent"] = (
        b"\xff\xfe=\x00\nPCI_CLASS=zz\nPCI_ID=:\n"
    )
    device = _one(_read(tmp_path, files), "0000:01:00.0")
    assert not device.class_code.known
    assert not device.link.current_width.known
    assert device.numa_node.gap == INVALID


def test_live_reads_ask_only_for_what_is_needed(tmp_path: Path) -> None:
    """Config space of a live function is read four bytes at a time, and not as a whole."""

    class Counting(LiveHost):
        asked = 0

        def part(self, path: str, offset: int, count: int):  # type: ignore[no-untyped-def]
            self.asked += count
            return super().part(path, offset, count)

        def read_bytes(self, path: str, limit: int = 1 << 20):  # type: ignore[no-untyped-def]
            assert not path.endswith("/config")
            return super().read_bytes(path, limit)

    live = Counting(str(tree(tmp_path / "root", drive(config=config()))))
    device = _one(pci.read(live), "0000:01:00.0")
    assert device.max_payload.get() == 256
    assert 0 < live.asked < 256


@pytest.mark.parametrize(
    "junk",
    [b"", b"\x00\xff" * 40, b"x" * 200_000, "directory"],
    ids=["empty", "binary", "long", "directory"],
)
def test_any_file_may_hold_anything(tmp_path: Path, junk: bytes | str) -> None:
    """Each file in turn: the probe goes on, and all other functions stay as they were."""
    whole = switch({"03": (GPU, X16), "04": (NVME, X4)}, acs={"03": (0x7F, 0x1D)})
    for path, content in whole.items():
        if isinstance(content, (str, bytes)):
            files = {p: c for p, c in whole.items() if p != path}
            files[path if junk != "directory" else f"{path}/file"] = junk
            found = _read(tmp_path, files)
            assert len(found.devices) == 6
            assert sum(1 for d in found.devices if d.class_code.known) >= 5


def test_no_hardware_database_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from hwtune.host.libraries import hwdb

    monkeypatch.setattr(hwdb, "_PLACES", ("/nonexistent/hwdb.bin",))
    answer = LiveHost().ask("hwdb", "pci:v000010DEd00002330")
    assert (answer.gap, answer.source) == (ABSENT, "hwdb(pci:v000010DEd00002330)")


_BRIDGES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=8
)


@settings(max_examples=150, deadline=None)
@given(_BRIDGES, st.sampled_from(["", "Root Port", "Upstream Port", "Downstream Port"]))
def test_bridges_that_lead_in_circles(bridges: list[tuple[int, int, int]], kind: str) -> None:
    """Bus numbers of a bad text may lead anywhere, also back to where they came from."""
    from hwtune.host.base import Document
    from hwtune.model import Machine
    from hwtune.profile import load
    from hwtune.remediations import pcie, pcie_acs, pcie_errors, pcie_path, pcie_settings

    text = "".join(
        f"{bus:02x}:{slot:02x}.0 PCI bridge: X\n\tBus: primary=00, secondary={to:02x}, subordinate=03\n"
        f"\tCapabilities: [40] Express (v2) {kind}\n\t\tLnkCap:\tSpeed 8GT/s, Width x4\n"
        for bus, slot, to in bridges
    )
    text += "".join(
        f"{bus:02x}:1f.0 3D controller: NVIDIA Corporation X\n\t\tLnkSta: Speed 8GT/s, Width x4\n"
        for bus in range(4)
    )

    class Pasted(LiveHost):
        kind = "snapshot"

        def documents(self, kind: str) -> list[Document]:
            return [Document("lspci -v", "x", text)] if kind == "lspci -v" else []

    machine = Machine(pci=pci.read(Pasted("/nonexistent")))
    for row in (pcie.link_width, pcie.link_speed, pcie_path.path_bandwidth, pcie_path.shared_uplink):
        row(machine, load())
    for row in (pcie_acs.acs_redirect, pcie_errors.aer_correctable, pcie_settings.max_payload):
        row(machine, load())
