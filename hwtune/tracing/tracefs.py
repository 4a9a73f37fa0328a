"""The kernel's tracing folder: where it is, and why it can't be used here.

Nothing is mounted. Linux mounts tracefs at /sys/kernel/tracing, and older systems have it below debugfs
(Documentation/trace/ftrace.rst, "The File System").
"""

from __future__ import annotations

import errno
import os

PLACES = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
# A file of tracefs is made of lines; the largest that is read whole are a few hundred KB (printk_formats).
_MOST = 4 << 20


class Unavailable(Exception):
    """This machine lets nobody, or not this user, trace; the message is one sentence."""


class Tracefs:
    """Files below one tracing folder. A path is relative to it. ``OSError`` where the kernel says no."""

    def __init__(self, place: str) -> None:
        self.place = place

    def path(self, name: str) -> str:
        return os.path.join(self.place, name)

    def read(self, name: str) -> str:
        with open(self.path(name), "rb") as file:
            return file.read(_MOST).decode(errors="replace")

    def write(self, name: str, value: str) -> None:
        """One write, as these files take each as one command; the file has to be there already."""
        descriptor = os.open(self.path(name), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)

    def has(self, name: str) -> bool:
        return os.path.exists(self.path(name))

    def names(self, name: str) -> list[str]:
        return sorted(os.listdir(self.path(name)))

    def make(self, name: str) -> None:
        """A folder; the kernel fills it."""
        os.mkdir(self.path(name))

    def remove(self, name: str) -> None:
        os.rmdir(self.path(name))

    def open(self, name: str, flags: int) -> int:
        return os.open(self.path(name), flags | os.O_CLOEXEC)


def find(root: str = "/") -> Tracefs:
    """The tracing folder that can hold instances. Raises ``Unavailable``."""
    refused = None
    for place in PLACES:
        folder = os.path.join(root, place.lstrip("/"))
        try:
            if "instances" in os.listdir(folder):
                return _usable(Tracefs(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError:
            refused = refused or place
    if refused is not None:
        raise Unavailable(f"{refused} is for root: run it as root to have each event named")
    if _is_root():
        raise Unavailable(
            "tracefs is not mounted (a container, or a kernel without tracing): "
            "`mount -t tracefs tracefs /sys/kernel/tracing` would make it known"
        )
    raise Unavailable("tracefs cannot be seen here: run it as root to have each event named")


def _usable(found: Tracefs) -> Tracefs:
    try:
        found.names("instances")
        found.read("events/header_page")
    except OSError as error:
        raise Unavailable(explain(error, root=_is_root())) from None
    return found


def explain(error: OSError, root: bool) -> str:
    """Why the kernel refused, as one sentence that says what would help."""
    if error.errno == errno.EROFS:
        return "tracefs is mounted read-only here, as containers have it: run it on the host"
    if error.errno in (errno.EPERM, errno.EACCES):
        if not root:
            return "tracing is for root: run it as root to have each event named"
        return (
            "the kernel refuses tracing even to root: lockdown for confidentiality "
            "(/sys/kernel/security/lockdown), or a container without the right"
        )
    if error.errno == errno.ENOMEM:
        return "the kernel has not memory enough for a trace buffer"
    return f"tracing failed: {error.strerror or error}"


def _is_root() -> bool:
    return os.geteuid() == 0
