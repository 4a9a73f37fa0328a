"""Opening a machine captured elsewhere: a folder, an archive, or texts that somebody pasted."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from hwtune.errors import UsageError
from hwtune.fact import Fact
from hwtune.host import limits as bounds
from hwtune.host import manifest, walk
from hwtune.host.base import READ_LIMIT
from hwtune.host.captured import SnapshotHost
from hwtune.text.printable import printable

if TYPE_CHECKING:
    from typing import BinaryIO

    from hwtune.host.captured import Tree
    from hwtune.host.limits import Limits

# A regular file is asked for; a FIFO or a device in its place must not hold the run.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
# How far below the top of what was given a machine's root may lie.
_MAX_DEPTH = 3
# How many of the other machines a warning names.
_NAMED = 5


def open_snapshot(path: str, limits: Limits = bounds.DEFAULT) -> SnapshotHost:
    """The machine in a folder, an archive (tar, also compressed) or a text file.

    ``ARCHIVE/FOLDER`` is the machine in a folder inside an archive. Raises ``UsageError``, one
    sentence, for anything that is no snapshot, is damaged, or goes beyond ``limits``.
    """
    from hwtune.host.archive import ArchiveTree, Reader
    from hwtune.host.folder import FolderTree

    shown = printable(path)
    outer, inner = _split(path, shown)
    if os.path.isdir(outer):
        folder = FolderTree(os.path.realpath(outer), limits)
        entries = folder.entries("")
        if isinstance(entries, Fact):
            raise UsageError(f"{shown} cannot be read: {entries.detail}.")
        if not entries:
            raise UsageError(
                f"{shown} is empty: give a folder or archive with sys/ or proc/, or pasted texts."
            )
        return _open(path, shown, folder, "", limits)
    with _regular_file(outer, shown) as file:
        content = Reader(shown, limits).read(file)
    if isinstance(content, ArchiveTree):
        if not content.entries(""):
            raise UsageError(f"{shown} is an archive with nothing in it.")
        if isinstance(content.entries(inner), Fact):
            raise UsageError(f"{printable(outer)} holds no folder {printable(inner[1:])}.")
        return _open(path, shown, content, inner, limits)
    if inner:
        raise UsageError(f"{shown} does not exist: {printable(outer)} is not an archive.")
    if len(content) > limits.document_bytes:
        raise UsageError(
            f"{shown} is no archive, and larger than a text of {limits.document_bytes >> 20} MiB."
        )
    if b"\0" in content[: 1 << 16] and content[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        raise UsageError(f"{shown} is neither a folder, nor a tar archive, nor a text.")
    return _open(path, shown, _single(os.path.basename(outer), content), "", limits)


def _split(path: str, shown: str) -> tuple[str, str]:
    """A path as (what exists, the folder inside it): "a.tar/x" -> ("a.tar", "/x")."""
    outer, inner = path, ""
    while True:
        try:
            os.stat(outer)
        except NotADirectoryError:
            if outer.endswith("/"):
                outer = outer.rstrip("/")
            else:
                outer, _, name = outer.rpartition("/")
                inner = f"/{name}{inner}"
            continue
        except FileNotFoundError as error:
            raise UsageError(f"{shown} does not exist.") from error
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise UsageError(f"{shown} cannot be read: {reason}.") from error
        return outer, inner


def _regular_file(path: str, shown: str) -> BinaryIO:
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {error.strerror}.") from error
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or not about.st_size:
        os.close(descriptor)
        what = "is empty" if stat.S_ISREG(about.st_mode) else "is neither a folder nor a regular file"
        raise UsageError(f"{shown} {what}: give a folder, a tar archive or a text file.")
    return open(descriptor, "rb", buffering=0)


def _single(name: str, content: bytes) -> Tree:
    """A tree of one text."""
    from hwtune.host import tar
    from hwtune.host.archive import ArchiveTree

    tree = ArchiveTree()
    tree.put("", name, tar.Member(name, tar.FILE, "", len(content), content), True)
    return tree


def _open(path: str, shown: str, tree: Tree, top: str, limits: Limits) -> SnapshotHost:
    roots = find_roots(tree, top, limits)
    if not roots:
        host = SnapshotHost(path, tree, None, top, limits)
        if not host.holds_documents():
            raise UsageError(
                f"{shown} holds neither a sys/ or proc/ tree nor the output of a command that hwtune knows."
            )
        return host
    if len(roots) == 1:
        return SnapshotHost(path, tree, roots[0], top, limits)
    # Texts beside several machines belong to none of them.
    host = SnapshotHost(path, tree, roots[0], roots[0], limits)
    names = [root[len(top) + 1 :] for root in roots]
    others = ", ".join(names[1 : 1 + _NAMED]) + (", ..." if len(names) > 1 + _NAMED else "")
    host.warn(
        f"holds {len(names)} machines; this is {names[0]} (the others: {others};"
        f" give {shown}/{names[1]} for another)"
    )
    return host


def find_roots(tree: Tree, top: str, limits: Limits) -> list[str]:
    """Where the roots of machines lie: the shallowest folders that hold sys/ or proc/ or our
    manifest; where there is none, those that hold etc/ or boot/."""
    level = [top]
    weak: list[str] = []
    seen = 0
    for _ in range(_MAX_DEPTH + 1):
        found: list[str] = []
        below: list[str] = []
        weaker: list[str] = []
        for folder in level:
            entries = tree.entries(folder)
            if isinstance(entries, Fact):
                continue
            seen += len(entries)
            if seen > limits.search_names:
                return found or weak
            if _is_root(tree, folder, entries):
                found.append(folder)
                continue
            if any(_holds(tree, folder, entries, name) for name in ("etc", "boot")):
                weaker.append(folder)
            below += [f"{folder}/{name}" for name, kind in entries.items() if kind == walk.DIR]
        if found:
            return sorted(found)
        weak = weak or sorted(weaker)
        level = below
    return weak


# By what the folders of a machine are told from others with such names (C headers have a sys/).
# sysfs: what drivers/base, fs/sysfs and kernel/ksysfs.c make at its top.
_WITHIN = {
    "sys": frozenset(
        (
            "block",
            "bus",
            "class",
            "dev",
            "devices",
            "firmware",
            "fs",
            "hypervisor",
            "kernel",
            "module",
            "power",
        )
    ),
    "proc": frozenset(
        (
            *("buddyinfo", "cgroups", "cmdline", "config.gz", "cpuinfo", "devices", "diskstats", "driver"),
            *("filesystems", "fs", "interrupts", "iomem", "ioports", "irq", "kallsyms", "loadavg", "locks"),
            *("mdstat", "meminfo", "modules", "mounts", "net", "pagetypeinfo", "partitions", "pressure"),
            *("sched_debug", "schedstat", "self", "slabinfo", "softirqs", "stat", "swaps", "sys"),
            *("timer_list", "uptime", "version", "vmallocinfo", "vmstat", "zoneinfo"),
        )
    ),
    "etc": frozenset(
        (
            *("default", "fstab", "hostname", "kernel", "modprobe.d", "os-release", "passwd", "security"),
            *("sysconfig", "sysctl.conf", "sysctl.d", "systemd", "tuned", "udev"),
        )
    ),
    "boot": frozenset(("efi", "grub", "grub2", "loader")),
}


def _holds(tree: Tree, folder: str, entries: dict[str, int], name: str) -> bool:
    """Whether ``folder`` has one of a machine's folders, by name and content."""
    if entries.get(name) != walk.DIR:
        return False
    inside = tree.entries(f"{folder}/{name}")
    if isinstance(inside, Fact):
        return False
    if not _WITHIN[name].isdisjoint(inside):
        return True
    if name == "proc":
        return any(entry.isdigit() for entry in inside)
    return name == "boot" and any(entry.startswith(("config-", "vmlinuz-")) for entry in inside)


def _is_root(tree: Tree, folder: str, entries: dict[str, int]) -> bool:
    if _holds(tree, folder, entries, "sys") or _holds(tree, folder, entries, "proc"):
        return True
    if entries.get("manifest.json") != walk.FILE:
        return False
    if walk.DIR in (entries.get("commands"), entries.get("libraries")):
        return True
    content = tree.read(f"{folder}/manifest.json", READ_LIMIT).value
    try:
        return content is not None and manifest.parse(content).ours
    except (ValueError, RecursionError):
        return False
