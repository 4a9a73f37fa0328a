"""What is to be read: a block device, opened for reading only, or a file of our own in a folder.

The file has no name from the start (O_TMPFILE), so nothing of it is left whatever happens, and it is really
written, as a drive answers for blocks that it never got without asking its flash.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hwtune.drive.results import Target
from hwtune.errors import ToolError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = 4096
FILE_BYTES = 256 << 20
# Of the file system, that stays free beside a file of ours.
FREE_SHARE = 0.1
_CONTROLLER = re.compile(r"nvme\d+")
_LOOKED_AT = 64
_LEAST_BYTES = 4 << 20
# File systems whose data lies on no drive of this machine, or whose layers hide which.
_NO_DRIVE = (
    "tmpfs",
    "ramfs",
    "devtmpfs",
    "overlay",
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "fuse",
    "9p",
    "proc",
    "sysfs",
)


class Open(NamedTuple):
    """``descriptor``: for O_DIRECT reads of ``target.bytes``; closed by whoever has it."""

    descriptor: int
    target: Target
    block: int


class Place(NamedTuple):
    """A path as it was understood: ``kind`` device or folder; ``number``: of the device, or of the
    folder's."""

    kind: str
    path: str
    number: int


# -- which ------------------------------------------------------------------------------------


def locate(name: str) -> Place:
    """By name (nvme0n1), path, link (/dev/disk/by-id/...) or controller (nvme0). Raises ``UsageError``."""
    path = name if os.path.exists(name) or "/" in name else f"/dev/{name}"
    if _CONTROLLER.fullmatch(os.path.basename(path)) and not os.path.isdir(path):
        path = _namespace(os.path.basename(path))
    try:
        found = os.stat(path)
    except OSError as error:
        raise UsageError(f"{name} cannot be looked at: {error.strerror}; `lsblk` lists the drives.") from None
    if stat.S_ISBLK(found.st_mode):
        return Place("device", path, found.st_rdev)
    if stat.S_ISDIR(found.st_mode):
        return Place("folder", path, _device_below(path, found.st_dev))
    kind = {stat.S_IFREG: "a file", stat.S_IFCHR: "a character device"}.get(
        stat.S_IFMT(found.st_mode), "neither"
    )
    raise UsageError(
        f"{name} is {kind}: name a block device, or a folder on the drive, where hwtune makes its own file."
    )


def _namespace(controller: str) -> str:
    """The one namespace of a controller; of a multipath one, the disk above its paths."""
    try:
        names = os.listdir(f"/sys/class/nvme/{controller}")
    except OSError:
        raise UsageError(f"there is no NVMe controller {controller}; `lsblk` lists the drives.") from None
    found = {re.sub(r"c\d+n", "n", n) for n in names if re.fullmatch(r"nvme\d+(c\d+)?n\d+", n)}
    if len(found) != 1:
        which = ", ".join(sorted(found)) or "none"
        raise UsageError(f"{controller} has {len(found)} namespaces ({which}): name one.")
    return f"/dev/{found.pop()}"


def _device_below(path: str, number: int) -> int:
    """The device of a folder's file system. File systems of several devices have numbers of their own; their
    mount names one of them."""
    source, fstype = mount_of(number)
    if fstype.partition(".")[0] in _NO_DRIVE:
        raise UsageError(f"{path} lies on {fstype}, which is no drive: name a folder on the drive itself.")
    if os.path.exists(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"):
        return number
    try:
        found = os.stat(source)
    except OSError:
        raise UsageError(f"which drive {path} lies on is not known (its file system is {fstype}).") from None
    return found.st_rdev


def mount_of(number: int) -> tuple[str, str]:
    """(source, file system type) of a mounted device; ("", "") where none is."""
    wanted = f"{os.major(number)}:{os.minor(number)}"
    for device, _, source, fstype, _ in mounts():
        if device == wanted:
            return source, fstype
    return "", ""


def mounts() -> Iterator[tuple[str, str, str, str, str]]:
    """(major:minor, mount point, source, type, options) of /proc/self/mountinfo (proc(5)); spaces are \\040
    there."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.rstrip("\n").partition(" - ")
            mine, other = left.split(" "), right.split(" ")
            if len(mine) >= 6 and len(other) >= 2:
                point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), mine[4])
                yield mine[2], point, other[1], other[0], mine[5]


# -- what lies below --------------------------------------------------------------------------


def folder_of(number: int) -> str:
    """Its folder in sysfs."""
    return os.path.realpath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")


def disks_below(folder: str) -> list[str]:
    """The whole disks that a device lies on: through partitions, the device mapper and md."""
    if os.path.exists(f"{folder}/partition"):
        folder = os.path.dirname(folder)
    try:
        below = sorted(os.listdir(f"{folder}/slaves"))
    except OSError:
        below = []
    if not below:
        return [os.path.basename(folder)]
    found: list[str] = []
    for name in below:
        found += disks_below(os.path.realpath(f"{folder}/slaves/{name}"))
    return list(dict.fromkeys(found))


def controller_of(disk: str) -> str | None:
    """nvme0 of nvme0n1, where the kernel says so; of a multipath disk, the first path's."""
    for path in (f"/sys/block/{disk}/device", f"/sys/block/{disk}/device/.."):
        name = os.path.basename(os.path.realpath(path))
        if _CONTROLLER.fullmatch(name):
            return name
    found = re.match(r"(nvme\d+)(c\d+)?n\d+$", disk)
    return found[1] if found and os.path.exists(f"/sys/class/nvme/{found[1]}") else None


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip() or None
    except OSError:  # this kind of device has no such file
        return None


# -- opening ----------------------------------------------------------------------------------


def describe(place: Place, file_bytes: int = FILE_BYTES) -> Target:
    """What it is and what lies below it; nothing is opened. Raises ``UsageError`` for a device without a
    medium."""
    folder = folder_of(place.number)
    disks = disks_below(folder)
    single = disks[0] if len(disks) == 1 else None
    size = file_bytes
    if place.kind == "device":
        size = _size(folder)
        if size < _LEAST_BYTES:
            raise UsageError(f"{place.path} holds {size:,} bytes: there is no medium, or too little to read.")
    return Target(
        kind="device" if place.kind == "device" else "file",
        path=place.path,
        name=os.path.basename(folder),
        disks=disks,
        controller=controller_of(single) if single else None,
        model=_text(f"/sys/block/{single}/device/model") if single else None,
        bytes=size,
        notes=_stack(folder, disks),
    )


def open_target(place: Place, file_bytes: int = FILE_BYTES) -> Open:
    """Ready to be read; a file is made. Raises ``UsageError`` or ``ToolError``."""
    found = describe(place, file_bytes)
    block = max([BLOCK, *(int(_text(f"/sys/block/{d}/queue/logical_block_size") or 0) for d in found.disks)])
    if place.kind != "device":
        return Open(own_file(place.path, file_bytes), found, block)
    descriptor = _open_device(place.path)
    notes = [*found.notes, *_never_written(descriptor, found.bytes, block)]
    return Open(descriptor, msgspec.structs.replace(found, notes=notes), block)


def _stack(folder: str, disks: list[str]) -> list[str]:
    name = os.path.basename(folder)
    if disks == [name]:
        backing = _text(f"{folder}/loop/backing_file")
        return [f"{name} is a loop device: what is read is the file {backing}"] if backing else []
    kind = "a partition of" if os.path.exists(f"{folder}/partition") else "made of"
    return [f"{name} is {kind} {', '.join(disks)}"]


def _size(folder: str) -> int:
    return (
        int(_text(f"{folder}/size") or 0) * 512
    )  # always of 512 bytes (Documentation/ABI/stable/sysfs-block)


def _open_device(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            raise ToolError(
                f"{path} may not be read ({error.strerror}): run it as root, outside a container,"
                " or name a folder on the drive."
            ) from None
        raise ToolError(f"{path} cannot be opened for direct reads: {error.strerror}.") from None


def _never_written(descriptor: int, size: int, block: int) -> list[str]:
    """Whether blocks here and there are all zeros: a drive answers for blocks that it never got, or that were
    discarded, from its map."""
    import mmap
    import random

    places = random.Random(1)
    empty = 0
    with mmap.mmap(-1, block) as buffer:
        for _ in range(_LOOKED_AT):
            try:
                os.preadv(descriptor, [buffer], places.randrange(size // block) * block)
            except OSError:  # the measurement counts and tells those
                continue
            empty += not any(buffer[:])
    if empty < 0.75 * _LOOKED_AT:
        return []
    return [
        f"{empty} of {_LOOKED_AT} blocks looked at are all zeros: where a drive was never written it answers"
        " without its flash, faster than it will with data"
    ]


def check_space(folder: str, file_bytes: int) -> None:
    """Raises ``ToolError`` where a file of ours would leave less free than a tenth of the file system."""
    found = os.statvfs(folder)
    free, whole = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    if free - file_bytes < FREE_SHARE * whole:
        raise ToolError(
            f"{folder} has {free >> 20:,} MiB free of {whole >> 20:,}: a file of {file_bytes >> 20}"
            " MiB would leave less"
            f" than {FREE_SHARE:.0%}, so none is made."
        )


def own_file(folder: str, size: int, write: bool = True) -> int:
    """An open file of ours without a name, ``size`` bytes, written and on the drive. Raises ``ToolError``."""
    check_space(folder, size)
    try:
        descriptor = os.open(
            folder, os.O_TMPFILE | os.O_RDWR | os.O_EXCL | os.O_DIRECT | os.O_NOATIME | os.O_CLOEXEC, 0o600
        )
    except OSError as error:
        reasons = {
            errno.EOPNOTSUPP: "its file system makes no files without a name",
            errno.EISDIR: "its file system makes no files without a name",
            errno.EINVAL: "its file system does not read past the page cache (O_DIRECT)",
        }
        why = reasons.get(error.errno or 0, error.strerror)
        raise ToolError(
            f"no file can be made in {folder}: {why}; name another folder or the drive itself."
        ) from None
    try:
        os.posix_fallocate(descriptor, 0, size)
        if write:
            _fill(descriptor, size)
    except OSError as error:
        os.close(descriptor)
        raise ToolError(f"the file in {folder} cannot be written: {error.strerror}.") from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _fill(descriptor: int, size: int) -> None:
    import mmap

    piece = 1 << 20
    with mmap.mmap(-1, piece) as buffer:
        for at in range(0, size, piece):
            buffer[:] = os.urandom(piece)  # a drive may keep blocks that are alike once
            os.pwritev(descriptor, [memoryview(buffer)[: min(piece, size - at)]], at)
    os.fsync(descriptor)
