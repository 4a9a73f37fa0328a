"""The machine that hwtune runs on."""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING, Any

from hwtune.fact import ABSENT, DENIED, TOO_LARGE, UNREADABLE, Fact
from hwtune.host import gaps
from hwtune.host import walk as walking
from hwtune.host.base import COMMAND_TIMEOUT_S, READ_LIMIT, CommandResult, Host

if TYPE_CHECKING:
    from collections.abc import Sequence

# O_NONBLOCK: a FIFO or a terminal in a file's place must not hold the run. O_NOCTTY: nor become
# its terminal.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
# A sysfs attribute is a page at most, so that one read takes it; the second sees its end.
_FIRST_READ = 8192
_NEXT_READ = 1 << 17


class LiveHost(Host):
    """Reads below ``root``: "/", or where another machine's root is mounted (a container's view
    of its host), whose absolute links then lead into our own tree and so are not followed."""

    kind = "live"

    def __init__(self, root: str = "/") -> None:
        self.origin = root
        self.captured_at: float | None = time.time()
        self.prefix = "" if root == "/" else root.rstrip("/")
        self._walk = walking.Walk(self._look)

    def read_bytes(self, path: str, limit: int = READ_LIMIT) -> Fact[bytes]:
        try:
            descriptor = os.open(self.prefix + path, _FLAGS)
        except (OSError, ValueError) as error:
            return _gap(path, error)
        try:
            content = os.read(descriptor, _FIRST_READ)
            # Files of procfs may come in pieces of any size: only an empty read is the end.
            if content and (more := os.read(descriptor, _NEXT_READ)):
                content = _rest(descriptor, content + more, limit)
        except OSError as error:
            return _gap(path, error)
        finally:
            os.close(descriptor)
        if len(content) > limit:
            return Fact(None, path, TOO_LARGE, f"over {limit} bytes")
        return Fact(content, path, None)

    def part(self, path: str, offset: int, count: int) -> Fact[bytes]:
        try:
            descriptor = os.open(self.prefix + path, _FLAGS)
        except (OSError, ValueError) as error:
            return _gap(path, error)
        try:
            return Fact(os.pread(descriptor, count, offset), path, None)
        except OSError as error:
            return _gap(path, error)
        finally:
            os.close(descriptor)

    def names(self, path: str) -> Fact[list[str]]:
        try:
            found = os.listdir(self.prefix + path)
        except (OSError, ValueError) as error:
            return _gap(path, error)
        found.sort()
        return Fact(found, path, None)

    def resolve(self, path: str) -> Fact[str]:
        place, state = self._walk.resolve(path)
        if state < walking.MISSING:
            return Fact(place or "/", path, None)
        return Fact(None, path, *state_gap(state))

    def command(self, argv: Sequence[str], timeout_s: float = COMMAND_TIMEOUT_S) -> Fact[CommandResult]:
        from hwtune.host import commands

        return commands.run(argv, timeout_s)

    def ask(self, library: str, *arguments: Any) -> Fact[Any]:
        from importlib import import_module

        from hwtune.host.libraries import LibraryGap

        source = question(library, arguments)
        try:
            return Fact(import_module(f"hwtune.host.libraries.{library}").query(*arguments), source, None)
        except LibraryGap as gap:
            return Fact(None, source, gap.kind, gap.detail)
        except OSError as error:
            return _gap(source, error)
        except Exception as error:
            # Third-party code: whatever it raises means that it gave no answer.
            return Fact(None, source, UNREADABLE, f"{type(error).__name__}: {error}")

    def _look(self, directory: str, name: str) -> int | str:
        try:
            return os.readlink(f"{self.prefix}{directory}/{name}")
        except OSError as error:
            number = error.errno
            if number == errno.EINVAL:
                return walking.NODE
            kind, _ = gaps.of_error(error)
            return {ABSENT: walking.MISSING, DENIED: walking.DENIED}.get(kind, walking.BROKEN)
        except ValueError:  # a NUL in the name
            return walking.MISSING


def state_gap(state: int) -> tuple[str, str]:
    """The gap of a path that leads to one of the states from ``walk.MISSING`` on."""
    if state == walking.MISSING:
        return ABSENT, ""
    if state == walking.DENIED:
        return DENIED, os.strerror(errno.EACCES)
    return UNREADABLE, os.strerror(errno.ELOOP)


def question(library: str, arguments: Sequence[Any]) -> str:
    """The source of what a library said: ``library(arguments)``."""
    return f"{library}({', '.join(map(str, arguments))})"


def _rest(descriptor: int, content: bytes, limit: int) -> bytes:
    """``content`` and what follows it, up to one byte beyond ``limit``."""
    pieces, length = [content], len(content)
    while length <= limit:
        piece = os.read(descriptor, min(_NEXT_READ, limit + 1 - length))
        if not piece:
            break
        pieces.append(piece)
        length += len(piece)
    return b"".join(pieces)


def _gap(source: str, error: OSError | ValueError) -> Fact[Any]:
    if isinstance(error, OSError):
        kind, detail = gaps.of_error(error)
        return Fact(None, source, kind, detail)
    return Fact(None, source, ABSENT)  # a NUL in the path: no such file can exist
