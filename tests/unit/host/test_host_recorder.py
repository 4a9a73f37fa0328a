"""What a recorder wrote must answer as the machine did."""

from __future__ import annotations

import gzip
import json
import os
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwtune.errors import ToolError, UsageError
from hwtune.fact import Fact
from hwtune.host.base import Host
from hwtune.host.live import LiveHost
from hwtune.host.recorder import Recorder
from hwtune.host.snapshot import open_snapshot
from tests.support import Directory, Link, tree

NAMES = ("a", "b", "c")
PATHS = [f"/{x}" for x in NAMES] + [f"/{x}/{y}" for x in NAMES for y in NAMES]
# One level deeper than anything made, so that questions also go below files and missing things.
ASKED = [*PATHS, *(f"{path}/{name}" for path in PATHS[3:] for name in ("a", "b"))]

contents = st.one_of(
    st.binary(max_size=30).map(lambda content: ("file", content)),
    st.sampled_from(
        ["b", "../b", "../a/c", "missing", "../../x", ".", "c/a", "../c/../a", "missing/../b"]
    ).map(lambda target: ("link", target)),
    st.just(("absolute", "/b")),
    st.just(("absolute", "/c/a")),
    st.just(("folder", None)),
)
questions = st.lists(
    st.tuples(st.sampled_from(["read", "small", "names", "resolve", "exists"]), st.sampled_from(ASKED)),
    min_size=1,
    max_size=25,
)


def build(root: Path, files: dict[str, tuple[str, Any]]) -> None:
    """As much of ``files`` as can exist together: nothing below a file or a link."""
    root.mkdir()
    for path in sorted(files):
        kind, content = files[path]
        place = root / path[1:]
        parent = place.parent
        if parent.is_symlink() or parent.is_file():
            continue
        parent.mkdir(exist_ok=True)
        if kind == "file":
            place.write_bytes(content)
        elif kind == "folder":
            place.mkdir(exist_ok=True)
        else:
            place.symlink_to(content if kind == "link" else f"{root}{content}")


def ask(host: Host, question: str, path: str) -> Fact[Any]:
    if question == "read":
        return host.read_bytes(path)
    if question == "small":
        return host.read_bytes(path, 7)
    if question == "names":
        return host.names(path)
    return host.resolve(path) if question == "resolve" else host.exists(path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.dictionaries(st.sampled_from(PATHS), contents, max_size=9), asked=questions)
def test_a_capture_answers_as_the_machine_did(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, tuple[str, Any]], asked: list[tuple[str, str]]
) -> None:
    place = Path(os.path.realpath(tmp_path_factory.mktemp("machine")))
    root = place / "root"
    build(root, files)
    live = LiveHost()
    recorder = Recorder(live)
    said = [ask(recorder, question, f"{root}{path}") for question, path in asked]
    # The recorder changes no answer...
    for (question, path), answer in zip(asked, said, strict=True):
        assert answer == ask(live, question, f"{root}{path}"), (question, path)
    recorder.write(str(place / "capture.tar.gz"))
    # ... and what it wrote gives the same again.
    snapshot = open_snapshot(str(place / "capture.tar.gz"))
    for (question, path), answer in zip(asked, said, strict=True):
        assert ask(snapshot, question, f"{root}{path}") == answer, (question, path)
    assert snapshot.warnings == []


def test_what_was_listed_and_not_read_is_listed_and_not_captured(tmp_path: Path) -> None:
    machine = tree(tmp_path / "m", {"/d/read": "1\n", "/d/unread": "2\n", "/d/sub": Directory()})
    recorder = Recorder(LiveHost())
    recorder.names(f"{machine}/d")
    recorder.read_bytes(f"{machine}/d/read")
    recorder.write(str(tmp_path / "c.tar.gz"))
    snapshot = open_snapshot(str(tmp_path / "c.tar.gz"))
    assert snapshot.names(f"{machine}/d").value == ["read", "sub", "unread"]
    assert snapshot.text(f"{machine}/d/read").value == "1"
    assert snapshot.read_bytes(f"{machine}/d/unread").gap == "not-captured"
    assert snapshot.names(f"{machine}/d/sub").gap == "not-captured"
    # The whole listing is known, so that what is not in it is known not to exist.
    assert snapshot.read_bytes(f"{machine}/d/other").gap == "absent"
    assert snapshot.read_bytes(f"{machine}/d/other/deeper").gap == "absent"
    assert snapshot.exists(f"{machine}/d/other").value is False


def test_a_directory_that_was_not_listed_is_not_listed_by_what_was_read_in_it(tmp_path: Path) -> None:
    machine = tree(tmp_path / "m", {"/d/read": "1\n", "/d/unread": "2\n"})
    recorder = Recorder(LiveHost())
    recorder.read_bytes(f"{machine}/d/read")
    recorder.write(str(tmp_path / "c.tar.gz"))
    snapshot = open_snapshot(str(tmp_path / "c.tar.gz"))
    assert snapshot.names(f"{machine}/d").gap == "not-captured"
    assert snapshot.read_bytes(f"{machine}/d/unread").gap == "not-captured"


def test_a_link_that_was_resolved_only_leads_to_the_same_place(tmp_path: Path) -> None:
    machine = tree(
        tmp_path / "m",
        {
            "/sys/bus/pci/devices/0000:00:1f.0": Link("../../../devices/0000:00:1f.0"),
            "/sys/devices/0000:00:1f.0/driver": Link("../../bus/pci/drivers/nvme"),
            "/sys/bus/pci/drivers/nvme": Directory(),
        },
    )
    recorder = Recorder(LiveHost())
    path = f"{machine}/sys/bus/pci/devices/0000:00:1f.0/driver"
    assert recorder.link_name(path).value == "nvme"
    recorder.write(str(tmp_path / "c.tar.gz"))
    snapshot = open_snapshot(str(tmp_path / "c.tar.gz"))
    assert snapshot.link_name(path).value == "nvme"
    assert snapshot.resolve(path).value == os.path.realpath(path)


def test_a_file_that_changes_is_remembered_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "counter"
    file.write_text("1")
    recorder = Recorder(LiveHost())
    assert recorder.integer(str(file)).value == 1
    file.write_text("2")
    assert recorder.integer(str(file)).value == 1
    file.unlink()
    assert recorder.exists(str(file)).value is True


def test_a_higher_limit_reads_what_was_too_large(tmp_path: Path) -> None:
    file = tmp_path / "interrupts"
    file.write_bytes(b"x" * 100)
    recorder = Recorder(LiveHost())
    assert recorder.read_bytes(str(file), 10).gap == "too-large"
    recorder.write(str(tmp_path / "first.tar.gz"))
    assert recorder.read_bytes(str(file), 100).value == b"x" * 100
    assert recorder.read_bytes(str(file), 99).gap == "too-large"
    recorder.write(str(tmp_path / "second.tar.gz"))
    assert open_snapshot(str(tmp_path / "first.tar.gz")).read_bytes(str(file), 10).gap == "too-large"
    second = open_snapshot(str(tmp_path / "second.tar.gz"))
    assert second.read_bytes(str(file), 100).value == b"x" * 100
    assert second.read_bytes(str(file), 99).gap == "too-large"


def test_commands_and_libraries_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    from hwtune.host.libraries import LibraryGap

    fake = types.ModuleType("hwtune.host.libraries.fake")

    def query(what: str) -> Any:
        if what == "nothing":
            raise LibraryGap("absent", "no such library")
        return {"gpus": [{"index": 0}], "pair": (1, 2)}

    fake.query = query  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hwtune.host.libraries.fake", fake)
    recorder = Recorder(LiveHost())
    answers = [
        recorder.command(["uname", "-r"]),
        recorder.command(["no-such-program"]),
        recorder.ask("fake", "all"),
        recorder.ask("fake", "nothing"),
    ]
    assert answers[0].get().stdout.strip() == os.uname().release
    assert [answer.gap for answer in answers] == [None, "absent", None, "absent"]
    assert answers[2].value == {"gpus": [{"index": 0}], "pair": [1, 2]}
    recorder.write(str(tmp_path / "c.tar.gz"))
    snapshot = open_snapshot(str(tmp_path / "c.tar.gz"))
    assert snapshot.command(["uname", "-r"]) == answers[0]
    assert snapshot.command(["no-such-program"]) == answers[1]
    assert snapshot.ask("fake", "all") == answers[2]
    assert snapshot.ask("fake", "nothing") == answers[3]
    assert snapshot.ask("fake", "nothing").detail == "no such library"
    assert snapshot.ask("fake", "other").gap == "not-captured"
    assert snapshot.command(["uname", "-a"]).gap == "not-captured"
    assert snapshot.captured_at == recorder.captured_at


def test_the_archive_is_private_and_the_same_each_time(tmp_path: Path) -> None:
    machine = tree(tmp_path / "m", {"/d/b": "2", "/d/a": "1", "/l": Link("d")})
    recorder = Recorder(LiveHost())
    for path in ("/l/b", "/l/a", "/d"):
        recorder.read_bytes(f"{machine}{path}")
    size = recorder.write(str(tmp_path / "one.tar.gz"))
    recorder.write(str(tmp_path / "two.tar.gz"))
    one = (tmp_path / "one.tar.gz").read_bytes()
    assert one == (tmp_path / "two.tar.gz").read_bytes()
    assert size == len(one)
    assert stat.S_IMODE((tmp_path / "one.tar.gz").stat().st_mode) == 0o600
    with tarfile.open(tmp_path / "one.tar.gz") as tar:
        assert tar.getnames() == sorted(tar.getnames(), key=lambda name: (name != "manifest.json", name))
        assert {member.mtime for member in tar} == {0}
    manifest = json.loads(gzip.decompress(one)[512:].partition(b"\0")[0])
    assert (manifest["tool"], manifest["format"]) == ("hwtune", 1)
    assert manifest["hostname"] == os.uname().nodename


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    recorder = Recorder(LiveHost())
    taken = tmp_path / "taken"
    taken.write_text("precious")
    with pytest.raises(UsageError, match="exists"):
        recorder.write(str(taken))
    assert taken.read_text() == "precious"
    link = tmp_path / "link"
    link.symlink_to(taken)
    with pytest.raises(UsageError, match="exists"):
        recorder.write(str(link))
    with pytest.raises(UsageError, match="not a regular file"):
        recorder.write(str(link), overwrite=True)
    assert taken.read_text() == "precious"
    recorder.write(str(taken), overwrite=True)
    assert taken.read_bytes()[:2] == b"\x1f\x8b"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "taken"]
    with pytest.raises(UsageError, match="cannot be written"):
        recorder.write(str(tmp_path / "no" / "such" / "folder"))


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(LiveHost())
    recorder.read_bytes("/proc/version")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolError, match="No space left"):
        recorder.write(str(tmp_path / "c.tar.gz"))
    assert list(tmp_path.iterdir()) == []


def test_the_real_machine_round_trips(tmp_path: Path) -> None:
    live = LiveHost()
    recorder = Recorder(live)
    asked: list[tuple[str, str]] = [("read", "/proc/self/status"), ("resolve", "/proc/self")]
    for folder in ("/sys/devices/system/cpu", "/sys/class/net", "/proc/sys/vm", "/sys/devices/system/node"):
        asked.append(("names", folder))
        for name in (live.names(folder).value or [])[:40]:
            asked += [("read", f"{folder}/{name}"), ("resolve", f"{folder}/{name}")]
    said = [ask(recorder, question, path) for question, path in asked]
    recorder.write(str(tmp_path / "c.tar.gz"))
    snapshot = open_snapshot(str(tmp_path / "c.tar.gz"))
    assert [ask(snapshot, question, path) for question, path in asked] == said
