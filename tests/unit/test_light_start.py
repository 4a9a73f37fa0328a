"""doctor runs where the native module was never built, and doesn't pay for libraries that it doesn't use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import tree

UNUSED = ("hwtune._native", "numpy", "jinja2", "cpuinfo", "asyncio")

PROGRAM = """
import sys
sys.modules["hwtune._native"] = None  # importing it raises ImportError, as where it is missing
from hwtune.cli import main
try:
    main()
finally:
    loaded = [name for name in {unused!r} if sys.modules.get(name) is not None]
    assert not loaded, loaded
"""


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """hwtune in a process of its own, with the native module out of reach."""
    program = PROGRAM.format(unused=UNUSED)
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=cwd, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["profiles"]])
def test_commands_that_read_no_machine(arguments, tmp_path):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("form", ["text", "json", "junit", "prometheus"])
def test_doctor_on_a_captured_machine(form, tmp_path):
    tree(
        tmp_path / "box",
        {
            "/proc/version": "Linux version 6.1.0-18-amd64 (gcc) #1 SMP\n",
            "/proc/cmdline": "quiet\n",
            "/sys/devices/system/cpu/online": "0-3\n",
        },
    )
    done = run("doctor", "--snapshot", "box", "--format", form, "--fail-on", "never", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "hwtune" in done.stdout


# What reads captures and the texts that somebody pasted: nothing of it is there on a live machine.
OF_SNAPSHOTS = (
    *("hwtune.host.captured", "hwtune.host.archive", "hwtune.host.documents", "hwtune.host.recognise"),
    *("hwtune.host.prompts", "hwtune.text.lspci", "hwtune.text.lscpu", "hwtune.text.numactl"),
    *("hwtune.text.edac_util", "hwtune.text.cyclictest", "hwtune.text.ibstat", "hwtune.text.ip_link"),
    *("hwtune.text.nvidia_smi_q", "hwtune.text.nvidia_smi_xml", "hwtune.text.nvidia_topo"),
    *("hwtune.text.nvlink_status", "hwtune.text.smart_log", "hwtune.text.smartctl"),
)


def test_a_live_doctor_is_not_asked_to_read_texts(tmp_path):
    program = PROGRAM.format(unused=UNUSED + OF_SNAPSHOTS)
    done = subprocess.run(
        [sys.executable, "-c", program, "doctor", "--fail-on", "never"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
