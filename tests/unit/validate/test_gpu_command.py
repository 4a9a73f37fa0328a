"""``hwtune validate --engine cuda``, whole, over a driver without a GPU; and what it says where something
lacks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hwtune.errors import ToolError, UsageError
from hwtune.validate.gpu import cuda, nvrtc
from tests.support import fake_cuda, fake_nvml, fake_nvrtc

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    folder = fake_cuda.build(tmp_path_factory.mktemp("cuda"))
    shutil.copy(fake_nvml.build(tmp_path_factory.mktemp("nvml")) / "libnvidia-ml.so.1", folder)
    return folder


@pytest.fixture
def validate(fake, tmp_path):
    """Runs the command: (exit status, stdout, stderr)."""

    def run(*arguments, scenario=(), libraries=fake, nvrtc=True, nvml=None, told=None):
        environment = {
            **os.environ,
            **fake_cuda.environment(libraries, tmp_path, ["driver = 13000", *scenario]),
        }
        places = [str(fake_nvrtc.install(tmp_path / "python"))] if nvrtc else []
        environment["PYTHONPATH"] = os.pathsep.join([*places, str(ROOT)])
        environment["FAKE_NVRTC"] = json.dumps(told or {})
        (tmp_path / "nvml").write_text(nvml or "", encoding="utf-8")
        environment["FAKE_NVML_SCENARIO"] = str(tmp_path / "nvml") if nvml else "/nonexistent"
        command = [
            sys.executable,
            "-m",
            "hwtune",
            "validate",
            "--engine",
            "cuda",
            "--warmup",
            "200ms",
            *arguments,
        ]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90)
        return done.returncode, done.stdout, done.stderr

    return run


FAST = ("--duration", "2s", "--rate", "300", "--sla-us", "5000000", "--format", "json")


def test_a_run_tells_what_the_gpu_did(validate, tmp_path):
    # The link fell back to generation 1, and power held the clocks down.
    gpu = {
        **fake_nvml.A100,
        "nvmlDeviceGetClockInfo(1)": "1110",
        "nvmlDeviceGetCurrPcieLinkGeneration": "1",
        "nvmlDeviceGetCurrentClocksEventReasons": "4",
    }
    scenario = ["in_us = 7", "compute_us = 31", "out_us = 3", "compute = 1"]
    status, out, err = validate(*FAST, scenario=scenario, nvml=fake_nvml.scenario(gpu))
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert report["engine"] == "cuda (Fake GPU 0, fp32)"
    assert report["failure"] == ""
    told = report["gpu"]
    assert (told["name"], told["pci"], told["capability"], told["cuda"]) == (
        "Fake GPU 0",
        "0000:07:00.0",
        "8.0",
        "13.0",
    )
    assert (told["precision"], told["streams"], told["sizes"]) == ("fp32", 1, list(range(1, 33)))
    batches = sum(report["batches"].values())
    assert told["launch"]["count"] == batches
    assert abs(told["wait"]["count"] - batches) <= 1
    assert told["wait"]["p50_us"] >= 20
    for part in told["parts"]:
        assert part["copy_in_us"] == pytest.approx(7, rel=1e-3)
        assert part["compute_us"] == pytest.approx(31, rel=1e-3)
        assert part["copy_out_us"] == pytest.approx(3, rel=1e-3)
        assert part["total_us"] == pytest.approx(41, rel=1e-3)
    assert [part["rows"] for part in told["parts"]] == sorted(part["rows"] for part in told["parts"])
    assert 0 < told["floor_us"] < 10_000
    assert told["weights_bytes"] == 205_825 * 4
    assert told["weights_fit_l2"] is True  # of 40 MiB
    assert told["difference"] < told["tolerance"] == 1e-5
    assert told["equal"] is True
    clocks = told["clocks"]
    assert clocks["samples"] >= 1
    assert (clocks["sm_mhz_low"], clocks["sm_mhz_high"], clocks["temperature_c_high"]) == (1110, 1110, 31)
    assert (clocks["pcie_generation_low"], clocks["pcie_width_low"]) == (1, 16)
    assert clocks["event_reasons"] == ["sw_power_cap"]
    assert fake_cuda.complaints(tmp_path) == []


def test_a_person_is_told_the_same(validate):
    arguments = (*FAST[:-2], "--precision", "fp16", "--streams", "2")
    status, out, err = validate(*arguments, scenario=["in_us = 7", "compute_us = 31", "out_us = 3"])
    assert (status, err) == (0, "")
    words = " ".join(out.split())
    assert (
        "Fake GPU 0 at 0000:07:00.0, compute capability 8.0, driver for CUDA 13.0; fp16, 2 streams" in words
    )
    assert "1 row: copy in 7.0 us, compute 31.0 us, copy out 3.0 us, in all 41.0 us" in words
    assert "Their sum is what trtexec calls latency with data transfers" in words
    assert "0.41 MB fit the L2 cache (41.9 MB)" in words
    assert "apart from the CPU engine's by 0.00" in words
    assert "clocks not known: NVML cannot be asked" in words


@pytest.mark.parametrize(
    "scenario, sentence",
    [
        (["query = 719 150"], "the engine failed: cuEventQuery: CUDA_ERROR_LAUNCH_FAILED (719)"),
        (["launch = 999 150"], "the engine failed: cuGraphLaunch: CUDA_ERROR_UNKNOWN (999)"),
        (["hang = 150"], "the engine failed: the GPU did not answer within 2000 ms"),
    ],
)
def test_a_gpu_lost_in_the_middle_is_3_with_a_report(validate, tmp_path, scenario, sentence):
    status, out, err = validate(*FAST[2:], "--duration", "60s", scenario=scenario)
    assert status == 3
    assert sentence in err
    assert err.count("\n") == 1
    report = json.loads(out)
    # 32 launches made the engine and 8 compared it
    assert 10 <= report["completed"] < report["due"]
    assert sentence.removeprefix("the engine failed: ") in report["failure"]
    assert (report["gpu"]["parts"], report["gpu"]["parts_why"]) == ([], "the GPU failed")
    assert fake_cuda.complaints(tmp_path) == []


REFUSED = {
    "no NVRTC": (
        {"nvrtc": False},
        2,
        "the kernel is compiled by NVRTC, which is not installed: pip install 'hwtune[gpu]'",
    ),
    "no library of it": ({"told": {"version": None}}, 2, "which is not installed: pip install 'hwtune[gpu]'"),
    "a driver of CUDA 12, NVRTC of 13": (
        {"told": {"version": [13, 5]}, "scenario": ["driver = 12040"]},
        3,
        "NVRTC 13.5 makes code for CUDA 13, and the driver serves CUDA 12.4 at most: update the driver, or "
        "pip install "
        "'hwtune[gpu-cuda12]'",
    ),
    "an old GPU": (
        {"scenario": ["capability = 61"]},
        3,
        "a GPU of compute capability 6.1 is older than what NVRTC 13.5 makes code for (7.5 and later)",
    ),
    "a kernel that does not compile": (
        {"told": {"log": "perceptron.cu(9): error: no\n1 error\n"}, "scenario": ["driver = 13000"]},
        3,
        "NVRTC does not compile perceptron.cu for sm_80: perceptron.cu(9): error: no 1 error",
    ),
    "no GPU": (
        {"scenario": ["devices = 0"]},
        3,
        "no engine can run on a GPU here: cuInit: CUDA_ERROR_NO_DEVICE (100)",
    ),
    "no driver": (
        {"libraries": Path("/nonexistent")},
        3,
        "no engine can run on a GPU here: there is no NVIDIA driver",
    ),
    "no memory": (
        {"scenario": ["allowed = 1000"]},
        3,
        "the GPU cannot run the engine: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)",
    ),
    "wrong scores": (
        {"scenario": ["compute = 0"]},
        3,
        "the engine cuda (Fake GPU 0, fp32) computes something else than the CPU engine (apart by nan); "
        "times of a "
        "wrong result mean nothing",
    ),
    "lost at the comparison": (
        {"scenario": ["launch = 719 34"]},
        3,
        "the engine cuda (Fake GPU 0, fp32) failed before the run: cuGraphLaunch: CUDA_ERROR_LAUNCH_FAILED "
        "(719)",
    ),
}


@pytest.mark.parametrize("how, expected, sentence", REFUSED.values(), ids=REFUSED)
def test_what_lacks_is_one_sentence(validate, tmp_path, how, expected, sentence):
    status, out, err = validate(*FAST, **how)
    assert (status, out) == (expected, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert fake_cuda.complaints(tmp_path) == []


def test_a_gpu_that_is_not_there_is_a_usage_error(validate):
    status, out, err = validate(*FAST, "--gpu", "1")
    assert (status, out) == (2, "")
    assert "--gpu 1: there is no GPU 1: CUDA sees 1" in err


def test_int8_is_refused(validate):
    status, _, err = validate(*FAST, "--precision", "int8")
    assert status == 2
    assert "--engine cuda has fp32 and fp16, not int8" in err


def test_a_newer_gpu_gets_ptx_of_the_newest_architecture_known(monkeypatch):
    monkeypatch.setattr(nvrtc, "_nvrtc", lambda: fake_nvrtc)
    assert nvrtc.image(b"", "k.cu", (12, 0), 13000).startswith(b"//")
    assert nvrtc.image(b"", "k.cu", (9, 0), 13000).startswith(b"\x7fELF")


def test_a_smaller_minor_version_of_the_driver_takes_a_cubin(monkeypatch):
    monkeypatch.setattr(nvrtc, "_nvrtc", lambda: fake_nvrtc)
    assert nvrtc.image(b"", "k.cu", (8, 0), 13000).startswith(b"\x7fELF")
    with pytest.raises(ToolError, match=r"serves CUDA 12\.9 at most"):
        nvrtc.image(b"", "k.cu", (8, 0), 12090)


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (12, 0), (99, 0)])
def test_the_real_compiler_takes_the_kernel(capability):
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings")
    try:
        image = nvrtc.image(cuda.SOURCE.read_bytes(), "perceptron.cu", capability, 999_000)
    except UsageError:
        pytest.skip("needs NVRTC")
    assert image.startswith(b"//" if capability == (99, 0) else b"\x7fELF")
    for precision in ("fp32", "fp16"):
        assert f"hwtune_perceptron_{precision}".encode() in image


def test_parameters_are_laid_out_as_the_kernel_reads_them():
    import numpy as np

    from hwtune.validate import perceptron

    whole = np.frombuffer(cuda.parameters("fp32"), np.float32)
    layers = perceptron.parameters()
    assert whole.size == 205_825
    assert whole[3 * 512 + 5] == layers[0][0][3, 5]  # weights, input by input
    assert whole[64 * 512 + 7] == layers[0][1][7]  # then the biases
    assert whole[-1] == 2.0  # the last layer's bias
    assert len(cuda.parameters("fp16")) == 205_825 * 2
