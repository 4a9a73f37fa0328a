"""apply, verify and revert on a real Linux, through its own boot loader, with irqbalance and tuned at work.

One machine and one story, in order: as a site has it; a run that is killed; applied; booted; changed by
others; put back; booted. What is looked at is the machine itself (guest/state.py), besides what hwtune says
of it.
"""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from hwtune.text.cpulist import parse_list
from tests.machine.install import HWTUNE
from tests.machine.looking import Report, differences, doctor, drive, row
from tests.machine.site import GUEST, HOT, LATE, PROFILE, State, configure, state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.machine.machine import Machine

ALLOW = ("--allow", "boot,service,link")
SITE = ("--profile", PROFILE)
# A second set, of CPUs that a cpuset partition keeps apart: at once, without a boot.
PARTITION = (
    "--set",
    "isolation.cpus=6-7",
    "--set",
    "isolation.method=partition",
    "--only",
    "isolation.isolcpus",
)
SLICE = "/sys/fs/cgroup/hot.slice"
ARGUMENTS = {
    "irqaffinity=0-1,4-7",
    "isolcpus=domain,managed_irq,2-3",
    "nohz_full=2-3",
    "rcu_nocbs=2-3",
}
# What hardware.py, site.py and guest/site_rows.py have doctor find fault with and apply mend.
MENDED = {
    *("irq.default-affinity", "irq.irqaffinity-arg", "irq.irqbalance", "irq.on-isolated"),
    *("isolation.isolcpus", "isolation.kernel-args", "isolation.nohz-full", "isolation.rt-throttling"),
    *("isolation.watchdog", "isolation.workqueues"),
    *("memory.compact-unevictable", "memory.compaction", "memory.dirty-limits", "memory.khugepaged"),
    *("memory.numa-balancing", "memory.transparent-hugepages", "memory.zone-reclaim"),
    *("nic.coalescing", "nic.rps", "nvme.scheduler"),
    *("site.copybreak", "site.latency", "site.note", "site.timer"),
}
FILES = {
    "/etc/default/grub.d/zz-hwtune.cfg",
    "/etc/hwtune",
    "/etc/hwtune/boot.json",
    "/etc/hwtune/irqbalance.env",
    "/etc/modprobe.d/zz-hwtune.conf",
    "/etc/site",
    "/etc/site/hot",
    "/etc/site/hot/notes.conf",
    "/etc/sysctl.d/99-zz-hwtune.conf",
    "/etc/systemd/system/hwtune-boot.service",
    "/etc/systemd/system/hwtune-cpu-latency.service",
    "/etc/systemd/system/irqbalance.service.d",
    "/etc/systemd/system/irqbalance.service.d/zz-hwtune.conf",
    "/etc/systemd/system/multi-user.target.wants/hwtune-boot.service",
    "/etc/systemd/system/multi-user.target.wants/hwtune-cpu-latency.service",
    "/etc/udev/rules.d/99-zz-hwtune.rules",
}
SYSCTLS = {
    "kernel.numa_balancing": "0",
    "kernel.sched_rt_runtime_us": "950000",
    "kernel.watchdog_cpumask": "0-1,4-7",
    "vm.compact_unevictable_allowed": "0",
    "vm.compaction_proactiveness": "0",
    "vm.dirty_background_ratio": "5",
    "vm.dirty_ratio": "10",
    "vm.zone_reclaim_mode": "0",
}
COMPACTION = "vm.compaction_proactiveness"
THP = "/sys/kernel/mm/transparent_hugepage"


class Said(NamedTuple):
    """A report in JSON with its exit status."""

    status: int
    report: dict[str, Any]


def hwtune(machine: Machine, *arguments: str) -> Said:
    result = machine.run([HWTUNE, *arguments, "--format", "json"], 600)
    assert result.stderr == "", result
    return Said(result.status, json.loads(result.stdout))


def apply(machine: Machine, *arguments: str) -> Said:
    return hwtune(machine, "apply", "--yes", *arguments)


def by_target(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {outcome["target"]: dict(outcome) for outcome in outcomes}


def not_in_force(verified: Said) -> dict[str, dict[str, Any]]:
    return {t: v for t, v in by_target(verified.report["changes"]).items() if v["status"] != "in-force"}


# -- as a site has it


@pytest.fixture(scope="module")
def machine(running: Machine) -> Machine:
    configure(running)
    return running


@pytest.fixture(scope="module")
def before(machine: Machine) -> State:
    """How the machine looks before hwtune ever changed it; hwtune is installed, and nothing else is."""
    return state(machine)


@pytest.fixture(scope="module")
def sick(machine: Machine, before: State) -> Report:
    _to_a_hot_cpu(machine)
    return doctor(machine, *SITE)


def _to_a_hot_cpu(machine: Machine) -> None:
    """One interrupt, whatever irqbalance has done with the others: that of a drive's admin queue."""
    controller = drive(machine, "HWT2").removesuffix("n1")
    machine.check(f"echo {HOT[0]} > $(dirname /proc/irq/*/{controller}q0)/smp_affinity_list")
    machine.check(["nvme", "smart-log", f"/dev/{controller}"])  # fires it, whereupon it moves


@pytest.fixture(scope="module")
def checked(machine: Machine, sick: Report) -> Said:
    return hwtune(machine, "apply", "--check", "--diff", *SITE, *ALLOW)


def test_without_root_it_is_one_sentence(machine: Machine, before: State) -> None:
    said = {
        "apply": "hwtune: only root may apply changes; run it with sudo\n",
        "verify": "hwtune: only root may read the journal; run it with sudo\n",
        "revert": "hwtune: only root may revert changes; run it with sudo\n",
    }
    for command, sentence in said.items():
        result = machine.run([HWTUNE, command], user="person")
        assert (result.status, result.stdout, result.stderr) == (3, "", sentence)


def test_what_is_wrong_here_can_be_mended(sick: Report) -> None:
    assert {r["id"] for r in sick["rows"] if any(f["changes"] for f in r["findings"])} == MENDED


def test_check_tells_and_changes_nothing(machine: Machine, checked: Said, before: State) -> None:
    assert checked.status == 0
    assert {outcome["status"] for outcome in checked.report["changes"]} <= {"planned", "unchanged"}
    assert {row for outcome in checked.report["changes"] for row in outcome["rows"]} == MENDED
    assert {file["path"] for file in checked.report["files"]} == FILES
    assert differences(state(machine), before) == {}
    assert machine.run("ls /var/lib/hwtune").status != 0


def test_what_disrupts_is_left_out_unless_allowed(machine: Machine, checked: Said) -> None:
    """By name, and with what permits it."""
    said = hwtune(machine, "apply", "--check", *SITE)
    assert said.status == 1
    left = {o["target"]: o["reason"] for o in said.report["changes"] if o["status"] == "not-allowed"}
    boot = "it takes a reboot; --allow boot permits it"
    service = "it takes a service-restart; --allow service permits it"
    assert left == {
        "karg:irqaffinity": boot,
        "karg:isolcpus": boot,
        "karg:nohz_full": boot,
        "karg:rcu_nocbs": boot,
        "module:e1000e/copybreak": boot,
        "service:irqbalance": service,
        "service:site.timer": service,
    }


# -- killed at a random instant


@pytest.fixture(scope="module")
def killed(machine: Machine, checked: Said) -> int:
    """How many lines the journal had when apply was killed; in the end it would have some ninety."""
    machine.put("/run/kill_apply.py", (GUEST / "kill_apply.py").read_text())
    wanted = random.randint(2, 75)
    line = ["python3", "/run/kill_apply.py", str(wanted), HWTUNE, "apply", "--yes", *SITE, *ALLOW]
    return int(machine.check(line, 600))


def test_a_run_that_was_killed_is_known_and_comes_back(machine: Machine, killed: int, before: State) -> None:
    history = hwtune(machine, "history")
    (change_set,) = history.report["sets"]
    assert (history.status, change_set["status"]) in ((0, "interrupted"), (0, "in progress")), killed
    verified = hwtune(machine, "verify")
    assert verified.status == 1, killed
    # at most one change is half way: that which was at work
    assert sum(v["status"] == "interrupted" for v in verified.report["changes"]) <= 1, verified
    back = _revert_when_it_may(machine)
    assert back.status == 0, (killed, back)
    assert differences(state(machine), before) == {}, killed
    assert hwtune(machine, "verify").report["changes"] == []


def _revert_when_it_may(machine: Machine) -> Said:
    """The lock is kept as long as a program of the dead run is at work."""
    for _ in range(120):
        result = machine.run([HWTUNE, "revert", "--all", "--yes", "--format", "json"], 600)
        if result.status != 3:
            assert result.stderr == "", result
            return Said(result.status, json.loads(result.stdout))
        assert "a program that it started is still at work" in result.stderr, result
        time.sleep(1)
    raise AssertionError("the lock is never let go")


# -- applied


@pytest.fixture(scope="module")
def applied(machine: Machine, checked: Said, killed: int) -> Said:
    _to_a_hot_cpu(machine)
    return apply(machine, *SITE, *ALLOW)


@pytest.fixture(scope="module")
def again(machine: Machine, applied: Said) -> Said:
    return apply(machine, *SITE, *ALLOW)


@pytest.fixture(scope="module")
def waiting(machine: Machine, again: Said) -> Said:
    return hwtune(machine, "verify")


@pytest.fixture(scope="module")
def partition(machine: Machine, waiting: Said) -> Said:
    return apply(machine, *PARTITION)


def test_apply_does_what_check_told(applied: Said, checked: Said) -> None:
    assert applied.status == 0
    assert applied.report["problems"] == []
    assert applied.report["reboot_required"]
    done = _without_irqs(applied.report)
    assert done == _without_irqs(checked.report)
    assert {o["status"] for o in applied.report["changes"]} <= {"changed", "unchanged"}


def _without_irqs(report: dict[str, Any]) -> dict[str, Any]:
    """irqbalance moves interrupts from one minute to the next; all else holds still."""
    changes = [
        (o["target"], o["description"], o["before"], o["after"], o["disruption"])
        for o in report["changes"]
        if not o["target"].startswith("irq:") or o["target"] == "irq:default"
    ]
    files = [
        (f["path"], f["action"], "" if f["path"].endswith("boot.json") else f["diff"])
        for f in report["files"]
    ]
    return {"changes": changes, "files": files, "commands": report["commands"]}


def test_a_second_apply_changes_nothing(again: Said) -> None:
    assert again.status == 0
    assert (again.report["changed"], again.report["files"], again.report["commands"]) == (False, [], [])
    assert {o["status"] for o in again.report["changes"]} == {"unchanged"}


def test_verify_tells_what_waits_for_a_boot(waiting: Said) -> None:
    assert waiting.status == 1
    open_ = not_in_force(waiting)
    assert {v["status"] for v in open_.values()} == {"pending-reboot"}
    assert set(open_) == {
        *(f"karg:{text.partition('=')[0]}" for text in ARGUMENTS),
        "module:e1000e/copybreak",
    }
    # sets in force, and nothing torn
    assert [s["status"] for s in waiting.report["sets"]] == ["in force"]
    assert waiting.report["journal"] == []


def test_the_partition_is_in_force_at_once(partition: Said, machine: Machine) -> None:
    assert partition.status == 0
    (outcome,) = partition.report["changes"]
    assert (outcome["status"], outcome["after"]) == ("changed", "isolated 6-7")
    assert not partition.report["reboot_required"]
    assert (
        machine.check(f"cat {SLICE}/cpuset.cpus.partition {SLICE}/cpuset.cpus.effective") == "isolated\n6-7\n"
    )


# -- booted by its own boot loader


@pytest.fixture(scope="module")
def booted(machine: Machine, partition: Said) -> State:
    before = machine.boot_id
    machine.reboot()
    assert machine.boot_id != before
    return state(machine)


@pytest.fixture(scope="module")
def verified(machine: Machine, booted: State) -> Said:
    return hwtune(machine, "verify")


@pytest.fixture(scope="module")
def healthy(machine: Machine, verified: Said) -> Report:
    return doctor(machine, *SITE)


@pytest.fixture(scope="module")
def third(machine: Machine, healthy: Report) -> Said:
    return apply(machine, *SITE, *ALLOW)


def test_after_the_boot_everything_is_in_force(verified: Said) -> None:
    assert not_in_force(verified) == {}
    assert (verified.status, verified.report["in_force"]) == (0, True)
    assert len(verified.report["sets"]) == 2


def test_the_boot_loader_gave_the_arguments(booted: State, before: State) -> None:
    given = booted["attributes"]["/proc/cmdline"].split()
    old = before["attributes"]["/proc/cmdline"].split()
    assert given[: len(old)] == old
    assert set(given[len(old) :]) == ARGUMENTS
    assert booted["attributes"]["/sys/devices/system/cpu/isolated"] == "2-3"
    assert booted["attributes"]["/sys/devices/system/cpu/nohz_full"] == "2-3"


_LATENCY = """
import struct
with open("/dev/cpu_dma_latency", "rb") as file:
    print(*struct.unpack("=i", file.read(4)))
"""


def test_the_boot_set_every_value_again(booted: State, machine: Machine) -> None:
    found = {key: booted["sysctls"][f"/proc/sys/{key.replace('.', '/')}"] for key in SYSCTLS}
    assert found == SYSCTLS
    attributes = booted["attributes"]
    assert "[madvise]" in attributes[f"{THP}/enabled"]
    assert attributes[f"{THP}/khugepaged/defrag"] == "0"
    assert attributes["/sys/devices/virtual/workqueue/cpumask"] == "f3"
    assert attributes["/proc/irq/default_smp_affinity"] == "f3"
    assert attributes["/sys/module/e1000e/parameters/copybreak"] == "0"
    (rps,) = (v for k, v in attributes.items() if k.endswith("/queues/rx-0/rps_cpus") and "/en" in k)
    assert rps == "f3"
    for serial in ("HWT0", "HWT1", "HWT2"):
        assert attributes[f"/sys/block/{serial}-disk/queue/scheduler"].startswith("[none]")
    assert any(
        "rx-usecs:\t0" in text.replace(" ", "\t") for k, text in booted["nics"].items() if k.endswith("-c")
    )
    assert booted["units"]["site.timer"] == "disabled"
    assert booted["units"]["hwtune-cpu-latency.service is"] == "loaded active"
    assert booted["units"]["hwtune-boot.service is"] == "loaded active"
    assert int(machine.check(["python3", "-c", _LATENCY])) <= 20


def test_the_partition_is_there_again(booted: State) -> None:
    attributes = booted["attributes"]
    assert attributes[f"{SLICE}/cpuset.cpus.partition"] == "isolated"
    assert attributes[f"{SLICE}/cpuset.cpus.effective"] == "6-7"


def test_interrupts_stay_off_the_hot_cpus(
    booted: State, machine: Machine, healthy: Report, third: Said
) -> None:
    """All that can be moved; irqbalance has had its say several times by now."""
    assert booted["others"]["irqbalance"] == ["IRQBALANCE_BANNED_CPULIST=2-3,5", "IRQBALANCE_BANNED_CPUS="]
    lines = machine.check(
        "cd /proc/irq && grep -s . */effective_affinity_list */smp_affinity_list"
    ).splitlines()
    irqs = {str(irq["number"]): irq for irq in healthy["machine"]["irqs"]}
    seen = 0
    for line in lines:
        path, _, cpus = line.partition(":")
        irq = irqs[path.partition("/")[0]]
        if irq["actions"] and not irq["managed"] and irq["actions"] != ["timer"]:
            assert not set(parse_list(cpus)) & set(HOT), (line, irq["actions"])
            seen += 1
    assert seen >= 20


def test_doctor_is_content_with_what_was_applied(healthy: Report, sick: Report) -> None:
    outcomes = {id: row(healthy, id)["outcome"] for id in MENDED}
    assert outcomes == dict.fromkeys(MENDED, "ok")
    known = {r["id"] for r in sick["rows"] if r["outcome"] == "finding"} - MENDED
    # an emulated CPU is away for long, and the kernel may notice
    known |= {"clock.timer-stall", "kernel.tainted", "irq.one-cpu", "memory.pressure"}
    news = [
        (r["id"], f["message"])
        for r in healthy["rows"]
        for f in r["findings"]
        # kernel threads that were there before their CPUs were kept apart are worth a note
        if r["id"] not in known and (r["id"], f["severity"]) != ("isolation.tasks", "info")
    ]
    assert news == []
    assert {r["id"] for r in healthy["rows"] if r["outcome"] == "unknown"} == set()


def test_after_the_boot_there_is_nothing_to_do(third: Said) -> None:
    assert third.status == 0
    assert (third.report["changed"], third.report["files"]) == (False, [])


# -- changed by others


@pytest.fixture(scope="module")
def drifted(machine: Machine, third: Said) -> Said:
    machine.put(LATE, "vm.compaction_proactiveness = 55\n")
    machine.check(["sysctl", "-q", "-p", LATE])
    machine.check(["tuned-adm", "profile", "site-thp"])
    # after tuned, which applies the files of sysctl.d again
    machine.check(["sysctl", "-q", "-w", "kernel.numa_balancing=1"])
    machine.check(["systemctl", "stop", "hwtune-cpu-latency.service"])
    # irqbalance would move the interrupt off the CPU that it is banned from
    machine.check(["systemctl", "kill", "--signal=STOP", "irqbalance.service"])
    machine.check(f"echo {HOT[0]} > /proc/irq/{_held_interrupt(machine)}/smp_affinity_list")
    try:
        return hwtune(machine, "verify")
    finally:
        machine.check(["systemctl", "kill", "--signal=CONT", "irqbalance.service"])


def _held_interrupt(machine: Machine) -> str:
    """The number of one that hwtune has moved, and that was not irqbalance's to move before it came to it."""
    sets = [s for s in hwtune(machine, "history").report["sets"] if s["status"] == "in force"]
    (change_set,) = (s for s in sets if "partition" not in s["command"])
    keys = [e["key"] for e in change_set["changes"] if e["key"].startswith("irq ") and e["state"] == "done"]
    for key in keys:
        action = key.split(" ", 3)[3]
        found = machine.run(f"dirname /proc/irq/*/'{action}'").stdout.split()
        if action and len(found) == 1 and "*" not in found[0]:
            return found[0].rpartition("/")[2]
    raise AssertionError(f"none of the interrupts that hwtune holds is here: {keys}")


def test_what_others_changed_is_seen_with_who_could_have(drifted: Said) -> None:
    assert drifted.status == 1
    found = not_in_force(drifted)
    assert {v["status"] for v in found.values()} == {"drifted"}
    tuned = "tuned (profile site-thp)"
    said = {t: (v["wanted"], v["now"]) for t, v in found.items() if not t.startswith("irq:")}
    assert said == {
        "sysctl:vm.compaction_proactiveness": ("0", "55"),
        "sysctl:kernel.numa_balancing": ("0", "1"),
        f"sysfs:{THP}/enabled": ("madvise", "always"),
        "store:cpu-latency": ("in force", "not in force"),
    }
    (irq,) = (v for t, v in found.items() if t.startswith("irq:"))
    assert irq["now"] == "CPUs 2"
    assert irq["suspects"] == ["irqbalance", tuned]
    assert found["sysctl:vm.compaction_proactiveness"]["suspects"] == [f"{LATE}:1", tuned]
    assert found[f"sysfs:{THP}/enabled"]["suspects"] == [tuned]


@pytest.fixture(scope="module")
def mended(machine: Machine, drifted: Said) -> Said:
    """tuned takes back what it set, and the administrators their file; apply sets the rest again."""
    machine.check(["tuned-adm", "auto_profile"])
    machine.check(["sysctl", "-q", "-w", "kernel.numa_balancing=1"])
    machine.check(["rm", LATE])
    return apply(machine, *SITE, *ALLOW)


def test_apply_sets_again_what_drifted(machine: Machine, mended: Said) -> None:
    assert mended.status == 0
    changed = {o["target"] for o in mended.report["changes"] if o["status"] == "changed"}
    assert {t for t in changed if not t.startswith("irq:")} == {
        "sysctl:vm.compaction_proactiveness",
        "sysctl:kernel.numa_balancing",
    }
    assert [f["diff"] for f in mended.report["files"]] == []
    assert "systemctl restart hwtune-cpu-latency.service" in mended.report["commands"]
    assert not_in_force(hwtune(machine, "verify")) == {}


# -- put back


@pytest.fixture(scope="module")
def reverted(machine: Machine, mended: Said) -> tuple[Said, Said]:
    """With a value that someone has changed, which is left until --force."""
    machine.check(["sysctl", "-q", "-w", f"{COMPACTION}=33"])
    left = hwtune(machine, "revert", "--all", "--yes")
    assert machine.check(["sysctl", "-n", COMPACTION]) == "33\n"
    return left, hwtune(machine, "revert", "--all", "--yes", "--force")


def test_what_someone_changed_since_is_left_until_forced(
    reverted: tuple[Said, Said], machine: Machine
) -> None:
    left, forced = reverted
    assert left.status == 1
    outcomes = [o for s in left.report["sets"] for o in s["outcomes"]]
    assert {o["status"] for o in outcomes} == {"restored", "unchanged", "kept"}
    assert [o["target"] for o in outcomes if o["status"] == "kept"] == [f"sysctl:{COMPACTION}"]
    assert {f["path"] for f in left.report["files"]} >= FILES
    assert {f["action"] for f in left.report["files"]} == {"remove"}
    assert left.report["reboot_required"]
    assert forced.status == 0
    # what the newest set found there
    assert machine.check(["sysctl", "-n", COMPACTION]) == "55\n"


def test_the_way_back_tells_this_boot_from_the_next(reverted: tuple[Said, Said], machine: Machine) -> None:
    """What this boot has by its arguments stays until the next; the files are gone now."""
    left, _ = reverted
    found = by_target([o for s in left.report["sets"] for o in s["outcomes"]])
    (rps,) = (o for t, o in found.items() if t.endswith("/rps_cpus"))
    # isolcpus= of this boot cuts ff to f3
    assert rps["status"] == "unchanged" and "this boot does not take ff" in rps["reason"]
    assert found["irqs-away:2-3"]["status"] == "unchanged"
    assert found["cpuset:hot"]["status"] == "restored"
    assert machine.run(f"ls {SLICE}").status != 0
    assert "isolcpus" in machine.check("cat /proc/cmdline")
    assert "isolcpus" not in machine.check("cat /boot/grub/grub.cfg")
    assert hwtune(machine, "verify").report["changes"] == []


@pytest.fixture(scope="module")
def passing(machine: Machine, reverted: tuple[Said, Said]) -> Said:
    """A set of this boot only."""
    return apply(machine, "--only", "memory.khugepaged", "--runtime-only")


@pytest.fixture(scope="module")
def after(machine: Machine, passing: Said) -> State:
    assert [(o["status"], o["after"]) for o in passing.report["changes"]] == [("changed", "0")]
    assert passing.report["files"] == []
    machine.reboot()
    return state(machine)


def test_nothing_is_left_of_it(after: State, before: State) -> None:
    """Every file of /etc and /boot, every sysctl, every attribute, every unit."""
    assert differences(after, before) == {}
    assert len(before["files"]) > 500
    assert len(before["sysctls"]) > 500
    assert len(before["attributes"]) > 500


def test_what_a_boot_has_undone_is_told_and_is_over(machine: Machine, after: State, before: State) -> None:
    verified = hwtune(machine, "verify")
    assert verified.status == 1
    (drift,) = not_in_force(verified).values()
    assert drift["reason"] == "it is back at what it was before and the machine has booted since it was set"
    back = hwtune(machine, "revert", "--yes")
    assert back.status == 0
    (outcome,) = back.report["sets"][0]["outcomes"]
    assert (outcome["status"], back.report["changed"]) == ("unchanged", False)
    assert differences(state(machine), before) == {}
    verified = hwtune(machine, "verify")
    assert (verified.status, verified.report["changes"], verified.report["sets"]) == (0, [], [])


def test_everything_that_was_touched_was_looked_at(machine: Machine, after: State) -> None:
    """What the journal has touched is in the state that was compared."""
    history = hwtune(machine, "history").report
    touched = {change["key"] for s in history["sets"] for change in s["changes"]}
    known = {path: part for part in ("files", "sysctls", "attributes") for path in after[part]}
    for key in touched:
        kind, _, rest = key.partition(" ")
        if kind == "attribute":
            path = rest.partition(" ")[2]
            parent = path.rpartition("/")[0]
            assert path in known or "/sys/block/nvme" in path, (key, parent)
        elif kind == "exclusive":
            assert all(f"/proc/sys/{name.replace('.', '/')}" in known for name in rest.split()), key
        elif kind in ("file", "link", "directory"):
            assert rest.startswith(("/etc/", "/boot/")), key
        else:
            assert kind in ("irq", "cpuset", "nic", "unit"), key
    # the whole story is there, and nothing of it is in force
    assert {s["status"] for s in history["sets"]} == {"reverted"}
    assert len(history["sets"]) == 5
