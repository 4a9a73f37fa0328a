"""The native module: a calibrated clock, and a loop that shows what disturbs a CPU.

It may be missing (a box without a compiler), so it is imported where it is used, never at start.
"""

from __future__ import annotations

from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

@final
class Clock:
    """The best clock of this machine: the processor's counter where it can be trusted."""

    @property
    def source(self) -> Literal["tsc", "cntvct", "monotonic_raw"]: ...
    @property
    def why(self) -> str:
        """Why this source: what makes the counter trusted, or what speaks against it."""
    @property
    def ns_per_tick(self) -> float: ...
    @property
    def error_ppm(self) -> float:
        """Bound on the error of ns_per_tick, against CLOCK_MONOTONIC_RAW; 0 for that clock itself."""
    @property
    def cost_ns(self) -> float:
        """One reading in a tight native loop, the best of several batches."""
    @property
    def step_ns(self) -> float:
        """Smallest advance seen between two readings: nothing shorter can be told apart."""
    def ticks(self) -> int: ...
    def ns(self, span_ticks: int) -> float:
        """Nanoseconds of a span of ticks (a difference of two readings)."""

@final
class StopFlag:
    """Ends every spin() that was given it, from any thread; it stays set."""

    def __init__(self) -> None: ...
    def set(self) -> None: ...
    def is_set(self) -> bool: ...

@final
class SpinResult:
    """What one CPU did while a loop watched it. Nanoseconds are rounded down."""

    @property
    def cpu(self) -> int: ...
    @property
    def started_ns(self) -> int:
        """CLOCK_MONOTONIC at the loop's first reading: the zero of gap_starts_ns."""
    @property
    def duration_ns(self) -> int: ...
    @property
    def threshold_ns(self) -> int:
        """A step longer than this is a gap."""
    @property
    def step_min_ns(self) -> float:
        """The loop's own smallest step, measured before the run."""
    @property
    def step_median_ns(self) -> float:
        """The loop's own median step, measured before the run; 0 where the clock is coarser than the loop."""
    @property
    def iterations(self) -> int: ...
    @property
    def gap_starts_ns(self) -> NDArray[np.uint64]:
        """Shape (gaps,), ascending, since started_ns; read only."""
    @property
    def gap_lengths_ns(self) -> NDArray[np.uint64]:
        """Shape (gaps,), between two neighbouring readings, so one step is in each; read only."""
    @property
    def gap_ns(self) -> int:
        """Time inside gaps, the lost ones too."""
    @property
    def longest_ns(self) -> int:
        """The longest gap, the lost ones too; 0 without any."""
    @property
    def lost(self) -> int:
        """Gaps seen after `capacity` was full: counted, in the totals, not in the arrays."""
    @property
    def backwards(self) -> int:
        """Readings earlier than the one before: above 0, the clock can't be believed."""
    @property
    def voluntary_switches(self) -> int: ...
    @property
    def involuntary_switches(self) -> int: ...
    @property
    def minor_faults(self) -> int: ...
    @property
    def major_faults(self) -> int: ...
    @property
    def stopped(self) -> bool:
        """Ended by the StopFlag, before its time."""
    @property
    def migrated(self) -> bool:
        """Seen on another CPU, or its affinity was changed by somebody: the gaps aren't this CPU's alone."""
    @property
    def affinity_restored(self) -> bool: ...

def make_clock(clocksource: str | None = None, window_s: float = 0.02) -> Clock:
    """Calibrate the clock for `window_s` (0.001 to 10 seconds; a longer one narrows error_ppm in proportion).

    `clocksource` is the kernel's current one; None reads it from /sys. The processor's counter is used only
    if the processor promises a constant rate, the kernel keeps time with it, and calibration agrees.

    Raises:
        ValueError: window_s is out of range.
    """

def spin(
    cpu: int,
    duration_s: float,
    *,
    clock: Clock,
    threshold_ns: int | None = None,
    capacity: int = 65536,
    stop: StopFlag | None = None,
) -> SpinResult:
    """Pin the calling thread to `cpu`, read the clock for `duration_s`, keep every gap, restore the affinity.

    The interpreter lock is released: one thread a CPU watches several at once. `threshold_ns` None takes
    eight times the loop's own step. A CPU is fully busy for the whole time.

    Raises:
        OSError: the kernel refuses the CPU (offline, absent, outside the cpuset); `errno` says why.
        ValueError: duration not in (0, 24 h], capacity not in 1 to 2^24, threshold 0, or no such CPU number.
        RuntimeError: the clock stands still.
    """
