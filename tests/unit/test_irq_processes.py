"""Tasks by CPU, asked of the live scheduler."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from hwtune.fact import DENIED
from hwtune.host.libraries import LibraryGap, processes
from hwtune.host.live import LiveHost
from hwtune.text.cpulist import format_list, parse_list

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = sorted(os.sched_getaffinity(0))


@pytest.fixture
def pinned() -> Iterator[tuple[int, int]]:
    """A thread of this process that may run on one CPU only, and that CPU."""
    cpu = HERE[-1]
    ready, done = threading.Event(), threading.Event()
    found: list[int] = []

    def run() -> None:
        os.sched_setaffinity(0, {cpu})
        found.append(threading.get_native_id())
        ready.set()
        done.wait(30)

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(30)
    yield found[0], cpu
    done.set()
    thread.join()


def test_a_pinned_thread_is_found_on_its_cpu_and_no_other(pinned: tuple[int, int]) -> None:
    thread, cpu = pinned
    found = {task[0]: task for task in processes.query("tasks", str(cpu))}
    name, kernel, allowed, last = found[thread][1:]
    assert (kernel, allowed, last) == (False, str(cpu), cpu)
    assert name
    for other in HERE[:-1]:
        assert thread not in {task[0] for task in processes.query("tasks", str(other))}


def test_kernel_threads_of_one_cpu_are_left_out() -> None:
    told = processes.query("tasks", format_list(HERE))
    assert os.getpid() in {task[0] for task in told}
    assert all(len(parse_list(allowed)) > 1 for _, _, kernel, allowed, _ in told if kernel)


def test_a_cpu_that_nobody_may_use() -> None:
    assert processes.query("tasks", "4000") == []


def test_hidden_processes_are_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: [n for n in listdir(path) if n != "1"])
    with pytest.raises(LibraryGap) as caught:
        processes.query("tasks", "0")
    assert caught.value.kind == DENIED


def test_the_host_asks_it() -> None:
    answer = LiveHost().ask("processes", "tasks", str(HERE[0]))
    assert answer.source == f"processes(tasks, {HERE[0]})"
    assert answer.known
    assert LiveHost().ask("processes", "no such thing", "0").gap == "unreadable"
