"""What is built of this checkout for hosts and controllers: the collection, a wheel, the wheels it needs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from importlib import metadata
from typing import TYPE_CHECKING

from tests.playbooks.controller import BUILT, ROOT
from tests.playbooks.lab import PYTHON

if TYPE_CHECKING:
    from pathlib import Path

# A play with nothing but the role; what it does is in the variables.
ROLE = """\
---
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: hwtune.hwtune.hwtune
"""


def artifact(environment: Path, folder: Path) -> Path:
    """The collection, built by ansible-galaxy."""
    said = _galaxy(environment, folder, "build", str(ROOT / "playbooks"), "--output-path", str(folder))
    (found,) = folder.glob("hwtune-hwtune-*.tar.gz")
    assert found.name in said
    return found


def installed(environment: Path, artifact: Path, folder: Path) -> Path:
    """A folder of collections with this one in it."""
    _galaxy(environment, folder, "install", "--offline", "-p", str(folder), str(artifact))
    assert (folder / "ansible_collections/hwtune/hwtune/plugins/modules/hwtune.py").is_file()
    return folder


def _galaxy(environment: Path, home: Path, *arguments: str) -> str:
    done = subprocess.run(
        [str(environment / "bin" / "ansible-galaxy"), "collection", *arguments],
        env={**os.environ, "ANSIBLE_HOME": str(home / "home"), "ANSIBLE_COLLECTIONS_PATH": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wheel() -> Path:
    """hwtune as a wheel for any Python; built again when its source changes."""
    folders = [ROOT / part for part in ("hwtune", "probes", "remediations")]
    sources = sorted(p for folder in folders for p in folder.rglob("*") if p.is_file())
    sources = [p for p in sources if p.suffix not in (".pyc", ".so")]
    digest = hashlib.sha256()
    for path in [ROOT / "pyproject.toml", *sources]:
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    place = BUILT / "wheels" / digest.hexdigest()[:16]
    if not list(place.glob("*.whl")):
        shutil.rmtree(place.parent, ignore_errors=True)
        options = ("--config-settings=wheel.cmake=false", "--config-settings=wheel.py-api=py3")
        _pip("wheel", "--no-deps", "--no-build-isolation", *options, f"--wheel-dir={place}", str(ROOT))
    (found,) = place.glob("hwtune-*.whl")
    return found


def wheelhouse() -> Path:
    """A folder with the wheels that hwtune needs on the hosts' Python; fetched again when they change."""
    needed = [text for text in metadata.requires("hwtune") or [] if "extra ==" not in text]
    told = [PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    version = subprocess.run(told, capture_output=True, text=True, check=True).stdout.strip()
    place = BUILT / "wheelhouse" / hashlib.sha256(f"{version} {needed}".encode()).hexdigest()[:16]
    if not place.exists():
        shutil.rmtree(place.parent, ignore_errors=True)
        half = place.with_suffix(".part")
        target = ("--only-binary=:all:", "--implementation=cp", f"--python-version={version}")
        _pip("download", *target, f"--dest={half}", *needed)
        half.rename(place)
    return place


def _pip(command: str, *arguments: str) -> None:
    line = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", command, "--quiet"]
    done = subprocess.run([*line, *arguments], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
