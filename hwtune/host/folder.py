"""A tree of files in a folder, never left: no link is followed but by ``hwtune.host.walk``."""

from __future__ import annotations

import os
from typing import Any

from hwtune.fact import ABSENT, NOT_CAPTURED, TOO_LARGE, Fact
from hwtune.host import gaps, walk
from hwtune.host.limits import Limits

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW


class FolderTree:
    """Paths are real ones below ``base`` ("" is ``base`` itself)."""

    def __init__(self, base: str, limits: Limits) -> None:
        self.base = base
        self.warnings: list[str] = []
        self._limits = limits
        self._entries: dict[str, dict[str, int] | Fact[list[str]]] = {}

    def entries(self, directory: str) -> dict[str, int] | Fact[list[str]]:
        """What is in a directory (``hwtune.host.walk`` numbers), or why that is not known."""
        found = self._entries.get(directory)
        if found is None:
            found = self._entries[directory] = self._scan(directory)
        return found

    def _scan(self, directory: str) -> dict[str, int] | Fact[list[str]]:
        found: dict[str, int] = {}
        strange = 0
        try:
            with os.scandir(self.base + directory) as entries:
                for entry in entries:
                    if not entry.name.isprintable():
                        strange += 1
                    elif entry.is_symlink():
                        found[entry.name] = walk.LINK
                    elif entry.is_dir(follow_symlinks=False):
                        found[entry.name] = walk.DIR
                    else:
                        regular = entry.is_file(follow_symlinks=False)
                        found[entry.name] = walk.FILE if regular else walk.OTHER
                    if len(found) > self._limits.folder_names:
                        return Fact(None, directory, TOO_LARGE, f"over {self._limits.folder_names} names")
        except (OSError, ValueError) as error:
            return _gap(directory, error)
        if strange:
            what = "1 name" if strange == 1 else f"{strange} names"
            self.warnings.append(f"skipped {what} with control characters in {directory or '/'}")
        return found

    def target(self, path: str) -> str:
        """What a link says; a link that cannot be read leads to itself, which is a loop."""
        try:
            return os.readlink(self.base + path)
        except OSError:
            return path

    def read(self, path: str, limit: int) -> Fact[bytes]:
        """A regular file's content."""
        try:
            descriptor = os.open(self.base + path, _FLAGS)
        except (OSError, ValueError) as error:
            return _gap(path, error)
        try:
            pieces = [os.read(descriptor, 1 << 14)]
            length = len(pieces[0])
            while length <= limit and (piece := os.read(descriptor, min(1 << 20, limit + 1 - length))):
                pieces.append(piece)
                length += len(piece)
        except OSError as error:
            return _gap(path, error)
        finally:
            os.close(descriptor)
        if length > limit:
            return Fact(None, path, TOO_LARGE, f"over {limit} bytes")
        return Fact(pieces[0] if len(pieces) == 1 else b"".join(pieces), path, None)

    def size(self, path: str) -> int:
        try:
            return os.lstat(self.base + path).st_size
        except OSError:
            return 0


def _gap(path: str, error: OSError | ValueError) -> Fact[Any]:
    if isinstance(error, ValueError):  # a NUL in the name
        return Fact(None, path, NOT_CAPTURED)
    kind, detail = gaps.of_error(error)
    return Fact(None, path, NOT_CAPTURED if kind == ABSENT else kind, detail)
