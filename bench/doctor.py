"""How fast doctor is: on the live host, on the largest captured tree, and as machines grow."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.timing import Result, compare, python, run, run_cpu

if TYPE_CHECKING:
    from collections.abc import Callable

IMPORTS = "import click, msgspec, psutil, pyudev"
BUSIEST = "node-tuning-operator/bare-metal-worker1.internal.tgz"
LARGEST = "hwloc/tests/hwloc/linux/256ia64-64n2s2c.tar.bz2"


def _hwtune() -> str:
    """The console script beside this interpreter: what a user starts."""
    script = shutil.which("hwtune", path=str(Path(python()[0]).parent))
    if script is None:
        raise RuntimeError("hwtune is not installed in this virtual environment; run make bench")
    return script


def _argv(*options: str) -> list[str]:
    return [_hwtune(), "doctor", "--fail-on", "never", *options]


def _doctor(*options: str) -> Callable[[], float]:
    argv = _argv(*options)
    return lambda: run(argv)


def _doctor_cpu(snapshot: Path) -> Callable[[], float]:
    argv = _argv("--snapshot", str(snapshot))
    return lambda: run_cpu(argv)


def _imports() -> Callable[[], float]:
    return lambda: run(python("-c", IMPORTS))


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
        compare("doctor", "live, passive", _doctor(), _imports(), f"python -c '{IMPORTS}'", 2.0),
        compare(
            "doctor",
            "live, passive, JSON",
            _doctor("--format", "json"),
            _imports(),
            f"python -c '{IMPORTS}'",
            2.0,
        ),
    ]


def captured() -> list[Result]:
    """The trees with the most CPUs and nodes, and with the most PCI functions, among the captured ones;
    unpacked and packed. Target of the first: one second."""
    realdata = os.environ.get("HWTUNE_REALDATA")
    if not realdata:
        print("captured trees: skipped, HWTUNE_REALDATA is not set")
        return []
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(Path(realdata) / LARGEST) as archive:
            archive.extractall(folder, filter="data")
        return [
            compare("doctor", name, _doctor("--snapshot", place), lambda: 1.0, "one second", target)
            for name, place, target in (
                ("256 CPUs, 64 nodes, unpacked", folder, 1.0),
                ("256 CPUs, 64 nodes, .tar.bz2", f"{realdata}/{LARGEST}", None),
                ("80 CPUs, 300 PCI functions, .tgz", f"{realdata}/{BUSIEST}", None),
            )
        ]


def growth() -> list[Result]:
    """CPU time as CPUs, IRQs and PCI devices grow four-fold: the ratio of a step should be at most 4."""
    from tests.support.synthetic import build

    results = []
    with tempfile.TemporaryDirectory() as folder:
        trees = {}
        for cpus in (64, 256, 1024):
            trees[cpus] = Path(folder) / str(cpus)
            build(
                trees[cpus],
                cpus=cpus,
                irqs=cpus * 2,
                pci_devices=cpus,
                nodes=max(1, cpus // 64),
                nics=cpus // 16,
                drives=cpus // 16,
            )
        for small, large in ((64, 256), (256, 1024)):
            results.append(
                compare(
                    "growth",
                    f"{large} CPUs, {large * 2} IRQs, {large} PCI devices",
                    _doctor_cpu(trees[large]),
                    _doctor_cpu(trees[small]),
                    f"a quarter of each ({small} CPUs)",
                    4.0,
                    unit="ms CPU",
                    rounds=5,
                )
            )
    return results


SUITES = (start_up, live, captured, growth)
