"""A libcuda.so.1 for tests: tests/native/fake_cuda.c and the kernels that it runs, compiled here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

NATIVE = Path(__file__).parent.parent / "native"
#: Begins like what the driver loads; the fake's kernels come from elsewhere.
IMAGE = b"\x7fELF"


def build(folder: Path, *hidden: str) -> Path:
    """``folder`` with libcuda.so.1 and kernels.so; without the functions ``hidden``. The test is skipped
    where there is no compiler."""
    cc, cxx = shutil.which("cc"), shutil.which("c++")
    if cc is None or cxx is None:
        pytest.skip("no compiler to build the fake CUDA driver with")
    folder.mkdir(parents=True, exist_ok=True)
    shared = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    renamed = [f"-D{name}=hidden_{name}" for name in hidden]
    _run(
        cc,
        *shared,
        "-O1",
        *renamed,
        "-o",
        folder / "libcuda.so.1",
        NATIVE / "fake_cuda.c",
        "-ldl",
        "-pthread",
    )
    if not hidden:
        # longjmp between stacks is what a fortified one refuses
        options = ["-std=c++20", "-O2", "-U_FORTIFY_SOURCE", "-Wno-unknown-pragmas"]
        _run(cxx, *shared, *options, "-o", folder / "kernels.so", NATIVE / "fake_cuda_kernels.cpp")
    return folder


def _run(*arguments: str | Path) -> None:
    subprocess.run([str(a) for a in arguments], check=True)


def environment(folder: Path, work: Path, lines: Sequence[str] = ()) -> dict[str, str]:
    """What a process needs to find the fake by its usual name, with a scenario of these lines; what the fake
    has to complain of goes to ``work``/log."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "scenario").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (work / "log").write_text("", encoding="utf-8")
    return {
        "LD_LIBRARY_PATH": str(folder),
        "FAKE_CUDA_SCENARIO": str(work / "scenario"),
        "FAKE_CUDA_LOG": str(work / "log"),
        "FAKE_CUDA_KERNELS": str(folder / "kernels.so"),
    }


def complaints(work: Path) -> list[str]:
    return (work / "log").read_text(encoding="utf-8").splitlines()
