"""Is this run worse than an earlier one? Decided from how both varied over their own time.

Two runs on one machine never have the same P99. The ratio of the two is drawn from blocks of the windows of
each (``stats.bootstrap``), and only a limit outside its 95 % interval is a verdict. What differs between two
runs and is steady within each (where memory came to lie, which neighbours a virtual machine had) is in no
window: repeat the run before a small difference is believed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from hwtune.errors import UsageError
from hwtune.validate import buckets, stats
from hwtune.validate.budget import read_regular

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hwtune.validate.arrivals import Arrivals
    from hwtune.validate.run import Run

WORSE = "worse"
NOT_WORSE = "not worse"
UNTOLD = "cannot be told"
_LARGEST = 64 << 20  # bytes of a report
_MOST_WINDOWS = 2_000  # of 115 KB each, once they are read
_SAME_RATE = 0.001  # as a share
_Q = 0.99


class _Arrivals(msgspec.Struct):
    kind: str
    rate: float
    digest: str


class _Windows(msgspec.Struct):
    length_s: float
    histograms: list[str]


class _Host(msgspec.Struct):
    hostname: str | None
    kernel: str | None
    captured_at: str | None


class _Report(msgspec.Struct):
    """The part of an earlier report that a comparison needs."""

    schema_version: str
    engine: str
    model: str
    arrivals: _Arrivals
    host: _Host
    cpus: dict[str, int]
    due: int
    completed: int
    windows: _Windows


class Baseline(msgspec.Struct):
    """An earlier run. ``windows``: shape (windows, buckets)."""

    path: str
    report: _Report
    windows: Any

    @property
    def missing(self) -> int:
        return max(0, self.report.due - self.report.completed)


class Comparison(msgspec.Struct, frozen=True):
    """P99 of all ticks that were due, now against the baseline's: ``change_pct`` with its 95 % interval.
    ``verdict``: worse (by more than the limit, with confidence), not worse, or cannot be told; ``differs``:
    what else is not as it was, each as a clause."""

    baseline: str
    made_at: str | None
    limit_pct: float
    before_us: float | None
    now_us: float | None
    change_pct: float | None
    low_pct: float | None
    high_pct: float | None
    verdict: str
    why: str
    differs: list[str]


# -- the file --------------------------------------------------------------------------------


def load(path: str) -> Baseline:
    """Raises ``UsageError``, one sentence, for what is no report of validate."""
    from hwtune.report.published import SCHEMA_VERSION

    try:
        report = msgspec.json.decode(read_regular(path, _LARGEST), type=_Report)
    except OSError as error:
        raise UsageError(f"the baseline {path} cannot be read: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"the baseline {path} is no report that `hwtune validate --format json` made: {error}"
        ) from None
    if report.schema_version != SCHEMA_VERSION:
        raise UsageError(
            f"the baseline {path} has schema version {report.schema_version[:20]!r}; this hwtune reads "
            f"{SCHEMA_VERSION!r}"
        )
    return Baseline(path, report, _windows(path, report))


def _windows(path: str, report: _Report) -> NDArray[np.uint32]:
    import numpy as np

    from hwtune.validate.hdr import from_base64
    from hwtune.validate.results import counts_of

    encoded = report.windows.histograms
    if len(encoded) > _MOST_WINDOWS or not 0 < report.windows.length_s < 1e6:
        raise UsageError(f"the baseline {path} has windows that no run has")
    found = np.zeros((len(encoded), buckets.COUNT), dtype=np.uint32)
    for place, text in enumerate(encoded):
        try:
            counts = counts_of(from_base64(text))
        except ValueError as error:
            raise UsageError(f"the baseline {path} is damaged: window {place}: {error}") from None
        if counts.max() >= 1 << 32:
            raise UsageError(f"the baseline {path} is damaged: window {place} counts more than a run can")
        found[place] = counts
    return found


def refuse(baseline: Baseline, engine: str, model: str, arrivals: Arrivals) -> None:
    """Raises ``UsageError`` where the two runs answer different questions. ``model``: the digest of a model
    that the user brought."""
    then = baseline.report
    path = baseline.path
    # its first word: what follows is how it computes, which is told and not refused
    if (engine.split()[:1], model) != (then.engine.split()[:1], then.model):
        now = f"{engine} ({model})" if model else engine
        before = f"{then.engine} ({then.model})" if then.model else then.engine
        raise UsageError(f"the baseline {path} was made with the engine {before}, this run is with {now}")
    if arrivals.kind != then.arrivals.kind:
        raise UsageError(
            f"the baseline {path} has {then.arrivals.kind} arrivals, this run {arrivals.kind} ones"
        )
    if arrivals.digest != then.arrivals.digest:
        raise UsageError(
            f"the baseline {path} was made with other recorded ticks than those of {arrivals.name}"
        )
    # of the same recording, each run had its own part
    if not arrivals.digest and not math.isclose(arrivals.rate, then.arrivals.rate, rel_tol=_SAME_RATE):
        raise UsageError(
            f"the baseline {path} was made at {then.arrivals.rate:,.0f} ticks a second, this run is at "
            f"{arrivals.rate:,.0f}"
        )


# -- the comparison --------------------------------------------------------------------------


class Sample(NamedTuple):
    """What a run says of its latency. ``windows``: shape (windows, buckets); ``missing``: ticks that never
    came through."""

    windows: NDArray[Any]
    missing: int


class Decision(NamedTuple):
    """Changes in percent, latencies in nanoseconds, as in ``Comparison``."""

    before: int | None
    now: int | None
    change_pct: float | None
    low_pct: float | None
    high_pct: float | None
    verdict: str
    why: str


def compare(
    baseline: Baseline, run: Run, hostname: str | None, kernel: str | None, limit_pct: float
) -> Comparison:
    now = Sample(run.windows, max(0, run.due - run.completed))
    found = decide(Sample(baseline.windows, baseline.missing), now, buckets.tops(), limit_pct)
    return Comparison(
        baseline.path,
        baseline.report.host.captured_at,
        limit_pct,
        None if found.before is None else found.before / 1000,
        None if found.now is None else found.now / 1000,
        *found[2:],
        differs=_differences(baseline.report, run, hostname, kernel),
    )


def decide(before: Sample, now: Sample, tops: NDArray[Any], limit_pct: float) -> Decision:
    first, second = (
        stats.quantile(sample.windows.sum(axis=0, dtype="i8"), tops, _Q, sample.missing)
        for sample in (before, now)
    )
    few = _too_few_ticks(before, now)
    if few:
        return Decision(first, second, None, None, None, UNTOLD, few)
    if first is None or second is None:
        return Decision(first, second, None, None, None, *_lost(first, second))
    change = 100 * (second / first - 1)
    few = _too_few_windows(before, now)
    if few:
        return Decision(first, second, change, None, None, UNTOLD, few)
    low, high = _ratio(before, now, tops)
    verdict, why = _verdict(math.log(second / first), low, high, limit_pct)
    return Decision(first, second, change, 100 * math.expm1(low), 100 * math.expm1(high), verdict, why)


def _named(before: Sample, now: Sample) -> tuple[tuple[str, Sample], tuple[str, Sample]]:
    return ("the baseline", before), ("this run", now)


def _too_few_ticks(before: Sample, now: Sample) -> str:
    needed = stats.least_samples(_Q)
    for whose, sample in _named(before, now):
        ticks = int(sample.windows.sum(dtype="i8")) + sample.missing
        if ticks < needed:
            return f"{whose} has {ticks:,} ticks; at least {needed} are needed"
    return ""


def _too_few_windows(before: Sample, now: Sample) -> str:
    for whose, sample in _named(before, now):
        if len(sample.windows) < stats.LEAST_WINDOWS:
            count = len(sample.windows)
            return f"{whose} has {count} windows of time; at least {stats.LEAST_WINDOWS} are needed"
    return ""


def _lost(first: int | None, second: int | None) -> tuple[str, str]:
    if first is None and second is None:
        return UNTOLD, "in both runs P99 is among the ticks that never came through"
    if second is None:
        return WORSE, "P99 is now among the ticks that never came through"
    return NOT_WORSE, "the baseline's P99 is among the ticks that never came through, this run's is not"


def _ratio(before: Sample, now: Sample, tops: NDArray[Any]) -> tuple[float, float]:
    """The 95 % interval of the logarithm of P99 now to P99 before."""
    import numpy as np

    drawn = [
        stats.bootstrap(sample.windows, tops, _share(sample), seed=seed)
        for seed, sample in enumerate((before, now), 1)
    ]
    tail = (1 - stats.CONFIDENCE) / 2
    low, high = np.quantile(drawn[1] - drawn[0], [tail, 1 - tail])
    return float(low), float(high)


def _share(sample: Sample) -> float:
    """The percentile of the ticks that came through that is P99 of all that were due."""
    came = int(sample.windows.sum(dtype="i8"))
    return min(1.0, _Q * (came + sample.missing) / max(came, 1))


def _verdict(change: float, low: float, high: float, limit_pct: float) -> tuple[str, str]:
    limit = math.log1p(limit_pct / 100)
    if low > limit:
        return WORSE, ""
    if high <= limit:
        return NOT_WORSE, ""
    # the interval narrows as the square root of the time
    distance, half = abs(limit - change), (high - low) / 2
    if distance < half / 10:
        return UNTOLD, "the change is so near the limit that much longer runs would be needed"
    times = max(2, math.ceil((half / distance) ** 2))
    return UNTOLD, f"runs about {times} times as long, the baseline's too, would tell"


def _differences(then: _Report, run: Run, hostname: str | None, kernel: str | None) -> list[str]:
    found = []
    if hostname != then.host.hostname:
        found.append(f"another host: {then.host.hostname or 'unnamed'} then, {hostname or 'unnamed'} now")
    if kernel != then.host.kernel:
        found.append(f"another kernel: {then.host.kernel or 'unknown'} then, {kernel or 'unknown'} now")
    if run.engine != then.engine:
        found.append(f"another kind of engine: {then.engine} then, {run.engine} now")
    if run.cpus != then.cpus:
        shown = [", ".join(f"{role} {cpu}" for role, cpu in cpus.items()) for cpus in (then.cpus, run.cpus)]
        found.append(f"other CPUs: {shown[0]} then, {shown[1]} now")
    return found
