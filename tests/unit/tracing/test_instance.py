"""The trace instance: its own only, set up as it must be, removed whatever happens, and those of the dead."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys

import pytest

from hwtune.tracing import instance
from hwtune.tracing.instance import Instance, clean_up, create, room, start_time
from hwtune.tracing.tracefs import Tracefs, Unavailable, find
from tests.support.fake_tracefs import FakeKernel

MINE = f"hwtune-{os.getpid()}-{start_time(os.getpid())}"


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    found = FakeKernel(tmp_path / "sys/kernel/tracing")
    found.install(monkeypatch)
    monkeypatch.setattr(instance, "_REMOVE_WAIT_S", 0)
    return found


@pytest.fixture
def tracefs(kernel, tmp_path) -> Tracefs:
    return find(str(tmp_path))


def prepared(tracefs, cpus=(1, 3), clocks=("x86-tsc",), events=("sched:sched_switch",)) -> Instance:
    made = create(tracefs)
    assert made.prepare(cpus, clocks, 2048, events) == clocks[-1]
    return made


def test_only_the_measured_cpus_and_the_wanted_events(kernel, tracefs):
    before = kernel.state()
    made = prepared(tracefs)
    files = made.files
    assert kernel.instances() == [MINE]
    assert files.read("tracing_cpumask").strip() == "a"
    assert files.read("tracing_on").strip() == "0"
    assert files.read("per_cpu/cpu1/buffer_size_kb").strip() == "2048"
    assert files.read("per_cpu/cpu0/buffer_size_kb").strip() == "1408"
    assert files.read("events/sched/sched_switch/enable").strip() == "1"
    assert files.read("events/irq/irq_handler_entry/enable").strip() == "0"
    assert files.read("options/overwrite").strip() == "1"
    made.switch(True)
    assert files.read("tracing_on").strip() == "1"
    assert made.remove() == ""
    assert kernel.instances() == []
    # nothing outside of the instance was touched, and it was not recording while it was set up
    assert kernel.state() == before
    assert all(entry.split(" ")[-1].startswith((MINE, f"instances/{MINE}/")) for entry in kernel.log)
    assert kernel.log[1] == f"instances/{MINE}/tracing_on=0"


def test_removing_twice_is_fine(tracefs, kernel):
    made = prepared(tracefs)
    assert made.remove() == ""
    assert made.remove() == ""


def test_the_first_clock_that_this_kernel_has(kernel, tracefs):
    made = create(tracefs)
    assert made.prepare([0], ("ppc-tb", "mono_raw"), 1024, ()) == "mono_raw"
    made.remove()
    made = create(tracefs)
    with pytest.raises(Unavailable, match="none of the clocks nothing"):
        made.prepare([0], ("nothing",), 1024, ())
    made.remove()


def test_pages_are_read_until_there_are_no_more(kernel, tracefs):
    kernel.pages[1] = b"a" * os.sysconf("SC_PAGESIZE") + b"b" * os.sysconf("SC_PAGESIZE")
    made = prepared(tracefs)
    assert made.read(1) == kernel.pages[1]
    assert made.read(3) == b""
    made.remove()


def test_losses_are_read(kernel, tracefs):
    kernel.overrun, kernel.dropped = 12, 3
    made = prepared(tracefs)
    assert made.stats(1) == (0, 12, 3)
    made.remove()


def test_larger_pages_where_the_kernel_has_them(kernel, tracefs):
    made = create(tracefs)
    (kernel.place / "instances" / MINE / "buffer_subbuf_size_kb").write_text("16\n")
    made.prepare([0], ("x86-tsc",), 1024, ())
    assert made.page_size == 16384
    made.remove()


def test_what_somebody_reads_is_switched_off_at_least(kernel, tracefs):
    made = prepared(tracefs)
    made.switch(True)
    kernel.busy.add(MINE)
    assert "somebody reads" in made.remove()
    assert made.files.read("tracing_on").strip() == "0"
    assert made.files.read("events/enable").strip() == "0"
    # and the next run of this process begins anew
    kernel.busy.clear()
    create(tracefs).remove()
    assert kernel.instances() == []


def test_an_instance_of_ours_that_cannot_be_removed(kernel, tracefs):
    kernel.add_instance(MINE)
    kernel.busy.add(MINE)
    with pytest.raises(OSError, match="somebody reads"):
        create(tracefs)


# -- those of the dead


@pytest.fixture(scope="module")
def dead() -> tuple[int, int]:
    """A process that is no more, by its number and start time."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = start_time(child.pid)
    assert started is not None
    child.kill()
    child.wait()
    child.stdin.close()
    return child.pid, started


def test_the_instance_of_a_killed_run_is_removed(kernel, tracefs, dead):
    kernel.add_instance(f"hwtune-{dead[0]}-{dead[1]}")
    assert clean_up(tracefs) == [f"hwtune-{dead[0]}-{dead[1]}"]
    assert kernel.instances() == []


def test_a_number_that_is_anothers_now(kernel, tracefs):
    """Process numbers come again; the start time tells the two apart."""
    mine = start_time(os.getpid())
    name = f"hwtune-{os.getpid()}-{mine - 1}"
    kernel.add_instance(name)
    assert clean_up(tracefs) == [name]


def test_nobody_elses_is_touched(kernel, tracefs, dead):
    others = [
        "osnoise",
        "hwtune",
        f"hwtune-{dead[0]}",
        f"xhwtune-{dead[0]}-{dead[1]}",
        f"hwtune-{dead[0]}-{dead[1]}-x",
    ]
    for name in others:
        kernel.add_instance(name)
    assert clean_up(tracefs) == []
    assert kernel.instances() == sorted(others)


def test_a_living_owners_stays(kernel, tracefs):
    kernel.add_instance(MINE)
    assert clean_up(tracefs) == []
    assert kernel.instances() == [MINE]


def test_an_owner_in_another_pid_namespace_holds_its_lock(kernel, tracefs, dead):
    name = f"hwtune-{dead[0]}-{dead[1]}"
    folder = kernel.add_instance(name)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert clean_up(tracefs) == []
    os.close(lock)
    assert clean_up(tracefs) == [name]


def test_create_holds_that_lock(kernel, tracefs):
    made = create(tracefs)
    other = os.open(kernel.place / "instances" / MINE, os.O_RDONLY | os.O_DIRECTORY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    made.remove()


# -- memory, and places


def test_room_is_bounded_by_what_is_free(monkeypatch):
    monkeypatch.setattr(instance, "_available_kb", lambda: 8 * (100 << 10))
    # 2 of 4 CPUs: the others have 1408 KiB each whatever is asked
    assert room([2, 3], 4, 16384) == (16384, 2 * 1408 + 2 * 16384)
    each, total = room([0, 1, 2, 3], 64, 16384)
    assert each == ((100 << 10) - 60 * 1408) // 4
    assert total <= 100 << 10
    # of many CPUs each gets less
    monkeypatch.setattr(instance, "_available_kb", lambda: 1 << 30)
    assert room(list(range(256)), 256, 16384) == (2048, 512 << 10)
    monkeypatch.setattr(instance, "_available_kb", lambda: 8 * (100 << 10))
    with pytest.raises(Unavailable, match="would take 176 MiB here, and no more than 100 MiB"):
        room([0], 128, 16384)


def test_start_time_of_a_name_with_brackets():
    assert start_time(os.getpid()) is not None
    assert start_time(1 << 30) is None


def test_debugfs_is_looked_at_too(tmp_path):
    FakeKernel(tmp_path / "sys/kernel/debug/tracing")
    assert find(str(tmp_path)).place == str(tmp_path / "sys/kernel/debug/tracing")


def test_no_tracefs(tmp_path):
    (tmp_path / "sys/kernel/tracing").mkdir(parents=True)
    with pytest.raises(Unavailable, match="mount" if os.geteuid() == 0 else "root"):
        find(str(tmp_path))


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.EROFS, "read-only"), (errno.EPERM, "lockdown"), (errno.ENOMEM, "memory"), (errno.EIO, "failed")],
)
def test_a_refusal_is_one_sentence(number, words):
    from hwtune.tracing.tracefs import explain

    text = explain(OSError(number, os.strerror(number)), root=True)
    assert words in text
    assert "\n" not in text
