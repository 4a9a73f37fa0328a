"""What reports tell of a run on a GPU, from known facts."""

from __future__ import annotations

import json

import jsonschema
import msgspec
import pytest

from hwtune.report.published import encode
from hwtune.report.schema import schema
from hwtune.report.terminal import Style
from hwtune.report.validation import gpu, html, junit, prometheus, text
from hwtune.report.validation.published import About, publish
from hwtune.validate.gpu.results import Clocks, GpuRun, Parts, Timing
from hwtune.validate.results import judge
from tests.support import runs

ABOUT = About("box7", "6.1.0", 1_700_000_000.0, "", "poisson", "", 1)
RUN = GpuRun(
    name="NVIDIA H100", pci="0000:18:00.0", capability="9.0", cuda="13.0", precision="fp16", streams=1,
    sizes=[1, 2, 4, 8, 16, 32], launch=Timing(5000, 2.5, 4.25, 31.0), wait=Timing(100, 9.0, None, 40.0),
    parts=[Parts(1, 200, 1.5, 6.25, 1.25, 9.0), Parts(4, 200, 1.5, 6.5, 1.25, 9.25)], parts_why="",
    floor_us=4.5, weights_bytes=411_650, l2_bytes=52_428_800, weights_fit_l2=True, difference=2.1e-3,
    tolerance=1e-3, equal=False, clocks=Clocks(9, "", 1410, 1980, 2619, 41, 5, 16, ("gpu_idle",)),
    notes=("The engine was built by an earlier run.",),
)  # fmt: skip


def told(run):
    return {name: (kind, says) for name, kind, says in gpu.sentences(run)}


def test_each_fact_is_told():
    found = told(RUN)
    assert found["GPU"] == (
        "",
        "NVIDIA H100 at 0000:18:00.0, compute capability 9.0, driver for CUDA 13.0; fp16, one stream, "
        "graphs of 1, 2, "
        "4, 8, 16, 32 rows.",
    )
    assert found["on the host"][1] == (
        "launch P50 2.5 us, P99 4.2 us, max 31.0 us; wait for the answer P50 9.0 us, max 40.0 us. A graph "
        "with nothing in it takes 4.5 us in all."
    )
    assert found["on the GPU"][1].startswith(
        "1 row: copy in 1.5 us, compute 6.2 us, copy out 1.2 us, in all 9.0 us; 4 rows: copy in 1.5 us"
    )
    assert found["weights"] == ("", "0.41 MB fit the L2 cache (52.4 MB).")
    assert found["scores"] == ("warning", "apart from the CPU engine's by 0.0021 at most, beyond 0.001.")
    assert found["clocks"] == (
        "",
        "SM 1,410 to 1,980 MHz, memory 2,619 MHz at least, 41 C at most, PCIe generation 5 x16, held down "
        "by gpu_idle "
        "(9 looks during the run).",
    )
    assert found["note"] == ("", "The engine was built by an earlier run.")


@pytest.mark.parametrize(
    "changes, name, kind, words",
    [
        ({"weights_fit_l2": False}, "weights", "warning", "do not fit"),
        ({"difference": 1e-6, "tolerance": 1e-5, "equal": True}, "scores", "", "within 1e-05"),
        ({"tolerance": None, "equal": None}, "scores", "", "by 0.0021 at most."),
        ({"parts": [], "parts_why": "the GPU failed"}, "on the GPU", "", "not told: the GPU failed."),
        ({"clocks": Clocks(0, "no NVML")}, "clocks", "warning", "not known: no NVML."),
        (
            {"clocks": Clocks(1, "", event_reasons=("hw_slowdown",))},
            "clocks",
            "warning",
            "held down by hw_slowdown (1 look",
        ),
        ({"precision": "own"}, "GPU", "", "the model's own precision, one stream"),
        ({"sizes": [1]}, "GPU", "", "graphs of 1 row."),
        ({"sizes": [1, 2, 3, 4], "streams": 3}, "GPU", "", "3 streams, graphs of 1 to 4 rows."),
        ({"launch": Timing(0, None, None, None)}, "on the host", "", "launch not measured;"),
    ],
)
def test_what_differs_is_told(changes, name, kind, words):
    found = told(msgspec.structs.replace(RUN, **changes))
    assert found[name][0] == kind
    assert words in found[name][1]


def test_a_model_of_ones_own_has_no_weights_and_no_difference():
    found = told(msgspec.structs.replace(RUN, weights_bytes=None, weights_fit_l2=None, difference=None))
    assert "weights" not in found
    assert "scores" not in found


def test_all_formats_take_it():
    results = judge(runs.run(gpu=RUN), runs.placement(), runs.budget())
    report = json.loads(encode(publish(results, ABOUT)))
    jsonschema.validate(report, schema("validate"))
    assert report["gpu"]["parts"][1]["compute_us"] == 6.5
    assert "NVIDIA H100 at 0000:18:00.0" in text.render(results, ABOUT, Style(80, False))
    assert "NVIDIA H100 at 0000:18:00.0" in html.render(results, ABOUT).decode()
    for module in (junit, prometheus):
        assert module.render(results, ABOUT)


def test_a_run_on_the_cpu_has_none():
    results = judge(runs.run(), runs.placement(), runs.budget())
    assert json.loads(encode(publish(results, ABOUT)))["gpu"] is None
