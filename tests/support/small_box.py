"""A small Debian with one thing of nearly every kind that hwtune changes, and changes for all of them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hwtune.changes import apply as apply_
from hwtune.changes import kinds
from hwtune.changes import revert as revert_
from hwtune.changes.journal import Journal
from hwtune.changes.ledger import Ledger
from hwtune.changes.plan import Plan, make_plan
from hwtune.changes.verify import Verified, verify
from hwtune.diagnosis.engine import RowResult
from hwtune.diagnosis.verdict import Finding
from tests.support import Content, Directory, Link, tree
from tests.support.fake_kernel import BOOT_ID, MENU, UNITS, FakeKernel, Tree, menu

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from hwtune.changes.apply import Applied
    from hwtune.changes.revert import WayBack

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
        "/proc/swaps": "Filename Type Size Used Priority\n/dev/vda2 partition 8388604 0 -2\n",
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


class Box:
    """The small box with its journal beside it, and what hwtune does to it."""

    def __init__(self, folder: Path, extra: Mapping[str, Content] | None = None) -> None:
        self.kernel = make(folder)
        tree(folder / "root", extra or {})
        self.root = folder / "root"
        self.tree = Tree(self.kernel.root)
        self.folder = str(folder / "hwtune")
        self.journal = Journal(self.folder)
        self.boots = 1

    @property
    def ledger(self) -> Ledger:
        return Ledger(Journal(self.folder).records().records)

    def plan(
        self, *wanted: Any, allow: Sequence[str] = ("boot", "service", "link"), runtime_only: bool = False
    ) -> Plan:
        return make_plan(findings(wanted), self.kernel, self.ledger, allow, runtime_only)

    def rehearse(self, *wanted: Any, **options: Any) -> Applied:
        return apply_.rehearse(self.plan(*wanted, **options), Journal(self.folder), self.kernel)

    def apply(self, *wanted: Any, **options: Any) -> Applied:
        with self._open() as journal:
            plan = self.plan(*wanted, **options)
            return apply_.apply(plan, journal, self.kernel, "hwtune apply")

    def revert(self, *ids: str | None, force: bool = False) -> WayBack:
        """These sets, or all."""
        with self._open() as journal:
            return revert_.revert_all(self._sets(ids), journal, self.kernel, force)

    def rehearse_revert(self, *ids: str | None, force: bool = False) -> WayBack:
        return revert_.rehearse(self._sets(ids), Journal(self.folder), self.kernel, force)

    def verify(self) -> dict[str, Verified]:
        return {v.target: v for v in verify(self.ledger, self.kernel, None)}

    def reboot(self) -> None:
        """The kernel's values go back to what a boot gives; nobody sets any."""
        self.boots += 1
        self.kernel.put(BOOT_ID, f"boot-{self.boots}\n")
        for path, value in DEFAULTS.items():
            self.kernel.put(path, value + "\n")

    def read(self, path: str) -> str:
        return self.kernel.content(path).rstrip("\n")

    def _sets(self, ids: Sequence[str | None]) -> list[Any]:
        ledger = self.ledger
        return [ledger.sets[str(i)] for i in ids] if ids else list(reversed(ledger.active_sets()))

    @contextmanager
    def _open(self) -> Iterator[Journal]:
        journal = Journal(self.folder)
        journal.open("a test")
        try:
            yield journal
        finally:
            journal.close()
