"""The command line as its users see it: a process, its output, its exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def hwtune(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hwtune", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


def test_version() -> None:
    done = hwtune("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hwtune 0.1.0\n", "")


def test_help_names_every_command() -> None:
    done = hwtune("--help")
    assert done.returncode == 0
    for name in ("doctor", "validate", "capture", "table", "explain", "profiles", "schema", "completion"):
        assert f"  {name}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["docter"], "did you mean doctor"),
        (["doctor", "--profile", "low-latncy"], "did you mean low-latency"),
        (["doctor", "--set", "memory.swapiness_max=1"], "did you mean memory.swappiness_max"),
        (["doctor", "--only", "memory.swapiness"], "did you mean memory.swappiness"),
        (["doctor", "--snapshot", "/no/such/file"], "/no/such/file"),
        (["doctor", "--format", "yaml"], "yaml"),
        (["doctor", "-o", "/no/such/folder/report"], "/no/such/folder/report"),
        (["explain", "memory.swapiness"], "did you mean memory.swappiness"),
        (["explain"], "ROW"),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_2(arguments: list[str], words: str) -> None:
    done = hwtune(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("hwtune: ") and done.stderr.count("\n") == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def _snapshot(folder: Path, swappiness: int) -> str:
    (folder / "proc/sys/vm").mkdir(parents=True)
    (folder / "proc/sys/vm/swappiness").write_text(f"{swappiness}\n")
    # without a swap area, swappiness decides nothing
    (folder / "proc/swaps").write_text("Filename Type Size Used Priority\n/dev/sda2 partition 1024 0 -2\n")
    return str(folder)


def test_exit_status_follows_fail_on(tmp_path: Path) -> None:
    bad = _snapshot(tmp_path, 60)
    only = ("doctor", "--snapshot", bad, "--only", "memory.swappiness")
    done = hwtune(*only, "--format", "json")
    row = json.loads(done.stdout)["rows"][0]
    assert (row["id"], row["outcome"]) == ("memory.swappiness", "finding")
    order = ["info", "warning", "error"]
    for severity in order:
        expected = 1 if order.index(row["severity"]) >= order.index(severity) else 0
        assert hwtune(*only, "--fail-on", severity).returncode == expected
    assert hwtune(*only, "--fail-on", "never").returncode == 0
    assert hwtune(*only, "--set", "memory.swappiness_max=60").returncode == 0


def test_the_report_goes_to_the_file_that_was_named(tmp_path: Path) -> None:
    snapshot = _snapshot(tmp_path / "box", 1)
    target = tmp_path / "report.json"
    done = hwtune(
        "doctor", "--snapshot", snapshot, "--format", "json", "-o", str(target), "--fail-on", "never"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads(target.read_text())["host"]["source"] == "snapshot"


@pytest.mark.parametrize(
    ("form", "begins"),
    [("junit", "<?xml "), ("prometheus", "# HELP hwtune_"), ("html", "<!DOCTYPE html>")],
)
def test_every_format_goes_to_stdout_and_to_a_file(form: str, begins: str, tmp_path: Path) -> None:
    snapshot = _snapshot(tmp_path / "box", 60)
    only = ("doctor", "--snapshot", snapshot, "--only", "memory.swappiness", "--format", form)
    printed = hwtune(*only, "--set", "memory.swappiness_max=60")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert printed.stdout.startswith(begins)
    failed = hwtune(*only, "--fail-on", "info", "-o", str(tmp_path / "report"))
    assert (failed.returncode, failed.stdout, failed.stderr) == (1, "", "")
    assert (tmp_path / "report").read_text().startswith(begins)
    assert hwtune(*only, "-o", "/dev/stdout", "--fail-on", "never").stdout.startswith(begins)


def test_doctor_runs_on_this_very_machine() -> None:
    done = hwtune("doctor", "--format", "json", "--fail-on", "never")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["defects"] == []
    assert report["host"]["source"] == "live"
    assert report["host"]["kernel"] == os.uname().release
    assert report["machine"]["cpus"]["online"] == _online()
    assert sum(report["summary"][o] for o in ("ok", "finding", "not-applicable", "unknown")) == len(
        report["rows"]
    )


def _online() -> list[int]:
    cpus: list[int] = []
    for part in Path("/sys/devices/system/cpu/online").read_text().strip().split(","):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


def test_doctor_starts_no_heavy_import() -> None:
    code = (
        "import sys; sys.argv = ['hwtune', 'doctor', '--fail-on', 'never', '-o', '/dev/null']\n"
        "from hwtune.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert end.code == 0, end.code\n"
        "heavy = {'numpy', 'rich', 'jinja2', 'cpuinfo', 'asyncio', 'zstandard'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m hwtune doctor --format json --fail-on never | head -c 1",
        shell=True,  # the point is the shell's pipe
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "{" and done.stderr == ""


@pytest.mark.parametrize("redirections", ["<&-", "2>&-", "<&- 2>&-"])
def test_a_closed_stream_is_no_error(redirections: str) -> None:
    done = subprocess.run(
        f"{sys.executable} -m hwtune doctor --format json --fail-on never {redirections}",
        shell=True,  # the point is what the shell closes
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and done.stderr == ""
    assert json.loads(done.stdout)["schema_version"] == "1"


@pytest.mark.parametrize(
    ("redirections", "words"),
    [(">&-", "standard output is closed"), (">/dev/full", "what was to be printed: No space left on device")],
)
def test_nowhere_to_print_is_one_sentence_and_exit_3(redirections: str, words: str) -> None:
    done = subprocess.run(
        f"{sys.executable} -m hwtune doctor --only 'memory.*' {redirections}",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert words in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    done = hwtune("completion", shell)
    assert done.returncode == 0
    assert "_HWTUNE_COMPLETE" in done.stdout


def test_completion_completes() -> None:
    done = hwtune("", COMP_WORDS="hwtune doc", COMP_CWORD="1", _HWTUNE_COMPLETE="bash_complete")
    assert done.stdout.strip() == "plain,doctor"


def test_explain_and_table_agree() -> None:
    done = hwtune("explain", "memory.swappiness")
    assert done.returncode == 0
    for word in ("Symptom:", "Cause:", "Risk:", "Cost:", "Sources:"):
        assert word in done.stdout
    rows = json.loads(hwtune("table", "--format", "json").stdout)
    assert "memory.swappiness" in [r["id"] for r in rows]
