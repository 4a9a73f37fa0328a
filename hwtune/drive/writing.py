"""A writer beside the reads: into a file of its own without a name, at a held rate, so many bytes and no
more."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from hwtune.drive import target as targets
from hwtune.drive.plan import WRITE_FILE, WRITE_MOST, WRITE_RATE
from hwtune.errors import ToolError

if TYPE_CHECKING:
    from hwtune.model.storage import Smart

_PIECE = 128 << 10
# Worn so far, a drive is written to for nothing.
USED_MAX, SPARE_MARGIN = 80, 10


def check_endurance(smart: Smart | None, nvme: bool) -> None:
    """Raises ``ToolError`` where the drive is worn, or where an NVMe drive does not tell how worn it is."""
    if smart is None or not smart.percentage_used.known or not smart.available_spare.known:
        if nvme:
            why = smart.percentage_used.why() if smart is not None else "its SMART log was not read"
            raise ToolError(
                f"--writes is refused, as the drive's endurance is not known ({why}); run it as root."
            )
        return
    used, spare = smart.percentage_used.get(), smart.available_spare.get()
    threshold = smart.spare_threshold.value or 0
    if used >= USED_MAX or spare < threshold + SPARE_MARGIN or smart.critical_warning.value:
        raise ToolError(
            f"--writes is refused: the drive has used {used} % of its endurance, and {spare} % of its"
            " spare blocks are"
            f" left (its own limit is {threshold} %)."
        )


def folder_on(disks: list[str], place: targets.Place) -> str:
    """A folder on the drive that may be written: the one that was named, or where the drive is mounted.
    Raises ``ToolError``."""
    if place.kind == "folder":
        return place.path
    for device, point, _, _, options in targets.mounts():
        major, _, minor = device.partition(":")
        folder = os.path.realpath(f"/sys/dev/block/{major}:{minor}")
        if not os.path.exists(folder) or "rw" not in options.split(","):
            continue
        if (
            set(targets.disks_below(folder)) == set(disks)
            and os.path.isdir(point)
            and os.access(point, os.W_OK)
        ):
            return point
    raise ToolError(
        f"--writes needs a mounted file system on {place.path}, or name a folder on the drive instead of it."
    )


class Writer:
    """Writes from a thread of its own while it is entered. ``written``: bytes so far; ``failed``: why it
    ended early."""

    def __init__(self, folder: str, cpu: int) -> None:
        self._file = targets.own_file(folder, WRITE_FILE, write=False)
        self._cpu = cpu
        self._end = threading.Event()
        self.written = 0
        self.failed = ""
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        os.close(self._file)  # which frees it: it never had a name

    def _write(self) -> None:
        import mmap
        import random

        others = os.sched_getaffinity(0) - {self._cpu}
        if others:
            os.sched_setaffinity(0, others)
        places = random.Random(1)
        began = time.monotonic()
        with mmap.mmap(-1, _PIECE) as buffer:
            while self.written < WRITE_MOST:
                buffer[:] = os.urandom(_PIECE)
                try:
                    wrote = os.pwritev(self._file, [buffer], places.randrange(WRITE_FILE // _PIECE) * _PIECE)
                except OSError as error:
                    self.failed = error.strerror or str(error)
                    return
                self.written += wrote
                ahead = self.written / WRITE_RATE - (time.monotonic() - began)
                if self._end.wait(max(0.0, ahead)):
                    return
