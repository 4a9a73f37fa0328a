"""What is to be read is told apart by what it is, and refused in a sentence where it cannot be."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from hwtune.drive import target
from hwtune.errors import ToolError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"x")
    with pytest.raises(UsageError, match="is a file: name a block device, or a folder"):
        target.locate(str(file))


@pytest.mark.parametrize("name", ["nosuchdrive", "/nowhere", "/dev/nosuch"])
def test_what_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be looked at: No such file"):
        target.locate(name)


def test_a_controller_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="no NVMe controller nvme99"):
        target.locate("nvme99")


def test_other_devices_are_refused() -> None:
    with pytest.raises(UsageError, match="is a character device"):
        target.locate("/dev/null")


def test_memory_is_no_drive() -> None:
    if target.mount_of(os.stat("/dev/shm").st_dev)[1] != "tmpfs":
        pytest.skip("/dev/shm is no tmpfs here")
    with pytest.raises(UsageError, match="lies on tmpfs, which is no drive"):
        target.locate("/dev/shm")


def test_a_controllers_namespace_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a multipath one the path's name (nvme3c3n1) stands for the disk above it (nvme3n1)."""
    listed = {
        "/sys/class/nvme/nvme0": ["cntlid", "nvme0n1", "hwmon1"],
        "/sys/class/nvme/nvme3": ["nvme3c3n1"],
    }
    listed["/sys/class/nvme/nvme4"] = ["nvme4n1", "nvme4n2"]
    monkeypatch.setattr(os, "listdir", listed.__getitem__)
    assert target._namespace("nvme0") == "/dev/nvme0n1"
    assert target._namespace("nvme3") == "/dev/nvme3n1"
    with pytest.raises(UsageError, match=r"nvme4 has 2 namespaces \(nvme4n1, nvme4n2\): name one"):
        target._namespace("nvme4")


def tree(root: Path, *folders: str) -> None:
    for folder in folders:
        (root / folder).mkdir(parents=True)


def test_the_disks_below_a_stack(tmp_path: Path) -> None:
    """dm-1 lies on a partition of nvme0n1 and on md0, which lies on nvme0n1 and nvme1n1."""
    tree(tmp_path, "nvme0n1/nvme0n1p1", "nvme1n1", "md0/slaves", "dm-1/slaves")
    (tmp_path / "nvme0n1/nvme0n1p1/partition").write_text("1\n")
    (tmp_path / "dm-1/slaves/nvme0n1p1").symlink_to(tmp_path / "nvme0n1/nvme0n1p1")
    (tmp_path / "dm-1/slaves/md0").symlink_to(tmp_path / "md0")
    (tmp_path / "md0/slaves/nvme0n1").symlink_to(tmp_path / "nvme0n1")
    (tmp_path / "md0/slaves/nvme1n1").symlink_to(tmp_path / "nvme1n1")
    assert target.disks_below(str(tmp_path / "dm-1")) == ["nvme0n1", "nvme1n1"]
    assert target.disks_below(str(tmp_path / "nvme0n1/nvme0n1p1")) == ["nvme0n1"]
    assert target._stack(str(tmp_path / "dm-1"), ["nvme0n1", "nvme1n1"]) == [
        "dm-1 is made of nvme0n1, nvme1n1"
    ]
    partition = str(tmp_path / "nvme0n1/nvme0n1p1")
    assert target._stack(partition, ["nvme0n1"]) == ["nvme0n1p1 is a partition of nvme0n1"]


def test_no_file_where_space_is_low(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    with pytest.raises(ToolError, match=r"would leave less than 10%, so none is made"):
        target.own_file(str(tmp_path), free)


def on_a_drive(folder: Path) -> None:
    try:
        target.locate(str(folder))
        os.close(target.own_file(str(folder), 1 << 20))
    except (UsageError, ToolError) as error:
        pytest.skip(f"no direct reads here: {error}")


def test_our_file_is_written_and_has_no_name(tmp_path: Path) -> None:
    on_a_drive(tmp_path)
    descriptor = target.own_file(str(tmp_path), 2 << 20)
    try:
        assert os.fstat(descriptor).st_nlink == 0
        assert os.fstat(descriptor).st_size == 2 << 20
        assert os.fstat(descriptor).st_blocks * 512 >= 2 << 20
        assert os.listdir(tmp_path) == []
        assert target._never_written(descriptor, 2 << 20, 4096) == []
    finally:
        os.close(descriptor)


def test_blocks_of_zeros_are_told(tmp_path: Path) -> None:
    on_a_drive(tmp_path)
    descriptor = target.own_file(str(tmp_path), 1 << 20, write=False)
    try:
        (note,) = target._never_written(descriptor, 1 << 20, 4096)
        assert note.startswith("64 of 64 blocks looked at are all zeros")
    finally:
        os.close(descriptor)


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[str]:
    """A real block device: a file of 16 MiB of noise."""
    file = tmp_path / "disk"
    file.write_bytes(os.urandom(16 << 20))
    losetup = shutil.which("losetup", path="/usr/sbin:/sbin:/usr/bin")
    if losetup is None or os.geteuid() != 0:
        pytest.skip("no loop devices without losetup and root")
    done = subprocess.run([losetup, "-rf", "--show", str(file)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no loop device: {done.stderr.strip()}")
    name = done.stdout.strip()
    try:
        yield name
    finally:
        subprocess.run([losetup, "-d", name], check=True)


def test_a_block_device_is_opened_for_reading_only(loop: str) -> None:
    place = target.locate(os.path.basename(loop))
    assert (place.kind, place.path) == ("device", loop)
    opened = target.open_target(place)
    try:
        assert opened.target.bytes == 16 << 20
        assert opened.target.disks == [os.path.basename(loop)]
        assert opened.target.controller is None
        assert "is a loop device: what is read is the file" in opened.target.notes[0]
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(opened.descriptor, b"x")
    finally:
        os.close(opened.descriptor)
