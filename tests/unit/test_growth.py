"""Work grows with the machine and no faster: counted, not timed, so that a busy test machine is no matter."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from hwtune.diagnosis.engine import judge, probe
from hwtune.diagnosis.table import table
from hwtune.host.snapshot import open_snapshot
from hwtune.profile import load
from hwtune.report.published import encode, publish
from hwtune.report.terminal import Style
from hwtune.report.text import render
from tests.support.synthetic import build
from tests.support.watched import Watched

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType


# Numbered paths that two subsystems ask for: none grows with the machine.
SHARED = {"/sys/devices/system/clocksource/clocksource0/available_clocksource"}


class Work(NamedTuple):
    """What one diagnosis took: questions to the file system, and functions called."""

    asked: int
    calls: int


def work(folder: Path, **size: int) -> Work:
    host = Watched(open_snapshot(str(build(folder, **size))))
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    rows, profile = table(), load()
    sys.setprofile(count)
    try:
        machine, defects = probe(host)
        diagnosis = judge(machine, rows, profile, defects)
        render(diagnosis, host, profile, Style(80, False))
        encode(publish(diagnosis, host, profile))
    finally:
        sys.setprofile(None)
    assert not diagnosis.defects, diagnosis.defects
    return Work(host.asked(), calls)


SIZES = {
    "cpus": ({"cpus": 16}, {"cpus": 32}, {"cpus": 64}),
    "irqs": ({"irqs": 64}, {"irqs": 128}, {"irqs": 256}),
    "pci_devices": ({"pci_devices": 32}, {"pci_devices": 64}, {"pci_devices": 128}),
    "nics": ({"nics": 4}, {"nics": 8}, {"nics": 16}),
    "drives": ({"drives": 4}, {"drives": 8}, {"drives": 16}),
    "nodes": ({"nodes": 2}, {"nodes": 4}, {"nodes": 8}),
    "everything": tuple(
        {"cpus": n, "irqs": 2 * n, "pci_devices": n, "nodes": n // 8, "nics": n // 4, "drives": n // 4}
        for n in (16, 32, 64)
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SIZES)
def test_twice_the_machine_is_at_most_twice_the_work(tmp_path: Path, what: str) -> None:
    base = {"cpus": 32, "irqs": 32, "pci_devices": 32, "nodes": 2}
    work(tmp_path / "first", **base)  # what is imported and compiled once is not counted below
    small, middle, large = (
        work(tmp_path / str(number), **{**base, **size}) for number, size in enumerate(SIZES[what])
    )
    for kind in Work._fields:
        first = getattr(middle, kind) - getattr(small, kind)
        second = getattr(large, kind) - getattr(middle, kind)
        # linear work adds exactly twice as much in the second step; the rest is for lists that are
        # sorted, and for lines of the report that are wrapped
        assert second <= 2.1 * first + 50, (kind, small, middle, large)


def test_each_file_is_read_once(tmp_path: Path) -> None:
    """But for a few that hold something for several subsystems."""
    host = Watched(open_snapshot(str(build(tmp_path, cpus=16, irqs=32, pci_devices=16, nodes=2))))
    probe(host)
    again = {path for asked in (host.reads, host.listings) for path, times in asked.items() if times > 1}
    assert {path for path in again if any(character.isdigit() for character in path)} <= SHARED
    assert len(again) < 15, again
