"""TensorRT: what is built, with 10 and with 11, where it is kept, and the command over a driver without a
GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hwtune.errors import ToolError, UsageError
from hwtune.validate import perceptron
from hwtune.validate.gpu import engine_cache, tensorrt, tensorrt_build
from hwtune.validate.gpu.engine_cache import Key
from tests.support import fake_cuda, fake_tensorrt

ROOT = Path(__file__).parents[3]


@pytest.fixture
def trt(monkeypatch):
    """Puts a tensorrt of a version, or with a fault, in the place of the real one."""

    def put(**scene):
        monkeypatch.setenv("FAKE_TENSORRT", json.dumps(scene))
        spec = importlib.util.spec_from_file_location("tensorrt", fake_tensorrt.__file__)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "tensorrt", module)
        spec.loader.exec_module(module)
        return module

    return put


def network(module, precision):
    kept = []
    made = module.Network(0)
    tensorrt_build.define(made, precision, kept)
    return made, kept


# -- the network -----------------------------------------------------------------------------


@pytest.mark.parametrize("precision, limit", [("fp32", 1e-5), ("fp16", 2e-2), ("int8", 0.15)])
def test_the_network_is_the_perceptron(trt, precision, limit):
    module = trt()
    made, kept = network(module, precision)
    (given,) = made.outputs
    assert ((given.name, given.dtype, given.shape), made.num_inputs) == (
        ("scores", module.float32, (-1, 1)),
        1,
    )
    assert (made.get_input(0).name, made.get_input(0).dtype) == ("rows", module.float32)
    rows = np.random.default_rng(2).uniform(-1, 1, (500, 64)).astype(np.float32)
    apart = np.abs(module.evaluate(given, rows)[:, 0] - perceptron.scores(rows))
    assert apart.max() < limit
    assert np.median(apart) < limit / 4
    if precision != "fp32":
        assert apart.max() > 1e-5  # it is another precision indeed
    assert len(kept) >= 10


def test_int8_quantizes_the_inputs_and_weights_of_all_layers_but_the_last(trt):
    made, _ = network(trt(), "int8")
    kinds = []

    def walk(tensor):
        kinds.append(tensor.op[0])
        for part in tensor.op[1:]:
            if hasattr(part, "op"):
                walk(part)

    walk(made.outputs[0])
    assert (kinds.count("quantize"), kinds.count("dequantize"), kinds.count("product")) == (8, 8, 5)


@pytest.mark.parametrize("version, flags", [("10.0.1", 2), ("10.13.0.35", 2), ("11.1.0.106", 0)])
def test_networks_are_strongly_typed_in_10_and_11(trt, version, flags):
    trt(version=version)
    plan, timings = tensorrt_build.build(tensorrt_build.make_log(), None, "fp16", b"")
    _, ports, profile, told = pickle.loads(plan[4:])
    assert told["flags"] == flags
    assert (told["tf32"], told["aux"]) == (False, 0)
    assert profile == [(1, 64), (32, 64), (128, 64)]
    assert [port[0] for port in ports] == ["rows", "scores"]
    assert timings == b"timed;"


def test_a_timing_cache_grows_and_one_that_does_not_fit_is_left(trt):
    trt()
    log = tensorrt_build.make_log()
    assert tensorrt_build.build(log, None, "fp32", b"timed;")[1] == b"timed;timed;"
    trt(stale=True)
    assert tensorrt_build.build(tensorrt_build.make_log(), None, "fp32", b"another GPU's;")[1] == b"timed;"


def test_what_does_not_build_is_one_sentence(trt):
    trt(build="no\nmemory")
    with pytest.raises(ToolError, match=r"^TensorRT cannot build the engine: no memory$"):
        tensorrt_build.build(tensorrt_build.make_log(), None, "fp32", b"")


@pytest.mark.parametrize(
    "content, sentence",
    [
        ("<html>", "TensorRT cannot read the model .*model.onnx: no such operator$"),
        ('{"batch": -1, "width": 63}', r"model.onnx takes \[-1, 63\]; it needs float32 \[N, 64\]$"),
        ('{"batch": -1, "width": 64, "inputs": 2}', "model.onnx has 2 inputs; it needs one"),
    ],
)
def test_a_model_that_cannot_be_built_is_told(trt, tmp_path, content, sentence):
    trt()
    path = tmp_path / "model.onnx"
    path.write_text(content)
    with pytest.raises(UsageError, match=sentence):
        tensorrt_build.build(tensorrt_build.make_log(), str(path), "fp32", b"")


@pytest.mark.parametrize("version", ["8.6.1", "9.3.0", "12.0.0"])
def test_another_version_is_told(trt, version):
    trt(version=version)
    with pytest.raises(UsageError, match=f"needs TensorRT 10 or 11, {version} is installed"):
        tensorrt.installed()


def test_a_missing_tensorrt_is_told_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(UsageError, match=r"pip install 'hwtune\[tensorrt\]'"):
        tensorrt.installed()


# -- what a plan takes and gives -------------------------------------------------------------

ROWS = ("in", "INPUT", "FLOAT", (-1, 64))
SCORES = ("out", "OUTPUT", "FLOAT", (-1, 1))
PROFILE = [(2, 64), (8, 64), (48, 64)]


def loaded(module, *ports, profile=PROFILE):
    log = tensorrt_build.make_log()
    return tensorrt._load(log, module.a_plan(*ports, profile=profile), "a.plan", module.__version__)


def test_ports_and_sizes_are_those_of_the_plan(trt):
    module = trt()
    ports = tensorrt.ports_of(loaded(module, SCORES, ROWS), "a.plan")
    assert ports == tensorrt.Ports("in", "out", 2, 48)
    assert tensorrt.sizes_of(ports, 32) == [2, 4, 8, 16, 32]
    assert tensorrt.sizes_of(ports, 128) == [2, 4, 8, 16, 32, 48]
    assert tensorrt.sizes_of(tensorrt.Ports("in", "out", 40, 48), 32) == [40]
    assert tensorrt.sizes_of(tensorrt.Ports("in", "out", 1, 128), 32) == [1, 2, 4, 8, 16, 32]
    fixed = tensorrt.ports_of(
        loaded(module, ("in", "INPUT", "FLOAT", (8, 64)), ("out", "OUTPUT", "FLOAT", (8,)), profile=None),
        "a.plan",
    )
    assert tensorrt.sizes_of(fixed, 32) == [8]


@pytest.mark.parametrize(
    "ports, words",
    [
        ([ROWS, ("more", "INPUT", "FLOAT", (-1, 64)), SCORES], "has 2 inputs and 1 outputs"),
        ([ROWS, SCORES, ("more", "OUTPUT", "FLOAT", (-1, 1))], "has 1 inputs and 2 outputs"),
        ([("in", "INPUT", "HALF", (-1, 64)), SCORES], r"takes half \[N, 64\] and gives float \[N, 1\]"),
        ([("in", "INPUT", "FLOAT", (-1, 63)), SCORES], r"takes float \[N, 63\]"),
        ([ROWS, ("out", "OUTPUT", "FLOAT", (-1, 2))], r"takes float \[N, 64\] and gives float \[N, 2\]"),
        ([ROWS, ("out", "OUTPUT", "FLOAT", (1, 1))], r"takes float \[N, 64\] and gives float \[1, 1\]"),
    ],
)
def test_a_plan_of_another_shape_is_told(trt, ports, words):
    module = trt()
    with pytest.raises(UsageError, match=rf"^the model a.plan {words}.*; it needs float32 \[N, 64\] in"):
        tensorrt.ports_of(loaded(module, *ports), "a.plan")


def test_a_plan_of_another_version_is_told(trt):
    module = trt()
    log = tensorrt_build.make_log()
    with pytest.raises(
        UsageError, match=r"10\.13\.0\.35 cannot load the plan old\.plan; .*: The engine plan file is"
    ):
        tensorrt._load(log, module.a_plan(ROWS, SCORES, version="10.0.1"), "old.plan", module.__version__)


# -- the cache -------------------------------------------------------------------------------

KEY = Key("model", "A100", "8.0", "580.65.06", "10.13.0.35")


@pytest.mark.parametrize("field", ["model", "gpu", "capability", "driver", "tensorrt"])
def test_each_part_of_the_key_makes_another_plan(field):
    import msgspec

    other = msgspec.structs.replace(KEY, **{field: "another"})
    assert other.plan() != KEY.plan()
    assert (other.timings() == KEY.timings()) == (field == "model")


def test_the_key_knows_the_model_and_its_precision(tmp_path):
    class Device:
        name, capability, driver = "A100", (8, 0), 13000

    path = tmp_path / "model.onnx"
    path.write_bytes(b"one")
    keys = [tensorrt.key_of(Device, "10.13", None, precision) for precision in ("fp32", "fp16", "int8")]
    keys.append(tensorrt.key_of(Device, "10.13", str(path), "fp32"))
    path.write_bytes(b"two")
    keys.append(tensorrt.key_of(Device, "10.13", str(path), "fp32"))
    assert len({key.plan() for key in keys}) == 5
    # a file has the precision that it has
    assert tensorrt.key_of(Device, "10.13", str(path), "fp16") == keys[-1]
    assert (keys[0].gpu, keys[0].capability, keys[0].tensorrt) == ("A100", "8.0", "10.13")


def test_what_is_written_is_read_and_is_the_users_alone(tmp_path):
    place = tmp_path / "hwtune" / "tensorrt"
    assert engine_cache.read("a.plan", place) is None
    assert engine_cache.write("a.plan", b"code", place) == ""
    assert engine_cache.read("a.plan", place) == b"code"
    assert (place.stat().st_mode & 0o777, (place / "a.plan").stat().st_mode & 0o777) == (0o700, 0o600)
    assert engine_cache.write("a.plan", b"other", place) == ""
    assert engine_cache.read("a.plan", place) == b"other"
    assert [path.name for path in place.iterdir()] == ["a.plan"]


@pytest.mark.parametrize("what", ["folder", "file"])
def test_what_others_may_write_is_not_run(tmp_path, what):
    place = tmp_path / "cache"
    assert engine_cache.write("a.plan", b"code", place) == ""
    (place if what == "folder" else place / "a.plan").chmod(0o777)
    assert engine_cache.read("a.plan", place) is None
    if what == "folder":
        assert engine_cache.write("b.plan", b"code", place) == f"others may write to {place}"


def test_where_nothing_can_be_kept_it_is_told(tmp_path):
    (tmp_path / "file").touch()
    told = engine_cache.write("a.plan", b"code", tmp_path / "file" / "below")
    assert told.endswith("below/a.plan: Not a directory")


def test_the_folder_is_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert engine_cache.folder() == tmp_path / "hwtune" / "tensorrt"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert engine_cache.folder() == Path("/home/somebody/.cache/hwtune/tensorrt")


# -- the command -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    return fake_cuda.build(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def validate(fake, tmp_path):
    places = os.pathsep.join([str(fake_tensorrt.install(tmp_path / "python")), str(ROOT)])

    def run(*arguments, scenario=(), **scene):
        environment = {**os.environ, **fake_cuda.environment(fake, tmp_path, scenario), "PYTHONPATH": places}
        environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "FAKE_NVML_SCENARIO": "/nonexistent"}
        environment["FAKE_TENSORRT"] = json.dumps({"log": str(tmp_path / "builds"), **scene})
        command = [sys.executable, "-m", "hwtune", "validate", "--warmup", "100ms", "--duration", "1500ms"]
        command += ["--rate", "300", "--sla-us", "5000000", "--format", "json", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90)
        return done.returncode, done.stdout, done.stderr

    return run


def test_a_run_builds_once_and_then_takes_what_was_kept(validate, tmp_path):
    scenario = ["in_us = 7", "compute_us = 31", "out_us = 3"]
    status, out, err = validate("--engine", "tensorrt", "--streams", "2", scenario=scenario)
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert report["engine"] == "tensorrt 10.13.0.35 (Fake GPU 0, fp32)"
    told = report["gpu"]
    assert (told["sizes"], told["streams"], told["notes"]) == ([1, 2, 4, 8, 16, 32], 2, [])
    assert told["difference"] < 1e-5
    assert told["equal"] is True
    assert told["parts"][0]["compute_us"] == pytest.approx(31, rel=1e-3)
    assert fake_cuda.complaints(tmp_path) == []
    status, out, _ = validate("--engine", "tensorrt", scenario=scenario)
    assert status == 0
    assert json.loads(out)["gpu"]["notes"] == ["The engine was built by an earlier run."]
    assert (tmp_path / "builds").read_text() == "built\n"
    # another version builds anew
    assert validate("--engine", "tensorrt", version="11.1.0.106")[0] == 0
    assert (tmp_path / "builds").read_text() == "built\n" * 2
    assert fake_cuda.complaints(tmp_path) == []


def test_a_plan_of_ones_own(validate, tmp_path):
    path = tmp_path / "own.plan"
    path.write_bytes(fake_tensorrt.a_plan(ROWS, SCORES, profile=[(1, 64), (4, 64), (4, 64)]))
    status, out, err = validate("--plan", str(path))
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert report["engine"] == "tensorrt 10.13.0.35 (Fake GPU 0, its own precision)"
    assert len(report["model"]) == 16
    assert (report["gpu"]["sizes"], report["gpu"]["difference"], report["gpu"]["weights_bytes"]) == (
        [1, 2, 4],
        None,
        None,
    )
    assert not (tmp_path / "builds").exists()
    assert fake_cuda.complaints(tmp_path) == []


def test_an_onnx_file_of_ones_own(validate, tmp_path):
    path = tmp_path / "own.onnx"
    path.write_text('{"batch": 8, "width": 64}')
    status, out, err = validate("--engine", "tensorrt", "--onnx", str(path))
    assert (status, err) == (0, "")
    told = json.loads(out)["gpu"]
    assert (told["sizes"], told["precision"], told["equal"]) == ([8], "own", None)
    assert fake_cuda.complaints(tmp_path) == []


@pytest.mark.parametrize(
    "arguments, scene, expected, sentence",
    [
        (["--engine", "tensorrt"], {"version": "8.6.1"}, 2, "needs TensorRT 10 or 11, 8.6.1 is installed"),
        (["--engine", "tensorrt"], {"build": "no way"}, 3, "TensorRT cannot build the engine: no way"),
        (
            ["--engine", "tensorrt"],
            {"enqueue": "no such kernel"},
            3,
            "the GPU cannot run the engine: TensorRT does not run a batch of 1: no such kernel",
        ),
        (["--engine", "tensorrt"], {"scenario": ["devices = 0"]}, 3, "CUDA_ERROR_NO_DEVICE (100)"),
        (
            ["--engine", "tensorrt"],
            {"scenario": ["allowed = 830000"]},
            3,
            "cannot run the engine: Cuda Runtime (error 2)",
        ),
        (
            ["--engine", "tensorrt"],
            {"scenario": ["query = 719 24"]},
            3,
            "the engine failed: cuEventQuery: CUDA_ERROR_LA",
        ),
    ],
)
def test_what_goes_wrong_is_one_sentence(validate, tmp_path, arguments, scene, expected, sentence):
    status, _, err = validate(*arguments, **scene)
    assert status == expected
    assert sentence in err
    assert err.count("\n") == 1
    assert fake_cuda.complaints(tmp_path) == []
