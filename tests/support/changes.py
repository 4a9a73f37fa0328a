"""A machine that tests may change: a tree of files, programs made of functions, and the real engine."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import TYPE_CHECKING, Any

from hwtune.changes.apply import apply
from hwtune.changes.journal import Journal
from hwtune.changes.ledger import Ledger
from hwtune.changes.plan import Plan, make_plan
from hwtune.changes.revert import revert
from hwtune.changes.system import System
from hwtune.diagnosis.engine import RowResult
from hwtune.diagnosis.verdict import Finding
from hwtune.fact import ABSENT, Fact
from hwtune.host.base import CommandResult
from hwtune.host.live import LiveHost
from tests.support import tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hwtune.changes.apply import Applied
    from hwtune.changes.kinds import Change
    from hwtune.changes.revert import Reverted
    from tests.support import Content


class ToolHost(LiveHost):
    """A live host below a root, whose programs and libraries are functions. Programs that are not
    given are not installed."""

    def __init__(self, root: str, tools: Mapping[str, Any], libraries: Mapping[str, Any]) -> None:
        super().__init__(root)
        self.tools = tools
        self.libraries = libraries
        self.ran: list[list[str]] = []

    def command(self, argv: Sequence[str], timeout_s: float = 5.0) -> Fact[CommandResult]:
        source = " ".join(argv)
        tool = self.tools.get(os.path.basename(argv[0]))
        if tool is None:
            return Fact(None, source, ABSENT)
        self.ran.append(list(argv))
        said = tool(argv)
        return Fact(CommandResult(0, said, "") if isinstance(said, str) else said, source, None)

    def ask(self, library: str, *arguments: Any) -> Fact[Any]:
        if library in self.libraries:
            return Fact(self.libraries[library](*arguments), library, None)
        return Fact(None, library, ABSENT)


class Machine:
    """A tree, the system that changes it, and its journal."""

    def __init__(
        self,
        folder: Path,
        files: Mapping[str, Content],
        tools: Mapping[str, Any] | None = None,
        libraries: Mapping[str, Any] | None = None,
    ) -> None:
        self.root = tree(folder / "root", files)
        self.system = System(str(self.root))
        self.host = ToolHost(str(self.root), tools if tools is not None else {}, libraries or {})
        self.system.host = self.host
        self.folder = str(folder / "journal")
        self.systemd = Systemd()

    def plan(self, *changes: Change, allow: Sequence[str] = ("boot", "service", "link")) -> Plan:
        finding = Finding("machine", "made for a test", [], list(changes))
        result = RowResult("test.row", "finding", "warning", "runtime", "", "", [finding], [], [])
        return make_plan([result], self.system, self.ledger(), allow)

    def ledger(self) -> Ledger:
        return Ledger(Journal(self.folder).records()[0])

    def apply(self, *changes: Change) -> Applied:
        plan = self.plan(*changes)
        journal = Journal(self.folder)
        journal.open("apply")
        try:
            return apply(plan, journal, self.system, "apply")
        finally:
            journal.close()

    def revert(self, set_id: str | None = None, force: bool = False) -> Reverted:
        ledger = self.ledger()
        chosen = ledger.sets[set_id] if set_id else ledger.active_sets()[-1]
        journal = Journal(self.folder)
        journal.open("revert")
        try:
            return revert(chosen, journal, self.system, force)
        finally:
            journal.close()

    def read(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text()

    def state(self) -> dict[str, tuple[str, int]]:
        """Everything below the root: path -> hash of the content, mode."""
        found = {}
        for folder, folders, names in os.walk(self.root):
            for name in folders + names:
                path = os.path.join(folder, name)
                status = os.lstat(path)
                if stat.S_ISLNK(status.st_mode):
                    content = os.readlink(path).encode()
                elif stat.S_ISDIR(status.st_mode):
                    content = b""
                else:
                    with open(path, "rb") as file:
                        content = file.read()
                found[path] = (hashlib.sha256(content).hexdigest(), status.st_mode)
        return found


def failing(status: int, message: str) -> CommandResult:
    return CommandResult(status, "", message)


class Systemd:
    """A systemctl that keeps states: unit -> [enabled, active]. ``on``: verb -> what happens too."""

    def __init__(self) -> None:
        self.states: dict[str, list[str]] = {}
        self.ids: dict[str, str] = {}
        self.on: dict[str, Any] = {}

    def __call__(self, argv: Sequence[str]) -> CommandResult | str:
        verb, *words = [word for word in argv[1:] if word != "--runtime"]
        if verb == "is-enabled":
            return self.states.get(words[0], ["not-found"])[0] + "\n"
        if verb == "is-active":
            return self.states.get(words[0], ["", "inactive"])[1] + "\n"
        if verb == "show":
            return self.ids.get(words[-1], words[-1]) + "\n"
        if verb in self.on:
            self.on[verb](*words)
        unit = words[0] if words else ""
        if unit.startswith("hwtune-") and verb in ("restart", "stop"):
            self.states[unit] = ["enabled", "active"]
            if verb == "stop":
                del self.states[unit]
        elif unit in self.states:
            at, to = {
                "enable": (0, "enabled"), "disable": (0, "disabled"), "mask": (0, "masked"),
                "unmask": (0, "enabled"), "start": (1, "active"), "stop": (1, "inactive"),
            }.get(verb, (0, self.states[unit][0]))  # fmt: skip
            self.states[unit][at] = to
        return ""
