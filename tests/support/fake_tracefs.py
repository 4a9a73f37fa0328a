"""A folder that does as tracefs does: a new folder in instances/ is filled, and removed with all in it.

The files' names and first contents are those of a Linux 6.1 (tests/data/tracefs-6.1).
"""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING

from hwtune.tracing import tracefs
from tests.support import tree
from tests.support.trace_pages import HEADER_PAGE, format_text

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

EVENTS = (
    *("irq:irq_handler_entry", "irq:irq_handler_exit", "irq:softirq_entry", "irq:softirq_exit"),
    *("irq_vectors:local_timer_entry", "irq_vectors:local_timer_exit", "sched:sched_switch"),
    *("exceptions:page_fault_user", "nmi:nmi_handler", "timer:hrtimer_expire_entry"),
    *("irq_vectors:call_function_single_entry", "irq_vectors:call_function_single_exit"),
)
CLOCKS = "[local] global counter uptime perf mono mono_raw boot tai x86-tsc\n"
STATS = (
    "entries: 0\noverrun: {overrun}\ncommit overrun: 0\nbytes: 0\noldest event ts: 0\nnow ts: 0\n"
    "dropped events: {dropped}\nread events: 0\n"
)


class FakeKernel:
    """What tracefs shows below ``place``, and what the tests make it do."""

    def __init__(self, place: Path, cpus: int = 4) -> None:
        self.place = place
        self.cpus = cpus
        self.pages: dict[int, bytes] = {}  # of each CPU, for the instances that are made
        self.overrun = self.dropped = 0
        self.clocks = CLOCKS
        self.events = EVENTS
        self.busy: set[str] = set()  # instances that somebody reads
        self.refuses: dict[str, int] = {}  # files by the end of their path: the error of a write
        self.log: list[str] = []  # "make NAME", "remove NAME", "FILE=VALUE" below instances
        tree(place, {f"/{path}": text for path, text in self._files().items()})
        tree(place, {f"/events/{e.replace(':', '/')}/format": format_text(e) for e in self.events})
        (place / "events" / "header_page").write_text(HEADER_PAGE)
        (place / "instances").mkdir()

    def _files(self) -> dict[str, str]:
        return {
            "trace_clock": self.clocks,
            "tracing_on": "1\n",
            "tracing_cpumask": "f\n",
            "buffer_size_kb": "1408\n",
            "current_tracer": "nop\n",
            "printk_formats": '0xff00 : "Rescheduling interrupts"\n',
            **{f"per_cpu/cpu{cpu}/buffer_size_kb": "1408\n" for cpu in range(self.cpus)},
            **{f"options/{name}": "0\n" for name in ("overwrite", "stacktrace", "event-fork")},
            "events/enable": "0\n",
        }

    def instances(self) -> list[str]:
        return sorted(os.listdir(self.place / "instances"))

    def add_instance(self, name: str) -> Path:
        """As if somebody had made it."""
        folder = self.place / "instances" / name
        files = {f"/{path}": text for path, text in self._files().items()}
        stats = STATS.format(overrun=self.overrun, dropped=self.dropped)
        for cpu in range(self.cpus):
            files[f"/per_cpu/cpu{cpu}/stats"] = stats
        files |= {f"/events/{e.replace(':', '/')}/enable": "0\n" for e in self.events}
        tree(folder, files)
        for cpu in range(self.cpus):
            (folder / "per_cpu" / f"cpu{cpu}" / "trace_pipe_raw").write_bytes(self.pages.get(cpu, b""))
        return folder

    def state(self) -> dict[str, bytes]:
        """Every file but those of hwtune's instances: what must be as it was."""
        found = {}
        for path in sorted(self.place.rglob("*")):
            name = path.relative_to(self.place).as_posix()
            if path.is_file() and not name.startswith("instances/hwtune-"):
                found[name] = path.read_bytes()
        return found

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let folders of this place behave as the kernel's do."""
        write = tracefs.Tracefs.write

        def make(files: tracefs.Tracefs, name: str) -> None:
            path = self.place / name
            if path.exists():
                raise FileExistsError(errno.EEXIST, "File exists", str(path))
            self.add_instance(path.name)
            self.log.append(f"make {path.name}")

        def remove(files: tracefs.Tracefs, name: str) -> None:
            path = self.place / name
            if path.name in self.busy:
                raise OSError(errno.EBUSY, "Device or resource busy", str(path))
            if not path.exists():
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
            shutil.rmtree(path)
            self.log.append(f"remove {path.name}")

        def write_(files: tracefs.Tracefs, name: str, value: str) -> None:
            path = files.path(name)
            for end, error in self.refuses.items():
                if path.endswith(end):
                    raise OSError(error, os.strerror(error), path)
            write(files, name, value)
            if name.endswith("trace_clock"):
                # what is in force is shown in brackets
                offered = self.clocks.replace("[", "").replace("]", "").split()
                shown = " ".join(f"[{c}]" if c == value else c for c in offered)
                with open(path, "w", encoding="ascii") as file:
                    file.write(shown + "\n")
            self.log.append(f"{os.path.relpath(path, self.place)}={value}")

        monkeypatch.setattr(tracefs.Tracefs, "make", make)
        monkeypatch.setattr(tracefs.Tracefs, "remove", remove)
        monkeypatch.setattr(tracefs.Tracefs, "write", write_)
