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
