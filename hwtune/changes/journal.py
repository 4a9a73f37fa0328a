"""The journal: what hwtune changed, written before it was changed.

``/var/lib/hwtune/journal`` holds one JSON object a line, each ending with a checksum of itself,
appended with one write and an fsync. Nothing in it is ever rewritten. What a crash leaves is at
most one torn line at the end; it is told, and the next line begins anew.

The records, by ``record``:

- ``begin``    a change set: ``set`` (its id), ``time``, ``boot``, ``command``
- ``intent``   ``n``, ``target``, ``before``, ``after``, ``change`` (what it is part of), ``stored``
- ``done``     ``n``: the change is in force
- ``failed``   ``n``, ``error``: the change was not made, or was undone at once
- ``items``    ``items``: what the set wants to last across boots, by store
- ``end``      the set is whole
- ``reverting`` / ``restored`` / ``kept`` (``n``, ``why``) / ``reverted``: the way back
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import zlib
from typing import Any

import msgspec

from hwtune.errors import ToolError

FOLDER = "/var/lib/hwtune"
_SUM = b',"sum":"'


class Journal:
    """The journal in ``folder`` (made with mode 0700). Opening it to write takes the lock."""

    def __init__(self, folder: str = FOLDER) -> None:
        self.folder = folder
        self.path = os.path.join(folder, "journal")
        self._lock: int | None = None
        self._handle: int | None = None

    # -- reading ------------------------------------------------------------------------

    def records(self) -> tuple[list[dict[str, Any]], list[str]]:
        """All whole records, and a sentence for each line that is not one."""
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return [], []
        except OSError as error:
            raise ToolError(f"the journal {self.path} cannot be read: {error.strerror}") from None
        with open(handle, "rb") as file:
            lines = file.read().split(b"\n")
        records: list[dict[str, Any]] = []
        broken: list[str] = []
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            record = decode(line)
            if record is None:
                where = "its last line is torn" if number == len(lines) else f"line {number} is damaged"
                broken.append(f"{self.path}: {where}")
            else:
                records.append(record)
        return records, broken

    # -- writing ------------------------------------------------------------------------

    def open(self, command: str) -> None:
        """Take the lock and be ready to append. Raises ``ToolError`` when another run holds it,
        or when the folder is not ours alone."""
        self._make_folder()
        lock = os.open(
            os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(lock, 200).decode("utf-8", "replace").strip()
            os.close(lock)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise ToolError(f"the lock of {self.folder} cannot be taken: {error.strerror}") from None
            raise ToolError(f"another run holds the lock: {holder or 'it gives no name'}") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"hwtune {command}, process {os.getpid()}\n".encode(), 0)
        self._lock = lock
        self._handle = os.open(
            self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        size = os.fstat(self._handle).st_size
        if size and os.pread(self._handle, 1, size - 1) != b"\n":
            # end the torn line of a crash, so that the next record has one of its own
            self._write(b"\n")

    def append(self, record: str, **fields: Any) -> None:
        """Write one record and wait until it is on the disk."""
        self._write(encode({"record": record, **fields}) + b"\n")

    def close(self) -> None:
        for handle in (self._handle, self._lock):
            if handle is not None:
                os.close(handle)
        self._handle = self._lock = None

    def _write(self, line: bytes) -> None:
        if self._handle is None:
            raise ToolError("the journal is not open")
        try:
            written = os.write(self._handle, line)
            os.fsync(self._handle)
        except OSError as error:
            raise ToolError(
                f"the journal {self.path} cannot be written: {error.strerror}; nothing was changed"
            ) from None
        if written != len(line):
            raise ToolError(
                f"the journal {self.path} cannot be written: the disk is full; nothing was changed"
            )

    def _make_folder(self) -> None:
        try:
            os.mkdir(self.folder, 0o700)
        except FileExistsError:
            status = os.lstat(self.folder)
            if not stat.S_ISDIR(status.st_mode):
                raise ToolError(
                    f"{self.folder} is no directory; hwtune does not follow links there"
                ) from None
            if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
                raise ToolError(
                    f"{self.folder} may be written by others; make it root's own, mode 0700"
                ) from None
        except OSError as error:
            raise ToolError(f"{self.folder} cannot be made: {error.strerror}") from None


def encode(record: dict[str, Any]) -> bytes:
    """One line without its end: the object, with the checksum of what stands before it."""
    body = msgspec.json.encode(record)[:-1]
    return body + _SUM + f"{zlib.crc32(body):08x}".encode() + b'"}'


def decode(line: bytes) -> dict[str, Any] | None:
    """The record of a line, None where the line is torn or was altered."""
    body, mark, rest = line.rpartition(_SUM)
    if not mark or rest != f'{zlib.crc32(body):08x}"}}'.encode():
        return None
    try:
        record = msgspec.json.decode(body + b"}")
    except msgspec.DecodeError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("record"), str) else None
