"""Whether a drive takes longer for the first read after a rest: what sleeps must wake up.

All splits of the rests into short and long ones are tried; the one whose long rests differ most (Mann and
Whitney's z) is compared with what shuffled rests give, so that the search over splits is paid for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.drive.results import Rest, Waking

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hwtune.drive.analysis import Cleaned
    from hwtune.drive.measure import Reads
    from hwtune.drive.schedule import Rests

CHANCE = 0.001
_SHUFFLES = 4999
# A cost below is no matter to anybody; nor is one that is a small part of what a read takes.
_LEAST_US, _LEAST_SHARE = 3.0, 0.1
_LEAST_READS = 12


def judge(measured: tuple[Rests, Reads], cleaned: Cleaned, seed: int) -> tuple[list[Rest], Waking | None]:
    """What first reads took by how long the rest was, and whether that makes a difference."""
    import numpy as np

    plan, _ = measured
    # reads that failed, or were not reached, have no entry: matched by when they were due
    due = np.round(cleaned.due * 1e9).astype(np.int64)
    wanted = plan.due_ns[plan.first].astype(np.int64)
    at = np.clip(np.searchsorted(due, wanted), 0, max(len(due) - 1, 0))
    made = np.zeros(len(wanted), dtype=bool) if len(due) == 0 else np.abs(due[at] - wanted) <= 1
    rest, took = plan.rest_ms[made], cleaned.drive[at[made]] if made.any() else np.empty(0)
    steps = [
        Rest(
            float(r),
            int((rest == r).sum()),
            1e6 * float(np.median(took[rest == r])),
            1e6 * float(took[rest == r].max()),
        )
        for r in np.unique(rest)
    ]
    return steps, waking(rest, took * 1e6, seed)


def waking(rest_ms: NDArray[np.float64], took_us: NDArray[np.float64], seed: int) -> Waking | None:
    """Shapes (rests,)."""
    import numpy as np

    if len(rest_ms) < _LEAST_READS or len(np.unique(rest_ms)) < 2:
        return None
    order = np.argsort(rest_ms, kind="stable")
    rest, took = rest_ms[order], took_us[order]
    splits = np.flatnonzero(np.diff(rest)) + 1
    splits = splits[(splits >= 4) & (splits <= len(rest) - 4)]
    if len(splits) == 0:
        return None
    ranks = np.argsort(np.argsort(took, kind="stable")).astype(np.float64)
    z = _z(ranks, splits)
    best = int(np.argmax(z))
    random = np.random.default_rng(seed)
    shuffled = random.permuted(np.broadcast_to(ranks, (_SHUFFLES, len(ranks))), axis=1)
    chance = (int((_z(shuffled, splits).max(axis=-1) >= z[best]).sum()) + 1) / (_SHUFFLES + 1)
    cut = splits[best]
    usual = float(np.median(took[:cut]))
    cost = float(np.median(took[cut:])) - usual
    if chance > CHANCE or cost < max(_LEAST_US, _LEAST_SHARE * usual):
        return None
    return Waking(float(rest[cut - 1]), float(rest[cut]), cost, chance)


def _z(ranks: NDArray[np.float64], splits: NDArray[np.intp]) -> NDArray[np.float64]:
    """How much higher the ranks from each split on are, in standard deviations; sets of ranks in the last
    axis."""
    import numpy as np

    count = ranks.shape[-1]
    after = count - splits
    total = ranks.sum(axis=-1, keepdims=True) - np.cumsum(ranks, axis=-1)[..., splits - 1]
    mean = after * (count - 1) / 2
    spread = np.sqrt(after * splits * (count + 1) / 12)
    found: NDArray[np.float64] = (total - mean) / spread
    return found
