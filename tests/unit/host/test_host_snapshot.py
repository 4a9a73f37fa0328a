"""Captured machines: where their root is, what is known of what they lack."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

from hwtune.errors import UsageError
from hwtune.host.snapshot import open_snapshot
from tests.support import Directory, Gap, Link, host, tree

if TYPE_CHECKING:
    from pathlib import Path

CPUS = {"/sys/devices/system/cpu/online": "0-3\n"}
TOPOLOGY = "\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-3\t0\n"


def pack(folder: Path, place: Path, mode: str = "w:gz") -> Path:
    with tarfile.open(place, mode) as tar:  # type: ignore[call-overload]
        for entry in sorted(folder.iterdir()):
            tar.add(entry, entry.name)
    return place


# -- files ----------------------------------------------------------------------------------------

MACHINE: dict[str, str | bytes | Link | Directory] = {
    "/sys/class/net/eth0": Link("../../devices/pci0000:00/0000:00:03.0/net/eth0"),
    "/sys/devices/pci0000:00/0000:00:03.0/net/eth0/mtu": "1500\n",
    "/sys/devices/pci0000:00/0000:00:03.0/net/eth0/device": Link("../../../0000:00:03.0"),
    "/sys/devices/pci0000:00/0000:00:03.0/driver": Link("../../../bus/pci/drivers/virtio-pci"),
    "/sys/devices/pci0000:00/0000:00:03.0/numa_node": "-1\n",
    "/sys/absolute": Link("/proc/version"),
    "/sys/upwards": Link("../../../../proc/version"),
    "/proc/version": "Linux\n",
    "/proc/1": Directory(),
}


@pytest.mark.parametrize("packed", [False, True])
def test_files_and_links(tmp_path: Path, packed: bool) -> None:
    place = tree(tmp_path / "t", MACHINE)
    machine = open_snapshot(str(pack(place, tmp_path / "t.tar.gz") if packed else place))
    assert machine.kind == "snapshot"
    assert machine.integer("/sys/class/net/eth0/mtu").value == 1500
    assert machine.integer("/sys/class/net/eth0/mtu").source == "/sys/class/net/eth0/mtu"
    assert machine.integer("/sys/class/net/eth0/device/numa_node").value == -1
    assert machine.resolve("/sys/class/net/eth0").value == "/sys/devices/pci0000:00/0000:00:03.0/net/eth0"
    # The link tells the driver, though nothing of the driver itself was captured.
    assert machine.link_name("/sys/class/net/eth0/device/driver").value == "virtio-pci"
    assert machine.exists("/sys/class/net/eth0/device/driver").value is True
    assert machine.text("/sys/absolute").value == "Linux"
    assert machine.text("/sys/upwards").value == "Linux"
    assert machine.names("/sys/class/net").value == ["eth0"]
    assert machine.names("/sys/class/net/eth0").value == ["device", "mtu"]
    assert machine.names("/proc/1").value == []
    assert machine.text("/sys/class/../class/net/./eth0/mtu/").gap == "not-captured"
    assert machine.text("/sys/class/../class/net/./eth0/mtu").value == "1500"


@pytest.mark.parametrize("packed", [False, True])
def test_what_a_snapshot_lacks_is_not_known(tmp_path: Path, packed: bool) -> None:
    place = tree(tmp_path / "t", MACHINE)
    machine = open_snapshot(str(pack(place, tmp_path / "t.tar.gz") if packed else place))
    for path in (
        "/sys/none",
        "/none",
        "/proc/version/below",
        "/sys/class/net/eth1/mtu",
        "/sys/class/net/eth0/speed",
    ):
        assert machine.read_bytes(path).gap == "not-captured", path
        assert machine.names(path).gap == "not-captured", path
        assert machine.resolve(path).gap == "not-captured", path
        assert machine.exists(path).gap == "not-captured", path
    assert machine.read_bytes("/sys").gap == "unreadable"
    assert machine.names("/proc/version").gap == "not-captured"
    assert machine.read_bytes("/sys/class/net/eth0/mtu", 4).gap == "too-large"
    assert machine.command(["lscpu"]).gap == "not-captured"
    assert machine.ask("nvml").gap == "not-captured"
    assert machine.captured_at is None
    assert machine.warnings == []


def test_only_texts(tmp_path: Path) -> None:
    machine = open_snapshot(str(tree(tmp_path / "t", {"/any name": TOPOLOGY})))
    assert machine.root is None
    assert machine.names("/").gap == "not-captured"
    assert machine.read_bytes("/any name").gap == "not-captured"
    assert machine.read_bytes("/proc/version").gap == "not-captured"
    assert [document.text for document in machine.documents("nvidia-smi topo -m")] == [TOPOLOGY.rstrip("\n")]
    assert machine.command(["lscpu"]).gap == "not-captured"


@pytest.mark.parametrize("compression", ["", "gz", "xz"])
def test_one_text(tmp_path: Path, compression: str) -> None:
    import gzip
    import lzma

    content = TOPOLOGY.encode()
    packed = {"": content, "gz": gzip.compress(content), "xz": lzma.compress(content)}[compression]
    (tmp_path / "paste").write_bytes(packed)
    machine = open_snapshot(str(tmp_path / "paste"))
    assert [document.path for document in machine.documents("nvidia-smi topo -m")] == ["paste"]


def test_empty_files_of_procfs(tmp_path: Path) -> None:
    """tar takes the size of procfs' files, zero, for the truth: such a file says nothing."""
    files = {"/proc/cmdline": "", "/proc/sys/vm/swappiness": "", "/proc/7/cmdline": "", "/proc/7/mounts": ""}
    machine = open_snapshot(str(tree(tmp_path / "t", files)))
    assert machine.read_bytes("/proc/cmdline").gap == "not-captured"
    assert machine.integer("/proc/sys/vm/swappiness").gap == "not-captured"
    assert machine.read_bytes("/proc/7/mounts").gap == "not-captured"
    # A kernel thread's is empty in truth.
    assert machine.read_bytes("/proc/7/cmdline").value == b""
    # What we captured ourselves was read, not archived.
    assert host(tmp_path, {"/proc/cmdline": ""}).read_bytes("/proc/cmdline").value == b""


def test_empty_files_of_sysfs(tmp_path: Path) -> None:
    """Copying leaves an empty file of an attribute that the kernel refused to show (EINVAL)."""
    files = {"/sys/class/net/eth0/carrier": "", "/sys/devices/system/cpu/isolated": "\n"}
    machine = open_snapshot(str(tree(tmp_path / "t", files)))
    assert machine.read_bytes("/sys/class/net/eth0/carrier").gap == "not-captured"
    assert machine.text("/sys/devices/system/cpu/isolated").value == ""
    assert host(tmp_path, {"/sys/x": ""}).read_bytes("/sys/x").value == b""


@pytest.mark.parametrize("content", [b"\x00\xff\x1b[31m", bytes(range(256)), b"performance\x7f\n"])
def test_control_characters_are_no_value(tmp_path: Path, content: bytes) -> None:
    paths = ("/sys/devices/x/scaling_governor", "/proc/sys/kernel/arch", "/proc/cmdline")
    machine = open_snapshot(str(tree(tmp_path / "t", {**dict.fromkeys(paths, content), "/etc/x": content})))
    assert [machine.text(path).gap for path in paths] == ["invalid"] * 3
    assert machine.read_bytes(paths[0]).value == content
    # a file of configuration may hold what it likes in a comment
    assert machine.text("/etc/x").known


def test_what_is_no_control_character(tmp_path: Path) -> None:
    files = {
        "/sys/bus/a": b"0-3\n\0",
        "/sys/bus/b": b"a\tb\r\nc\n",
        "/sys/class/dmi/id/sys_vendor": b"Caf\xe9\n",
    }
    machine = open_snapshot(str(tree(tmp_path / "t", files)))
    assert [machine.text(path).value for path in files] == ["0-3", "a\tb\r\nc", "Caf\ufffd"]


def test_numbers_beyond_64_bits(tmp_path: Path) -> None:
    files = {
        "/sys/bus/a": "18446744073709551615\n",
        "/sys/bus/b": "9" * 30,
        "/sys/bus/c": "9" * 5000,
        "/sys/bus/d": "-1\n",
    }
    machine = open_snapshot(str(tree(tmp_path / "t", files)))
    assert [machine.integer(path).value for path in files] == [2**64 - 1, None, None, -1]
    assert machine.integer("/sys/bus/b").gap == machine.integer("/sys/bus/c").gap == "invalid"


# -- manifests --------------------------------------------------------------------------------------


def test_gaps_of_a_capture(tmp_path: Path) -> None:
    machine = host(
        tmp_path,
        {
            "/sys/x/there": "1",
            "/sys/x/denied": Gap("denied", "Permission denied"),
            "/sys/x/broken": Gap("unreadable", "Input/output error"),
            "/sys/link": Link("x"),
            "/sys/kernel/debug": Gap("denied", "Permission denied"),
        },
        absent=["/sys/x/gone", "/sys/link/too", "/sys/fs/resctrl"],
    )
    assert machine.text("/sys/link/there").value == "1"
    for path in ("/sys/x/denied", "/sys/link/denied"):
        found = machine.read_bytes(path)
        assert (found.gap, found.detail, found.source) == ("denied", "Permission denied", path)
        assert machine.exists(path).value is True
    assert machine.read_bytes("/sys/x/broken").gap == "unreadable"
    assert machine.names("/sys/x").value == ["broken", "denied", "there"]
    for path in ("/sys/x/gone", "/sys/link/gone", "/sys/x/too", "/sys/fs/resctrl/info/L3", "/sys/fs/resctrl"):
        assert machine.read_bytes(path).gap == "absent", path
        assert machine.names(path).gap == "absent", path
        assert machine.exists(path).value is False, path
    assert machine.read_bytes("/sys/x/other").gap == "not-captured"
    # Nobody could look below what was denied.
    assert machine.names("/sys/kernel/debug").gap == "denied"
    assert machine.read_bytes("/sys/kernel/debug/sched/verbose").gap == "denied"
    assert machine.read_bytes("/sys/x/broken/below").gap == "not-captured"


def test_a_complete_capture(tmp_path: Path) -> None:
    machine = host(tmp_path, CPUS, complete=True, captured_at=1_700_000_000)
    assert machine.text("/sys/devices/system/cpu/online").value == "0-3"
    for path in ("/sys/none", "/proc/version", "/sys/devices/system/cpu/online/below"):
        assert machine.read_bytes(path).gap == "absent", path
        assert machine.names(path).gap == "absent", path
        assert machine.exists(path).value is False, path
    assert machine.names("/sys/devices/system/cpu/online").gap == "absent"
    assert machine.command(["lscpu"]).gap == "absent"
    assert machine.ask("nvml").gap == "absent"
    assert machine.captured_at == 1_700_000_000


def test_recorded_answers(tmp_path: Path) -> None:
    machine = host(
        tmp_path,
        {},
        commands={("lscpu", "-J"): "{}", ("dmesg",): Gap("denied", "not permitted")},
        libraries={("nvml",): {"gpus": []}, ("ethtool", "eth0"): Gap("absent")},
        documents={"a.txt": TOPOLOGY},
    )
    assert machine.command(["lscpu", "-J"]).get().stdout == "{}"
    assert machine.command(["lscpu"]).gap == "not-captured"
    assert (machine.command(["dmesg"]).gap, machine.command(["dmesg"]).source) == ("denied", "dmesg")
    assert machine.ask("nvml").value == {"gpus": []}
    assert machine.ask("ethtool", "eth0").gap == "absent"
    assert machine.ask("ethtool", "eth1").gap == "not-captured"
    assert len(machine.documents("nvidia-smi topo -m")) == 1


# -- where the root is ------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("above", ["", "/box", "/report/box", "/a/b/c"])
def test_the_root_may_be_some_folders_down(tmp_path: Path, above: str, packed: bool) -> None:
    place = tree(tmp_path / "t", {above + path: content for path, content in CPUS.items()})
    machine = open_snapshot(str(pack(place, tmp_path / "t.tar") if packed else place))
    assert machine.root == above
    assert machine.text("/sys/devices/system/cpu/online").value == "0-3"


def test_the_shallowest_root_wins(tmp_path: Path) -> None:
    place = tree(tmp_path / "t", {"/z/proc/sys/kernel/osrelease": "6.1\n", "/a/deeper/sys/module/x": "1"})
    machine = open_snapshot(str(place))
    assert machine.root == "/z"
    assert machine.text("/proc/sys/kernel/osrelease").value == "6.1"
    assert machine.warnings == []


def test_a_tree_without_sys_and_proc(tmp_path: Path) -> None:
    assert open_snapshot(str(tree(tmp_path / "t", {"/box/etc/sysctl.conf": "x"}))).root == "/box"
    assert open_snapshot(str(tree(tmp_path / "b", {"/boot/config-6.1.0": "x"}))).root == ""
    # ... is taken only where nothing better is found deeper.
    assert open_snapshot(str(tree(tmp_path / "u", {"/etc/x": "x", "/box/proc/version": "x"}))).root == "/box"


def test_folders_that_only_bear_the_names(tmp_path: Path) -> None:
    """C headers have a sys/, programs an etc/ and a boot/: none of them is a machine."""
    headers = {
        "/sys/types.h": "",
        "/proc/readproc.h": "",
        "/etc/bash_completion.d/x": "",
        "/boot/maven.jar": "",
    }
    with pytest.raises(UsageError, match="holds neither"):
        open_snapshot(str(tree(tmp_path / "t", headers)))
    both = {f"/include{path}": "" for path in headers} | {"/a/box/proc/cpuinfo": "processor : 0\n"}
    assert open_snapshot(str(tree(tmp_path / "u", both))).root == "/a/box"


@pytest.mark.parametrize("packed", [False, True])
def test_one_of_several_machines(tmp_path: Path, packed: bool) -> None:
    files = {f"/boxes/{name}/proc/sys/kernel/hostname": name for name in ("north", "east", "west")}
    place = tree(tmp_path / "t", {**files, "/topo.txt": TOPOLOGY, "/boxes/east/topo.txt": TOPOLOGY})
    given = str(pack(place, tmp_path / "t.tar.xz", "w:xz") if packed else place)
    machine = open_snapshot(given)
    assert machine.text("/proc/sys/kernel/hostname").value == "east"
    assert machine.warnings == [
        "holds 3 machines; this is boxes/east"
        f" (the others: boxes/north, boxes/west; give {given}/boxes/north for another)"
    ]
    # A text beside three machines belongs to none of them.
    assert [document.path for document in machine.documents("nvidia-smi topo -m")] == ["boxes/east/topo.txt"]
    other = open_snapshot(f"{given}/boxes/west")
    assert other.text("/proc/sys/kernel/hostname").value == "west"
    assert other.documents("nvidia-smi topo -m") == []
    with pytest.raises(UsageError, match=r"holds no folder boxes/south\.|does not exist\."):
        open_snapshot(f"{given}/boxes/south")


def test_texts_beside_a_tree(tmp_path: Path) -> None:
    place = tree(
        tmp_path / "t",
        {
            "/topo-m.txt": TOPOLOGY,
            "/sysroot/sys/module/x": "1",
            "/sysroot/etc/looks-like.txt": TOPOLOGY,
            "/more/ethtool": "NIC statistics:\n     rx_errors: 0\n",
            "/.git/paste": TOPOLOGY,
        },
    )
    machine = open_snapshot(str(place))
    assert machine.root == "/sysroot"
    assert [document.path for document in machine.documents("nvidia-smi topo -m")] == ["topo-m.txt"]
    assert [document.path for document in machine.documents("ethtool -S")] == ["more/ethtool"]


def test_a_sosreport(tmp_path: Path) -> None:
    top = "/sosreport-box7-2026-01-02"
    place = tree(
        tmp_path / "t",
        {
            f"{top}/proc/cmdline": "isolcpus=2-3\n",
            f"{top}/sys/devices/system/cpu/online": "0-3\n",
            f"{top}/lspci": Link("sos_commands/pci/lspci_-nnvv"),
            f"{top}/sos_commands/pci/lspci_-nnvv": "00:00.0 Host bridge [0600]: X\n\tControl: I/O-\n",
            f"{top}/sos_commands/networking/ethtool_-S_eth0": "NIC statistics:\n     rx_errors: 0\n",
            f"{top}/sos_commands/nvme/nvme_smart-log_.dev.nvme0n1": "Smart Log for NVME device:nvme0n1\n",
            f"{top}/var/log/messages": "Jan  2 10:00:00 box7 kernel: NVRM: x\n",
        },
    )
    machine = open_snapshot(str(pack(place, tmp_path / "sos.tar.xz", "w:xz")))
    assert machine.root == top
    assert machine.text("/proc/cmdline").value == "isolcpus=2-3"
    assert len(machine.documents("lspci -v")) == 1
    [statistics] = machine.documents("ethtool -S")
    assert statistics.path == f"{top[1:]}/sos_commands/networking/ethtool_-S_eth0"
    assert statistics.command == "ethtool -S eth0"
    assert machine.documents("nvme smart-log")[0].command == "nvme smart-log /dev/nvme0n1"
    assert machine.documents("dmesg")[0].path == f"{top[1:]}/var/log/messages"


# -- tar's own sparse files -----------------------------------------------------------------------


@pytest.mark.parametrize("form", ["gnu", "posix --sparse-version=0.0", "posix --sparse-version=0.1", "posix"])
def test_sparse_files_of_gnu_tar(tmp_path: Path, form: str) -> None:
    if shutil.which("tar") is None:
        pytest.skip("there is no tar program to make sparse archives with")
    (tmp_path / "t" / "sys").mkdir(parents=True)
    with open(tmp_path / "t" / "sys" / "holes", "wb") as file:
        # Enough stretches that their map needs more than one block.
        for number in range(60):
            file.seek(number * 65_536)
            file.write(b"%04d" % number)
        file.truncate(60 * 65_536)
    content = (tmp_path / "t" / "sys" / "holes").read_bytes()
    (tmp_path / "t" / "sys" / "module").write_text("1\n")
    made = subprocess.run(
        ["tar", "-cSf", str(tmp_path / "s.tar"), f"--format={form.split()[0]}", *form.split()[1:], "sys"],
        cwd=tmp_path / "t",
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"tar makes no such archive: {made.stderr.decode()}")
    assert (tmp_path / "s.tar").stat().st_size < 1_000_000, "the file system keeps no holes"
    machine = open_snapshot(str(tmp_path / "s.tar"))
    assert machine.read_bytes("/sys/holes", 8 << 20).value == content
    assert machine.text("/sys/module").value == "1"
    assert machine.warnings == []


def test_hard_links(tmp_path: Path) -> None:
    place = tree(tmp_path / "t", {"/sys/fs/a": "same\n"})
    os.link(place / "sys" / "fs" / "a", place / "sys" / "fs" / "b")
    machine = open_snapshot(str(pack(place, tmp_path / "t.tar.bz2", "w:bz2")))
    assert machine.text("/sys/fs/b").value == "same"
