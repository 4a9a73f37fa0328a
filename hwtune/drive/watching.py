"""What else was done to the drive meanwhile: the kernel's counters of its disks, looked at some fifty times
a second.

Others' I/O at the times of the stalls speaks for the host, not for the drive. Admin commands (SMART) are in
no counter of the kernel's.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

_LOOK_S = (0.012, 0.028)  # uneven, so as to be no poller itself
# Fields of /sys/block/X/stat (Documentation/block/stat.rst): I/Os of reads, writes, discards, flushes.
_READS, _OTHERS = 0, (4, 11, 15)


class Seen(NamedTuple):
    """Shapes (looks,): CLOCK_MONOTONIC in ns, completed reads, and other I/Os, of all disks together."""

    time_ns: NDArray[np.int64]
    reads: NDArray[np.int64]
    others: NDArray[np.int64]


class Watcher:
    """Looks from a thread of its own, kept off the measured CPU where there is another."""

    def __init__(self, disks: Sequence[str], cpu: int) -> None:
        self._paths = [f"/sys/block/{disk}/stat" for disk in disks]
        self._cpu = cpu
        self._end = threading.Event()
        self._looks: list[tuple[int, int, int]] = []
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    @property
    def seen(self) -> Seen:
        import numpy as np

        columns = np.array(self._looks, dtype=np.int64).reshape(-1, 3).T
        return Seen(columns[0], columns[1], columns[2])

    def _watch(self) -> None:
        import random

        others = os.sched_getaffinity(0) - {self._cpu}
        if others:
            os.sched_setaffinity(0, others)
        pause = random.Random(1)
        while True:
            try:
                reads, rest = counted(self._paths)
            except (OSError, ValueError):  # a disk that is gone: what was seen until then stays
                return
            self._looks.append((time.monotonic_ns(), reads, rest))
            if self._end.wait(pause.uniform(*_LOOK_S)):
                return


def counted(paths: Sequence[str]) -> tuple[int, int]:
    """(reads, other I/Os) so far. Kernels before 4.18 and 5.5 have no discards and flushes."""
    reads = others = 0
    for path in paths:
        with open(path, encoding="ascii") as file:
            fields = file.read().split()
        if len(fields) < 11:
            raise ValueError(path)
        reads += int(fields[_READS])
        others += sum(int(fields[at]) for at in _OTHERS if at < len(fields))
    return reads, others


def foreign(seen: Seen, ended_ns: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Spans (begin, end; CLOCK_MONOTONIC in ns) between two looks in which somebody else's I/O ended.
    ``ended_ns``: when our own reads ended, ascending. One read more or less may belong to either side of a
    look."""
    import numpy as np

    if len(seen.time_ns) < 2:
        nothing = np.empty(0, dtype=np.int64)
        return nothing, nothing
    ours = np.diff(np.searchsorted(ended_ns, seen.time_ns))
    more = np.diff(seen.reads) - ours >= 3
    spans = more | (np.diff(seen.others) > 0)
    return seen.time_ns[:-1][spans], seen.time_ns[1:][spans]
