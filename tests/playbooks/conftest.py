"""What these tests share: two Ansibles, the collection as it is installed, hosts. They take minutes, and run
when asked for: scripts/test-playbooks."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.playbooks import lab as lab_
from tests.playbooks import made
from tests.playbooks.controller import BUILT, Controller

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
LOGS = BUILT / "logs"
VERSIONS = ("2.15", "newest")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.playbooks)
            item.add_marker(pytest.mark.timeout(600))


def environment(version: str) -> Path:
    found = BUILT / f"ansible-{version}"
    if not (found / "bin" / "ansible").exists():
        pytest.skip(f"no Ansible {version} here: scripts/test-playbooks makes it")
    return found


@pytest.fixture(scope="session")
def newest() -> Path:
    return environment("newest")


@pytest.fixture(scope="session")
def logs() -> Path:
    """Where a run's logs are found afterwards."""
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    return LOGS


@pytest.fixture(scope="session")
def artifact(newest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection, built."""
    return made.artifact(newest, tmp_path_factory.mktemp("artifact"))


@pytest.fixture(scope="session")
def collections(newest: Path, artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the built collection is installed; no test sees the checkout's."""
    return made.installed(newest, artifact, tmp_path_factory.mktemp("collections"))


@pytest.fixture(params=VERSIONS)
def alone(request: pytest.FixtureRequest, collections: Path, tmp_path: Path) -> Controller:
    """Each Ansible, without hosts."""
    return Controller(environment(request.param), collections, tmp_path / "controller")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab_.Lab]:
    lacking = lab_.lacking()
    if lacking:
        pytest.skip(lacking)
    with lab_.Lab(tmp_path_factory.mktemp("lab")) as made:
        yield made


@pytest.fixture(scope="module")
def controllers(
    lab: lab_.Lab, collections: Path, logs: Path, request: pytest.FixtureRequest
) -> dict[str, Controller]:
    """Both Ansibles, by version; the older one only where it runs."""
    found = {}
    for version in VERSIONS:
        if (BUILT / f"ansible-{version}" / "bin" / "ansible").exists():
            folder = logs / f"{Path(request.node.name).stem}-{version}"
            found[version] = Controller(environment(version), collections, folder, lab)
    if "newest" not in found:
        environment("newest")
    return found


@pytest.fixture(scope="session")
def wheel() -> Path:
    return made.wheel()


@pytest.fixture(scope="session")
def wheelhouse() -> Path:
    return made.wheelhouse()
