"""What a report tells of a run on a GPU: entries, sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.validate.gpu.results import OWN
from hwtune.validate.reading import us

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hwtune.validate.gpu.results import Clocks, GpuRun, Timing

# What holds clocks down and is nobody's wish (NvmlClocksEventReasons).
_SLOWED = (
    "sw_power_cap",
    "hw_slowdown",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
)


def sentences(gpu: GpuRun) -> Iterator[tuple[str, str, str]]:
    """(name, kind, sentences) as ``text.Entry`` has them."""
    streams = "one stream" if gpu.streams == 1 else f"{gpu.streams} streams"
    told = f"{gpu.name} at {gpu.pci}, compute capability {gpu.capability}, driver for CUDA {gpu.cuda}; "
    precision = "the model's own precision" if gpu.precision == OWN else gpu.precision
    yield "GPU", "", f"{told}{precision}, {streams}, graphs of {_sizes(gpu.sizes)}."
    floor = "" if gpu.floor_us is None else f" A graph with nothing in it takes {us(gpu.floor_us)} in all."
    host = f"launch {_timing(gpu.launch)}; wait for the answer {_timing(gpu.wait)}."
    yield "on the host", "", f"{host}{floor}"
    yield "on the GPU", "", _parts(gpu)
    if gpu.weights_bytes is not None:
        place = "fit" if gpu.weights_fit_l2 else "do not fit"
        yield (
            "weights",
            "" if gpu.weights_fit_l2 else "warning",
            f"{gpu.weights_bytes / 1e6:.2f} MB {place} the L2 cache ({gpu.l2_bytes / 1e6:.1f} MB).",
        )
    if gpu.difference is not None:
        told = f"apart from the CPU engine's by {gpu.difference:.2g} at most"
        if gpu.tolerance is not None:
            told += f", {'within' if gpu.equal else 'beyond'} {gpu.tolerance:g}"
        yield "scores", "warning" if gpu.equal is False else "", f"{told}."
    yield _clocks(gpu.clocks)
    for note in gpu.notes:
        yield "note", "", note


def _sizes(sizes: list[int]) -> str:
    if sizes == list(range(sizes[0], sizes[-1] + 1)) and len(sizes) > 2:
        return f"{sizes[0]} to {sizes[-1]} rows"
    return ", ".join(str(size) for size in sizes) + (" row" if sizes == [1] else " rows")


def _timing(timing: Timing) -> str:
    told = [
        f"{name} {us(value)}"
        for name, value in (("P50", timing.p50_us), ("P99", timing.p99_us), ("max", timing.max_us))
        if value is not None
    ]
    return ", ".join(told) or "not measured"


def _parts(gpu: GpuRun) -> str:
    if not gpu.parts:
        return f"not told: {gpu.parts_why}."
    told = "; ".join(
        f"{part.rows} row{'s' if part.rows > 1 else ''}: copy in {us(part.copy_in_us)}, compute "
        f"{us(part.compute_us)}, "
        f"copy out {us(part.copy_out_us)}, in all {us(part.total_us)}"
        for part in gpu.parts
    )
    return (
        f"{told} (medians by events, in a pass of its own). Their sum is what trtexec calls latency with "
        "data "
        "transfers; it has neither the launch nor the wait for the answer in it, which the inference stage "
        "has."
    )


def _clocks(clocks: Clocks) -> tuple[str, str, str]:
    if not clocks.samples:
        return "clocks", "warning", f"not known: {clocks.why}."
    told = []
    if clocks.sm_mhz_low is not None and clocks.sm_mhz_high is not None:
        told.append(f"SM {clocks.sm_mhz_low:,} to {clocks.sm_mhz_high:,} MHz")
    if clocks.memory_mhz_low is not None:
        told.append(f"memory {clocks.memory_mhz_low:,} MHz at least")
    if clocks.temperature_c_high is not None:
        told.append(f"{clocks.temperature_c_high} C at most")
    if clocks.pcie_generation_low is not None and clocks.pcie_width_low is not None:
        told.append(f"PCIe generation {clocks.pcie_generation_low} x{clocks.pcie_width_low}")
    if clocks.event_reasons:
        told.append(f"held down by {', '.join(clocks.event_reasons)}")
    slowed = any(reason in _SLOWED for reason in clocks.event_reasons)
    seen = "1 look" if clocks.samples == 1 else f"{clocks.samples:,} looks"
    return (
        "clocks",
        "warning" if slowed else "",
        f"{', '.join(told) or 'NVML tells nothing'} ({seen} during the run).",
    )
