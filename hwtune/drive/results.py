"""What is said of a drive: the shape of ``nvme-latency --format json``. Microseconds unless a name says
else."""

from __future__ import annotations

import msgspec

# Who is blamed for stalls that keep time.
DRIVE, HOST, UNCLEAR = "drive", "host", "unclear"
# Kinds of findings.
PERIODIC, STALLS, SLEEPS, LINK, BEHIND_WRITES, AFTER_WRITES, THERMAL, ERRORS = (
    "periodic", "stalls", "sleeps", "link", "behind-writes", "after-writes", "thermal", "errors",
)  # fmt: skip


class Target(msgspec.Struct, frozen=True):
    """``kind``: device or file. ``disks``: the whole disks below it. ``controller``: of the one NVMe drive
    below."""

    kind: str
    path: str
    name: str
    disks: list[str]
    controller: str | None
    model: str | None
    bytes: int
    notes: list[str]


class Method(msgspec.Struct, frozen=True):
    """``why``: why reads went by pread(2), where they did; gaps of the host are then known only between
    reads."""

    cpu: int
    rate: float
    block_bytes: int
    io_uring: bool
    why: str
    clock: str
    seconds: float
    interrupted: bool


class Latency(msgspec.Struct, frozen=True):
    """Percentiles; null where too few reads were made to tell them."""

    count: int
    p50_us: float | None
    p90_us: float | None
    p99_us: float | None
    p999_us: float | None
    max_us: float | None


class Noise(msgspec.Struct, frozen=True):
    """What took the CPU from a loop on it: while it did nothing else (``io`` false), or between and during
    reads. Interrupts of the reads are among the latter."""

    io: bool
    seconds: float
    gaps: int
    stolen_pct: float
    p99_us: float | None
    longest_us: float


class Stall(msgspec.Struct, frozen=True):
    """``us``: above the usual latency, without the host's share."""

    at_s: float
    us: float


class Periodic(msgspec.Struct, frozen=True):
    """``chance``: of so regular a train among random stalls, the search over periods included. ``cycles``:
    periods that the run lasted; ``hit``: those with a stall; ``in_step``: share of all stalls that keep
    time. ``blame``: drive, host, or unclear; ``because``: what speaks for that."""

    period_s: float
    stall_us: float
    chance: float
    cycles: int
    hit: int
    in_step: float
    phase_s: float
    blame: str
    because: list[str]


class Rest(msgspec.Struct, frozen=True):
    """First reads after so long a rest."""

    rest_ms: float
    count: int
    median_us: float
    max_us: float


class Waking(msgspec.Struct, frozen=True):
    """First reads cost ``cost_us`` more after rests of ``from_ms`` and longer than up to ``to_ms``.
    ``chance``: of such a difference if rests made none (a permutation test over all splits)."""

    to_ms: float
    from_ms: float
    cost_us: float
    chance: float


class Phase(msgspec.Struct, frozen=True):
    """Reads of one phase: quiet, writes, after. ``response``: from when a read was due, as a program sees it;
    ``drive``: without what the host took."""

    name: str
    seconds: float
    response: Latency
    drive: Latency
    stalls: int
    host_stalls: int
    failed: int


class Finding(msgspec.Struct, frozen=True):
    """``severity``: info or warning. ``rests_on``: the evidence, a clause each."""

    kind: str
    severity: str
    says: str
    rests_on: list[str]
    advice: str


class DriveReport(msgspec.Struct, frozen=True):
    """``usual_us``: the median read; ``threshold_us``: excess from which one is a stall. ``stalls``: those
    of the quiet phase, the longest ones where there are many (``stalls_total``). ``untold``: why there is
    no verdict. ``device``: what the drive's own counters say, a sentence each."""

    target: Target
    method: Method
    usual_us: float
    threshold_us: float
    noise: list[Noise]
    phases: list[Phase]
    stalls: list[Stall]
    stalls_total: int
    periodic: Periodic | None
    not_periodic: str
    rests: list[Rest]
    waking: Waking | None
    device: list[str]
    findings: list[Finding]
    untold: str
    curve: list[tuple[float, float]]
    notes: list[str]
