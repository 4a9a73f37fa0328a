"""What a run of jitter found: the shape of ``jitter --format json``.

A gap is a step of the loop longer than the threshold. Its length is what a thread would have lost there.
"""

from __future__ import annotations

import msgspec

from hwtune.report.published import Tool
from hwtune.tracing import CpuCounters, Culprit

FIT, UNFIT, UNKNOWN = "fit", "unfit", "unknown"


class Gap(msgspec.Struct):
    """One of the longest. ``at_ns``: since the CPU's loop began; ``explained_ns``: what recorded spans cover
    of it."""

    at_ns: int
    length_ns: int
    kind: str
    name: str
    pid: int
    explained_ns: int
    rows: tuple[str, ...]


class CpuJitter(msgspec.Struct):
    """One CPU. ``verdict``: "fit" or "unfit" for a hot thread by the profile's limits, or "unknown" where the
    measurement itself is in doubt; ``reasons`` say why.

    ``coverage``: the share of the time, setting up included, in which the loop watched. Percentiles are of
    the lengths of its gaps, null where there are too few; ``stolen_share`` is the time inside gaps, of all.
    ``causes`` is empty without a trace; ``counters`` then tell what fired, and how often.
    """

    cpu: int
    verdict: str
    reasons: list[str]
    observed_ns: int
    coverage: float
    threshold_ns: int
    step_ns: float
    gaps: int
    gaps_per_second: float
    p50_ns: int | None
    p99_ns: int | None
    p999_ns: int | None
    longest_ns: int
    stolen_ns: int
    stolen_share: float
    #: gaps beyond those that were kept with their times: in the counts, without a cause
    gaps_not_kept: int
    #: kept gaps that were too many to ask for the cause of each, the shortest ones
    gaps_not_asked: int
    involuntary_switches: int
    minor_faults: int
    major_faults: int
    causes: list[Culprit]
    longest: list[Gap]
    counters: CpuCounters | None
    #: time inside gaps, in so many equal slices of the observed time; of the gaps that were kept
    over_time_ns: list[int]
    #: (share, length): so long at most were that share of the kept gaps
    curve: list[tuple[float, int]]


class CpuWakeup(msgspec.Struct):
    """How late one CPU's timer woke a thread (``--wakeup``): from when it was due to when it ran, as
    cyclictest tells it. ``fifo``: whether that thread ran under SCHED_FIFO; ``why``: why not, else "".
    ``missed``: times that had passed while the thread was late for an earlier one. Percentiles are null where
    there are too few.
    """

    cpu: int
    fifo: bool
    priority: int
    why: str
    interval_ns: int
    wakeups: int
    missed: int
    min_ns: int | None
    mean_ns: float | None
    p50_ns: int | None
    p99_ns: int | None
    p999_ns: int | None
    longest_ns: int | None


class RowToSee(msgspec.Struct):
    """A row of the diagnosis table that the causes point at, and what it says of this machine now.
    ``stolen_ns``: the time of the gaps that point at it."""

    id: str
    outcome: str
    reason: str
    title: str
    stolen_ns: int
    cpus: list[int]


class ClockInfo(msgspec.Struct):
    source: str
    why: str
    cost_ns: float
    step_ns: float


class TraceInfo(msgspec.Struct):
    """``why``: what hindered it, where ``recorded`` is false."""

    recorded: bool
    why: str
    notes: list[str]


class JitterReport(msgspec.Struct):
    """What ``hwtune jitter --format json`` prints. ``captured_at``: ISO 8601, UTC; ``virtual``: whether this
    is a virtual machine, null where that is not known; ``fit``: whether every CPU is."""

    schema_version: str
    tool: Tool
    hostname: str | None
    kernel: str | None
    captured_at: str | None
    profile: str
    virtual: bool | None
    duration_s: float
    one_by_one: bool
    interrupted: bool
    gap_max_us: float
    stolen_max_pct: float
    fit: bool
    clock: ClockInfo
    trace: TraceInfo
    cpus: list[CpuJitter]
    rows: list[RowToSee]
    #: only with --wakeup, by CPU
    wakeups: list[CpuWakeup]
    #: counters that could not be read, each as one sentence
    not_counted: list[str]
