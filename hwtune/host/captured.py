"""The host that a snapshot makes: its files, recorded answers and pasted texts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from hwtune.errors import UsageError
from hwtune.fact import ABSENT, DENIED, NOT_CAPTURED, TOO_LARGE, UNREADABLE, Fact
from hwtune.host import manifest as manifests
from hwtune.host import walk as walking
from hwtune.host.base import COMMAND_TIMEOUT_S, READ_LIMIT, CommandResult, Document, Host
from hwtune.host.live import question
from hwtune.text import strict_json
from hwtune.text.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.host.limits import Limits


# Below these the kernel prints something into every file; and every process has mounts.
_NEVER_EMPTY = ("/sys/", "/proc/sys/", "/proc/irq/")
_MOUNTS = ("/mounts", "/mountinfo")


class Tree(Protocol):
    """Files by their real path below the top of what was given."""

    warnings: list[str]

    def entries(self, directory: str) -> dict[str, int] | Fact[list[str]]: ...
    def target(self, path: str) -> str: ...
    def read(self, path: str, limit: int) -> Fact[bytes]: ...
    def size(self, path: str) -> int: ...


class SnapshotHost(Host):
    """``tree`` as a machine whose "/" is at ``root`` in it; no root: only pasted texts.

    ``texts`` is where these are searched ("" is the whole tree).
    """

    kind = "snapshot"

    def __init__(self, origin: str, tree: Tree, root: str | None, texts: str, limits: Limits) -> None:
        self.origin = origin
        self.root = root
        self._tree = tree
        self._base = root or ""
        self._texts = texts
        self._limits = limits
        self._walk = walking.Walk(self._look)
        self._found: dict[str, list[Document]] | None = None
        self._answers: dict[str, Fact[Any]] | None = None
        self._own_warnings: list[str] = []
        self._manifest = self._read_manifest()
        self.captured_at = self._manifest.captured_at

    @property
    def warnings(self) -> list[str]:
        """What was skipped or chosen while reading the snapshot, one sentence each."""
        return [*self._own_warnings, *self._tree.warnings]

    def warn(self, sentence: str) -> None:
        self._own_warnings.append(sentence)

    # -- files ---------------------------------------------------------------------------

    def read_bytes(self, path: str, limit: int = READ_LIMIT) -> Fact[bytes]:
        place, state = self._walk.locate(path)
        gap = self._manifest.gaps.get(place)
        if gap is not None:
            return Fact(None, path, *gap)
        if state == walking.FILE:
            found = self._tree.read(self._base + place, limit)
            if found.gap is not None:
                return Fact(None, path, found.gap, found.detail)
            if not found.value and self._emptied(place):
                return Fact(None, path, NOT_CAPTURED, "archived without its content")
            found.source = path
            return found
        return self._missing(path, place, state)

    def names(self, path: str) -> Fact[list[str]]:
        found = self._names(path)
        if found.value is not None and len(found.value) > self._limits.device_names and path != "/proc":
            return Fact(None, path, TOO_LARGE, f"{len(found.value)} names")
        return found

    def _names(self, path: str) -> Fact[list[str]]:
        if self.root is None:
            return Fact(None, path, NOT_CAPTURED)
        place, state = self._walk.locate(path)
        said = self._manifest
        if said.listings is not None:
            listed = said.listings.get(place or "/")
            if listed is not None:
                return Fact(list(listed), path, None)
        gap = said.listing_gaps.get(place)
        if gap is not None:
            return Fact(None, path, *gap)
        if state == walking.DIR and said.listings is None:
            entries = self._tree.entries(self._base + place)
            if isinstance(entries, Fact):
                return Fact(None, path, entries.gap, entries.detail)
            return Fact(sorted(entries), path, None)
        if state in (walking.DIR, walking.FILE, walking.OTHER):
            kind, detail = said.gaps.get(place, (NOT_CAPTURED, ""))
            if kind in (ABSENT, DENIED):
                return Fact(None, path, kind, detail)
            return Fact(None, path, ABSENT if said.complete else NOT_CAPTURED)
        return self._missing(path, place, state)

    def resolve(self, path: str) -> Fact[str]:
        place, state = self._walk.resolve(path)
        if state < walking.MISSING:
            return Fact(place or "/", path, None)
        gap = self._manifest.link_gaps.get(place)
        if gap is not None:
            return Fact(None, path, *gap)
        return self._missing(path, place, state)

    # -- questions -----------------------------------------------------------------------

    def command(self, argv: Sequence[str], timeout_s: float = COMMAND_TIMEOUT_S) -> Fact[CommandResult]:
        return self._answer(_command_key(argv), " ".join(argv))

    def ask(self, library: str, *arguments: Any) -> Fact[Any]:
        return self._answer(_library_key(library, arguments), question(library, arguments))

    def documents(self, kind: str) -> list[Document]:
        return self._documents().get(kind, [])

    def holds_documents(self) -> bool:
        """Whether any pasted text was recognised."""
        return bool(self._documents())

    def _documents(self) -> dict[str, list[Document]]:
        if self._found is None:
            from hwtune.host import documents

            # Our own captures record the answers of commands; they are not pasted texts.
            leave_out = ("commands",) if self._manifest.ours else ()
            self._found = documents.find(
                self._tree, self._texts, self.root, self._limits, self.warn, leave_out
            )
        return self._found

    # -- how -----------------------------------------------------------------------------

    def _look(self, directory: str, name: str) -> int | str:
        if self.root is None:
            return walking.MISSING
        entries = self._tree.entries(self._base + directory)
        if isinstance(entries, Fact):
            return walking.DENIED if entries.gap == DENIED else walking.MISSING
        found = entries.get(name, walking.MISSING)
        if found == walking.LINK:
            return self._tree.target(f"{self._base}{directory}/{name}")
        return found

    def _missing(self, path: str, place: str, state: int) -> Fact[Any]:
        if state == walking.DENIED:
            return Fact(None, path, DENIED, "in the snapshot")
        if state == walking.BROKEN:
            return Fact(None, path, UNREADABLE, "its links lead in a circle")
        if state == walking.MISSING:
            return Fact(None, path, *self._manifest.missing(place))
        what = "a directory" if state == walking.DIR else "not a regular file"
        return Fact(None, path, UNREADABLE, what)

    def _emptied(self, place: str) -> bool:
        """Whether an empty file is one that archivers make of procfs, whose files have no size, or
        what copying left of an attribute of sysfs that could not be read (EINVAL, EPERM).

        Our own captures hold what was read; there an empty file was one. The files of sysfs, /proc
        and /proc/sys themselves always print something: at least the end of a line.
        """
        if self._manifest.ours or not place.startswith(("/proc/", "/sys/")):
            return False
        return place.count("/") == 2 or place.startswith(_NEVER_EMPTY) or place.endswith(_MOUNTS)

    def _read_manifest(self) -> manifests.Manifest:
        if self.root is None:
            return manifests.Manifest()
        found = self._tree.read(self._base + manifests.NAME, self._limits.file_bytes)
        if found.value is None:
            return manifests.Manifest()
        try:
            said = manifests.parse(found.value)
        except ValueError:
            self.warn("manifest.json is not valid and was not used")
            return manifests.Manifest()
        if said.ours and said.format != manifests.FORMAT:
            raise UsageError(
                f"{printable(self.origin)} was written by another version of hwtune: use that one to read it."
            )
        return said

    def _answer(self, key: str, source: str) -> Fact[Any]:
        if self._answers is None:
            self._answers = {}
            self._read_answers("/commands", _command_answer)
            self._read_answers("/libraries", _library_answer)
        found = self._answers.get(key)
        if found is None:
            return Fact(None, source, ABSENT if self._manifest.complete else NOT_CAPTURED)
        return Fact(found.value, source, found.gap, found.detail)

    def _read_answers(self, folder: str, parse: Any) -> None:
        assert self._answers is not None
        entries = self._tree.entries(self._base + folder) if self.root is not None else {}
        if isinstance(entries, Fact):
            return
        for name in sorted(entries):
            if not name.endswith(".json") or entries[name] != walking.FILE:
                continue
            found = self._tree.read(f"{self._base}{folder}/{name}", self._limits.file_bytes)
            if found.value is None:
                continue
            try:
                key, answer = parse(strict_json.loads(found.value))
            except (ValueError, KeyError, TypeError):
                self.warn(f"{folder[1:]}/{name} is not a recorded answer and was not used")
                continue
            self._answers[key] = answer


def _command_key(argv: Sequence[str]) -> str:
    return json.dumps(["command", *argv])


def _library_key(library: str, arguments: Sequence[Any]) -> str:
    return json.dumps(["library", library, *arguments], default=str)


def _command_answer(said: Any) -> tuple[str, Fact[Any]]:
    key = _command_key([str(word) for word in said["argv"]])
    gap = manifests.read_gap(said.get("gap"))
    if gap is not None:
        return key, Fact(None, "", *gap)
    return key, Fact(CommandResult(int(said["status"]), str(said["stdout"]), str(said["stderr"])), "", None)


def _library_answer(said: Any) -> tuple[str, Fact[Any]]:
    key = _library_key(said["library"], said["arguments"])
    gap = manifests.read_gap(said.get("gap"))
    if gap is not None:
        return key, Fact(None, "", *gap)
    return key, Fact(said["value"], "", None)
