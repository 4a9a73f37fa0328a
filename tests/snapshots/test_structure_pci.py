"""PCI trees of captured machines, against a walk of their files by this test, and against hwloc.

Nothing here is typed in from hwtune's own output: addresses, classes and parents are read from the
archives with tarfile, and from hwloc's expected topologies beside them.
"""

from __future__ import annotations

import posixpath
import re
import tarfile
import xml.etree.ElementTree as ElementTree
from typing import TYPE_CHECKING

import pytest

from hwtune.host.snapshot import open_snapshot
from hwtune.probes import pci
from tests.snapshots.machines import machines

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.model.pci import Pci

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HWLOC = "hwloc/tests/hwloc/linux"


class _Tree:
    """What the files of one archive say: address -> real path, and class code where there is one."""

    def __init__(self, archive: Path) -> None:
        self.places: dict[str, str] = {}
        self.classes: dict[str, int] = {}
        self.listed = False
        with tarfile.open(archive) as tar:
            members = {posixpath.normpath(m.name): m for m in tar}
            self._enumerate(members)
            for address, place in self.places.items():
                member = members.get(f"{place}/class")
                content = tar.extractfile(member) if member is not None and member.isreg() else None
                if content is not None:
                    text = content.read().decode().strip()
                    if text:
                        self.classes[address] = int(text, 16)

    def _enumerate(self, members: dict[str, tarfile.TarInfo]) -> None:
        by_hand = False
        for name, member in members.items():
            folder, _, last = name.rpartition("/")
            if _ADDRESS.fullmatch(last) and folder.endswith("sys/bus/pci/devices"):
                self.listed = True
                if member.issym():
                    self.places[last] = posixpath.normpath(f"{folder}/{member.linkname}")
                else:
                    by_hand = True
                    self.places.setdefault(last, name)
        if self.places and not by_hand:
            return
        for name in members:
            parts = name.split("/")
            for place, part in enumerate(parts):
                above = "/".join(parts[:place])
                inside = re.search(r"(^|/)sys/(devices/pci[0-9a-f]{4,8}:|class/pci_bus/[^/]+/device$)", above)
                if inside and _ADDRESS.fullmatch(part):
                    self.places.setdefault(part, f"{above}/{part}")

    def parent(self, address: str) -> str | None:
        above = self.places[address].split("/")[-2]
        return above if _ADDRESS.fullmatch(above) else None


def _archives() -> list[str]:
    return [name for name in machines() if name.endswith((".gz", ".bz2", ".xz", ".tgz"))]


def _probe(path: Path) -> Pci:
    return pci.read(open_snapshot(str(path)))


@pytest.mark.parametrize("name", _archives())
def test_functions_classes_and_parents(realdata: Path, name: str) -> None:
    tree = _Tree(realdata / name)
    found = _probe(realdata / name)
    assert {d.address for d in found.devices} == set(tree.places)
    assert {d.address: d.parent for d in found.devices} == {a: tree.parent(a) for a in tree.places}
    for device in found.devices:
        if device.address in tree.classes:
            assert device.class_code.get() == tree.classes[device.address], device.address


_OBJECTS = (
    ("32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2", "32em64t-2n8c+dax+nvme+mic+dimms.xml"),
    ("fakepcilocalities.tar.bz2", "fakepcilocalities.xml"),
)


@pytest.mark.parametrize(("archive", "expected"), _OBJECTS)
def test_the_tree_as_hwloc_sees_it(realdata: Path, archive: str, expected: str) -> None:
    devices = _probe(realdata / _HWLOC / archive).by_address()
    seen = 0

    def visit(element: ElementTree.Element, bridge: str | None) -> None:
        nonlocal seen
        busid, kind = element.get("pci_busid"), element.get("type")
        if busid is not None and kind in ("PCIDev", "Bridge"):
            device = devices[busid]
            code, ids = (element.get("pci_type") or "").split(" ")[:2]
            vendor, product = ids.strip("[]").split(":")
            assert device.class_code.get() >> 8 == int(code, 16)
            assert (device.vendor.get(), device.device.get()) == (int(vendor, 16), int(product, 16))
            assert device.parent == bridge
            seen += 1
            if kind == "Bridge":
                bridge = busid
        for child in element:
            visit(child, bridge)

    visit(ElementTree.parse(realdata / _HWLOC / expected).getroot(), None)
    assert seen > 10


def test_the_console_of_hwloc_with_a_domain_of_32_bits(realdata: Path) -> None:
    devices = _probe(realdata / _HWLOC / "2pa-pcidomain32bits.tar.bz2").by_address()
    text = (realdata / _HWLOC / "2pa-pcidomain32bits.console").read_text(encoding="utf-8")
    lines = re.findall(r"\(busid=(\S+) id=(\w{4}):(\w{4}) class=(\w{4})", text)
    assert len(lines) == 4
    for busid, vendor, product, code in lines:
        device = devices[busid]
        assert (device.vendor.get(), device.device.get()) == (int(vendor, 16), int(product, 16))
        assert device.class_code.get() >> 8 == int(code, 16)


# -- texts ------------------------------------------------------------------------------------


def _udev_paths(text: str) -> dict[str, str]:
    """Address -> device path, of blocks that udev says are PCI."""
    found = {}
    for block in text.split("\n\n"):
        path = re.search(r"^P: (.*)$", block, re.M)
        if path and re.search(r"^E: SUBSYSTEM=pci$", block, re.M):
            found[path[1].rsplit("/", 1)[-1]] = path[1]
    return found


_UDEV = "checkbox/checkbox-ng/checkbox_ng/support/parsers/tests/udevadm_data"


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA_DGXA100",
        "NVIDIA_DGX_STATION",
        "MELLANOX_40GBPS",
        "DELL_POWEREDGE_R820_NVME",
        "With_VRAID",
        "TOSHIBA_NVME",
    ],
)
def test_the_database_of_udev(realdata: Path, name: str) -> None:
    file = realdata / _UDEV / f"{name}.txt"
    paths = _udev_paths(file.read_text(encoding="utf-8", errors="replace"))
    found = _probe(file)
    assert {d.address for d in found.devices} == set(paths)
    for device in found.devices:
        above = paths[device.address].split("/")[-2]
        assert device.parent == (above if _ADDRESS.fullmatch(above) else None)


def test_switches_of_a_dgx_are_no_gpus(realdata: Path) -> None:
    found = _probe(realdata / _UDEV / "NVIDIA_DGXA100.txt")
    gpus = [d for d in found.devices if d.role == "gpu"]
    assert [d.address[5:7] for d in gpus] == ["07", "0f", "47", "4e", "87", "90", "b7", "bd"]
    assert [d.root for d in gpus] == [
        f"pci0000:{bus}" for bus in ("00", "00", "40", "40", "80", "80", "b0", "b0")
    ]
    assert all(not d.numa_node.known for d in gpus)
    assert "A100" in gpus[0].name.get()


def _dumps(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_file())


def test_dumps_of_pciutils_never_trip(realdata: Path) -> None:
    from hwtune.text.lspci import parse

    dumps = _dumps(realdata / "pciutils/tests")
    assert len(dumps) > 30
    for dump in dumps:
        assert parse(dump.read_text(encoding="utf-8", errors="replace")).functions, dump.name


def test_what_lspci_says_is_what_the_registers_say(realdata: Path) -> None:
    """Many dumps have lspci's words and the bytes: two ways to the same registers."""
    from hwtune.text.lspci import parse

    compared = 0
    fields = (
        "max_gts", "max_width", "current_gts", "current_width", "max_payload", "max_read_request",
        "max_payload_supported", "sticky_correctable", "sticky_uncorrectable", "acs_enabled", "buses",
    )  # fmt: skip
    for dump in _dumps(realdata / "pciutils/tests"):
        text = dump.read_text(encoding="utf-8", errors="replace")
        words = "\n".join(x for x in text.splitlines() if not re.match(r"[0-9a-f]{2,3}:( [0-9a-f]{2})+", x))
        bytes_ = "\n".join(
            x
            for x in text.splitlines()
            if re.match(r"[0-9a-f]{2}:[0-9a-f]{2}\.|[0-9a-f]{2,3}: [0-9a-f]{2} |[0-9a-f]{4}:", x)
        )
        by_word = {f.address: f.registers for f in parse(words).functions}
        by_byte = {f.address: f.registers for f in parse(bytes_).functions}
        for address, said in by_word.items():
            for field in fields:
                left, right = getattr(said, field), getattr(by_byte[address], field)
                if left is not None and right is not None:
                    compared += 1
                    assert left == right, (dump.name, address, field)
    assert compared > 150
