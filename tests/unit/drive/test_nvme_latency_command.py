"""hwtune nvme-latency as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from hwtune.cli.nvme_latency import command
from hwtune.drive import target
from hwtune.report.schema import schema
from tests.unit.drive.test_target import on_a_drive

COMMAND = [sys.executable, "-m", "hwtune", "nvme-latency"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nosuch"], "nosuch cannot be looked at"),
        (["/etc/passwd"], "/etc/passwd is a file: name a block device"),
        (["/dev/null", "--duration", "5s"], "is a character device"),
    ],
)
def test_errors_are_one_sentence(arguments: list[str], says: str) -> None:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("hwtune: ") and says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_run_on_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real reads of a real file; what a busy machine makes of them is not this test's."""
    on_a_drive(tmp_path)
    monkeypatch.setattr(target, "FILE_BYTES", 8 << 20)
    monkeypatch.setattr(target.open_target, "__defaults__", (8 << 20,))
    monkeypatch.setattr(target.describe, "__defaults__", (8 << 20,))
    done = CliRunner().invoke(
        command,
        [str(tmp_path), "--duration", "2s", "--format", "json", "-o", str(tmp_path / "out")],
        standalone_mode=False,
    )
    assert done.exception is None, done.exception
    assert "Makes a file of 8 MiB without a name" in done.stderr
    told = json.loads((tmp_path / "out").read_text())
    jsonschema.validate(told, schema("nvme-latency"))
    drive = told["drive"]
    assert os.listdir(tmp_path) == ["out"]
    assert drive["target"]["kind"] == "file"
    assert drive["phases"][0]["response"]["count"] > 10
    assert drive["phases"][0]["failed"] == 0
    assert sum(rest["count"] for rest in drive["rests"]) == 52
    assert drive["phases"][0]["drive"]["max_us"] <= drive["phases"][0]["response"]["max_us"]
    wanted = 3 if drive["untold"] else 1 if any(f["severity"] == "warning" for f in drive["findings"]) else 0
    assert done.return_value == wanted


def test_ctrl_c_reports_what_was_measured(tmp_path: Path) -> None:
    on_a_drive(tmp_path)
    running = subprocess.Popen(
        [*COMMAND, str(tmp_path), "--duration", "10m"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stderr is not None
        line = running.stderr.readline()  # said before it begins
        assert line.startswith("Makes a file of 256 MiB")
        time.sleep(6)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
    assert "Interrupted: this is what was measured until then." in out, err
    assert running.returncode in (0, 1, 3)
    assert "Traceback" not in err
    assert os.listdir(tmp_path) == []
