"""Tasks by the CPUs that they may run on.

Asked of the scheduler itself: sched_getaffinity(2) of a thread takes a microsecond, where its
status file takes twenty and psutil, which reads that, a process's worth of others. Only threads
that may run on the CPUs in question are looked at any closer, in their stat file (proc_pid_stat(5)).
"""

from __future__ import annotations

import os
from typing import Any

from hwtune.fact import DENIED
from hwtune.host.libraries import LibraryGap
from hwtune.text.cpulist import format_list, parse_list

_PF_KTHREAD = 0x00200000  # include/linux/sched.h
# Places in what follows the name in a stat file.
_FLAGS = 6
_PROCESSOR = 36


def query(what: str, cpus: str) -> list[list[Any]]:
    """``query("tasks", LIST)``: [thread id, name, kernel, CPUs allowed (list), last CPU] of each
    thread that may run on one of these CPUs, kernel threads that are bound to one CPU left out:
    those belong there.

    Raises ``LibraryGap`` where threads of others are hidden.
    """
    if what != "tasks":
        raise ValueError(f"processes knows no {what}")
    wanted = frozenset(parse_list(cpus))
    processes = [name for name in os.listdir("/proc") if name.isdecimal()]
    # hidepid= of /proc leaves out the processes of others, init's before all (proc(5)).
    if "1" not in processes:
        raise LibraryGap(DENIED, "/proc shows no processes of others")
    found: list[list[Any]] = []
    for process in processes:
        try:
            threads = os.listdir(f"/proc/{process}/task")
        except FileNotFoundError:  # it has ended
            continue
        except PermissionError:
            raise LibraryGap(DENIED, f"/proc/{process}/task is hidden") from None
        for thread in threads:
            task = _task(process, thread, wanted)
            if task is not None:
                found.append(task)
    return found


def _task(process: str, thread: str, wanted: frozenset[int]) -> list[Any] | None:
    try:
        allowed = os.sched_getaffinity(int(thread))
        if wanted.isdisjoint(allowed):
            return None
        with open(f"/proc/{process}/task/{thread}/stat", "rb") as file:
            content = file.read()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return None
    except PermissionError:
        raise LibraryGap(DENIED, f"thread {thread} may not be looked at") from None
    # The name may hold anything, brackets and blanks too.
    head, _, tail = content.rpartition(b")")
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    fields = tail.split()
    kernel = bool(int(fields[_FLAGS]) & _PF_KTHREAD)
    if kernel and len(allowed) == 1:
        return None
    return [int(thread), name, kernel, format_list(allowed), int(fields[_PROCESSOR])]
