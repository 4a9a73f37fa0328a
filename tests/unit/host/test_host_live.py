"""The live host: each way in which the kernel can refuse has its own gap."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

from hwtune.host.base import CommandResult
from hwtune.host.libraries import LibraryGap, kmsg
from hwtune.host.live import LiveHost
from tests.support import Link, tree


def test_reads_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "attribute").write_bytes(b" 42 \n")
    (tmp_path / "bytes").write_bytes(b"\xff\x00\xfe")
    host = LiveHost()
    path = str(tmp_path / "attribute")
    found = host.read_bytes(path)
    assert (found.value, found.source, found.gap) == (b" 42 \n", path, None)
    assert host.text(path).value == "42"
    assert host.integer(path).value == 42
    assert host.read_bytes(str(tmp_path / "bytes")).value == b"\xff\x00\xfe"
    assert host.integer(str(tmp_path / "bytes")).gap == "invalid"
    assert host.documents("dmesg") == []
    assert host.kind == "live"
    assert abs((host.captured_at or 0) - time.time()) < 60


@pytest.mark.parametrize("size", [0, 1, 8191, 8192, 8193, 16384, 139_264, 139_265, 500_000])
def test_reads_the_whole_of_it_up_to_the_limit(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(content)
    host = LiveHost()
    path = str(tmp_path / "file")
    assert host.read_bytes(path, size).value == content
    assert host.read_bytes(path, size + 1).value == content
    if size:
        assert host.read_bytes(path, size - 1).gap == "too-large"


def test_a_file_without_end_is_too_large() -> None:
    assert LiveHost().read_bytes("/dev/zero", 1000).gap == "too-large"


def test_a_file_of_procfs_is_read_to_its_end() -> None:
    # It comes in pieces, and its size is said to be zero.
    found = LiveHost().text("/proc/self/smaps", 64 << 20).get()
    assert found.splitlines()[-1].startswith(("VmFlags:", "ProtectionKey:"))


def test_absent(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    host = LiveHost()
    for path in ("missing", "file/below", "missing/deeper", "nul\0byte"):
        for answer in (host.read_bytes, host.names, host.resolve):
            found: Any = answer(f"{tmp_path}/{path}")
            assert found.gap == "absent", (path, answer)
        assert host.exists(f"{tmp_path}/{path}").value is False
    assert host.names(str(tmp_path / "file")).gap == "absent"


def test_unreadable(tmp_path: Path) -> None:
    host = LiveHost()
    assert host.read_bytes(str(tmp_path)).gap == "unreadable"
    assert host.read_bytes(str(tmp_path)).detail == "Is a directory"
    (tmp_path / "loop").symlink_to("loop")
    assert host.read_bytes(str(tmp_path / "loop")).gap == "unreadable"
    assert host.resolve(str(tmp_path / "loop")).gap == "unreadable"
    assert host.read_bytes("/" + "x" * 300).gap == "unreadable"
    os.mkfifo(tmp_path / "fifo")
    assert host.read_bytes(str(tmp_path / "fifo")).value == b""  # and does not wait for a writer


@pytest.mark.parametrize(
    ("number", "gap", "detail"),
    [
        (errno.ENOENT, "absent", ""),
        (errno.ENODEV, "absent", ""),
        (errno.ENXIO, "absent", ""),
        (errno.EACCES, "denied", "Permission denied"),
        (errno.EPERM, "denied", "Operation not permitted"),
        (errno.EINVAL, "unreadable", "Invalid argument"),
        (errno.EIO, "unreadable", "Input/output error"),
        (errno.EBUSY, "unreadable", "Device or resource busy"),
    ],
)
def test_errors_on_opening_and_on_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, gap: str, detail: str
) -> None:
    (tmp_path / "file").write_text("x")
    host = LiveHost()
    path = str(tmp_path / "file")

    def refuse(*_: Any) -> Any:
        raise OSError(number, os.strerror(number))

    for function in ("read", "open"):
        monkeypatch.setattr(os, function, refuse)
        found = host.read_bytes(path)
        assert (found.gap, found.detail) == (gap, detail)
    monkeypatch.setattr(os, "listdir", refuse)
    assert host.names(path).gap == gap
    monkeypatch.setattr(os, "readlink", refuse)
    assert LiveHost().resolve(path).gap == (gap if number != errno.EINVAL else None)


def test_no_descriptor_is_lost(tmp_path: Path) -> None:
    host = LiveHost()
    before = len(os.listdir("/proc/self/fd"))
    for path in ("/proc/version", "/proc", "/proc/none", "/dev/zero", "/proc/self/mem", str(tmp_path)):
        host.read_bytes(path, 10)
    assert len(os.listdir("/proc/self/fd")) == before


def test_resolve_is_as_realpath(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "/devices/pci0000:00/0000:00:01.0/driver": Link("../../../drivers/nvme"),
            "/drivers/nvme/module": "x",
            "/bus/0000:00:01.0": Link("../devices/pci0000:00/0000:00:01.0"),
            "/dangling": Link("nowhere/at/all"),
            "/absolute": Link(str(tmp_path / "drivers")),
            "/up": Link("drivers/../bus/../drivers/./nvme"),
        },
    )
    host = LiveHost()
    for path in (
        "bus/0000:00:01.0/driver",
        "bus/0000:00:01.0",
        "bus/0000:00:01.0/driver/module",
        "absolute/nvme/module",
        "dangling",
        "up",
        "up/module",
        "drivers",
        "bus/../drivers/nvme",
    ):
        assert host.resolve(f"{root}/{path}").value == os.path.realpath(root / path), path
    assert host.link_name(f"{root}/bus/0000:00:01.0/driver").value == "nvme"
    assert host.resolve(f"{root}/bus/0000:00:01.0/missing").gap == "absent"
    assert host.resolve(f"{root}/dangling/deeper").gap == "absent"
    assert host.resolve("/").value == "/"
    assert host.resolve("/proc/self").value == f"/proc/{os.getpid()}"


def test_names_are_sorted(tmp_path: Path) -> None:
    for name in ("b", "a", "10", "9"):
        (tmp_path / name).touch()
    assert LiveHost().names(str(tmp_path)).value == ["10", "9", "a", "b"]


def test_another_root(tmp_path: Path) -> None:
    root = tree(tmp_path, {"/proc/version": "Linux there\n", "/sys/l": Link("../proc/version")})
    host = LiveHost(str(root))
    assert host.text("/proc/version").value == "Linux there"
    assert host.resolve("/sys/l").value == "/proc/version"
    assert host.names("/").value == ["proc", "sys"]
    assert host.origin == str(root)


# -- commands -----------------------------------------------------------------------------------


def test_command() -> None:
    host = LiveHost()
    found = host.command(["uname", "-n"])
    assert found.value == CommandResult(0, os.uname().nodename + "\n", "")
    assert found.source == "uname -n"
    failed = host.command(["/bin/sh", "-c", "echo out; echo err >&2; exit 3"])
    assert failed.value == CommandResult(3, "out\n", "err\n")
    assert host.command(["/bin/sh", "-c", "kill -9 $$"]).get().status == -9
    assert host.command(["/bin/sh", "-c", "printf '\\377'"]).get().stdout == "\ufffd"


def test_command_that_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = LiveHost()
    assert host.command(["hwtune-no-such-program"]).gap == "absent"
    assert host.command(["/no/such/program"]).gap == "absent"
    # Only the system's own folders are searched, and the working directory never is.
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\necho mine\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert host.command(["mine"]).gap == "absent"
    assert host.command(["./mine"]).gap == "absent"
    assert host.command([str(program)]).get().stdout == "mine\n"
    program.write_text("#!/no/such/interpreter\n")
    assert host.command([str(program)]).gap == "unreadable"
    program.chmod(0o644)
    assert host.command([str(program)]).gap == "absent"
    assert host.command(["uname", "a\0b"]).gap == "unreadable"


def test_command_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("LD_PRELOAD", "/evil.so")
    lines = LiveHost().command(["env"]).get().stdout.splitlines()
    assert "LC_ALL=C" in lines
    assert not any(line.startswith("LD_PRELOAD") for line in lines)
    assert LiveHost().command(["cat"]).value == CommandResult(0, "", "")  # nothing on its input


def test_command_that_hangs_is_ended_with_its_children() -> None:
    begin = time.monotonic()
    found = LiveHost().command(["/bin/sh", "-c", "sleep 4711 & sleep 4711"], 0.3)
    assert time.monotonic() - begin < 3
    assert (found.gap, found.detail) == ("unreadable", "did not end within 0.3 s")
    time.sleep(0.1)
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"4711" in _content(path)]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended
        return b""


def test_command_whose_child_keeps_the_output_open() -> None:
    begin = time.monotonic()
    found = LiveHost().command(["/bin/sh", "-c", "sleep 4712 & echo done"])
    assert found.get().stdout == "done\n"
    assert time.monotonic() - begin < 3


def test_command_that_closes_its_output_and_stays() -> None:
    found = LiveHost().command(["/bin/sh", "-c", "exec >&- 2>&-; sleep 4713"], 0.3)
    assert found.gap == "unreadable"


def test_command_that_prints_without_end() -> None:
    begin = time.monotonic()
    assert LiveHost().command(["yes"], 30).gap == "too-large"
    assert time.monotonic() - begin < 10


# -- libraries ------------------------------------------------------------------------------------


def test_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    fake: Any = types.ModuleType("hwtune.host.libraries.fake")

    def query(what: str, number: int = 0) -> Any:
        if what == "gap":
            raise LibraryGap("denied", "needs root")
        if what == "error":
            raise OSError(errno.EPERM, "no")
        if what == "missing":
            raise ImportError("No module named 'pynvml'")
        if what == "broken":
            raise ZeroDivisionError("surprise")
        return {"what": what, "number": number}

    fake.query = query
    monkeypatch.setitem(sys.modules, "hwtune.host.libraries.fake", fake)
    host = LiveHost()
    found = host.ask("fake", "all", 3)
    assert (found.value, found.source) == ({"what": "all", "number": 3}, "fake(all, 3)")
    gaps = {what: host.ask("fake", what) for what in ("gap", "error", "missing", "broken")}
    assert {what: (fact.gap, fact.detail) for what, fact in gaps.items()} == {
        "gap": ("denied", "needs root"),
        "error": ("denied", "Operation not permitted"),
        "missing": ("unreadable", "ImportError: No module named 'pynvml'"),
        "broken": ("unreadable", "ZeroDivisionError: surprise"),
    }


def test_kernel_log_records() -> None:
    # Form of a record: Documentation/ABI/testing/dev-kmsg.
    record = (
        b"7,160,424069,-;pci_root PNP0A03:00: host bridge window\n SUBSYSTEM=acpi\n DEVICE=+acpi:PNP0A03:00\n"
    )
    assert kmsg.parse_record(record) == [[7, 0.424069, "pci_root PNP0A03:00: host bridge window"]]
    # A message of three lines, as the NVIDIA driver prints them; bytes from 127 on are escaped.
    assert kmsg.parse_record(b"3,9,1843308000,c;NVRM: one\\x0aNVRM: \\xc3\\xa9\\x5cx\\x1b[m\n") == [
        [3, 1843.308, "NVRM: one"],
        [3, 1843.308, "NVRM: \u00e9\\x\\x1b[m"],
    ]
    for nonsense in (b"", b"\n", b"text", b"a,b,c;d", b"1,2;text"):
        assert kmsg.parse_record(nonsense) == []


def test_kernel_log_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [
        b"6,1,1000000,-;a\n",
        OSError(errno.EPIPE, ""),
        b"4,3,2000000,-;b\n",
        BlockingIOError(),
    ]

    def read(descriptor: int, size: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, bytes):
            return answer
        raise answer

    monkeypatch.setattr(os, "open", lambda *_: -1)
    monkeypatch.setattr(os, "close", lambda _: None)
    monkeypatch.setattr(os, "read", read)
    assert kmsg.query() == [[6, 1.0, "a"], [4, 2.0, "b"]]


def test_kernel_log_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "open", refuse)
    assert LiveHost().ask("kmsg").gap == "denied"


def test_import_is_light() -> None:
    """Doctor starts with this module: nothing heavy may come with it."""
    code = "import sys, hwtune.host.live; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    own = {name for name in done.stdout.split() if name.startswith("hwtune.host.")}
    assert own == {f"hwtune.host.{name}" for name in ("base", "gaps", "live", "walk")}
    assert not {"subprocess", "tarfile", "json", "zstandard", "selectors"} & set(done.stdout.split())
