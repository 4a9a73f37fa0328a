"""Reports written to files: whole or not at all, and nothing that was there becomes something else."""

from __future__ import annotations

import os
import resource
import stat
import threading
from typing import TYPE_CHECKING

import pytest

from hwtune.cli.options import emit
from hwtune.cli.output import write_file
from hwtune.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_new_file_is_readable_by_others_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_file(str(tmp_path / "hwtune.prom"), b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "hwtune.prom").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "hwtune.prom").stat().st_mode) == 0o644
    assert names(tmp_path) == ["hwtune.prom"]


def test_who_reads_while_it_is_replaced_sees_the_old_report_whole(tmp_path: Path) -> None:
    target = tmp_path / "hwtune.prom"
    target.write_bytes(b"old, and longer than the new one")
    target.chmod(0o640)
    with target.open("rb") as reader:
        write_file(str(target), b"new")
        assert reader.read() == b"old, and longer than the new one"
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert names(tmp_path) == ["hwtune.prom"]


def test_a_name_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_file("report", b"new")
    assert (tmp_path / "report").read_bytes() == b"new"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_file(str(tmp_path / "link"), b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_file_with_two_names_keeps_both(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"old")
    os.link(tmp_path / "one", tmp_path / "two")
    write_file(str(tmp_path / "one"), b"new")
    assert (tmp_path / "two").read_bytes() == b"new"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_file(str(pipe), b"new")
    reader.join(10)
    assert read == [b"new"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_devices_are_written_to() -> None:
    write_file("/dev/null", b"new")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    reader, writer = os.pipe()
    write_file(f"/dev/fd/{writer}", b"new")
    os.close(writer)
    with open(reader, "rb") as file:
        assert file.read() == b"new"


def test_a_write_that_fails_half_way_leaves_the_old_report(tmp_path: Path) -> None:
    target = tmp_path / "hwtune.prom"
    target.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2, limits[1]))
    try:
        with pytest.raises(UsageError, match=r"hwtune\.prom cannot be written: File too large"):
            emit("new", str(target))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["hwtune.prom"]


def test_a_folder_that_takes_no_new_files_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report"
    target.write_bytes(b"old")

    def refused(*arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("hwtune.cli.output.os.open", refused)
    write_file(str(target), b"new")
    assert target.read_bytes() == b"new"


@pytest.mark.parametrize(
    ("path", "why"), [("folder", "Is a directory"), ("no/such/report", "No such file"), ("", "No such file")]
)
def test_what_cannot_be_written_is_one_sentence(
    path: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=f"{path} cannot be written: {why}"):
        emit("report", path)
    assert names(tmp_path) == ["folder"]
