"""Whether stalls come at regular times: the period, how long each lasts, and how sure that is.

The events are stalls (neighbouring slow reads are one, and of a burst of stalls the longest stands for all:
twenty in a row are no twenty witnesses). For a frequency f the Rayleigh power is |sum of exp(2 pi i f t)|^2
/ n: about 1 for events at random times, n for events that keep time. Its greatest value over all
frequencies is compared with that of as many events put at random times, as far apart as bursts are (a
permutation test by Monte Carlo), so that the search over frequencies is paid for. A regular train is as
strong at every multiple of its frequency: the lowest one that is strong is the train's own. It then has to
be a train: at least `LEAST_CYCLES` cycles long, with stalls in most of them, and most stalls in step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Fewer show nothing: with five, one in a hundred random sets looks regular.
LEAST_CYCLES = 8
# Chance of a period where there is none.
_CHANCE = 0.001
_SETS = 2000
_TOGETHER = 100
_WORK = 1e8  # events times frequencies times sets: about a second
_MARGIN = 0.6
_CLEAR = 1e-4
# A fundamental has at least this share of the greatest power: what else stalls may put it below a multiple.
_STRONG = 0.4
_CYCLES_HIT = 0.6
# Over one half: at twice the period every second stall would be in step.
_IN_STEP = 0.55
# Half width of "in step", as a share of the period.
_STEP = 0.1
# Frequencies a resolution cell (1 / duration): the power lost between two is below 3 %.
_OVERSAMPLING = 6
# Stalls closer together than this share of their mean distance are a burst.
_BURST = 0.2
_MOST_EVENTS = 2000
_MOST_FREQUENCIES = 60_000


class Period(msgspec.Struct, frozen=True):
    """``chance``: of a train as regular as this among random stalls (an upper bound).
    ``cycles``: periods that the observation lasted; ``hit``: those in which a stall was seen.
    ``in_step``: share of all stalls that keep this time."""

    period_s: float
    amplitude_s: float
    chance: float
    cycles: int
    hit: int
    in_step: float
    phase_s: float


class Schedule(msgspec.Struct, frozen=True):
    """When reads were due: ``gaps_s`` between them, shape (reads - 1,), over ``duration_s``. They must vary:
    an even schedule may meet every stall of a train at the same point, and then says nothing about the
    rest."""

    duration_s: float
    gaps_s: NDArray[np.float64]

    @property
    def spacing_s(self) -> float:
        return self.duration_s / len(self.gaps_s)


def schedule_of(due_s: NDArray[np.float64]) -> Schedule:
    """Of the times at which reads were due, shape (reads,), ascending; two at least."""
    import numpy as np

    return Schedule(float(due_s[-1] - due_s[0]), np.diff(due_s))


class Stalls(msgspec.Struct, frozen=True):
    """Slow reads put together: ``starts`` seconds (when the first of them was due), ``lengths`` seconds
    above the usual latency, of the slowest of them."""

    starts: NDArray[np.float64]
    lengths: NDArray[np.float64]
    #: what a read took that nothing kept, and from which excess one counts as slow
    usual_s: float
    threshold_s: float


def stalls(
    due_s: NDArray[np.float64],
    latency_s: NDArray[np.float64],
    schedule: Schedule,
    measure: tuple[float, float] | None = None,
) -> Stalls:
    """The stalls in a schedule of reads: shapes (reads,), in the order of their times.

    A read is slow where it takes longer than the usual one by eight times the usual spread (between the
    median and the 90th percentile) and by half its length: neither a coarse clock nor a steady drive
    makes one."""
    import numpy as np

    if measure is None:
        usual = float(np.median(latency_s))
        spread = float(np.quantile(latency_s, 0.9)) - usual
        measure = usual, max(8 * spread, usual / 2)
    usual, threshold = measure
    slow = np.flatnonzero(latency_s - usual > threshold)
    if len(slow) == 0:
        empty = np.empty(0)
        return Stalls(empty, empty, usual, threshold)
    # reads that were due while an earlier one was under way belong to the same stall
    first = np.concatenate(
        ([True], np.diff(due_s[slow]) > np.maximum(latency_s[slow[:-1]], 2 * schedule.spacing_s))
    )
    group = np.cumsum(first) - 1
    lengths = np.zeros(group[-1] + 1)
    np.maximum.at(lengths, group, latency_s[slow] - usual)
    return Stalls(due_s[slow[first]], lengths, usual, threshold)


def find(found: Stalls, schedule: Schedule, seed: int = 1) -> Period | None:
    """The period of the stalls, or None."""
    import numpy as np

    duration_s = schedule.duration_s
    times, lengths = found.starts, found.lengths
    if len(times) > _MOST_EVENTS:  # the longest tell most
        keep = np.sort(np.argsort(lengths)[-_MOST_EVENTS:])
        times, lengths = times[keep], lengths[keep]
    apart = _BURST * duration_s / max(len(times), 1)
    times, lengths = _bursts(times, lengths, apart)
    if len(times) < LEAST_CYCLES * _CYCLES_HIT:
        return None
    frequencies = _frequencies(times, duration_s)
    if len(frequencies) == 0:
        return None
    power = _power(times, frequencies)
    greatest = float(power.max())
    chance = _chance(greatest, len(times), duration_s, apart, frequencies, seed)
    if chance > _CHANCE:
        return None
    for index in np.flatnonzero(power >= _STRONG * greatest):
        # a peak, not its flank
        if power[index] < power[max(0, index - _OVERSAMPLING) : index + _OVERSAMPLING + 1].max():
            continue
        train = _train(times, lengths, float(frequencies[index]), schedule, chance, found.usual_s)
        if train is not None:
            return train
    return None


def _bursts(
    times: NDArray[np.float64], lengths: NDArray[np.float64], apart_s: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of stalls that follow each other within ``apart_s`` the longest."""
    import numpy as np

    if len(times) == 0:
        return times, lengths
    group = np.cumsum(np.concatenate(([False], np.diff(times) > apart_s)))
    order = np.lexsort((-lengths, group))
    longest = order[np.concatenate(([True], np.diff(group[order]) > 0))]
    return times[longest], lengths[longest]


def _frequencies(times: NDArray[np.float64], duration_s: float) -> NDArray[np.float64]:
    """From LEAST_CYCLES cycles up to where a cycle of every second stall would be seen; evenly spaced."""
    import numpy as np

    low = LEAST_CYCLES / duration_s
    high = 2 * len(times) / duration_s
    count = min(int((high - low) * duration_s * _OVERSAMPLING) + 1, _MOST_FREQUENCIES)
    return low + np.arange(max(count, 0)) / (duration_s * _OVERSAMPLING)


def _power(times: NDArray[np.float64], frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rayleigh power at evenly spaced frequencies: one rotation a step instead of an exponential. Sets of
    times side by side, shape (..., events), give (..., frequencies). No BLAS: its threads would wait for each
    other on a busy machine."""
    import numpy as np

    found = np.empty((*times.shape[:-1], len(frequencies)))
    if len(frequencies) == 0:
        return found
    step = float(frequencies[1] - frequencies[0]) if len(frequencies) > 1 else 0.0
    turned = np.exp(2j * np.pi * frequencies[0] * times)
    rotation = np.exp(2j * np.pi * step * times)
    for index in range(len(frequencies)):
        total = turned.sum(axis=-1)
        found[..., index] = total.real**2 + total.imag**2
        turned *= rotation
    found /= times.shape[-1]
    return found


def _chance(
    greatest: float,
    events: int,
    duration_s: float,
    apart_s: float,
    frequencies: NDArray[np.float64],
    seed: int,
) -> float:
    """Of so great a power, somewhere, among random events: a bound by the exponential law over all
    frequencies (with a margin, as events that keep apart are not quite independent), and, where that is
    not clear, how often random sets reach it."""
    import numpy as np

    bound = min(1.0, len(frequencies) * float(np.exp(-_MARGIN * greatest)))
    sets = int(min(_SETS, _WORK / (events * len(frequencies))))
    if bound < _CLEAR or sets < 1 / _CHANCE:
        return bound
    random = np.random.default_rng(seed)
    spread = apart_s * np.arange(events)
    reached = 0
    for _ in range(0, sets, _TOGETHER):
        drawn = np.sort(random.uniform(0, duration_s - spread[-1], (_TOGETHER, events))) + spread
        reached += int((_power(drawn, frequencies).max(axis=-1) >= greatest).sum())
        if reached > 2 * _CHANCE * sets:  # no more can make it rare
            return reached / sets
    return (reached + 1) / (sets + 1)


def _train(
    times: NDArray[np.float64],
    lengths: NDArray[np.float64],
    frequency: float,
    schedule: Schedule,
    chance: float,
    usual_s: float,
) -> Period | None:
    import numpy as np

    period, phase = 1.0 / frequency, 0.0
    for _ in range(3):  # the phase by the mean direction, then period and phase by a line through the stalls
        angle = np.angle(np.sum(np.exp(2j * np.pi * times / period)))
        phase = float(angle / (2 * np.pi) * period)
        number = np.round((times - phase) / period)
        off = times - phase - number * period
        step = np.abs(off) <= _STEP * period
        if len(np.unique(number[step])) < LEAST_CYCLES * _CYCLES_HIT:
            return None
        slope, start = np.polyfit(number[step], times[step], 1)
        period, phase = float(slope), float(start)
    number = np.round((times - phase) / period)
    step = np.abs(times - phase - number * period) <= _STEP * period
    cycles = int(schedule.duration_s / period)
    hit = len(np.unique(number[step]))
    share = float(np.mean(step))
    if cycles < LEAST_CYCLES or hit < _CYCLES_HIT * cycles or share < _IN_STEP:
        return None
    return Period(
        period_s=period,
        amplitude_s=_amplitude(number[step], lengths[step], schedule, usual_s),
        chance=chance,
        cycles=cycles,
        hit=hit,
        in_step=share,
        phase_s=phase % period,
    )


def _amplitude(
    number: NDArray[np.float64], lengths: NDArray[np.float64], schedule: Schedule, usual_s: float
) -> float:
    """How long the drive stood still. A read that is under way when it stops is late by all of that; else
    the first read that meets the stall was due some time R after it began, and is late by the rest. R is
    the time from a random moment to the next read, so the mean lateness that a stall of length A shows
    follows from the gaps g of the schedule: A - E[max(0, min(g, A + u) - u)^2] / (2 E[min(g, A + u)]),
    with the usual latency u. The A that shows what was seen is looked for. The middle half of the stalls
    counts: others may have been lengthened by something else."""
    import numpy as np

    longest = np.sort([float(lengths[number == n].max()) for n in np.unique(number)])
    quarter = len(longest) // 4
    seen = float(np.mean(longest[quarter : len(longest) - quarter]))
    low, high = seen, 4 * seen + float(schedule.gaps_s.max())
    for _ in range(60):
        length = (low + high) / 2
        reach = np.minimum(schedule.gaps_s, length + usual_s)
        shown = length - float(np.mean(np.maximum(0.0, reach - usual_s) ** 2)) / (2 * float(np.mean(reach)))
        low, high = (length, high) if shown < seen else (low, length)
    return (low + high) / 2
