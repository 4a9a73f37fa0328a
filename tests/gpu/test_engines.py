"""The engines on the GPU at hand: scores, streams, times, and the command whole."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from hwtune import _native
from hwtune.validate import perceptron
from hwtune.validate.gpu import engines
from hwtune.validate.gpu.results import Options

pytestmark = pytest.mark.gpu

NAMES = [
    "cuda",
    pytest.param(
        "tensorrt", marks=pytest.mark.skipif(find_spec("tensorrt") is None, reason="needs TensorRT")
    ),
]
# FP16: halves of weights alone make 0.003 on such rows.
APART = {"fp32": 1e-5, "fp16": 2e-2, "int8": 0.15}


def some_rows(count, seed=1):
    return np.random.default_rng(seed).uniform(-1, 1, (count, 64)).astype(np.float32)


def make(name, precision="fp32", streams=1, batch=32):
    clock = _native.make_clock()
    return engines.make(name, None, None, Options(0, streams, precision), batch, -1, clock).engine


@pytest.mark.parametrize("precision", APART)
@pytest.mark.parametrize("name", NAMES)
def test_scores_are_those_of_the_model(device, name, precision):
    if (name, precision) == ("cuda", "int8"):
        pytest.skip("there is no such kernel")
    made = make(name, precision)
    for count in (1, 2, 3, 31, 32, 1000):
        rows = some_rows(count, count)
        np.testing.assert_allclose(made.infer(rows), perceptron.scores(rows), rtol=0, atol=APART[precision])


@pytest.mark.parametrize("name", NAMES)
def test_the_same_rows_give_the_same_scores_again_and_again(device, name):
    made = make(name)
    rows = some_rows(320)
    first = made.infer(rows)
    for _ in range(200):
        np.testing.assert_array_equal(made.infer(rows), first)


@pytest.mark.parametrize("name", NAMES)
def test_the_parts_are_within_what_the_host_sees(device, name):
    made = make(name)
    rows = some_rows(32)
    for _ in range(300):
        made.infer(rows)
    parts = np.array(made.profile(32, 300))
    assert (parts > 0).all()
    seen_us = (made.launch.value_at(0.5) + made.wait.value_at(0.5)) / 1000
    # events between nodes cost a few microseconds of their own
    assert np.median(parts[:, 1]) < seen_us
    assert np.median(parts.sum(axis=1)) < seen_us + 15


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_the_command_whole(device, name, streams):
    command = [sys.executable, "-m", "hwtune", "validate", "--engine", name, "--streams", str(streams)]
    command += ["--duration", "3s", "--rate", "5000", "--sla-us", "100000", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    told = report["gpu"]
    assert report["completed"] == report["due"]
    assert told["equal"] is True
    assert told["parts"]
    assert told["name"] == device.name
    assert told["clocks"]["samples"] >= 1
    assert told["wait"]["p50_us"] <= report["stages"]["inference"]["p50_us"] * 1.05
