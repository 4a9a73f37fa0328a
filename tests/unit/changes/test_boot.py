"""What the boot unit does with its list, and the units themselves."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from hwtune.changes import boot, hold_latency
from hwtune.changes.persist import boot_unit
from hwtune.changes.stores import render_template
from hwtune.changes.system import ChangeError
from hwtune.changes.targets import IrqsAway
from tests.support import Link
from tests.support.changes import Machine
from tests.unit.changes.test_compile import BOX, IRQS, irq, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support import Content

SWAPPINESS = "/proc/sys/vm/swappiness"


def listed(*pairs: tuple[str, str]) -> str:
    return json.dumps({"format": 1, "apply": [{"target": key, "value": value} for key, value in pairs]})


def booted(tmp_path: Path, content: str, more: Mapping[str, Content] | None = None) -> Machine:
    machine = Machine(tmp_path, {**BOX, **IRQS, **(more or {}), boot.PATH: content})
    (machine.root / "etc/hwtune/boot.json").chmod(0o600)
    (machine.root / "etc/hwtune").chmod(0o755)
    return machine


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events: dict[float, Any] = {}

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for moment in [m for m in self.events if m <= self.now]:
            self.events.pop(moment)()


def run(machine: Machine, passing: Time | None = None) -> tuple[int, list[str]]:
    said: list[str] = []
    passing = passing or Time()
    return boot.run(machine.system, said.append, 10.0, passing.clock, passing.sleep), said


def test_each_is_set_and_what_is_so_already_is_not_touched(tmp_path: Path) -> None:
    machine = booted(
        tmp_path,
        listed(
            (f"attribute text {SWAPPINESS}", "1"),
            ("irq 25 0000:03:00.0 eth0-TxRx-1", "0-1"),
            ("attribute mask /proc/irq/default_smp_affinity", "000000ff"),
        ),
    )
    assert run(machine) == (
        0,
        [
            f"<6>attribute text {SWAPPINESS}: 60 -> 1",
            "<6>irq 25 0000:03:00.0 eth0-TxRx-1: CPUs 2 -> CPUs 0-1",
        ],
    )
    assert run(machine) == (0, [])


def test_each_fails_alone(tmp_path: Path) -> None:
    machine = booted(
        tmp_path,
        listed(
            ("attribute text /proc/sys/vm/dirty_ratio", "5"),
            ("sorcery of a later version", "1"),
            (f"attribute text {SWAPPINESS}", "1"),
        ),
    )
    refuse(machine, "/proc/sys/vm/dirty_ratio", errno.EINVAL)
    status, said = run(machine)
    assert status == 1
    assert said[0].startswith("<3>sorcery of a later version: this version knows no sorcery targets")
    assert said[1].startswith("<3>attribute text /proc/sys/vm/dirty_ratio: cannot write")
    assert said[2:] == [f"<6>attribute text {SWAPPINESS}: 60 -> 1"]


def test_what_comes_late_is_waited_for_and_what_never_comes_is_told(tmp_path: Path) -> None:
    late, never = "/sys/class/nvme/nvme3/power/x", "/sys/class/nvme/nvme4/power/x"
    machine = booted(
        tmp_path, listed((f"attribute text {late}", "0"), (f"attribute text {never}", "0")),
    )  # fmt: skip
    passing = Time()

    def appear() -> None:
        place = machine.root / late.lstrip("/")
        place.parent.mkdir(parents=True)
        place.write_text("100000\n")

    passing.events[3.0] = appear
    assert run(machine, passing) == (
        0,
        [f"<6>attribute text {late}: 100000 -> 0", f"<4>attribute text {never}: it is not there"],
    )
    assert passing.now == 10.0


def test_value_that_does_not_stick_is_told(tmp_path: Path) -> None:
    machine = booted(tmp_path, listed((f"attribute text {SWAPPINESS}", "1")))
    machine.system.write_attribute = lambda path, value: None  # type: ignore[method-assign]
    assert run(machine) == (1, [f"<3>attribute text {SWAPPINESS}: it reads back as 60"])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "not what hwtune writes"),
        ("[]", "not what hwtune writes"),
        ('{"format": 1, "apply": [{"target": "a"}]}', "not what hwtune writes"),
        ('{"format": 1, "apply": [{"target": "a", "value": 1}]}', "not what hwtune writes"),
        ('{"format": 2, "apply": []}', "format 2"),
    ],
)
def test_lists_that_are_none(tmp_path: Path, content: str, why: str) -> None:
    with pytest.raises(ChangeError, match=why):
        run(booted(tmp_path, content))


def test_lists_that_others_may_have_written(tmp_path: Path) -> None:
    machine = booted(tmp_path, listed((f"attribute text {SWAPPINESS}", "1")))
    place = machine.root / "etc/hwtune/boot.json"
    place.chmod(0o620)
    with pytest.raises(ChangeError, match=r"others than root may write /etc/hwtune/boot\.json"):
        run(machine)
    place.chmod(0o600)
    place.parent.chmod(0o777)
    with pytest.raises(ChangeError, match="others than root may write /etc/hwtune;"):
        run(machine)
    place.parent.chmod(0o755)
    place.rename(tmp_path / "elsewhere.json")
    place.symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(ChangeError, match="cannot read"):
        run(machine)
    assert machine.read(SWAPPINESS) == "60\n"


def test_no_list_at_all(tmp_path: Path) -> None:
    with pytest.raises(ChangeError, match="No such file"):
        run(Machine(tmp_path, BOX))


# -- interrupts away from CPUs -----------------------------------------------------------------


def test_all_interrupts_that_can_be_moved_go_away(tmp_path: Path) -> None:
    machine = booted(
        tmp_path,
        listed(("irqs-away 2-3", "")),
        {
            **irq(31, "3", "xhci_hcd", node="-1"),
            "/proc/irq/40/smp_affinity_list": "2\n",  # nobody's: it cannot fire
            "/proc/irq/0/smp_affinity_list": "0-7\n",
        },
    )
    refuse(machine, "/proc/irq/30/smp_affinity_list", errno.EPERM)
    status, said = run(machine)
    assert status == 0
    assert said == ["<6>irqs-away 2-3: moved IRQs 24-25,31; IRQs 30 stay, as the kernel manages them"]
    # the CPUs that it could go to already; those of its node; all others
    assert machine.read("/proc/irq/24/smp_affinity_list") == "0-1,4-7\n"
    assert machine.read("/proc/irq/25/smp_affinity_list") == "0-1\n"
    assert machine.read("/proc/irq/31/smp_affinity_list") == "0-1,4-7\n"
    assert machine.read("/proc/irq/40/smp_affinity_list") == "2\n"


def test_other_failures_than_managed_are_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {**BOX, **IRQS})
    refuse(machine, "/proc/irq/25/smp_affinity_list", errno.ENOSPC)
    with pytest.raises(ChangeError, match="irq/25"):
        IrqsAway("2-3").write(machine.system, "")
    with pytest.raises(ChangeError, match="no CPU but 0-7"):
        IrqsAway("0-7").write(machine.system, "")


# -- units ------------------------------------------------------------------------------------


def units(folder: Path) -> list[Path]:
    values = {"python": sys.executable, "path": boot.PATH, "microseconds": "20"}
    found = []
    for name in ("hwtune-boot.service", "hwtune-cpu-latency.service"):
        path = folder / name
        path.write_text(render_template(f"{name}.j2", **values))
        found.append(path)
    return found


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_no_fault_in_the_units(tmp_path: Path) -> None:
    for unit in units(tmp_path):
        result = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(unit)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        ours = [line for line in result.stderr.splitlines() if "hwtune" in line]
        assert ours == [], result.stderr


def test_units_run_the_interpreter_that_finds_hwtune(tmp_path: Path) -> None:
    assert boot_unit.interpreter() == sys.executable
    starts = [
        line.split("=", 1)[1].split() for unit in units(tmp_path) for line in unit.read_text().splitlines()
        if line.startswith("ExecStart=")
    ]  # fmt: skip
    assert [words[:4] for words in starts] == [
        [sys.executable, "-I", "-m", "hwtune.changes.boot"],
        [sys.executable, "-I", "-m", "hwtune.changes.hold_latency"],
    ]


def test_an_interpreter_that_others_may_replace_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_all = tmp_path / "venv"
    (open_to_all / "bin").mkdir(parents=True)
    (open_to_all / "bin/python").write_text("")
    open_to_all.chmod(0o777)
    monkeypatch.setattr(sys, "executable", str(open_to_all / "bin/python"))
    with pytest.raises(ChangeError, match=f"what others may change \\({open_to_all}\\)"):
        boot_unit.interpreter()


# -- the latency request ------------------------------------------------------------------------


def _opened(pid: int) -> list[str]:
    """What a process has open; a handle that it closes while we look (its word to systemd) is passed over."""
    found = []
    for handle in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/{pid}/fd/{handle}"))
    return found


def test_request_is_four_bytes_and_held_until_a_signal(tmp_path: Path) -> None:
    """The device is a file that is written once; the kernel takes four bytes as a binary number."""
    device = tmp_path / "cpu_dma_latency"
    device.write_bytes(b"")
    script = (
        "import sys; from hwtune.changes import hold_latency; "
        "hold_latency.hold(int(sys.argv[1]), sys.argv[2]); print('let go')"
    )
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(30)
        child = subprocess.Popen(
            [sys.executable, "-c", script, "20", str(device)],
            stdout=subprocess.PIPE,
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
        )
        try:
            assert listener.recv(100) == b"READY=1"
            assert device.read_bytes() == struct.pack("=i", 20)
            assert str(device) in _opened(child.pid)
            child.send_signal(signal.SIGTERM)
            assert child.communicate(timeout=30)[0] == b"let go\n"
            assert child.returncode == 0
        finally:
            child.kill()
            child.wait()


@pytest.mark.parametrize("argument", ["", "-1", "two", str(1 << 31)])
def test_requests_that_are_none(monkeypatch: pytest.MonkeyPatch, argument: str) -> None:
    monkeypatch.setattr(sys, "argv", ["hold_latency", argument])
    assert hold_latency.main() == 2


def test_device_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = str(tmp_path / "none")
    monkeypatch.setattr(sys, "argv", ["hold_latency", "20"])
    monkeypatch.setattr(hold_latency.hold, "__defaults__", (missing,))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        assert hold_latency.main() == 1
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    assert capsys.readouterr().err == f"<3>hwtune: {missing}: No such file or directory\n"


def test_links_of_units_lead_where_systemctl_would_make_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {**BOX, "/etc/a": Link("b")})
    machine.system.write_link("/etc/a", "c")
    assert machine.system.link("/etc/a") == "c"
    assert machine.system.link("/etc/none") is None
    with pytest.raises(ChangeError, match="no symbolic link"):
        machine.system.link(SWAPPINESS)
