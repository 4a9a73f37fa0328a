"""How fast doctor is: on the live host, on the largest captured tree, and as machines grow."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.timing import Result, compare, python, run

if TYPE_CHECKING:
    from collections.abc import Callable

IMPORTS = "import click, msgspec, psutil, pyudev"
LARGEST = "hwloc/tests/hwloc/linux/256ia64-64n2s2c.tar.bz2"


def _hwtune() -> str:
    """The console script beside this interpreter: what a user starts."""
    script = shutil.which("hwtune", path=str(Path(python()[0]).parent))
    if script is None:
        raise RuntimeError("hwtune is not installed in this virtual environment; run make bench")
    return script


def _doctor(snapshot: str | None = None) -> Callable[[], float]:
    argv = [_hwtune(), "doctor", "--fail-on", "never"]
    if snapshot is not None:
        argv += ["--snapshot", snapshot]
    return lambda: run(argv)


def start_up() -> list[Result]:
    version = [_hwtune(), "--version"]
    return [
        compare(
            "start-up",
            "hwtune --version",
            lambda: run(version),
            lambda: run(python("-c", "import click")),
            "python -c 'import click'",
            1.5,
        )
    ]


def live() -> list[Result]:
    return [
        compare(
            "doctor",
            "live, passive",
            _doctor(),
            lambda: run(python("-c", IMPORTS)),
            f"python -c '{IMPORTS}'",
            2.0,
        )
    ]


def captured() -> list[Result]:
    """The tree with the most CPUs and nodes among the captured ones, unpacked; target: one second."""
    realdata = os.environ.get("HWTUNE_REALDATA")
    if not realdata:
        print("captured trees: skipped, HWTUNE_REALDATA is not set")
        return []
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(Path(realdata) / LARGEST) as archive:
            archive.extractall(folder, filter="data")
        # the yardstick is time itself: a second, as a process that sleeps that long
        return [
            compare(
                "doctor",
                "256 CPUs, 64 nodes, captured",
                _doctor(folder),
                lambda: run(["/bin/sleep", "1"]),
                "one second",
                1.0,
                rounds=5,
            )
        ]


def growth() -> list[Result]:
    """Time as CPUs, IRQs and PCI devices grow four-fold: the ratio of a step should be at most 4."""
    from tests.support.synthetic import build

    results = []
    with tempfile.TemporaryDirectory() as folder:
        trees = {}
        for cpus in (64, 256, 1024):
            trees[cpus] = Path(folder) / str(cpus)
            build(trees[cpus], cpus=cpus, irqs=cpus * 2, pci_devices=cpus, nodes=max(1, cpus // 64))
        for small, large in ((64, 256), (256, 1024)):
            results.append(
                compare(
                    "growth",
                    f"{large} CPUs, {large * 2} IRQs, {large} PCI devices",
                    _doctor(str(trees[large])),
                    _doctor(str(trees[small])),
                    f"a quarter of each ({small} CPUs)",
                    4.0,
                    rounds=5,
                )
            )
    return results


SUITES = (start_up, live, captured, growth)
