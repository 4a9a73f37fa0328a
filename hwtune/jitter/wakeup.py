"""How late each CPU's timer wakes a thread, as cyclictest measures it: a native thread a CPU, all at once."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import numpy as np

from hwtune import _native as native
from hwtune.errors import ToolError
from hwtune.jitter.analysis import percentile
from hwtune.jitter.results import CpuWakeup

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERVAL_S = 0.001  # cyclictest's default
PRIORITY = 80
_LOOK_S = 0.1


def measure_wakeups(cpus: Sequence[int], duration_s: float) -> tuple[list[CpuWakeup], bool]:
    """(one entry a CPU, whether Ctrl-C ended it early). Raises ``ToolError`` where a CPU is refused."""
    stop, ended = native.StopFlag(), threading.Semaphore(0)
    found: dict[int, native.WakeupResult] = {}
    errors: list[Exception] = []

    def work(cpu: int) -> None:
        try:
            found[cpu] = native.wakeups(cpu, duration_s, interval_s=INTERVAL_S, priority=PRIORITY, stop=stop)
        except (OSError, ValueError) as error:
            errors.append(error)
            stop.set()
        finally:
            ended.release()

    threads = [threading.Thread(target=work, args=(cpu,)) for cpu in cpus]
    interrupted = False
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        try:
            ended.acquire(timeout=_LOOK_S)
        except KeyboardInterrupt:
            interrupted = True
            stop.set()
    if errors:
        raise ToolError(f"a CPU's wake-ups could not be measured: {errors[0]}")
    return [summary(found[cpu]) for cpu in sorted(found)], interrupted


def summary(result: native.WakeupResult) -> CpuWakeup:
    late = result.late_ns.astype(np.int64)
    why = ""
    if not result.fifo:
        why = f"SCHED_FIFO is refused: {os.strerror(result.error)}" if result.error else "not asked for"
    return CpuWakeup(
        cpu=result.cpu,
        fifo=result.fifo,
        priority=PRIORITY if result.fifo else 0,
        why=why,
        interval_ns=round(INTERVAL_S * 1e9),
        wakeups=len(late),
        missed=result.missed,
        min_ns=int(late.min()) if len(late) else None,
        mean_ns=float(late.mean()) if len(late) else None,
        p50_ns=percentile(late, 0.5, 2),
        p99_ns=percentile(late, 0.99, 100),
        p999_ns=percentile(late, 0.999, 1000),
        longest_ns=int(late.max()) if len(late) else None,
    )


def announcement(cpus: Sequence[int], duration_s: float) -> str:
    return (
        f"Then a thread on each of them sleeps {INTERVAL_S * 1e3:g} ms at a time for {duration_s:g} s, under "
        f"SCHED_FIFO at priority {PRIORITY} where that is allowed."
    )
