"""The command: what it asks for, what it refuses in one sentence, and its exit status."""

from __future__ import annotations

import io
import json
import os

import pytest

from hwtune.cli import main, progress
from hwtune.cli.validate import percent
from hwtune.errors import UsageError
from hwtune.validate import measure, surroundings
from hwtune.validate.results import NOT_ATTRIBUTED
from tests.support import runs


class Measured:
    """In place of the pipeline: remembers the request, hands over a run."""

    def __init__(self) -> None:
        self.request: measure.Request | None = None
        self.changes: dict[str, object] = {}

    def __call__(self, request, shown=None):
        self.request = request
        if shown is not None:
            shown(1.0)
        return runs.run(
            **{"arrivals": request.arrivals.kind, "rate": request.arrivals.rate, **self.changes}
        ), NOT_ATTRIBUTED


@pytest.fixture
def measured(monkeypatch):
    found = Measured()
    monkeypatch.setattr(measure, "measure", found)
    monkeypatch.setattr(surroundings, "place", lambda cpus: runs.placement(requested=cpus is not None))
    return found


@pytest.fixture
def hwtune(capsys, monkeypatch):
    """Runs the command: (exit status, stdout, stderr)."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["hwtune", "validate", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        return caught.value.code, *capsys.readouterr()

    return run


def test_within_the_sla(hwtune, measured):
    status, out, err = hwtune()
    assert (status, err) == (0, "")
    assert "SLA met" in out
    request = measured.request
    assert (request.engine, request.onnx, request.arrivals.kind, request.arrivals.rate) == (
        "cpu",
        None,
        "poisson",
        10_000,
    )
    assert (request.duration_s, request.warmup_s, request.seed, request.outlier_us) == (10, 1, 1, 0)


def test_options_reach_the_measurement(hwtune, measured):
    status, _, _ = hwtune(
        "--engine", "null", "--rate", "500", "--duration", "30m", "--warmup", "200ms", "--arrivals", "burst",
        "--seed", "7", "--outlier-us", "50", "--cpus", "1,2,3",
    )  # fmt: skip
    assert status == 0
    request = measured.request
    assert (request.engine, request.arrivals.kind, request.arrivals.rate) == ("null", "burst", 500)
    assert (request.duration_s, request.warmup_s, request.seed, request.outlier_us) == (
        1800,
        pytest.approx(0.2),
        7,
        50,
    )
    assert request.placement.requested
    assert request.sla_us == 3200


def test_a_missed_sla_is_1(hwtune, measured):
    status, out, err = hwtune("--sla-us", "10")
    assert (status, err) == (1, "")
    assert "SLA missed" in out


def test_too_short_to_tell_is_3_with_a_report(hwtune, measured):
    measured.changes = {"ticks": 200}
    status, out, err = hwtune()
    assert status == 3
    assert "SLA cannot be told" in out
    assert err.startswith("hwtune: whether the SLA is met cannot be told: at least 299 ticks are needed")


def test_a_failed_engine_is_3_with_a_report(hwtune, measured):
    measured.changes = {"failure": "the model returned NaN"}
    status, out, err = hwtune()
    assert (status, err) == (3, "hwtune: the engine failed: the model returned NaN\n")
    assert "The engine failed, which ended the run" in out


@pytest.mark.parametrize("form", ["text", "json", "junit", "prometheus", "html"])
def test_formats_go_to_a_file(hwtune, measured, tmp_path, form):
    place = tmp_path / "report"
    status, out, err = hwtune("--format", form, "-o", str(place))
    assert (status, out, err) == (0, "", "")
    content = place.read_text()
    signs = {
        "text": "hwtune 0.1.0",
        "json": '"schema_version": "1"',
        "junit": "<testsuites",
        "prometheus": "hwtune_validate_sla_met 1",
        "html": "<!DOCTYPE html>",
    }
    assert signs[form] in content


def test_a_report_that_cannot_be_written_is_told_before_anything_is_measured(hwtune, measured, tmp_path):
    status, _, err = hwtune("-o", str(tmp_path / "no" / "report"))
    assert (status, err) == (
        2,
        f"hwtune: {tmp_path}/no/report cannot be written: No such file or directory\n",
    )
    assert measured.request is None


def test_a_run_against_its_baseline(hwtune, measured, tmp_path):
    then = str(tmp_path / "then.json")
    assert hwtune("--format", "json", "-o", then)[0] == 0
    status, out, _ = hwtune("--baseline", then, "--format", "json")
    assert status == 0
    assert json.loads(out)["baseline"]["verdict"] == "not worse"
    measured.changes = {"usual": {**runs.USUAL, "inference": 20_000}}
    status, out, _ = hwtune("--baseline", then)
    assert status == 1
    assert "worse than before" in out
    assert hwtune("--baseline", then, "--max-regression", "50%")[0] == 0


def test_what_does_not_compare_is_refused_before_anything_is_measured(hwtune, measured, tmp_path):
    then = str(tmp_path / "then.json")
    hwtune("--format", "json", "-o", then)
    measured.request = None
    for arguments in (("--rate", "20000"), ("--arrivals", "fixed"), ("--engine", "null")):
        status, out, err = hwtune("--baseline", then, *arguments)
        assert (status, out) == (2, "")
        assert err.startswith(f"hwtune: the baseline {then} ")
    assert measured.request is None
    # and what the engine turns out to be is looked at again
    measured.changes = {"engine": "null"}
    assert hwtune("--baseline", then)[0] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--engine", "cpuu"], "there is no engine 'cpuu'; did you mean cpu?"),
        (["--plan", "x", "--engine", "cpu"], "--plan does not go with --engine cpu"),
        (["--plan", "x", "--onnx", "y"], "--plan does not go with --onnx"),
        (["--plan", "/nonexistent/a.plan"], "there is no model /nonexistent/a.plan"),
        (["--engine", "cuda", "--onnx", "x"], "--onnx does not go with --engine cuda"),
        (["--streams", "2"], "--streams is for engines on a GPU (cuda, tensorrt), not for --engine cpu"),
        (
            ["--gpu", "0", "--engine", "null"],
            "--gpu is for engines on a GPU (cuda, tensorrt), not for --engine null",
        ),
        (["--plan", "x", "--precision", "fp16"], "--precision is of the embedded model"),
        (["--precision", "fp64"], "'fp64' is not one of"),
        (["--streams", "17"], "17 is not in the range"),
        (["--engine", "onnx"], "--engine onnx needs a model: --onnx FILE"),
        (["--engine", "null", "--onnx", "x"], "--onnx does not go with --engine null"),
        (["--onnx", "/nonexistent/model.onnx"], "there is no model /nonexistent/model.onnx"),
        (["--rate", "0"], "--rate is a number of ticks a second"),
        (["--rate", "x"], "'x' is not a valid float"),
        (["--duration", "10x"], "--duration takes a time like 10s, 30m or 1h, not '10x'"),
        (["--duration", "0"], "--duration takes a time from 1 ms"),
        (["--duration", "8000h"], "--duration takes a time from 1 ms of up to a week"),
        (["--duration", "-1s"], "--duration takes a time"),
        (["--duration", "nan"], "--duration takes a time"),
        (["--warmup", ""], "--warmup takes a time like"),
        (["--warmup", "11m"], "--warmup takes a time of up to 10 minutes, not '11m'"),
        (["--arrivals", "often"], "there is no file often"),
        (["--sla-us", "-5"], "--sla-us is a number of microseconds"),
        (["--sla-us", "nan"], "--sla-us is a number of microseconds"),
        (["--budget", "/nonexistent"], "the budget /nonexistent cannot be read"),
        (["--baseline", "/nonexistent"], "the baseline /nonexistent cannot be read"),
        (["--max-regression", "ten"], "--max-regression takes a percentage like 10%, not 'ten'"),
        (["--max-regression", "-1"], "--max-regression takes a percentage"),
        (["--outlier-us", "0"], "--outlier-us is a number of microseconds above 0"),
        (["--outlier-us", "nan"], "--outlier-us is a number"),
        (["--seed", "-1"], "-1 is not in the range"),
        (["--format", "xml"], "'xml' is not one of"),
    ],
)
def test_bad_input_is_one_sentence_and_2(hwtune, measured, arguments, words):
    status, out, err = hwtune(*arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert measured.request is None


def test_recorded_ticks(hwtune, measured, tmp_path):
    path = tmp_path / "ticks.csv"
    rows = [f"{i * 1_000_000},1,2,3,4,5,6,1" for i in range(3001)]
    path.write_text("\n".join(["time_ns,bid,ask,price,bid_size,ask_size,volume,aggressor", *rows]) + "\n")
    assert hwtune("--arrivals", str(path))[0] == 0
    request = measured.request
    assert request.arrivals.rate == pytest.approx(1000)
    assert request.duration_s == pytest.approx(3), "all of it"
    assert hwtune("--arrivals", str(path), "--duration", "2")[0] == 0
    assert measured.request.duration_s == 2
    assert hwtune("--arrivals", str(path), "--duration", "1h")[0] == 0
    assert measured.request.duration_s == pytest.approx(3), "there is no more of it"


@pytest.mark.parametrize(("text", "value"), [("10%", 10), ("10", 10), ("0", 0), (" 2.5% ", 2.5)])
def test_percentages(text, value):
    assert percent(text) == value


def test_the_digest_of_a_model_is_of_its_bytes(tmp_path):
    model = tmp_path / "model.onnx"
    model.write_bytes(b"abc")
    # SHA-256 of "abc" begins so (FIPS 180-2, appendix B.1)
    assert measure.model_digest(str(model)) == "ba7816bf8f01cfea"
    assert measure.model_digest(None) == ""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="there is no model"):
        measure.model_digest(str(tmp_path / "pipe"))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_told_on_a_terminal_only(monkeypatch):
    with progress.progress(10) as shown:
        assert shown is None, "stderr of a test is no terminal"
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress.progress(10) as shown:
        shown(3.2)
        shown(11.0)
    assert terminal.getvalue() == "\r\x1b[Kmeasuring: 3 of 10 s\r\x1b[Kmeasuring: 10 of 10 s\r\x1b[K"


def test_progress_of_long_runs_is_in_minutes(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress.progress(1800) as shown:
        shown(65.4)
    assert "measuring: 1:05 of 30:00" in terminal.getvalue()
