"""Isolation and interrupts of machines captured elsewhere, as a person worked them out."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

import pytest

from hwtune.changes import IrqAffinity, IrqbalanceBan, KernelArguments
from hwtune.diagnosis.engine import Diagnosis, judge, probe
from hwtune.diagnosis.table import table
from hwtune.errors import UsageError
from hwtune.host.snapshot import open_snapshot
from hwtune.profile import load
from hwtune.text.interrupts import parse_interrupts
from tests.support.quiet import only

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult

OPERATOR = "node-tuning-operator/bare-metal-worker"


def diagnose(place: Path) -> Diagnosis:
    machine, defects = probe(open_snapshot(str(place)))
    mine = [d for d in defects if d.where in ("probe irq", "probe cpus")]
    assert not mine
    rows = [row for row in table() if row.subsystem in ("isolation", "irq")]
    found = judge(machine, rows, load())
    assert not found.defects
    return found


def rows(found: Diagnosis) -> dict[str, RowResult]:
    return {result.id: result for result in found.results}


@pytest.fixture(scope="module")
def tuned(realdata: Path) -> Diagnosis:
    """Two sockets, 80 CPUs, a real-time kernel tuned by OpenShift."""
    return diagnose(realdata / f"{OPERATOR}1.internal.tgz")


WHOLE_CORES = "1-4,11-39,41-44,51-79"


def test_domain_flag_of_the_tuned_box(tuned: Diagnosis) -> None:
    finding = only(rows(tuned)["isolation.domain-flag"])
    assert (finding.subject, finding.severity) == ("cpu:0-4,11-79", "error")
    assert finding.evidence[0].value == "isolcpus=managed_irq,0-4,11-79"
    assert finding.changes == [KernelArguments(set=(f"isolcpus=domain,managed_irq,{WHOLE_CORES}",))]


def test_boot_cpu_of_the_tuned_box(tuned: Diagnosis) -> None:
    finding = only(rows(tuned)["isolation.boot-cpu"])
    assert (finding.subject, finding.severity) == ("cpu:0", "error")
    assert {item.value for item in finding.evidence} == {
        "isolcpus=managed_irq,0-4,11-79",
        "nohz_full=0-4,11-79",
        "rcu_nocbs=0-4,11-79",
    }


def test_split_cores_of_the_tuned_box(tuned: Diagnosis) -> None:
    finding = only(rows(tuned)["isolation.smt-split"])
    assert finding.subject == "cpu:45-50"
    assert "CPUs 45-50 share 6 cores with housekeeping CPUs 5-10" in finding.message


def test_interrupts_of_the_tuned_box(tuned: Diagnosis) -> None:
    finding = only(rows(tuned)["irq.on-isolated"])
    texts = [item.value for item in finding.evidence]
    assert finding.severity == "error"
    assert texts[0] == "513 of 554 IRQs on isolated CPUs, 127 of them with counts"
    assert texts[1] == "5146606 of 5440232 (94.6 %) device interrupts counted on isolated CPUs"
    # 75 NVMe and 75 RAID vectors are there; the first of each device is no managed one
    assert any(
        "148 managed by the kernel, which stay: megasas1-msix* 74, nvme0q* 74" in text for text in texts
    )
    managed = {irq.number for irq in tuned.machine.irq.irqs if irq.managed}
    moved = {change.irq: change.cpus for change in finding.changes if isinstance(change, IrqAffinity)}
    assert len(moved) == len(finding.changes) and not managed & set(moved)
    # housekeeping is 5-10, of which the even ones are on node 0 with this NIC
    assert moved[151] == (6, 8, 10)
    default = only(rows(tuned)["irq.default-affinity"])
    assert (default.evidence[0].value, default.evidence[0].expected) == ("ffff,ffffffff,ffffffff", "7e0")


def test_ticks_and_arguments_of_the_tuned_box(tuned: Diagnosis) -> None:
    tick = only(rows(tuned)["isolation.tick"])
    assert tick.severity == "warning" and "idle=poll" in tick.message
    assert "70871141" in tick.evidence[0].value and "78751379" in tick.evidence[1].value
    arguments = rows(tuned)["isolation.kernel-args"]
    assert [(f.subject, f.severity) for f in arguments.findings] == [("karg:mce", "warning")]
    assert rows(tuned)["isolation.watchdog"].outcome == "ok"


def test_what_the_tuned_box_leaves_unknown(tuned: Diagnosis) -> None:
    found = rows(tuned)
    for row in (
        "isolation.nohz-full",
        "isolation.workqueues",
        "isolation.rt-throttling",
        "isolation.cpuset-partition",
        "irq.irqbalance",
    ):
        assert found[row].outcome == "unknown", row
    assert not tuned.machine.cpus.isolated.known and not tuned.machine.cpus.nohz_full.known


def test_the_untuned_box_has_no_finding(realdata: Path) -> None:
    found = diagnose(realdata / f"{OPERATOR}2.internal.tgz")
    assert [result.id for result in found.results if result.findings] == []
    assert {result.outcome for result in found.results if result.id.startswith("isolation.")} <= {
        "not-applicable",
        "ok",
        "unknown",
    }
    assert rows(found)["irq.on-isolated"].outcome == "not-applicable"


def test_irqaffinity_overlaps_isolcpus(realdata: Path) -> None:
    finding = only(
        rows(diagnose(realdata / "reports/45-irqaffinity-overlaps-isolcpus"))["irq.irqaffinity-arg"]
    )
    assert finding.severity == "error"
    assert finding.changes == [KernelArguments(set=("irqaffinity=0-3",))]


def test_nohz_full_that_is_not_built_in(realdata: Path) -> None:
    found = rows(diagnose(realdata / "reports/47-nohz-full-not-built-in"))
    nohz = only(found["isolation.nohz-full"])
    assert (nohz.subject, nohz.severity) == ("karg:nohz_full", "error")
    assert "CONFIG_NO_HZ_FULL=y and CONFIG_RCU_NOCB_CPU=y" in nohz.advice
    arguments = [f.subject for f in found["isolation.kernel-args"].findings]
    assert arguments == ["karg:mce", "karg:rcu_nocbs"]
    assert found["isolation.isolcpus"].outcome == "ok"


def test_isolcpus_alone(realdata: Path) -> None:
    found = rows(diagnose(realdata / "reports/49-isolcpus-alone-tick-every-4ms"))
    assert only(found["isolation.nohz-full"]).changes == [KernelArguments(set=("nohz_full=4-7",))]
    assert only(found["isolation.kernel-args"]).changes == [KernelArguments(set=("rcu_nocbs=4-7",))]
    assert only(found["irq.irqaffinity-arg"]).changes == [KernelArguments(set=("irqaffinity=0-3",))]


def test_a_ban_that_turns_the_automatic_one_off(realdata: Path) -> None:
    finding = only(
        rows(diagnose(realdata / "reports/50-irqbalance-env-turns-off-auto-ban"))["irq.irqbalance"]
    )
    assert (finding.severity, finding.changes) == ("error", [IrqbalanceBan((0, 1, 2, 3, 4))])
    assert finding.evidence[0].expected == "IRQBALANCE_BANNED_CPUS=1f"


def test_all_interrupts_on_cpu_0(realdata: Path) -> None:
    finding = only(rows(diagnose(realdata / "reports/52-all-irqs-on-cpu0-after-hotplug"))["irq.one-cpu"])
    assert (finding.severity, finding.subject) == ("warning", "cpu:0")
    assert "Of 9 CPUs, CPU 0 serves 43 of 43 device interrupts" in finding.message


TABLES = (
    "insights-core/interrupts/INT_MULTI.txt",
    "insights-core/interrupts/INT_SINGLE.txt",
    "jc/tests/fixtures/linux-proc/interrupts",
    "node_exporter/collector/fixtures/proc/interrupts",
    "node_exporter/collector/fixtures/proc/interrupts_aarch64",
)


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_other_tools(realdata: Path, name: str) -> None:
    """Counts against a sum of columns that knows nothing of chips and actions."""
    text = (realdata / name).read_text(encoding="utf-8")
    heading, *lines = text.splitlines()
    width = len(heading.split())
    counts: dict[str, list[int]] = {}
    for line in lines:
        label, _, rest = line.partition(":")
        words = rest.split()[:width]
        if len(words) == width and all(word.isdecimal() for word in words):
            counts[label.strip()] = [int(word) for word in words]
    table = parse_interrupts(text)
    assert {str(irq.number): [irq.counts.get(c, 0) for c in table.cpus] for irq in table.irqs} == {
        label: row for label, row in counts.items() if label.isdecimal()
    }
    assert all(irq.chip for irq in table.irqs)


def test_a_table_without_its_heading_is_none(realdata: Path) -> None:
    text = (realdata / "insights-core/interrupts/INT_INVALID_1.txt").read_text(encoding="utf-8")
    with pytest.raises(ValueError):
        parse_interrupts(text)


def test_every_captured_tree_is_judged_without_a_defect(realdata: Path) -> None:
    # Trees of files; archives of CPUID leaves, lscpu outputs and the like hold nothing to judge.
    judged = 0
    for place in sorted([*realdata.glob("**/*.tar.*"), *realdata.glob("**/*.tgz")]):
        if "x86" in place.parts or not tarfile.is_tarfile(place):
            continue
        try:
            diagnose(place)
        except UsageError:
            continue
        judged += 1
    assert judged > 50
