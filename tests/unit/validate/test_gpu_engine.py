"""The engine on a GPU, over a driver without one (tests/native/fake_cuda.c): scores, times, what goes wrong.

Each test is a process of its own, as a lost GPU stays lost.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import fake_cuda

ROOT = Path(__file__).parents[3]

PREPARE = """
import json, time
import numpy as np
from hwtune import _native as native
from hwtune.validate import perceptron
clock = native.make_clock()
numbers = np.concatenate([part.ravel() for layer in perceptron.parameters() for part in layer])
rows = np.random.default_rng(1).uniform(-1, 1, (40, 64)).astype(np.float32)
def engine(device, number=np.float32, kernel="hwtune_perceptron_fp32", **other):
    arguments = dict(image=b"\\x7fELF", kernel=kernel, parameters=numbers.astype(number).tobytes(),
                     threads=512, name="cuda", sizes=[1, 4, 8])
    return native.make_kernel_engine(device, clock, **{**arguments, **other})
def tell(**found):
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    return fake_cuda.build(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def run(fake, tmp_path):
    """Runs a text of Python over the fake with a scenario; gives what it told."""

    def run(text, *scenario, folder=fake):
        environment = {**os.environ, **fake_cuda.environment(folder, tmp_path, scenario)}
        done = subprocess.run(
            [sys.executable, "-c", PREPARE + text],
            env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return run


def test_scores_are_those_of_the_cpu_engine(run, tmp_path):
    told = run("""
device = native.make_gpu_device()
made = engine(device)
scores = made.infer(rows)
tell(cpu=float(np.abs(scores - native.make_cpu_engine(8).infer(rows)).max()),
     exact=float(np.abs(scores - perceptron.scores(rows)).max()),
     name=made.name, most=made.max_batch, slots=made.slots, sizes=made.sizes,
     device=[device.name, device.pci, device.capability, device.driver, device.multiprocessors,
             device.l2_bytes, device.memory_bytes])
del made, device
""")
    assert told["cpu"] < 1e-5
    assert told["exact"] < 1e-5
    assert (told["name"], told["most"], told["slots"], told["sizes"]) == ("cuda", 8, 1, [1, 4, 8])
    assert told["device"] == ["Fake GPU 0", "0000:07:00.0", [8, 0], 12040, 108, 40 << 20, 80 << 30]
    assert fake_cuda.complaints(tmp_path) == []


def test_half_precision_scores_within_a_few_thousandths(run, tmp_path):
    told = run("""
made = engine(native.make_gpu_device(), np.float16, "hwtune_perceptron_fp16")
error = np.abs(made.infer(rows) - perceptron.scores(rows))
tell(worst=float(error.max()))
del made
""")
    assert 1e-5 < told["worst"] < 3e-3  # of halves, and not by accident of floats
    assert fake_cuda.complaints(tmp_path) == []


def test_each_batch_takes_the_first_graph_that_holds_it(run, tmp_path):
    told = run("""
seen = []
def enqueue(stream, slot, rows, input, output):
    seen.append([slot, rows, stream > 0, input > 0, output > 0])
device = native.make_gpu_device()
made = native.make_call_engine(device, clock, enqueue=enqueue, name="x", sizes=[1, 3], streams=2)
tell(seen=seen, slots=made.slots)
del made, device
""")
    # as it is and in a capture, for each size of each slot
    assert told["seen"] == [
        [slot, rows, True, True, True] for slot in (0, 1) for rows in (1, 3) for _ in range(2)
    ]
    assert told["slots"] == 2
    assert fake_cuda.complaints(tmp_path) == []


def test_times_are_those_of_the_gpu(run, tmp_path):
    told = run(
        """
made = engine(native.make_gpu_device(), sizes=[8])
begun = time.perf_counter()
made.infer(rows)
whole = time.perf_counter() - begun
tell(launches=made.launch.count, waits=made.wait.count, wait=made.wait.value_at(0.5), whole=whole,
     launch=made.launch.min, parts=made.profile(8, 2), small=made.profile(1, 1),
     floor=made.floor(5))
del made
""",
        "in_us = 1000",
        "compute_us = 4000",
        "out_us = 2000",
        "compute = 0",
    )
    assert (told["launches"], told["waits"]) == (5, 5)  # 40 rows in eights
    # from the launch's end, which may come late where others want the CPU too: so not of each
    assert told["wait"] >= 6_900_000
    assert told["whole"] >= 5 * 0.007
    assert told["launch"] < 6_900_000
    assert len(told["floor"]) == 5
    assert min(told["floor"]) < 1000  # no copy and no kernel is in it
    for parts in told["parts"] + told["small"]:
        assert parts == [
            pytest.approx(1000, rel=1e-3),
            pytest.approx(4000, rel=1e-3),
            pytest.approx(2000, rel=1e-3),
        ]
    assert fake_cuda.complaints(tmp_path) == []


ATTEMPT = """
try:
    device = native.make_gpu_device()
    made = engine(device)
    made.infer(rows)
    tell(error=None)
except (RuntimeError, ValueError) as error:
    tell(error=str(error), kind=type(error).__name__)
"""

# Three graphs are launched once each when the engine is made.
REFUSED = {
    "no GPU": (["devices = 0"], "cuInit: CUDA_ERROR_NO_DEVICE (100): there is no GPU that CUDA may use here"),
    "fabric": (
        ["init = 802"],
        "cuInit: CUDA_ERROR_SYSTEM_NOT_READY (802): the NVSwitch fabric is not up: is "
        "nvidia-fabricmanager running?",
    ),
    "two versions": (
        ["init = 803"],
        "cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): the driver's library and its kernel module are of "
        "two versions: reload it, or reboot",
    ),
    "exclusive": (
        ["retain = 46"],
        "cuDevicePrimaryCtxRetain: CUDA_ERROR_DEVICE_UNAVAILABLE (46): another process holds the GPU alone "
        "(compute mode exclusive)",
    ),
    "no memory": (
        ["allowed = 1000"],
        "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): the GPU's memory, or what may be pinned of the "
        "host's, is used up",
    ),
    "no memory for rows": (
        [f"allowed = {205_825 * 4 + 100}"],
        "cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): the GPU's memory, or what may be pinned of the "
        "host's, is used up",
    ),
    "no graph": (["instantiate = 999"], "cuGraphInstantiate: CUDA_ERROR_UNKNOWN (999)"),
    "hangs at once": (
        ["hang = 1"],
        "the GPU did not answer within 2000 ms: it hangs, or somebody else keeps it busy (an Xid in dmesg "
        "would tell)",
    ),
    "lost at once": (["launch = 719 2"], "cuGraphLaunch: CUDA_ERROR_LAUNCH_FAILED (719)"),
    "refuses a launch": (["launch = 719 5"], "cuGraphLaunch: CUDA_ERROR_LAUNCH_FAILED (719)"),
    "memory error": (
        ["query = 214 6"],
        "cuEventQuery: CUDA_ERROR_ECC_UNCORRECTABLE (214): the GPU's memory has an error that ECC could not "
        "mend; see its Xid in dmesg",
    ),
    "an error without a name": (["query = 4242 4"], "cuEventQuery: an error without a name (4242)"),
}


@pytest.mark.parametrize("scenario, sentence", REFUSED.values(), ids=REFUSED)
def test_what_goes_wrong_is_one_sentence(run, tmp_path, scenario, sentence):
    assert run(ATTEMPT, *scenario)["error"] == sentence
    # nothing was asked of it once it had failed, and nothing is left where it had not
    assert fake_cuda.complaints(tmp_path) == []


def test_a_gpu_that_never_answers_is_given_up_after_the_deadline(run, tmp_path):
    told = run(
        """
made = engine(native.make_gpu_device(), deadline_s=0.3, streams=2)
begun = time.perf_counter()
try:
    made.infer(rows)
except RuntimeError as error:
    sentence = str(error)
took = time.perf_counter() - begun
begun = time.perf_counter()
try:
    made.infer(rows)
except RuntimeError as error:
    again = str(error)
del made
tell(sentence=sentence, took=took, again=again, then=time.perf_counter() - begun)
""",
        "hang = 8",
        "compute = 0",
    )
    assert told["sentence"].startswith("the GPU did not answer within 300 ms")
    assert 0.3 <= told["took"] < 5
    assert told["again"] == told["sentence"]
    assert told["then"] < 0.25  # nothing waits once more
    assert fake_cuda.complaints(tmp_path) == []


def test_an_error_of_the_model_leaves_nothing_behind(run, tmp_path):
    told = run("""
calls = []
def enqueue(stream, slot, rows, input, output):
    calls.append(rows)
    if len(calls) == 4:  # in the second capture
        raise RuntimeError("the model does not like this")
device = native.make_gpu_device()
try:
    native.make_call_engine(device, clock, enqueue=enqueue, name="x", sizes=[1, 3])
except RuntimeError as error:
    tell(error=str(error).splitlines()[0])
del device
""")
    assert "the model does not like this" in told["error"]
    assert fake_cuda.complaints(tmp_path) == []


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("sizes=[]", "ascending order"),
        ("sizes=[0]", "1 to 1,024 rows"),
        ("sizes=[4, 4]", "ascending order"),
        ("sizes=[1025]", "1 to 1,024 rows"),
        ("streams=0", "1 to 16 streams"),
        ("streams=17", "1 to 16 streams"),
        ("deadline_s=0.0", "deadline"),
        ("image=b'MZ is no image'", "cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE (200)"),
        ("kernel='other'", "cuModuleGetFunction: CUDA_ERROR_NOT_FOUND (500)"),
    ],
)
def test_plans_that_cannot_be_are_refused(run, tmp_path, arguments, words):
    told = run(f"""
device = native.make_gpu_device()
try:
    engine(device, {arguments})
except (RuntimeError, ValueError) as error:
    tell(error=str(error))
del device
""")
    assert words in told["error"]
    assert fake_cuda.complaints(tmp_path) == []


def test_a_gpu_that_is_not_there_is_told(run):
    told = run("""
try:
    native.make_gpu_device(3)
except ValueError as error:
    tell(error=str(error))
""", "devices = 2")  # fmt: skip
    assert told["error"] == "there is no GPU 3: CUDA sees 2"


def test_a_driver_without_a_function_is_too_old(run, tmp_path):
    folder = fake_cuda.build(tmp_path / "old", "cuGraphUpload")
    told = run(ATTEMPT, folder=folder)
    assert told["error"] == (
        "the NVIDIA driver is too old, or libcuda.so.1 is none: it has no cuGraphUpload, which CUDA 11.4 "
        "and later have"
    )


def test_no_driver_is_told():
    from hwtune import _native

    with pytest.raises(RuntimeError, match=r"^there is no NVIDIA driver here: /nonexistent/libcuda\.so\.1: "):
        _native.make_gpu_device(0, "/nonexistent/libcuda.so.1")


def test_the_pipeline_runs_on_it_with_batches_under_way_side_by_side(run, tmp_path):
    told = run(
        """
import os
from hwtune.validate.pipeline import Plan, run
cpus = sorted(os.sched_getaffinity(0))
device = native.make_gpu_device()
made = engine(device, sizes=[1, 2, 4, 8], streams=3)
plan = Plan(cpus={"generator": cpus[0], "compute": cpus[-1], "orders": cpus[-1]}, rate=400.0, warmup_s=0.1,
            duration_s=0.5, batch_limit=8)
found = run(plan, made, clock)
tell(due=found.due, completed=found.completed, failure=found.failure, waits=made.wait.count,
     batches=sum(found.batches.values()), wait=made.wait.value_at(0.5),
     inference=found.stages["inference"].min)
del made, device
""",
        "compute = 0",
        "compute_us = 6000",
    )
    assert told["failure"] == ""
    # ticks come every 2.5 ms, answers take 6: that goes with three batches under way, not with one
    assert told["completed"] == told["due"] == 200
    assert abs(told["waits"] - told["batches"]) <= 3  # one may have begun in the warm-up
    assert told["wait"] >= 5_900_000
    assert told["inference"] >= 5_900_000
    assert fake_cuda.complaints(tmp_path) == []


@pytest.mark.parametrize(
    "scenario, words",
    [
        (["query = 719 100"], "cuEventQuery: CUDA_ERROR_LAUNCH_FAILED (719)"),
        (["launch = 719 100"], "cuGraphLaunch: CUDA_ERROR_LAUNCH_FAILED (719)"),
        (["hang = 100"], "the GPU did not answer within 100 ms"),
    ],
)
def test_a_gpu_lost_in_the_middle_ends_the_run_with_what_it_has(run, tmp_path, scenario, words):
    told = run(
        """
import os
from hwtune.validate.pipeline import Plan, run
cpus = sorted(os.sched_getaffinity(0))
made = engine(native.make_gpu_device(), sizes=[1, 2, 4, 8], streams=2, deadline_s=0.1)
plan = Plan(cpus={"generator": cpus[0], "compute": cpus[-1], "orders": cpus[-1]}, rate=200.0, warmup_s=0.1,
            duration_s=20.0, batch_limit=8)
found = run(plan, made, clock)
tell(due=found.due, completed=found.completed, failure=found.failure, interrupted=found.interrupted,
     batches=sum(found.batches.values()), rows=sum(rows * count for rows, count in found.batches.items()))
""",
        "compute = 0",
        *scenario,
    )
    assert told["failure"].startswith(words)
    assert told["interrupted"] is False
    # eight launches made the engine, some were the warm-up's; the last one, or two, never came back
    assert 1 < told["batches"] <= 92
    assert told["batches"] - 2 <= told["completed"] < told["rows"] <= told["due"]
    assert fake_cuda.complaints(tmp_path) == []


def cuda_header() -> str | None:
    """The folder of a cuda.h on this machine."""
    places = [
        Path(p) for p in (os.environ.get("CUDA_INCLUDE", ""), "/usr/local/cuda/include", "/usr/include") if p
    ]
    places += Path(sys.prefix).glob("lib/python*/site-packages/nvidia/*/include")
    return next((str(place) for place in places if (place / "cuda.h").is_file()), None)


@pytest.mark.skipif(
    cuda_header() is None or shutil.which("c++") is None, reason="needs cuda.h and a compiler"
)
def test_the_signatures_are_those_of_cuda_h():
    command = ["c++", "-std=c++20", "-fsyntax-only", "-Inative/include", "-isystem", str(cuda_header())]
    subprocess.run([*command, "tests/native/cuda_abi.cpp"], check=True, cwd=ROOT)
