"""The collection against a real Linux over SSH: apply, a reboot by the role, verify, revert."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from hwtune.text.cpulist import parse_list
from tests.machine import install
from tests.machine.conftest import LOGS
from tests.machine.hardware import OUTER_MAC
from tests.machine.install import HWTUNE
from tests.machine.machine import Machine, MachineError
from tests.playbooks import made
from tests.playbooks.controller import BUILT, Controller, Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOT = "2-3"
WANTED = {
    "hwtune_executable": HWTUNE,
    "hwtune_profile": "low-latency",
    "hwtune_set": [f"isolation.cpus={HOT}"],
    "hwtune_only": ["isolation.*", "irq.*", "memory.*", "kernel.*"],
    "hwtune_allow": ["boot", "service", "link"],
    "hwtune_reboot": True,
    "hwtune_measure": False,
    "hwtune_rebooted": False,
    "hwtune_before": "/var/lib/hwtune/before-provisioning.json",
    "hwtune_measurement": {},
}
# hwtune was put there by other means: all of the role but its installation.
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: hwtune.hwtune.hwtune
        tasks_from: provision.yml
"""
NETWORK = f"""
[Unit]
Before=ssh.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'until nic=$(grep -il {OUTER_MAC} /sys/class/net/*/address); do sleep 1; done; \\
    nic=$(basename $(dirname $nic)); ip link set dev $nic up; ip address add 10.0.2.15/24 dev $nic'
TimeoutStartSec=300
[Install]
WantedBy=multi-user.target
"""


class Guest(NamedTuple):
    name: str
    address: str
    port: int


class Here(NamedTuple):
    """This machine's own network."""

    folder: Path

    def inside(self, command: Sequence[str]) -> list[str]:
        return list(command)


class Site(NamedTuple):
    machine: Machine
    controller: Controller
    guest: Guest

    def play(self, play: str, *arguments: str, **variables: Any) -> Run:
        return self.controller.play(play, [self.guest], *arguments, variables={**WANTED, **variables})

    def play_over_a_boot(self, play: str) -> Run:
        """Who reboots the guest ends QEMU, which then has to be started again: by this thread, as the kernel
        kills QEMU when the thread ends that started it."""
        with ThreadPoolExecutor(1) as pool:
            playing = pool.submit(self.play, play)
            try:
                self.machine.follow_reboot()
            except MachineError as error:
                raise AssertionError(f"{error}\n{playing.result().why}") from error
            return playing.result()


@pytest.fixture(scope="module")
def site(debian: Path, share: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    newest = BUILT / "ansible-newest"
    if not (newest / "bin" / "ansible").exists() or not shutil.which("ssh"):
        pytest.skip("no ssh, or no Ansible in build/playbooks: scripts/test-playbooks sees to both")
    folder = tmp_path_factory.mktemp("ansible")
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "user_key")],
        check=True,
        timeout=60,
    )
    collections = made.installed(newest, made.artifact(newest, folder), folder / "collections")
    guest = Guest("guest", "127.0.0.1", _free_port())
    with (
        _logged(folder),
        Machine(folder / "machine", debian, share=share, ssh_port=guest.port) as machine,
    ):
        machine.start()
        install.install(machine)
        machine.check("install -d -m 700 /root/.ssh")
        machine.put("/root/.ssh/authorized_keys", (folder / "user_key.pub").read_text())
        machine.put("/etc/systemd/system/test-network.service", NETWORK)
        machine.check(
            "systemctl daemon-reload && systemctl --quiet enable --now test-network.service ssh.service"
        )
        machine.check("systemctl restart irqbalance.service")
        yield Site(machine, Controller(newest, collections, folder / "controller", Here(folder)), guest)


@contextmanager
def _logged(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        LOGS.mkdir(parents=True, exist_ok=True)
        for path in (folder / "machine/console.log", *folder.glob("controller/said-*.txt")):
            if path.exists():
                shutil.copyfile(path, LOGS / f"test_ansible-{path.name}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _told(machine: Machine, *command: str) -> dict[str, Any]:
    result = machine.run([HWTUNE, *command, "--format", "json"], 300)
    return dict(json.loads(result.stdout))


def _files(machine: Machine) -> str:
    return machine.check("find /etc /boot -xdev -type f -exec sha256sum {} + | sort -k 2", 300)


@pytest.fixture(scope="module")
def before(site: Site) -> tuple[str, str]:
    return _files(site.machine), site.machine.check(["cat", "/proc/cmdline"])


@pytest.fixture(scope="module")
def foreseen(site: Site, before: tuple[str, str]) -> Run:
    return site.play(PLAY, "--check", "--diff")


@pytest.fixture(scope="module")
def provisioned(site: Site, foreseen: Run) -> Run:
    return site.play_over_a_boot(PLAY)


@pytest.fixture(scope="module")
def again(site: Site, provisioned: Run) -> Run:
    return site.play(PLAY)


@pytest.fixture(scope="module")
def reverted(site: Site, again: Run) -> Run:
    return site.play_over_a_boot("hwtune.hwtune.revert")


def test_check_mode_tells_and_changes_nothing(site: Site, before: tuple[str, str], foreseen: Run) -> None:
    assert foreseen.status == 0, foreseen.why
    assert foreseen.changed()["guest"] > 0
    assert _told(site.machine, "history")["sets"] == []
    assert _files(site.machine) == before[0]
    assert f"isolcpus=domain,managed_irq,{HOT}" in foreseen.text


def test_the_role_applies_boots_and_verifies(site: Site, before: tuple[str, str], provisioned: Run) -> None:
    assert provisioned.status == 0, provisioned.why
    assert provisioned.recap["guest"]["failures"] == provisioned.recap["guest"]["unreachable"] == 0
    assert "Reboot" in {n.task.rpartition(" : ")[2] for n in provisioned.noted if n.outcome == "ok"}
    # what the play verified, after the boot that it made
    verified = _told(site.machine, "verify")
    assert verified["in_force"], verified
    assert parse_list(site.machine.check(["cat", "/sys/devices/system/cpu/isolated"]).strip()) == [2, 3]


def test_a_second_run_changes_nothing(again: Run) -> None:
    assert again.status == 0, again.why
    assert again.changed() == {"guest": 0}


def test_revert_boots_back_to_what_was_there(site: Site, before: tuple[str, str], reverted: Run) -> None:
    assert reverted.status == 0, reverted.why
    files, command_line = before
    assert site.machine.check(["cat", "/proc/cmdline"]) == command_line
    assert _files(site.machine) == files
    assert _told(site.machine, "verify")["changes"] == []
