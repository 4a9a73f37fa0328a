"""Rows on isolation, through files: each with ok, finding, not applicable and unknown."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwtune.changes import CpusetPartition, KernelArguments, SysctlChange, SysfsAttribute
from hwtune.diagnosis.engine import judge, probe
from hwtune.diagnosis.table import table
from hwtune.fact import known
from hwtune.profile import load
from tests.support import Directory, Gap, host
from tests.support.quiet import (
    CMDLINE,
    CPU,
    IRQS,
    PINNED,
    TICKS,
    ask,
    files,
    interrupts,
    irq_files,
    machine,
    only,
)

NOT_ISOLATED = {"/proc/cmdline": "ro\n", f"{CPU}/isolated": "\n", f"{CPU}/nohz_full": "\n"}
ROWS = (
    "isolation.isolcpus",
    "isolation.nohz-full",
    "isolation.boot-cpu",
    "isolation.smt-split",
    "isolation.tasks",
    "isolation.workqueues",
    "isolation.tick",
    "isolation.watchdog",
    "isolation.managed-irq",
)


def cmdline(old: str, new: str) -> dict[str, str]:
    assert old in CMDLINE
    return {"/proc/cmdline": CMDLINE.replace(old, new)}


@pytest.mark.parametrize(
    "row", [*ROWS, "isolation.domain-flag", "isolation.kernel-args", "isolation.rt-throttling"]
)
def test_the_quiet_box_is_fine(tmp_path: Path, row: str) -> None:
    result = ask(machine(tmp_path), row)
    assert (result.outcome, result.findings) == ("ok", [])


@pytest.mark.parametrize("row", ROWS)
def test_without_isolated_cpus_the_question_does_not_arise(tmp_path: Path, row: str) -> None:
    assert ask(machine(tmp_path, NOT_ISOLATED), row).outcome == "not-applicable"


@pytest.mark.parametrize("row", ROWS)
def test_the_kernels_word_for_an_empty_set_is_no_set(tmp_path: Path, row: str) -> None:
    changes = NOT_ISOLATED | {f"{CPU}/nohz_full": "  (null)\n"}
    assert ask(machine(tmp_path, changes), row).outcome == "not-applicable"


def test_cpus_that_do_not_exist_are_told_once(tmp_path: Path) -> None:
    changes = cmdline("isolcpus=domain,managed_irq,2-3,6-7", "isolcpus=domain,managed_irq,2-3,6-11")
    captured = machine(tmp_path, changes)
    (finding,) = ask(captured, "isolation.isolcpus").findings
    assert (finding.subject, finding.severity) == ("cpu:8-11", "warning")
    assert "has none of that number; newer kernels drop" in finding.message
    # nothing runs on a CPU that is not there, and nothing interrupts it
    for row in ("isolation.nohz-full", "isolation.kernel-args", "irq.irqaffinity-arg"):
        assert ask(captured, row).outcome == "ok", row


def test_a_list_of_cpus_of_which_none_exists(tmp_path: Path) -> None:
    changes = {"/proc/cmdline": "ro\n", f"{CPU}/isolated": "9\n", f"{CPU}/nohz_full": "\n"}
    (finding,) = ask(machine(tmp_path, changes), "isolation.isolcpus").findings
    assert finding.message == "CPU 9 is to be kept apart, and this machine has none of that number."


@pytest.mark.parametrize("row", ROWS)
def test_without_the_sets_nothing_is_known(tmp_path: Path, row: str) -> None:
    assert ask(machine(tmp_path, without=["/proc/cmdline", CPU]), row).outcome == "unknown"


# -- isolation.isolcpus -------------------------------------------------------------------


def test_the_profile_can_ask_for_isolation(tmp_path: Path) -> None:
    finding = only(ask(machine(tmp_path, NOT_ISOLATED), "isolation.isolcpus", "isolation.required=true"))
    assert "--set isolation.cpus" in finding.advice


def test_cpus_that_the_profile_names_and_the_kernel_does_not_isolate(tmp_path: Path) -> None:
    seen = machine(tmp_path, NOT_ISOLATED)
    finding = only(ask(seen, "isolation.isolcpus", "isolation.cpus=2,6"))
    assert (finding.severity, finding.subject) == ("error", "cpu:2,6")
    assert finding.changes == [KernelArguments(set=("isolcpus=domain,managed_irq,2,6",))]


def test_half_cores_that_the_profile_names_are_made_whole(tmp_path: Path) -> None:
    finding = only(ask(machine(tmp_path, NOT_ISOLATED), "isolation.isolcpus", "isolation.cpus=2-3"))
    assert finding.changes == [KernelArguments(set=("isolcpus=domain,managed_irq,2-3,6-7",))]


def test_nohz_full_alone_isolates_nothing(tmp_path: Path) -> None:
    changes = {"/proc/cmdline": "ro nohz_full=2-3,6-7\n", f"{CPU}/isolated": "\n"}
    finding = only(ask(machine(tmp_path, changes), "isolation.isolcpus"))
    assert (finding.subject, finding.changes) == (
        "cpu:2-3,6-7",
        [KernelArguments(set=("isolcpus=domain,managed_irq,2-3,6-7",))],
    )


def test_an_isolcpus_that_the_kernel_dropped(tmp_path: Path) -> None:
    finding = only(ask(machine(tmp_path, {f"{CPU}/isolated": "\n"}), "isolation.isolcpus"))
    assert "dropped" in finding.message and finding.subject == "cpu:2-3,6-7"


@pytest.mark.parametrize("value", ["2-3,domain", "managed_irq", "2-3,6-", "irq0,2-3"])
def test_an_isolcpus_that_the_kernel_cannot_read(tmp_path: Path, value: str) -> None:
    changes = {"/proc/cmdline": f"ro isolcpus={value}\n", f"{CPU}/isolated": "\n", f"{CPU}/nohz_full": "\n"}
    finding = only(ask(machine(tmp_path, changes), "isolation.isolcpus"))
    assert (finding.subject, finding.evidence[0].value) == ("karg:isolcpus", f"isolcpus={value}")


@pytest.mark.parametrize("row", ["isolation.isolcpus", "isolation.nohz-full"])
@pytest.mark.parametrize("content", [b"a\x01b", Gap("denied"), Directory()])
def test_a_command_line_that_cannot_be_read_is_no_bad_list(tmp_path: Path, row: str, content: Any) -> None:
    assert ask(machine(tmp_path, {"/proc/cmdline": content}), row).findings == []


def test_cpus_that_do_not_exist(tmp_path: Path) -> None:
    changes = {"/proc/cmdline": "ro isolcpus=2-3,6-7,9\n", f"{CPU}/isolated": "2-3,6-7\n"}
    result = ask(machine(tmp_path, changes, cpus="2-3,6-7,9"), "isolation.isolcpus")
    first = result.findings[0]
    assert (first.subject, first.severity) == ("cpu:9", "warning")


def test_no_cpu_left_for_everything_else(tmp_path: Path) -> None:
    changes = {"/proc/cmdline": "ro isolcpus=0-7\n", f"{CPU}/isolated": "0-7\n"}
    result = ask(machine(tmp_path, changes, cpus="0-7"), "isolation.isolcpus")
    assert "none is left" in only(result).message


def test_the_request_alone_is_no_proof(tmp_path: Path) -> None:
    result = ask(machine(tmp_path, without=[f"{CPU}/isolated"]), "isolation.isolcpus")
    assert (result.outcome, result.reason) == ("unknown", f"{CPU}/isolated is not in the snapshot")


# -- isolation.domain-flag ----------------------------------------------------------------


def test_flags_without_domain(tmp_path: Path) -> None:
    changes = cmdline("isolcpus=domain,managed_irq,", "isolcpus=managed_irq,") | {f"{CPU}/isolated": "\n"}
    finding = only(ask(machine(tmp_path, changes), "isolation.domain-flag"))
    assert (finding.severity, finding.subject) == ("error", "cpu:2-3,6-7")
    assert finding.evidence[0].value == "isolcpus=managed_irq,2-3,6-7"
    assert finding.evidence[0].expected == "isolcpus=domain,managed_irq,2-3,6-7"
    assert finding.changes == [KernelArguments(set=("isolcpus=domain,managed_irq,2-3,6-7",))]
    assert ask(machine(tmp_path / "b", changes), "isolation.isolcpus").outcome == "not-applicable"


def test_a_partition_makes_up_for_the_flag(tmp_path: Path) -> None:
    changes = cmdline("isolcpus=domain,managed_irq,", "isolcpus=managed_irq,") | {f"{CPU}/isolated": "\n"}
    changes |= partition("isolated", "2-3,6-7")
    assert ask(machine(tmp_path, changes), "isolation.domain-flag").outcome == "ok"


def test_domain_flag_without_isolcpus_or_a_command_line(tmp_path: Path) -> None:
    assert ask(machine(tmp_path / "a", NOT_ISOLATED), "isolation.domain-flag").outcome == "not-applicable"
    seen = machine(tmp_path / "b", without=["/proc/cmdline"])
    assert ask(seen, "isolation.domain-flag").outcome == "unknown"


# -- isolation.nohz-full ------------------------------------------------------------------


def test_isolcpus_alone_leaves_the_tick(tmp_path: Path) -> None:
    changes = {"/proc/cmdline": "ro isolcpus=2-3,6-7\n", f"{CPU}/nohz_full": "\n"}
    finding = only(ask(machine(tmp_path, changes), "isolation.nohz-full"))
    assert (finding.severity, finding.subject) == ("error", "cpu:2-3,6-7")
    assert finding.changes == [KernelArguments(set=("nohz_full=2-3,6-7",))]


def test_a_kernel_without_the_means(tmp_path: Path) -> None:
    # a live kernel without the file was built without CONFIG_NO_HZ_FULL
    seen = machine(tmp_path, {f"{CPU}/nohz_full": Gap("absent")})
    finding = only(ask(seen, "isolation.nohz-full"))
    assert (finding.subject, finding.changes) == ("karg:nohz_full", [])
    assert "CONFIG_NO_HZ_FULL=y" in finding.advice
    # and then no tick is meant to stop
    assert ask(seen, "isolation.tick").outcome == "not-applicable"


def test_a_kernels_word_that_it_ignores_nohz_full(tmp_path: Path) -> None:
    log = (
        "[    0.000000] Housekeeping: nohz unsupported. Build with CONFIG_NO_HZ_FULL\n"
        '[    0.000000] Unknown kernel command line parameters "rcu_nocbs=2-3,6-7", '
        "will be passed to user space.\n"
    )
    seen = machine(tmp_path, without=[f"{CPU}/nohz_full"], documents={"dmesg.txt": log})
    finding = only(ask(seen, "isolation.nohz-full"))
    assert "CONFIG_RCU_NOCB_CPU=y" in finding.advice
    assert any("nohz unsupported" in item.value for item in finding.evidence)
    assert only(ask(seen, "isolation.kernel-args")).subject == "karg:rcu_nocbs"


def test_nohz_full_of_some_of_the_cpus(tmp_path: Path) -> None:
    changes = cmdline("nohz_full=2-3,6-7", "nohz_full=2,6") | {f"{CPU}/nohz_full": "2,6\n"}
    finding = only(ask(machine(tmp_path, changes), "isolation.nohz-full"))
    assert (finding.subject, finding.changes) == ("cpu:3,7", [KernelArguments(set=("nohz_full=2-3,6-7",))])


def test_nohz_full_that_cannot_be_read_or_was_not_captured(tmp_path: Path) -> None:
    changes = cmdline("nohz_full=2-3,6-7", "nohz_full=yes")
    assert only(ask(machine(tmp_path / "a", changes), "isolation.nohz-full")).subject == "karg:nohz_full"
    seen = machine(tmp_path / "b", without=[f"{CPU}/nohz_full"])
    assert ask(seen, "isolation.nohz-full").outcome == "unknown"


# -- isolation.boot-cpu -------------------------------------------------------------------


def test_the_boot_cpu_among_the_isolated(tmp_path: Path) -> None:
    changes = {
        "/proc/cmdline": "ro isolcpus=domain,managed_irq,0,2-4,6-7 nohz_full=0,2-4,6-7 rcu_nocbs=0,2-4,6-7\n",
        f"{CPU}/isolated": "0,2-4,6-7\n",
        f"{CPU}/nohz_full": "2-4,6-7\n",
    }
    finding = only(ask(machine(tmp_path, changes, cpus="0,2-4,6-7"), "isolation.boot-cpu"))
    # without the boot CPU its sibling, CPU 4, would be half a core
    assert (finding.subject, finding.changes) == (
        "cpu:0",
        [
            KernelArguments(
                set=("isolcpus=domain,managed_irq,2-3,6-7", "nohz_full=2-3,6-7", "rcu_nocbs=2-3,6-7")
            )
        ],
    )


def test_rcu_nocbs_of_all_cpus_is_no_isolation_of_the_boot_cpu(tmp_path: Path) -> None:
    seen = machine(tmp_path, cmdline("rcu_nocbs=2-3,6-7", "rcu_nocbs=all"))
    assert ask(seen, "isolation.boot-cpu").outcome == "ok"
    assert ask(seen, "isolation.kernel-args").outcome == "ok"


# -- isolation.smt-split ------------------------------------------------------------------


def test_half_cores(tmp_path: Path) -> None:
    changes = {
        "/proc/cmdline": "ro isolcpus=2-3,7 nohz_full=2-3,7\n",
        f"{CPU}/isolated": "2-3,7\n",
        f"{CPU}/nohz_full": "2-3,7\n",
    }
    finding = only(ask(machine(tmp_path, changes, cpus="2-3,7"), "isolation.smt-split"))
    assert (finding.subject, finding.evidence[0].value) == ("cpu:2", "2,6")
    assert finding.evidence[0].source == f"{CPU}/cpu2/topology/thread_siblings_list"
    # the half core is left out rather than taken from housekeeping
    assert finding.changes == [KernelArguments(set=("isolcpus=domain,managed_irq,3,7", "nohz_full=3,7"))]


def test_only_half_cores_are_made_whole(tmp_path: Path) -> None:
    changes = {"/proc/cmdline": "ro isolcpus=2-3\n", f"{CPU}/isolated": "2-3\n", f"{CPU}/nohz_full": "\n"}
    finding = only(ask(machine(tmp_path, changes, cpus="2-3"), "isolation.smt-split"))
    assert finding.changes == [KernelArguments(set=("isolcpus=domain,managed_irq,2-3,6-7",))]


def test_a_sibling_that_is_offline_shares_nothing(tmp_path: Path) -> None:
    changes = {
        f"{CPU}/online": "0-5\n",
        f"{CPU}/offline": "6-7\n",
        "/proc/cmdline": "ro isolcpus=2-3 nohz_full=2-3\n",
        f"{CPU}/isolated": "2-3\n",
        f"{CPU}/nohz_full": "2-3\n",
        f"{CPU}/cpu2/topology/thread_siblings_list": "2\n",
        f"{CPU}/cpu3/topology/thread_siblings_list": "3\n",
    }
    assert ask(machine(tmp_path, changes, cpus="2-3"), "isolation.smt-split").outcome == "ok"


def test_no_siblings_at_all_and_siblings_not_captured(tmp_path: Path) -> None:
    single: dict[str, Any] = {f"{CPU}/cpu{n}/topology/thread_siblings_list": f"{n}\n" for n in range(8)}
    assert ask(machine(tmp_path / "a", single), "isolation.smt-split").outcome == "not-applicable"
    seen = machine(tmp_path / "b", without=[f"{CPU}/cpu{n}" for n in range(8)])
    assert ask(seen, "isolation.smt-split").outcome == "unknown"


# -- isolation.tasks ----------------------------------------------------------------------


def test_a_stranger_on_an_isolated_cpu(tmp_path: Path) -> None:
    tasks = [[42, "dockerd", False, "0-7", 6], [43, "cron", False, "0-7", 1], [2, "kthreadd", True, "0-7", 0]]
    finding = only(ask(machine(tmp_path, tasks=tasks), "isolation.tasks"))
    assert (finding.subject, finding.severity) == ("cpu:6", "warning")
    assert "dockerd" in finding.message and "cron" not in finding.message


def test_a_task_that_was_sent_away_and_has_not_run_since_is_no_stranger(tmp_path: Path) -> None:
    tasks = [[42, "tuned", False, "0-1,4-5", 6], [43, "kauditd", True, "0-1", 3]]
    assert ask(machine(tmp_path, tasks=tasks), "isolation.tasks").outcome == "ok"


def test_an_unbound_kernel_thread_is_worth_a_note(tmp_path: Path) -> None:
    tasks = [[42, "rcuop/3", True, "0-7", 6], [43, "kworker/u16:2", True, "0-7", 3]]
    finding = only(ask(machine(tmp_path, tasks=tasks), "isolation.tasks"))
    assert (finding.subject, finding.severity) == ("cpu:6", "info")


def test_threads_that_pile_up(tmp_path: Path) -> None:
    tasks = [[70, "feed", False, "2-3", 2], [71, "orders", False, "2-3", 2], [72, "log", False, "6", 6]]
    finding = only(ask(machine(tmp_path, tasks=tasks), "isolation.tasks"))
    assert finding.subject == "cpu:2" and "does not spread" in finding.message


def test_one_process_that_may_choose_is_no_pile(tmp_path: Path) -> None:
    tasks = [[70, "feed", False, "2-3", 2], [71, "orders", False, "2-3", 3]]
    assert ask(machine(tmp_path, tasks=tasks), "isolation.tasks").outcome == "ok"


def test_tasks_that_nobody_asked_for(tmp_path: Path) -> None:
    hidden = Gap("denied", "/proc shows no processes of others")
    result = ask(machine(tmp_path / "a", tasks=hidden), "isolation.tasks")
    assert (result.outcome, result.unknowns[0].remedy) == ("unknown", "run as root")
    edited = ask(machine(tmp_path / "b", tasks=[[1, 2]]), "isolation.tasks")
    assert edited.outcome == "unknown"


def test_the_probe_asks_for_no_tasks_where_no_cpu_is_apart(tmp_path: Path) -> None:
    seen = machine(tmp_path, NOT_ISOLATED)
    assert (seen.cpus.tasks_on_isolated.known, seen.cpus.tasks_on_isolated.gap) == (False, "not-probed")


# -- isolation.workqueues -----------------------------------------------------------------

MASK = "/sys/devices/virtual/workqueue/cpumask"


def test_unbound_work_on_isolated_cpus(tmp_path: Path) -> None:
    finding = only(ask(machine(tmp_path, {MASK: "ff\n"}), "isolation.workqueues"))
    assert (finding.subject, finding.changes) == ("cpu:2-3,6-7", [SysfsAttribute(MASK, "33")])


def test_workqueues_absent_and_unread(tmp_path: Path) -> None:
    folder = "/sys/devices/virtual/workqueue"
    seen = machine(tmp_path / "a", without=[folder], complete=True)
    assert ask(seen, "isolation.workqueues").outcome == "not-applicable"
    assert ask(machine(tmp_path / "b", without=[folder]), "isolation.workqueues").outcome == "unknown"
    assert ask(machine(tmp_path / "c", {MASK: "0-7\n"}), "isolation.workqueues").outcome == "unknown"


# -- isolation.kernel-args ----------------------------------------------------------------


@pytest.mark.parametrize(("text", "name"), [("mce=off", "mce"), ("nomce", "nomce")])
def test_machine_checks_turned_off(tmp_path: Path, text: str, name: str) -> None:
    finding = only(
        ask(machine(tmp_path, NOT_ISOLATED | {"/proc/cmdline": f"ro {text}\n"}), "isolation.kernel-args")
    )
    assert (finding.severity, finding.subject) == ("warning", f"karg:{name}")


def test_mce_off_is_no_argument_of_arm(tmp_path: Path) -> None:
    changes = NOT_ISOLATED | {"/proc/cmdline": "ro mce=off\n", "/proc/sys/kernel/arch": "aarch64\n"}
    assert ask(machine(tmp_path, changes), "isolation.kernel-args").outcome == "ok"


def test_callbacks_stay_where_nothing_moves_them(tmp_path: Path) -> None:
    changes = {"/proc/cmdline": "ro isolcpus=2-3,6-7 irqaffinity=0-1,4-5\n", f"{CPU}/nohz_full": "\n"}
    finding = only(ask(machine(tmp_path, changes), "isolation.kernel-args"))
    assert (finding.subject, finding.changes) == (
        "karg:rcu_nocbs",
        [KernelArguments(set=("rcu_nocbs=2-3,6-7",))],
    )


def test_a_flag_that_the_kernel_does_not_know(tmp_path: Path) -> None:
    finding = only(
        ask(
            machine(tmp_path, cmdline("isolcpus=domain,managed_irq,", "isolcpus=managedirq,")),
            "isolation.kernel-args",
        )
    )
    assert "managedirq" in finding.message
    assert finding.changes == [KernelArguments(set=("isolcpus=domain,managed_irq,2-3,6-7",))]


def test_two_lists_that_must_match(tmp_path: Path) -> None:
    changes = cmdline("isolcpus=domain,managed_irq,2-3,6-7", "isolcpus=nohz,domain,2,6")
    result = ask(machine(tmp_path / "a", changes), "isolation.kernel-args")
    assert [f.subject for f in result.findings] == ["karg:nohz_full"]
    twice = cmdline("nohz_full=", "isolcpus=2,6 nohz_full=")
    assert only(ask(machine(tmp_path / "b", twice), "isolation.kernel-args")).subject == "karg:isolcpus"


def test_nohz_off_defeats_nohz_full(tmp_path: Path) -> None:
    finding = only(ask(machine(tmp_path, cmdline("ro ", "ro nohz=off ")), "isolation.kernel-args"))
    assert (finding.severity, finding.changes) == ("error", [KernelArguments(remove=("nohz",))])
    assert (
        ask(machine(tmp_path / "b", cmdline("ro ", "ro nohz=on ")), "isolation.kernel-args").outcome == "ok"
    )


def test_kernel_args_without_a_command_line(tmp_path: Path) -> None:
    assert ask(machine(tmp_path, without=["/proc/cmdline"]), "isolation.kernel-args").outcome == "unknown"


# -- isolation.tick -----------------------------------------------------------------------


def ticking(*cpus: int) -> dict[str, str]:
    ticks = [8_000_000 if cpu in cpus else n for cpu, n in enumerate(TICKS)]
    return {"/proc/interrupts": interrupts(IRQS, ticks)}


def test_tickless_cpus_that_tick(tmp_path: Path) -> None:
    finding = only(ask(machine(tmp_path, ticking(3, 7)), "isolation.tick"))
    assert (finding.severity, finding.subject) == ("warning", "cpu:3,7")
    assert "two samples" in finding.advice and "idle=poll" not in finding.message


def test_idle_poll_is_named_as_a_cause(tmp_path: Path) -> None:
    seen = machine(tmp_path, ticking(2) | cmdline("ro ", "ro idle=poll "))
    assert "idle=poll" in only(ask(seen, "isolation.tick")).message


def test_a_quiet_machine_with_few_ticks_everywhere(tmp_path: Path) -> None:
    # 20,000 s up and a few ticks a second on every CPU: housekeeping idles too
    changes = {"/proc/interrupts": interrupts(IRQS, [90_000] * 8), "/proc/uptime": "20000.00 1.00\n"}
    assert ask(machine(tmp_path, changes), "isolation.tick").outcome == "ok"


def test_tick_without_counters(tmp_path: Path) -> None:
    assert ask(machine(tmp_path, without=["/proc/interrupts"]), "isolation.tick").outcome == "unknown"


# -- isolation.rt-throttling --------------------------------------------------------------

RUNTIME = "/proc/sys/kernel/sched_rt_runtime_us"


def test_throttling_and_its_price(tmp_path: Path) -> None:
    unlimited = ask(machine(tmp_path / "a", {RUNTIME: "-1\n"}), "isolation.rt-throttling")
    assert unlimited.outcome == "ok" and "starves" in unlimited.reason
    # since 6.12 without CONFIG_RT_GROUP_SCHED nothing is throttled
    changes = {
        "/proc/sys/kernel/osrelease": "6.12.1-amd64\n",
        "/boot/config-6.12.1-amd64": "CONFIG_NO_HZ_FULL=y\n# CONFIG_RT_GROUP_SCHED is not set\n",
    }
    assert "does not throttle" in ask(machine(tmp_path / "b", changes), "isolation.rt-throttling").reason


def test_throttling_that_the_profile_does_not_accept(tmp_path: Path) -> None:
    finding = only(ask(machine(tmp_path, {RUNTIME: "500000\n"}), "isolation.rt-throttling"))
    assert "50 %" in finding.message
    assert finding.changes == [SysctlChange("kernel.sched_rt_runtime_us", "950000")]


def test_throttling_absent_and_unread(tmp_path: Path) -> None:
    absent = machine(tmp_path / "a", {RUNTIME: Gap("absent")})
    assert ask(absent, "isolation.rt-throttling").outcome == "not-applicable"
    denied = machine(tmp_path / "b", {RUNTIME: Gap("denied")})
    assert ask(denied, "isolation.rt-throttling").outcome == "unknown"


# -- isolation.cpuset-partition -----------------------------------------------------------

GROUPS = "/sys/fs/cgroup"


def partition(state: str, cpus: str) -> dict[str, str]:
    return {
        f"{GROUPS}/cgroup.subtree_control": "cpuset cpu memory\n",
        f"{GROUPS}/system.slice/cgroup.subtree_control": "memory\n",
        f"{GROUPS}/system.slice/cpuset.cpus.partition": "member\n",
        f"{GROUPS}/hot.slice/cgroup.subtree_control": "\n",
        f"{GROUPS}/hot.slice/cpuset.cpus.partition": f"{state}\n",
        f"{GROUPS}/hot.slice/cpuset.cpus": f"{cpus}\n",
        f"{GROUPS}/hot.slice/cpuset.cpus.effective": f"{cpus}\n",
    }


def test_a_valid_partition_keeps_its_cpus_apart(tmp_path: Path) -> None:
    seen = machine(tmp_path, NOT_ISOLATED | partition("isolated", "3,7"), cpus="3,7")
    assert ask(seen, "isolation.cpuset-partition").outcome == "ok"
    assert ask(seen, "isolation.isolcpus").outcome == "ok"
    assert only(ask(seen, "isolation.nohz-full")).subject == "cpu:3,7"


def test_a_partition_that_is_not_in_force(tmp_path: Path) -> None:
    state = "isolated invalid (Cpu list in cpuset.cpus not exclusive)"
    seen = machine(tmp_path, NOT_ISOLATED | partition(state, "3,7"))
    finding = only(ask(seen, "isolation.cpuset-partition"))
    assert (finding.subject, finding.severity) == ("cpu:3,7", "error")
    assert "cpu list in cpuset.cpus not exclusive" in finding.message and "siblings" in finding.advice
    # and it keeps nothing apart
    assert ask(seen, "isolation.isolcpus").outcome == "not-applicable"


def test_a_partition_instead_of_the_boot_argument(tmp_path: Path) -> None:
    settings = ("isolation.cpus=2-3,6-7", "isolation.method=partition")
    finding = only(ask(machine(tmp_path / "a", NOT_ISOLATED), "isolation.isolcpus", *settings))
    assert finding.changes == [CpusetPartition("hot", (2, 3, 6, 7))]
    # half of them are there already: the partition grows
    grows = machine(tmp_path / "b", NOT_ISOLATED | partition("isolated", "3,7"))
    finding = only(ask(grows, "isolation.isolcpus", *settings))
    assert (finding.subject, finding.changes) == ("cpu:2,6", [CpusetPartition("hot", (2, 3, 6, 7))])
    # what isolcpus= took out is no part of it
    half = {"/proc/cmdline": "ro isolcpus=domain,3,7\n", f"{CPU}/isolated": "3,7\n", f"{CPU}/nohz_full": "\n"}
    finding = only(ask(machine(tmp_path / "c", half), "isolation.isolcpus", *settings))
    assert (finding.subject, finding.changes) == ("cpu:2,6", [CpusetPartition("hot", (2, 6))])
    # one that the kernel refused is asked for anew
    refused = machine(tmp_path / "d", NOT_ISOLATED | partition("isolated invalid (why)", "2-3,6-7"))
    finding = only(ask(refused, "isolation.isolcpus", *settings))
    assert finding.changes == [CpusetPartition("hot", (2, 3, 6, 7))]


def test_no_partition_and_no_groups(tmp_path: Path) -> None:
    result = ask(machine(tmp_path / "a"), "isolation.cpuset-partition")
    assert (result.outcome, result.reason) == ("not-applicable", "no control group is a cpuset partition")
    assert (
        ask(machine(tmp_path / "b", without=[GROUPS], complete=True), "isolation.cpuset-partition").outcome
        == "not-applicable"
    )
    assert ask(machine(tmp_path / "c", without=[GROUPS]), "isolation.cpuset-partition").outcome == "unknown"


# -- isolation.watchdog -------------------------------------------------------------------

WATCHED = "/proc/sys/kernel/watchdog_cpumask"


def test_a_watchdog_on_isolated_cpus(tmp_path: Path) -> None:
    finding = only(ask(machine(tmp_path, {WATCHED: "0-7\n"}), "isolation.watchdog"))
    assert finding.changes == [SysctlChange("kernel.watchdog_cpumask", "0-1,4-5")]


def test_a_watchdog_that_is_off(tmp_path: Path) -> None:
    changes = {"/proc/sys/kernel/soft_watchdog": "0\n", WATCHED: "0-7\n"}
    assert ask(machine(tmp_path / "a", changes), "isolation.watchdog").outcome == "ok"
    seen = machine(
        tmp_path / "b", cmdline("ro ", "ro nosoftlockup nmi_watchdog=0 "), without=["/proc/sys/kernel"]
    )
    assert ask(seen, "isolation.watchdog").outcome == "ok"


def test_a_watchdog_that_is_absent_or_unread(tmp_path: Path) -> None:
    keys = ("soft_watchdog", "nmi_watchdog", "watchdog", "watchdog_cpumask")
    gone = {f"/proc/sys/kernel/{key}": Gap("absent") for key in keys}
    assert ask(machine(tmp_path / "a", gone), "isolation.watchdog").outcome == "not-applicable"
    assert ask(machine(tmp_path / "b", without=[WATCHED]), "isolation.watchdog").outcome == "unknown"


# -- isolation.managed-irq ----------------------------------------------------------------


def shared_queue() -> dict[str, str]:
    """One NVMe queue for CPUs 1 and 2, which the kernel serves on the isolated one."""
    irqs = dict(IRQS)
    irqs[33] = (IRQS[33][0], IRQS[33][1], "nvme0q3", "1-2", "2", 1)
    return irq_files(irqs)


def test_a_queue_that_a_housekeeping_cpu_could_serve(tmp_path: Path) -> None:
    without_flag = cmdline("domain,managed_irq,2-3", "domain,2-3")
    finding = only(ask(machine(tmp_path, shared_queue() | without_flag), "isolation.managed-irq"))
    assert (finding.subject, finding.changes) == (
        "cpu:2",
        [KernelArguments(set=("isolcpus=domain,managed_irq,2-3,6-7",))],
    )
    # with the flag the kernel does what it can
    assert ask(machine(tmp_path / "b", shared_queue()), "isolation.managed-irq").outcome == "ok"


def test_managed_interrupts_that_are_none_or_not_listed(tmp_path: Path) -> None:
    nic = irq_files({n: IRQS[n] for n in (0, 24, 25)})
    queues = [f"/proc/irq/{n}" for n in (30, 31, 32, 33, 34)]
    seen = machine(tmp_path / "a", nic, without=queues)
    assert ask(seen, "isolation.managed-irq").outcome == "not-applicable"
    for missing in ("/proc/irq", "/proc/interrupts"):
        seen = machine(tmp_path / missing[-4:], without=[missing])
        assert ask(seen, "isolation.managed-irq").outcome == "unknown"


# -- containers, nested groups, debugfs ---------------------------------------------------


def test_a_container_sees_only_its_own_tasks_and_configuration(tmp_path: Path) -> None:
    seen = machine(tmp_path, {"/etc/default/irqbalance": "IRQBALANCE_BANNED_CPULIST=2\n"})
    seen.virtualization.container = known("docker", "/run/systemd/container")
    assert ask(seen, "isolation.tasks").outcome == "unknown"
    assert ask(seen, "irq.irqbalance").outcome == "not-applicable"


def test_partitions_are_looked_for_where_the_controller_is_handed_on(tmp_path: Path) -> None:
    changes = partition("member", "2-3")
    changes |= {
        f"{GROUPS}/hot.slice/cgroup.subtree_control": "cpuset\n",
        f"{GROUPS}/hot.slice/feed.service/cpuset.cpus.partition": "isolated\n",
        f"{GROUPS}/hot.slice/feed.service/cpuset.cpus.effective": "3\n",
        f"{GROUPS}/hot.slice/feed.service/cgroup.subtree_control": "\n",
        # not handed on: never looked at
        f"{GROUPS}/system.slice/old.service/cpuset.cpus.partition": "root invalid\n",
    }
    found = machine(tmp_path, changes).cpus.partitions.get()
    assert [(p.path, p.state, p.cpus) for p in found] == [
        (f"{GROUPS}/hot.slice/feed.service", "isolated", [3])
    ]


def test_a_fair_server_that_is_off_is_told(tmp_path: Path) -> None:
    folder = "/sys/kernel/debug/sched/fair_server"
    changes = {f"{folder}/cpu{n}/runtime": f"{0 if n == 3 else 50_000_000}\n" for n in range(8)}
    changes |= {f"{folder}/cpu{n}/period": "1000000000\n" for n in range(8)}
    seen = machine(tmp_path, changes)
    # of the CPUs apart only
    assert [server[0] for server in seen.cpus.fair_server.get()] == [2, 3, 6, 7]
    result = ask(seen, "isolation.rt-throttling")
    assert [item.value for item in result.evidence if item.source == folder] == ["off on CPU 3"]


# -- any file may hold anything -----------------------------------------------------------

TEXTS = ("", "\x00\xff", "-1\n", "9" * 30, "0-99999999\n", "(null)\n", "N\n", "CPU0\n", "isolated invalid\n")
JUNK: tuple[Any, ...] = (*TEXTS, Gap("absent"), Gap("denied"), Gap("unreadable"), Directory())
PROFILES = ((), ("isolation.cpus=2-3",), ("isolation.cpus=0-7",), ("isolation.cpus=x",))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_spoilt_files_give_no_defect(data: st.DataObject) -> None:
    base: dict[str, Any] = files()
    for path in data.draw(st.sets(st.sampled_from(sorted(base)), min_size=1, max_size=6)):
        base[path] = data.draw(st.sampled_from(JUNK))
    chosen = data.draw(st.sampled_from(PROFILES))
    with tempfile.TemporaryDirectory() as folder:
        seen, defects = probe(host(Path(folder), base, libraries={("processes", "tasks", "2-3,6-7"): PINNED}))
    rows = [row for row in table() if row.subsystem in ("isolation", "irq")]
    assert judge(seen, rows, load(settings=chosen), defects).defects == []
