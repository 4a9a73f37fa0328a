"""The examples of docs/queue.md work as they stand."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "queue.md").read_text()


def block(language: str) -> str:
    (code,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(code)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_program_compiles_without_a_warning_and_runs(tmp_path):
    source = tmp_path / "example.cpp"
    source.write_text(block("cpp"))
    flags = ["-std=c++20", "-O2", "-pthread", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
    program = tmp_path / "example"
    argv = ["g++", *flags, f"-I{ROOT / 'native' / 'include'}", str(source), "-o", str(program)]
    subprocess.run(argv, check=True, timeout=100)
    done = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    # prices 100 to 106 in turn, ten each: 14285 rounds of 721, and 100 to 104 of the next
    assert int(done.stdout) == 10 * (14285 * 721 + 510)


def test_the_python_example_runs(tmp_path):
    place = tmp_path / "trades"
    code = block("python").replace("/dev/shm/trades", str(place))
    exec(compile(code, "docs/queue.md", "exec"), {})
    from hwtune._native import SharedQueue

    consumer = SharedQueue.open(place).consumer()
    assert consumer.peer() == "closed"
    payload = consumer.front()
    assert payload is not None
    assert payload[:8].tolist() == [7] * 8
    assert consumer.number == 0
