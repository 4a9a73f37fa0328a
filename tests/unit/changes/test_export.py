"""Plans for other tools: each form parses as its reader does, and does what hwtune itself would do."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hwtune.changes import kinds
from hwtune.changes.export import export
from hwtune.text import sysctl_d
from tests.support.small_box import DEFAULTS, GOVERNORS, THP, Box, changes

yaml = pytest.importorskip("yaml", reason="PyYAML reads what Ansible would read")

FORMS = ("script", "sysctl", "tuned", "ansible")
NIC = kinds.NicSetting("eth0", "coalesce", (("adaptive-rx", "off"), ("rx-usecs", "8")))
HOSTILE = "1'; touch /tmp/owned; echo '"
SHELLS = [s for s in ("dash", "bash", "busybox") if shutil.which(s)]


def more() -> list[Any]:
    return [
        *changes(),
        kinds.KernelArguments(set=("mce=ignore_ce",)),
        kinds.SysfsAttribute(THP.replace("enabled", "nothing"), "never"),  # is not there
        kinds.FileContent("/etc/notes", "END\nvalue: {{ 7 * 7 }} $(reboot) `reboot`\n'\"\\\n", 0o600),
        kinds.SysctlChange("kernel.core_pattern", HOSTILE),
    ]


@pytest.fixture
def rich(box: Box) -> Box:
    (box.root / "proc/sys/kernel/core_pattern").write_text("core\n")
    return box


def settings_of(text: str) -> configparser.ConfigParser:
    """As TuneD reads a profile."""
    parser = configparser.ConfigParser(delimiters=("=",), inline_comment_prefixes=("#",), strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(text)
    return parser


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_lost_without_a_word(rich: Box, form: str) -> None:
    plan = rich.plan(*more())
    text = export(form, plan)
    for change in plan.changes:
        # each change is either there, with its rows, or named as left out
        assert f"test.row: {change.description}" in text or f"#   {change.description}: " in text, change.kind


@pytest.mark.parametrize("form", FORMS)
def test_empty_plan(box: Box, form: str) -> None:
    text = export(form, box.plan())
    assert text.endswith("\n") and "Left out" not in text
    if form == "ansible":
        assert yaml.safe_load(text) == []
    if form == "script":
        assert run_script(box, text).returncode == 0


def test_sysctl_file(rich: Box) -> None:
    found, bad = sysctl_d.parse(export("sysctl", rich.plan(*more())))
    assert bad == []
    assert {a.key: a.value for a in found} == {
        "vm.swappiness": "1",
        "kernel.numa_balancing": "0",
        "vm.dirty_bytes": "268435456",
        "net.netfilter.nf_conntrack_max": "131072",
        "kernel.core_pattern": HOSTILE,
    }


def test_profile_of_tuned(rich: Box) -> None:
    # a mask as a large box shows it
    (rich.root / "proc/irq/default_smp_affinity").write_text("00000000,0000000f\n")
    text = export("tuned", rich.plan(*more(), kinds.IrqAffinity(25, (0, 1))))
    found = {name: dict(section) for name, section in settings_of(text).items() if section}
    assert found == {
        "main": {"summary": "What hwtune found to be set on this machine"},
        "sysctl": {
            "vm.swappiness": "1",
            "kernel.numa_balancing": "0",
            "vm.dirty_bytes": "268435456",
            "net.netfilter.nf_conntrack_max": "131072",
            "kernel.core_pattern": HOSTILE,
        },
        "sysfs": {
            THP: "never",
            GOVERNORS[0]: "performance",
            GOVERNORS[1]: "performance",
            "/sys/block/nvme0n1/queue/scheduler": "none",
        },
        "irq_24": {"type": "irq", "devices": "irq24", "affinity": "0-1"},
        "irq_25": {"type": "irq", "devices": "irq25", "affinity": "0-1"},
        "irq_default": {"type": "irq", "devices": "DEFAULT", "affinity": "0-1"},
        "bootloader": {"cmdline_latency": "+isolcpus=domain,managed_irq,2-3 nohz_full=2-3 mce=ignore_ce"},
        "modules": {"nvidia": "NVreg_NvLinkDisable=0"},
    }


def test_interfaces_and_latency_in_a_profile_of_tuned(box: Box) -> None:
    from hwtune.changes.plan import TO_DO, Plan, PlannedChange

    wanted = [
        NIC,
        kinds.NicSetting("eth0", "rings", (("rx", "4096"),)),
        kinds.CpuLatencyRequest(2),
        kinds.IrqbalanceBan((2, 3)),
        kinds.UnitState("irqbalance.service", "masked"),
        kinds.KernelArguments(remove=("nohz",)),
        kinds.GpuSetting("0000:81:00.0", "power-limit", "300000"),
    ]
    plan = Plan(
        [
            PlannedChange(f"c{n}", c.__struct_config__.tag, ["a.row"], c, "x", c.describe(), "", TO_DO)
            for n, c in enumerate(wanted)
        ]
    )
    text = export("tuned", plan)
    found = {name: dict(section) for name, section in settings_of(text).items() if section}
    assert found["net_eth0"] == {
        "type": "net", "devices": "eth0", "dynamic": "0",
        "coalesce": "adaptive-rx off rx-usecs 8", "ring": "rx 4096",
    }  # fmt: skip
    assert found["cpu"] == {"force_latency": "2"}
    assert found["irqbalance"] == {"banned_cpus": "2-3"}
    assert "#   mask irqbalance.service: TuneD starts, stops, enables and disables services alone" in text
    assert "#   drop the boot argument nohz: TuneD adds kernel arguments, and takes none out" in text
    assert "TuneD has no plug-in for GPUs" in text
    # the other forms have a word for each of them too, and stay what they are
    for form in ("script", "ansible"):
        text = export(form, plan)
        assert all(c.description in text for c in plan.changes)
    check_shell(export("script", plan))
    assert "nvidia-smi -i 0000:81:00.0 -pl 300" in export("script", plan)
    tasks = yaml.safe_load(export("ansible", plan))
    assert {
        "ansible.builtin.systemd_service": {"name": "irqbalance.service", "state": "stopped", "masked": True}
    }.items() <= next(t for t in tasks if t["name"] == "a.row: mask irqbalance.service").items()


# -- the script --------------------------------------------------------------------------------


def check_shell(text: str) -> None:
    for shell in SHELLS:
        command = [shell, "sh", "-n"] if shell == "busybox" else [shell, "-n"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=20)
        assert (done.returncode, done.stderr) == (0, ""), shell
    if shutil.which("shellcheck"):
        done = subprocess.run(
            ["shellcheck", "-s", "sh", "-"], input=text, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout


def run_script(box: Box, text: str, shell: str = SHELLS[0]) -> subprocess.CompletedProcess[str]:
    """The script with every path below the box's root, and with tools that only note how they are called."""
    tools = box.root.parent / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("systemctl", "update-grub", "udevadm", "id"):
        said = "echo 0" if name == "id" else f'echo "{name} $*" >>"{tools}/called"'
        (tools / name).write_text(f"#!/bin/sh\n{said}\n")
        (tools / name).chmod(0o755)
    text = re.sub(r"(?<=[ '])/(proc|sys|etc)/", lambda m: f"{box.root}/{m[1]}/", text)
    command = [shell, "sh"] if shell == "busybox" else [shell]
    return subprocess.run(
        [*command, "-s"],
        input=text,
        capture_output=True,
        text=True,
        env={"PATH": f"{tools}:{os.environ['PATH']}"},
        timeout=60,
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_script_does_what_apply_does(rich: Box, shell: str) -> None:
    (rich.root / "proc/irq/default_smp_affinity").write_text("00000000,0000000f\n")
    text = export("script", rich.plan(*more()))
    check_shell(text)
    done = run_script(rich, text, shell)
    assert done.returncode == 0, done.stderr
    values = {path: rich.read(path) for path in DEFAULTS}
    expected = {
        "/proc/sys/vm/swappiness": "1",
        "/proc/sys/kernel/numa_balancing": "0",
        "/proc/sys/vm/dirty_bytes": "268435456",
        "/proc/sys/net/netfilter/nf_conntrack_max": "131072",
        THP: "never",  # a file takes what is written, and shows no choices
        GOVERNORS[0]: "performance",
        GOVERNORS[1]: "performance",
        "/sys/block/nvme0n1/queue/scheduler": "none",
        "/proc/irq/24/smp_affinity_list": "0-1",
        "/proc/irq/default_smp_affinity": "00000000,00000003",
    }
    assert {p: v for p, v in values.items() if v != DEFAULTS[p]} == expected
    assert rich.read("/proc/sys/kernel/core_pattern") == HOSTILE
    assert (rich.root / "etc/notes").read_text() == more()[-2].content
    assert (rich.root / "etc/notes").stat().st_mode & 0o777 == 0o600
    assert "w /sys/kernel/mm/transparent_hugepage/enabled - - - - never\n" in (
        rich.root / "etc/tmpfiles.d/zz-latency.conf"
    ).read_text().replace(str(rich.root), "")
    assert "kernel.core_pattern = " + HOSTILE in (rich.root / "etc/sysctl.d/99-zz-latency.conf").read_text()
    drop_in = (rich.root / "etc/default/grub.d/zz-latency.cfg").read_text()
    assert "isolcpus=domain,managed_irq,2-3 nohz_full=2-3 mce=ignore_ce" in drop_in
    assert "hwtune revert` removes it" not in drop_in
    called = (rich.root.parent / "tools/called").read_text().splitlines()
    assert [line.strip() for line in called] == [
        "systemctl disable --now tuned.service",
        "udevadm control --reload",
        "update-grub",
    ]


def test_script_that_runs_again_writes_nothing(rich: Box) -> None:
    text = export("script", rich.plan(*more()))
    run_script(rich, text)
    # the kernel would show the choices again
    (rich.root / THP.lstrip("/")).write_text("always madvise [never]\n")
    before = {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in rich.root.rglob("*") if p.is_file()}
    (rich.root.parent / "tools/called").unlink()
    assert run_script(rich, text).returncode == 0
    assert {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in rich.root.rglob("*") if p.is_file()} == before
    # systemctl itself finds that the unit is so
    assert (rich.root.parent / "tools/called").read_text() == "systemctl disable --now tuned.service\n"


def test_script_tells_what_it_could_not_do(rich: Box) -> None:
    text = export("script", rich.plan(*changes()))
    (rich.root / GOVERNORS[1].lstrip("/")).unlink()
    done = run_script(rich, text)
    assert done.returncode == 1
    assert (
        done.stderr.endswith("/policy1/scaling_governor does not exist here\n")
        and done.stderr.count("\n") == 1
    )
    assert rich.read("/proc/irq/default_smp_affinity") == "3"  # the rest was done


# -- Ansible -----------------------------------------------------------------------------------


def test_tasks_for_ansible(rich: Box) -> None:
    tasks = yaml.safe_load(export("ansible", rich.plan(*more())))
    names = [task["name"] for task in tasks]
    assert len(set(names)) == len(names)
    modules = [next(key for key in task if "." in key) for task in tasks]
    assert set(modules) == {
        "ansible.posix.sysctl", "ansible.builtin.command", "ansible.builtin.copy", "ansible.builtin.file",
        "ansible.builtin.systemd_service",
    }  # fmt: skip
    by_name = dict(zip(names, tasks, strict=True))
    assert by_name["test.row: set sysctl vm.swappiness = 1"] == {
        "name": "test.row: set sysctl vm.swappiness = 1",
        "ansible.posix.sysctl": {
            "name": "vm.swappiness",
            "value": "1",
            "sysctl_file": "/etc/sysctl.d/99-zz-latency.conf",
            "sysctl_set": True,
            "reload": False,
        },
    }
    service = next(t for t in tasks if "ansible.builtin.systemd_service" in t)
    assert service["ansible.builtin.systemd_service"] == {
        "name": "tuned.service", "state": "stopped", "enabled": False,
    }  # fmt: skip
    copies = {
        t["ansible.builtin.copy"]["dest"]: t["ansible.builtin.copy"]
        for t in tasks
        if "ansible.builtin.copy" in t
    }
    assert copies["/etc/modprobe.d/zz-latency.conf"]["content"].endswith(
        "\noptions nvidia NVreg_NvLinkDisable=0\n"
    )
    assert copies["/etc/notes"]["content"] == "{% raw %}" + more()[-2].content + "{% endraw %}"
    assert copies["/etc/notes"]["mode"] == "0600"
    assert 'ATTR{queue/scheduler}="none"' in copies["/etc/udev/rules.d/99-zz-latency.rules"]["content"]


def test_commands_of_the_tasks_write_once_and_say_so(rich: Box) -> None:
    tasks = yaml.safe_load(export("ansible", rich.plan(*more())))
    commands = [t["ansible.builtin.command"]["argv"] for t in tasks if "ansible.builtin.command" in t]
    puts = [argv for argv in commands if argv[0] == "/bin/sh" and argv[3].startswith(("/proc/", "/sys/"))]
    assert len(puts) == 6
    for expected in ("changed\n", ""):
        for shell, flag, script, path, value in puts:
            done = subprocess.run(
                [shell, flag, script, str(rich.root) + path, value],
                capture_output=True,
                text=True,
                timeout=20,
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, expected, ""), path
    assert rich.read(GOVERNORS[0]) == "performance"
    assert ["update-grub"] in commands and ["udevadm", "control", "--reload"] in commands


def test_loaders_with_tools_of_their_own(tmp_path: Path) -> None:
    from hwtune.changes.plan import TO_DO, Plan, PlannedChange, PlannedTarget
    from hwtune.changes.targets import LoaderArgument

    change = kinds.KernelArguments(set=("isolcpus=domain,2-3",), remove=("nosmt",))

    def plan(backend: str) -> Plan:
        targets = [
            PlannedTarget(LoaderArgument(backend, "isolcpus"), {"all": []}, {"all": ["isolcpus=domain,2-3"]}),
            PlannedTarget(LoaderArgument(backend, "nosmt"), {"all": ["nosmt"]}, {"all": []}),
        ]
        planned = PlannedChange(
            "c1", "kernel-arguments", ["a.row"], change, "x", change.describe(), "reboot", TO_DO
        )
        planned.targets = targets
        return Plan([planned])

    script = export("script", plan("grubby"))
    check_shell(script)
    assert "run grubby --update-kernel=ALL --remove-args=isolcpus\n" in script
    assert "run grubby --update-kernel=ALL --args=isolcpus=domain,2-3\n" in script
    tasks = yaml.safe_load(export("ansible", plan("grubby")))
    # a grubby that keeps one line
    (tmp_path / "grubby").write_text(
        f"#!/bin/sh\ncd {tmp_path}\ncase $1 in --info=ALL) cat args ;; *) shift; "
        'case $1 in --remove-args=*) sed -i "s/ ${1#*=}[^ ]*//g" args ;; '
        '--args=*) sed -i "s/$/ ${1#*=}/" args ;; esac ;; esac\n'
    )
    (tmp_path / "grubby").chmod(0o755)
    (tmp_path / "args").write_text("quiet nosmt isolcpus=1\n")
    said = []
    for task in [*tasks, *tasks]:
        argv = task["ansible.builtin.command"]["argv"]
        done = subprocess.run(
            argv, capture_output=True, text=True, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, timeout=20
        )
        said.append((done.returncode, done.stdout))
    assert (tmp_path / "args").read_text() == "quiet isolcpus=domain,2-3\n"
    assert said == [(0, "changed\n"), (0, "changed\n"), (0, ""), (0, "")]
    for form in ("script", "ansible"):
        assert "had better not edit the entries of systemd-boot" in export(form, plan("systemd-boot"))
