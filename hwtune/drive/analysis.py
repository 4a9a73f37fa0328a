"""What a measurement says: from reads to a report.

Of each read's latency the host's share is taken out first: when the reader was off its CPU, and what
submission took above its usual time. A stall during which the host was away as well counts for nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hwtune.drive import periodic, resting, verdicts, watching
from hwtune.drive.results import (
    DRIVE,
    HOST,
    UNCLEAR,
    DriveReport,
    Latency,
    Method,
    Noise,
    Periodic,
    Phase,
    Stall,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hwtune.drive.device import Device
    from hwtune.drive.measure import Control, Measured, Reads
    from hwtune.drive.plan import Plan
    from hwtune.drive.target import Open

    Numbers = NDArray[np.float64]

MOST_STALLS = 2000
CURVE = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99995, 0.99999)
# Of the CPU's time, from which a drive cannot be told from its host.
STOLEN_MAX = 0.05
# A stall of which so much was the host's counts for nobody.
_TAINTED = 0.2
# Reads needed for a percentile: ten beyond it.
_BEYOND = 10
_LEAST_READS = 500
_RARER = 0.2
# Coincidences: so many of the stalls, so much more than chance, so sure.
_MOSTLY, _SURE = 0.6, 0.001


class Cleaned(NamedTuple):
    """Seconds: ``due`` since the phase began; ``latency`` as a program sees it; ``drive`` without the
    host's share, ``host``."""

    due: Numbers
    latency: Numbers
    drive: Numbers
    host: Numbers


class Stalled(NamedTuple):
    """The stalls of a phase: those of the drive, and how many the host had its hand in."""

    found: periodic.Stalls
    host: int
    schedule: periodic.Schedule


def clean(reads: Reads) -> Cleaned:
    """Reads after the last gap that was kept are left out where gaps were lost: of these the host's share
    is not known."""
    import numpy as np

    keep = slice(None)
    if reads.gaps_lost and len(reads.gap_starts_ns):
        end = int(reads.gap_starts_ns[-1])
        keep = slice(0, int(np.searchsorted(reads.due_ns + reads.latency_ns, end)))
    due, latency, submit = (
        c[keep].astype(np.float64) / 1e9 for c in (reads.due_ns, reads.latency_ns, reads.submit_ns)
    )
    away = _Away(reads.gap_starts_ns, reads.gap_lengths_ns)
    host = away(due + latency) - away(due)
    if len(submit):
        host += np.maximum(0.0, submit - np.median(submit))
    host = np.clip(host, 0.0, latency)
    return Cleaned(due, latency, latency - host, host)


class _Away:
    """How long the reader had been off its CPU by a time."""

    def __init__(self, starts_ns: NDArray[np.uint64], lengths_ns: NDArray[np.uint64]) -> None:
        import numpy as np

        starts, lengths = starts_ns.astype(np.float64) / 1e9, lengths_ns.astype(np.float64) / 1e9
        total = np.cumsum(lengths)
        self._edges = np.stack((starts, starts + lengths), axis=1).ravel()
        self._away = np.stack((total - lengths, total), axis=1).ravel()

    def __call__(self, times: Numbers) -> Numbers:
        import numpy as np

        if len(self._edges) == 0:
            return np.zeros(len(times))
        found: Numbers = np.interp(times, self._edges, self._away)
        return found


def stalled(cleaned: Cleaned, usual: tuple[float, float] | None = None) -> Stalled | None:
    """The stalls of a phase, judged by its own usual latency or by that of another phase (seconds: usual,
    threshold). None where there are not reads enough."""
    import numpy as np

    if len(cleaned.due) < 50:
        return None
    plan = periodic.schedule_of(cleaned.due)
    found = periodic.stalls(cleaned.due, cleaned.drive, plan, usual)
    if len(found.starts) == 0:
        return Stalled(found, 0, plan)
    # the host's share of all reads that a stall made late
    first = np.searchsorted(cleaned.due, found.starts)
    last = np.searchsorted(cleaned.due, found.starts + found.lengths + found.usual_s)
    total = np.concatenate(([0.0], np.cumsum(np.maximum(cleaned.host - _usual_host(cleaned), 0.0))))
    tainted = total[np.maximum(last, first + 1)] - total[first] > _TAINTED * found.lengths
    clear = periodic.Stalls(found.starts[~tainted], found.lengths[~tainted], found.usual_s, found.threshold_s)
    return Stalled(clear, int(tainted.sum()), plan)


def _usual_host(cleaned: Cleaned) -> float:
    """What the completion's own interrupt takes, with each read."""
    import numpy as np

    return float(np.median(cleaned.host))


def analyse(opened: Open, planned: Plan, measured: Measured, device: Device) -> DriveReport:
    quiet = measured.phases[0] if measured.phases else None
    cleaned = [clean(reads) for reads in measured.phases]
    first = stalled(cleaned[0]) if cleaned else None
    usual = (first.found.usual_s, first.found.threshold_s) if first is not None else None
    told = [first, *(stalled(c, usual) for c in cleaned[1:])][: len(cleaned)]
    phases = [_phase(r, c, s) for r, c, s in zip(measured.phases, cleaned, told, strict=True)]
    noise = _noise(measured.control, quiet)
    untold = _untold(measured, noise, cleaned, planned.cpu) or _unseen(measured, first)
    regular, why_not = None, untold
    if first is not None and quiet is not None and not untold:
        regular, why_not = _periodic(first, cleaned[0], quiet, measured, device)
    steps, waking = (
        resting.judge(measured.rests, clean(measured.rests[1]), planned.seed)
        if measured.rests
        else ([], None)
    )
    report = DriveReport(
        target=opened.target,
        method=Method(
            planned.cpu,
            measured.rate,
            opened.block,
            measured.io_uring,
            measured.why,
            measured.clock,
            measured.seconds,
            measured.interrupted,
        ),
        usual_us=1e6 * first.found.usual_s if first else 0.0,
        threshold_us=1e6 * first.found.threshold_s if first else 0.0,
        noise=noise,
        phases=phases,
        stalls=_listed(first),
        stalls_total=len(first.found.starts) if first else 0,
        periodic=regular,
        not_periodic=why_not,
        rests=steps,
        waking=None if untold else waking,
        device=device.says(),
        findings=[],
        untold=untold,
        curve=_curve(cleaned[0]) if cleaned else [],
        notes=_notes(measured),
    )
    return verdicts.with_findings(report, device)


# -- numbers -----------------------------------------------------------------------------------


def latency(seconds: Numbers) -> Latency:
    import numpy as np

    def at(share: float) -> float | None:
        if len(seconds) * (1 - share) < _BEYOND:
            return None
        return float(np.quantile(seconds, share)) * 1e6

    longest = float(seconds.max()) * 1e6 if len(seconds) else None
    return Latency(len(seconds), at(0.5), at(0.9), at(0.99), at(0.999), longest)


def _phase(reads: Reads, cleaned: Cleaned, told: Stalled | None) -> Phase:
    return Phase(
        name=reads.name,
        seconds=reads.ended_ns / 1e9,
        response=latency(cleaned.latency),
        drive=latency(cleaned.drive),
        stalls=len(told.found.starts) if told else 0,
        host_stalls=told.host if told else 0,
        failed=reads.failed,
    )


def _curve(cleaned: Cleaned) -> list[tuple[float, float]]:
    """(share, microseconds) of the response."""
    import numpy as np

    count = len(cleaned.latency)
    if count == 0:
        return []
    shares = [s for s in CURVE if count * (1 - s) >= 1]
    points = list(zip(shares, (np.quantile(cleaned.latency, shares) * 1e6).tolist(), strict=True))
    return [*points, (1.0, float(cleaned.latency.max()) * 1e6)]


def _noise(control: Control | None, quiet: Reads | None) -> list[Noise]:
    import numpy as np

    found = []
    loops = []
    if control is not None:
        loops.append((False, control.gap_starts_ns, control.gap_lengths_ns, control.duration_ns / 1e9))
    if quiet is not None:
        loops.append((True, quiet.gap_starts_ns, quiet.gap_lengths_ns, quiet.ended_ns / 1e9))
    for io, starts, lengths, seconds in loops:
        if seconds <= 0:
            continue
        stolen = float(lengths.sum()) / 1e9
        found.append(
            Noise(
                io=io,
                seconds=seconds,
                gaps=len(starts),
                stolen_pct=100 * stolen / seconds,
                p99_us=float(np.quantile(lengths, 0.99)) / 1e3 if len(lengths) >= 1000 else None,
                longest_us=float(lengths.max()) / 1e3 if len(lengths) else 0.0,
            )
        )
    return found


def _listed(told: Stalled | None) -> list[Stall]:
    import numpy as np

    if told is None:
        return []
    lengths = told.found.lengths
    longest = np.sort(np.argsort(-lengths, kind="stable")[:MOST_STALLS])
    return [Stall(float(told.found.starts[i]), 1e6 * float(lengths[i])) for i in longest]


def _untold(measured: Measured, noise: list[Noise], cleaned: list[Cleaned], cpu: int) -> str:
    if not cleaned or len(cleaned[0].due) < _LEAST_READS:
        count = len(cleaned[0].due) if cleaned else 0
        return f"{count} reads are too few to judge by; {_LEAST_READS} are needed"
    quiet = measured.phases[0]
    if quiet.failed > 0.01 * len(quiet.due_ns):
        return ""  # the errors are the verdict
    for one in noise:
        # interrupts of the reads themselves are no theft
        if not one.io and one.stolen_pct > 100 * STOLEN_MAX:
            return (
                f"CPU {cpu} was taken from the reader for {one.stolen_pct:.0f} % of the time even"
                " without I/O:"
                " the drive cannot be told from the host; measure on a quieter CPU (--cpu)"
            )
    away = float(cleaned[0].host.sum()) / float(cleaned[0].latency.sum())
    busy = next((n.stolen_pct for n in noise if n.io), 0.0)
    if away > 0.5 and busy > 100 * STOLEN_MAX:
        return (
            f"CPU {cpu} was taken from the reader for {away:.0%} of the time that reads took: the"
            " drive cannot be told"
            " from the host; measure on a quieter CPU (--cpu)"
        )
    return ""


def _unseen(measured: Measured, first: Stalled | None) -> str:
    """Without io_uring the reader sleeps, and what takes its CPU during a read is not seen. Where the CPU
    is taken for as long between reads or without I/O, and not much more rarely than reads stall, nothing is
    told."""
    import numpy as np

    if measured.io_uring or first is None or len(first.found.starts) == 0:
        return ""
    quiet, control = measured.phases[0], measured.control
    least_ns = 0.5e9 * float(np.median(first.found.lengths))
    seconds = quiet.ended_ns / 1e9
    expected = float((quiet.gap_lengths_ns > least_ns).sum())
    if control is not None and control.duration_ns:
        without = float((control.gap_lengths_ns > least_ns).sum()) / (control.duration_ns / 1e9) * seconds
        expected = max(expected, without)
    if expected <= _RARER * len(first.found.starts):
        return ""
    return (
        f"reads went by pread ({measured.why}), so that the host's share of a read is not known, and"
        " the CPU is"
        f" taken for as long as reads stall some {expected:.0f} times in {seconds:.0f} s"
    )


def _notes(measured: Measured) -> list[str]:
    notes = []
    quiet = measured.phases[0] if measured.phases else None
    if quiet is not None and quiet.gaps_lost:
        notes.append(
            f"{quiet.gaps_lost:,} gaps of the host were too many to keep: reads after them are left out"
        )
    for reads in measured.phases:
        if reads.unfinished_ns:
            notes.append(
                f"the last read had been under way for {reads.unfinished_ns / 1e6:.1f} ms when it was"
                " given up"
            )
    if not measured.io_uring:
        notes.append(f"reads went by pread ({measured.why}): the host's share of a read's time is not known")
    if measured.written:
        notes.append(f"{measured.written >> 20:,} MiB were written beside the reads")
    if measured.write_failed:
        notes.append(f"the writer ended early: {measured.write_failed}")
    return notes


# -- regular, and whose fault ----------------------------------------------------------------------


def _periodic(
    first: Stalled, cleaned: Cleaned, quiet: Reads, measured: Measured, device: Device
) -> tuple[Periodic | None, str]:
    found = periodic.find(first.found, first.schedule)
    longest = first.schedule.duration_s / periodic.LEAST_CYCLES
    if found is None:
        few = len(first.found.starts) < periodic.LEAST_CYCLES
        why = "too few stalls to tell" if few and len(first.found.starts) else "the stalls keep no time"
        if len(first.found.starts) == 0:
            why = "there are no stalls"
        return None, f"{why} (periods up to {longest:.3g} s were looked for)"
    blame, because = _blame(found, first, quiet, measured, device)
    return (
        Periodic(
            found.period_s,
            1e6 * found.amplitude_s,
            found.chance,
            found.cycles,
            found.hit,
            found.in_step,
            found.phase_s,
            blame,
            because,
        ),
        "",
    )


def _blame(
    found: periodic.Period, first: Stalled, quiet: Reads, measured: Measured, device: Device
) -> tuple[str, list[str]]:
    """Whether somebody on the host keeps the same time."""
    import numpy as np

    because = []
    own = _same_time_as_gaps(found, quiet, measured.control)
    if own:
        return HOST, [own]
    if measured.seen is not None:
        ended = np.sort((quiet.due_ns + quiet.latency_ns).astype(np.int64)) + quiet.started_ns
        begin, end = watching.foreign(measured.seen, ended)
        starts = (first.found.starts * 1e9).astype(np.int64) + quiet.started_ns
        share, base, chance = coincidence(
            starts, (first.found.lengths * 1e9).astype(np.int64), begin, end, _span(quiet)
        )
        if share >= _MOSTLY and chance < _SURE:
            return HOST, [
                f"somebody else's I/O ended at the drive with {share:.0%} of the stalls, and in"
                f" {base:.0%} of the time"
            ]
        if base > 0.5:
            return UNCLEAR, ["somebody else's I/O was going on at the drive most of the time"]
        because.append(
            f"somebody else's I/O ended at the drive with {share:.0%} of the stalls, {base:.0%} of the time"
        )
    else:
        because.append("what else was done to the drive is not known")
    because.append("the CPU's own gaps, with and without I/O, have no such period")
    if device.pollers:
        because.append(
            f"{', '.join(device.pollers)} may ask the drive at such times: stop it and measure again"
            " to be sure"
        )
        return UNCLEAR, because
    because.append("no program that is known to ask drives regularly runs here")
    return DRIVE, because


def _span(quiet: Reads) -> tuple[int, int]:
    return quiet.started_ns, quiet.started_ns + quiet.ended_ns


def coincidence(
    starts_ns: NDArray[np.int64],
    lengths_ns: NDArray[np.int64],
    begin_ns: NDArray[np.int64],
    end_ns: NDArray[np.int64],
    span_ns: tuple[int, int],
) -> tuple[float, float, float]:
    """Of stalls with spans: (share of the stalls that touch one, share of times at which a stall of the
    median length would, chance that as many or more touch one by chance)."""
    import numpy as np

    if len(starts_ns) == 0 or len(begin_ns) == 0:
        return 0.0, 0.0, 1.0

    def touched(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
        at = np.searchsorted(end_ns, starts)  # the first span that ends at or after the start
        inside = at < len(begin_ns)
        found: NDArray[np.bool_] = inside & (begin_ns[np.minimum(at, len(begin_ns) - 1)] <= starts + lengths)
        return found

    share = float(touched(starts_ns, lengths_ns).mean())
    grid = np.linspace(*span_ns, 20_000).astype(np.int64)
    base = float(touched(grid, np.full(len(grid), int(np.median(lengths_ns)))).mean())
    rate = min(max(base, 1e-6), 1 - 1e-9)
    return share, base, verdicts.at_least(round(share * len(starts_ns)), len(starts_ns), rate)


def _same_time_as_gaps(found: periodic.Period, quiet: Reads, control: Control | None) -> str:
    """Whether gaps of a tenth of the stall or more come with this period, or a part of it, in the reads or
    in the control."""
    import numpy as np

    loops = [("beside the reads", quiet.gap_starts_ns, quiet.gap_lengths_ns, quiet.ended_ns)]
    if control is not None:
        loops.append(("without I/O", control.gap_starts_ns, control.gap_lengths_ns, control.duration_ns))
    for where, starts, lengths, duration_ns in loops:
        long = lengths > max(1e9 * found.amplitude_s / 10, 20_000)
        times, lasted = starts[long].astype(np.float64) / 1e9, lengths[long].astype(np.float64) / 1e9
        duration = duration_ns / 1e9
        if len(times) < 5 or duration <= 0:
            continue
        even = periodic.Schedule(duration, np.full(1000, duration / 1000))
        other = periodic.find(periodic.Stalls(times, lasted, 0.0, 0.0), even)
        if other is None:
            continue
        ratio = found.period_s / other.period_s
        if round(ratio) in (1, 2, 3) and abs(ratio / round(ratio) - 1) < 0.02:
            return f"the CPU is taken away every {other.period_s:.3g} s {where}, in the stalls' own time"
    return ""
