"""Rows on interrupts, through files: each with ok, finding, not applicable and unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hwtune.changes import DefaultIrqAffinity, IrqAffinity, IrqbalanceBan, KernelArguments
from tests.support import Gap
from tests.support.quiet import (
    CMDLINE,
    CPU,
    DRIVE,
    IRQS,
    NIC,
    TICKS,
    ask,
    interrupts,
    irq_files,
    machine,
    only,
)

if TYPE_CHECKING:
    from pathlib import Path

NOT_ISOLATED = {"/proc/cmdline": "ro\n", f"{CPU}/isolated": "\n", f"{CPU}/nohz_full": "\n"}
SHORT_UPTIME = {"/proc/uptime": "60.00 400.00\n"}
HOT_ROWS = ("irq.on-isolated", "irq.default-affinity", "irq.irqaffinity-arg", "irq.irqbalance")


@pytest.mark.parametrize("row", [*HOT_ROWS, "irq.one-cpu", "irq.numa-distance"])
def test_the_quiet_box_is_fine(tmp_path: Path, row: str) -> None:
    result = ask(machine(tmp_path, SHORT_UPTIME), row)
    assert (result.outcome, result.findings) == ("ok", [])


@pytest.mark.parametrize("row", HOT_ROWS)
def test_without_isolated_cpus_the_question_does_not_arise(tmp_path: Path, row: str) -> None:
    assert ask(machine(tmp_path, NOT_ISOLATED), row).outcome == "not-applicable"


@pytest.mark.parametrize("row", HOT_ROWS)
def test_without_the_sets_nothing_is_known(tmp_path: Path, row: str) -> None:
    seen = machine(tmp_path, without=["/proc/cmdline", CPU])
    assert ask(seen, row).outcome == "unknown"


# -- irq.on-isolated ----------------------------------------------------------------------


def spoiled(effective: str, counts: list[int], number: int = 24) -> dict[str, str]:
    """The box with one interrupt served and counted elsewhere."""
    irqs = dict(IRQS)
    _, chip, actions, requested, _, node = irqs[number]
    irqs[number] = (counts, chip, actions, requested, effective, node)
    return irq_files(irqs)


def test_a_busy_nic_queue_on_an_isolated_cpu_is_an_error(tmp_path: Path) -> None:
    result = ask(machine(tmp_path, spoiled("6", [0, 0, 0, 0, 0, 0, 900, 0])), "irq.on-isolated")
    finding = only(result)
    assert (finding.severity, finding.subject) == ("error", "cpu:6")
    # the NIC is on node 0, whose CPUs are all housekeeping
    assert finding.changes == [IrqAffinity(24, (0, 1, 4, 5), away=(2, 3, 6, 7))]
    texts = [item.value for item in finding.evidence]
    # IRQ 24 and the two NVMe queues 33 and 34; 900 + 60 + 50 of 2789 counted on CPUs 2, 3, 6, 7
    assert texts[0] == "3 of 8 IRQs on isolated CPUs, 3 of them with counts"
    assert texts[1] == "1010 of 2789 (36.2 %) device interrupts counted on isolated CPUs"
    assert any("2 managed by the kernel, which stay: nvme0q* 2" in text for text in texts)


def test_a_stray_one_is_a_warning_and_an_idle_one_a_note(tmp_path: Path) -> None:
    few = ask(machine(tmp_path / "few", spoiled("6", [0, 891, 0, 0, 0, 0, 9, 0])), "irq.on-isolated")
    assert only(few).severity == "warning"
    idle = ask(machine(tmp_path / "idle", spoiled("6", [0, 900, 0, 0, 0, 0, 0, 0])), "irq.on-isolated")
    assert only(idle).severity == "info"


def test_what_was_moved_away_is_no_fault_though_it_was_counted(tmp_path: Path) -> None:
    seen = machine(tmp_path, spoiled("1", [0, 100, 0, 0, 0, 0, 900, 0]))
    assert ask(seen, "irq.on-isolated").outcome == "ok"


def test_a_kernel_without_effective_affinity_is_judged_by_what_was_asked_for(tmp_path: Path) -> None:
    changes = {f"/proc/irq/{n}/effective_affinity_list": Gap("absent") for n in IRQS}
    changes |= {f"/proc/irq/{n}/effective_affinity": Gap("absent") for n in IRQS}
    assert ask(machine(tmp_path / "a", changes), "irq.on-isolated").outcome == "ok"
    changes |= {"/proc/irq/25/smp_affinity_list": "0-7\n"}
    assert only(ask(machine(tmp_path / "b", changes), "irq.on-isolated")).subject == "cpu:2-3,6-7"


def test_debugfs_tells_which_are_managed(tmp_path: Path) -> None:
    state = "handler:  handle_edge_irq\ndstate:   0x37409200\n            IRQD_AFFINITY_MANAGED\n"
    changes = spoiled("6", [0, 0, 0, 0, 0, 0, 900, 0])
    seen = machine(tmp_path, changes | {"/sys/kernel/debug/irq/irqs/24": state})
    assert ask(seen, "irq.on-isolated").outcome == "ok"


@pytest.mark.parametrize(
    ("name", "stays"),
    [
        ("virtio2-req.0", True),
        ("virtio2-config", False),
        # of virtio-9p and virtio-console, which leave their vectors to whoever moves them
        ("virtio3-requests", False),
        ("virtio1-input", False),
    ],
)
def test_request_queues_of_virtio_disks_stay(tmp_path: Path, name: str, stays: bool) -> None:
    counts, chip, _, requested, _, node = IRQS[24]
    files = irq_files(IRQS | {24: (counts, chip, name, requested, "6", node)})
    assert (ask(machine(tmp_path, files), "irq.on-isolated").outcome == "ok") == stays


def test_counts_alone_do_not_tell_where_interrupts_go_now(tmp_path: Path) -> None:
    changes = {"/proc/interrupts": spoiled("6", [0, 0, 0, 0, 0, 0, 900, 0])["/proc/interrupts"]}
    result = ask(machine(tmp_path, changes, without=["/proc/irq"]), "irq.on-isolated")
    assert result.outcome == "unknown"
    assert "1010 of 2789 (36.2 %)" in result.reason and "/proc/irq is not in the snapshot" in result.reason


def test_a_file_that_may_not_be_read_leaves_it_unknown(tmp_path: Path) -> None:
    seen = machine(tmp_path, {"/proc/irq/25/effective_affinity_list": Gap("denied", "Permission denied")})
    result = ask(seen, "irq.on-isolated")
    assert (result.outcome, result.unknowns[0].remedy) == ("unknown", "run as root")


# -- irq.default-affinity -----------------------------------------------------------------


def test_default_affinity_of_all_cpus(tmp_path: Path) -> None:
    finding = only(ask(machine(tmp_path, {"/proc/irq/default_smp_affinity": "ff\n"}), "irq.default-affinity"))
    assert finding.changes == [DefaultIrqAffinity((0, 1, 4, 5))]
    assert (finding.evidence[0].value, finding.evidence[0].expected) == ("ff", "33")


def test_default_affinity_unread_and_absent(tmp_path: Path) -> None:
    path = "/proc/irq/default_smp_affinity"
    assert ask(machine(tmp_path / "a", without=[path]), "irq.default-affinity").outcome == "unknown"
    assert ask(machine(tmp_path / "b", {path: "no mask\n"}), "irq.default-affinity").outcome == "unknown"
    seen = machine(tmp_path / "c", without=[path], complete=True)
    assert ask(seen, "irq.default-affinity").outcome == "not-applicable"


# -- irq.irqaffinity-arg ------------------------------------------------------------------


def test_irqaffinity_that_names_isolated_cpus(tmp_path: Path) -> None:
    cmdline = CMDLINE.replace("irqaffinity=0-1,4-5", "irqaffinity=0-N")
    finding = only(ask(machine(tmp_path, {"/proc/cmdline": cmdline}), "irq.irqaffinity-arg"))
    assert (finding.severity, finding.subject) == ("error", "karg:irqaffinity")
    assert finding.changes == [KernelArguments(set=("irqaffinity=0-1,4-5",))]


def test_irqaffinity_that_is_missing(tmp_path: Path) -> None:
    cmdline = CMDLINE.replace(" irqaffinity=0-1,4-5", "")
    # somebody has set the default affinity without it
    assert ask(machine(tmp_path / "a", {"/proc/cmdline": cmdline}), "irq.irqaffinity-arg").outcome == "ok"
    changes = {"/proc/cmdline": cmdline, "/proc/irq/default_smp_affinity": "ff\n"}
    finding = only(ask(machine(tmp_path / "b", changes), "irq.irqaffinity-arg"))
    assert (finding.severity, finding.changes) == (
        "warning",
        [KernelArguments(set=("irqaffinity=0-1,4-5",))],
    )


def test_irqaffinity_that_is_no_list(tmp_path: Path) -> None:
    cmdline = CMDLINE.replace("irqaffinity=0-1,4-5", "irqaffinity=none")
    finding = only(ask(machine(tmp_path, {"/proc/cmdline": cmdline}), "irq.irqaffinity-arg"))
    assert "cannot read" in finding.message


# -- irq.irqbalance -----------------------------------------------------------------------

ENVIRONMENT = "/etc/default/irqbalance"


def test_a_ban_of_all_isolated_cpus_is_fine(tmp_path: Path) -> None:
    for number, text in enumerate(("IRQBALANCE_BANNED_CPULIST=2-3,6-7", "IRQBALANCE_BANNED_CPUS=cc")):
        assert ask(machine(tmp_path / str(number), {ENVIRONMENT: text}), "irq.irqbalance").outcome == "ok"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("IRQBALANCE_BANNED_CPULIST=2-3\n", "IRQBALANCE_BANNED_CPULIST=2-3,6-7"),
        # the admin's own ban of CPU 1 stays
        ("IRQBALANCE_BANNED_CPUS=2\n", "IRQBALANCE_BANNED_CPUS=ce"),
        ("IRQBALANCE_BANNED_CPUS=0\n", "IRQBALANCE_BANNED_CPUS=cc"),
        ("IRQBALANCE_BANNED_CPULIST=-\n", "IRQBALANCE_BANNED_CPULIST=2-3,6-7"),
    ],
)
def test_a_ban_turns_the_automatic_one_off(tmp_path: Path, text: str, wanted: str) -> None:
    finding = only(ask(machine(tmp_path, {ENVIRONMENT: text}), "irq.irqbalance"))
    assert (finding.severity, finding.evidence[0].source) == ("error", ENVIRONMENT)
    assert finding.evidence[0].expected == wanted
    assert isinstance(finding.changes[0], IrqbalanceBan)
    assert {2, 3, 6, 7} <= set(finding.changes[0].cpus)


def test_an_empty_list_is_a_warning_as_releases_differ(tmp_path: Path) -> None:
    finding = only(ask(machine(tmp_path, {ENVIRONMENT: "IRQBALANCE_BANNED_CPULIST=\n"}), "irq.irqbalance"))
    assert (finding.severity, finding.changes) == ("warning", [IrqbalanceBan((2, 3, 6, 7))])


def test_partitions_are_not_banned_by_themselves(tmp_path: Path) -> None:
    group = "/sys/fs/cgroup/hot.slice"
    changes = NOT_ISOLATED | {
        "/sys/fs/cgroup/cgroup.subtree_control": "cpuset cpu\n",
        f"{group}/cpuset.cpus": "2-3\n",
        f"{group}/cpuset.cpus.effective": "2-3\n",
        f"{group}/cpuset.cpus.partition": "isolated\n",
        f"{group}/cgroup.subtree_control": "\n",
    }
    finding = only(ask(machine(tmp_path, changes, cpus="2-3"), "irq.irqbalance"))
    assert finding.changes == [IrqbalanceBan((2, 3))]


def test_isolcpus_without_domain_is_not_banned_by_itself(tmp_path: Path) -> None:
    changes = NOT_ISOLATED | {"/proc/cmdline": "ro isolcpus=managed_irq,2-3\n"}
    assert only(ask(machine(tmp_path, changes, cpus="2-3"), "irq.irqbalance")).changes == [
        IrqbalanceBan((2, 3))
    ]


def test_irqbalance_that_is_not_there_or_not_known(tmp_path: Path) -> None:
    unit = "/usr/lib/systemd/system/irqbalance.service"
    seen = machine(tmp_path / "a", without=[unit, ENVIRONMENT], complete=True)
    assert ask(seen, "irq.irqbalance").outcome == "not-applicable"
    assert ask(machine(tmp_path / "b", without=[unit, ENVIRONMENT]), "irq.irqbalance").outcome == "unknown"


# -- irq.one-cpu --------------------------------------------------------------------------


def all_on(cpu: int) -> dict[str, str]:
    irqs = {
        n: ([sum(counts) if c == cpu else 0 for c in range(8)], chip, name, requested, str(cpu), node)
        for n, (counts, chip, name, requested, _, node) in IRQS.items()
    }
    return irq_files(irqs)


def test_everything_on_one_cpu(tmp_path: Path) -> None:
    finding = only(ask(machine(tmp_path, all_on(0)), "irq.one-cpu"))
    # 9 + 900 + 800 + 70; the NVMe queues are the kernel's to place
    assert "CPU 0 serves 1779 of 1779 device interrupts" in finding.message
    assert (finding.severity, finding.subject) == ("warning", "cpu:0")
    # the NIC's node has CPUs 0, 1, 4, 5; the busiest one stays on CPU 0, the timer cannot move
    assert finding.changes == [IrqAffinity(25, (1,)), IrqAffinity(30, (4,))]


def test_one_busy_queue_among_quiet_ones_is_no_fault(tmp_path: Path) -> None:
    irqs = dict(IRQS)
    irqs[24] = ([0, 90_000, 0, 0, 0, 0, 0, 0], *IRQS[24][1:])
    assert ask(machine(tmp_path, irq_files(irqs)), "irq.one-cpu").outcome == "ok"


def test_interrupts_that_were_spread_since_are_no_fault(tmp_path: Path) -> None:
    changes = all_on(0)
    changes |= {f"/proc/irq/{n}/effective_affinity_list": f"{irq[4]}\n" for n, irq in IRQS.items()}
    assert ask(machine(tmp_path, changes), "irq.one-cpu").outcome == "ok"


def test_one_housekeeping_cpu_serves_them_all_by_intent(tmp_path: Path) -> None:
    changes = all_on(0) | {
        "/proc/cmdline": "ro isolcpus=1-7 nohz_full=1-7\n",
        f"{CPU}/isolated": "1-7\n",
        f"{CPU}/nohz_full": "1-7\n",
    }
    assert ask(machine(tmp_path, changes, cpus="1-7"), "irq.one-cpu").outcome == "not-applicable"


def test_one_cpu_with_too_little_to_see_or_nothing(tmp_path: Path) -> None:
    two = {n: IRQS[n] for n in (24, 25)}
    seen = machine(tmp_path / "a", {"/proc/interrupts": interrupts(two, TICKS)})
    assert ask(seen, "irq.one-cpu").outcome == "not-applicable"
    assert ask(machine(tmp_path / "b", without=["/proc/interrupts"]), "irq.one-cpu").outcome == "unknown"


def test_a_pasted_table_is_enough(tmp_path: Path) -> None:
    pasted = {"irqs.txt": "$ cat /proc/interrupts\n" + all_on(3)["/proc/interrupts"]}
    changes = NOT_ISOLATED
    seen = machine(tmp_path, changes, without=["/proc/interrupts", "/proc/irq"], documents=pasted)
    finding = only(ask(seen, "irq.one-cpu"))
    assert finding.subject == "cpu:3"
    assert finding.evidence[0].source.startswith("documents/irqs.txt")


# -- irq.numa-distance --------------------------------------------------------------------


def test_a_queue_on_the_other_node(tmp_path: Path) -> None:
    irqs = dict(IRQS)
    irqs[24] = ([0, 0, 0, 900, 0, 0, 0, 0], IRQS[24][1], "eth0-0", "0-7", "3", 0)
    irqs[30] = ([0, 0, 0, 0, 0, 7, 0, 0], *IRQS[30][1:])
    changes = irq_files(irqs) | NOT_ISOLATED | SHORT_UPTIME
    finding = only(ask(machine(tmp_path, changes), "irq.numa-distance"))
    assert (finding.subject, finding.changes) == (f"pci:{NIC}", [IrqAffinity(24, (0, 1, 4, 5))])


def test_a_node_without_housekeeping_cpus_is_no_fault(tmp_path: Path) -> None:
    # IRQ 30 of the drive on node 1 is served on node 0: all CPUs of node 1 are isolated
    result = ask(machine(tmp_path, SHORT_UPTIME), "irq.numa-distance")
    assert (result.outcome, result.reason) == ("ok", "1 has no housekeeping CPU on the device's node")
    freed = ask(machine(tmp_path / "freed", NOT_ISOLATED | SHORT_UPTIME), "irq.numa-distance")
    assert only(freed).subject == f"pci:{DRIVE}"


def test_rare_interrupts_may_be_anywhere(tmp_path: Path) -> None:
    irqs = dict(IRQS)
    irqs[30] = ([0, 0, 0, 0, 0, 7, 0, 0], *IRQS[30][1:])
    changes = irq_files(irqs) | NOT_ISOLATED | SHORT_UPTIME
    assert ask(machine(tmp_path / "a", changes), "irq.numa-distance").outcome == "ok"
    # some hundreds in a day are nobody's latency
    assert ask(machine(tmp_path / "b", NOT_ISOLATED), "irq.numa-distance").outcome == "not-applicable"


def test_one_node_and_unknown_nodes(tmp_path: Path) -> None:
    node = "/sys/devices/system/node"
    changes = {f"{node}/online": "0\n", f"{node}/node0/cpulist": "0-7\n"}
    seen = machine(tmp_path / "a", changes, without=[f"{node}/node1"])
    assert ask(seen, "irq.numa-distance").outcome == "not-applicable"
    assert ask(machine(tmp_path / "b", without=[node]), "irq.numa-distance").outcome == "unknown"
    # of two nodes one that cannot be read may have CPUs, too
    unread = machine(tmp_path / "e", {f"{node}/node1/cpulist": Gap("unreadable")})
    assert ask(unread, "irq.numa-distance").outcome == "unknown"
    unlisted = machine(tmp_path / "c", SHORT_UPTIME, without=["/proc/irq"])
    assert ask(unlisted, "irq.numa-distance").outcome == "unknown"
    assert (
        ask(machine(tmp_path / "d", without=["/proc/interrupts"]), "irq.numa-distance").outcome == "unknown"
    )
