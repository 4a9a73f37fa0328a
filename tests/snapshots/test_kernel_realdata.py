"""Kernel, virtualization and services on machines captured elsewhere."""

from __future__ import annotations

import re
import tarfile
from typing import TYPE_CHECKING

import pytest

from hwtune.errors import UsageError
from hwtune.host.snapshot import open_snapshot
from hwtune.probes import kernel, services, virtualization
from tests.support.rows import diagnose

if TYPE_CHECKING:
    from pathlib import Path

ROWS = (
    "kernel.args-debug",
    "kernel.args-duplicate",
    "kernel.args-ignored",
    "kernel.args-pending",
    "kernel.cmdline-length",
    "kernel.lockdown",
    "kernel.sysctl-conflict",
    "kernel.sysctl-noop",
    "kernel.sysctl-not-live",
    "kernel.sysctl-unread",
    "kernel.tainted",
    "service.smi-timers",
    "service.tuned-profile",
    "service.tuner-conflict",
)


def archives(realdata: Path) -> list[Path]:
    return sorted(
        p for p in realdata.rglob("*") if p.name.endswith((".tar.bz2", ".tar.gz", ".tar.xz", ".tgz"))
    )


def content(archive: Path, path: str) -> str | None:
    """The text of the first member of this path, below any folder; None without one."""
    with tarfile.open(archive) as file:
        for member in file:
            if member.isfile() and f"/{member.name}".endswith(f"/{path}"):
                extracted = file.extractfile(member)
                assert extracted is not None
                return extracted.read().decode("utf-8", "replace")
    return None


def findings(place: Path) -> list[tuple[str, str, str]]:
    return [
        (row, finding.severity, finding.subject)
        for row, result in diagnose(open_snapshot(str(place)), *ROWS).items()
        for finding in result.findings
    ]


def test_every_archive_is_read_and_says_what_its_own_files_say(realdata: Path) -> None:
    seen = 0
    for archive in archives(realdata):
        try:
            host = open_snapshot(str(archive))
        except UsageError:  # no sys or proc in it: CPUID dumps, library trees
            continue
        seen += 1
        found = kernel.read(host)
        services.read(host)
        virtual = virtualization.read(host)
        cmdline = content(archive, "proc/cmdline") if found.cmdline.known else None
        assert found.cmdline.value == (cmdline.strip() if cmdline is not None else None), archive
        if virtual.vendor.known:
            vendor = content(archive, "dmi/id/sys_vendor")
            assert vendor is not None
            assert virtual.vendor.get() == vendor.strip()
    assert seen > 60


def _expected_hypervisor(text: str) -> set[str]:
    """What lscpu printed of the same tree, in our names."""
    vendor = re.search(r"^Hypervisor vendor: +(.*)$", text, re.MULTILINE)
    if vendor is None:
        return {"none"} if "x86_64" in text else {"none", "other", None}  # type: ignore[arg-type]
    names = {"KVM": "kvm", "Oracle": "virtualbox", "pHyp": "powervm"}
    if vendor[1] == "IBM":
        return {"z/vm" if "z/VM" in text else "pr/sm"}
    return {names[vendor[1]]}


def test_hypervisors_as_lscpu_names_them(realdata: Path) -> None:
    tests = realdata / "util-linux" / "tests"
    compared = 0
    for archive in sorted((tests / "ts" / "lscpu" / "dumps").glob("*.tar.gz")):
        expected = tests / "expected" / "lscpu" / f"lscpu-{archive.name.removesuffix('.tar.gz')}"
        if not expected.is_file():
            continue
        found = virtualization.read(open_snapshot(str(archive)))
        assert found.hypervisor.value in _expected_hypervisor(expected.read_text()), archive.name
        compared += 1
    assert compared >= 10


def test_the_isolated_real_time_machine(realdata: Path) -> None:
    archive = realdata / "node-tuning-operator" / "bare-metal-worker1.internal.tgz"
    assert findings(archive) == [
        ("kernel.args-duplicate", "info", "karg:skew_tick"),
        ("kernel.args-duplicate", "info", "karg:tsc"),
        ("kernel.args-ignored", "info", "karg:hugepages"),
    ]
    found = kernel.read(open_snapshot(str(archive)))
    assert found.release.get() == "5.14.0-427.59.1.el9_4.x86_64+rt"
    assert found.argument_values("systemd.cpu_affinity") == ["5,6,7,8,9,10"]
    assert found.argument_values("isolcpus") == ["managed_irq,0-4,11-79"]
    assert found.sysctl.files.unknown


def test_the_machine_that_nobody_tuned(realdata: Path) -> None:
    assert findings(realdata / "node-tuning-operator" / "bare-metal-worker2.internal.tgz") == []


def test_irqaffinity_case_has_nothing_to_say_here(realdata: Path) -> None:
    assert findings(realdata / "reports" / "45-irqaffinity-overlaps-isolcpus") == []


def test_isolation_that_was_not_built_in(realdata: Path) -> None:
    place = realdata / "reports" / "47-nohz-full-not-built-in"
    assert findings(place) == [("kernel.args-ignored", "warning", "kernel")]
    message = (
        diagnose(open_snapshot(str(place)), "kernel.args-ignored")["kernel.args-ignored"].findings[0].message
    )
    assert "nohz_full= and rcu_nocbs=" in message


@pytest.mark.parametrize("name", ["centos-7.7", "ubuntu-18.04"])
def test_pasted_sysctls(realdata: Path, tmp_path: Path, name: str) -> None:
    text = (realdata / "jc" / "tests" / "fixtures" / name / "sysctl-a.out").read_text()
    (tmp_path / "sysctl.txt").write_text(text)
    values = kernel.read(open_snapshot(str(tmp_path))).sysctl.values
    swappiness = re.search(r"^vm\.swappiness = (\d+)$", text, re.MULTILINE)
    assert swappiness is not None
    assert values["vm.swappiness"].get() == swappiness[1]
    assert values["vm.swappiness"].source == "sysctl.txt"


def test_pasted_tuned(realdata: Path, tmp_path: Path) -> None:
    for name in ("TUNED_OUTPUT.txt", "TUNED_OUTPUT2.txt"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "tuned.txt").write_text((realdata / "insights-core" / "tuned" / name).read_text())
    active = services.read(open_snapshot(str(tmp_path / "TUNED_OUTPUT.txt")))
    assert [(s.name, s.active.value, s.detail) for s in active.services] == [
        ("tuned", True, "profile virtual-guest")
    ]
