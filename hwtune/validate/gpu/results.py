"""What a run on a GPU is told with: facts for reports, in microseconds."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from hwtune.validate import stats

if TYPE_CHECKING:
    from hwtune.validate.gpu.engines import OnGpu
    from hwtune.validate.run import Run

OWN = "own"  # the precision of a model that the user brought
_ROUNDS = 200  # of a profile
_PROFILED = 3  # batch sizes: the ones that came most often


class Options(msgspec.Struct, frozen=True):
    """``index``: CUDA's number of the GPU. ``streams``: batches under way at once. ``deadline_s``: after
    which the GPU counts as lost."""

    index: int = 0
    streams: int = 1
    precision: str = "fp32"
    deadline_s: float = 2.0


class Timing(msgspec.Struct, frozen=True):
    """By the host's clock. A percentile that too few batches carry is null."""

    count: int
    p50_us: float | None
    p99_us: float | None
    max_us: float | None


class Parts(msgspec.Struct, frozen=True):
    """One graph's parts on the GPU, by its own events, in a pass of its own after the run: medians of
    ``rounds``. ``total_us`` is the median of their sums, which is what trtexec calls latency (with data
    transfers)."""

    rows: int
    rounds: int
    copy_in_us: float
    compute_us: float
    copy_out_us: float
    total_us: float


class Clocks(msgspec.Struct, frozen=True):
    """Seen through NVML while it ran; null where it does not say. ``why``: there are none."""

    samples: int
    why: str
    sm_mhz_low: int | None = None
    sm_mhz_high: int | None = None
    memory_mhz_low: int | None = None
    temperature_c_high: int | None = None
    pcie_generation_low: int | None = None
    pcie_width_low: int | None = None
    #: hwtune.model.gpu.EVENT_REASONS that were seen at least once
    event_reasons: tuple[str, ...] = ()


class GpuRun(msgspec.Struct, frozen=True):
    """``launch``: in the calls that launch a batch; ``wait``: from then until its answer was seen. ``cuda``:
    the newest that the driver serves. ``precision``: "own" is the model's. ``sizes``: rows of the graphs, a
    batch takes the first that holds it. ``floor_us``: of a graph with nothing in it, from its launch until
    its end was seen, the median. ``difference``: the largest from the CPU engine's scores, null for a model
    of one's own; ``equal``: within ``tolerance``."""

    name: str
    pci: str
    capability: str
    cuda: str
    precision: str
    streams: int
    sizes: list[int]
    launch: Timing
    wait: Timing
    parts: list[Parts]
    parts_why: str
    floor_us: float | None
    weights_bytes: int | None
    l2_bytes: int
    weights_fit_l2: bool | None
    difference: float | None
    tolerance: float | None
    equal: bool | None
    clocks: Clocks
    notes: tuple[str, ...] = ()


def tell(made: OnGpu, run: Run, difference: float | None, clocks: Clocks) -> GpuRun:
    """After the run; asks the GPU for the profile, if it still answers."""
    from hwtune.validate.gpu.engines import TOLERANCE

    engine, device, options = made.engine, made.device, made.options
    limit = TOLERANCE[options.precision] if made.reference else None
    parts, floor, why = _profile(engine, run)
    return GpuRun(
        name=device.name,
        pci=device.pci,
        capability=".".join(str(number) for number in device.capability),
        cuda=f"{device.driver // 1000}.{device.driver % 1000 // 10}",
        precision=options.precision if made.reference else OWN,
        streams=options.streams,
        sizes=list(engine.sizes),
        launch=_timing(engine.launch),
        wait=_timing(engine.wait),
        parts=parts,
        parts_why=why,
        floor_us=floor,
        weights_bytes=made.weights_bytes,
        l2_bytes=device.l2_bytes,
        weights_fit_l2=None if made.weights_bytes is None else made.weights_bytes <= device.l2_bytes,
        difference=difference,
        tolerance=limit,
        equal=None if difference is None or limit is None else difference <= limit,
        clocks=clocks,
        notes=made.notes,
    )


def _timing(histogram: Any) -> Timing:
    count: int = histogram.count

    def at(quantile: float) -> float | None:
        enough = count >= stats.least_samples(quantile)
        return histogram.value_at(quantile) / 1000 if enough else None

    return Timing(count, at(0.5), at(0.99), histogram.max / 1000 if count else None)


def _profile(engine: Any, run: Run) -> tuple[list[Parts], float | None, str]:
    """The parts, the floor, and why there is none of them."""
    if run.failure:
        return [], None, "the GPU failed"
    often = sorted(run.batches, key=lambda rows: -run.batches[rows])[:_PROFILED]
    if not often:
        return [], None, "no batch was measured"
    try:
        parts = [_parts(engine, rows) for rows in sorted(often)]
        return parts, median(engine.floor(_ROUNDS)), ""
    except RuntimeError as error:
        return [], None, str(error)


def _parts(engine: Any, rows: int) -> Parts:
    import numpy as np

    times = np.array(engine.profile(rows, _ROUNDS), dtype=np.float64)  # (rounds, 3)
    copy_in, compute, copy_out = np.median(times, axis=0)
    whole = float(np.median(times.sum(axis=1)))
    return Parts(rows, len(times), float(copy_in), float(compute), float(copy_out), whole)
