"""A trace instance of hwtune's own, and the removal of those whose owner has died.

An instance has buffers, events and switches of its own (Documentation/trace/ftrace.rst, "Instances"); what
others trace is not touched. Its name tells the owner's pid and start time, and the owner holds a lock on its
folder, which the kernel lets go when the owner dies: either sign of life keeps it from being removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import time
from typing import TYPE_CHECKING, NamedTuple

from hwtune.text.cpulist import format_mask
from hwtune.tracing.tracefs import Tracefs, Unavailable, explain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NAME = re.compile(r"hwtune-(\d+)-(\d+)")
# An instance has this much for each CPU that is not asked for another size (TRACE_BUF_SIZE_DEFAULT).
_DEFAULT_KB = 1408
# Of the memory that is free, what a trace may take at most; and the measured CPUs in all.
_SHARE = 8
_MOST_KB = 512 << 10
_REMOVE_TRIES, _REMOVE_WAIT_S = 20, 0.05
# Set whatever the user's own instance has as default; the kernel copies that one's options.
_OPTIONS = {
    "overwrite": "1",  # when the buffer is full the oldest events go
    "stacktrace": "0",
    "userstacktrace": "0",
    "event-fork": "0",
    "pause-on-trace": "0",
}


class Stats(NamedTuple):
    """One CPU's per_cpu/cpuN/stats."""

    waiting: int
    overrun: int  # overwritten before they were read
    refused: int  # not written: the buffer's end was in use, or it was full


class Instance:
    """One instance, made by ``create``. ``remove`` may be called any number of times."""

    def __init__(self, tracefs: Tracefs, name: str, lock: int) -> None:
        self.tracefs = tracefs
        self.name = name
        self.cpus: list[int] = []
        self.page_size = 0
        self._lock = lock
        self._pages: dict[int, int] = {}

    @property
    def files(self) -> Tracefs:
        """What is in it."""
        return Tracefs(self.tracefs.path(f"instances/{self.name}"))

    # -- before a run

    def prepare(
        self, cpus: Sequence[int], clocks: Sequence[str], buffer_kb: int, events: Iterable[str]
    ) -> str:
        """Set up for ``cpus``, not yet recording. Returns the clock that the kernel took, the first of
        ``clocks`` that it has. Raises ``Unavailable`` or ``OSError``."""
        files = self.files
        files.write("tracing_on", "0")
        files.write("tracing_cpumask", format_mask(cpus))
        for option, value in _OPTIONS.items():
            with contextlib.suppress(FileNotFoundError):  # of another kernel
                files.write(f"options/{option}", value)
        clock = self._choose_clock(clocks)
        for cpu in cpus:
            files.write(f"per_cpu/cpu{cpu}/buffer_size_kb", str(buffer_kb))
        for event in events:
            files.write(f"events/{event.replace(':', '/')}/enable", "1")
        for cpu in cpus:
            self._pages[cpu] = files.open(f"per_cpu/cpu{cpu}/trace_pipe_raw", os.O_RDONLY | os.O_NONBLOCK)
        self.page_size = self._size_of_page()
        self.cpus = list(cpus)
        return clock

    def _choose_clock(self, clocks: Sequence[str]) -> str:
        files = self.files
        offered = files.read("trace_clock").replace("[", "").replace("]", "").split()
        for clock in clocks:
            if clock in offered:
                files.write("trace_clock", clock)  # empties the buffers too
                if f"[{clock}]" in files.read("trace_clock"):
                    return clock
        raise Unavailable(f"this kernel traces with none of the clocks {', '.join(clocks)}")

    def _size_of_page(self) -> int:
        """A multiple of the machine's pages where the kernel can do that (Linux 6.8)."""
        try:
            return int(self.files.read("buffer_subbuf_size_kb")) * 1024
        except (OSError, ValueError):
            return os.sysconf("SC_PAGESIZE")

    # -- during a run

    def switch(self, on: bool) -> None:
        self.files.write("tracing_on", "1" if on else "0")

    def read(self, cpu: int) -> bytes:
        """All pages of a CPU that are there; they are taken out of the buffer. The kernel gives one at a
        read, and nothing wakes the CPU as nobody waits."""
        parts = []
        while True:
            try:
                page = os.read(self._pages[cpu], self.page_size)
            except BlockingIOError:
                break
            if len(page) != self.page_size:
                break
            parts.append(page)
        return b"".join(parts)

    def stats(self, cpu: int) -> Stats:
        found = {}
        for line in self.files.read(f"per_cpu/cpu{cpu}/stats").splitlines():
            name, _, value = line.partition(":")
            if value.strip().isdecimal():
                found[name.strip()] = int(value)
        refused = found.get("commit overrun", 0) + found.get("dropped events", 0)
        return Stats(found.get("entries", 0), found.get("overrun", 0), refused)

    # -- after it

    def remove(self) -> str:
        """Remove it. Returns why that failed, or "". What holds it is somebody reading it."""
        while self._pages:
            os.close(self._pages.popitem()[1])
        try:
            return _remove(self.tracefs, self.name)
        finally:
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1


def create(tracefs: Tracefs) -> Instance:
    """A new instance of this process. Raises ``OSError``."""
    name = f"hwtune-{os.getpid()}-{start_time(os.getpid())}"
    path = f"instances/{name}"
    try:
        tracefs.make(path)
    except FileExistsError:  # of this very process: one that it could not remove
        reason = _remove(tracefs, name)
        if reason:
            raise OSError(errno.EBUSY, reason) from None
        tracefs.make(path)
    lock = tracefs.open(path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return Instance(tracefs, name, lock)


def clean_up(tracefs: Tracefs) -> list[str]:
    """Remove the instances of hwtune whose owner is dead; nobody else's. Returns their names."""
    removed = []
    for name in tracefs.names("instances"):
        match = _NAME.fullmatch(name)
        if match is None or start_time(int(match[1])) == int(match[2]) or _held(tracefs, name):
            continue
        if not _remove(tracefs, name):
            removed.append(name)
    return removed


def start_time(pid: int) -> int | None:
    """When a process was started, in clock ticks since boot (field 22 of proc_pid_stat(5)); None where there
    is none of that number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # the second field is the name in brackets, which may hold anything
            return int(file.read().rpartition(b")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return None


def room(cpus: Sequence[int], total_cpus: int, wanted_kb: int) -> tuple[int, int]:
    """(KiB for each of ``cpus``, KiB in all). The rest of the CPUs have a buffer too, which the kernel makes
    and hwtune leaves alone. Raises ``Unavailable`` where that is too much for this machine."""
    limit = _available_kb() // _SHARE
    others = (total_cpus - len(cpus)) * _DEFAULT_KB
    each = min(wanted_kb, min(limit - others, _MOST_KB) // max(len(cpus), 1))
    if each < _DEFAULT_KB:
        need = (others + len(cpus) * _DEFAULT_KB) // 1024
        raise Unavailable(
            f"a trace would take {need} MiB here, and no more than {limit // 1024} MiB of the memory "
            "that is free would be given to it"
        )
    return each, others + each * len(cpus)


def _available_kb() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1])
    raise Unavailable("/proc/meminfo does not tell how much memory is free")


def _held(tracefs: Tracefs, name: str) -> bool:
    """Whether its owner lives, wherever: the lock is not bound to a PID namespace."""
    try:
        descriptor = tracefs.open(f"instances/{name}", os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:  # another run was faster
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _remove(tracefs: Tracefs, name: str) -> str:
    path = f"instances/{name}"
    # Where it can't be removed it shall cost nothing.
    for file in (f"{path}/tracing_on", f"{path}/events/enable"):
        with contextlib.suppress(OSError):
            tracefs.write(file, "0")
    reason = ""
    for _ in range(_REMOVE_TRIES):
        try:
            tracefs.remove(path)
        except FileNotFoundError:
            return ""
        except OSError as error:
            reason = explain(error, root=True)
            if error.errno != errno.EBUSY:
                return reason
            time.sleep(_REMOVE_WAIT_S)
        else:
            return ""
    return f"somebody reads {tracefs.path(path)}, so it could not be removed; nothing is recorded in it"
