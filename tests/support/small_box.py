"""A small Debian with one thing of nearly every kind that hwtune changes, and changes for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.changes import kinds
from hwtune.diagnosis.engine import RowResult
from hwtune.diagnosis.verdict import Finding
from tests.support import Content, Directory, Link, tree
from tests.support.fake_kernel import BOOT_ID, MENU, UNITS, FakeKernel, menu

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

THP = "/sys/kernel/mm/transparent_hugepage/enabled"
GOVERNORS = [f"/sys/devices/system/cpu/cpufreq/policy{n}/scaling_governor" for n in (0, 1)]
DRIVE = "/sys/block/nvme0n1/queue/scheduler"
SYSCTL_D = "/etc/sysctl.d/99-zz-hwtune.conf"
FOREIGN = "# Somebody else's, by coincidence of this name.\nvm.swappiness = 30\n"
COMMAND_LINE = "root=/dev/vda1 quiet isolcpus=1"

# what a boot sets anew, and to what
DEFAULTS = {
    "/proc/sys/vm/swappiness": "60",
    "/proc/sys/vm/stat_interval": "1",
    "/proc/sys/kernel/numa_balancing": "1",
    "/proc/sys/vm/dirty_bytes": "0",
    "/proc/sys/vm/dirty_ratio": "20",
    "/proc/sys/net/netfilter/nf_conntrack_max": "65536",
    THP: "[always] madvise never",
    GOVERNORS[0]: "powersave",
    GOVERNORS[1]: "powersave",
    DRIVE: "[mq-deadline] none",
    "/proc/irq/24/smp_affinity_list": "0-3",
    "/proc/irq/25/smp_affinity_list": "0-3",
    "/proc/irq/default_smp_affinity": "f",
}


def files() -> dict[str, Content]:
    return {
        **{path: value + "\n" for path, value in DEFAULTS.items()},
        BOOT_ID: "boot-1\n",
        "/proc/cmdline": COMMAND_LINE + "\n",
        "/proc/irq/24/eth0-rx-0": Directory(),
        "/proc/irq/25/eth0-tx-0": Directory(),
        "/proc/irq/24/node": "-1\n",
        "/proc/sys/kernel/osrelease": "6.1.0-18-amd64\n",
        "/sys/block/nvme0n1/wwid": "eui.0025385b71b02f3c\n",
        "/sys/devices/system/cpu/online": "0-3\n",
        "/etc/sysctl.conf": "# empty\n",
        "/etc/sysctl.d/99-sysctl.conf": Link("../sysctl.conf"),
        SYSCTL_D: FOREIGN,
        "/etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet isolcpus=1"\n',
        "/etc/default/grub.d": Directory(),
        "/usr/sbin/grub-mkconfig": "for x in ${sysconfdir}/default/grub.d/*.cfg ; do\n",
        "/usr/sbin/update-grub": "#!/bin/sh\n",
        MENU: menu(COMMAND_LINE),
        f"{UNITS}/tuned.service": "enabled active\n",
        "/etc/systemd/system": Directory(),
        "/etc/udev/rules.d": Directory(),
        "/etc/motd": "Only mind the gap.\n",
        "/var/lib": Directory(),
    }


def make(folder: Path) -> FakeKernel:
    root = tree(folder / "root", files())
    (root / SYSCTL_D.lstrip("/")).chmod(0o640)
    return FakeKernel(str(root), COMMAND_LINE)


def changes() -> list[kinds.Change]:
    """One of nearly every kind; some with several parts."""
    return [
        kinds.SysctlChange("vm.swappiness", "1"),
        kinds.SysctlChange("kernel.numa_balancing", "0"),
        kinds.SysctlChange("vm.dirty_bytes", "268435456", clears=("vm.dirty_ratio",)),
        kinds.SysctlChange("net.netfilter.nf_conntrack_max", "131072"),
        kinds.SysfsAttribute(THP, "never"),
        kinds.SysfsAttribute(GOVERNORS[0], "performance"),
        kinds.SysfsAttribute(GOVERNORS[1], "performance"),
        kinds.SysfsAttribute(DRIVE, "none", persist="udev"),
        kinds.IrqAffinity(24, (0, 1), (2, 3)),
        kinds.DefaultIrqAffinity((0, 1)),
        kinds.UnitState("tuned.service", "stopped"),
        kinds.KernelArguments(set=("isolcpus=domain,managed_irq,2-3", "nohz_full=2-3")),
        kinds.ModuleOption("nvidia", "NVreg_NvLinkDisable", "0"),
        kinds.FileContent("/etc/motd", "Tuned for latency.\n"),
        kinds.FileContent("/etc/hwtune.d/notes/box", "two\nlines\n", 0o600),
    ]


def findings(wanted: Sequence[Any]) -> list[RowResult]:
    """What a row would say that asks for these changes."""
    finding = Finding("machine", "made for a test", [], list(wanted))
    return [RowResult("test.row", "finding", "warning", "runtime", "", "", [finding], [], [])]
