"""hwtune as it is in this checkout, put into a machine that has no network.

What pip would lay out there is laid out here, for the machine's Python, as emulated it takes minutes: a wheel
is built, and installed with its dependencies into a folder, which the machine unpacks into a virtual
environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.machine.machine import Machine

ROOT = Path(__file__).parents[2]
ENVIRONMENT = "/opt/hwtune"
HWTUNE = f"{ENVIRONMENT}/bin/hwtune"
# Debian 12's Python and C library.
GUEST_PYTHON = (3, 11)
GUEST_LIBC = 36

# Seconds.
BUILD_LIMIT = 600
FETCH_LIMIT = 600
UNPACK_LIMIT = 300


def pack(folder: Path) -> Path:
    """Build; the folder then holds hwtune.tar, and can be a machine's ``share``."""
    shutil.rmtree(folder, ignore_errors=True)
    wheels, tree = folder / "wheels", folder / "tree"
    wheels.mkdir(parents=True)
    _pip("wheel", "--no-deps", f"--wheel-dir={wheels}", *_native(), os.fspath(ROOT), limit=BUILD_LIMIT)
    (wheel,) = wheels.iterdir()
    # pip takes the platforms that are named, and none that they imply.
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(GUEST_LIBC, 16, -1)]
    platforms += ["manylinux2014_x86_64", "linux_x86_64"]
    target = [
        "--only-binary=:all:",
        "--implementation=cp",
        f"--python-version={GUEST_PYTHON[0]}.{GUEST_PYTHON[1]}",
    ]
    target += [f"--platform={platform}" for platform in platforms]
    _pip("install", f"--target={tree}", *target, os.fspath(wheel), limit=FETCH_LIMIT)
    _, _, script = (tree / "bin" / "hwtune").read_text().partition("\n")
    (tree / "bin" / "hwtune").write_text(f"#!{ENVIRONMENT}/bin/python\n{script}")
    packages = f"lib/python{GUEST_PYTHON[0]}.{GUEST_PYTHON[1]}/site-packages"
    with tarfile.open(folder / "hwtune.tar", "w") as archive:
        for entry in sorted(tree.iterdir()):
            archive.add(entry, "bin" if entry.name == "bin" else f"{packages}/{entry.name}", filter=_roots)
    shutil.rmtree(tree)
    return folder


def install(machine: Machine) -> None:
    """Unpack what ``pack`` has put into the machine's share. Nothing of the share stays mounted."""
    machine.check(f"python3 -m venv --without-pip {ENVIRONMENT}")
    mount = "mount -t 9p -o trans=virtio,version=9p2000.L,ro share /mnt"
    unpack = f"tar -x --no-same-owner -f /mnt/hwtune.tar -C {ENVIRONMENT}"
    machine.check(f"{mount} && {unpack}; status=$?; umount /mnt; exit $status", UNPACK_LIMIT)
    # Where this Python is not of the machine's kind, nothing is compiled yet, and the first use would do it.
    compiled = " ".join(("hwtune", "click", "msgspec", "pyudev"))
    packages = f"{ENVIRONMENT}/lib/python*/site-packages"
    machine.check(f"cd {packages} && python3 -m compileall -q -j 4 {compiled}", UNPACK_LIMIT)


def _native() -> list[str]:
    """With the native module where this Python makes one that the machine's can load."""
    if sys.version_info[:2] == GUEST_PYTHON:
        return []
    return ["--config-settings=wheel.cmake=false", "--config-settings=wheel.py-api=py3"]


def _roots(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _pip(command: str, *arguments: str, limit: float) -> None:
    line = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--no-input",
        command,
        "--quiet",
        *arguments,
    ]
    done = subprocess.run(
        line,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=limit,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"pip {command}: status {done.returncode}\n{done.stdout.decode(errors='replace')[-3000:]}"
        )
