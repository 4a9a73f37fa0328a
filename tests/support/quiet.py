"""A box whose isolated CPUs are as quiet as they get, and ways to spoil it.

Eight CPUs on four cores (N and N+4 are siblings), two nodes (cores 0-1 and 2-3); CPUs 2, 3, 6, 7 are
isolated. A NIC on node 0 with two queues, an NVMe drive on node 1 with an admin and four I/O queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.diagnosis.engine import judge, probe
from hwtune.diagnosis.table import find, table
from hwtune.profile import load
from tests.support import host

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import Any

    from hwtune.diagnosis.engine import RowResult
    from hwtune.diagnosis.verdict import Finding
    from hwtune.model import Machine

CPU = "/sys/devices/system/cpu"
NIC = "0000:01:00.0"
DRIVE = "0000:41:00.0"

# number -> (counts of CPU 0-7, chip, actions, requested, effective, node)
IRQS: dict[int, tuple[list[int], str, str, str, str, int]] = {
    0: ([9, 0, 0, 0, 0, 0, 0, 0], "IR-IO-APIC    2-edge", "timer", "0-7", "0", 0),
    24: ([0, 900, 0, 0, 0, 0, 0, 0], f"IR-PCI-MSIX-{NIC}    0-edge", "eth0-0", "0-1,4-5", "1", 0),
    25: ([0, 0, 0, 0, 800, 0, 0, 0], f"IR-PCI-MSIX-{NIC}    1-edge", "eth0-1", "0-1,4-5", "4", 0),
    30: ([0, 0, 0, 0, 0, 70, 0, 0], f"IR-PCI-MSIX-{DRIVE}    0-edge", "nvme0q0", "0-1,4-5", "5", 1),
    31: ([500, 0, 0, 0, 0, 0, 0, 0], f"IR-PCI-MSIX-{DRIVE}    1-edge", "nvme0q1", "0,4", "0", 1),
    32: ([0, 400, 0, 0, 0, 0, 0, 0], f"IR-PCI-MSIX-{DRIVE}    2-edge", "nvme0q2", "1,5", "1", 1),
    33: ([0, 0, 60, 0, 0, 0, 0, 0], f"IR-PCI-MSIX-{DRIVE}    3-edge", "nvme0q3", "2,6", "2", 1),
    34: ([0, 0, 0, 50, 0, 0, 0, 0], f"IR-PCI-MSIX-{DRIVE}    4-edge", "nvme0q4", "3,7", "3", 1),
}
TICKS = [9_000_000, 8_000_000, 40_000, 40_000, 7_000_000, 8_000_000, 40_000, 40_000]
CMDLINE = (
    "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro isolcpus=domain,managed_irq,2-3,6-7 nohz_full=2-3,6-7 "
    "rcu_nocbs=2-3,6-7 irqaffinity=0-1,4-5"
)


def interrupts(irqs: Mapping[int, tuple[list[int], str, str, str, str, int]], ticks: list[int]) -> str:
    """/proc/interrupts as the kernel prints it."""
    lines = ["           " + " ".join(f"CPU{cpu}".ljust(10) for cpu in range(len(ticks)))]
    for number, (counts, chip, actions, *_) in irqs.items():
        lines.append(f"{number:4d}: {' '.join(f'{n:10d}' for n in counts)}  {chip}      {actions}")
    lines.append(f" LOC: {' '.join(f'{n:10d}' for n in ticks)}   Local timer interrupts")
    lines.append(f" RES: {' '.join(f'{n:10d}' for n in range(len(ticks)))}   Rescheduling interrupts")
    lines.append(" ERR:          0")
    return "\n".join(lines) + "\n"


def irq_files(irqs: Mapping[int, tuple[list[int], str, str, str, str, int]]) -> dict[str, str]:
    files = {"/proc/interrupts": interrupts(irqs, TICKS), "/proc/irq/default_smp_affinity": "33\n"}
    for number, (_, _, _, requested, effective, node) in irqs.items():
        files[f"/proc/irq/{number}/smp_affinity_list"] = f"{requested}\n"
        files[f"/proc/irq/{number}/effective_affinity_list"] = f"{effective}\n"
        files[f"/proc/irq/{number}/node"] = f"{node}\n"
    return files


def files() -> dict[str, str]:
    """The quiet box."""
    found = {
        "/proc/cmdline": CMDLINE + "\n",
        "/proc/uptime": "100000.00 700000.00\n",
        "/proc/sys/kernel/osrelease": "6.1.0-13-amd64\n",
        "/proc/sys/kernel/arch": "x86_64\n",
        "/proc/sys/kernel/sched_rt_runtime_us": "950000\n",
        "/proc/sys/kernel/sched_rt_period_us": "1000000\n",
        "/proc/sys/kernel/soft_watchdog": "1\n",
        "/proc/sys/kernel/nmi_watchdog": "0\n",
        "/proc/sys/kernel/watchdog_cpumask": "0-1,4-5\n",
        f"{CPU}/possible": "0-7\n",
        f"{CPU}/present": "0-7\n",
        f"{CPU}/online": "0-7\n",
        f"{CPU}/offline": "\n",
        f"{CPU}/isolated": "2-3,6-7\n",
        f"{CPU}/nohz_full": "2-3,6-7\n",
        f"{CPU}/smt/control": "on\n",
        "/sys/devices/virtual/workqueue/cpumask": "33\n",
        "/sys/devices/virtual/workqueue/writeback/cpumask": "ff\n",
        "/sys/devices/system/node/online": "0-1\n",
        "/sys/devices/system/node/node0/cpulist": "0-1,4-5\n",
        "/sys/devices/system/node/node1/cpulist": "2-3,6-7\n",
        "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
        "/sys/fs/cgroup/cgroup.subtree_control": "cpu memory pids\n",
        "/usr/lib/systemd/system/irqbalance.service": "[Service]\nEnvironmentFile=-/etc/default/irqbalance\n",
        "/etc/default/irqbalance": "#IRQBALANCE_BANNED_CPULIST=\n",
    }
    for cpu in range(8):
        found[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"] = f"{cpu % 4},{cpu % 4 + 4}\n"
        found[f"{CPU}/cpu{cpu}/topology/core_id"] = f"{cpu % 4}\n"
        found[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = "0\n"
    for address, node, kind in ((NIC, 0, "0x020000"), (DRIVE, 1, "0x010802")):
        folder = f"/sys/bus/pci/devices/{address}"
        found[f"{folder}/class"] = f"{kind}\n"
        found[f"{folder}/vendor"] = "0x8086\n"
        found[f"{folder}/device"] = "0x1572\n"
        found[f"{folder}/numa_node"] = f"{node}\n"
    found.update(irq_files(IRQS))
    return found


# [thread id, name, kernel, CPUs allowed, last CPU]: one hot thread on each isolated core's first CPU
PINNED: list[list[Any]] = [[700, "feed", False, "2", 2], [701, "strategy", False, "3", 3]]


def machine(
    tmp_path: Path,
    changes: Mapping[str, Any] | None = None,
    *,
    without: Iterable[str] = (),
    tasks: list[list[Any]] | Any = PINNED,
    cpus: str = "2-3,6-7",
    **options: Any,
) -> Machine:
    """The quiet box with files changed, or taken away (then NOT_CAPTURED, or as ``options`` say).

    ``tasks`` is what the scheduler says of ``cpus``, all CPUs that are apart in some sense.
    """
    found: dict[str, Any] = files()
    found.update(changes or {})
    for path in without:
        found = {p: content for p, content in found.items() if p != path and not p.startswith(path + "/")}
    libraries = {("processes", "tasks", cpus): tasks, **options.pop("libraries", {})}
    seen, defects = probe(host(tmp_path, found, libraries=libraries, **options))
    assert not defects
    return seen


def ask(machine: Machine, row: str, *settings: str) -> RowResult:
    """What one row says; a defect of it fails the test."""
    diagnosis = judge(machine, [find(table(), row)], load(settings=settings))
    assert not diagnosis.defects
    return diagnosis.results[0]


def only(result: RowResult) -> Finding:
    """The one finding of a row."""
    assert (result.outcome, len(result.findings)) == ("finding", 1), result
    return result.findings[0]
