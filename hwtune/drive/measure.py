"""The measurement: pilot, control, quiet reads, rests, and reads beside and after writes where they are
asked for."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from hwtune import _native as native
from hwtune.drive import plan as plans
from hwtune.drive import schedule
from hwtune.drive.watching import Seen, Watcher
from hwtune.drive.writing import Writer
from hwtune.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from hwtune.drive.plan import Plan
    from hwtune.drive.target import Open

_PILOT_RATE = 200.0
# A first read that has not ended by then when the user gives up says more than that he did.
_HANGS_NS = 1_000_000_000


class Reads(NamedTuple):
    """One phase: arrays of shape (reads,), nanoseconds since ``started_ns`` (CLOCK_MONOTONIC). ``gaps_*``:
    shape (gaps,), when the reader was off its CPU. ``gaps_end_ns``: until when gaps are known."""

    name: str
    started_ns: int
    ended_ns: int
    due_ns: NDArray[np.uint64]
    latency_ns: NDArray[np.uint64]
    submit_ns: NDArray[np.uint64]
    gap_starts_ns: NDArray[np.uint64]
    gap_lengths_ns: NDArray[np.uint64]
    gaps_lost: int
    failed: int
    error: int
    unfinished_ns: int


class Control(NamedTuple):
    """A loop that did nothing, on the same CPU."""

    duration_ns: int
    gap_starts_ns: NDArray[np.uint64]
    gap_lengths_ns: NDArray[np.uint64]
    gap_ns: int
    longest_ns: int


class Measured(NamedTuple):
    rate: float
    control: Control | None
    phases: list[Reads]
    rests: tuple[schedule.Rests, Reads] | None
    seen: Seen | None
    written: int
    write_failed: str
    io_uring: bool
    why: str
    clock: str
    seconds: float
    interrupted: bool


class _Run:
    def __init__(
        self, opened: Open, planned: Plan, stop: native.StopFlag, progress: Callable[[str], None]
    ) -> None:
        self.opened, self.planned, self.stop, self.progress = opened, planned, stop, progress
        self.clock = native.make_clock(window_s=0.2)
        self.io_uring, self.why = True, ""

    def read(self, name: str, due: NDArray[np.uint64], seed: int) -> Reads:
        self.progress(name)
        result = native.read_drive(
            self.opened.descriptor,
            due,
            clock=self.clock,
            cpu=self.planned.cpu,
            bytes=self.opened.target.bytes,
            block=self.opened.block,
            seed=seed,
            stop=self.stop,
        )
        self.io_uring, self.why = result.io_uring, result.why
        return Reads(
            name,
            result.started_ns,
            result.ended_ns,
            result.due_ns,
            result.latency_ns,
            result.submit_ns,
            result.gap_starts_ns,
            result.gap_lengths_ns,
            result.gaps_lost,
            result.failed,
            result.error,
            result.unfinished_ns,
        )

    def control(self) -> Control:
        self.progress("control")
        spun = native.spin(
            self.planned.cpu, self.planned.control_s, clock=self.clock, capacity=1 << 18, stop=self.stop
        )
        return Control(
            spun.duration_ns, spun.gap_starts_ns, spun.gap_lengths_ns, spun.gap_ns, spun.longest_ns
        )


def measure(
    opened: Open,
    planned: Plan,
    stop: native.StopFlag,
    write_folder: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Measured:
    """Run the plan on this thread, which is pinned meanwhile. ``stop`` ends it early with what there is.
    Raises ``ToolError`` where nothing can be read, ``OSError`` where the kernel refuses the CPU."""
    began = time.monotonic()
    run = _Run(opened, planned, stop, progress)
    rate = _rate(run)
    control, rests, seen = None, None, None
    phases: list[Reads] = []
    written, write_failed = 0, ""
    if not stop.is_set():
        control = run.control()
    if not stop.is_set():
        with Watcher(opened.target.disks, planned.cpu) as watcher:
            phases.append(run.read("quiet", schedule.steady(planned.steady_s, rate, planned.seed), 1))
        seen = watcher.seen
    if not stop.is_set() and planned.rests:
        resting = schedule.rests(planned.rests, planned.seed)
        rests = (resting, run.read("rests", resting.due_ns, 2))
    if not stop.is_set() and write_folder is not None:
        with Writer(write_folder, planned.cpu) as writer:
            phases.append(run.read("writes", schedule.steady(planned.writing_s, rate, planned.seed + 1), 3))
        written, write_failed = writer.written, writer.failed
        if not stop.is_set():
            phases.append(run.read("after", schedule.steady(planned.writing_s, rate, planned.seed + 2), 4))
    return Measured(
        rate=rate,
        control=control,
        phases=phases,
        rests=rests,
        seen=seen,
        written=written,
        write_failed=write_failed,
        io_uring=run.io_uring,
        why=run.why,
        clock=f"{run.clock.source}, {run.clock.cost_ns:.0f} ns a reading",
        seconds=time.monotonic() - began,
        interrupted=stop.is_set(),
    )


def _rate(run: _Run) -> float:
    """Reads a second: as asked, or what leaves the drive idle most of the time. Raises ``ToolError``."""
    import numpy as np

    pilot = run.read("pilot", schedule.steady(plans.PILOT_S, _PILOT_RATE, 7), 5)
    path = run.opened.target.path
    if len(pilot.due_ns) == 0:
        if pilot.failed:
            raise ToolError(
                f"{path} cannot be read: {os.strerror(pilot.error) if pilot.error else 'short reads'}."
            )
        if pilot.unfinished_ns > _HANGS_NS:
            raise ToolError(
                f"{path} had not answered its first read after {pilot.unfinished_ns / 1e9:.1f} s."
            )
        return plans.MOST_RATE  # stopped at once
    if run.planned.rate is not None:
        return run.planned.rate
    usual_s = float(np.median(pilot.latency_ns)) / 1e9
    return float(np.clip(1 / (plans.GAP_MULTIPLE * usual_s), plans.LEAST_RATE, plans.MOST_RATE))
