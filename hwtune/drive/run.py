"""One drive from its name to its report, for the command and for doctor."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from hwtune.drive import analysis, device, target, writing
from hwtune.drive import plan as plans
from hwtune.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hwtune import _native as native
    from hwtune.drive.device import Device
    from hwtune.drive.plan import Plan
    from hwtune.drive.results import DriveReport, Target
    from hwtune.drive.target import Open, Place
    from hwtune.host.base import Host


def load_native() -> None:
    """Raises ``ToolError`` where the native module cannot be loaded."""
    try:
        import hwtune._native  # noqa: F401
    except ImportError as error:
        raise ToolError(
            f"nvme-latency needs hwtune's native module, which cannot be loaded ({error}); install a"
            " C++ compiler"
            " and Python's headers, then hwtune again."
        ) from None


class Job:
    """``prepare`` looks and plans, touching nothing but a worn drive's log; ``run`` measures."""

    def __init__(self, place: Place, host: Host) -> None:
        self.place, self.host = place, host
        self.described: Target
        self.opened: Open
        self.planned: Plan
        self.device: Device
        self.write_folder: str | None = None

    def prepare(
        self, duration_s: float, rate: float | None, writes: bool, cpu: int | None, taken: Iterable[int] = ()
    ) -> None:
        """``taken``: CPUs to keep away from. Raises ``UsageError`` or ``ToolError``."""
        described = target.describe(self.place)
        self.device = device.look(described, self.host)
        if writes:
            smart = self.device.before.smart if self.device.before is not None else None
            writing.check_endurance(smart, described.controller is not None)
            self.write_folder = writing.folder_on(described.disks, self.place)
            file_bytes = target.FILE_BYTES if self.place.kind == "folder" else 0
            target.check_space(self.write_folder, file_bytes + plans.WRITE_FILE)
        elif self.place.kind == "folder":
            target.check_space(self.place.path, target.FILE_BYTES)
        if cpu is None:
            cpu = plans.choose_cpu(described, taken)
        self.planned = plans.plan(described, duration_s, rate, writes, cpu, self.device.sleeps_ms)
        self.described = described

    def announcement(self) -> str:
        return plans.announcement(self.described, self.planned)

    def run(self, stop: native.StopFlag, progress: Callable[[str], None] = lambda _: None) -> DriveReport:
        """On this thread. Raises ``ToolError``."""
        from hwtune.drive.measure import measure

        self.opened = target.open_target(self.place)
        try:
            measured = measure(self.opened, self.planned, stop, self.write_folder, progress)
        except OSError as error:
            raise ToolError(f"the measurement could not be made: {error.strerror or error}.") from None
        finally:
            os.close(self.opened.descriptor)
        device.look_again(self.device, self.opened.target, self.host)
        return analysis.analyse(self.opened, self.planned, measured, self.device)


def aside(job: Job, stop: native.StopFlag, progress: Callable[[str], None] = lambda _: None) -> DriveReport:
    """``run`` on a thread of its own, so that Ctrl-C reaches this one: it then ends early, with what there
    is. Raises what ``run`` raises."""
    told: list[DriveReport] = []
    failed: list[BaseException] = []
    ended = threading.Event()  # a join that Ctrl-C ends takes the thread for dead (CPython 3.11)

    def work() -> None:
        try:
            told.append(job.run(stop, progress))
        except BaseException as error:  # raised again below, on the thread that asked
            failed.append(error)
        finally:
            ended.set()

    threading.Thread(target=work, daemon=True).start()
    while not ended.is_set():
        try:
            ended.wait(0.2)
        except KeyboardInterrupt:
            if stop.is_set():  # the second time: whoever waits no longer
                raise
            stop.set()
    if failed:
        raise failed[0]
    return told[0]
