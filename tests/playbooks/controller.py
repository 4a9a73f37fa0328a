"""Ansible as it is run by a person: its own virtual environment, the built and installed collection, an
inventory. What it did is read from what ``callbacks/record.py`` wrote, not from its text."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILT = ROOT / "build" / "playbooks"
LIMIT = 400.0
SSH = (
    "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectTimeout=5 "
    "-o ControlMaster=auto -o ControlPersist=20s "
    # a connection to a host that went down without a word must not be waited for
    "-o ServerAliveInterval=5 -o ServerAliveCountMax=3"
)


class Host(Protocol):
    """Where SSH finds a host."""

    name: str
    address: str
    port: int


class Network(Protocol):
    """From where hosts are reached, and the folder with the key (user_key) that opens them."""

    folder: Path

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command as it runs there."""


class Noted(NamedTuple):
    """What became of a task on a host: ok, failed, ignored, unreachable or skipped."""

    host: str
    task: str
    action: str
    outcome: str
    result: dict[str, Any]


class Run(NamedTuple):
    status: int
    text: str
    noted: list[Noted]
    #: host -> ok, changed, unreachable, failures, skipped, rescued, ignored
    recap: dict[str, dict[str, int]]

    def of(self, task: str, host: str = "") -> Noted:
        """What became of the one task whose name ends so."""
        found = [n for n in self.noted if n.task.endswith(task) and host in ("", n.host)]
        assert len(found) == 1, (task, host, [(n.task, n.host) for n in self.noted], self.text)
        return found[0]

    def hosts(self, task: str, outcome: str) -> set[str]:
        return {n.host for n in self.noted if n.task.endswith(task) and n.outcome == outcome}

    @property
    def why(self) -> str:
        """What went wrong, for an assertion's message."""
        bad = [n for n in self.noted if n.outcome in ("failed", "unreachable", "ignored")]
        told = [f"{n.host}: {n.task}: {n.outcome}: {n.result.get('msg', n.result)}" for n in bad]
        return "\n".join([f"status {self.status}", *told, "", self.text[-800:]])

    def changed(self) -> dict[str, int]:
        return {host: counts["changed"] for host, counts in self.recap.items()}


class Controller:
    """One ansible-core, with the collection in ``collections`` and files of its own in ``folder``."""

    def __init__(
        self, environment: Path, collections: Path, folder: Path, lab: Network | None = None
    ) -> None:
        self.bin = environment / "bin"
        self.folder = folder
        self.collections, self._lab, self._count = collections, lab, 0
        folder.mkdir(parents=True, exist_ok=True)

    def play(
        self,
        play: str,
        hosts: Sequence[Host],
        *arguments: str,
        variables: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Run:
        """Run a play: a name of the collection's (hwtune.hwtune.doctor), or a text of YAML."""
        if "\n" in play:
            place = self.folder / f"play-{self._count}.yml"
            place.write_text(play)
            play = str(place)
        more = ["-e", json.dumps(dict(variables or {}))]
        command = ["ansible-playbook", "-i", str(self._inventory(hosts)), play, *arguments, *more]
        return self._recorded(command, env)

    def module(self, *arguments: str, env: Mapping[str, str] | None = None, check: bool = False) -> Run:
        """The module hwtune on this machine itself."""
        command = ["ansible", "localhost", "-c", "local", "-m", "hwtune.hwtune.hwtune", "-a"]
        command += [" ".join(arguments), *(["--check", "--diff"] if check else [])]
        return self._recorded(command, env)

    def run(
        self, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """One of Ansible's programs, on the lab's network where there is a lab."""
        line = ["nice", "-n", "5", str(self.bin / command[0]), *command[1:]]
        if self._lab is not None:
            line = self._lab.inside(line)
        return subprocess.run(
            line,
            cwd=self.folder,
            env=self._environment() | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def _recorded(self, command: Sequence[str], env: Mapping[str, str] | None) -> Run:
        self._count += 1
        record = self.folder / f"record-{self._count}.jsonl"
        done = self.run(command, {"HWTUNE_TEST_RECORD": str(record), **(env or {})})
        (self.folder / f"said-{self._count}.txt").write_text(f"{command}\n{done.stdout}")
        lines = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
        recap = lines.pop()["recap"] if lines and "recap" in lines[-1] else {}
        return Run(done.returncode, done.stdout, [Noted(**line) for line in lines], recap)

    def _inventory(self, hosts: Sequence[Host]) -> Path:
        assert self._lab is not None
        place = self.folder / f"inventory-{self._count}.ini"
        lines = [f"{host.name} ansible_host={host.address} ansible_port={host.port}" for host in hosts]
        lines += [
            "[all:vars]",
            "ansible_user=root",
            "ansible_python_interpreter=/usr/bin/python3",
            f"ansible_ssh_private_key_file={self._lab.folder / 'user_key'}",
            f"ansible_ssh_common_args={SSH!r}",
        ]
        place.write_text("\n".join(lines) + "\n")
        return place

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        return kept | {
            "PATH": f"{self.bin}:/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8",
            "PWD": str(self.folder),
            "ANSIBLE_HOME": str(self.folder / "home"),
            "ANSIBLE_COLLECTIONS_PATH": str(self.collections),
            "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callbacks"),
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_FORKS": "10",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_LOCALHOST_WARNING": "0",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "0",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.folder / "cp"),
            "ANSIBLE_RETRY_FILES_ENABLED": "0",
        }
