"""Ways in which a file of a snapshot may be bad."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hwtune.fact import DENIED, TOO_LARGE, UNREADABLE, Fact
from hwtune.host.base import READ_LIMIT
from tests.support.watched import Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hwtune.host.base import Host

_HUGE = 100 << 20  # sparse: it takes no room

# What no reading gives a content of.
UNREADABLE_ON_DISK: dict[str, Callable[[Path], None]] = {
    "directory": lambda path: path.mkdir(),
    "dangling link": lambda path: path.symlink_to("no/such/place"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "FIFO": lambda path: os.mkfifo(path),
    "100 MB": lambda path: _sparse(path),
}
# What has a content, of some kind.
CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "binary": bytes(range(256)) * 8,
    "escapes": b"\0\xff\x1b[31m\x1b]0;x\x07\n",
    "one long line": b"0 1-9999999 a=b:c " * (1 << 14),
    "a number": b"9" * 30,
    "negative": b"-1\n",
    "blank": b" \n",
}


def _sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(_HUGE)


@contextmanager
def damaged(path: Path, how: str, other: bytes = b"") -> Iterator[None]:
    """``path`` damaged on disk: a key of the two tables above, "truncated", or "text of another"."""
    content = path.read_bytes()
    path.unlink()
    if how in UNREADABLE_ON_DISK:
        UNREADABLE_ON_DISK[how](path)
    else:
        path.write_bytes(_content(content, how, other))
    try:
        yield
    finally:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
        path.write_bytes(content)


def _content(content: bytes, how: str, other: bytes) -> bytes:
    if how == "truncated":
        return content[: len(content) // 2]
    return other if how == "text of another" else CONTENTS[how]


GAPS = {"denied": DENIED, "input/output error": UNREADABLE, "too large": TOO_LARGE}


class Damaged(Watched):
    """A host of which one file is bad, for machines that stay in their archives: one of ``GAPS``, or
    ``how`` as above where that gives a content."""

    def __init__(self, host: Host, path: str, how: str, other: bytes = b"") -> None:
        super().__init__(host)
        self._path, self._how, self._other = path, how, other

    def read_bytes(self, path: str, limit: int = READ_LIMIT) -> Fact[bytes]:
        found = super().read_bytes(path, limit)
        return self._spoilt(found) if path == self._path else found

    def part(self, path: str, offset: int, count: int) -> Fact[bytes]:
        found = super().part(path, offset, count)
        return self._spoilt(found) if path == self._path else found

    def _spoilt(self, found: Fact[bytes]) -> Fact[Any]:
        if self._how in GAPS:
            return Fact(None, found.source, GAPS[self._how], self._how)
        return Fact(_content(found.value or b"", self._how, self._other), found.source, None)
