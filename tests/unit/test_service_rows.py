"""Rows on services: who else tunes, and who wakes the firmware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hwtune.changes import UnitState
from tests.support import Directory, Link, host
from tests.support.rows import diagnose_one

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult

OK, FINDING, NOT_APPLICABLE, UNKNOWN = "ok", "finding", "not-applicable", "unknown"
HOST = {
    "/proc/self/ns/pid": Link("pid:[4026531836]"),
    "/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu\n",
    "/run/systemd/units": Directory(),
}
CONTAINER = {"/proc/self/ns/pid": Link("pid:[4026532281]")}


def active(*units: str) -> dict[str, Any]:
    return {f"/run/systemd/units/invocation:{unit}": Link("0f") for unit in units}


def enabled(unit: str, target: str = "multi-user") -> dict[str, Any]:
    return {f"/etc/systemd/system/{target}.target.wants/{unit}": Link(f"/usr/lib/systemd/system/{unit}")}


def said(tmp_path: Path, row: str, files: dict[str, Any], **more: Any) -> RowResult:
    base = {k: v for k, v in HOST.items() if not any(f.startswith(k + "/") for f in files)}
    profile = more.pop("profile", "low-latency")
    return diagnose_one(host(tmp_path, {**base, **files}, **{"complete": True, **more}), row, profile)


def subjects(result: RowResult) -> list[tuple[str, str]]:
    return [(f.severity, f.subject) for f in result.findings]


@pytest.mark.parametrize("row", ["service.tuner-conflict", "service.tuned-profile", "service.smi-timers"])
def test_not_known_from_a_capture_without_services_and_not_asked_of_containers(
    tmp_path: Path, row: str
) -> None:
    capture = diagnose_one(host(tmp_path / "a", {"/proc/cmdline": ""}), row)
    assert capture.outcome == UNKNOWN
    inside = {**CONTAINER, **active("tuned.service", "tlp.service")}
    assert said(tmp_path / "b", row, inside).outcome == NOT_APPLICABLE


# -- tuner-conflict -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "files",
    [
        {},
        active("cron.service"),
        active("tuned.service"),
        active("tuned.service", "tuned-ppd.service"),  # the second speaks for the first
        active("tuned.service", "thermald.service", "irqbalance.service"),
        {**active("tuned.service"), **enabled("tlp.service")},  # installed, started at boot, not running now
    ],
)
def test_one_tuner_at_most(tmp_path: Path, files: dict[str, Any]) -> None:
    assert said(tmp_path, "service.tuner-conflict", files).outcome == OK


def test_two_tuners(tmp_path: Path) -> None:
    result = said(
        tmp_path, "service.tuner-conflict", active("power-profiles-daemon.service", "tuned.service")
    )
    assert subjects(result) == [("warning", "service:power-profiles-daemon")]
    assert result.findings[0].changes == [UnitState("power-profiles-daemon.service", "stopped")]


def test_a_tuner_that_leaves_no_process_counts_by_its_start_at_boot(tmp_path: Path) -> None:
    older_systemd = {k: v for k, v in HOST.items() if k != "/run/systemd/units"}
    files = {
        **older_systemd,
        "/sys/fs/cgroup/system.slice/tuned.service/cgroup.procs": "8\n",
        "/run/systemd/system": Directory(),
        **enabled("cpupower.service"),
    }
    result = diagnose_one(host(tmp_path, files, complete=True), "service.tuner-conflict")
    assert subjects(result) == [("warning", "service:cpupower")]


# -- tuned-profile -------------------------------------------------------------------------------------


def tuned(profile: str) -> dict[str, Any]:
    return {**active("tuned.service"), "/etc/tuned/active_profile": profile + "\n"}


@pytest.mark.parametrize(
    ("name", "profile", "expected"),
    [
        ("network-latency", "low-latency", OK),
        ("realtime-virtual-host", "low-latency", OK),
        ("acme-trading", "low-latency", OK),  # a profile of the site's own
        ("balanced", "low-latency", "warning"),
        ("powersave", "low-latency", "warning"),
        ("throughput-performance", "low-latency", "info"),
        ("throughput-performance", "gpu-inference", OK),
        ("virtual-guest network-latency", "low-latency", OK),
        ("hpc-compute", "gpu-training", OK),
    ],
)
def test_tuned_profile(tmp_path: Path, name: str, profile: str, expected: str) -> None:
    result = said(tmp_path, "service.tuned-profile", tuned(name), profile=profile)
    assert (result.severity or result.outcome) == expected


def test_tuned_does_not_run(tmp_path: Path) -> None:
    assert said(tmp_path, "service.tuned-profile", {}).outcome == NOT_APPLICABLE


def test_tuned_with_a_profile_that_cannot_be_read(tmp_path: Path) -> None:
    assert said(tmp_path, "service.tuned-profile", active("tuned.service")).outcome == UNKNOWN


# -- smi-timers ----------------------------------------------------------------------------------------


def test_fwupd_refresh(tmp_path: Path) -> None:
    files = enabled("fwupd-refresh.timer", "timers")
    result = said(tmp_path, "service.smi-timers", files)
    assert subjects(result) == [("info", "service:fwupd-refresh.timer")]
    assert result.findings[0].changes == [UnitState("fwupd-refresh.timer", "stopped")]


def test_a_virtual_machine_has_no_firmware_to_wake(tmp_path: Path) -> None:
    files = {**enabled("fwupd-refresh.timer", "timers"), "/proc/cpuinfo": "flags\t: x\nflags\t: hypervisor\n"}
    assert said(tmp_path, "service.smi-timers", files).outcome == NOT_APPLICABLE


def test_timers_that_do_not_start(tmp_path: Path) -> None:
    off = {"/usr/lib/systemd/system/fwupd-refresh.timer": "", "/etc/systemd/system": Directory()}
    assert said(tmp_path / "a", "service.smi-timers", off).outcome == OK
    masked = {"/etc/systemd/system/fwupd-refresh.timer": Link("/dev/null")}
    assert said(tmp_path / "b", "service.smi-timers", masked).outcome == OK
    assert said(tmp_path / "c", "service.smi-timers", {}).outcome == OK
