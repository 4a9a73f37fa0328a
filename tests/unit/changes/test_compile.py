"""Every kind of change on a machine made of files: set, kept across boots, read back, put back."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from hwtune.changes import boot, kinds
from hwtune.changes.compile import compile_change
from hwtune.changes.persist import boot_unit, udev_rules
from hwtune.changes.stores import Item, stores
from hwtune.changes.system import ChangeError
from hwtune.changes.targets import from_key
from hwtune.host.base import CommandResult
from tests.support import Directory, Link
from tests.support.changes import Machine, Systemd, failing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from hwtune.changes.system import System
    from tests.support import Content

THP = "/sys/kernel/mm/transparent_hugepage/enabled"
LINK = "/sys/bus/pci/devices/0000:41:00.0/link"
DRIVE = "/sys/block/nvme0n1"
NVME = "/sys/class/nvme/nvme0"

BOX: dict[str, Content] = {
    "/proc/sys/kernel/osrelease": "6.1.0-18-amd64\n",
    "/proc/sys/vm/swappiness": "60\n",
    "/proc/sys/vm/dirty_bytes": "0\n",
    "/proc/sys/vm/dirty_ratio": "20\n",
    "/proc/sys/kernel/printk": "7\t4\t1\t7\n",
    "/proc/sys/kernel/watchdog_cpumask": "0-7\n",
    "/proc/sys/net/ipv4/conf/eth0/arp_ignore": "0\n",
    "/sys/devices/system/cpu/online": "0-7\n",
    THP: "[always] madvise never\n",
    "/sys/devices/virtual/workqueue/cpumask": "000000ff\n",
    "/sys/module/kvm/parameters/halt_poll": "Y\n",
    f"{LINK}/l0s_aspm": "0\n",
    f"{LINK}/l1_aspm": "1\n",
    f"{LINK}/l1_1_aspm": "1\n",
    f"{LINK}/l1_2_aspm": "0\n",
    f"{DRIVE}/queue/scheduler": "none [mq-deadline] kyber\n",
    f"{DRIVE}/wwid": "eui.0025385b11b0a1c2\n",
    f"{NVME}/serial": "S4EWNX0R123456      \n",
    f"{NVME}/power/pm_qos_latency_tolerance_us": "100000\n",
    "/proc/irq/default_smp_affinity": "ff\n",
    "/dev/cpu_dma_latency": "",
    "/etc/systemd/system/multi-user.target.wants": Directory(),
}


def irq(number: int, cpus: str, action: str, node: str = "0") -> dict[str, Content]:
    folder = f"/proc/irq/{number}"
    return {
        f"{folder}/smp_affinity_list": f"{cpus}\n",
        f"{folder}/effective_affinity_list": f"{cpus}\n",
        f"{folder}/node": f"{node}\n",
        f"{folder}/{action}": Directory(),
    }


IRQS: dict[str, Content] = {
    **irq(24, "0-7", "eth0-TxRx-0"),
    **irq(25, "2", "eth0-TxRx-1"),
    **irq(30, "3", "nvme0q3"),
    "/sys/bus/pci/devices/0000:03:00.0/msi_irqs/24": "msix\n",
    "/sys/bus/pci/devices/0000:03:00.0/msi_irqs/25": "msix\n",
    "/sys/devices/system/node/node0/cpulist": "0-3\n",
}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return box(tmp_path)


def box(tmp_path: Path, more: Mapping[str, Content] | None = None, **libraries: Any) -> Machine:
    systemd = Systemd()
    made = Machine(
        tmp_path, {**BOX, **(more or {})}, {"systemctl": systemd, "udevadm": lambda a: ""}, libraries
    )
    made.systemd = systemd
    return made


def refuse(machine: Machine, path: str, number: int) -> None:
    """Writes to this attribute fail so."""
    write = machine.system.write_attribute

    def refusing(place: str, value: str) -> None:
        if place == path:
            raise ChangeError(f"cannot write {path}: {os.strerror(number)}", number)
        write(place, value)

    machine.system.write_attribute = refusing  # type: ignore[method-assign]


def as_kernel(machine: Machine, path: str, rewrite: Callable[[str], str]) -> None:
    """What the kernel shows after a write to this attribute."""
    write = machine.system.write_attribute

    def writing(place: str, value: str) -> None:
        write(place, rewrite(value) if place == path else value)

    machine.system.write_attribute = writing  # type: ignore[method-assign]


def reverts(machine: Machine, before: dict[str, tuple[str, int]]) -> None:
    reverted = machine.revert()
    assert reverted.whole, reverted
    assert machine.state() == before


def done(machine: Machine, *changes: kinds.Change) -> None:
    applied = machine.apply(*changes)
    assert [(o.status, o.reason) for o in applied.outcomes] == [("changed", "")] * len(changes)
    assert applied.problems == []
    again = machine.apply(*changes)
    assert again.set_id is None, again


# -- sysctls ----------------------------------------------------------------------------------


def test_sysctl_now_and_in_a_file_that_comes_last(machine: Machine) -> None:
    before = machine.state()
    done(machine, kinds.SysctlChange("vm.swappiness", "1"))
    assert machine.read("/proc/sys/vm/swappiness") == "1\n"
    assert machine.read("/etc/sysctl.d/99-zz-hwtune.conf").endswith("\nvm.swappiness = 1\n")
    reverts(machine, before)


def test_only_the_active_one_of_a_pair_is_kept(machine: Machine) -> None:
    before = machine.state()
    write = machine.system.write_attribute

    def as_vm(path: str, value: str) -> None:
        write(path, value)
        other = {"/proc/sys/vm/dirty_bytes": "dirty_ratio", "/proc/sys/vm/dirty_ratio": "dirty_bytes"}[path]
        write(f"/proc/sys/vm/{other}", "0")

    machine.system.write_attribute = as_vm  # type: ignore[method-assign]
    done(machine, kinds.SysctlChange("vm.dirty_bytes", "268435456"))
    assert machine.read("/proc/sys/vm/dirty_ratio") == "0\n"
    lines = machine.read("/etc/sysctl.d/99-zz-hwtune.conf").splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["vm.dirty_bytes = 268435456"]
    reverts(machine, before)


def test_first_of_several_numbers_leaves_the_others(machine: Machine) -> None:
    compiled = compile_change(kinds.SysctlChange("kernel.printk", "4"), machine.system)
    assert compiled.targets[0][1] == "4 4 1 7"
    assert compiled.items == [Item("sysctl", "kernel.printk", "4")]
    done(machine, kinds.SysctlChange("kernel.printk", "4"))


def test_a_list_of_cpus_is_compared_as_a_set(machine: Machine) -> None:
    as_kernel(machine, "/proc/sys/kernel/watchdog_cpumask", lambda value: "0,1,4-5")
    done(machine, kinds.SysctlChange("kernel.watchdog_cpumask", "0-1,4-5"))


def test_key_of_what_comes_late_is_set_once_more_at_the_end_of_boot(machine: Machine) -> None:
    key = "net.ipv4.conf.eth0.arp_ignore"
    items = compile_change(kinds.SysctlChange(key, "1"), machine.system).items
    path = "/proc/sys/net/ipv4/conf/eth0/arp_ignore"
    assert items == [Item("sysctl", key, "1"), Item("boot", f"attribute text {path}", "1")]
    assert len(compile_change(kinds.SysctlChange("vm.swappiness", "1"), machine.system).items) == 1


# -- attributes -------------------------------------------------------------------------------


def test_choice_in_brackets(machine: Machine) -> None:
    as_kernel(
        machine,
        THP,
        lambda value: "always [madvise] never" if value == "madvise" else "[always] madvise never",
    )
    before = machine.state()
    done(machine, kinds.SysfsAttribute(THP, "madvise"))
    listed = json.loads(machine.read("/etc/hwtune/boot.json"))
    assert listed == {"format": 1, "apply": [{"target": f"attribute choice {THP}", "value": "madvise"}]}
    assert os.stat(machine.root / "etc/hwtune/boot.json").st_mode & 0o777 == 0o600
    wants = machine.root / "etc/systemd/system/multi-user.target.wants/hwtune-boot.service"
    assert os.readlink(wants) == "../hwtune-boot.service"
    reverts(machine, before)


def test_choice_that_is_not_offered(machine: Machine) -> None:
    outcome = machine.apply(kinds.SysfsAttribute(f"{DRIVE}/queue/scheduler", "bfq", "udev")).outcomes[0]
    assert outcome.status == "failed"
    assert outcome.reason == f"{DRIVE}/queue/scheduler has no bfq, only none, mq-deadline, kyber"


def test_mask_and_module_parameter(machine: Machine) -> None:
    path = "/sys/module/kvm/parameters/halt_poll"
    as_kernel(machine, "/sys/devices/virtual/workqueue/cpumask", lambda value: f"{int(value, 16):08x}")
    done(
        machine,
        kinds.SysfsAttribute("/sys/devices/virtual/workqueue/cpumask", "33"),
        kinds.SysfsAttribute(path, "0"),
    )
    assert machine.read(path) == "N\n"


def test_aspm_of_a_link_comes_back_state_by_state(machine: Machine) -> None:
    """The files behave as drivers/pci/pcie/aspm.c has them: L1 takes its substates along."""
    write = machine.system.write_attribute

    def as_aspm(path: str, value: str) -> None:
        write(path, value)
        if path == f"{LINK}/l1_aspm" and value == "0":
            write(f"{LINK}/l1_1_aspm", "0")
            write(f"{LINK}/l1_2_aspm", "0")
        elif path in (f"{LINK}/l1_1_aspm", f"{LINK}/l1_2_aspm") and value == "1":
            write(f"{LINK}/l1_aspm", "1")

    machine.system.write_attribute = as_aspm  # type: ignore[method-assign]
    before = machine.state()
    done(machine, kinds.SysfsAttribute(f"{LINK}/l1_aspm", "0", "udev"))
    assert [machine.read(f"{LINK}/{name}") for name in ("l1_aspm", "l1_1_aspm", "l1_2_aspm")] == ["0\n"] * 3
    assert 'SUBSYSTEM=="pci", KERNEL=="0000:41:00.0", ATTR{link/l1_aspm}="0"' in machine.read(udev_rules.PATH)
    reverts(machine, before)


@pytest.mark.parametrize(
    ("path", "number", "said"),
    [
        ("/proc/sys/vm/swappiness", errno.EROFS, "set it on the host"),
        ("/proc/sys/vm/swappiness", errno.EINVAL, "does not take the value"),
        ("/proc/sys/vm/swappiness", errno.EPERM, "does not let even root"),
    ],
)
def test_errors_say_what_to_do(machine: Machine, path: str, number: int, said: str) -> None:
    refuse(machine, path, number)
    before = machine.state()
    outcome = machine.apply(kinds.SysctlChange("vm.swappiness", "1")).outcomes[0]
    assert outcome.status == "failed"
    assert said in outcome.reason
    assert machine.state() == before


def test_preference_that_the_governor_forces(tmp_path: Path) -> None:
    path = "/sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference"
    machine = box(tmp_path, {path: "balance_performance\n"})
    plan = machine.plan(kinds.SysfsAttribute(path, "performance"))
    target, value = plan.changes[0].targets[0].target, "performance"
    refuse(machine, path, errno.EBUSY)
    with pytest.raises(ChangeError, match="the governor performance already forces it"):
        target.write(machine.system, value)
    (machine.root / path.lstrip("/")).write_text("performance\n")
    target.write(machine.system, value)


def test_lockdown_is_named(tmp_path: Path) -> None:
    machine = box(tmp_path, {"/sys/kernel/security/lockdown": "none [integrity] confidentiality\n"})
    refuse(machine, "/proc/sys/vm/swappiness", errno.EPERM)
    outcome = machine.apply(kinds.SysctlChange("vm.swappiness", "1")).outcomes[0]
    assert "locked down (Secure Boot)" in outcome.reason


# -- udev -------------------------------------------------------------------------------------


def test_rules_know_a_drive_by_its_own_name(machine: Machine) -> None:
    before = machine.state()
    as_kernel(
        machine,
        f"{DRIVE}/queue/scheduler",
        lambda v: {"none": "[none] mq-deadline kyber", "mq-deadline": "none [mq-deadline] kyber"}[v],
    )
    done(
        machine,
        kinds.SysfsAttribute(f"{DRIVE}/queue/scheduler", "none", "udev"),
        kinds.NvmeLatencyTolerance("nvme0", "0"),
    )
    rules = [line for line in machine.read(udev_rules.PATH).splitlines() if not line.startswith("#")]
    assert rules == [
        'ACTION=="add|change", SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", '
        'ATTR{wwid}=="eui.0025385b11b0a1c2", ATTR{queue/scheduler}="none"',
        'ACTION=="add|change", SUBSYSTEM=="nvme", ATTR{serial}=="S4EWNX0R123456", '
        'ATTR{power/pm_qos_latency_tolerance_us}="0"',
    ]
    assert ["udevadm", "control", "--reload"] in machine.host.ran
    reverts(machine, before)


def test_a_drive_without_a_name_of_its_own_goes_by_the_kernels(tmp_path: Path) -> None:
    machine = box(tmp_path, {"/sys/block/vda/queue/nomerges": "0\n", "/sys/block/vda/serial": "0000\n"})
    item = udev_rules.item(machine.system, "/sys/block/vda/queue/nomerges", "2")
    assert item.key == 'SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", KERNEL=="vda", ATTR{queue/nomerges}'


def test_drive_that_never_sleeps_by_itself(machine: Machine) -> None:
    with pytest.raises(ChangeError, match="nvme7 has no power states"):
        compile_change(kinds.NvmeLatencyTolerance("nvme7", "0"), machine.system)


@pytest.mark.parametrize("value", ['0", RUN+="/bin/sh', "$env{X}", "a\nb"])
def test_no_value_escapes_into_a_rule(machine: Machine, value: str) -> None:
    with pytest.raises(ChangeError):
        udev_rules.item(machine.system, f"{DRIVE}/queue/scheduler", value)


# -- interrupts -------------------------------------------------------------------------------


def test_interrupt_is_moved_and_kept_by_what_it_is(tmp_path: Path) -> None:
    machine = box(tmp_path, IRQS)
    before = machine.state()
    done(machine, kinds.IrqAffinity(25, (0, 1), away=(2, 3)), kinds.DefaultIrqAffinity((0, 1, 4, 5, 6, 7)))
    assert machine.read("/proc/irq/25/smp_affinity_list") == "0-1\n"
    # the interrupt is served elsewhere only when it fires next: that is no failure
    assert machine.read("/proc/irq/25/effective_affinity_list") == "2\n"
    assert machine.read("/proc/irq/default_smp_affinity") == "f3\n"
    listed = json.loads(machine.read("/etc/hwtune/boot.json"))["apply"]
    assert listed == [
        {"target": "irq 25 0000:03:00.0 eth0-TxRx-1", "value": "0-1 not 2-3"},
        {"target": "irqs-away 2-3", "value": ""},
        {"target": "attribute mask /proc/irq/default_smp_affinity", "value": "f3"},
    ]
    reverts(machine, before)


def test_interrupt_with_another_number_after_a_boot_is_found(tmp_path: Path) -> None:
    target = from_key("irq 25 0000:03:00.0 eth0-TxRx-1")
    files = {
        **BOX,
        **irq(25, "5", "xhci_hcd"),
        **irq(41, "0-1", "eth0-TxRx-1"),
        "/sys/bus/pci/devices/0000:03:00.0/msi_irqs/41": "msix\n",
    }
    machine = Machine(tmp_path, files)
    assert target.read(machine.system) == "0-1"
    target.write(machine.system, "2")
    assert machine.read("/proc/irq/41/smp_affinity_list") == "2\n"
    assert machine.read("/proc/irq/25/smp_affinity_list") == "5\n"


def test_interrupt_that_is_gone_is_not_another_one(tmp_path: Path) -> None:
    target = from_key("irq 25 0000:03:00.0 eth0-TxRx-1")
    machine = Machine(tmp_path, {**BOX, **irq(25, "5", "xhci_hcd")})
    assert target.read(machine.system) is None
    with pytest.raises(ChangeError, match="no IRQ of eth0-TxRx-1"):
        target.write(machine.system, "2")


def test_who_wants_cpus_free_does_not_mind_which_others_serve(tmp_path: Path) -> None:
    """irqbalance goes on to choose among the CPUs that it may use."""
    machine = box(tmp_path, IRQS)
    change = kinds.IrqAffinity(25, (0, 1), away=(2, 3))
    done(machine, change)
    (machine.root / "proc/irq/25/smp_affinity_list").write_text("5\n")
    assert machine.plan(change).changes[0].status == "in-force"
    assert machine.plan(kinds.IrqAffinity(25, (0, 1))).changes[0].status == "to-do"
    (machine.root / "proc/irq/25/smp_affinity_list").write_text("1-2\n")
    assert machine.plan(change).changes[0].status == "to-do"
    (machine.root / "proc/irq/25/smp_affinity_list").write_text("6\n")
    assert machine.revert().whole
    assert machine.read("/proc/irq/25/smp_affinity_list") == "2\n"


@pytest.mark.parametrize("number", [errno.EIO, errno.EPERM])
def test_managed_interrupt(tmp_path: Path, number: int) -> None:
    machine = box(tmp_path, IRQS)
    refuse(machine, "/proc/irq/30/smp_affinity_list", number)
    outcome = machine.apply(kinds.IrqAffinity(30, (0,))).outcomes[0]
    assert outcome.status == "failed"
    assert outcome.reason.startswith("IRQ 30 (nvme0q3) is managed by the kernel")


def test_vectors_that_are_used_up(tmp_path: Path) -> None:
    machine = box(tmp_path, IRQS)
    refuse(machine, "/proc/irq/25/smp_affinity_list", errno.ENOSPC)
    outcome = machine.apply(kinds.IrqAffinity(25, (0,))).outcomes[0]
    assert outcome.reason == "CPUs 0 have no interrupt vector left for IRQ 25; choose more CPUs"


# -- irqbalance -------------------------------------------------------------------------------

IRQBALANCE_UNIT = """\
[Service]
EnvironmentFile=-/usr/lib/irqbalance/defaults.env
EnvironmentFile=-{0}
ExecStart=/usr/sbin/irqbalance --foreground $IRQBALANCE_ARGS
"""


@pytest.mark.parametrize("place", ["/etc/default/irqbalance", "/etc/sysconfig/irqbalance"])
def test_ban_goes_beside_the_administrators_file(tmp_path: Path, place: str) -> None:
    theirs = '# ours\nIRQBALANCE_ARGS="--hintpolicy=exact"\nIRQBALANCE_BANNED_CPUS=c0'
    machine = box(
        tmp_path, {"/lib/systemd/system/irqbalance.service": IRQBALANCE_UNIT.format(place), place: theirs}
    )
    machine.host.tools["irqbalance"] = lambda argv: "irqbalance version 1.9.2\n"
    before = machine.state()
    done(machine, kinds.IrqbalanceBan((2, 3)))
    assert machine.read(place) == theirs
    lines = [x for x in machine.read("/etc/hwtune/irqbalance.env").splitlines() if not x.startswith("#")]
    assert lines == ["IRQBALANCE_BANNED_CPUS=", "IRQBALANCE_BANNED_CPULIST=2-3,6-7"]
    assert ["systemctl", "try-restart", "irqbalance.service"] in machine.host.ran
    # doctor, and so irqbalance under systemd, sees the ban
    from hwtune.probes import _irqbalance
    from hwtune.text.irqbalance import effective_ban

    environment, source = _irqbalance.read(machine.host)
    assert effective_ban(environment.get()).cpus == [2, 3, 6, 7]
    assert environment.get()["IRQBALANCE_ARGS"] == "--hintpolicy=exact"
    assert source == "/etc/hwtune/irqbalance.env"
    reverts(machine, before)


def test_irqbalance_knows_of_its_ban_before_interrupts_are_moved(tmp_path: Path) -> None:
    """What it moves back until it knows would be found by the next apply."""
    place = "/etc/default/irqbalance"
    unit = {"/lib/systemd/system/irqbalance.service": IRQBALANCE_UNIT.format(place), place: ""}
    machine = box(tmp_path, {**unit, **IRQS})
    machine.host.tools["irqbalance"] = lambda argv: "irqbalance version 1.9.2\n"
    seen = []
    machine.systemd.on["try-restart"] = lambda unit: seen.append(
        (machine.read("/proc/irq/25/smp_affinity_list"), "2-3" in machine.read("/etc/hwtune/irqbalance.env"))
    )
    before = machine.state()
    done(machine, kinds.IrqAffinity(25, (0, 1), away=(2, 3)), kinds.IrqbalanceBan((2, 3)))
    assert seen == [("2\n", True)]
    assert machine.read("/proc/irq/25/smp_affinity_list") == "0-1\n"
    machine.systemd.on.clear()
    reverts(machine, before)


@pytest.mark.parametrize("crash", [False, True])
def test_interrupts_that_irqbalance_moves_once_its_ban_is_lifted_are_put_back(
    tmp_path: Path, crash: bool
) -> None:
    """The ban goes first, so that irqbalance, started anew, has moved them when their turn comes; one that
    someone had moved before stays."""
    place = "/etc/default/irqbalance"
    unit = {"/lib/systemd/system/irqbalance.service": IRQBALANCE_UNIT.format(place), place: ""}
    machine = box(tmp_path, {**unit, **IRQS})
    machine.host.tools["irqbalance"] = lambda argv: "irqbalance version 1.9.2\n"
    done(
        machine,
        kinds.IrqbalanceBan((2, 3)),
        *(kinds.IrqAffinity(n, (0, 1), away=(2, 3)) for n in (24, 25)),
    )
    (machine.root / "proc/irq/24/smp_affinity_list").write_text("3\n")

    def moves(unit: str) -> None:
        (machine.root / "proc/irq/25/smp_affinity_list").write_text("3\n")
        if crash and refused:
            raise SystemExit

    refused = [True]
    machine.systemd.on["try-restart"] = moves
    if crash:
        with pytest.raises(SystemExit):
            machine.revert()
        refused.clear()
    outcomes = {o.target: o.status for o in machine.revert().outcomes}
    assert machine.read("/proc/irq/25/smp_affinity_list") == "2\n"
    assert outcomes["irq:25"] == "restored"
    if not crash:
        assert outcomes["irq:24"] == "kept"
        assert machine.read("/proc/irq/24/smp_affinity_list") == "3\n"


def test_old_irqbalance_gets_the_mask_that_it_knows(tmp_path: Path) -> None:
    place = "/etc/sysconfig/irqbalance"
    machine = box(tmp_path, {"/lib/systemd/system/irqbalance.service": IRQBALANCE_UNIT.format(place)})
    machine.host.tools["irqbalance"] = lambda argv: "irqbalance version 1.4.0\n"
    done(machine, kinds.IrqbalanceBan((2, 35)))
    assert "\nIRQBALANCE_BANNED_CPUS=8,00000004\n" in machine.read("/etc/hwtune/irqbalance.env")


def test_irqbalance_that_is_not_installed(machine: Machine) -> None:
    outcome = machine.apply(kinds.IrqbalanceBan((2,))).outcomes[0]
    assert (outcome.status, outcome.reason) == (
        "failed", "irqbalance is not installed, or not started by systemd",
    )  # fmt: skip


# -- modules ----------------------------------------------------------------------------------


def test_option_of_a_module(machine: Machine) -> None:
    listing = ["usr/lib/modules/6.1.0-18-amd64/kernel/drivers/nvme/host/nvme-core.ko\n"]
    machine.host.tools.update(
        {"lsinitramfs": lambda argv: listing[0], "update-initramfs": lambda argv: ""}  # type: ignore[attr-defined]
    )
    before = machine.state()
    done(machine, kinds.ModuleOption("nvidia", "NVreg_NvLinkDisable", "0"))
    text = machine.read("/etc/modprobe.d/zz-hwtune.conf")
    assert text.endswith("\noptions nvidia NVreg_NvLinkDisable=0\n")
    assert ["update-initramfs", "-u"] not in machine.host.ran
    reverts(machine, before)
    done(machine, kinds.ModuleOption("nvme-core", "default_ps_max_latency_us", "0"))
    assert ["update-initramfs", "-u"] in machine.host.ran


def test_option_of_what_is_built_in(tmp_path: Path) -> None:
    machine = box(
        tmp_path, {"/lib/modules/6.1.0-18-amd64/modules.builtin": "kernel/drivers/nvme/host/nvme-core.ko\n"}
    )
    with pytest.raises(ChangeError, match=r"takes nvme_core\.default_ps_max_latency_us=0 as a boot argument"):
        compile_change(kinds.ModuleOption("nvme_core", "default_ps_max_latency_us", "0"), machine.system)


# -- units ------------------------------------------------------------------------------------


def test_units_come_back_as_they_were(machine: Machine) -> None:
    states = machine.systemd.states
    states.update({"tuned.service": ["enabled", "active"], "fm.service": ["disabled", "failed"]})
    done(machine, kinds.UnitState("tuned.service", "stopped"), kinds.UnitState("fm.service", "started"))
    assert states == {"tuned.service": ["disabled", "inactive"], "fm.service": ["enabled", "active"]}
    assert machine.revert().whole
    assert states == {"tuned.service": ["enabled", "active"], "fm.service": ["disabled", "inactive"]}


def test_mask_and_back(machine: Machine) -> None:
    machine.systemd.states["tuned.service"] = ["enabled", "active"]
    done(machine, kinds.UnitState("tuned.service", "masked"))
    assert machine.systemd.states["tuned.service"] == ["masked", "inactive"]
    assert machine.revert().whole
    assert machine.systemd.states["tuned.service"] == ["enabled", "active"]


@pytest.mark.parametrize("enabled", ["static", "generated", "indirect"])
def test_units_that_cannot_be_enabled(machine: Machine, enabled: str) -> None:
    machine.systemd.states["a.service"] = [enabled, "inactive"]
    done(machine, kinds.UnitState("a.service", "started"))
    assert machine.systemd.states["a.service"] == [enabled, "active"]
    assert machine.revert().whole
    assert machine.systemd.states["a.service"] == [enabled, "inactive"]


def test_masked_unit_is_an_administrators_word(machine: Machine) -> None:
    machine.systemd.states["a.service"] = ["masked", "inactive"]
    outcome = machine.apply(kinds.UnitState("a.service", "started")).outcomes[0]
    assert outcome.reason == "a.service was masked by an administrator; systemctl unmask it, if it may run"
    assert machine.apply(kinds.UnitState("a.service", "stopped")).outcomes[0].status == "unchanged"


def test_alias_stands_for_its_unit(machine: Machine) -> None:
    machine.systemd.states["dbus-x.service"] = ["alias", "active"]
    machine.systemd.ids["dbus-x.service"] = "x.service"
    machine.systemd.states["x.service"] = ["enabled", "active"]
    compiled = compile_change(kinds.UnitState("dbus-x.service", "stopped"), machine.system)
    assert [(t.key, v) for t, v in compiled.targets] == [("unit x.service", "disabled inactive")]


def test_unit_that_is_not_there_and_no_systemd(machine: Machine) -> None:
    with pytest.raises(ChangeError, match=r"there is no b\.service here"):
        compile_change(kinds.UnitState("b.service", "started"), machine.system)
    machine.host.tools = {}
    with pytest.raises(ChangeError, match="no systemd"):
        compile_change(kinds.UnitState("b.service", "started"), machine.system)


# -- latency request --------------------------------------------------------------------------


def test_latency_request_is_a_service(tmp_path: Path) -> None:
    held = [2_000_000_000]
    machine = box(tmp_path, cpu_latency=lambda: held[0])
    machine.systemd.on["restart"] = lambda unit: held.__setitem__(0, 20)
    before = machine.state()
    done(machine, kinds.CpuLatencyRequest(20))
    unit = machine.read("/etc/systemd/system/hwtune-cpu-latency.service")
    assert " -I -m hwtune.changes.hold_latency 20\n" in unit
    link = machine.root / "etc/systemd/system/multi-user.target.wants/hwtune-cpu-latency.service"
    assert os.readlink(link) == "../hwtune-cpu-latency.service"
    reverts(machine, before)
    assert ["systemctl", "stop", "hwtune-cpu-latency.service"] in machine.host.ran


def test_service_that_someone_stopped_is_started_again(tmp_path: Path) -> None:
    """Its files are as they should be, and the machine is not."""
    held = [2_000_000_000]
    machine = box(tmp_path, cpu_latency=lambda: held[0])
    machine.systemd.on["restart"] = lambda unit: held.__setitem__(0, 20)
    done(machine, kinds.CpuLatencyRequest(20))
    machine.systemd.states["hwtune-cpu-latency.service"][1] = "inactive"
    held[0] = 2_000_000_000
    again = machine.apply(kinds.CpuLatencyRequest(20))
    assert again.changed and again.whole and again.files == []
    assert again.commands == ["systemctl daemon-reload", "systemctl restart hwtune-cpu-latency.service"]
    assert held == [20]
    assert machine.apply(kinds.CpuLatencyRequest(20)).set_id is None


def test_latency_request_that_has_no_effect_is_told(tmp_path: Path) -> None:
    machine = box(tmp_path, cpu_latency=lambda: 2_000_000_000)
    assert machine.apply(kinds.CpuLatencyRequest(20)).problems == [
        "cpu-latency: hwtune-cpu-latency.service runs, and CPUs may still take 2000000000 us to wake"
    ]


# -- partitions -------------------------------------------------------------------------------

CGROUP: dict[str, Content] = {
    "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
    "/run/systemd/system": Directory(),
}
SLICE = "/sys/fs/cgroup/trading_hot.slice"


def cgroups(machine: Machine, accepts: bool = True) -> None:
    """systemd makes and removes the group, the kernel judges the partition."""
    folder = machine.root / SLICE.lstrip("/")

    def start(unit: str) -> None:
        folder.mkdir(exist_ok=True)
        for name, text in {
            "cpuset.cpus": "", "cpuset.cpus.partition": "member", "cgroup.events": "populated 0\nfrozen 0"
        }.items():  # fmt: skip
            (folder / name).write_text(text + "\n")

    def stop(unit: str) -> None:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()

    machine.systemd.on.update({
        "start": start,
        "stop": stop,
        "set-property": lambda unit, setting: (folder / "cpuset.cpus").write_text(setting.partition("=")[2]),
    })  # fmt: skip
    if not accepts:
        as_kernel(
            machine,
            f"{SLICE}/cpuset.cpus.partition",
            lambda v: "isolated invalid (Cpu list in cpuset.cpus not exclusive)" if v == "isolated" else v,
        )


def test_partition_is_a_slice(tmp_path: Path) -> None:
    machine = box(tmp_path, CGROUP)
    cgroups(machine)
    before = machine.state()
    done(machine, kinds.CpusetPartition("trading-hot", (2, 3)))
    assert machine.read(f"{SLICE}/cpuset.cpus.partition") == "isolated\n"
    assert machine.read(f"{SLICE}/cpuset.cpus") == "2-3"
    reverts(machine, before)


def test_partition_that_the_kernel_does_not_accept_is_undone(tmp_path: Path) -> None:
    machine = box(tmp_path, CGROUP)
    cgroups(machine, accepts=False)
    before = machine.state()
    outcome = machine.apply(kinds.CpusetPartition("trading-hot", (2, 3))).outcomes[0]
    assert outcome.reason == (
        "the kernel does not accept the partition: isolated invalid (Cpu list in cpuset.cpus not exclusive)"
    )
    assert machine.state() == before


def test_partition_with_processes_in_it_stays(tmp_path: Path) -> None:
    machine = box(tmp_path, CGROUP)
    cgroups(machine)
    done(machine, kinds.CpusetPartition("trading-hot", (2, 3)))
    (machine.root / SLICE.lstrip("/") / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    outcome = machine.revert().outcomes[0]
    assert outcome.status == "failed"
    assert outcome.reason == "processes run in trading_hot.slice; stop their services first"


def test_partition_needs_cgroup_v2(machine: Machine) -> None:
    with pytest.raises(ChangeError, match="cgroup v2"):
        compile_change(kinds.CpusetPartition("hot", (2,)), machine.system)


# -- NICs -------------------------------------------------------------------------------------


class Nic:
    """An interface whose driver takes what ethtool hands it."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {
            "rings": {"rx": 512, "rx_max": 4096, "tx": 512, "tx_max": 4096},
            "coalescing": {"rx_usecs": 50, "use_adaptive_rx": 1},
            "features": {"rx-gro": True, "rx-lro": False},
            "changeable": ["rx-gro"],
            "pause": {"autoneg": False, "rx": True, "tx": True},
            "refused": {"channels": "EOPNOTSUPP"},
        }
        self.names = {"-G": "rings", "-C": "coalescing", "-K": "features", "-A": "pause"}

    def ask(self, what: str, interface: str) -> dict[str, Any]:
        return self.settings

    def ethtool(self, argv: Sequence[str]) -> CommandResult | str:
        group = self.settings[self.names[argv[1]]]
        for name, value in zip(argv[3::2], argv[4::2], strict=True):
            other = {"rx-usecs": "rx_usecs", "adaptive-rx": "use_adaptive_rx"}.get(name, name)
            if group[other] == value:
                return failing(80, "no ring parameters changed, aborting")
            group[other] = {"on": True, "off": False}.get(
                value, value if not value.isdecimal() else int(value)
            )
        return ""


@pytest.fixture
def nic(tmp_path: Path) -> tuple[Machine, Nic]:
    card = Nic()
    machine = box(tmp_path, {"/sys/class/net/eth0/operstate": "up\n"}, ethtool=card.ask)
    machine.host.tools["ethtool"] = card.ethtool  # type: ignore[index]
    return machine, card


def test_nic_settings_by_their_groups(nic: tuple[Machine, Nic]) -> None:
    machine, card = nic
    original = json.dumps(card.settings)
    done(
        machine,
        kinds.NicSetting("eth0", "rings", (("rx", "4096"), ("tx", "512"))),
        kinds.NicSetting("eth0", "coalesce", (("adaptive-rx", "off"), ("rx-usecs", "0"))),
        kinds.NicSetting("eth0", "features", (("rx-gro", "off"),)),
        kinds.NicSetting("eth0", "pause", (("rx", "off"), ("tx", "off"))),
    )
    # only what differs is handed on
    assert ["ethtool", "-G", "eth0", "rx", "4096"] in machine.host.ran
    assert ["ethtool", "-C", "eth0", "adaptive-rx", "off", "rx-usecs", "0"] in machine.host.ran
    assert machine.revert().whole
    assert json.loads(json.dumps(card.settings)) == {
        **json.loads(original),
        "coalescing": {"rx_usecs": 50, "use_adaptive_rx": True},
    }


@pytest.mark.parametrize(
    ("interface", "group", "name", "value", "why"),
    [
        ("eth0", "rings", "rx", "8192", "eth0 can have at most 4096 of rx rings"),
        ("eth0", "coalesce", "tx-usecs", "0", "the driver of eth0 has no tx-usecs in its coalesce"),
        ("eth0", "features", "rx-lro", "on", "the driver of eth0 lets nobody change rx-lro"),
        ("eth0", "channels", "combined", "4", "the driver of eth0 has no channels to set (EOPNOTSUPP)"),
        ("eth9", "rings", "rx", "64", "there is no interface eth9"),
    ],
)
def test_nic_settings_that_cannot_be(
    nic: tuple[Machine, Nic], interface: str, group: str, name: str, value: str, why: str
) -> None:
    outcome = nic[0].apply(kinds.NicSetting(interface, group, ((name, value),))).outcomes[0]
    assert (outcome.status, outcome.reason) == ("failed", why)


def test_ethtool_that_is_not_installed(nic: tuple[Machine, Nic]) -> None:
    machine, _ = nic
    del machine.host.tools["ethtool"]  # type: ignore[attr-defined]
    outcome = machine.apply(kinds.NicSetting("eth0", "rings", (("rx", "4096"),))).outcomes[0]
    assert (outcome.status, outcome.reason) == ("failed", "ethtool is not installed")


# -- files ------------------------------------------------------------------------------------


def test_file_and_its_folders(machine: Machine) -> None:
    before = machine.state()
    done(machine, kinds.FileContent("/etc/made/by/it.conf", "a = 1\n", 0o640))
    assert machine.read("/etc/made/by/it.conf") == "a = 1\n"
    reverts(machine, before)


def test_file_behind_a_link_is_not_followed(tmp_path: Path) -> None:
    machine = box(tmp_path, {"/etc/a.conf": Link("/etc/b.conf"), "/etc/b.conf": "b\n"})
    outcome = machine.apply(kinds.FileContent("/etc/a.conf", "x\n")).outcomes[0]
    assert outcome.status == "failed"
    assert "symbolic link" in outcome.reason
    assert machine.read("/etc/b.conf") == "b\n"


# -- all of them ------------------------------------------------------------------------------


def test_every_kind_compiles_and_every_key_makes_its_target_again(tmp_path: Path) -> None:
    card = Nic()
    machine = box(
        tmp_path,
        {
            **IRQS, **CGROUP, "/sys/class/net/eth0/operstate": "up\n", "/run/ostree-booted": "",
            "/lib/systemd/system/irqbalance.service": IRQBALANCE_UNIT.format("/etc/default/irqbalance"),
        },
        ethtool=card.ask,
    )  # fmt: skip
    machine.systemd.states["a.service"] = ["enabled", "active"]
    changes = [
        kinds.SysctlChange("vm.swappiness", "1"),
        kinds.SysctlChange("vm.dirty_ratio", "10"),
        kinds.SysfsAttribute(THP, "never"),
        kinds.IrqAffinity(25, (0,), (2,)),
        kinds.DefaultIrqAffinity((0,)),
        kinds.IrqbalanceBan((2,)),
        kinds.KernelArguments(("nohz_full=2",)),
        kinds.ModuleOption("nvidia", "a", "1"),
        kinds.UnitState("a.service", "stopped"),
        kinds.CpusetPartition("hot", (2,)),
        kinds.CpuLatencyRequest(20),
        kinds.NvmeLatencyTolerance("nvme0", "0"),
        kinds.NicSetting("eth0", "rings", (("rx", "64"),)),
        kinds.GpuSetting("0000:17:00.0", "power-limit", "300000"),
        kinds.FileContent("/etc/a.conf", ""),
    ]
    assert {type(c) for c in changes} == set(kinds.Change.__args__)
    known = stores()
    for change in changes:
        compiled = compile_change(change, machine.system)
        assert compiled.targets or compiled.items
        assert {i.store for i in compiled.items} <= set(known)
        for target, value in compiled.targets:
            again = from_key(target.key)
            assert (type(again), again.key, vars(again)) == (type(target), target.key, vars(target))
            assert again.show(value)
        for item in compiled.items:
            if item.store == "boot":
                assert from_key(item.key).key == item.key


def _names(system: System) -> list[str]:
    return [key for key, _ in boot.read(system)]


def test_boot_list_keeps_the_order_of_the_changes(machine: Machine) -> None:
    boot_unit.STORE.render(machine.system, [])
    done(
        machine,
        kinds.SysfsAttribute(f"{DRIVE}/queue/scheduler", "mq-deadline"),
        kinds.SysfsAttribute(THP, "always"),
    )
    assert _names(machine.system) == [f"attribute choice {DRIVE}/queue/scheduler", f"attribute choice {THP}"]
