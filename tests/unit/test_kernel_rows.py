"""Rows on boot arguments, lockdown and taint: each outcome on a small fake machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hwtune.changes import KernelArguments
from tests.support import Directory, Gap, Link, host
from tests.support.rows import diagnose_one

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult

OK, FINDING, NOT_APPLICABLE, UNKNOWN = "ok", "finding", "not-applicable", "unknown"
HOST = {"/proc/self/ns/pid": Link("pid:[4026531836]"), "/proc/sys/kernel/osrelease": "6.1.0-18-amd64"}
CONTAINER = {"/proc/self/ns/pid": Link("pid:[4026532281]"), "/proc/sys/kernel/osrelease": "6.1.0-18-amd64"}
IMAGE = "BOOT_IMAGE=/vmlinuz-6.1.0-18-amd64 root=/dev/sda1 ro"


def said(tmp_path: Path, row: str, files: dict[str, Any], *log: str, **more: Any) -> RowResult:
    lines = [[6, float(i), text] for i, text in enumerate(("Linux version 6.1.0", *log))]
    options = {"complete": True, "libraries": {("kmsg",): lines}, **more}
    return diagnose_one(host(tmp_path, {**HOST, **files}, **options), row)


def subjects(result: RowResult) -> list[tuple[str, str]]:
    return [(f.severity, f.subject) for f in result.findings]


def evidence(result: RowResult, finding: int = 0) -> list[tuple[str, str]]:
    return [(e.source, e.value) for e in result.findings[finding].evidence]


# -- args-pending ----------------------------------------------------------------------------------


def grub(configured: str, generated: str) -> dict[str, str]:
    return {
        "/etc/default/grub": f'GRUB_CMDLINE_LINUX_DEFAULT="{configured}"\n',
        "/boot/grub/grub.cfg": (
            'set default="0"\nmenuentry "Debian" {\n'
            f"\tlinux /vmlinuz-6.1.0-18-amd64 root=/dev/sda1 ro {generated}\n}}\n"
        ),
    }


def pending(tmp_path: Path, running: str, files: dict[str, Any], **more: Any) -> RowResult:
    return said(tmp_path, "kernel.args-pending", {"/proc/cmdline": running, **files}, **more)


def test_pending_nothing(tmp_path: Path) -> None:
    assert pending(tmp_path, f"{IMAGE} quiet", grub("quiet", "quiet")).outcome == OK


def test_pending_reboot(tmp_path: Path) -> None:
    result = pending(tmp_path, f"{IMAGE} quiet", grub("quiet nohz_full=1-3", "quiet nohz_full=1-3"))
    assert subjects(result) == [("warning", "karg:nohz_full")]
    assert evidence(result) == [
        ("/boot/grub/grub.cfg, entry Debian", "nohz_full=1-3"),
        ("/proc/cmdline", "not in it"),
    ]
    assert result.findings[0].advice == "Reboot to bring them into force."


def test_pending_change_of_a_value(tmp_path: Path) -> None:
    result = pending(tmp_path, f"{IMAGE} isolcpus=1", grub("isolcpus=1-3", "isolcpus=1-3"))
    assert subjects(result) == [("warning", "karg:isolcpus")]
    assert evidence(result)[1] == ("/proc/cmdline", "isolcpus=1")


def test_pending_generation(tmp_path: Path) -> None:
    result = pending(tmp_path, f"{IMAGE} quiet", grub("quiet tsc=reliable skew_tick=1", "quiet"))
    assert subjects(result) == [("warning", "kernel")]
    assert evidence(result) == [
        ("/etc/default/grub", "tsc=reliable skew_tick=1"),
        ("/boot/grub/grub.cfg, entry Debian", "not in it"),
    ]
    assert result.findings[0].advice.startswith("Run update-grub")


def test_pending_loss(tmp_path: Path) -> None:
    result = pending(tmp_path, f"{IMAGE} quiet isolcpus=1-3 splash", grub("quiet", "quiet"))
    assert subjects(result) == [("warning", "kernel")]
    assert evidence(result)[0] == ("/proc/cmdline", "isolcpus=1-3 splash")
    assert result.findings[0].changes == [KernelArguments(set=("isolcpus=1-3",))]


def test_pending_of_no_weight_is_a_remark(tmp_path: Path) -> None:
    result = pending(tmp_path, f"{IMAGE} quiet", grub("splash quiet", "splash quiet"))
    assert subjects(result) == [("info", "karg:splash")]


def test_what_the_loader_adds_is_no_difference(tmp_path: Path) -> None:
    running = f"initrd=/boot/x {IMAGE} quiet vt.handoff=7"
    assert pending(tmp_path, running, grub("quiet", "quiet $vt_handoff")).outcome == OK


def test_dashes_and_underscores_are_no_difference(tmp_path: Path) -> None:
    assert pending(tmp_path, f"{IMAGE} rcu-nocbs=1", grub("rcu_nocbs=1", "rcu_nocbs=1")).outcome == OK


def test_an_open_variable_leaves_what_it_may_hold_alone(tmp_path: Path) -> None:
    result = pending(tmp_path, f"{IMAGE} skew_tick=1", grub("$tuned_params", "$tuned_params"))
    assert result.findings == []


def test_pending_with_a_menu_that_may_not_be_read(tmp_path: Path) -> None:
    files = {**grub("quiet", "quiet"), "/boot/grub/grub.cfg": Gap("denied")}
    result = pending(tmp_path, f"{IMAGE} quiet", files)
    assert result.outcome == UNKNOWN
    assert [u.remedy for u in result.unknowns] == ["run as root"]


def test_pending_with_a_configuration_that_only_a_shell_can_read(tmp_path: Path) -> None:
    files = {**grub("", "quiet"), "/etc/default/grub": "GRUB_CMDLINE_LINUX=$(cat /x)\n"}
    assert pending(tmp_path, f"{IMAGE} quiet", files).outcome == UNKNOWN


@pytest.mark.parametrize(
    ("files", "running", "why"),
    [
        ({}, "quiet", "no boot loader"),
        (CONTAINER, IMAGE, "container"),
        (grub("a", "b"), "console=hvc0 root=/dev/vda", "not started by GRUB"),
    ],
)
def test_pending_does_not_apply(tmp_path: Path, files: dict[str, Any], running: str, why: str) -> None:
    result = pending(tmp_path, running, files)
    assert result.outcome == NOT_APPLICABLE
    assert why in result.reason


def test_pending_on_red_hat(tmp_path: Path) -> None:
    files = {
        "/boot/grub2/grub.cfg": "blscfg\n",
        "/boot/grub2/grubenv": "saved_entry=m-6.1\n",
        "/boot/loader/entries/m-6.1.conf": "options root=/dev/sda1 ro isolcpus=2-7 $tuned_params\n",
    }
    assert pending(tmp_path, f"{IMAGE} isolcpus=2-7", files).outcome == OK
    files["/boot/grub2/grubenv"] = "saved_entry=m-6.1\ntuned_params=skew_tick=1\n"
    result = pending(tmp_path / "b", f"{IMAGE} isolcpus=2-7", files)
    assert subjects(result) == [("warning", "karg:skew_tick")]


def test_pending_is_not_known_from_a_capture_without_it(tmp_path: Path) -> None:
    assert pending(tmp_path, IMAGE, {}, complete=False).outcome == UNKNOWN


# -- args-duplicate ----------------------------------------------------------------------------------


def duplicate(tmp_path: Path, cmdline: str, **more: Any) -> RowResult:
    return said(tmp_path, "kernel.args-duplicate", {"/proc/cmdline": cmdline}, **more)


def test_each_once(tmp_path: Path) -> None:
    assert duplicate(tmp_path, "quiet tsc=reliable isolcpus=1-3 nohz_full=1-3").outcome == OK


@pytest.mark.parametrize(
    "cmdline",
    [
        "console=tty0 console=ttyS0,115200",
        "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=100",
        "rd.lvm.lv=a/root rd.lvm.lv=a/swap",
        "systemd.mask=a systemd.mask=b",
        "rw root=/dev/a ro rw",
        "crashkernel=256M,high crashkernel=72M,low",
        "a=1 -- a=2",
    ],
)
def test_what_may_be_given_again(tmp_path: Path, cmdline: str) -> None:
    assert duplicate(tmp_path, cmdline).outcome == OK


def test_twice_alike(tmp_path: Path) -> None:
    result = duplicate(tmp_path, "tsc=reliable skew_tick=1 quiet tsc=reliable")
    assert subjects(result) == [("info", "karg:tsc")]
    assert result.findings[0].changes == [KernelArguments(set=("tsc=reliable",))]


def test_twice_with_different_values(tmp_path: Path) -> None:
    result = duplicate(tmp_path, "intel-idle.max_cstate=0 intel_idle.max_cstate=1")
    assert subjects(result) == [("warning", "karg:intel_idle.max_cstate")]
    assert "intel_idle.max_cstate=1 is in force" in result.findings[0].message
    assert evidence(result) == [("/proc/cmdline", "intel-idle.max_cstate=0 ... intel_idle.max_cstate=1")]


def test_twice_in_a_container_is_for_the_host_to_mend(tmp_path: Path) -> None:
    result = said(
        tmp_path, "kernel.args-duplicate", {**CONTAINER, "/proc/cmdline": "tsc=reliable tsc=nowatchdog"}
    )
    assert result.findings[0].changes == []
    assert "host" in result.findings[0].advice


def test_duplicates_of_an_unread_command_line(tmp_path: Path) -> None:
    assert said(tmp_path, "kernel.args-duplicate", {}, complete=False).outcome == UNKNOWN


# -- args-ignored ------------------------------------------------------------------------------------


def unknown(text: str) -> str:
    return f'Unknown kernel command line parameters "{text}", will be passed to user space.'


def ignored(tmp_path: Path, cmdline: str, *log: str, **more: Any) -> RowResult:
    files = {"/proc/cmdline": cmdline, **more.pop("files", {})}
    return said(tmp_path, "kernel.args-ignored", files, *log, **more)


def test_nothing_ignored(tmp_path: Path) -> None:
    assert ignored(tmp_path, "quiet isolcpus=1-3").outcome == OK


def test_words_for_others_do_not_cry(tmp_path: Path) -> None:
    text = "splash boot=live BOOT_IMAGE=/vmlinuz noautologin biosdevname=0 vyos-union=/a pti=on nokaslr"
    assert ignored(tmp_path, text, unknown(text)).outcome == OK


def test_switching_off_what_is_not_built_in_does_not_cry(tmp_path: Path) -> None:
    text = "nmi_watchdog=0 nosoftlockup audit=0 numa_balancing=disable mce=off nosmt"
    assert ignored(tmp_path, text, unknown(text)).outcome == OK


def test_isolation_that_is_not_built_in(tmp_path: Path) -> None:
    result = ignored(
        tmp_path,
        "isolcpus=2-3 nohz_full=2-3 rcu_nocbs=2-3",
        unknown("nohz_full=2-3 rcu_nocbs=2-3"),
        "Housekeeping: nohz unsupported. Build with CONFIG_NO_HZ_FULL",
    )
    assert subjects(result) == [("warning", "kernel")]
    assert "nohz_full= and rcu_nocbs=" in result.findings[0].message
    assert evidence(result)[1][1].startswith("Housekeeping: nohz unsupported")
    assert "CONFIG_NO_HZ_FULL=y and CONFIG_RCU_NOCB_CPU=y" in result.findings[0].advice


def test_a_slip_of_the_pen(tmp_path: Path) -> None:
    result = ignored(tmp_path, "nohz_ful=2-3", unknown("nohz_ful=2-3"))
    assert subjects(result) == [("warning", "karg:nohz_ful")]
    assert "nohz_full may be meant" in result.findings[0].message


def test_a_value_that_the_kernel_could_not_read(tmp_path: Path) -> None:
    result = ignored(tmp_path, "irqaffinity=x mem=y", "Malformed early option 'mem'")
    assert subjects(result) == [("warning", "karg:mem")]
    result = ignored(
        tmp_path / "b", "x", "Booting kernel: `abc' invalid for parameter `nvme_core.io_timeout'"
    )
    assert subjects(result) == [("warning", "karg:nvme_core.io_timeout")]


@pytest.mark.parametrize(
    ("cmdline", "subject"),
    [
        ("pcie_aspm=off", "karg:pcie_aspm"),
        ("elevator=noop", "karg:elevator"),
        ("default_hugepagesz=1G hugepagesz=2M hugepages=0", "karg:hugepages"),
    ],
)
def test_arguments_that_are_not_what_they_seem(tmp_path: Path, cmdline: str, subject: str) -> None:
    assert subjects(ignored(tmp_path, cmdline)) == [("info", subject)]


@pytest.mark.parametrize(
    "cmdline",
    [
        "idle=poll",
        "idle=poll intel_idle.max_cstate=0 processor.max_cstate=1",  # cpu.idle-poll tells it
        "idle=halt processor.max_cstate=1",
        "intel_idle.max_cstate=1",
        "pcie_aspm.policy=performance",
        "hugepagesz=1G hugepages=0 hugepagesz=2M hugepages=10",
        "default_hugepagesz=1G",
    ],
)
def test_arguments_that_are_what_they_seem(tmp_path: Path, cmdline: str) -> None:
    assert ignored(tmp_path, cmdline).outcome == OK


def test_intel_idle_off_hands_over_to_acpi(tmp_path: Path) -> None:
    driver = "/sys/devices/system/cpu/cpuidle/current_driver"
    acpi = ignored(tmp_path, "intel_idle.max_cstate=0", files={driver: "acpi_idle\n"})
    assert subjects(acpi) == [("info", "karg:intel_idle.max_cstate")]
    assert ignored(tmp_path / "b", "intel_idle.max_cstate=0", files={driver: "none\n"}).outcome == OK


def test_elevator_on_an_old_kernel_works(tmp_path: Path) -> None:
    files = {"/proc/sys/kernel/osrelease": "4.19.0-26-amd64"}
    assert ignored(tmp_path, "elevator=noop", files=files).outcome == OK


def test_without_the_log_nothing_is_known_of_what_was_ignored(tmp_path: Path) -> None:
    result = ignored(tmp_path, "nohz_full=2-3", libraries={("kmsg",): Gap("denied")})
    assert result.outcome == UNKNOWN
    assert result.unknowns[0].remedy == "run as root"
    assert said(tmp_path / "b", "kernel.args-ignored", {}, complete=False).outcome == UNKNOWN


# -- args-debug --------------------------------------------------------------------------------------


def test_debugging(tmp_path: Path) -> None:
    row = "kernel.args-debug"
    assert (
        said(tmp_path / "a", row, {"/proc/cmdline": "quiet slab_debug=- page_owner=off debug"}).outcome == OK
    )
    result = said(tmp_path / "b", row, {"/proc/cmdline": "slub_debug=FZP init_on_free=1 debug_pagealloc=on"})
    assert sorted(subjects(result)) == [
        ("info", "karg:init_on_free"),
        ("warning", "karg:debug_pagealloc"),
        ("warning", "karg:slub_debug"),
    ]
    # a kernel without it did not take it
    result = said(tmp_path / "c", row, {"/proc/cmdline": "kmemleak=on"}, unknown("kmemleak=on"))
    assert result.outcome == OK
    assert said(tmp_path / "d", row, {}, complete=False).outcome == UNKNOWN


# -- cmdline-length ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "length", "outcome"),
    [
        ("x86_64", 500, OK),
        ("x86_64", 2045, OK),
        ("x86_64", 2047, FINDING),
        ("aarch64", 2047, FINDING),
        ("s390x", 2047, NOT_APPLICABLE),
    ],
)
def test_length(tmp_path: Path, architecture: str, length: int, outcome: str) -> None:
    files = {"/proc/cmdline": "a" * length, "/proc/sys/kernel/arch": architecture}
    assert said(tmp_path, "kernel.cmdline-length", files).outcome == outcome


def test_length_of_the_next_boot(tmp_path: Path) -> None:
    files = {"/proc/cmdline": IMAGE, "/proc/sys/kernel/arch": "x86_64", **grub("", "x" * 2100)}
    result = said(tmp_path, "kernel.cmdline-length", files)
    assert result.findings[0].evidence[0].source == "/boot/grub/grub.cfg, entry Debian"


def test_length_is_not_known(tmp_path: Path) -> None:
    assert said(tmp_path, "kernel.cmdline-length", {}, complete=False).outcome == UNKNOWN


# -- serial-console --------------------------------------------------------------------------------

SERIAL = "kernel.serial-console"
METAL = {"/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu\n"}


@pytest.mark.parametrize(
    ("cmdline", "printk", "outcome"),
    [
        ("console=tty0 console=ttyS0,115200n8", "7\t4\t1\t7", FINDING),
        ("console=ttyS0", "4\t4\t1\t7", OK),
        ("console=tty0 quiet", "7\t4\t1\t7", NOT_APPLICABLE),
        ("console=ttyS0", Gap("denied"), UNKNOWN),
        ("console=ttyS0", "", UNKNOWN),
    ],
)
def test_serial_console(tmp_path: Path, cmdline: str, printk: Any, outcome: str) -> None:
    files = {**METAL, "/proc/cmdline": cmdline, "/proc/sys/kernel/printk": printk}
    assert said(tmp_path, SERIAL, files).outcome == outcome


def test_the_slowest_serial_line_counts(tmp_path: Path) -> None:
    cmdline = "console=ttyS0,115200n8 console=ttyS1"  # 9600 baud: 80 characters of ten bits in 83 ms
    files = {**METAL, "/proc/cmdline": cmdline, "/proc/sys/kernel/printk": "7 4 1 7"}
    result = said(tmp_path, SERIAL, files)
    assert "83 ms" in result.findings[0].message
    assert evidence(result)[0] == ("/proc/cmdline", "console=ttyS1")
    assert result.findings[0].evidence[1].expected == "4 4 1 7"


def test_serial_console_of_a_real_time_kernel_or_a_virtual_machine(tmp_path: Path) -> None:
    files = {"/proc/cmdline": "console=ttyS0", "/proc/sys/kernel/printk": "7 4 1 7"}
    version = {"/proc/sys/kernel/version": "#1 SMP PREEMPT_RT x"}
    assert said(tmp_path / "a", SERIAL, {**METAL, **files, **version}).outcome == OK
    guest = {"/proc/cpuinfo": "flags\t: x\nflags\t: hypervisor\n"}
    assert said(tmp_path / "b", SERIAL, {**files, **guest}).outcome == NOT_APPLICABLE


# -- lockdown, taint -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("[none] integrity confidentiality", OK),
        ("none [integrity] confidentiality", OK),
        ("none integrity [confidentiality]", FINDING),
    ],
)
def test_lockdown(tmp_path: Path, text: str, outcome: str) -> None:
    assert said(tmp_path, "kernel.lockdown", {"/sys/kernel/security/lockdown": text}).outcome == outcome


def test_lockdown_that_only_the_log_tells(tmp_path: Path) -> None:
    line = "Kernel is locked down from EFI Secure Boot mode; see man kernel_lockdown.7"
    result = said(tmp_path, "kernel.lockdown", {}, line)
    assert result.outcome == UNKNOWN
    assert "securityfs" in result.unknowns[0].remedy


def test_lockdown_is_not_known_or_does_not_exist(tmp_path: Path) -> None:
    assert said(tmp_path / "a", "kernel.lockdown", {}, complete=False, libraries={}).outcome == UNKNOWN
    silent = {("kmsg",): [[6, 900.0, "the beginning is lost"]]}
    assert said(tmp_path / "b", "kernel.lockdown", {}, libraries=silent).outcome == NOT_APPLICABLE


@pytest.mark.parametrize(
    ("taint", "outcome", "severities"),
    [
        ("0", OK, []),
        (str(1 << 0 | 1 << 12 | 1 << 13), OK, []),  # NVIDIA's driver: P, O, E
        (str(1 << 9), OK, []),  # a warning
        (str(1 << 4), FINDING, ["error"]),
        (str(1 << 14 | 1 << 7), FINDING, ["error", "warning"]),
    ],
)
def test_taint(tmp_path: Path, taint: str, outcome: str, severities: list[str]) -> None:
    result = said(tmp_path, "kernel.tainted", {"/proc/sys/kernel/tainted": taint})
    assert (result.outcome, [f.severity for f in result.findings]) == (outcome, severities)


def test_taint_is_not_known_or_does_not_exist(tmp_path: Path) -> None:
    assert said(tmp_path / "a", "kernel.tainted", {}, complete=False).outcome == UNKNOWN
    assert said(tmp_path / "b", "kernel.tainted", {}).outcome == NOT_APPLICABLE
    garbage = {"/proc/sys/kernel/tainted": Directory()}
    assert said(tmp_path / "c", "kernel.tainted", garbage).outcome == UNKNOWN
