"""What the drive, the kernel and the process list say that bears on a verdict."""

from __future__ import annotations

import binascii
import os
from typing import TYPE_CHECKING

import msgspec

from hwtune.host.libraries import LibraryGap, nvme_latency_log
from hwtune.model.storage import NvmeController
from hwtune.text import nvme_latency_log as log_text

if TYPE_CHECKING:
    from hwtune.drive.results import Target
    from hwtune.host.base import Host
    from hwtune.text.nvme_latency_log import LatencyLog

# Programs that ask drives regularly (SMART, statistics of the drive's own): comm, as the kernel cuts it at
# 15.
POLLERS = (
    "smartd", "nvme", "smartctl", "telegraf", "netdata", "collectd", "node_exporter", "smartctl_export",
    "nvme_exporter", "scrutiny-collec", "zabbix_agentd", "udisksd", "hddtemp",
)  # fmt: skip


class Device(msgspec.Struct):
    """``before`` and ``after``: the controller, asked around the measurement; None of what is no NVMe drive.
    ``aspm``: what sysfs says of its link's power states, "l1_aspm" on or off; {} where it says nothing."""

    before: NvmeController | None = None
    after: NvmeController | None = None
    log_before: LatencyLog | None = None
    log_after: LatencyLog | None = None
    aspm: dict[str, bool] = {}
    pollers: list[str] = []

    @property
    def throttled(self) -> str:
        """How its thermal counters grew meanwhile, or ""."""
        if self.before is None or self.after is None:
            return ""
        old, new = self.before.smart.thermal_transitions, self.after.smart.thermal_transitions
        if not old.known or not new.known:
            return ""
        grown = [b - a for a, b in zip(old.get(), new.get(), strict=True)]
        if not any(g > 0 for g in grown):
            return ""
        return f"it began to throttle {grown[0]} times lightly and {grown[1]} times heavily (SMART log)"

    @property
    def sleeps_ms(self) -> list[float]:
        """Times of rest after which it goes to sleep by its own table."""
        if self.before is None or self.before.apst_enabled.value is not True:
            return []
        return sorted({float(t.idle_ms) for t in self.before.apst_transitions.value or []})

    def says(self) -> list[str]:
        """A sentence each."""
        told = []
        if self.before is not None:
            if not self.before.smart.thermal_transitions.known:
                told.append(f"SMART is not known: {self.before.smart.thermal_transitions.why()}")
            else:
                told.append(f"SMART: {self.throttled or 'no thermal throttling meanwhile'}")
        if self.log_before is not None and self.log_after is not None:
            grown = [b - a for a, b in zip(self.log_before.reads, self.log_after.reads, strict=True)]
            if all(g >= 0 for g in grown) and self.log_after.enabled:
                limits = self.log_after.thresholds_ms
                shown = ", ".join(f"{g:,} from {ms} ms" for g, ms in zip(grown, limits, strict=True))
                told.append(f"the drive's own latency monitor counted reads: {shown} (of everybody)")
        return told


def look(target: Target, host: Host) -> Device:
    """Before the measurement. Drives behind fabrics are asked nothing."""
    device = Device(pollers=pollers())
    if target.controller is not None:
        device.before = _controller(host, target.controller)
        device.log_before = _log(target.controller)
        device.aspm = _aspm(target.controller)
    return device


def look_again(device: Device, target: Target, host: Host) -> None:
    if target.controller is not None:
        device.after = _controller(host, target.controller)
        device.log_after = _log(target.controller) if device.log_before is not None else None


def _controller(host: Host, name: str) -> NvmeController:
    from hwtune.probes import _nvme_admin

    controller = NvmeController(name)
    controller.transport = host.text(f"/sys/class/nvme/{name}/transport")
    controller.state = host.text(f"/sys/class/nvme/{name}/state")
    _nvme_admin.ask(host, controller)
    return controller


def _log(name: str) -> LatencyLog | None:
    try:
        return log_text.decode(binascii.a2b_base64(nvme_latency_log.query(name)["data"]))
    except (
        LibraryGap,
        ValueError,
        OSError,
    ):  # few drives have it; it adds to what is told, and no verdict needs it
        return None


def _aspm(name: str) -> dict[str, bool]:
    folder = f"/sys/class/nvme/{name}/device/link"
    found = {}
    try:
        names = sorted(os.listdir(folder))
    except OSError:  # no ASPM here, or the firmware keeps it
        return {}
    for file in names:
        if "aspm" in file:
            with open(f"{folder}/{file}", encoding="ascii") as opened:
                found[file] = opened.read().strip() == "1"
    return found


def pollers() -> list[str]:
    """Which of POLLERS run now."""
    found = set()
    for pid in os.listdir("/proc"):
        if pid.isdecimal():
            try:
                with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
                    found.add(file.read().rstrip("\n"))
            except OSError:  # it has ended
                continue
    return sorted(found.intersection(POLLERS))
