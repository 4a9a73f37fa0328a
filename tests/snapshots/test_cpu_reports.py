"""What rows of CPUs say of machines that others captured: the kind of verdict, and its figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwtune.diagnosis.engine import judge, probe
from hwtune.diagnosis.table import table
from hwtune.host.snapshot import open_snapshot
from hwtune.profile import load
from tests.snapshots.machines import machines
from tests.support.rows import diagnose, diagnose_one

ROWS = [row for row in table() if row.id.startswith("cpu.")]


@pytest.mark.parametrize("name", machines())
@pytest.mark.parametrize("profile", ["low-latency", "gpu-training"])
def test_every_machine_is_judged(realdata: Path, name: str, profile: str) -> None:
    machine, defects = probe(open_snapshot(str(realdata / name)))
    diagnosis = judge(machine, ROWS, load(profile), [d for d in defects if d.where == "probe cpus"])
    assert diagnosis.defects == []
    for result in diagnosis.results:
        assert result.outcome == "ok" or result.reason or result.findings
        for finding in result.findings:
            assert finding.evidence and (finding.changes or finding.advice)


def test_an_isolated_box_that_polls(realdata: Path) -> None:
    host = open_snapshot(str(realdata / "node-tuning-operator/bare-metal-worker1.internal.tgz"))
    results = diagnose(host, "cpu.idle-poll", "cpu.idle-states", "cpu.governor", "cpu.offline")
    findings = results["cpu.idle-poll"].findings
    assert "all 80 CPUs" in findings[0].message
    assert [(f.subject, f.severity) for f in findings] == [
        ("karg:idle", "warning"),
        ("karg:intel_idle.max_cstate", "info"),
        ("karg:processor.max_cstate", "info"),
    ]
    assert results["cpu.idle-states"].outcome == "ok"
    assert results["cpu.governor"].outcome == "unknown"  # the capture has nothing of cpufreq
    # a blank list of offline CPUs, and no list beside it that says which CPUs there are
    assert results["cpu.offline"].outcome == "unknown"


def test_idle_states_that_nothing_limits(realdata: Path) -> None:
    result = diagnose_one(
        open_snapshot(str(realdata / "reports/54-cyclictest-cstates-not-limited")), "cpu.idle-states"
    )
    (finding,) = result.findings
    assert finding.severity == "warning"
    assert "46 us at an average of 4" in finding.message


def test_one_cpu_whose_wake_ups_are_late(realdata: Path) -> None:
    host = open_snapshot(str(realdata / "reports/55-timerlat-1035us-from-igpu-runtime-pm"))
    (finding,) = diagnose_one(host, "cpu.latency-outliers").findings
    assert finding.subject == "cpu:0"
    assert "1035 us" in finding.message and "13 us" in finding.message
    assert any("irq maximum 24 us" in e.value for e in finding.evidence)


def test_a_pasted_lscpu_whose_lines_were_broken(realdata: Path) -> None:
    machine, _ = probe(open_snapshot(str(realdata / "reports/61-4-socket-interleaved-cpu-numbers")))
    cpus = machine.cpus
    assert cpus.online.get() == list(range(128))
    assert (cpus.package_count.get(), cpus.core_count.get(), cpus.threads_per_core.get()) == (4, 64, 2)
    assert all(cpu.node == cpu.id % 4 for cpu in cpus.cpus)


def test_throttling_that_is_not_summed(realdata: Path) -> None:
    host = open_snapshot(str(realdata / "reports/63-mce-thermal-throttle-437596"))
    (finding,) = diagnose_one(host, "cpu.throttled").findings
    assert finding.severity == "error"
    assert "437596 package events and 144050 events of CPU 3" in finding.message


def test_a_deep_state_that_is_switched_off(realdata: Path) -> None:
    host = open_snapshot(str(realdata / "reports/66-cpuidle-c6-disabled-good"))
    result = diagnose_one(host, "cpu.idle-states")
    assert result.outcome == "ok"
    assert result.reason.startswith("the deepest enabled state is C1E 4 us")


def test_throttle_counters_of_a_laptop(realdata: Path) -> None:
    host = open_snapshot(str(realdata / "pcp/qa/linux/sysdev-root-002.tgz"))
    (finding,) = diagnose_one(host, "cpu.throttled").findings
    assert "104791 package events and 55899 events" in finding.message
