"""hwtune jitter as a user runs it, for fractions of a second."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import jsonschema
import pytest

from hwtune.report.schema import schema
from tests.support import own_tracefs

CPU = max(os.sched_getaffinity(0))
COMMAND = [sys.executable, "-m", "hwtune", "jitter", "--cpus", str(CPU)]


def run(*arguments, prefix=()):
    return subprocess.run(
        [*prefix, *COMMAND, *arguments], capture_output=True, text=True, timeout=100, check=False
    )


def checked(done):
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    jsonschema.validate(report, schema("jitter"))
    assert report["schema_version"] == "1"
    assert done.returncode == (0 if report["fit"] else 1)
    return report


def holds_together(cpu):
    assert cpu["cpu"] == CPU
    assert 0 < cpu["coverage"] <= 1
    assert cpu["stolen_ns"] <= cpu["observed_ns"]
    assert cpu["longest_ns"] <= cpu["stolen_ns"]
    assert cpu["verdict"] in ("fit", "unfit", "unknown")
    assert bool(cpu["reasons"]) == (cpu["verdict"] != "fit")
    lengths = [gap["length_ns"] for gap in cpu["longest"]]
    assert lengths == sorted(lengths, reverse=True)
    if lengths and not cpu["gaps_not_kept"]:
        assert abs(lengths[0] - cpu["longest_ns"]) <= 1


def test_json_without_a_trace():
    report = checked(run("--duration", "0.3", "--format", "json"))
    (cpu,) = report["cpus"]
    holds_together(cpu)
    assert cpu["observed_ns"] >= 299_000_000
    if not report["trace"]["recorded"]:
        assert report["trace"]["why"]
        assert cpu["causes"] == []


@own_tracefs.needed
def test_json_with_a_trace():
    report = checked(run("--duration", "0.5", "--format", "json", prefix=own_tracefs.command()))
    assert report["trace"]["recorded"], report["trace"]["why"]
    (cpu,) = report["cpus"]
    holds_together(cpu)
    told = sum(cause["total_ns"] for cause in cpu["causes"])
    if not cpu["gaps_not_kept"] and not cpu["gaps_not_asked"]:
        # each gap is one cause's; lengths are rounded down one by one
        assert cpu["stolen_ns"] - cpu["gaps"] <= told <= cpu["stolen_ns"] + cpu["gaps"]
    assert all(gap["explained_ns"] <= gap["length_ns"] + 2 for gap in cpu["longest"])


def test_text_fits_80_columns_and_says_beforehand_what_it_does():
    done = run("--duration", "200ms", "--threshold-ns", "2000")
    assert done.returncode in (0, 1), done.stderr
    assert f"Measuring CPU {CPU} (as you named them) for 0.2 s" in " ".join(done.stderr.split())
    assert all(len(line) <= 80 for line in [*done.stdout.splitlines(), *done.stderr.splitlines()])
    assert "verdict" in done.stdout
    assert f"\n{CPU:>5}   " in done.stdout


def test_the_threshold_is_obeyed():
    report = checked(run("--duration", "0.2", "--threshold-ns", "50000", "--format", "json"))
    (cpu,) = report["cpus"]
    assert 49_999 <= cpu["threshold_ns"] <= 50_001
    assert all(gap["length_ns"] >= 49_999 for gap in cpu["longest"])


def test_limits_come_from_the_profile():
    loose = ("--set", "jitter.gap_max_us=1e9", "--set", "jitter.stolen_max_pct=100")
    done = run("--duration", "0.1", "--format", "json", *loose)
    assert done.returncode == 0
    assert json.loads(done.stdout)["fit"]
    tight = ("--set", "jitter.gap_max_us=0.001")
    assert run("--duration", "0.3", "--threshold-ns", "20", "--format", "json", *tight).returncode == 1


@pytest.mark.parametrize("way", [(), own_tracefs.command() if not own_tracefs.lacking() else ()])
def test_ctrl_c_reports_what_was_measured(way):
    child = subprocess.Popen(
        [*way, *COMMAND, "--duration", "600", "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stderr.readline().startswith("Measuring")
        time.sleep(2)
        os.kill(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
        child.communicate()
    assert child.returncode in (0, 1), err
    report = json.loads(out)
    assert report["interrupted"]
    (cpu,) = report["cpus"]
    holds_together(cpu)
    assert 0 < cpu["observed_ns"] < 100 * 10**9


@own_tracefs.needed
def test_sigterm_leaves_no_trace_instance():
    child = subprocess.Popen(
        [*own_tracefs.command(), *COMMAND, "--duration", "600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    look = "import os; print(*os.listdir('/sys/kernel/tracing/instances'))"
    try:
        assert child.stderr.readline().startswith("Measuring")
        mine = f"hwtune-{child.pid}-"
        end = time.monotonic() + 30
        while mine not in own_tracefs.run(look) and time.monotonic() < end:
            time.sleep(0.1)
        os.kill(child.pid, signal.SIGTERM)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
        child.communicate()
    assert child.returncode == 143, err
    assert (out, "Traceback" in err) == ("", False)
    assert mine not in own_tracefs.run(look)


def test_one_cpu_after_the_other():
    cpus = sorted(os.sched_getaffinity(0))[:2]
    names = ",".join(map(str, cpus))
    report = checked(run("--cpus", names, "--one-by-one", "--duration", "0.2", "--format", "json"))
    assert report["one_by_one"]
    assert [cpu["cpu"] for cpu in report["cpus"]] == cpus


def test_without_the_native_module_it_says_what_is_missing():
    code = (
        "import sys\n"
        "sys.modules['hwtune._native'] = None\n"
        "from hwtune.cli import main\n"
        "sys.argv = ['hwtune', 'jitter']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3
    assert "native module" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--cpus", "7999"), "cannot be measured"),
        (("--cpus", "fast"), "list of CPUs"),
        (("--duration", "0"), "--duration takes a time from 100 ms of up to 24 hours"),
        (("--threshold-ns", "0"), "--threshold-ns"),
    ],
)
def test_bad_usage_is_one_sentence(arguments, words):
    done = run("--duration", "0.1", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
