"""How evenly drives answer: reads of each for twenty seconds, several drives side by side.

``query(disk, ...)`` returns {DISK: DriveLatency as plain data, or {"error": SENTENCE, "gap": KIND}}. It
takes under a minute however many drives there are: those that would not fit are not measured, and said so.
Ctrl-C ends it with what was measured until then.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import msgspec

from hwtune.fact import DENIED, UNREADABLE
from hwtune.host.libraries import LibraryGap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune import _native as native
    from hwtune.drive.results import DriveReport, Finding

SECONDS = 20.0
_ROUNDS = 2  # of some 26 s each
_MOST_AT_ONCE = 8


def query(*disks: str) -> dict[str, Any]:
    """Raises ``LibraryGap`` where nothing can be measured at all."""
    from hwtune.drive.run import load_native
    from hwtune.errors import HwtuneError

    try:
        load_native()
    except HwtuneError as error:
        raise LibraryGap(UNREADABLE, str(error).rstrip(".")) from None
    at_once = max(1, min(_MOST_AT_ONCE, len(os.sched_getaffinity(0)) // 2))
    answers: dict[str, Any] = {}
    from hwtune import _native as native

    stop = native.StopFlag()
    for begin in range(0, min(len(disks), _ROUNDS * at_once), at_once):
        _round(disks[begin : begin + at_once], stop, answers)
    for disk in disks:
        later = f"`hwtune nvme-latency {disk}` measures it; one minute was not enough for all drives"
        answers.setdefault(disk, {"error": later})
    return answers


def _round(disks: Sequence[str], stop: native.StopFlag, answers: dict[str, Any]) -> None:
    taken: set[int] = set()
    jobs = []
    for disk in disks:
        try:
            jobs.append((disk, _prepared(disk, taken)))
        except _errors() as error:
            answers[disk] = _failed(error)
    left = len(jobs)
    ended = threading.Event()
    lock = threading.Lock()

    def work(disk: str, job: Any) -> None:
        nonlocal left
        try:
            answer = summary(disk, job.run(stop))
        except _errors() as error:
            answer = _failed(error)
        except BaseException as error:  # a defect, told as this drive's answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        with lock:
            answers[disk] = answer
            left -= 1
            if left == 0:
                ended.set()

    for disk, job in jobs:
        threading.Thread(target=work, args=(disk, job), daemon=True).start()
    while jobs and not ended.is_set():
        try:
            ended.wait(0.2)
        except KeyboardInterrupt:
            if stop.is_set():
                raise
            stop.set()


def _errors() -> tuple[type[BaseException], ...]:
    from hwtune.errors import HwtuneError

    return (HwtuneError, OSError)


def _failed(error: BaseException) -> dict[str, Any]:
    denied = "may not be read" in str(error)
    return {"error": str(error), "gap": DENIED if denied else UNREADABLE}


def _prepared(disk: str, taken: set[int]) -> Any:
    from hwtune.drive.run import Job
    from hwtune.drive.target import locate
    from hwtune.host.live import LiveHost

    job = Job(locate(disk), LiveHost())
    job.prepare(SECONDS, None, False, None, taken)
    taken.add(job.planned.cpu)
    return job


def summary(disk: str, report: DriveReport) -> dict[str, Any]:
    """What the Machine carries of a report."""
    from hwtune.model.storage import DriveLatency, LatencyFinding

    quiet = report.phases[0].response if report.phases else None
    period = report.periodic
    found = DriveLatency(
        disk=disk,
        seconds=report.phases[0].seconds if report.phases else 0.0,
        reads=quiet.count if quiet else 0,
        p50_us=quiet.p50_us if quiet else None,
        p99_us=quiet.p99_us if quiet else None,
        p999_us=quiet.p999_us if quiet else None,
        max_us=quiet.max_us if quiet else None,
        stalls=report.stalls_total,
        longest_stall_us=max((s.us for s in report.stalls), default=0.0),
        period_s=period.period_s if period else None,
        period_stall_us=period.stall_us if period else None,
        untold=report.untold,
        findings=[
            LatencyFinding(f.kind, f.severity, f.says, f.rests_on, f.advice, _length(f, report))
            for f in report.findings
        ],
    )
    plain: dict[str, Any] = msgspec.to_builtins(found)
    return plain


def _length(finding: Finding, report: DriveReport) -> float:
    from hwtune.drive import results

    if finding.kind == results.PERIODIC and report.periodic is not None:
        return report.periodic.stall_us
    if finding.kind in (results.SLEEPS, results.LINK) and report.waking is not None:
        return report.waking.cost_us
    if finding.kind == results.STALLS:
        return max((s.us for s in report.stalls), default=0.0)
    return 0.0
