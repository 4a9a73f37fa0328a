"""The whole command on this very machine: a short run through the real pipeline."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec

import jsonschema
import numpy as np
import pytest

from hwtune.report.schema import schema
from hwtune.validate import hdr
from hwtune.validate.run import END_TO_END, STAGES

SHORT = ("--duration", "300ms", "--warmup", "50ms", "--rate", "5000")


def hwtune(*arguments, **how):
    return subprocess.run(
        [sys.executable, "-m", "hwtune", "validate", *arguments],
        capture_output=True, text=True, timeout=60, check=False, **how,
    )  # fmt: skip


def report(*arguments):
    done = hwtune("--format", "json", *arguments)
    assert done.returncode in (0, 1), done.stderr  # a busy machine may miss the SLA
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema("validate"))
    return found


@pytest.mark.parametrize("engine", ["null", "cpu", "auto"])
def test_a_short_run_accounts_for_every_tick(engine):
    found = report("--engine", engine, "--arrivals", "fixed", *SHORT)
    assert found["engine"].split()[0] == ("cpu" if engine == "auto" else engine)
    assert found["due"] == 1500
    assert found["completed"] + found["missing"] == 1500
    for name in (*STAGES, END_TO_END):
        latency = found["end_to_end"] if name == END_TO_END else found["stages"][name]
        assert latency["count"] == found["completed"]
        assert hdr.from_base64(found["histograms"][name]).count == found["completed"]
    windows = sum(hdr.from_base64(text).count for text in found["windows"]["histograms"])
    assert windows == found["completed"]
    # one after the other, the stages are the whole: so their means add up
    parts = sum(stage["mean_us"] for stage in found["stages"].values())
    assert parts == pytest.approx(found["end_to_end"]["mean_us"], rel=0.01)
    assert found["duration_s"] == pytest.approx(0.3, abs=0.01)
    usable = os.sched_getaffinity(0)
    assert {thread["cpu"] for thread in found["threads"]} == set(found["cpus"].values()) <= usable


def test_named_cpus_are_those_of_the_threads():
    cpu = max(os.sched_getaffinity(0))
    found = report("--engine", "null", "--cpus", str(cpu), *SHORT)
    assert found["cpus"] == {"generator": cpu, "compute": cpu, "orders": cpu}
    assert [(t["roles"], t["cpu"]) for t in found["threads"]] == [(["generator", "compute", "orders"], cpu)]


def test_recorded_ticks_are_played(tmp_path):
    fields = [("time_ns", "<u8"), ("bid", "<f8"), ("ask", "<f8"), ("price", "<f8"), ("bid_size", "<u4"),
              ("ask_size", "<u4"), ("volume", "<u4"), ("aggressor", "<u4")]  # fmt: skip
    ticks = np.ones(1000, dtype=fields)
    ticks["time_ns"] = 1_700_000_000_000_000_000 + 300_000 * np.arange(1000)
    np.save(tmp_path / "ticks.npy", ticks)
    found = report("--engine", "null", "--arrivals", str(tmp_path / "ticks.npy"), "--warmup", "0")
    assert found["arrivals"]["kind"] == "recorded"
    assert len(found["arrivals"]["digest"]) == 16
    assert found["due"] == 1000


def test_a_run_is_a_baseline_of_the_next(tmp_path):
    then = tmp_path / "then.json"
    done = hwtune("--engine", "null", *SHORT, "--format", "json", "-o", str(then))
    assert done.returncode in (0, 1), done.stderr
    found = report("--engine", "null", *SHORT, "--baseline", str(then), "--max-regression", "1000%")
    assert found["baseline"]["verdict"] in ("not worse", "cannot be told", "worse")
    assert found["baseline"]["before_us"] == json.loads(then.read_text())["sla"]["p99_us"]


def test_ctrl_c_reports_what_was_measured():
    process = subprocess.Popen(
        [sys.executable, "-m", "hwtune", "validate", "--engine", "null", "--rate", "5000", "--warmup", "50ms",
         "--duration", "10m", "--format", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode in (0, 1), err
    found = json.loads(out)
    assert found["interrupted"] is True
    assert 0 < found["completed"] <= found["due"]
    assert found["duration_s"] < 60


def test_another_than_root_gets_a_report_too():
    if os.geteuid() != 0:
        pytest.skip("this test gives root up")
    # in the process itself, since the interpreter may lie where others cannot go
    program = f"""
import os, sys
from hwtune import _native
from hwtune.cli import main, validate
import hwtune.validate.measure, hwtune.tracing, hwtune.validate.pipeline, hwtune.validate.results
import hwtune.report.validation.text, hwtune.report.terminal, hwtune.probes.cpus, hwtune.probes.gpu
import hwtune.probes.network, hwtune.probes.virtualization, hwtune.host.live, hwtune.validate.attributed
import hwtune.validate.placement, hwtune.validate.reading, hwtune.report.validation.published, numpy.ma
import hwtune.validate.surroundings, hwtune.cli.progress, numpy.random, secrets
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.argv = ["hwtune", "validate", "--engine", "null", *{SHORT!r}]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    assert done.stderr == ""
    assert "SLA" in done.stdout


def test_a_slow_warm_up_does_not_hide_what_misses_the_sla():
    """Its P99 alone would set the threshold; the SLA is the ceiling."""
    found = report("--engine", "null", "--sla-us", "0.05", *SHORT)
    assert found["outlier_threshold_us"] == 0.05
    assert found["outliers_seen"] == found["completed"] > 0
    assert report("--engine", "null", "--outlier-us", "70", *SHORT)["outlier_threshold_us"] == 70


@pytest.mark.skipif(find_spec("onnxruntime") is None, reason="needs onnxruntime")
def test_a_users_own_model(tmp_path):
    from hwtune.validate.onnx_file import reference_model

    model = tmp_path / "model.onnx"
    model.write_bytes(reference_model())
    found = report("--onnx", str(model), "--rate", "500", "--duration", "1s", "--warmup", "100ms")
    assert found["engine"].startswith("onnx (onnxruntime ")
    assert len(found["model"]) == 16
    assert found["completed"] > 0
    model.write_bytes(b"no model")
    done = hwtune("--onnx", str(model), *SHORT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("hwtune: ") and done.stderr.count("\n") == 1
