"""The measurement: one pinned native loop a CPU, and what the kernel recorded meanwhile."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from hwtune import _native as native
from hwtune.errors import ToolError
from hwtune.jitter.plan import aside
from hwtune.tracing import watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hwtune.jitter.plan import Plan
    from hwtune.tracing import Recording, Watch

_DRAIN_S = 0.5
_LOOK_S = 0.1


class Spun(NamedTuple):
    """One CPU's loop. ``slot_ns``: from its thread's begin to its end, which the loop should fill."""

    result: native.SpinResult
    thread: int  # its kernel thread id
    slot_ns: int


class Measured(NamedTuple):
    spun: dict[int, Spun]  # by CPU; those that the run came to
    recording: Recording
    clock: native.Clock
    interrupted: bool
    started: float  # seconds since the epoch
    elapsed_s: float


def measure(planned: Plan, progress: Callable[[float], None]) -> Measured:
    """Run the plan. ``progress`` is called now and then with the seconds that have passed. Ctrl-C ends it
    early, and what was measured until then is returned. Raises ``ToolError`` where the kernel refuses a CPU.
    """
    clock = native.make_clock(window_s=0.2)
    with _aside(planned), watch(planned.cpus, clock) as watched:
        started, begun = time.time(), time.monotonic()
        run = _Run(planned, clock)
        interrupted = run.wait(watched, lambda: progress(time.monotonic() - begun))
        elapsed = time.monotonic() - begun
    return Measured(run.spun, watched.recording, clock, interrupted, started, elapsed)


class _Run:
    """The loops, all at once or one after the other."""

    def __init__(self, planned: Plan, clock: native.Clock) -> None:
        self.spun: dict[int, Spun] = {}
        self._plan = planned
        self._clock = clock
        self._stop = native.StopFlag()
        self._errors: list[Exception] = []
        self._ended = threading.Semaphore(0)
        self._groups = [[cpu] for cpu in planned.cpus] if planned.one_by_one else [planned.cpus]

    def wait(self, watched: Watch, progress: Callable[[], None]) -> bool:
        """Whether somebody ended it early."""
        for group in self._groups:
            threads = [threading.Thread(target=self._spin, args=(cpu,)) for cpu in group]
            try:
                for thread in threads:
                    thread.start()
                self._look_after(threads, watched, progress)
            except BaseException as error:
                self._stop.set()
                if isinstance(error, KeyboardInterrupt):
                    return True
                raise
            finally:
                self._end(threads)
            if self._errors:
                raise ToolError(f"a CPU could not be measured: {self._errors[0]}")
        return False

    # Thread.join takes a thread for ended when a signal comes meanwhile (until Python 3.12), so nothing here
    # joins before the thread is known to have ended.

    def _look_after(
        self, threads: list[threading.Thread], watched: Watch, progress: Callable[[], None]
    ) -> None:
        due = time.monotonic() + _DRAIN_S
        while any(thread.is_alive() for thread in threads):
            self._ended.acquire(timeout=_LOOK_S)
            progress()
            if time.monotonic() >= due:
                watched.drain()
                due = time.monotonic() + _DRAIN_S

    def _end(self, threads: list[threading.Thread]) -> None:
        """Wait for the loops. Of one whose start was interrupted nothing is known, but it sees the flag."""
        while any(thread.is_alive() for thread in threads):
            self._ended.acquire(timeout=_LOOK_S)

    def _spin(self, cpu: int) -> None:
        try:
            begun = time.monotonic_ns()
            result = native.spin(
                cpu,
                self._plan.duration_s,
                clock=self._clock,
                threshold_ns=self._plan.threshold_ns,
                capacity=self._plan.capacity,
                stop=self._stop,
            )
            slot_ns = time.monotonic_ns() - begun
            self.spun[cpu] = Spun(result, threading.get_native_id(), slot_ns)
        except (OSError, ValueError, RuntimeError) as error:
            self._errors.append(error)
            self._stop.set()
        finally:
            self._ended.release()


@contextmanager
def _aside(planned: Plan) -> Iterator[None]:
    """Keep this thread, which looks after the others, off the measured CPUs."""
    before = os.sched_getaffinity(0)
    with suppress(OSError):  # a cpuset that changed meanwhile: then it stays where it is
        os.sched_setaffinity(0, aside(planned))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
