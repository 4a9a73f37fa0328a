"""What goes on beside the reads: the drive's counters, the writer, the plan."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from hwtune.drive import plan, writing
from hwtune.drive.results import Target
from hwtune.drive.target import Place
from hwtune.drive.watching import Seen, Watcher, counted, foreign
from hwtune.errors import ToolError, UsageError
from hwtune.fact import gap, known
from hwtune.model.storage import Smart
from tests.unit.drive.test_target import on_a_drive

MS = 1_000_000


def test_counters_of_all_disks(tmp_path: Path) -> None:
    """Fields 1, 5, 12, 16 of stat: reads, writes, discards, flushes. An older kernel has the first eleven."""
    (tmp_path / "new").write_text("10 0 80 5 20 0 160 6 0 7 11 30 0 240 8 40 9\n")
    (tmp_path / "old").write_text("1 0 8 5 2 0 16 6 0 7 11\n")
    assert counted([str(tmp_path / "new"), str(tmp_path / "old")]) == (11, 92)
    (tmp_path / "odd").write_text("1 2\n")
    with pytest.raises(ValueError, match="odd"):
        counted([str(tmp_path / "odd")])


def test_others_io_is_what_we_did_not_do() -> None:
    """Looks at 0, 20, 40, 60, 80 ms. Reads 5 by us in each; 9 more in the second span; a write in the
    fourth."""
    looks = np.arange(5) * 20 * MS
    ours = np.sort(np.concatenate([looks[i] + np.arange(1, 6) * MS for i in range(4)]))
    begin, end = foreign(Seen(looks, np.array([0, 5, 19, 24, 29]), np.array([3, 3, 3, 3, 4])), ours)
    assert list(begin) == [20 * MS, 60 * MS]
    assert list(end) == [40 * MS, 80 * MS]


def test_a_read_at_a_look_is_nobodys() -> None:
    looks = np.arange(3) * 20 * MS
    begin, _ = foreign(Seen(looks, np.array([0, 2, 2]), np.zeros(3, dtype=int)), np.array([]))
    assert len(begin) == 0


def test_the_watcher_looks_some_fifty_times_a_second() -> None:
    disks = [name for name in os.listdir("/sys/block") if os.path.exists(f"/sys/block/{name}/stat")]
    if not disks:
        pytest.skip("no block device here")
    with Watcher(disks[:1], max(os.sched_getaffinity(0))) as watcher:
        time.sleep(0.3)
    seen = watcher.seen
    assert len(seen.time_ns) >= 2
    assert (np.diff(seen.time_ns) > 0).all()
    assert (np.diff(seen.reads) >= 0).all()


# -- endurance ---------------------------------------------------------------------------------


def smart(used: int, spare: int, warning: int = 0) -> Smart:
    return Smart(
        percentage_used=known(used, "SMART"),
        available_spare=known(spare, "SMART"),
        spare_threshold=known(10, "SMART"),
        critical_warning=known(warning, "SMART"),
    )


@pytest.mark.parametrize(("used", "spare", "warning"), [(80, 100, 0), (120, 100, 0), (3, 19, 0), (3, 100, 4)])
def test_a_worn_drive_is_not_written_to(used: int, spare: int, warning: int) -> None:
    with pytest.raises(ToolError, match=f"used {used} % of its endurance, and {spare} %"):
        writing.check_endurance(smart(used, spare, warning), True)


def test_a_sound_drive_is_written_to() -> None:
    writing.check_endurance(smart(79, 20), True)


def test_unknown_endurance_is_not_taken_for_good() -> None:
    unknown = Smart(percentage_used=gap("denied", "/dev/nvme0 SMART log"))
    with pytest.raises(ToolError, match=r"endurance is not known .*run it as root"):
        writing.check_endurance(unknown, True)
    with pytest.raises(ToolError, match="its SMART log was not read"):
        writing.check_endurance(None, True)
    writing.check_endurance(None, False)  # no NVMe drive has no such log


def test_the_writer_keeps_its_rate_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 4 MiB a second it has written 0 to 3 MiB after half of one, however slow the machine is."""
    on_a_drive(tmp_path)
    monkeypatch.setattr(writing, "WRITE_FILE", 4 << 20)
    monkeypatch.setattr(writing, "WRITE_RATE", 4 << 20)
    began = time.monotonic()
    with writing.Writer(str(tmp_path), max(os.sched_getaffinity(0))) as writer:
        time.sleep(0.5)
    took = time.monotonic() - began
    assert writer.failed == ""
    assert 0 < writer.written <= took * (4 << 20) + (128 << 10)
    assert os.listdir(tmp_path) == []


def test_the_writer_ends_at_its_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_drive(tmp_path)
    monkeypatch.setattr(writing, "WRITE_FILE", 1 << 20)
    monkeypatch.setattr(writing, "WRITE_MOST", 512 << 10)
    with writing.Writer(str(tmp_path), max(os.sched_getaffinity(0))) as writer:
        writer._thread.join(60)
    assert writer.written == 512 << 10


def test_writes_go_to_the_folder_that_was_named(tmp_path: Path) -> None:
    assert writing.folder_on(["vda"], Place("folder", str(tmp_path), 0)) == str(tmp_path)
    with pytest.raises(ToolError, match="needs a mounted file system on /dev/nothing"):
        writing.folder_on(["no-such-disk"], Place("device", "/dev/nothing", 0))


# -- the plan ----------------------------------------------------------------------------------

TARGET = Target("device", "/dev/nvme0n1", "nvme0n1", ["nvme0n1"], None, None, 1 << 40, [])


def test_the_plan_says_what_it_will_do_and_for_how_long() -> None:
    planned = plan.plan(TARGET, 60.0, None, False, 0)
    told = plan.announcement(TARGET, planned)
    assert f"for about {planned.total_s:.0f} s" in told
    assert "Writes nothing." in told
    assert 60 + 1 + 5 + 15 < planned.total_s < 60 + 1 + 5 + 20
    assert "it writes 1,024 MiB" in plan.announcement(TARGET, plan.plan(TARGET, 60.0, None, True, 0))
    assert "it writes 1,000 MiB" in plan.announcement(TARGET, plan.plan(TARGET, 20.0, None, True, 0))


def test_too_many_reads_are_refused() -> None:
    with pytest.raises(UsageError, match=r"are more than 2,000,000"):
        plan.plan(TARGET, 3600.0, 1000.0, False, 0)


def test_a_cpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no CPU 9999 here"):
        plan.plan(TARGET, 60.0, None, False, 9999)


def test_a_cpu_is_chosen_among_those_that_are_ours() -> None:
    ours = os.sched_getaffinity(0)
    first = plan.choose_cpu(TARGET)
    assert first in ours
    second = plan.choose_cpu(TARGET, [first])
    assert second in ours
    assert (second != first) == (len(ours) > 1)
