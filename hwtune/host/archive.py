"""A tree of files from a tar archive, read in one pass into memory.

Nothing is unpacked to a disk, so that no name in an archive can reach anything outside it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hwtune.errors import UsageError
from hwtune.fact import NOT_CAPTURED, TOO_LARGE, UNREADABLE, Fact
from hwtune.host import tar, walk
from hwtune.host.limits import SMALL_FILE, Limits
from hwtune.host.streams import Damaged, Stream
from hwtune.text.printable import printable

if TYPE_CHECKING:
    from typing import BinaryIO

# Twice what the longest paths of sysfs have.
_MAX_NAME = 1024
_MAX_DEPTH = 64
# What an entry costs beside its path: its places in the tables below.
_ENTRY = 200


class ArchiveTree:
    """Paths are real ones below the archive's top ("")."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._entries: dict[str, dict[str, int]] = {"": {}}
        self._links: dict[str, str] = {}
        self._contents: dict[str, bytes] = {}
        # files that are there and were not kept, with their size
        self._left_out: dict[str, int] = {}
        #: bytes of memory, roughly
        self.cost = 0

    def entries(self, directory: str) -> dict[str, int] | Fact[list[str]]:
        found = self._entries.get(directory)
        return Fact(None, directory, NOT_CAPTURED) if found is None else found

    def target(self, path: str) -> str:
        return self._links[path]

    def read(self, path: str, limit: int) -> Fact[bytes]:
        content = self._contents.get(path)
        if content is None:
            size = self._left_out.get(path)
            if size is None:
                return Fact(None, path, UNREADABLE, "not a regular file")
            return Fact(None, path, TOO_LARGE, f"{size} bytes")
        if len(content) > limit:
            return Fact(None, path, TOO_LARGE, f"over {limit} bytes")
        return Fact(content, path, None)

    def size(self, path: str) -> int:
        content = self._contents.get(path)
        return self._left_out.get(path, 0) if content is None else len(content)

    # -- building ------------------------------------------------------------------------

    def add(self, directory: str, name: str, kind: int) -> bool:
        """Note an entry, with its parents; False where one of them is no directory."""
        parent = self._entries.get(directory)
        if parent is None:
            if not self._add_directory(directory):
                return False
            parent = self._entries[directory]
        before = parent.get(name)
        if before is not None and before != kind:
            if before == walk.DIR:
                return False  # a folder's content must not vanish behind a later file
            path = f"{directory}/{name}"
            self._links.pop(path, None)
            self._contents.pop(path, None)
            self._left_out.pop(path, None)
        if before is None:
            self.cost += _ENTRY + len(directory) + len(name)
        parent[name] = kind
        if kind == walk.DIR:
            self._entries.setdefault(f"{directory}/{name}", {})
        return True

    def _add_directory(self, path: str) -> bool:
        at = ""
        for name in path[1:].split("/"):
            inside = self._entries[at]
            at = f"{at}/{name}"
            if name not in inside:
                inside[name] = walk.DIR
                self._entries[at] = {}
                self.cost += _ENTRY + len(at)
            elif inside[name] != walk.DIR:
                return False  # below a file, or through a link
        return True

    def put(self, directory: str, name: str, member: tar.Member, keep: bool) -> bool:
        """Note what a member is; False where it has no place."""
        path = f"{directory}/{name}"
        if member.type == tar.DIR:
            return self.add(directory, name, walk.DIR)
        if member.type == tar.LINK:
            if not self.add(directory, name, walk.LINK):
                return False
            self._links[path] = member.target
            self.cost += len(member.target)
            return True
        if not self.add(directory, name, walk.FILE):
            return False
        if member.content is None or not keep:
            self._contents.pop(path, None)
            self._left_out[path] = member.size
        else:
            self._left_out.pop(path, None)
            self._contents[path] = member.content
            self.cost += len(member.content)
        return True

    def put_hard_link(self, directory: str, name: str, target: str) -> bool:
        """A second name of a file that came before; False where there is none inside."""
        content = self._contents.get(target)
        size = self._left_out.get(target)
        if content is None and size is None:
            return False
        return self.put(directory, name, tar.Member(name, tar.FILE, "", size or 0, content), True)


class Reader:
    """Reads one archive within its limits; what it skipped is counted, and told as warnings.

    ``shown`` is the archive's name as errors show it. Raises ``UsageError``.
    """

    def __init__(self, shown: str, limits: Limits) -> None:
        self._shown = shown
        self._limits = limits
        self._unpacked = 0
        self._held = 0
        self._deadline = time.process_time() + limits.seconds
        # reason -> how many, the first of them
        self._skipped: dict[str, tuple[int, str]] = {}

    def read(self, file: BinaryIO) -> ArchiveTree | bytes:
        """The archive's tree, or the (decompressed) bytes of a file that is no archive."""
        self._stream = Stream(file)
        source = tar.Source(self._piece)
        try:
            if tar.is_header(source.peek(tar.BLOCK)):
                return self._tree(source)
            return source.take(self._limits.document_bytes + 1)
        except Damaged as error:
            raise UsageError(f"{self._shown} is cut off or damaged ({error}): fetch it again.") from error

    def _piece(self) -> bytes:
        self._in_time()
        piece = self._stream.piece()
        self._unpacked += len(piece)
        self._bounded(self._unpacked)
        return piece

    def _in_time(self) -> None:
        if time.process_time() > self._deadline:
            raise UsageError(
                f"{self._shown} takes more than {self._limits.seconds:g} s to unpack:"
                " unpack it and give the folder."
            )

    def _bounded(self, length: int) -> None:
        if length > self._limits.unpacked_bytes:
            raise UsageError(
                f"{self._shown} unpacks to more than {self._limits.unpacked_bytes >> 20} MiB:"
                " unpack what is needed of it and give the folder."
            )

    def _tree(self, source: tar.Source) -> ArchiveTree:
        tree = ArchiveTree()
        limits = self._limits
        for number, member in enumerate(tar.members(source, limits.file_bytes)):
            if number >= limits.members:
                raise UsageError(
                    f"{self._shown} holds more than {limits.members:,} files:"
                    " pack only what is needed, or give the unpacked folder."
                )
            # One piece may hold hundreds of sparse files, each of which is made larger than it is.
            self._in_time()
            self._held += len(member.content or b"")
            self._bounded(self._held)
            reason = self._add(tree, member)
            if reason:
                count, first = self._skipped.get(reason, (0, member.name))
                self._skipped[reason] = (count + 1, first)
        tree.warnings = [
            f"skipped {count} {'member' if count == 1 else 'members'}: {reason}, {printable(first)}"
            for reason, (count, first) in self._skipped.items()
        ]
        return tree

    def _add(self, tree: ArchiveTree, member: tar.Member) -> str:
        """Put one member in its place; or why that cannot be."""
        path = _clean(member.name)
        if not path.startswith("/"):
            return path
        if path == "/":
            return ""
        if member.type == tar.SPECIAL:
            return "a device node or FIFO"
        if not member.target.isprintable():
            return "a link with control characters"
        directory, _, name = path.rpartition("/")
        if member.type == tar.HARD_LINK:
            target = _clean(member.target)
            done = target.startswith("/") and tree.put_hard_link(directory, name, target)
            return "" if done else "a hard link to nothing inside"
        keep = member.size <= SMALL_FILE or tree.cost <= self._limits.kept_bytes >> 1
        if tree.cost > self._limits.kept_bytes:
            raise UsageError(
                f"{self._shown} holds more than {self._limits.kept_bytes >> 20} MiB:"
                " pack only what is needed, or give the unpacked folder."
            )
        return "" if tree.put(directory, name, member, keep) else "a name below a file or a link"


def _clean(name: str) -> str:
    """A member's name as a path from the top ("/" for the top itself), or why it is skipped."""
    if name.startswith("/"):
        return "an absolute name"
    if not name.isprintable():
        return "a name with control characters"
    if len(name) > _MAX_NAME:
        return "a name that is too long"
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        return "a name that leads upwards"
    if len(parts) > _MAX_DEPTH:
        return "a name that is too deep"
    return "/" + "/".join(parts)
