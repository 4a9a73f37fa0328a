"""Reports written to a file that others may read at any moment."""

from __future__ import annotations

import os
import stat
from contextlib import suppress


def write_file(path: str, data: bytes) -> None:
    """Write ``data`` so that a reader (node_exporter's textfile collector, a web server) finds the
    old content or the new one, never a half: beside the file and renamed over it. Raises ``OSError``.

    Only a regular file of our own, or none, is replaced. Devices, pipes, links, files of somebody
    else and files with further names are written in place, as is a file in a folder that takes no
    new ones: replacing them would change what they are.
    """
    try:
        before = os.lstat(path)
    except OSError:
        before = None
    temporary = _create_beside(path) if before is None or _replaceable(path, before) else None
    if temporary is None:
        with open(path, "wb") as file:
            file.write(data)
        return
    name, descriptor = temporary
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            if before is not None:
                os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
        os.rename(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _replaceable(path: str, found: os.stat_result) -> bool:
    ours = found.st_uid == os.geteuid() and os.access(path, os.W_OK)
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and ours


def _create_beside(path: str) -> tuple[str, int] | None:
    """A new file in the same folder, readable as the umask says; None where none can be made. The
    name does not end in ".prom": the textfile collector reads every file that does."""
    name = os.path.join(os.path.dirname(path), f".hwtune-{os.urandom(6).hex()}.new")
    try:
        return name, os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError:
        return None
