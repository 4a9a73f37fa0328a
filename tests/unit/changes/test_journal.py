"""The journal: what it bears, what it refuses, and what it says of damage."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.changes.journal import Journal, decode, encode
from hwtune.errors import ToolError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.small_box import Box


def journal_with(folder: Path, count: int) -> Journal:
    journal = Journal(str(folder / "hwtune"))
    journal.open("a test")
    for n in range(count):
        journal.append("begin", set=f"s{n}")
    journal.close()
    return journal


def told(journal: Journal) -> list[Any]:
    return [r.get("set", r["record"]) for r in journal.records().records]


def test_records_come_back_in_their_order(tmp_path: Path) -> None:
    journal = journal_with(tmp_path, 3)
    assert told(journal) == ["s0", "s1", "s2"]
    assert journal.records().torn == journal.records().damaged == []
    assert Journal(str(tmp_path / "nothing")).records() == ([], [], [])


def test_folder_and_files_are_roots_alone(tmp_path: Path) -> None:
    journal_with(tmp_path, 1)
    modes = [
        stat.S_IMODE(os.stat(tmp_path / path).st_mode) for path in ("hwtune", "hwtune/journal", "hwtune/lock")
    ]
    assert modes == [0o700, 0o600, 0o600]


def test_torn_end_is_told_until_the_next_run_has_marked_it(tmp_path: Path) -> None:
    journal = journal_with(tmp_path, 2)
    path = tmp_path / "hwtune/journal"
    whole = path.read_bytes()
    for cut in range(1, len(whole.splitlines()[1])):
        path.write_bytes(whole[:-cut])
        assert told(journal) == (["s0", "s1"] if cut == 1 else ["s0"])
        assert len(journal.records().torn) == (cut != 1)
        again = Journal(journal.folder)
        again.open("a test")
        again.append("begin", set="s9")
        again.close()
        assert told(journal)[-1] == "s9"
        assert journal.records().torn == journal.records().damaged == []


def test_crash_while_a_torn_end_is_marked(tmp_path: Path) -> None:
    journal = journal_with(tmp_path, 2)
    path = tmp_path / "hwtune/journal"
    torn = path.read_bytes()[:-20]
    mark = b"\n" + encode({"record": "torn"}) + b"\n"
    for length in range(len(mark)):
        path.write_bytes(torn + mark[:length])
        assert journal.records().damaged == []
        again = Journal(journal.folder)
        again.open("a test")
        again.append("begin", set="s9")
        again.close()
        assert [r for r in told(journal) if r != "torn"] == ["s0", "s9"]
        assert journal.records().damaged == []


@given(st.data())
def test_any_altered_byte_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    line = encode({"record": "intent", "set": "s", "n": 1, "before": "60", "after": "1"})
    place = data.draw(st.integers(0, len(line) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda b: b != line[place]))
    assert decode(line[:place] + bytes([other]) + line[place + 1 :]) is None
    assert decode(line) is not None


def test_damage_in_the_middle_is_told_by_its_line(tmp_path: Path) -> None:
    journal = journal_with(tmp_path, 3)
    path = tmp_path / "hwtune/journal"
    path.write_bytes(path.read_bytes().replace(b'"s1"', b'"s7"'))
    assert journal.records().damaged == [f"{path}: line 2 is damaged"]
    assert told(journal) == ["s0", "s2"]


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_folder_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "hwtune").mkdir()
    (tmp_path / "hwtune").chmod(mode)
    with pytest.raises(ToolError, match="may be written by others"):
        journal_with(tmp_path, 1)
    assert os.listdir(tmp_path / "hwtune") == []


def test_folder_that_others_may_read_is_closed(tmp_path: Path) -> None:
    (tmp_path / "hwtune").mkdir(mode=0o755)
    journal_with(tmp_path, 1)
    assert stat.S_IMODE(os.stat(tmp_path / "hwtune").st_mode) == 0o700


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "hwtune").symlink_to("elsewhere")
    with pytest.raises(ToolError, match="does not follow links"):
        journal_with(tmp_path, 1)
    (tmp_path / "hwtune").unlink()
    (tmp_path / "hwtune").mkdir(mode=0o700)
    for name in ("journal", "lock"):
        (tmp_path / "hwtune" / name).symlink_to("/etc/passwd")
        with pytest.raises(ToolError, match=name):
            journal_with(tmp_path, 1)
        for entry in (tmp_path / "hwtune").iterdir():
            entry.unlink()


def test_journal_that_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "hwtune").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "hwtune/journal")
    with pytest.raises(ToolError, match="no regular file"):
        journal_with(tmp_path, 1)
    with pytest.raises(ToolError, match="no regular file"):
        Journal(str(tmp_path / "hwtune")).records()


def test_second_run_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "hwtune"))
    assert journal.busy() == ""
    journal.open("hwtune apply --yes")
    holder = f"hwtune apply --yes, process {os.getpid()}"
    with pytest.raises(ToolError, match=f"another run holds the lock: {holder}"):
        Journal(journal.folder).open("hwtune revert")
    assert Journal(journal.folder).busy() == holder
    journal.close()
    assert Journal(journal.folder).busy() == ""
    journal.open("hwtune revert")
    journal.close()


_STARTS_A_TOOL = """
import sys
from hwtune.changes.journal import Journal
from hwtune.host import commands
Journal(sys.argv[1]).open("hwtune apply")
commands.run(["sh", "-c", f"echo $$ > {sys.argv[2]}; exec sleep 60"], 60)
"""


def test_lock_lasts_as_long_as_a_program_of_a_run_that_was_killed(tmp_path: Path) -> None:
    folder, told = str(tmp_path / "hwtune"), tmp_path / "tool"
    with subprocess.Popen([sys.executable, "-c", _STARTS_A_TOOL, folder, str(told)]) as run:
        while not told.exists() or not told.read_text().strip():
            assert run.poll() is None
            time.sleep(0.01)
        run.kill()
    holder = f"hwtune apply, process {run.pid}, which is gone, but a program that it started is still at work"
    try:
        assert Journal(folder).busy() == holder
        with pytest.raises(ToolError, match=f"another run holds the lock: {holder}"):
            Journal(folder).open("hwtune revert")
    finally:
        os.kill(int(told.read_text()), signal.SIGKILL)
    deadline = time.monotonic() + 10
    while Journal(folder).busy() and time.monotonic() < deadline:
        time.sleep(0.01)
    journal = Journal(folder)
    journal.open("hwtune revert")
    journal.close()


def test_new_journal_is_in_its_folder_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    fsync = os.fsync

    def watch(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", watch)
    journal_with(tmp_path, 1)
    assert synced == [str(tmp_path), str(tmp_path / "hwtune"), str(tmp_path / "hwtune/journal")]


# -- a full disk -------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [0, 0.5])
def test_full_disk_changes_nothing_that_is_not_announced(
    box: Box, monkeypatch: pytest.MonkeyPatch, part: float
) -> None:
    """The disk fills up at each write of the journal in turn, with none or with half of it written."""
    from tests.support.small_box import changes

    pristine = box.tree.state()
    write = os.write
    left = 0

    def filling(handle: int, data: Any) -> int:
        nonlocal left
        if not os.readlink(f"/proc/self/fd/{handle}").endswith("/hwtune/journal"):
            return write(handle, data)
        left -= 1
        if left > 0:
            return write(handle, data)
        if left == 0 and part:
            return write(handle, bytes(data)[: int(len(data) * part)])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for allowed in range(1, 200):
        left = allowed
        monkeypatch.setattr(os, "write", filling)
        try:
            done = box.apply(*changes())
        except ToolError as error:
            words = "nothing was changed" if allowed == 1 else "hwtune stopped here"
            assert "No space left on device" in str(error) and words in str(error)
        else:
            assert done.whole
            break
        finally:
            monkeypatch.setattr(os, "write", write)
        told_of = {e.target.rpartition(" ")[2] for s in box.ledger.sets.values() for e in s.entries}
        for path, state in box.tree.state().items():
            if pristine.get(path) != state and path.startswith(("/proc/", "/sys/", "/etc/motd")):
                assert path in told_of or path.startswith(("/proc/irq/24", "/proc/sys/vm/dirty_")), path
        assert box.revert().whole
        assert box.tree.state() == pristine
    else:
        pytest.fail("the disk was never large enough")
    assert allowed > 40
