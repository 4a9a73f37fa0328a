"""nvme-latency on real block devices: a clean NVMe drive, and one that a device mapper above it stops for a
tenth of a second every two seconds.

Where the machine gets too little of the host's time there is no verdict, as there must be none; what hangs
on one is then left out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.machine.hardware import DRIVES
from tests.machine.install import HWTUNE

if TYPE_CHECKING:
    from tests.machine.machine import Machine

COMMON_MACHINE = True
PERIOD_S, STALL_S = 2.0, 0.1
SECONDS = 28  # fourteen periods; nothing but short rests
LIMIT = 300
# numpy's code for AVX2 gets a protection fault now and then where QEMU 7.2 emulates it
PLAIN = {"NPY_DISABLE_CPU_FEATURES": "X86_V3 AVX2 FMA3"}

# Deadlines are absolute: the period is what it says however long dmsetup takes.
STALLER = f"""
import subprocess, time
begin = time.monotonic()
for turn in range(1, 10_000):
    time.sleep(max(0, begin + turn * {PERIOD_S} - time.monotonic()))
    subprocess.run(["dmsetup", "suspend", "--noflush", "--nolockfs", "slow"], check=True)
    time.sleep({STALL_S})
    subprocess.run(["dmsetup", "resume", "slow"], check=True)
"""


def measure(machine: Machine, device: str) -> dict[str, Any]:
    """What the command says of a device; skips where it says that nothing can be told."""
    written = writes(machine)
    line = [HWTUNE, "nvme-latency", device, "--duration", f"{SECONDS}s", "--format", "json"]
    result = machine.run(line, LIMIT, env=PLAIN)
    assert result.status in (0, 1, 3), result
    assert "Writes nothing." in " ".join(result.stderr.split())
    assert writes(machine) == written
    drive: dict[str, Any] = json.loads(result.stdout)["drive"]
    assert drive["phases"][0]["failed"] == 0
    assert drive["method"]["io_uring"], drive["method"]
    if drive["untold"]:
        pytest.skip(drive["untold"])
    return drive


def writes(machine: Machine) -> list[int]:
    """Writes, discards and flushes of the NVMe drives so far, as the kernel counts them."""
    found = []
    for line in machine.check("cat /sys/block/nvme*n1/stat").splitlines():
        fields = [int(word) for word in line.split()]
        found += [fields[4], fields[11], fields[15]]
    assert len(found) == 3 * len(DRIVES)
    return found


def test_a_clean_drive_has_no_period(running: Machine) -> None:
    drive = measure(running, "nvme0")
    assert drive["target"]["name"] == "nvme0n1"
    assert drive["target"]["controller"] == "nvme0"
    assert "all zeros" in drive["target"]["notes"][0]  # it is as new
    assert drive["periodic"] is None, drive["periodic"]
    assert "periodic" not in [finding["kind"] for finding in drive["findings"]]


def test_a_drive_that_stops_in_a_rhythm_is_found(running: Machine) -> None:
    size = int(running.check("blockdev --getsz /dev/nvme1n1"))
    running.check(["dmsetup", "create", "slow", "--table", f"0 {size} linear /dev/nvme1n1 0"])
    running.put("/root/staller.py", STALLER)
    running.check("systemd-run --quiet --unit=staller python3 /root/staller.py")
    try:
        drive = measure(running, "/dev/mapper/slow")
        running.check("systemctl is-active staller")
    finally:
        running.check("systemctl stop staller; dmsetup resume slow; dmsetup remove slow")
    assert drive["target"]["disks"] == ["nvme1n1"]
    assert "is made of nvme1n1" in drive["target"]["notes"][0]
    period = drive["periodic"]
    assert period is not None, drive["not_periodic"]
    assert period["period_s"] == pytest.approx(PERIOD_S, rel=0.02)
    assert period["stall_us"] >= 0.8 * STALL_S * 1e6
    assert period["cycles"] == SECONDS / PERIOD_S
    assert "periodic" in [finding["kind"] for finding in drive["findings"]]


def test_doctor_measures_all_drives_within_a_minute_and_writes_nothing(running: Machine) -> None:
    written = writes(running)
    line = [HWTUNE, "doctor", "--active", "--only", "nvme.latency-jitter", "--format", "json"]
    result = running.run(line, LIMIT, env=PLAIN)
    assert result.status in (0, 1), result
    assert "Writes nothing." in result.stderr
    report = json.loads(result.stdout)
    assert report["defects"] == []
    (row,) = report["rows"]
    assert row["outcome"] != "not-applicable"
    for controller in report["machine"]["nvme"]["controllers"]:
        assert controller["latency"]["reads"] > 0, controller["name"]
        assert controller["latency"]["seconds"] >= 19
    assert writes(running) == written


def test_a_users_own_rights_are_not_enough_and_say_so(running: Machine) -> None:
    result = running.run([HWTUNE, "nvme-latency", "nvme0n1", "--duration", "2s"], user="person")
    assert result.status == 3
    assert "may not be read" in result.stderr and "run it as root" in result.stderr
