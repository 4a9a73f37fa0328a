"""The one door through which hwtune changes a machine.

Every write goes through here, so that each can be journalled before it happens, refused where it
must not happen, and interrupted in tests. ``root`` is "/" on a machine; tests lay a tree of files
below another root. Files that hwtune owns are replaced whole (written beside, fsynced, renamed),
attributes of sysfs and procfs are written in place, as the kernel wants it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from hwtune.fact import INVALID, Fact
from hwtune.host.live import LiveHost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.host.base import CommandResult

# Attributes live in these trees and nowhere else; what a plan names outside them is a defect.
ATTRIBUTE_TREES = ("/sys/", "/proc/sys/", "/proc/irq/")
FILE_LIMIT = 8 << 20


class FileState(NamedTuple):
    """A regular file as it stands: content, permission bits, owner and group."""

    content: bytes
    mode: int
    uid: int
    gid: int


class ChangeError(Exception):
    """A change could not be made. ``number`` is the errno where there is one."""

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.number = number


class System:
    """A machine that can be changed. Methods raise ``ChangeError`` with one clause."""

    def __init__(self, root: str = "/") -> None:
        self.root = root.rstrip("/")
        self.host = LiveHost(root)

    # -- reading ------------------------------------------------------------------------

    def attribute(self, path: str) -> Fact[str]:
        """The text of an attribute. One that is not text is a gap: it could not be put back."""
        found = self.host.text(path)
        if found.known and "\ufffd" in found.get():
            return Fact(None, path, INVALID, "it is not text")
        return found

    def file(self, path: str) -> FileState | None:
        """The state of a regular file, None where there is none. A symbolic link or anything
        else in its place is refused: hwtune neither follows nor replaces it."""
        try:
            handle = os.open(self._place(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise ChangeError(f"{path} is a symbolic link, which hwtune does not follow") from None
            raise _failed("read", path, error) from None
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise ChangeError(f"{path} is no regular file")
            content = os.read(handle, FILE_LIMIT + 1)
            while len(content) <= FILE_LIMIT and (more := os.read(handle, FILE_LIMIT + 1 - len(content))):
                content += more
            if len(content) > FILE_LIMIT:
                raise ChangeError(f"{path} is larger than any configuration file")
        except OSError as error:
            raise _failed("read", path, error) from None
        finally:
            os.close(handle)
        return FileState(content, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)

    def directory(self, path: str) -> bool:
        """Whether a directory is there. A link to one, or anything else in its place, is refused."""
        try:
            if stat.S_ISDIR(os.lstat(self._place(path)).st_mode):
                return True
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _failed("read", path, error) from None
        raise ChangeError(f"{path} is no directory")

    def link(self, path: str) -> str | None:
        """Where a symbolic link leads, as it is written; None where nothing is there."""
        try:
            leads_to = os.readlink(self._place(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise ChangeError(f"{path} is in the way: it is no symbolic link") from None
            raise _failed("read", path, error) from None
        if any("\udc80" <= c <= "\udcff" for c in leads_to):
            raise ChangeError(f"{path} leads to a name that is not UTF-8, which the journal could not keep")
        return leads_to

    def names(self, path: str) -> list[str]:
        """The names in a directory."""
        try:
            return sorted(os.listdir(self._place(path)))
        except OSError as error:
            raise _failed("list", path, error) from None

    def boot_id(self) -> str:
        """The kernel's name for this boot; "" where it cannot be read."""
        return self.host.text("/proc/sys/kernel/random/boot_id").value or ""

    # -- writing ------------------------------------------------------------------------

    def write_attribute(self, path: str, value: str) -> None:
        """Write one value to an attribute of the kernel, in one write(2)."""
        if not path.startswith(ATTRIBUTE_TREES) or ".." in path.split("/"):
            raise ChangeError(f"{path} is no attribute that hwtune may write")
        try:
            # no O_CREAT, no O_TRUNC: an attribute exists or the write fails
            handle = os.open(self._place(path), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise _failed("write", path, error) from None
        try:
            line = f"{value}\n".encode()
            if self.root:  # a plain file in a test's tree keeps what a longer value left behind
                os.ftruncate(handle, 0)
            if os.write(handle, line) != len(line):
                raise ChangeError(f"cannot write {path}: the kernel took only a part of it")
        except OSError as error:
            raise _failed("write", path, error) from None
        finally:
            os.close(handle)

    def write_file(self, path: str, state: FileState) -> None:
        """Replace a file whole: either the old one or the new one is there, whatever happens."""
        place = self._place(path)
        folder = os.path.dirname(place)
        temporary = temporary_of(place)
        try:
            self._discard(temporary)
            handle = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            try:
                rest = memoryview(state.content)
                while rest:
                    rest = rest[os.write(handle, rest) :]
                os.fchown(handle, state.uid, state.gid)
                os.fchmod(handle, state.mode)
                os.fsync(handle)
            finally:
                os.close(handle)
            os.rename(temporary, place)
            self._sync(folder)
        except OSError as error:
            self._clean_up(temporary)
            raise _failed("write", path, error) from None

    def write_link(self, path: str, leads_to: str) -> None:
        """Make or replace a symbolic link in one step."""
        place = self._place(path)
        temporary = temporary_of(place)
        try:
            self._discard(temporary)
            os.symlink(leads_to, temporary)
            os.rename(temporary, place)
            self._sync(os.path.dirname(place))
        except OSError as error:
            self._clean_up(temporary)
            raise _failed("write", path, error) from None

    def remove_file(self, path: str) -> None:
        """Remove a file or link; that it is not there is no error."""
        place = self._place(path)
        try:
            if os.path.lexists(place):
                self._discard(place)
                self._sync(os.path.dirname(place))
        except OSError as error:
            raise _failed("remove", path, error) from None

    def discard_temporary(self, path: str) -> None:
        """Remove what a crash in the middle of ``write_file`` left beside the file."""
        try:
            self._discard(temporary_of(self._place(path)))
        except OSError as error:
            raise _failed("remove what a crash left beside", path, error) from None

    def make_directory(self, path: str, mode: int = 0o755) -> None:
        try:
            os.mkdir(self._place(path), mode)
            self._sync(os.path.dirname(self._place(path)))
        except FileExistsError:
            self.directory(path)
        except OSError as error:
            raise _failed("make", path, error) from None

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; one that is gone, or that others use by now, is left."""
        try:
            os.rmdir(self._place(path))
            self._sync(os.path.dirname(self._place(path)))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise _failed("remove", path, error) from None

    def run(self, argv: Sequence[str], timeout_s: float = 120.0) -> CommandResult:
        """Run a program that changes something; its failure is a ``ChangeError``."""
        answer = self.host.command(argv, timeout_s)
        if answer.absent:
            raise ChangeError(f"{argv[0]} is not installed", errno.ENOENT)
        if not answer.known:
            raise ChangeError(f"{' '.join(argv)}: {answer.why()}")
        result = answer.get()
        if result.status != 0:
            said = (result.stderr or result.stdout).strip().splitlines()
            raise ChangeError(
                f"{' '.join(argv)} ended with {result.status}: {said[-1] if said else 'no message'}"
            )
        return result

    # -- below --------------------------------------------------------------------------

    def _place(self, path: str) -> str:
        return self.root + path

    @staticmethod
    def _discard(place: str) -> None:
        # looked for first: on a read-only file system even what is not there cannot be removed
        if os.path.lexists(place):
            with suppress(FileNotFoundError):
                os.unlink(place)

    def _clean_up(self, temporary: str) -> None:
        """After a failure, which is the one to tell of; what stays is discarded by the next write."""
        with suppress(OSError):
            self._discard(temporary)

    @staticmethod
    def _sync(folder: str) -> None:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def temporary_of(place: str) -> str:
    """Where the new content of a file is written before it takes the file's place."""
    folder, name = os.path.split(place)
    return os.path.join(folder, f".{name}.hwtune-new")


# What to do about a failure of the file system, where its own word does not say it.
_ADVICE = {
    errno.EROFS: "mount it writable, or let what makes this image set it",
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there",
    errno.EIO: "see dmesg, as the drive or its file system is failing",
}


def _failed(verb: str, path: str, error: OSError) -> ChangeError:
    what = f"cannot {verb} {path}: {error.strerror}"
    if not path.startswith(ATTRIBUTE_TREES) and error.errno in _ADVICE:
        what += f"; {_ADVICE[error.errno]}"
    return ChangeError(what, error.errno or 0)


def encode_file(state: FileState | None) -> dict[str, Any] | None:
    """A file's state for the journal: text where it is text, else base64."""
    if state is None:
        return None
    plain: dict[str, Any] = {"mode": f"{state.mode:04o}", "uid": state.uid, "gid": state.gid}
    try:
        return {"text": state.content.decode("utf-8"), **plain}
    except UnicodeDecodeError:
        import base64

        return {"base64": base64.b64encode(state.content).decode("ascii"), **plain}


def decode_file(value: dict[str, Any] | None) -> FileState | None:
    if value is None:
        return None
    if "text" in value:
        content = value["text"].encode("utf-8")
    else:
        import base64

        content = base64.b64decode(value["base64"], validate=True)
    return FileState(content, int(value["mode"], 8), value["uid"], value["gid"])
