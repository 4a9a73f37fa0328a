"""The journal: what hwtune changed, written before it was changed.

``/var/lib/hwtune/journal`` holds one JSON object a line, each ending with a checksum of itself.
A record that must come before a change is on the disk before the change is made. Nothing in the
file is ever rewritten. What a crash leaves is at most one torn line at the end: it is told, and
the next run notes it with a ``torn`` record, so that it is not taken for damage later.

The records, by ``record``:

- ``begin``      a change set: ``set`` (its id), ``time``, ``boot``, ``command``, ``version``
- ``intent``     ``n``, ``target``, ``before``, ``after``, ``change`` (what it is part of), ``store``
- ``done``       ``n``: the change is in force
- ``failed``     ``n``, ``error``; ``undone``: whether what was there before is there again
- ``items``      ``items``: what the set wants to last across boots, by store; replaces what it said before
- ``refreshed``  ``store``: the system has taken notice of the store's files
- ``end``        the set is whole; ``recovered``: a crash had stopped it, and a later run settled it
- ``reverting``  ``boot``: the way back begins in this boot; ``restoring`` ``n``, ``now``, ``to``: about to be
  written; ``restored`` ``n``, ``why``; ``kept`` ``n``, ``why``: someone had changed it; ``reverted``
- ``torn``       the line before this one was torn by a crash
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
import zlib
from typing import Any, NamedTuple

import msgspec

from hwtune.errors import ToolError

FOLDER = "/var/lib/hwtune"
_SUM = b',"sum":"'
# A reader that asks who holds the lock has it for a moment.
_LOCK_TRIES, _LOCK_PAUSE_S = 10, 0.02


class Contents(NamedTuple):
    """All whole records; a sentence for a torn end, and one for each line that is damaged."""

    records: list[dict[str, Any]]
    torn: list[str]
    damaged: list[str]


class Journal:
    """The journal in ``folder`` (made with mode 0700). Opening it to write takes the lock."""

    def __init__(self, folder: str = FOLDER) -> None:
        self.folder = folder
        self.path = os.path.join(folder, "journal")
        self._lock: int | None = None
        self._handle: int | None = None
        self._written = 0  # records of this run

    # -- reading ------------------------------------------------------------------------

    def records(self) -> Contents:
        return _parse(self._content(), self.path)

    def busy(self) -> str:
        """Who holds the lock, as that run calls itself; "" when nobody does."""
        try:
            handle = os.open(self._lock_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise ToolError(f"{self._lock_path} cannot be read: {error.strerror}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return _holder(handle)
        finally:
            os.close(handle)
        return ""

    # -- writing ------------------------------------------------------------------------

    def open(self, command: str) -> None:
        """Take the lock and be ready to append. Raises ``ToolError`` when another run holds it,
        or when the folder is not ours alone."""
        from hwtune.host import commands

        self._make_folder()
        try:
            self._lock = self._take_lock(command)
            commands.handed_on.add(self._lock)
            content = self._content()
            new = not os.path.lexists(self.path)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._handle = os.open(self.path, flags, 0o600)
            if new:
                _sync_folder(self.folder)
        except OSError as error:
            self.close()
            raise ToolError(f"{error.filename or self.folder} cannot be opened: {error.strerror}") from None
        except ToolError:
            self.close()
            raise
        if _ends_torn(content):
            end = b"" if content.endswith(b"\n") else b"\n"
            self._write(end + encode({"record": "torn"}) + b"\n", sync=True)
        self._written = 0

    def append(self, record: str, *, sync: bool = True, **fields: Any) -> dict[str, Any]:
        """Write one record, as it is returned; with ``sync`` wait until it is on the disk, as must be
        before what it announces is done."""
        line = encode({"record": record, **fields})
        self._write(line + b"\n", sync)
        self._written += 1
        told: dict[str, Any] = msgspec.json.decode(line)
        return told

    def close(self) -> None:
        from hwtune.host import commands

        commands.handed_on.discard(self._lock if self._lock is not None else -1)
        for handle in (self._handle, self._lock):
            if handle is not None:
                os.close(handle)
        self._handle = self._lock = None

    # -- below --------------------------------------------------------------------------

    @property
    def _lock_path(self) -> str:
        return os.path.join(self.folder, "lock")

    def _content(self) -> bytes:
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise ToolError(f"the journal {self.path} cannot be read: {error.strerror}") from None
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise ToolError(f"the journal {self.path} is no regular file")
            try:
                return file.read()
            except OSError as error:
                raise ToolError(f"the journal {self.path} cannot be read: {error.strerror}") from None

    def _take_lock(self, command: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(self._lock_path, flags, 0o600)
        for attempt in range(_LOCK_TRIES):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    os.close(lock)
                    raise
                if attempt == _LOCK_TRIES - 1:
                    holder = _holder(lock)
                    os.close(lock)
                    raise ToolError(f"another run holds the lock: {holder}") from None
            time.sleep(_LOCK_PAUSE_S)
        try:
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{command}, process {os.getpid()}\n".encode(), 0)
        except OSError:
            os.close(lock)
            raise
        return lock

    def _write(self, line: bytes, sync: bool) -> None:
        if self._handle is None:
            raise ToolError("the journal is not open")
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._handle, rest) :]
            if sync:
                os.fsync(self._handle)
        except OSError as error:
            # whatever followed would stand behind half a line
            os.close(self._handle)
            self._handle = None
            what = (
                "hwtune stopped here; `hwtune history` tells what was done, `hwtune revert` puts it back"
                if self._written
                else "nothing was changed"
            )
            raise ToolError(f"the journal {self.path} cannot be written: {error.strerror}; {what}") from None

    def _make_folder(self) -> None:
        try:
            os.mkdir(self.folder, 0o700)
            _sync_folder(os.path.dirname(self.folder))
        except FileExistsError:
            self._check_folder()
        except OSError as error:
            raise ToolError(f"{self.folder} cannot be made: {error.strerror}") from None

    def _check_folder(self) -> None:
        status = os.lstat(self.folder)
        if not stat.S_ISDIR(status.st_mode):
            raise ToolError(f"{self.folder} is no directory; hwtune does not follow links there")
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
            raise ToolError(f"{self.folder} may be written by others; make it root's own, mode 0700")
        if stat.S_IMODE(status.st_mode) & 0o077:  # what files held before is nobody else's to read
            os.chmod(self.folder, 0o700)


def _holder(lock: int) -> str:
    said = os.pread(lock, 200, 0).decode("utf-8", "replace").strip()
    number = said.rpartition(", process ")[2]
    if number.isdecimal() and not os.path.exists(f"/proc/{number}"):
        return f"{said}, which is gone, but a program that it started is still at work"
    return said or "it gives no name"


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _parse(content: bytes, path: str) -> Contents:
    records: list[dict[str, Any]] = []
    damaged: list[int] = []
    broken: list[int] = []  # lines since the last whole one
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line:
            continue
        record = decode(line)
        if record is None:
            broken.append(number)
            continue
        if record["record"] != "torn":
            damaged += broken
        broken = []
        records.append(record)
    torn = [f"{path}: its last line is torn, as a crash leaves it"] if broken else []
    return Contents(records, torn, [f"{path}: line {n} is damaged" for n in damaged])


def _ends_torn(content: bytes) -> bool:
    last = content.rstrip(b"\n").rpartition(b"\n")[2]
    return bool(last) and (decode(last) is None or not content.endswith(b"\n"))


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
