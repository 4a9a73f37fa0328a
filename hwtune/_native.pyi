"""The native module: a calibrated clock, and a loop that shows what disturbs a CPU.

It may be missing (a box without a compiler), so it is imported where it is used, never at start.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

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
    def started_ticks(self) -> int:
        """The same moment in the clock's ticks."""
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

@final
class Histogram:
    """Counts of latencies in nanoseconds: the buckets and definitions of HdrHistogram for 1 ns to 100 s and
    three significant digits. Values above 137.4 s, where its last bucket ends, are counted aside and take
    part in all figures. One thread at a time.

    Raises:
        ValueError: min, max, mean and value_at of no values.
    """

    def __init__(self) -> None: ...
    def record(self, ns: int) -> None: ...
    def record_many(self, ns: NDArray[np.uint64]) -> None:
        """Shape (n,), any stride. Other types raise TypeError: a negative number would become a huge one."""
    def merge(self, other: Histogram) -> None:
        """Raises OverflowError beyond 2^63 values."""
    def clear(self) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def overflow(self) -> int:
        """Values above 137.4 s; they are part of count."""
    @property
    def min(self) -> int:
        """The lowest value of the first bucket with a count."""
    @property
    def max(self) -> int:
        """The highest value of the last bucket with a count, so that it is never below a quantile."""
    @property
    def mean(self) -> float: ...
    def value_at(self, quantile: float) -> int:
        """What a share `quantile` (0 to 1, ValueError otherwise) of the values does not exceed: the highest
        value of the bucket with that rank; at 0 the minimum."""
    def counts(self) -> NDArray[np.uint64]:
        """Shape (buckets,), read only, no copy: it goes on counting. Without the overflow."""
    @staticmethod
    def bucket_index(ns: int) -> int:
        """Always a bucket: values above 137.4 s go to the last one."""
    @staticmethod
    def lower_bounds() -> NDArray[np.uint64]:
        """Shape (buckets,), the lowest value of each in nanoseconds; read only."""
    @staticmethod
    def upper_bounds() -> NDArray[np.uint64]:
        """Shape (buckets,), the highest value of each in nanoseconds; read only."""
    def encode(self) -> bytes:
        """HdrHistogram's format V2, uncompressed; hwtune.validate.hdr makes what other tools read of it. Of
        the values above 137.4 s the greatest is written, and the others as 137.4 s."""
    @staticmethod
    def decode(data: bytes) -> Histogram:
        """The inverse, for data from anywhere.

        Raises:
            ValueError: this is no such histogram, or has another precision.
        """

@final
class SharedQueue:
    """A queue between two processes; see docs/queue.md. A message is a number below 2**63 and a payload of
    message_bytes - 8 bytes, message_bytes a multiple of 8.

    Raises:
        OSError: the kernel refuses; create() with EEXIST where there is anything of that name, producer() and
            consumer() with EBUSY while somebody has that end.
        ValueError: sizes that can't be, or a file that is no such queue, damaged, or another user's.
    """

    @staticmethod
    def create(path: str | os.PathLike[str], *, message_bytes: int, capacity: int) -> SharedQueue:
        """A new file, in /dev/shm for speed; it stays until it is unlinked. capacity is a power of two."""
    @staticmethod
    def anonymous(*, message_bytes: int, capacity: int) -> SharedQueue:
        """Without a name: the other process needs fileno()."""
    @staticmethod
    def open(path: str | os.PathLike[str]) -> SharedQueue: ...
    @staticmethod
    def from_descriptor(descriptor: int) -> SharedQueue:
        """The descriptor stays the caller's."""
    def fileno(self) -> int: ...
    @property
    def message_bytes(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    def producer(self) -> QueueProducer: ...
    def consumer(self) -> QueueConsumer: ...

@final
class QueueProducer:
    """The end that writes; one thread's. Everything but close() raises ValueError once it is closed."""

    @property
    def payload_bytes(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def claim(self) -> NDArray[np.uint8] | None:
        """The payload of the next slot, shape (payload_bytes,), to be written in place until commit(); None
        while the queue is full."""
    def commit(self, number: int) -> None:
        """Publish the claimed slot. Raises ValueError without one, or for a number of 2**63 and above."""
    def backlog(self) -> int:
        """Messages that the consumer hasn't told of."""
    def peer(self) -> Literal["absent", "present", "closed", "crashed"]:
        """A system call: ask when nothing has happened for a while."""
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class QueueConsumer:
    """The end that reads; one thread's. Everything but close() raises ValueError once it is closed."""

    @property
    def payload_bytes(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def front(self) -> NDArray[np.uint8] | None:
        """The payload of the oldest message, shape (payload_bytes,), read only, good until release(); None
        while there is none."""
    @property
    def number(self) -> int:
        """Of the message that front() returned; ValueError without one."""
    def release(self) -> None:
        """Give its slot back. Raises ValueError without one."""
    def peer(self) -> Literal["absent", "present", "closed", "crashed"]:
        """A system call: ask when nothing has happened for a while."""
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

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

@final
class FeatureWindow:
    """The feature stage of the pipeline; native/include/hwtune/features.hpp has the table of columns.

    Both methods take the next n ticks: when each was due (n,), bid, ask and trade price (n, 3), and bid
    size, ask size, volume and aggressor, 0 for the seller (n, 4). Each returns n rows and goes on from
    where the last call ended. Not for several threads at once.

    Raises:
        ValueError: the shapes don't fit each other; the processor lacks the instructions.
        TypeError: another dtype, or not C-contiguous.
    """

    def __init__(self, isa: Literal["portable", "avx2", "avx512"] | None = None) -> None: ...
    def rows(
        self, time_ns: NDArray[np.uint64], prices: NDArray[np.float64], sizes: NDArray[np.uint32]
    ) -> NDArray[np.float32]:
        """Shape (n, 64): what the engine gets."""
    def values(
        self, time_ns: NDArray[np.uint64], prices: NDArray[np.float64], sizes: NDArray[np.uint32]
    ) -> NDArray[np.float64]:
        """The same before it is rounded to float32."""

class Engine:
    """What turns feature rows into scores from 0 to 1. Made by a function below, run by the pipeline."""

    @property
    def name(self) -> str: ...
    @property
    def max_batch(self) -> int:
        """Rows that it takes at once."""
    @property
    def slots(self) -> int:
        """Batches that may be under way at once."""
    def infer(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores (n,) of rows (n, 64), batch by batch; not while a pipeline runs with this engine.

        Raises:
            ValueError: not 64 wide.
            TypeError: not float32, or not C-contiguous.
            RuntimeError: the engine failed; it says why.
        """

def cpu_isas() -> list[Literal["portable", "avx2", "avx512"]]:
    """The instruction sets of this processor that the CPU engine has code for, the best last."""

def make_null_engine(max_batch: int) -> Engine:
    """Scores every row 0.5 at once: shows what the pipeline itself takes.

    Raises:
        ValueError: max_batch is not 1 to 65,536.
    """

def make_cpu_engine(
    max_batch: int, isa: Literal["portable", "avx2", "avx512"] | None = None, *, huge_pages: bool = False
) -> Engine:
    """The reference perceptron (hwtune/validate/perceptron.py), on the thread that asks.

    `isa` None takes the best.

    Raises:
        ValueError: max_batch is not 1 to 128, or the processor lacks the instructions.
        OSError: there isn't the memory.
    """

def make_onnx_engine(model: str, library: str, max_batch: int) -> Engine:
    """A model file through the onnxruntime at `library`, one thread; hwtune/validate/onnx.py finds it.

    The model takes float32 [N, 64] and gives float32 [N] or [N, 1]. Where its N is fixed, that many rows
    are run each time, and max_batch is at most N.

    Raises:
        ValueError: max_batch is not 1 to 1,024.
        RuntimeError: the library or the model can't be used, as one sentence.
    """

@final
class GpuDevice:
    """A GPU's primary context, held; engines on it share it."""

    @property
    def name(self) -> str: ...
    @property
    def pci(self) -> str:
        """0000:07:00.0"""
    @property
    def capability(self) -> tuple[int, int]: ...
    @property
    def driver(self) -> int:
        """The newest CUDA that the driver serves: 12040 is 12.4."""
    @property
    def multiprocessors(self) -> int: ...
    @property
    def l2_bytes(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    def make_current(self) -> None:
        """For this thread: the runtime API, and so TensorRT, takes the GPU from there."""

def make_gpu_device(ordinal: int = 0, library: str = "libcuda.so.1") -> GpuDevice:
    """By CUDA's own numbers (CUDA_VISIBLE_DEVICES).

    Raises:
        RuntimeError: no driver, one that is too old, no GPU, or one that can't be had; one sentence.
        ValueError: no GPU of that number.
    """

@final
class GpuEngine(Engine):
    """Batches as CUDA graphs, one a size and a slot: native/include/hwtune/gpu_engine.hpp."""

    @property
    def sizes(self) -> list[int]:
        """Rows of each graph; a batch takes the first that holds it."""
    @property
    def launch(self) -> Histogram:
        """Nanoseconds in the calls that launch a batch, since the measured section began."""
    @property
    def wait(self) -> Histogram:
        """Nanoseconds from then until its answer was seen."""
    def profile(self, rows: int, rounds: int) -> list[tuple[float, float, float]]:
        """Microseconds on the GPU, by its own clock: copy in, compute, copy out; not while a pipeline runs.

        Raises:
            ValueError: rows are not 1 to max_batch.
            RuntimeError: the GPU failed.
        """
    def floor(self, rounds: int) -> list[float]:
        """Microseconds by the host's clock from the launch of an empty graph until its end was seen."""

def make_kernel_engine(
    device: GpuDevice,
    clock: Clock,
    *,
    image: bytes,
    kernel: str,
    parameters: bytes,
    threads: int,
    name: str,
    sizes: list[int],
    streams: int = 1,
    deadline_s: float = 2.0,
    near_cpu: int = -1,
) -> GpuEngine:
    """One kernel of a loadable image: a block of `threads` a row, of (rows, scores, parameters).

    `near_cpu`: pinned memory comes from its node; -1 leaves that to where this thread is.

    Raises:
        RuntimeError: the driver refuses something, or the GPU does not answer; one sentence.
        ValueError: sizes are not 1 to 1,024 in ascending order, streams not 1 to 16.
        OSError: no such CPU.
    """

def make_call_engine(
    device: GpuDevice,
    clock: Clock,
    *,
    enqueue: Callable[[int, int, int, int, int], object],
    name: str,
    sizes: list[int],
    streams: int = 1,
    deadline_s: float = 2.0,
    near_cpu: int = -1,
) -> GpuEngine:
    """`enqueue(stream, slot, rows, input, output)` puts the model on a stream and waits for nothing: it is
    called once as it is and once in a capture, for each size and slot. Raises what make_kernel_engine does,
    and what `enqueue` does."""

@final
class Pipeline:
    """One run of the micro-pipeline, made by make_pipeline(). All calls are for one thread."""

    def start(self) -> None:
        """Returns once every thread has its CPU and the schedule is set; then nothing can be refused.

        Raises:
            OSError: a thread can't have its CPU.
        """
    def stop(self) -> None:
        """End early: what is under way still goes to its end."""
    def over(self) -> bool: ...
    @property
    def due(self) -> int:
        """Measured ticks that fell due so far."""
    @property
    def completed(self) -> int:
        """Measured ticks that went all the way so far."""
    @property
    def started_ns(self) -> int:
        """CLOCK_MONOTONIC at which the first measured tick is due; known from start() on."""
    def result(self) -> dict[str, Any]:
        """Waits for the end, without the interpreter lock. hwtune.validate.pipeline makes a Run of it."""
    def windows(self) -> NDArray[np.uint32]:
        """Shape (windows, Histogram buckets): end to end, counted by when ticks were due; read only."""
    def stage_windows(self) -> NDArray[np.uint32]:
        """Shape (windows, stages, coarse buckets: ``hwtune.validate.buckets``), likewise."""
    def last_order(self) -> bytes:
        """The newest order message, 48 bytes: native/include/hwtune/orders.hpp."""

def make_pipeline(
    engine: Engine,
    clock: Clock,
    *,
    cpus: tuple[int, int, int],
    arrivals: str = "fixed",
    rate: float = 100_000.0,
    burst_size: int = 32,
    seed: int = 1,
    recorded: NDArray[np.uint8] | None = None,
    warmup_s: float = 0.5,
    duration_s: float = 5.0,
    tick_capacity: int = 4096,
    order_capacity: int = 4096,
    batch_limit: int = 32,
    outlier_threshold_ns: int = 0,
    outlier_ceiling_ns: int = 0,
    outlier_capacity: int = 4096,
    windows: int = 60,
    huge_pages: bool = False,
    lock_memory: bool = True,
    udp_host: str | None = None,
    udp_port: int = 0,
    stall_role: str = "compute",
    stall_at_s: float = 0.0,
    stall_length_s: float = 0.0,
) -> Pipeline:
    """All memory of a run, taken beforehand. `cpus`: of generator, compute and orders; equal neighbours
    share a thread. `recorded`: shape (ticks, 48), hwtune.validate.pipeline.TICK_FIELDS.

    Raises:
        ValueError: a plan that can't be run.
        OSError: no such CPU, no memory, no such address.
    """

@final
class DriveResult:
    """Reads of one drive, one entry each in the order of the schedule. Arrays have shape (reads,) and are
    read only; nanoseconds."""

    @property
    def started_ns(self) -> int:
        """CLOCK_MONOTONIC at offset 0 of the schedule."""
    @property
    def ended_ns(self) -> int:
        """The reader's last look at the clock, since started_ns."""
    @property
    def due_ns(self) -> NDArray[np.uint64]:
        """When each read was due, since started_ns."""
    @property
    def latency_ns(self) -> NDArray[np.uint64]:
        """From due to completion."""
    @property
    def wait_ns(self) -> NDArray[np.uint64]:
        """The part of it in which the read before was still under way."""
    @property
    def submit_ns(self) -> NDArray[np.uint64]:
        """The part of it in the call that submits, which does not wait for the drive; zeros with pread."""
    @property
    def gap_starts_ns(self) -> NDArray[np.uint64]:
        """Shape (gaps,): every time the reader was off its CPU, since started_ns."""
    @property
    def gap_lengths_ns(self) -> NDArray[np.uint64]: ...
    @property
    def gaps_lost(self) -> int: ...
    @property
    def threshold_ns(self) -> int:
        """A step of the reader's loop longer than this is a gap."""
    @property
    def failed(self) -> int:
        """Reads that ended in an error or short; they have no entry."""
    @property
    def error(self) -> int:
        """errno of the last of them; 0 for a short read."""
    @property
    def unfinished_ns(self) -> int:
        """How long a read had been under way that was given up when told to stop; 0 without one."""
    @property
    def io_uring(self) -> bool: ...
    @property
    def why(self) -> str:
        """Why there was no io_uring."""
    @property
    def stopped(self) -> bool: ...
    @property
    def affinity_restored(self) -> bool: ...

def read_drive(
    file: int,
    due_ns: NDArray[np.uint64],
    *,
    clock: Clock,
    cpu: int,
    bytes: int,
    block: int = 4096,
    seed: int = 1,
    io_uring: bool = True,
    stop: StopFlag | None = None,
) -> DriveResult:
    """Read `block` bytes at random places of the first `bytes`, one at a time, at the times of the schedule.
    The calling thread is pinned to `cpu`, which is fully busy meanwhile; the interpreter lock is released.

    Raises:
        ValueError: a schedule or a size that can't be.
        OSError: the kernel refuses the CPU.
    """

@final
class MemoryResult:
    """What one CPU found of pages that another has touched first, piece by piece."""

    @property
    def load_ns(self) -> NDArray[np.float64]:
        """Shape (pieces,): one load behind the other, in random order."""
    @property
    def read_gbps(self) -> NDArray[np.float64]:
        """Shape (pieces,): GB/s that one thread reads."""
    @property
    def nodes(self) -> list[int]:
        """The node of each page of a sample; negative where the kernel cannot tell."""
    @property
    def stopped(self) -> bool: ...

def measure_memory(
    cpu: int, home: int, *, bytes: int, duration_s: float, clock: Clock, stop: StopFlag | None = None
) -> MemoryResult:
    """Have ``home`` touch so many bytes first, then read them from ``cpu``: twice ``duration_s``, besides the
    time of touching. The calling thread is moved and brought back.

    Raises:
        ValueError: sizes or durations that can't be.
        OSError: a CPU or the memory is refused.
    """

@final
class WakeupResult:
    """How late a thread woke that slept until fixed times."""

    @property
    def cpu(self) -> int: ...
    @property
    def fifo(self) -> bool:
        """Whether it ran under SCHED_FIFO."""
    @property
    def error(self) -> int:
        """errno of why it did not, where that was asked for; else 0."""
    @property
    def missed(self) -> int:
        """Times that had passed while it was late for an earlier one; not among the arrays."""
    @property
    def stopped(self) -> bool: ...
    @property
    def affinity_restored(self) -> bool: ...
    @property
    def due_ns(self) -> NDArray[np.uint64]:
        """Shape (wake-ups,), since the first."""
    @property
    def late_ns(self) -> NDArray[np.uint64]:
        """Shape (wake-ups,): from when it was due to when the thread ran."""

def wakeups(
    cpu: int,
    duration_s: float,
    *,
    interval_s: float = 0.001,
    priority: int = 0,
    stop: StopFlag | None = None,
) -> WakeupResult:
    """Sleep on one CPU until each time that is due (clock_nanosleep, TIMER_ABSTIME, CLOCK_MONOTONIC).
    ``priority``: of SCHED_FIFO, 0 for the thread's own policy.

    Raises:
        ValueError: an interval below 20 us, or more than 2^24 wake-ups.
        OSError: the CPU is refused.
    """
