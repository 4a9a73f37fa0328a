"""Probes and rows of third parties: another distribution on the path, and doctor as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support import tree

if TYPE_CHECKING:
    from pathlib import Path

PROBE = """
PART = "acme"

def read(host):
    return {"slice": host.integer("/proc/sys/kernel/sched_rr_timeslice_ms")}
"""
ROWS = """
from hwtune.diagnosis import Verdict, evidence
from hwtune.diagnosis.row import row

@row(
    "acme.slice", title="The time slice is ours", symptom="Threads wait.", cause="A long time slice.",
    severity="warning", scope="runtime", risk="none", cost="none", sources=("acme handbook, page 7",),
)
def slice_(machine, profile):
    verdict = Verdict()
    found = machine.extra["acme"]["slice"]
    if not found.known:
        return verdict.unknown("kernel", found)
    if found.get() != 7:
        shown = evidence(found.source, found.get(), 7)
        return verdict.finding("kernel", "The time slice is not ours.", shown, advice="Set it to 7.")
    return verdict.ok(evidence(found.source, found.get()))
"""
POINTS = """
[hwtune.probes]
acme = acme_box.probe

[hwtune.remediations]
acme = acme_box.rows
"""


def install(site: Path, probe: str = PROBE, rows: str = ROWS, points: str = POINTS) -> Path:
    """What an installer leaves of a distribution (packaging.python.org, "Recording installed projects")."""
    return tree(
        site,
        {
            "/acme_box/__init__.py": "",
            "/acme_box/probe.py": probe,
            "/acme_box/rows.py": rows,
            "/acme_box-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: acme-box\nVersion: 1.0\n",
            "/acme_box-1.0.dist-info/entry_points.txt": points,
        },
    )


def hwtune(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hwtune", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(site)},
        check=False,
    )


@pytest.fixture
def box(tmp_path: Path) -> str:
    return str(tree(tmp_path / "box", {"/proc/sys/kernel/sched_rr_timeslice_ms": "100\n"}))


def test_a_row_of_a_third_party_is_one_like_others(tmp_path: Path, box: str) -> None:
    site = install(tmp_path / "site")
    done = hwtune(site, "doctor", "--snapshot", box, "--only", "acme.*")
    assert done.returncode == 1 and done.stderr == ""
    assert "The time slice is not ours." in done.stdout
    assert "Set it to 7." in done.stdout
    assert "acme.slice" in hwtune(site, "table").stdout
    assert "acme handbook, page 7" in hwtune(site, "explain", "acme.slice").stdout
    report = json.loads(hwtune(site, "doctor", "--snapshot", box, "--format", "json").stdout)
    assert report["machine"]["extra"] == {"acme": {"slice": 100}}
    assert report["defects"] == []
    assert {row["id"]: row["outcome"] for row in report["rows"]}["acme.slice"] == "finding"


def test_a_capture_holds_what_its_probe_read(tmp_path: Path) -> None:
    site = install(tmp_path / "site")
    capture = tmp_path / "capture.tar.gz"
    assert hwtune(site, "capture", "-o", str(capture)).returncode == 0
    live = hwtune(site, "doctor", "--only", "acme.*", "--format", "json")
    captured = hwtune(site, "doctor", "--only", "acme.*", "--format", "json", "--snapshot", str(capture))
    assert json.loads(captured.stdout)["rows"] == json.loads(live.stdout)["rows"]


@pytest.mark.parametrize("rows", ["import no_such_module", "from hwtune.diagnosis.row import nothing", "1/0"])
def test_one_that_cannot_be_loaded_is_named(tmp_path: Path, box: str, rows: str) -> None:
    site = install(tmp_path / "site", rows=rows)
    for arguments in (["doctor", "--snapshot", box], ["table"], ["explain", "cpu.turbo"]):
        done = hwtune(site, *arguments)
        assert done.returncode == 3
        assert "the plug-in acme of acme-box (hwtune.remediations) cannot be loaded" in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_row_of_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    done = hwtune(install(tmp_path / "site", rows=ROWS.replace("acme.slice", "cpu.turbo")), "table")
    assert done.returncode == 3
    assert "two rows of the diagnosis table are called cpu.turbo" in done.stderr


@pytest.mark.parametrize(
    ("probe", "words"),
    [
        ('PART = "acme"\ndef read(host):\n    return 1 / 0\n', "ZeroDivisionError"),
        ('PART = "acme"\ndef read(host):\n    return {"x": object()}\n', "object has no JSON form"),
        ('PART = "acme"\n', "AttributeError"),
        ("def read(host):\n    return {}\n", "it has no PART"),
    ],
)
def test_a_probe_that_fails_takes_only_its_own_part_with_it(
    tmp_path: Path, box: str, probe: str, words: str
) -> None:
    done = hwtune(install(tmp_path / "site", probe=probe), "doctor", "--snapshot", box, "--format", "json")
    report = json.loads(done.stdout)
    assert words in report["defects"][0]["error"]
    assert report["machine"]["extra"] == {}
    outcomes = {row["id"]: row["outcome"] for row in report["rows"]}
    assert outcomes["acme.slice"] == "unknown"
    assert len(report["defects"]) == 2  # the probe's, and the row's that has nothing to judge
