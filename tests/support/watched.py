"""A host that notes what it is asked, for tests of how much a diagnosis reads, and of what."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from hwtune.host.base import COMMAND_TIMEOUT_S, READ_LIMIT, CommandResult, Host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.fact import Fact
    from hwtune.host.base import Document


class Watched(Host):
    """``reads``, ``listings`` and ``links``: path -> how often it was asked for; ``found``: the
    files and directories among these that were there; ``questions``: those to libraries and commands."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.kind = host.kind
        self.origin = host.origin
        self.captured_at = host.captured_at
        self.patient = host.patient
        self.reads: Counter[str] = Counter()
        self.listings: Counter[str] = Counter()
        self.links: Counter[str] = Counter()
        self.questions: Counter[str] = Counter()
        self.found: set[str] = set()

    @property
    def warnings(self) -> list[str]:
        return list(getattr(self._host, "warnings", []))

    def asked(self) -> int:
        """All questions to the file system."""
        return self.reads.total() + self.listings.total() + self.links.total()

    def read_bytes(self, path: str, limit: int = READ_LIMIT) -> Fact[bytes]:
        self.reads[path] += 1
        return self._noted(path, self._host.read_bytes(path, limit))

    def part(self, path: str, offset: int, count: int) -> Fact[bytes]:
        self.reads[path] += 1
        return self._noted(path, self._host.part(path, offset, count))

    def names(self, path: str) -> Fact[list[str]]:
        self.listings[path] += 1
        return self._host.names(path)

    def resolve(self, path: str) -> Fact[str]:
        self.links[path] += 1
        return self._host.resolve(path)

    def command(self, argv: Sequence[str], timeout_s: float = COMMAND_TIMEOUT_S) -> Fact[CommandResult]:
        self.questions[" ".join(argv)] += 1
        return self._host.command(argv, timeout_s)

    def ask(self, library: str, *arguments: Any) -> Fact[Any]:
        self.questions[f"{library}{arguments}"] += 1
        return self._host.ask(library, *arguments)

    def documents(self, kind: str) -> list[Document]:
        return self._host.documents(kind)

    def _noted(self, path: str, fact: Fact[bytes]) -> Fact[bytes]:
        if fact.known:
            self.found.add(path)
        return fact
