"""Watch CPUs for a while: a trace where the machine lets us, counters in any case."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hwtune.text.cpulist import format_list, parse_list
from hwtune.tracing import counters, ringbuffer, symbols
from hwtune.tracing.events import read_formats, untold
from hwtune.tracing.formats import parse_header_page
from hwtune.tracing.instance import Instance, clean_up, create, room
from hwtune.tracing.spans import Context, CpuTrace, Names, build
from hwtune.tracing.tracefs import Tracefs, Unavailable, explain, find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hwtune._native import Clock
    from hwtune.tracing.events import Formats
    from hwtune.tracing.formats import PageLayout
    from hwtune.tracing.instance import Stats

# For each CPU in the kernel, and for all of them together once read.
BUFFER_KB = 16 << 10
KEPT_BYTES = 512 << 20
# The trace clock for each of hwtune's, the better one first: x86-tsc is the TSC itself, the others are read
# by the same code as by programs (Documentation/trace/ftrace.rst, trace_clock).
_CLOCKS = {"tsc": ("x86-tsc",), "cntvct": ("mono_raw",), "monotonic_raw": ("mono_raw",)}
# A softirq comes right behind its interrupt: less than this, whatever the kernel does on the way out.
_FOLLOWS_NS = 3_000
_PAIR_TRIES = 500


class Terminated(SystemExit):
    """SIGTERM or SIGHUP came. The exit status is that of a shell, 128 and the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)


class Recording(NamedTuple):
    """What a watch brought. ``cpus`` is empty where no trace was possible, for the reason in ``why``."""

    cpus: dict[int, CpuTrace]
    names: list[str]
    ns_per_tick: float
    #: what the kernel counted for each CPU, trace or not
    counted: counters.Counted
    #: why there is no trace, or ""
    why: str
    #: what to know of the trace, each as one sentence
    notes: list[str]

    @property
    def traced(self) -> bool:
        return bool(self.cpus)


class Watch:
    """What ``watch`` gives. ``drain`` it about once a second, from a CPU that is not watched."""

    def __init__(self, cpus: Sequence[int], clock: Clock, root: str) -> None:
        self.cpus = list(cpus)
        #: why there is no trace, or ""
        self.why = ""
        #: memory of the trace's buffers, in KiB
        self.buffer_kb = 0
        self.notes: list[str] = []
        self._clock = clock
        self._root = root
        self._instance: Instance | None = None
        self._kept: deque[tuple[int, bytes]] = deque()
        self._kept_bytes = 0
        self._dropped: dict[int, int] = {}
        self._recording: Recording | None = None
        self._before: counters.Reading | None = None
        self._recording_now = False
        # set where a trace begins
        self._formats: Formats
        self._layout: PageLayout
        self._strings: Mapping[int, str]
        self._trace_clock: str
        self._pairs: list[tuple[int, int]]
        self._begin: int
        self._end: int

    @property
    def traced(self) -> bool:
        """Whether a trace is being recorded."""
        return self._recording_now

    @property
    def recording(self) -> Recording:
        """What was recorded; there once the watch has ended."""
        if self._recording is None:
            raise RuntimeError("the watch goes on")
        return self._recording

    def drain(self) -> None:
        """Take what is in the kernel's buffers, so that nothing is overwritten."""
        if self._instance is None:
            return
        for cpu in self.cpus:
            pages = self._instance.read(cpu)
            if pages:
                self._kept.append((cpu, pages))
                self._kept_bytes += len(pages)
        while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            cpu, pages = self._kept.popleft()
            self._kept_bytes -= len(pages)
            self._dropped[cpu] = self._dropped.get(cpu, 0) + 1

    # -- begin and end

    def _start(self, buffer_kb: int) -> None:
        try:
            tracefs = find(self._root)
            for name in clean_up(tracefs):
                self.notes.append(f"removed the trace instance {name} of a run that was killed")
            self._prepare(tracefs, buffer_kb)
        except Unavailable as error:
            self.why = str(error)
        except OSError as error:
            self.why = explain(error, root=os.geteuid() == 0)
        except ValueError as error:
            self.why = f"this kernel's trace cannot be read: {error}"
        if not self._recording_now:
            self._remove()

    def _prepare(self, tracefs: Tracefs, buffer_kb: int) -> None:
        each, self.buffer_kb = room(self.cpus, len(_online_cpus(self._root)), buffer_kb)
        self._layout = parse_header_page(tracefs.read("events/header_page"))
        self._formats, strange = read_formats(tracefs)
        if not self._formats:
            raise Unavailable("this kernel has none of the events that tell who took a CPU")
        lacking = untold(self._formats)
        if lacking:
            self.notes.append(f"this kernel has no events for {', '.join(lacking)}")
        if strange:
            self.notes.append(f"formats that hwtune does not understand, so left out: {', '.join(strange)}")
        self._strings = symbols.strings(tracefs)
        self._instance = create(tracefs)
        self._trace_clock = self._instance.prepare(
            self.cpus, _CLOCKS[self._clock.source], each, self._formats
        )
        self._pairs = [self._pair()]
        self._begin = self._clock.ticks()
        self._instance.switch(True)
        self._recording_now = True

    def _remove(self) -> None:
        self._recording_now = False
        if self._instance is not None:
            reason = self._instance.remove()
            if reason:
                self.notes.append(reason)
            self._instance = None

    def _stop(self) -> None:
        """Stop, take the rest, remove the instance."""
        self._stats: dict[int, Stats] = {}
        self._page_size = 0
        if self._instance is None:
            return
        try:
            self._end = self._clock.ticks()
            self._instance.switch(False)
            self._pairs.append(self._pair())
            self.drain()
            self._stats = {cpu: self._instance.stats(cpu) for cpu in self.cpus}
            self._page_size = self._instance.page_size
        except OSError as error:
            self.why = explain(error, root=os.geteuid() == 0)
        finally:
            self._remove()

    def _finish(self) -> None:
        """Make spans of what was recorded, and the counters' differences."""
        names = Names()
        traces: dict[int, CpuTrace] = {}
        if self._stats:
            try:
                traces = self._build(names)
            except ValueError as error:
                self.why = f"this kernel's trace cannot be read: {error}"
        after = counters.read(self.cpus, self._root)
        counted = counters.between(self._before or after, after, self.cpus)
        self._recording = Recording(traces, names.all, self._clock.ns_per_tick, counted, self.why, self.notes)

    def _build(self, names: Names) -> dict[int, CpuTrace]:
        context = Context(
            formats=self._formats,
            functions=_Functions(),
            strings=self._strings,
            ticks=self._ticks,
            nanoseconds=lambda ns: (ns / self._clock.ns_per_tick).astype(np.int64),
            follows=int(_FOLLOWS_NS / self._clock.ns_per_tick),
        )
        traces = {}
        for cpu in self.cpus:
            data = b"".join(pages for owner, pages in self._kept if owner == cpu)
            events = ringbuffer.decode(data, self._page_size, self._layout)
            lost = self._stats[cpu].overrun + self._stats[cpu].refused + self._dropped.get(cpu, 0)
            traces[cpu] = build(cpu, events, self._begin, self._end, lost, context, names)
        self._kept.clear()
        self._note_losses(traces)
        return traces

    def _note_losses(self, traces: Mapping[int, CpuTrace]) -> None:
        losers = [cpu for cpu, trace in traces.items() if trace.events_lost]
        if losers:
            self.notes.append(
                f"CPU {format_list(losers)}: {sum(traces[c].events_lost for c in losers)} events were lost; "
                "what happened meanwhile is not recorded"
            )

    # -- clocks

    def _pair(self) -> tuple[int, int]:
        """(ticks, CLOCK_MONOTONIC_RAW) of one moment, as near as some tries bring it."""
        best: tuple[int, int, int] | None = None
        for _ in range(_PAIR_TRIES):
            before = self._clock.ticks()
            raw = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
            width = self._clock.ticks() - before
            if best is None or 0 <= width < best[0]:
                best = (width, before + width // 2, raw)
        assert best is not None
        return best[1], best[2]

    def _ticks(self, trace_time: NDArray[np.int64]) -> NDArray[np.int64]:
        """Times of the trace clock as ticks of the run's."""
        if self._trace_clock == "x86-tsc" or self._clock.source == "monotonic_raw":
            return trace_time
        (first, first_raw), (last, last_raw) = self._pairs[0], self._pairs[-1]
        rate = (last - first) / max(last_raw - first_raw, 1)
        ticks: NDArray[np.int64] = first + np.rint((trace_time - first_raw) * rate).astype(np.int64)
        return ticks


class _Functions:
    """Names of kernel functions; the kernel's list is gone through once for each new set of them."""

    def __init__(self) -> None:
        self._known: dict[int, str | None] = {}

    def __call__(self, addresses: Sequence[int]) -> dict[int, str]:
        new = [address for address in addresses if address not in self._known]
        if new:
            found = symbols.functions(new)
            self._known.update({address: found.get(address) for address in new})
        return {a: name for a in addresses if (name := self._known[a]) is not None}


def outlook(cpus: Sequence[int], *, buffer_kb: int = BUFFER_KB, root: str = "/") -> tuple[str, int]:
    """(why no trace is possible, or ""; KiB that its buffers would take), with nothing done yet."""
    try:
        find(root)
        return "", room(cpus, len(_online_cpus(root)), buffer_kb)[1]
    except Unavailable as error:
        return str(error), 0


@contextmanager
def watch(
    cpus: Sequence[int], clock: Clock, *, buffer_kb: int = BUFFER_KB, root: str = "/"
) -> Iterator[Watch]:
    """Watch ``cpus`` while the block runs; afterwards ``.recording`` is there.

    Where tracing isn't possible the counters are read all the same, and ``.why`` says what hinders it.
    Starting and ending it changes kernel code for the events, which stops every CPU of the machine for some
    microseconds, so both are outside of what is measured. The trace instance is removed however the block
    ends: exception, SIGINT, SIGTERM and SIGHUP (the latter two raise ``Terminated`` in the main thread,
    unless the program has handlers of its own; so it should not stay in native code for long).
    """
    watched = Watch(cpus, clock, root)
    with _terminable():
        watched._before = counters.read(watched.cpus, root)
        try:
            with _held_off():
                watched._start(buffer_kb)
            yield watched
        finally:
            with _held_off():
                watched._stop()
            watched._finish()


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as an exception. Only the main thread can have that."""

    def raise_(number: int, frame: object) -> None:
        raise Terminated(number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    with _handlers([n for n in numbers if signal.getsignal(n) is signal.SIG_DFL], raise_):
        yield


@contextmanager
def _held_off() -> Iterator[None]:
    """Signals that would end the block in its midst come at its end."""
    came: list[int] = []

    def note(number: int, frame: object) -> None:
        came.append(number)

    with _handlers((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), note):
        yield
    for number in came[:1]:
        signal.raise_signal(number)


@contextmanager
def _handlers(numbers: Iterable[int], handler: Callable[[int, object], None]) -> Iterator[None]:
    """Other handlers for a block; in threads but the main one nothing is changed, as nothing can be."""
    saved: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in numbers:
                saved[number] = signal.signal(number, handler)
        yield
    finally:
        for number, before in saved.items():
            signal.signal(number, before)


def _online_cpus(root: str) -> list[int]:
    with open(os.path.join(root, "sys/devices/system/cpu/online"), encoding="ascii") as file:
        return parse_list(file.read())
