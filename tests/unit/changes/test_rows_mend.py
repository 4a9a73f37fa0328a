"""Every change that a row carries makes that row content: diagnose, plan, apply, (boot,) diagnose again.

The machine is the rich box of ``tests.support.rich`` with one thing wrong. Its kernel, systemd, boot
loader, ethtool and NVML are made of files and answers that the changes really alter.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import pytest

import hwtune.remediations
from hwtune.changes import apply as applying
from hwtune.changes import kinds, revert
from hwtune.changes.journal import Journal
from hwtune.changes.ledger import Ledger
from hwtune.changes.persist import boot_unit, cpu_latency
from hwtune.changes.plan import make_plan
from hwtune.diagnosis.engine import RowResult, judge, probe
from hwtune.diagnosis.table import find, table
from hwtune.profile import load
from hwtune.text import cmdline
from hwtune.text.cpulist import format_list, parse_list
from hwtune.text.isolcpus import parse_isolcpus
from tests.support import Content, Directory, Link, fake_nvme, nvme_box, quiet, rich, tree
from tests.support.changes import ToolHost
from tests.support.fake_kernel import UNITS, FakeKernel, Tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hwtune.host.base import CommandResult

CPU = quiet.CPU
THP = "/sys/kernel/mm/transparent_hugepage"
_ALLOW = ("boot", "service", "link")
_NETLINK = {"rx-usecs": "rx_usecs", "adaptive-rx": "use_adaptive_rx"}
_GROUPS = {"-C": "coalescing", "-G": "rings", "-L": "channels", "-K": "features", "-A": "pause"}
_NVML = {
    "persistence": "nvmlDeviceGetPersistenceMode",
    "power-limit": "nvmlDeviceGetEnforcedPowerLimit",
    "compute-mode": "nvmlDeviceGetComputeMode",
}


class Host(ToolHost):
    """What libraries answer is changed by programs: ethtool, the child that speaks NVML, systemctl."""

    answers: dict[tuple[Any, ...], Any]

    def ask(self, library: str, *arguments: Any) -> Any:
        from hwtune.fact import ABSENT, Fact

        key = (library, *map(str, arguments))
        source = f"{library}({', '.join(map(str, arguments))})"
        if key in self.answers:
            return Fact(self.answers[key], source, None)
        return Fact(None, source, ABSENT)


class Sick:
    """The rich box, as a machine that can be changed and booted."""

    def __init__(
        self,
        folder: Path,
        files: Mapping[str, Content],
        answers: Mapping[tuple[str, ...], Any],
        effects: Mapping[str, Mapping[str, str]],
    ) -> None:
        own: dict[str, Content] = {
            **rich.files(),
            "/proc/sys/kernel/random/boot_id": "boot-1\n",
            "/usr/sbin/grub-mkconfig": "for x in ${sysconfdir}/default/grub.d/*.cfg ; do\n",
            "/usr/sbin/update-grub": "#!/bin/sh\n",
            "/etc/default/grub.d": Directory(),
            "/var/lib": Directory(),
            "/dev/cpu_dma_latency": "",
            f"{UNITS}/irqbalance.service": "enabled active\n",
            # what finds these settings in another place, or finds none, is no part of a quiet box
            "/etc/sysctl.conf": "",
            "/etc/sysctl.d/90-box.conf": "",
        }
        removed = [path for path, content in files.items() if content is None]
        own.update({path: content for path, content in files.items() if content is not None})
        root = tree(folder / "root", {p: c for p, c in own.items() if p not in removed})
        line = str(own["/proc/cmdline"]).strip()
        self.kernel = FakeKernel(str(root), line.partition(" ")[2])
        self.kernel.effects = effects
        tools = {
            **self.kernel.host.tools,  # type: ignore[attr-defined]
            "systemctl": self._systemctl,
            "ethtool": self._ethtool,
            os.path.basename(sys.executable): self._nvml,
        }
        self.host = Host(str(root), tools, {})
        self.host.answers = {(name, *map(str, words)): answer for name, words, answer in rich.answers()}
        boot_log = [[5, 0.0, "Linux version 6.1.0-13-amd64 (a@b) (gcc) #1 SMP PREEMPT_DYNAMIC"]]
        self.host.answers |= {("kmsg",): boot_log}
        for key, answer in answers.items():
            old = self.host.answers.get(key)
            self.host.answers[key] = (
                {**old, **answer} if isinstance(answer, dict) and isinstance(old, dict) else answer
            )
        self._real_systemctl = self.kernel.host.tools["systemctl"]  # type: ignore[attr-defined]
        self.kernel.host = self.host
        self.tree = Tree(str(root))
        self.folder = str(folder / "journal")
        write = self.kernel.write_attribute

        def through(path: str, value: str) -> None:
            write(path, value)
            if path.endswith("pm_qos_latency_tolerance_us"):  # the kernel then programs the drive
                drive = nvme_box.controller({0x0C: (0 if value == "0" else 1, fake_nvme.apst((0, 2, 100)))})
                self.host.answers["nvme_admin", "nvme0"] = fake_nvme.said(drive)

        self.kernel.write_attribute = through  # type: ignore[method-assign]
        menu = files.get("/boot/grub/grub.cfg")
        if menu:
            self.kernel.configured = menu.split("/vmlinuz ")[1].partition("\n")[0]
        else:
            self.kernel.put("/boot/grub/grub.cfg", _menu(line))

    # -- programs -----------------------------------------------------------------------

    def _systemctl(self, argv: Sequence[str]) -> CommandResult | str:
        said: CommandResult | str = self._real_systemctl(argv)
        words = [w for w in argv[1:] if not w.startswith("--")]
        unit = words[1] if len(words) > 1 else ""
        starts = words[0] in ("start", "restart", "try-restart")
        if unit == cpu_latency.UNIT and words[0] in ("restart", "stop"):
            service = self.host.text(f"/etc/systemd/system/{unit}")
            held = int(service.get().split("hold_latency ")[1].split()[0]) if starts else 2_000_000_000
            self.host.answers["cpu_latency",] = held
            self.kernel.put(f"{UNITS}/{unit}", "enabled active\n")
            if not starts:
                os.unlink(f"{self.kernel.root}{UNITS}/{unit}")
        if unit == "nvidia-persistenced.service" and starts:
            self._gpu()["nvmlDeviceGetPersistenceMode"] = {"value": 1}
        # what enables a unit is a link, which doctor looks at
        wants = "timers" if unit.endswith(".timer") else "multi-user"
        place = f"{self.kernel.root}/etc/systemd/system/{wants}.target.wants/{unit}"
        if words[0] == "disable" and os.path.lexists(place):
            os.unlink(place)
        if words[0] == "enable" and not os.path.lexists(place):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.symlink(f"/usr/lib/systemd/system/{unit}", place)
        groups = f"{self.kernel.root}/sys/fs/cgroup/system.slice/{unit}"
        if words[0] == "stop" and os.path.isdir(groups):
            shutil.rmtree(groups)
        if starts and unit.endswith(".service") and not unit.startswith("hwtune"):
            os.makedirs(groups, exist_ok=True)
            if not os.path.exists(f"{groups}/cgroup.procs"):
                Path(groups, "cgroup.procs").write_text("800\n")
        if unit == "hot.slice":
            self._partition(words[0], words[2:])
        if unit == "nvidia-fabricmanager.service" and starts:
            self._gpu()["nvmlDeviceGetGpuFabricInfo"]["value"]["state"] = 3
        return said

    def _partition(self, verb: str, properties: Sequence[str]) -> None:
        """systemd makes and removes the group, and hands the controller on to it."""
        folder = Path(f"{self.kernel.root}/sys/fs/cgroup/hot.slice")
        if verb == "start":
            folder.mkdir()
            self.kernel.put("/sys/fs/cgroup/cgroup.subtree_control", "cpuset cpu memory pids\n")
            for name, text in (("cpuset.cpus.partition", "member"), ("cpuset.cpus", "")):
                folder.joinpath(name).write_text(f"{text}\n")
        elif verb == "set-property":
            for name in ("cpuset.cpus", "cpuset.cpus.effective"):
                folder.joinpath(name).write_text(properties[0].partition("=")[2] + "\n")
        elif verb == "stop":
            shutil.rmtree(folder)
            self.kernel.put("/sys/fs/cgroup/cgroup.subtree_control", "cpu memory pids\n")

    def _ethtool(self, argv: Sequence[str]) -> str:
        settings = self.host.answers["ethtool", "settings", argv[2]]
        group = settings[_GROUPS[argv[1]]]
        for name, value in zip(argv[3::2], argv[4::2], strict=True):
            old = group[_NETLINK.get(name, name)]
            switch = {"on": True, "off": False}.get(value)
            group[_NETLINK.get(name, name)] = type(old)(int(value) if switch is None else switch)
        return ""

    def _gpu(self) -> dict[str, Any]:
        found: dict[str, Any] = self.host.answers["nvml",]["gpus"][0]
        return found

    def _nvml(self, argv: Sequence[str]) -> str:
        verb, address, setting, value = argv[-4:]
        assert address == rich.GPU
        calls = self._gpu()
        if setting == "locked-clocks":
            if verb == "set" and value != "unlocked":
                calls["nvmlDeviceGetClockInfo(sm)"] = {"value": int(value.partition(",")[0])}
            return json.dumps({"value": [calls["nvmlDeviceGetClockInfo(sm)"]["value"], 1]})
        if verb == "set":
            calls[_NVML[setting]] = {"value": int(value)}
        return json.dumps({"value": calls[_NVML[setting]]["value"]})

    # -- the machine --------------------------------------------------------------------

    def ask(self, row: str, profile: str, settings: Sequence[str]) -> RowResult:
        machine, defects = probe(self.host)
        assert defects == []
        diagnosis = judge(machine, [find(table(), row)], load(profile, settings))
        assert diagnosis.defects == []
        return diagnosis.results[0]

    def apply(self, result: RowResult) -> applying.Applied:
        journal = Journal(self.folder)
        journal.open("a test")
        try:
            plan = make_plan([result], self.kernel, Ledger(journal.records().records), _ALLOW)
            return applying.apply(plan, journal, self.kernel, "apply")
        finally:
            journal.close()

    def revert(self) -> revert.WayBack:
        journal = Journal(self.folder)
        journal.open("a test")
        try:
            sets = Ledger(journal.records().records).active_sets()
            return revert.revert_all(sets[::-1], journal, self.kernel)
        finally:
            journal.close()

    def boot(self, more: Mapping[str, str]) -> None:
        """The next boot, with what the menu gives; ``more``: what follows from it."""
        given = self.kernel.next_command_line()
        self.kernel.put("/proc/cmdline", f"BOOT_IMAGE=/vmlinuz {given}\n")
        arguments = cmdline.parse(given)
        isolated = next(
            (
                p.cpus
                for a in arguments
                if a.name == "isolcpus" and (p := parse_isolcpus(a.value or "", 7)).domain
            ),
            [],
        )
        tickless = [c for a in arguments if a.name == "nohz_full" for c in parse_list(a.value or "") if c]
        affinity = [parse_list(a.value or "") for a in arguments if a.name == "irqaffinity"]
        self.kernel.put(f"{CPU}/isolated", format_list(isolated) + "\n")
        self.kernel.put(f"{CPU}/nohz_full", format_list(tickless) + "\n")
        if affinity:
            mask = sum(1 << c for c in affinity[-1])
            self.kernel.put("/proc/irq/default_smp_affinity", f"{mask:x}\n")
        tasks = f"{','.join(filter(None, (format_list(sorted({*isolated, *tickless})),)))}"
        self.host.answers["processes", "tasks", tasks] = quiet.PINNED
        for path, content in more.items():
            self.kernel.put(path, content)


def _menu(line: str) -> str:
    return f"set default=0\nmenuentry 'Debian' {{\n\tlinux /vmlinuz {line.partition(' ')[2]}\n}}\n"


@dataclass
class Case:
    """``row`` finds fault with the box once ``files`` and ``answers`` are so (a None is no file), and
    is content after its change; ``boot``: what follows from the boot that it takes, None where it takes none.
    ``effects``: what else the kernel does on a write. ``since_boot``: it judges what was counted since
    the boot, so that it is content with the next one; until then it asks for nothing more."""

    row: str
    files: dict[str, Any] = field(default_factory=dict)
    answers: dict[tuple[str, ...], Any] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    boot: dict[str, str] | None = None
    profile: str = "low-latency"
    label: str = ""
    effects: dict[str, dict[str, str]] = field(default_factory=dict)
    since_boot: bool = False


def args(replaced: str = "", by: str = "", add: str = "") -> dict[str, str]:
    line = quiet.CMDLINE.replace(replaced, by) if replaced else quiet.CMDLINE
    assert not replaced or line != quiet.CMDLINE
    line = f"{line} {add}".strip()
    return {"/proc/cmdline": line + "\n", "/boot/grub/grub.cfg": _menu(line)}


def nic(**groups: Any) -> dict[tuple[str, ...], Any]:
    settings = next(
        dict(a) for name, words, a in rich.answers() if (name, *words) == ("ethtool", "settings", "eth0")
    )
    changed = {
        name: {**settings[name], **values} if isinstance(values, dict) else values
        for name, values in groups.items()
    }
    return {("ethtool", "settings", "eth0"): changed}


def nvml(**calls: Any) -> dict[tuple[str, ...], Any]:
    answer = next(a for name, words, a in rich.answers() if name == "nvml")
    for name, value in calls.items():
        answer["gpus"][0][name] = {"value": value}
    return {("nvml",): answer}


def irqs(**changed: tuple[Any, ...]) -> dict[str, str]:
    """The interrupts of the quiet box, with some of them in another way (by "irq24")."""
    all_ = {**quiet.IRQS, **{int(n[3:]): value for n, value in changed.items()}}
    files: dict[str, Any] = quiet.irq_files(all_)
    for number, (_, _, actions, *_) in all_.items():
        files[f"/proc/irq/{number}/{actions}/.keep"] = ""
        # a fake kernel has the interrupt served where it was asked to be
    return files


ETH, DRIVE_Q0 = quiet.IRQS[24], quiet.IRQS[30]
POLICIES = [f"{CPU}/cpufreq/policy{n}" for n in range(8)]
LINK = f"/sys/devices/pci0000:00/0000:00:02.0/{rich.DRIVE}/link"
FAR = {f"/sys/devices/system/node/{name}": content for name, content in {"online": "0-1\n"}.items()}
NVPARAMS = "/proc/driver/nvidia/params"
SERIAL = "console=ttyS0,115200"
_BUSY = [9_000_000, 0, 0, 0, 0, 0, 0, 0]
CASES = [
    # memory
    Case("memory.swappiness", {"/proc/sys/vm/swappiness": "60\n"}),
    Case("memory.numa-balancing", {"/proc/sys/kernel/numa_balancing": "1\n"}),
    Case("memory.zone-reclaim", {"/proc/sys/vm/zone_reclaim_mode": "1\n"}),
    Case("memory.compaction", {"/proc/sys/vm/compaction_proactiveness": "20\n"}),
    Case("memory.compact-unevictable", {"/proc/sys/vm/compact_unevictable_allowed": "1\n"}),
    Case("memory.dirty-limits", label="ratios"),
    Case(
        "memory.dirty-limits",
        {"/proc/sys/vm/dirty_bytes": f"{64 << 30}\n", "/proc/sys/vm/dirty_ratio": "0\n"},
        label="bytes",
    ),
    Case("memory.transparent-hugepages", {f"{THP}/enabled": "[always] madvise never\n"}),
    Case("memory.thp-defrag", {f"{THP}/defrag": "[always] defer defer+madvise madvise never\n"}),
    Case("memory.khugepaged", {f"{THP}/enabled": "[always] madvise never\n"}),
    Case(
        "memory.ksm",
        {
            "/sys/kernel/mm/ksm/run": "1\n",
            "/sys/kernel/mm/ksm/pages_sharing": "9000\n",
            "/sys/kernel/mm/ksm/pages_shared": "90\n",
        },
        effects={
            "/sys/kernel/mm/ksm/run": {
                "/sys/kernel/mm/ksm/pages_sharing": "0\n",
                "/sys/kernel/mm/ksm/pages_shared": "0\n",
            }
        },
    ),
    # CPUs
    Case("cpu.governor", {f"{p}/scaling_governor": "powersave\n" for p in POLICIES}),
    Case("cpu.frequency-limits", {f"{p}/scaling_max_freq": "2000000\n" for p in POLICIES}, label="highest"),
    Case(
        "cpu.frequency-limits",
        {
            f"{p}/{name}": value
            for p in POLICIES
            for name, value in (("scaling_governor", "schedutil\n"), ("scaling_min_freq", "800000\n"))
        },
        settings=("cpu.min_frequency_pct=100",),
        label="lowest",
    ),
    Case("cpu.turbo", settings=("cpu.turbo=off",)),
    Case(
        "cpu.energy-preference",
        {
            f"{p}/{name}": value
            for p in POLICIES
            for name, value in (
                ("scaling_governor", "powersave\n"),
                ("energy_performance_preference", "balance_power\n"),
                (
                    "energy_performance_available_preferences",
                    "default performance balance_performance power\n",
                ),
            )
        },
        settings=("cpu.governor=powersave",),
    ),
    Case("cpu.energy-bias", {f"{CPU}/cpu{n}/power/energy_perf_bias": "15\n" for n in range(8)}),
    Case("cpu.idle-states", {f"{CPU}/cpu{n}/cpuidle/state3/disable": "0\n" for n in range(8)}, label="each"),
    Case(
        "cpu.idle-states",
        {
            **args(quiet.CMDLINE.partition(" ro ")[2], "quiet"),
            **{f"{CPU}/cpu{n}/cpuidle/state3/disable": "0\n" for n in range(8)},
            f"{CPU}/isolated": "\n",
            f"{CPU}/nohz_full": "\n",
        },
        label="request",
    ),
    Case(
        "cpu.offline",
        {f"{CPU}/online": "0-6\n", f"{CPU}/offline": "7\n", f"{CPU}/cpu7/online": "0\n"},
        effects={f"{CPU}/cpu7/online": {f"{CPU}/online": "0-7\n", f"{CPU}/offline": "\n"}},
    ),
    Case("cpu.idle-poll", args(add="idle=poll"), boot={}),
    # isolation
    Case(
        "isolation.isolcpus",
        {**args("isolcpus=domain,managed_irq,2-3,6-7 "), f"{CPU}/isolated": "\n"},
        boot={},
    ),
    Case(
        "isolation.isolcpus",
        {
            **args("isolcpus=domain,managed_irq,2-3,6-7 "),
            f"{CPU}/isolated": "\n",
            "/run/systemd/system": Directory(),
        },
        settings=("isolation.method=partition",),
        label="partition",
    ),
    Case(
        "isolation.domain-flag", {**args("isolcpus=domain,", "isolcpus="), f"{CPU}/isolated": "\n"}, boot={}
    ),
    Case(
        "isolation.managed-irq",
        {
            **args("isolcpus=domain,managed_irq,", "isolcpus=domain,"),
            **irqs(irq31=([500, 0, 0, 0, 0, 0, 0, 0], *quiet.IRQS[31][1:3], "0,2", "2", 1)),
        },
        boot={},
    ),
    Case("isolation.nohz-full", {**args("nohz_full=2-3,6-7 "), f"{CPU}/nohz_full": "\n"}, boot={}),
    Case(
        "isolation.boot-cpu",
        {
            **args("isolcpus=domain,managed_irq,2-3,6-7", "isolcpus=domain,managed_irq,0,2-4,6-7"),
            f"{CPU}/isolated": "0,2-4,6-7\n",
        },
        boot={},
    ),
    Case(
        "isolation.smt-split",
        {
            **args("isolcpus=domain,managed_irq,2-3,6-7", "isolcpus=domain,managed_irq,2-3,6"),
            f"{CPU}/isolated": "2-3,6\n",
            f"{CPU}/nohz_full": "2-3,6\n",
        },
        boot={},
    ),
    Case("isolation.kernel-args", args(add="mce=off"), boot={}, label="machine-checks"),
    Case("isolation.kernel-args", args(add="nohz=off"), boot={}, label="tick"),
    Case(
        "isolation.kernel-args", args("isolcpus=domain,", "isolcpus=domian,domain,"), boot={}, label="flags"
    ),
    Case("isolation.workqueues", {"/sys/devices/virtual/workqueue/cpumask": "ff\n"}),
    Case("isolation.rt-throttling", {"/proc/sys/kernel/sched_rt_runtime_us": "500000\n"}),
    Case("isolation.watchdog", {"/proc/sys/kernel/watchdog_cpumask": "0-7\n"}),
    # interrupts
    Case(
        "irq.on-isolated",
        irqs(irq24=([0, 900, 800, 0, 0, 0, 0, 0], *ETH[1:3], "2-3", "2", 0)),
        effects={"/proc/irq/24/smp_affinity_list": {"/proc/irq/24/effective_affinity_list": "0\n"}},
    ),
    Case("irq.default-affinity", {"/proc/irq/default_smp_affinity": "ff\n"}),
    Case("irq.irqaffinity-arg", args("irqaffinity=0-1,4-5", "irqaffinity=0-3"), boot={}),
    Case("irq.irqbalance", {"/etc/default/irqbalance": "IRQBALANCE_BANNED_CPULIST=2\n"}),
    Case(
        "irq.one-cpu",
        irqs(**{f"irq{n}": (_BUSY, *quiet.IRQS[n][1:3], "0-1,4-5", "0", 0) for n in (24, 25, 30)}),
        effects={f"/proc/irq/{n}/smp_affinity_list": {} for n in (24, 25, 30)},
        since_boot=True,
    ),
    Case(
        "irq.numa-distance",
        {
            **irqs(irq24=([0, 0, 0, 0, 0, 9_000_000, 0, 0], *ETH[1:3], "2-3", "2", 0)),
            **args(
                "isolcpus=domain,managed_irq,2-3,6-7 nohz_full=2-3,6-7 rcu_nocbs=2-3,6-7 irqaffinity=0-1,4-5",
                "quiet",
            ),
            f"{CPU}/isolated": "\n",
            f"{CPU}/nohz_full": "\n",
        },
        effects={"/proc/irq/24/smp_affinity_list": {"/proc/irq/24/effective_affinity_list": "0\n"}},
    ),
    # the kernel
    Case("clock.source", {"/sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n"}),
    Case(
        "clock.source",
        {
            **args(add="clocksource=hpet"),
            "/sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n",
        },
        boot={},
        label="forced",
    ),
    Case(
        "kernel.args-pending",
        {
            "/boot/grub/grub.cfg": _menu(quiet.CMDLINE.replace(" nohz_full=2-3,6-7", "")),
            "/etc/default/grub": 'GRUB_CMDLINE_LINUX=""\nGRUB_CMDLINE_LINUX_DEFAULT='
            f'"{quiet.CMDLINE.partition("ro ")[2].replace("nohz_full=2-3,6-7 ", "")}"\n',
        },
        boot={},
    ),
    Case("kernel.args-debug", args(add="slub_debug=FZ"), boot={}),
    Case("kernel.args-duplicate", args(add="mitigations=auto mitigations=off"), boot={}),
    Case("kernel.args-ignored", args(add="elevator=noop"), boot={}, label="elevator"),
    Case("kernel.args-ignored", args(add="pcie_aspm=off"), boot={}, label="aspm"),
    Case(
        "kernel.args-ignored",
        {**args(add="intel_idle.max_cstate=0"), f"{CPU}/cpuidle/current_driver": "acpi_idle\n"},
        boot={f"{CPU}/cpuidle/current_driver": "intel_idle\n"},
        label="idle",
    ),
    Case("kernel.serial-console", {**args(add=SERIAL), "/proc/sys/kernel/printk": "7 4 1 7\n"}),
    # PCI
    Case(
        "pcie.aspm",
        {f"{LINK}/l1_aspm": "1\n", f"{LINK}/l0s_aspm": "0\n"},
    ),
    Case(
        "pcie.runtime-pm",
        {
            f"/sys/devices/pci0000:00/0000:00:02.0/{rich.DRIVE}/power/{name}": value
            for name, value in (("control", "auto\n"), ("runtime_status", "suspended\n"))
        },
    ),
    Case(
        "pcie.iommu",
        {f"/sys/kernel/iommu_groups/{n}/type": "DMA\n" for n in range(3)},
        settings=("pcie.iommu_types=identity",),
        boot={f"/sys/kernel/iommu_groups/{n}/type": "identity\n" for n in range(3)},
    ),
    # drives
    Case("nvme.apst", boot={}),
    Case("nvme.scheduler", {"/sys/block/nvme0n1/queue/scheduler": "[bfq] mq-deadline none\n"}),
    # GPUs
    Case("gpu.persistence", answers=nvml(nvmlDeviceGetPersistenceMode=0)),
    Case(
        "gpu.persistence",
        {
            "/usr/lib/systemd/system/nvidia-persistenced.service": "[Service]\n",
            f"{UNITS}/nvidia-persistenced.service": "disabled inactive\n",
        },
        answers=nvml(nvmlDeviceGetPersistenceMode=0),
        label="daemon",
    ),
    Case("gpu.clocks", settings=("gpu.locked_clocks=true",)),
    Case("gpu.power-limit", answers=nvml(nvmlDeviceGetEnforcedPowerLimit=300_000)),
    Case("gpu.compute-mode", answers=nvml(nvmlDeviceGetComputeMode=2)),
    Case(
        "nvlink.disabled-by-env",
        {
            NVPARAMS: "NvLinkDisable: 1\n",
            "/etc/modprobe.d/nvidia.conf": "options nvidia NVreg_NvLinkDisable=1\n",
        },
        boot={NVPARAMS: "NvLinkDisable: 0\n"},
        label="option",
    ),
    Case("nvlink.disabled-by-env", {NVPARAMS: "NvLinkDisable: 1\n"}, boot={NVPARAMS: "NvLinkDisable: 0\n"}),
    Case(
        "nvlink.fabric-manager",
        {
            **{
                f"/sys/bus/pci/devices/0000:c{n}:00.0/{name}": value
                for n in range(4)
                for name, value in (("class", "0x068000\n"), ("vendor", "0x10de\n"), ("device", "0x22a3\n"))
            },
            "/usr/lib/systemd/system/nvidia-fabricmanager.service": "[Service]\n",
            f"{UNITS}/nvidia-fabricmanager.service": "disabled inactive\n",
        },
        answers=nvml(
            nvmlDeviceGetGpuFabricInfo={"state": 1, "status": 0, "healthMask": 0, "healthSummary": 1}
        ),
    ),
    # the network
    Case("nic.coalescing"),
    Case(
        "nic.irq-deferral",
        {
            "/sys/class/net/eth0/napi_defer_hard_irqs": "2\n",
            "/sys/class/net/eth0/gro_flush_timeout": "200000\n",
        },
    ),
    Case("nic.channels", answers=nic(channels={"combined": 8})),
    Case("nic.offloads", answers=nic(features={"rx-lro": True}, changeable=["rx-gro", "rx-lro"])),
    Case("nic.pause", answers=nic(pause={"rx_frames": 90_000})),
    Case("nic.rings", {"/sys/class/net/eth0/statistics/rx_missed_errors": "90000\n"}),
    Case("nic.rps", {"/sys/class/net/eth0/queues/rx-0/rps_cpus": "ff\n"}),
    Case("nic.busy-poll", settings=("nic.busy_poll_us=50",)),
    Case(
        "nic.softnet",
        {
            "/proc/net/dev": "Inter-|   Receive\n"
            " face |bytes    packets errs drop fifo frame compressed multicast\n"
            "  eth0: 90000000 800000 0 0 0 0 0 0 1000 1000 0 0 0 0 0 0\n",
            "/proc/net/softnet_stat": "".join(
                f"{100_000:08x} {5_000:08x} 00000000" + " 00000000" * 9 + f" {cpu:08x}\n" for cpu in range(8)
            ),
        },
        since_boot=True,
    ),
    # services
    Case(
        "service.smi-timers",
        {
            "/etc/systemd/system/timers.target.wants/fwupd-refresh.timer": Link(
                "/usr/lib/systemd/system/fwupd-refresh.timer"
            ),
            "/usr/lib/systemd/system/fwupd-refresh.timer": "[Timer]\n",
            f"{UNITS}/fwupd-refresh.timer": "enabled active\n",
        },
    ),
    Case(
        "service.tuner-conflict",
        {
            **{
                f"/usr/lib/systemd/system/{n}.service": "[Service]\n"
                for n in ("tuned", "power-profiles-daemon")
            },
            **{
                f"/etc/systemd/system/multi-user.target.wants/{n}.service": Link(
                    f"/usr/lib/systemd/system/{n}.service"
                )
                for n in ("tuned", "power-profiles-daemon")
            },
            **{
                f"/sys/fs/cgroup/system.slice/{n}.service/cgroup.procs": "800\n"
                for n in ("tuned", "power-profiles-daemon")
            },
            **{f"{UNITS}/{n}.service": "enabled active\n" for n in ("tuned", "power-profiles-daemon")},
        },
    ),
]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for module in (boot_unit, cpu_latency):
        monkeypatch.setattr(module, "interpreter", lambda: "/usr/bin/python3")
    place = Path(mkdtemp(prefix="hwtune-rows-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    yield place
    shutil.rmtree(place)


@pytest.mark.parametrize("case", CASES, ids=[f"{c.row}{'-' if c.label else ''}{c.label}" for c in CASES])
def test_change_of_a_row_makes_it_content(folder: Path, case: Case) -> None:
    sick = Sick(folder, case.files, case.answers, case.effects)
    pristine = sick.tree.state()
    result = sick.ask(case.row, case.profile, case.settings)
    assert result.outcome == "finding", (result.outcome, result.reason)
    assert any(f.changes for f in result.findings), [f.advice for f in result.findings]
    done = sick.apply(result)
    assert done.whole, ([(o.target, o.status, o.reason) for o in done.outcomes], done.problems)
    assert done.changed
    if case.boot is not None:
        assert done.reboot_required
        sick.boot(case.boot)
    after = sick.ask(case.row, case.profile, case.settings)
    if case.since_boot:
        assert not sick.apply(after).changed
        return
    assert after.outcome == "ok", (
        after.outcome,
        after.reason,
        [(f.subject, f.message) for f in after.findings],
    )
    if case.boot is None:
        # nothing is left to do, and the way back ends where it began
        assert not sick.apply(result).changed
        assert sick.revert().whole
        moved = {path for effect in case.effects.values() for path in effect}
        left = {p: s for p, s in sick.tree.state().items() if pristine.get(p) != s and p not in moved}
        assert left == {}
        assert pristine.keys() == sick.tree.state().keys()


# -- completeness ------------------------------------------------------------------------------


def rows_with_changes() -> set[str]:
    """The rows whose code makes a change, by following the names that their functions use."""
    made = {
        ("changes", n) for n, c in vars(kinds).items() if isinstance(c, type) and issubclass(c, kinds._Change)
    }
    uses: dict[tuple[str, str], set[tuple[str, str]]] = {}
    rows: dict[str, tuple[str, str]] = {}
    for file in Path(hwtune.remediations.__path__[0]).glob("*.py"):
        module = file.stem
        body = ast.parse(file.read_text()).body
        imported = {
            alias.asname or alias.name: ((node.module or "").rpartition(".")[2], alias.name)
            for node in body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in body:
            if not isinstance(node, ast.FunctionDef):
                continue
            found = uses.setdefault((module, node.name), set())
            for part in ast.walk(node):
                if isinstance(part, ast.Name):
                    found.add(imported.get(part.id, (module, part.id)))
                elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
                    found.add((imported.get(part.value.id, ("", ""))[1], part.attr))
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "row":
                    rows[ast.literal_eval(decorator.args[0])] = (module, node.name)

    def reached(start: tuple[str, str]) -> set[tuple[str, str]]:
        seen: set[tuple[str, str]] = set()
        pending = [start]
        while pending:
            at = pending.pop()
            if at not in seen:
                seen.add(at)
                pending += uses.get(at, ())
        return seen

    return {row for row, start in rows.items() if reached(start) & made}


def test_every_row_that_carries_a_change_has_its_case() -> None:
    assert rows_with_changes() - {case.row for case in CASES} == set()
