"""Whatever is given as a snapshot: one sentence, nothing written, bounded memory and time."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import resource
import socket
import subprocess
import sys
import tarfile
import time
from typing import TYPE_CHECKING

import pytest
import zstandard

from hwtune.errors import UsageError
from hwtune.host.limits import DEFAULT, Limits
from hwtune.host.snapshot import open_snapshot
from tests.support import Directory, Link, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


def member(name: str, content: bytes = b"1\n", kind: bytes = tarfile.REGTYPE, target: str = "") -> bytes:
    about = tarfile.TarInfo(name)
    about.type = kind
    about.linkname = target
    about.size = len(content) if kind == tarfile.REGTYPE else 0
    header = about.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    return header + (content + bytes(-len(content) % 512) if about.size else b"")


def archive(path: Path, members: Iterable[bytes]) -> Path:
    path.write_bytes(b"".join(members) + bytes(1024))
    return path


GOOD = member("box/sys/devices/system/cpu/online", b"0-3\n")


def refusal(path: Path | str, limits: Limits = DEFAULT) -> str:
    """The one sentence; it names what was given and holds nothing that a terminal would obey."""
    with pytest.raises(UsageError) as caught:
        open_snapshot(str(path), limits)
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert sentence.endswith(".")
    assert caught.value.exit_status == 2
    return sentence


# -- missing, empty, not a snapshot --------------------------------------------------------


def test_missing(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no.tar.gz") == f"{tmp_path}/no.tar.gz does not exist."
    assert refusal("") == " does not exist."
    assert "does not exist" in refusal(f"{tmp_path}/\x1b[31mred")
    assert "cannot be read" in refusal("a\0b")
    assert "File name too long" in refusal("x" * 5000)


def test_empty(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "packed.gz").write_bytes(gzip.compress(b""))
    archive(tmp_path / "empty.tar", [])
    assert "is empty" in refusal(tmp_path / "folder")
    assert "is empty" in refusal(tmp_path / "file")
    assert "holds neither" in refusal(tmp_path / "packed.gz")
    assert "nothing in it" in refusal(tmp_path / "empty.tar")


def test_not_a_snapshot(tmp_path: Path) -> None:
    (tmp_path / "random").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "prose.txt").write_text("The box is slow on Mondays.\n")
    (tmp_path / "photo.zip").write_bytes(b"PK\x03\x04" + bytes(500))
    tree(tmp_path / "src", {"/main.c": "int main;\n", "/deep/er/still/sys/kernel/x": "far below\n"})
    archive(tmp_path / "src.tar", [member("src/main.c")])
    assert "neither a folder, nor a tar archive, nor a text" in refusal(tmp_path / "random")
    assert "neither a folder, nor a tar archive, nor a text" in refusal(tmp_path / "photo.zip")
    assert "holds neither a sys/ or proc/ tree nor" in refusal(tmp_path / "prose.txt")
    assert "holds neither a sys/ or proc/ tree nor" in refusal(tmp_path / "src.tar")
    (tmp_path / "src/deep/er/still/more").mkdir()
    assert open_snapshot(str(tmp_path / "src")).root == "/deep/er/still"
    tree(tmp_path / "far", {"/1/2/3/4/sys/kernel/x": "far below\n"})
    assert "holds neither" in refusal(tmp_path / "far")


def test_not_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    assert "neither a folder nor a regular file" in refusal(tmp_path / "fifo")
    assert "cannot be read" in refusal(tmp_path / "socket")
    assert "neither a folder nor a regular file" in refusal("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    assert "cannot be read" in refusal(tmp_path / "loop")


# -- cut off and damaged ---------------------------------------------------------------------

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "tar": lambda content: content,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.compress,
}


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_cut_off_anywhere(tmp_path: Path, compression: str) -> None:
    noise = os.urandom(2000)
    whole = (
        GOOD + b"".join(member(f"box/sys/f{number}", noise[number:]) for number in range(30)) + bytes(1024)
    )
    packed = COMPRESSIONS[compression](whole)
    place = tmp_path / "cut"
    place.write_bytes(packed)
    assert open_snapshot(str(place)).root == "/box"
    for end in range(513, len(whole) - 1024 if compression == "tar" else len(packed) - 20, 1531):
        place.write_bytes(packed[:end])
        assert "cut off or damaged" in refusal(place), end


def test_cut_off_between_two_members(tmp_path: Path) -> None:
    (tmp_path / "cut.tar").write_bytes(GOOD + member("box/sys/other"))
    assert "cut off or damaged (it has no end mark)" in refusal(tmp_path / "cut.tar")


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz", "zst"])
def test_damaged_in_the_middle(tmp_path: Path, compression: str) -> None:
    packed = bytearray(
        COMPRESSIONS[compression](GOOD + member("box/sys/noise", os.urandom(200_000)) + bytes(1024))
    )
    middle = len(packed) // 2
    packed[middle : middle + 64] = bytes(64)
    (tmp_path / "bad").write_bytes(packed)
    if compression == "zst":  # stored blocks have no checksum: the bytes are not noticed
        assert open_snapshot(str(tmp_path / "bad")).root == "/box"
    else:
        assert "cut off or damaged" in refusal(tmp_path / "bad")


def test_headers_that_lie(tmp_path: Path) -> None:
    header = bytearray(member("box/sys/x", b""))
    for size in (b"7" * 11 + b"\0", b"\x80" + b"\xff" * 11, b"\xff" * 12, b"not a size\0\0"):
        header[124:136] = size
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        (tmp_path / "lie.tar").write_bytes(GOOD + header + bytes(4096))
        assert "cut off or damaged" in refusal(tmp_path / "lie.tar")
    # An extended header of 8 GiB: nothing of it is held.
    about = tarfile.TarInfo("x")
    about.type, about.size = tarfile.XHDTYPE, 8 << 30
    (tmp_path / "pax.tar").write_bytes(about.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
    assert "an extended header is too large" in refusal(tmp_path / "pax.tar")


def test_xz_that_asks_for_gigabytes(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}]
    packed = lzma.compress(GOOD + bytes(1024), filters=filters)
    (tmp_path / "greedy.xz").write_bytes(packed)
    assert "cut off or damaged" in refusal(tmp_path / "greedy.xz")


# -- hostile names -----------------------------------------------------------------------------


def test_hostile_members_are_skipped_and_told(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "work").mkdir()
    hostile = [
        GOOD,
        member("/etc/absolute"),
        member("../outside/up"),
        member("box/../../outside/up"),
        member("box/sys/new\nline"),
        member("box/sys/\x1b[31mred\x1b[0m"),
        member("box/sys/\u202eright-to-left"),
        member("box/sys/node", kind=tarfile.CHRTYPE),
        member("box/sys/disk", kind=tarfile.BLKTYPE),
        member("box/sys/fifo", kind=tarfile.FIFOTYPE),
        member("box/sys/hard", kind=tarfile.LNKTYPE, target="/etc/passwd"),
        member("box/sys/harder", kind=tarfile.LNKTYPE, target="../../etc/passwd"),
        member("box/sys/shadow", kind=tarfile.SYMTYPE, target="/etc/shadow"),
        member("box/sys/up", kind=tarfile.SYMTYPE, target="../../../../../etc/passwd"),
        member("box/sys/way", kind=tarfile.SYMTYPE, target=str(outside)),
        member("box/sys/way/through"),
        member("box/sys/" + "x" * 3000),
        member("box/sys/" + "/".join("y" * 200)),
        member("box/sys/devices/system/cpu/online/below"),
        member("box/sys/same", kind=tarfile.LNKTYPE, target="box/sys/devices/system/cpu/online"),
    ]
    place = archive(tmp_path / "work" / "hostile.tar", hostile)
    before = sorted(tmp_path.rglob("*"))
    host = open_snapshot(str(place))
    assert sorted(tmp_path.rglob("*")) == before
    assert host.text("/sys/devices/system/cpu/online").value == "0-3"
    assert host.text("/sys/same").value == "0-3"
    for name in ("shadow", "up", "hard", "harder", "node", "disk", "fifo", "way", "way/through"):
        assert host.read_bytes(f"/sys/{name}").gap == "not-captured", name
    assert host.resolve("/sys/shadow").value == "/etc/shadow"
    assert host.names("/sys").value == ["devices", "same", "shadow", "up", "way"]
    told = "\n".join(host.warnings)
    assert all(sentence.isprintable() for sentence in host.warnings)
    for reason in (
        "1 member: an absolute name, /etc/absolute",
        "2 members: a name that leads upwards, ../outside/up",
        "3 members: a name with control characters, box/sys/new\\nline",
        "3 members: a device node or FIFO, box/sys/node",
        "2 members: a hard link to nothing inside, box/sys/hard",
        "1 member: a name that is too long",
        "1 member: a name that is too deep",
        "2 members: a name below a file or a link",
    ):
        assert reason in told, (reason, told)


def test_links_in_circles(tmp_path: Path) -> None:
    links = {f"/sys/l{number}": Link(f"l{number + 1}/x") for number in range(60)}
    root = tree(
        tmp_path / "t",
        {
            "/sys/a": Link("b"),
            "/sys/b": Link("a"),
            "/sys/self": Link("self"),
            "/sys/dot": Link("."),
            "/sys/fs": Directory(),
            **links,
        },
    )
    host = open_snapshot(str(root))
    for name in ("a", "b", "self", "l0"):
        assert host.read_bytes(f"/sys/{name}").gap == "unreadable", name
        assert host.resolve(f"/sys/{name}").gap == "unreadable", name
    assert host.names("/sys/dot/dot/dot").value == host.names("/sys").value
    long = "/sys" + "/dot" * 700
    assert host.names(long).gap == "unreadable"


def test_links_that_lead_on_and_on_cost_no_time(tmp_path: Path) -> None:
    # Each link has two thousand steps and another link at its end.
    around = "d/../" * 800
    members = [member("sys/kernel/f"), member("sys/d/f")]
    members += [
        member(f"sys/l{number}", kind=tarfile.SYMTYPE, target=f"{around}l{number + 1}")
        for number in range(40)
    ]
    host = open_snapshot(str(archive(tmp_path / "slow.tar", members)))
    begin = time.perf_counter()
    for number in range(300):
        assert host.read_bytes(f"/sys/l0/{number}").value is None
        assert host.read_bytes(f"/sys/l{number % 40}").value is None
    assert time.perf_counter() - begin < 2


def test_a_folder_is_never_left(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    root = tree(
        tmp_path / "t",
        {
            "/proc/version": "Linux\n",
            "/proc/up": Link("../../secret"),
            "/proc/absolute": Link(str(tmp_path / "secret")),
            "/proc/far": Link("../../../../../../../../../../etc/passwd"),
            "/away": Link(str(tmp_path)),
            "/etc/passwd": "inside\n",
        },
    )
    os.mkfifo(root / "proc" / "fifo")
    host = open_snapshot(str(root))
    assert host.read_bytes("/proc/up").gap == "not-captured"
    assert host.read_bytes("/proc/absolute").gap == "not-captured"
    assert host.read_bytes("/away/secret").gap == "not-captured"
    assert host.read_bytes("/../secret").gap == "not-captured"
    assert host.text("/proc/far").value == "inside"
    assert host.read_bytes("/proc/fifo").gap == "unreadable"
    assert host.read_bytes("/proc").gap == "unreadable"
    outside = tree(tmp_path / "u", {"/sys": Link("/sys"), "/proc": Link("/proc")})
    assert "holds neither" in refusal(outside)


def test_strange_names_in_a_folder(tmp_path: Path) -> None:
    root = tree(tmp_path / "t", {"/sys/kernel": "1", "/sys/new\nline": "2", "/sys/\x1b[2J": "3"})
    (root / "sys" / os.fsdecode(b"\xff\xfe")).touch()
    host = open_snapshot(str(root))
    assert host.names("/sys").value == ["kernel"]
    assert host.read_bytes("/sys/new\nline").gap == "not-captured"
    assert host.warnings == ["skipped 3 names with control characters in /sys"]


# -- bombs -------------------------------------------------------------------------------------

BOMB = """
import resource, sys, time
from hwtune.errors import UsageError
from hwtune.host.snapshot import open_snapshot
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begin = time.process_time()
try:
    open_snapshot(sys.argv[1])
except UsageError as error:
    print(error)
print(int(time.process_time() - begin), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def explode(path: Path, inside: str = "") -> tuple[str, int, int]:
    """(the sentence, seconds of CPU time, MiB more than at the start) in a process of its own."""

    def no_files() -> None:
        # Nothing may be written: not a byte.
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    done = subprocess.run(
        [sys.executable, "-c", BOMB, f"{path}{inside}"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
        preexec_fn=no_files,
    )
    sentence, figures = done.stdout.splitlines()
    seconds, mebibytes = figures.split()
    return sentence, int(seconds), int(mebibytes)


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz", "zst"])
def test_ten_gigabytes_of_zeros(tmp_path: Path, compression: str) -> None:
    about = tarfile.TarInfo("box/sys/zeros")
    about.size = 10 << 30
    pack = COMPRESSIONS[compression]
    part = pack(bytes(64 << 20))
    place = tmp_path / f"bomb.tar.{compression}"
    place.write_bytes(pack(about.tobuf(tarfile.GNU_FORMAT)) + part * 160)
    sentence, seconds, mebibytes = explode(place)
    assert "unpacks to more than 2048 MiB" in sentence
    assert seconds < 30
    assert mebibytes < 64


def test_ten_gigabytes_of_zeros_in_a_file(tmp_path: Path) -> None:
    root = tree(tmp_path / "t", {"/proc/version": "Linux\n"})
    with open(root / "proc" / "zeros", "wb") as file:
        file.truncate(10 << 30)
    with open(tmp_path / "zeros.tar", "wb") as file:
        file.truncate(10 << 30)
    assert open_snapshot(str(root)).read_bytes("/proc/zeros").gap == "too-large"
    assert "nothing in it" in refusal(tmp_path / "zeros.tar")


def test_zeros_with_a_sparse_header(tmp_path: Path) -> None:
    """GNU's sparse form holds 10 GB in one block; only what is asked for could be made of it."""
    about = tarfile.TarInfo("sys/sparse")
    about.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "sys/sparse",
        "GNU.sparse.realsize": str(10 << 30),
    }
    about.size = 512
    block = about.tobuf(tarfile.PAX_FORMAT) + b"1\n0\n1\nx".ljust(512, b"\0")
    host = open_snapshot(str(archive(tmp_path / "sparse.tar", [member("sys/module/ok"), block])))
    assert host.read_bytes("/sys/sparse").gap == "too-large"
    assert host.text("/sys/module/ok").value == "1"


def test_too_many_members(tmp_path: Path) -> None:
    """A million files: told after the 400,000th, within seconds and some hundred MiB."""
    header = member("box/sys/d000/f0000000", b"")
    name_at, sum_at = 8, 148
    name_end, sum_end = name_at + 13, sum_at + 8
    rest = sum(header) - sum(header[name_at:name_end]) - sum(header[sum_at:sum_end]) + 8 * 32
    place = tmp_path / "million.tar.gz"
    with gzip.open(place, "wb", 1) as file:
        for begin in range(0, 1_000_000, 10_000):
            names = [b"d%03d/f%07d" % (number % 997, number) for number in range(begin, begin + 10_000)]
            file.write(
                b"".join(
                    header[:name_at]
                    + name
                    + header[name_end:sum_at]
                    + b"%06o\0 " % (rest + sum(name))
                    + header[sum_end:]
                    for name in names
                )
            )
        file.write(bytes(1024))
    sentence, seconds, mebibytes = explode(place)
    assert "holds more than 400,000 files" in sentence
    assert seconds < 30
    assert mebibytes < 300


def test_names_that_are_a_bomb(tmp_path: Path) -> None:
    """Each name makes sixty folders: few members, many entries."""
    place = tmp_path / "deep.tar.gz"
    with gzip.open(place, "wb", 1) as file:
        for number in range(50_000):
            file.write(member(f"sys/{number:06d}" + "/folder-name" * 60))
        file.write(bytes(1024))
    sentence, seconds, mebibytes = explode(place)
    assert "holds more than 256 MiB" in sentence
    assert seconds < 30
    assert mebibytes < 600


def extended(kind: bytes, records: Iterable[tuple[str, str]]) -> bytes:
    """A pax header (POSIX.1-2017, pax Header Block) with these records."""
    data = b""
    for key, value in records:
        rest = f" {key}={value}\n".encode()
        length = len(rest) + 1
        while length != len(str(length)) + len(rest):
            length = len(str(length)) + len(rest)
        data += str(length).encode() + rest
    about = tarfile.TarInfo("pax")
    about.type, about.size = kind, len(data)
    return about.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)


@pytest.mark.parametrize("kind", [b"g", b"x"])
def test_headers_that_pile_up(tmp_path: Path, kind: bytes) -> None:
    """Words for all members that follow, or more and more for the next one: nobody keeps them."""
    place = tmp_path / "pax.tar.gz"
    with gzip.open(place, "wb", 1) as file:
        for number in range(100):
            file.write(extended(kind, ((f"{number}.{key}", "x" * 50) for key in range(5_000))))
        file.write(extended(b"x", [("path", "sys/devices/system/cpu/online")]) + member("x", b"0-3\n"))
        file.write(bytes(1024))
    host = open_snapshot(str(place))
    assert host.text("/sys/devices/system/cpu/online").value == "0-3"
    with pytest.raises(UsageError, match="holds no folder"):  # to measure it, in a process that says so
        open_snapshot(f"{place}/none")
    sentence, seconds, mebibytes = explode(place, "/none")
    assert "holds no folder" in sentence
    assert seconds < 10
    assert mebibytes < 32


def test_sparse_files_that_are_large_together(tmp_path: Path) -> None:
    """A block each, and 30 MiB of nothing."""
    place = tmp_path / "sparse.tar.gz"
    hole = extended(b"x", [("GNU.sparse.realsize", str(30 << 20)), ("GNU.sparse.map", "0,0")])
    with gzip.open(place, "wb", 1) as file:
        for number in range(20_000):
            file.write(hole + member(f"var/log/{number}", b""))
        file.write(bytes(1024))
    sentence, seconds, mebibytes = explode(place)
    assert "unpacks to more than 2048 MiB" in sentence
    assert seconds < 20
    assert mebibytes < 400


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz", "zst"])
def test_compressed_parts_without_content(tmp_path: Path, compression: str) -> None:
    place = tmp_path / f"empty.tar.{compression}"
    place.write_bytes(COMPRESSIONS[compression](b"") * 200_000)
    sentence, seconds, _ = explode(place)
    assert "it has too many empty parts" in sentence
    assert seconds < 5


def test_two_compressed_parts_with_an_empty_one_between(tmp_path: Path) -> None:
    """As of ``cat a.gz empty.gz b.gz``."""
    content = GOOD + bytes(1024)
    place = tmp_path / "parts.tar.gz"
    place.write_bytes(b"".join(map(gzip.compress, (content[:700], b"", content[700:]))))
    assert open_snapshot(str(place)).text("/sys/devices/system/cpu/online").value == "0-3"


def test_too_much_to_hold(tmp_path: Path) -> None:
    limits = DEFAULT._replace(kept_bytes=1 << 20)
    members = [GOOD] + [member(f"box/sys/f{number}", bytes(60_000)) for number in range(40)]
    assert "holds more than 1 MiB" in refusal(archive(tmp_path / "much.tar", members), limits)


def test_large_files_are_left_out_before_small_ones(tmp_path: Path) -> None:
    limits = DEFAULT._replace(kept_bytes=1 << 20)
    members = [member(f"box/var/log{number}", bytes(400_000)) for number in range(6)] + [GOOD]
    host = open_snapshot(str(archive(tmp_path / "logs.tar", members)), limits)
    assert host.text("/sys/devices/system/cpu/online").value == "0-3"
    assert host.read_bytes("/var/log0").known
    assert host.read_bytes("/var/log5").gap == "too-large"


def test_too_slow(tmp_path: Path) -> None:
    place = archive(tmp_path / "slow.tar", [GOOD])
    assert "takes more than 0 s" in refusal(place, DEFAULT._replace(seconds=0.0))


def test_a_folder_with_too_many_names(tmp_path: Path) -> None:
    root = tree(tmp_path / "t", {"/sys/many/1": "", "/sys/bus/1": "1"})
    for number in range(60):
        (root / "sys" / "many" / f"n{number}").touch()
    limits = DEFAULT._replace(folder_names=50)
    host = open_snapshot(str(root), limits)
    assert host.names("/sys/many").gap == "too-large"
    assert host.text("/sys/bus/1").value == "1"


def test_more_devices_than_a_machine_has(tmp_path: Path) -> None:
    limits = DEFAULT._replace(device_names=50)
    names = [f"e{number}" for number in range(60)]
    root = tree(tmp_path / "t", {f"/sys/class/net/{name}/mtu": "1500" for name in names})
    tree(root, {f"/proc/{number}/comm": "x" for number in range(1, 70)})
    host = open_snapshot(str(root), limits)
    assert host.names("/sys/class/net").gap == "too-large"
    assert host.text("/sys/class/net/e7/mtu").value == "1500"
    assert len(host.names("/proc").get()) == 69  # of processes there may be more
    said = {"tool": "hwtune", "format": 1, "listings": {"/sys/class/net": names}}
    tree(root, {"/manifest.json": json.dumps(said)})
    assert open_snapshot(str(root), limits).names("/sys/class/net").gap == "too-large"


def test_too_many_texts(tmp_path: Path) -> None:
    tree(
        tmp_path / "t", {f"/{number:02d}.txt": "NIC statistics:\n     rx_errors: 0\n" for number in range(20)}
    )
    host = open_snapshot(str(tmp_path / "t"), DEFAULT._replace(document_files=5))
    assert len(host.documents("ethtool -S")) == 5
    assert "holds more texts than are looked into" in host.warnings[0]
    host = open_snapshot(str(tmp_path / "t"), DEFAULT._replace(documents_bytes=100))
    assert len(host.documents("ethtool -S")) == 2


def test_large_and_binary_texts_are_passed_over(tmp_path: Path) -> None:
    root = tree(
        tmp_path / "t",
        {
            "/a.txt": "NIC statistics:\n     rx: 0\n" + "x" * 5000,
            "/b": b"NIC statistics:\n\0",
            "/c.txt": "CA 'x'\n",
        },
    )
    host = open_snapshot(str(root), DEFAULT._replace(document_bytes=4000))
    assert host.documents("ethtool -S") == []
    assert [document.path for document in host.documents("ibstat")] == ["c.txt"]
    assert host.warnings == ["left out 1 text larger than 0 MiB"]


def test_a_text_that_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("[    1.000000] nvme nvme0: x\n" * 1000)
    sentence = refusal(tmp_path / "log", DEFAULT._replace(document_bytes=10_000))
    assert "larger than a text of" in sentence


def test_a_manifest_of_nonsense(tmp_path: Path) -> None:
    for content in (
        "{",
        "[" * 100_000,
        '{"tool": "other"}',
        "7",
        '{"tool": "hwtune", "format": 1, "gaps": 7}',
        '{"tool": "hwtune", "format": 1, "captured_at": ' + "9" * 4000 + "}",
        '{"tool": "hwtune", "format": 1, "captured_at": 1e999}',
        '{"tool": "hwtune", "format": 1, "captured_at": NaN}',
    ):
        (tmp_path / "t").mkdir(exist_ok=True)
        tree(tmp_path / "t", {"/proc/version": "Linux\n", "/manifest.json": content})
        assert open_snapshot(str(tmp_path / "t")).text("/proc/version").value == "Linux"
    tree(tmp_path / "t", {"/manifest.json": '{"tool": "hwtune", "format": 99}'})
    assert "another version of hwtune" in refusal(tmp_path / "t")


def test_recorded_answers_of_nonsense(tmp_path: Path) -> None:
    root = tree(
        tmp_path / "t",
        {
            "/proc/version": "Linux\n",
            "/commands/1.json": "{",
            "/commands/2.json": '{"argv": 7}',
            "/commands/3.json": '{"argv": ["a"], "status": "x", "stdout": "", "stderr": ""}',
            "/commands/4.json": '{"argv": ["lscpu"], "status": 0, "stdout": "out", "stderr": ""}',
            "/commands/5.json": '{"argv": ["b"], "status": 1e999, "stdout": "", "stderr": ""}',
            "/commands/lspci.txt": "not json",
            "/libraries/1.json": "[]",
        },
    )
    host = open_snapshot(str(root))
    assert host.command(["lscpu"]).get().stdout == "out"
    assert host.command(["a"]).gap == "not-captured"
    assert [sentence.split()[0] for sentence in host.warnings] == [
        "commands/1.json",
        "commands/2.json",
        "commands/3.json",
        "commands/5.json",
        "libraries/1.json",
    ]


def test_an_archive_with_the_same_name_twice(tmp_path: Path) -> None:
    members = [
        member("sys/fs/x"),
        member("sys/x", b"old\n"),
        member("sys/x", b"new\n"),
        member("sys/y", b"file\n"),
        member("sys/y", kind=tarfile.SYMTYPE, target="x"),
        member("sys/d/f"),
        member("sys/d", b"no longer a folder\n"),
    ]
    host = open_snapshot(str(archive(tmp_path / "twice.tar", members)))
    assert host.text("/sys/x").value == "new"
    assert host.text("/sys/y").value == "new"
    assert host.text("/sys/d/f").value == "1"


def test_standard_library_agrees_on_what_is_written(tmp_path: Path) -> None:
    """Names of every length and alphabet, in each of the formats that Python writes."""
    names = ["sys/fs/" + "n" * length for length in (1, 95, 96, 97, 150, 255)] + [
        "sys/" + "d/" * 50 + "x",
        "sys/ä中",
    ]
    for number, form in enumerate((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)):
        place = tmp_path / f"{number}.tar"
        with tarfile.open(place, "w", format=form) as tar:
            for name in names:
                about = tarfile.TarInfo(name)
                about.size = 3
                tar.addfile(about, io.BytesIO(b"abc"))
                link = tarfile.TarInfo(f"links/{name[:90]}.link")
                link.type, link.linkname = tarfile.SYMTYPE, "../" * 3 + name
                tar.addfile(link)
        host = open_snapshot(str(place))
        assert host.warnings == []
        for name in names:
            assert host.text(f"/{name}").value == "abc", name
