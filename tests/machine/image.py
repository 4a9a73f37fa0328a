"""The machine's disk: Debian 12 by a fixed recipe, made once and kept by the recipe's hash.

Where: ``HWTUNE_MACHINE_CACHE``, else ``~/.cache/hwtune-machine``. An image there is whole: it is built
beside its place and renamed into it. Its last step is a start of the machine, which installs the boot loader
and lets what happens once in a machine's life happen, so that a test finds a machine that has settled.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.machine import hardware
from tests.machine.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

SUITE = "bookworm"
PACKAGES = (
    *("linux-image-amd64", "initramfs-tools", "grub-pc", "systemd-sysv", "udev", "dbus", "kmod"),
    *("python3", "python3-venv"),
    *("irqbalance", "tuned", "openssh-server"),
    *("ethtool", "fio", "iproute2", "numactl", "nvme-cli", "pciutils", "procps", "strace", "util-linux"),
)
DISK_SIZE = 3 << 30
PARTITION_START = 1 << 20

# Seconds: unpacking, making the file system, the first start.
BOOTSTRAP_LIMIT = 900
FILE_SYSTEM_LIMIT = 180
SETTLE_LIMIT = 900
# Images of older recipes go when they have not been used for this long.
KEEP = 14 * 86400

FILES = {
    "etc/hostname": "machine\n",
    "etc/hosts": "127.0.0.1 localhost\n127.0.1.1 machine\n",
    "etc/fstab": "LABEL=root / ext4 errors=remount-ro 0 1\n",
    # The initial RAM disk has what this machine needs to find its root, and no more: BIOS calls read it.
    "etc/initramfs-tools/conf.d/machine": "MODULES=list\n",
    "etc/initramfs-tools/modules": "virtio_pci\nvirtio_blk\next4\nnvme\n",
    "etc/default/grub.d/machine.cfg": "\n".join(
        (
            "GRUB_TIMEOUT=0",
            "GRUB_RECORDFAIL_TIMEOUT=0",
            'GRUB_CMDLINE_LINUX_DEFAULT=""',
            'GRUB_CMDLINE_LINUX="console=ttyS0"',
            "GRUB_TERMINAL=console",
            "",
        )
    ),
}
# Of the folder guest/, what is in the image.
GUEST = {
    "usr/local/lib/test-agent.py": "agent.py",
    "etc/systemd/system/test-agent.service": "test-agent.service",
}
# They would change files, and take processor time, at moments of their own; or look for what isn't there.
UNITS = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "ssh.service",
)
UNITS += ("e2scrub_reap.service", "nvmf-autoconnect.service")
HOOKS = (
    'chroot "$1" systemctl --quiet enable test-agent.service',
    'chroot "$1" systemctl --quiet disable ' + " ".join(UNITS),
    'chroot "$1" useradd --create-home --shell /bin/sh person',
    'chroot "$1" passwd --quiet --delete root',
)
SETTLE = (
    "grub-install --target=i386-pc /dev/vda",
    "update-grub",
    "echo 'grub-pc grub-pc/install_devices multiselect /dev/vda' | debconf-set-selections",
    "rm -f /var/lib/systemd/random-seed",
    "sync",
)


class Image(NamedTuple):
    folder: Path

    @property
    def disk(self) -> Path:
        return self.folder / "disk.raw"


def recipe() -> str:
    """All that the image depends on, as text, except which versions Debian has today."""
    parts = [SUITE, *PACKAGES, str(DISK_SIZE), str(PARTITION_START)]
    parts += [f"{path}={content}" for path, content in FILES.items()]
    parts += _guest().values()
    parts += [*HOOKS, *SETTLE]
    return "\n".join(parts)


def cache() -> Path:
    place = os.environ.get("HWTUNE_MACHINE_CACHE")
    return Path(place) if place else Path.home() / ".cache" / "hwtune-machine"


def available() -> str:
    """Why no image can be had here; empty when one can."""
    if _place().exists():
        return ""
    lacking = [tool for tool in ("mmdebstrap", "mkfs.ext4") if not shutil.which(tool)]
    return f"no image yet, and no {', '.join(lacking)} to make one" if lacking else ""


def image() -> Image:
    """The image, from the cache or built now (minutes)."""
    place = _place()
    with _locked(cache()):
        if not place.exists():
            building = Path(tempfile.mkdtemp(prefix="building-", dir=cache()))
            try:
                _build(building)
                building.rename(place)
            finally:
                _remove(building)
        os.utime(place)
        _forget_old(cache(), place)
    return Image(place)


def _place() -> Path:
    return cache() / hashlib.sha256(recipe().encode()).hexdigest()[:16]


def _build(folder: Path) -> None:
    root, stage, disk = folder / "root", folder / "stage.tar", folder / "disk.raw"
    _stage(stage)
    _say("unpacking Debian")
    command = ["mmdebstrap", "--variant=minbase", "--quiet", f"--include={','.join(PACKAGES)}"]
    command += ['--aptopt=Apt::Install-Recommends "false"']
    command += [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("man", "locale", "doc", "info")]
    # Before the kernel's own scripts make the initial RAM disk.
    command += [f"--essential-hook=tar-in {_quoted(stage)} /"]
    command += [f"--customize-hook={hook}" for hook in HOOKS]
    _run([*command, SUITE, os.fspath(root)], BOOTSTRAP_LIMIT, folder / "bootstrap.log")
    for name, pattern in (("vmlinuz", "vmlinuz-*"), ("initrd", "initrd.img-*")):
        shutil.copyfile(max((root / "boot").glob(pattern)), folder / name)
    _say("making its disk")
    _make_disk(root, disk, folder / "file-system.log")
    shutil.rmtree(root)
    stage.unlink()
    _say("first start")
    _settle(folder, disk)
    (folder / "recipe").write_text(recipe())


def _stage(stage: Path) -> None:
    files = FILES | _guest()
    with tarfile.open(stage, "w") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path)  # root's, 0644
            member.size = len(content.encode())
            archive.addfile(member, io.BytesIO(content.encode()))


def _guest() -> dict[str, str]:
    folder = Path(__file__).parent / "guest"
    return {path: (folder / name).read_text() for path, name in GUEST.items()}


def _make_disk(root: Path, disk: Path, log: Path) -> None:
    """A disk with one bootable partition, holding the tree; the megabyte before it is for the boot loader."""
    with disk.open("wb") as file:
        file.truncate(DISK_SIZE)
    size = (DISK_SIZE - PARTITION_START) // 1024
    command = ["mkfs.ext4", "-q", "-L", "root", "-E", f"offset={PARTITION_START}", "-d"]
    command += [os.fspath(root), os.fspath(disk), f"{size}k"]
    _run(
        [*([] if os.geteuid() == 0 else ["mmdebstrap", "--unshare-helper"]), *command], FILE_SYSTEM_LIMIT, log
    )
    sectors = struct.pack("<II", PARTITION_START // 512, (DISK_SIZE - PARTITION_START) // 512)
    entry = bytes((0x80, 0xFE, 0xFF, 0xFF, 0x83, 0xFE, 0xFF, 0xFF)) + sectors
    with disk.open("r+b") as file:
        file.seek(440)
        file.write(os.urandom(4) + bytes(2) + entry + bytes(48) + b"\x55\xaa")


def _settle(folder: Path, disk: Path) -> None:
    arguments = "root=/dev/vda1 ro console=ttyS0"
    kernel = hardware.Kernel(folder / "vmlinuz", folder / "initrd", arguments)
    with Machine(folder / "settle", disk, kernel=kernel, base_is_mine=True) as machine:
        machine.start(SETTLE_LIMIT)
        for step in SETTLE:
            machine.check(step, 300)
        machine.power_off()
    (folder / "settle" / "console.log").rename(folder / "console.log")
    shutil.rmtree(folder / "settle")


def _run(command: list[str], limit: float, log: Path) -> None:
    with log.open("wb") as file:
        try:
            subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, check=True, timeout=limit
            )
        except subprocess.SubprocessError as error:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
            raise RuntimeError(f"{command[0]}: {error}\n{tail}") from None


def _quoted(path: Path) -> str:
    text = os.fspath(path)
    if any(character in text for character in " '\"$"):
        raise RuntimeError(f"the cache's folder has a name that a shell would change: {text}")
    return text


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _forget_old(folder: Path, keep: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and entry != keep and time.time() - entry.stat().st_mtime > KEEP:
            _remove(entry)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


def _say(what: str) -> None:
    print(f"machine: {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    print(image().folder)
