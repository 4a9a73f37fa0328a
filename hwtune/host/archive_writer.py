"""A tar.gz written in a fixed order and without times, for its owner alone to read."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from hwtune.errors import ToolError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO

FILE = 0
DIRECTORY = 1
LINK = 2

# O_EXCL: nothing is ever written through what lies there already, be it a link.
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Member(NamedTuple):
    name: str
    type: int
    #: a file's content, or the target of a link
    content: bytes


def write(path: str, members: Iterable[Member], overwrite: bool) -> int:
    """Write the archive and return its size in bytes.

    Raises ``UsageError`` where ``path`` is taken (a regular file is replaced, as a whole, when
    ``overwrite``) or cannot be made, ``ToolError`` where writing fails; then nothing is left.
    """
    replaced = _taken(path, overwrite)
    place = f"{path}.{os.getpid()}.new" if replaced else path
    try:
        descriptor = os.open(place, _FLAGS, 0o600)
    except FileExistsError as error:
        raise UsageError(f"{place} exists: name another file.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
    try:
        with open(descriptor, "wb") as file:
            _pack(file, members)
            file.flush()
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
        if replaced:
            os.rename(place, path)
    except OSError as error:
        os.unlink(place)
        raise ToolError(f"{path} could not be written: {error.strerror}.") from error
    except BaseException:
        os.unlink(place)
        raise
    return size


def _taken(path: str, overwrite: bool) -> bool:
    """Whether a file is there to be replaced."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be written: {error}.") from error
    if not overwrite:
        raise UsageError(f"{path} exists: name another file.")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path} is not a regular file: name another one.")
    return True


def _pack(file: BinaryIO, members: Iterable[Member]) -> None:
    import gzip
    import io
    import tarfile

    types = {FILE: tarfile.REGTYPE, DIRECTORY: tarfile.DIRTYPE, LINK: tarfile.SYMTYPE}
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for member in members:
            about = tarfile.TarInfo(member.name)
            about.type = types[member.type]
            about.mode = 0o755 if member.type == DIRECTORY else 0o644
            if member.type == LINK:
                about.linkname = member.content.decode("utf-8", "surrogateescape")
            elif member.type == FILE:
                about.size = len(member.content)
            tar.addfile(about, io.BytesIO(member.content) if member.type == FILE else None)
