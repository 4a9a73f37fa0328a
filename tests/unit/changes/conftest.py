"""Fixtures of the tests of changes."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import pytest

from hwtune.changes.persist import boot_unit, cpu_latency
from tests.support.small_box import Box

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHM = Path("/dev/shm")


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    """A small box, in memory where that is possible, as much is fsynced. Its units are started by an
    interpreter that is not looked at."""
    for module in (boot_unit, cpu_latency):
        monkeypatch.setattr(module, "interpreter", lambda: "/usr/bin/python3")
    folder = Path(mkdtemp(prefix="hwtune-box-", dir=_SHM if _SHM.is_dir() else None))
    yield Box(folder)
    shutil.rmtree(folder)
