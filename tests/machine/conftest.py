"""What the machine tests share. They take minutes, and run when asked for: scripts/test-machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.machine import image, install, machine

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
# Of one test, with what it waits for: an image that is built, a machine that starts.
LIMIT = 1800
# Where a run's logs are found afterwards.
LOGS = HERE.parents[1] / "build" / "machine"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.machine)
            item.add_marker(pytest.mark.timeout(LIMIT))


@pytest.fixture(scope="session")
def debian() -> Path:
    """The disk that machines start from; it is never written to."""
    for lack in (machine.available(), image.available()):
        if lack:
            pytest.skip(lack)
    return image.image().disk


@pytest.fixture(scope="session")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``install`` needs, built once."""
    return install.pack(tmp_path_factory.mktemp("share"))


@pytest.fixture(scope="session")
def common(debian: Path, share: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[machine.Machine]:
    """A machine for all modules that leave it as they find it: those with ``COMMON_MACHINE = True``."""
    yield from _started(debian, share, tmp_path_factory.mktemp("common"))


@pytest.fixture(scope="module")
def running(
    debian: Path, share: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[machine.Machine]:
    """A machine, started, with hwtune installed: the module's own, or the common one."""
    if getattr(request.module, "COMMON_MACHINE", False):
        yield request.getfixturevalue("common")
        return
    yield from _started(debian, share, tmp_path_factory.mktemp(Path(request.node.name).stem))


def _started(debian: Path, share: Path, folder: Path) -> Iterator[machine.Machine]:
    try:
        with machine.Machine(folder, debian, share=share) as started:
            started.start()
            install.install(started)
            yield started
    finally:
        LOGS.mkdir(parents=True, exist_ok=True)
        for log in ("console.log", "qemu.log", "trace.log"):
            if (folder / log).exists():
                (LOGS / f"{folder.name.rstrip('0123456789')}-{log}").write_bytes((folder / log).read_bytes())
