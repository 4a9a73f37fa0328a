"""The live host, remembered: what ``capture`` writes, so that doctor says the same elsewhere.

Each question is answered once and remembered, so that what was diagnosed here and what is in the
archive are the same, though the machine goes on.
"""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any

from hwtune import __version__
from hwtune.fact import ABSENT, DENIED, NOT_CAPTURED, TOO_LARGE, UNREADABLE, Fact
from hwtune.host import archive_writer, gaps, manifest
from hwtune.host import walk as walking
from hwtune.host.archive_writer import DIRECTORY, FILE, LINK, Member
from hwtune.host.base import COMMAND_TIMEOUT_S, READ_LIMIT, CommandResult, Host
from hwtune.host.live import state_gap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hwtune.host.live import LiveHost


class Recorder(Host):
    """A live host that remembers everything it said."""

    kind = "live"
    patient = True

    def __init__(self, live: LiveHost) -> None:
        self._live = live
        self.origin = live.origin
        self.captured_at = live.captured_at
        self._walk = walking.Walk(self._look)
        # By real path: what was there, what it leads to, what reading it gave.
        self._kinds: dict[str, int] = {}
        self._links: dict[str, str] = {}
        self._contents: dict[str, bytes] = {}
        self._gaps: manifest.Gaps = {}
        self._listings: dict[str, list[str]] = {}
        self._listing_gaps: manifest.Gaps = {}
        self._link_gaps: manifest.Gaps = {}
        # By the question's source: (how it is written down, the answer).
        self._commands: dict[str, tuple[list[str], Fact[CommandResult]]] = {}
        self._libraries: dict[str, tuple[str, list[Any], Fact[Any]]] = {}

    # -- the host ------------------------------------------------------------------------

    def read_bytes(self, path: str, limit: int = READ_LIMIT) -> Fact[bytes]:
        place, _ = self._walk.locate(path)
        content = self._contents.get(place)
        if content is None:
            before = self._gaps.get(place)
            # A file that was too large may be read by somebody with a higher limit.
            if before is not None and before[0] != TOO_LARGE:
                return Fact(None, path, *before)
            found = self._live.read_bytes(path, limit)
            if found.gap is not None:
                self._gaps[place] = (found.gap, found.detail)
                return found
            content = found.value
            assert content is not None
            self._contents[place] = content
            self._gaps.pop(place, None)
        if len(content) > limit:
            return Fact(None, path, TOO_LARGE, f"over {limit} bytes")
        return Fact(content, path, None)

    def names(self, path: str) -> Fact[list[str]]:
        place, _ = self._walk.locate(path)
        key = place or "/"
        if key in self._listings:
            return Fact(list(self._listings[key]), path, None)
        if place in self._listing_gaps:
            return Fact(None, path, *self._listing_gaps[place])
        found = self._live.names(path)
        if found.value is None:
            self._listing_gaps[place] = (found.gap or UNREADABLE, found.detail)
        else:
            self._listings[key] = list(found.value)
        return found

    def resolve(self, path: str) -> Fact[str]:
        place, state = self._walk.resolve(path)
        if state < walking.MISSING:
            return Fact(place or "/", path, None)
        gap = self._link_gaps[place] = state_gap(state)
        return Fact(None, path, *gap)

    def command(self, argv: Sequence[str], timeout_s: float = COMMAND_TIMEOUT_S) -> Fact[CommandResult]:
        key = json.dumps(list(argv))
        if key not in self._commands:
            self._commands[key] = (list(argv), self._live.command(argv, timeout_s))
        return self._commands[key][1]

    def ask(self, library: str, *arguments: Any) -> Fact[Any]:
        key = json.dumps([library, *arguments], default=str)
        if key not in self._libraries:
            found = self._live.ask(library, *arguments)
            if found.gap is None:
                found = _as_json(found)
            self._libraries[key] = (library, list(arguments), found)
        return self._libraries[key][2]

    # -- remembering ---------------------------------------------------------------------

    def _look(self, directory: str, name: str) -> int | str:
        """What is at a place, noted: the walk of a snapshot will ask the same."""
        path = f"{directory}/{name}"
        if path not in self._kinds:
            self._kinds[path] = self._see(path)
        return self._links[path] if self._kinds[path] == walking.LINK else self._kinds[path]

    def _see(self, path: str) -> int:
        place = self._live.prefix + path
        try:
            mode = os.lstat(place).st_mode
            if stat.S_ISLNK(mode):
                self._links[path] = os.readlink(place)
                return walking.LINK
        except OSError as error:
            kind, detail = gaps.of_error(error)
            self._gaps[path] = (kind, detail)
            return {ABSENT: walking.MISSING, DENIED: walking.DENIED}.get(kind, walking.BROKEN)
        except ValueError:  # a NUL in the name
            self._gaps[path] = (ABSENT, "")
            return walking.MISSING
        if stat.S_ISDIR(mode):
            return walking.DIR
        return walking.FILE if stat.S_ISREG(mode) else walking.OTHER

    # -- writing -------------------------------------------------------------------------

    def write(self, path: str, *, overwrite: bool = False) -> int:
        """Write the archive (tar.gz, for its owner alone to read); returns its size in bytes.

        Raises ``UsageError`` where something is at ``path`` (but for a regular file when
        ``overwrite``) or nothing can be made there, ``ToolError`` where writing fails.
        """
        return archive_writer.write(path, self._members(), overwrite)

    def _members(self) -> Iterator[Member]:
        """What was remembered, in the form that ``hwtune.host.manifest`` describes."""
        reasons = dict(self._gaps)
        files: list[Member] = []
        for path in sorted(self._kinds.keys() | self._contents.keys()):
            if path.split("/", 2)[1] in _OURS or not path.isprintable():
                continue
            state = self._kinds.get(path, walking.FILE)
            if path in self._contents:
                files.append(Member(path[1:], FILE, self._contents[path]))
            elif state == walking.LINK:
                files.append(Member(path[1:], LINK, self._links[path].encode("utf-8", "surrogateescape")))
            elif state == walking.DIR:
                files.append(Member(path[1:], DIRECTORY, b""))
            elif state < walking.MISSING:
                files.append(Member(path[1:], FILE, b""))
                reasons.setdefault(path, (NOT_CAPTURED, ""))
        yield Member("manifest.json", FILE, _json(self._about() | {"gaps": reasons}))
        for number, (argv, result) in enumerate(self._commands.values()):
            said = {"argv": argv} | (_gap_of(result) or result.get()._asdict())
            yield Member(f"commands/{number:04d}.json", FILE, _json(said))
        for number, (library, arguments, answer) in enumerate(self._libraries.values()):
            question = {"library": library, "arguments": arguments}
            said = question | (_gap_of(answer) or {"value": answer.value})
            yield Member(f"libraries/{number:04d}.json", FILE, _json(said))
        yield from files

    def _about(self) -> dict[str, Any]:
        system = os.uname()
        return {
            "tool": "hwtune",
            "format": manifest.FORMAT,
            "version": __version__,
            "captured_at": self.captured_at,
            "hostname": system.nodename,
            "kernel": system.release,
            "listings": self._listings,
            "listing_gaps": self._listing_gaps,
            "link_gaps": self._link_gaps,
        }


# Where our own members lie; a file of the machine with such a path has no place.
_OURS = frozenset(("manifest.json", "commands", "libraries"))


def _gap_of(fact: Fact[Any]) -> dict[str, Any] | None:
    return None if fact.gap is None else {"gap": [fact.gap, fact.detail]}


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, indent=1, default=str).encode("ascii")


def _as_json(answer: Fact[Any]) -> Fact[Any]:
    """The answer as a snapshot will give it (lists for tuples), so that both are the same."""
    try:
        return Fact(json.loads(json.dumps(answer.value)), answer.source, None)
    except (TypeError, ValueError) as error:
        return Fact(None, answer.source, UNREADABLE, f"the answer cannot be recorded: {error}")
