"""The kernel probe: identity, sysctls with their precedence, configuration, log."""

from __future__ import annotations

import json
import zlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hwtune.fact import ABSENT, DENIED, INVALID, NOT_CAPTURED, UNREADABLE
from hwtune.probes import _kernel_log, kernel
from tests.support import Directory, Gap, Link, host

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.model import Machine  # noqa: F401
    from hwtune.model.kernel import Kernel

RELEASE = "6.1.0-18-amd64"


def read(tmp_path: Path, files: dict[str, Any], **more: Any) -> Kernel:
    return kernel.read(host(tmp_path, files, **more))


def log(*texts: str) -> dict[Any, Any]:
    return {("kmsg",): [[6, float(i), text] for i, text in enumerate(texts)]}


@pytest.mark.parametrize("said", [7, "text", [7], [[6, 1.0]], [["6", 1.0, "x"]], [[6, 1.0, 2]], {"a": 1}])
def test_a_recorded_log_of_any_shape(tmp_path: Path, said: Any) -> None:
    found = read(tmp_path, {"/proc/version": "Linux\n"}, libraries={("kmsg",): said})
    assert found.log_known.gap == "invalid"
    assert found.unknown_parameters.gap == "invalid"


# -- identity --------------------------------------------------------------------------------------


def test_a_live_machine(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {
            "/proc/sys/kernel/osrelease": RELEASE + "\n",
            "/proc/sys/kernel/version": "#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)\n",
            "/proc/sys/kernel/hostname": "box7\n",
            "/proc/sys/kernel/random/boot_id": "0d0e\n",
            "/proc/uptime": "354.12 700.01\n",
            "/proc/cmdline": "BOOT_IMAGE=/vmlinuz-6.1.0-18-amd64 root=/dev/sda1 ro quiet -- init-argument\n",
            "/proc/modules": "nvme 49152 2 - Live 0x0000000000000000\next4 995328 1 - Live 0x0\n",
            "/proc/sys/kernel/tainted": "4096\n",
            "/sys/kernel/security/lockdown": "none [integrity] confidentiality\n",
            "/etc/os-release": 'ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n# ID=other\n',
        },
        complete=True,
    )
    assert found.release.get() == RELEASE
    assert found.architecture.get() == "x86_64"  # from the release's end
    assert found.hostname.get() == "box7"
    assert found.boot_id.get() == "0d0e"
    assert found.uptime_s.get() == 354.12
    assert [a.text for a in found.arguments.get()][1:] == ["root=/dev/sda1", "ro", "quiet"]
    assert found.argument_values("BOOT-IMAGE") == ["/vmlinuz-6.1.0-18-amd64"]
    assert found.modules.get() == ["ext4", "nvme"]
    assert found.tainted.get() == 4096
    assert found.lockdown.get() == "integrity"
    assert (found.distribution.get(), found.distribution_name.get()) == (
        "debian",
        "Debian GNU/Linux 12 (bookworm)",
    )
    assert found.config.gap == ABSENT
    assert found.preemption.get() == "dynamic"


def test_other_places_of_the_same_facts(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {
            "/proc/version": "Linux version 5.18.0-rc4 (me@build) (gcc (D) 10.3) #1 SMP PREEMPT Tue Apr 26\n",
            "/etc/hostname": "# made by hand\nbox8\n",
            "/proc/hwloc-nofile-info": "OSName: Linux\nArchitecture: aarch64\n",
            "/usr/lib/os-release": "ID='sles'\n",
        },
    )
    assert (found.release.get(), found.release.source) == ("5.18.0-rc4", "/proc/version")
    assert found.version.get() == "#1 SMP PREEMPT Tue Apr 26"
    assert found.preemption.get() == "full"
    assert found.hostname.get() == "box8"
    assert found.architecture.get() == "aarch64"
    assert found.distribution.get() == "sles"
    assert found.distribution_name.absent


def test_release_by_the_name_of_the_booted_file(tmp_path: Path) -> None:
    image = "BOOT_IMAGE=(hd0,gpt3)/boot/ostree/rhcos-1f/vmlinuz-5.14.0-427.59.1.el9_4.x86_64+rt rw"
    found = read(tmp_path, {"/proc/cmdline": image})
    assert (found.release.get(), found.release.source) == ("5.14.0-427.59.1.el9_4.x86_64+rt", "/proc/cmdline")
    assert found.architecture.get() == "x86_64"


def test_release_by_the_log(tmp_path: Path) -> None:
    banner = "[    0.000000] Linux version 6.8.4-x86_64 (b@c) (gcc 13) #3 SMP PREEMPT_RT Mon\n"
    found = read(tmp_path, {}, documents={"dmesg.txt": banner + "[    0.000001] Command line: x\n"})
    assert found.release.get() == "6.8.4-x86_64"
    assert found.preemption.get() == "rt"


def test_nothing_captured_is_not_known(tmp_path: Path) -> None:
    found = read(tmp_path, {"/proc/cpuinfo": ""})
    for fact in (
        found.release,
        found.hostname,
        found.cmdline,
        found.arguments,
        found.tainted,
        found.sysctl.files,
    ):
        assert fact.gap == NOT_CAPTURED
    assert found.boot_loader.gap == NOT_CAPTURED
    assert found.config.gap == NOT_CAPTURED


@pytest.mark.parametrize(
    ("version", "more", "expected"),
    [
        ("#1 SMP PREEMPT_RT Mon", {}, "rt"),
        ("#1 SMP PREEMPT RT Mon", {}, "rt"),  # the patches before 5.15 wrote it so
        ("#1 SMP PREEMPT Mon", {}, "full"),
        ("#1 SMP PREEMPT_LAZY Mon", {}, "lazy"),
        (
            "#1 SMP PREEMPT_DYNAMIC Mon",
            {"/sys/kernel/debug/sched/preempt": "none (voluntary) full"},
            "voluntary",
        ),
        ("#1 SMP PREEMPT_DYNAMIC Mon", {"/proc/cmdline": "preempt=full preempt=none"}, "none"),
        ("#1 SMP PREEMPT_DYNAMIC Mon", {"/boot/config-r": "CONFIG_PREEMPT_VOLUNTARY=y\n"}, "voluntary"),
        ("#1 SMP PREEMPT_DYNAMIC Mon", {}, "dynamic"),
        ("#1 SMP Mon", {"/boot/config-r": "CONFIG_PREEMPT_NONE=y\n"}, "none"),
        ("#1 SMP Mon", {}, None),
    ],
)
def test_preemption(tmp_path: Path, version: str, more: dict[str, str], expected: str | None) -> None:
    files = {"/proc/sys/kernel/osrelease": "r", "/proc/sys/kernel/version": version, **more}
    assert read(tmp_path, files).preemption.value == expected


# -- sysctls ---------------------------------------------------------------------------------------

TREE = {
    "/etc/sysctl.d/50-default.conf": "kernel.sysrq = 1\n",  # hides the one of /usr/lib
    "/etc/sysctl.d/99-hwtune.conf": "\nvm.swappiness = 1\n",
    "/etc/sysctl.d/99-sysctl.conf": Link("../sysctl.conf"),
    "/etc/sysctl.d/20-masked.conf": Link("/dev/null"),
    "/etc/sysctl.d/README": "vm.swappiness = 7\n",
    "/etc/sysctl.conf": "# comment\nvm.swappiness = 60\nnet.ipv4.tcp_fastopen_key = 0-1-2-3\n",
    "/run/sysctl.d/60-run.conf": "-net.core.rmem_max=1\n",
    "/usr/lib/sysctl.d/20-masked.conf": "vm.dirty_ratio = 1\n",
    "/usr/lib/sysctl.d/50-default.conf": "kernel.sysrq = 16\n",
    "/usr/lib/sysctl.d/10-first.conf": "net.ipv4.conf.*.rp_filter = 2\n-net.ipv4.conf.all.rp_filter\n",
    "/usr/local/lib/sysctl.d": Directory(),
    "/lib": Link("usr/lib"),
    "/proc/sys/vm/swappiness": "60\n",
    "/proc/sys/kernel/sysrq": "1\n",
    "/proc/sys/net/core/rmem_max": "212992\n",
}


def test_sysctl_files_in_the_order_in_which_they_are_applied(tmp_path: Path) -> None:
    sysctl = read(tmp_path, TREE, complete=True).sysctl
    assert [(s.key, s.value, s.file, s.line) for s in sysctl.settings] == [
        ("net.ipv4.conf.*.rp_filter", "2", "/usr/lib/sysctl.d/10-first.conf", 1),
        ("net.ipv4.conf.all.rp_filter", None, "/usr/lib/sysctl.d/10-first.conf", 2),
        ("kernel.sysrq", "1", "/etc/sysctl.d/50-default.conf", 1),
        ("net.core.rmem_max", "1", "/run/sysctl.d/60-run.conf", 1),
        ("vm.swappiness", "1", "/etc/sysctl.d/99-hwtune.conf", 2),
        ("vm.swappiness", "60", "/etc/sysctl.conf", 2),
    ]
    assert sysctl.settings[-1].through == "/etc/sysctl.d/99-sysctl.conf"
    assert sysctl.settings[3].optional
    assert sysctl.masked == ["/usr/lib/sysctl.d/20-masked.conf", "/usr/lib/sysctl.d/50-default.conf"]
    assert len(sysctl.files.get()) == 6
    assert sysctl.unread == []
    assert sysctl.values["vm.swappiness"].get() == "60"
    assert sysctl.values["net.core.rmem_max"].get() == "212992"
    assert sysctl.values["kernel.numa_balancing"].absent
    assert "net.ipv4.conf.*.rp_filter" not in sysctl.values


def test_secrets_stay_out(tmp_path: Path) -> None:
    found = read(tmp_path, {**TREE, "/proc/sys/net/ipv4/tcp_fastopen_key": "0-1-2-3"}, complete=True)
    assert not any("fastopen_key" in s.key for s in found.sysctl.settings)
    assert not any("fastopen_key" in key for key in found.sysctl.values)


def test_sysctl_conf_that_nothing_reads(tmp_path: Path) -> None:
    files = {
        "/etc/sysctl.conf": "vm.swappiness = 5\n",
        "/etc/sysctl.d/10-a.conf": "vm.dirty_ratio = 5\n",
        "/usr/lib/systemd/systemd-sysctl": "",
    }
    sysctl = read(tmp_path, files, complete=True).sysctl
    assert [s.key for s in sysctl.settings] == ["vm.dirty_ratio"]
    assert [(s.key, s.value, s.line) for s in sysctl.unread] == [("vm.swappiness", "5", 1)]
    assert sysctl.by_systemd.get() is True


def test_directories_that_were_not_captured_make_the_files_unknown(tmp_path: Path) -> None:
    sysctl = read(tmp_path, {"/etc/sysctl.d/10-a.conf": "vm.dirty_ratio = 5\n"}).sysctl
    assert len(sysctl.settings) == 1
    assert sysctl.files.gap == NOT_CAPTURED


def test_a_file_that_may_not_be_read_makes_the_files_unknown(tmp_path: Path) -> None:
    files = {"/etc/sysctl.d/10-a.conf": "vm.dirty_ratio = 5\n", "/etc/sysctl.d/20-b.conf": Gap(DENIED)}
    sysctl = read(tmp_path, files, complete=True).sysctl
    assert sysctl.files.gap == DENIED
    assert sysctl.files.source == "/etc/sysctl.d/20-b.conf"


def test_no_key_reads_a_file_outside_of_proc_sys(tmp_path: Path) -> None:
    files = {
        "/etc/sysctl.d/10-a.conf": (
            "kernel/../../../etc/shadow = 1\n..//..//etc/shadow=1\nkernel.//.//.//etc.shadow=1\n"
        ),
        "/etc/shadow": "secret",
    }
    sysctl = read(tmp_path, files, complete=True).sysctl
    assert len(sysctl.settings) == 3
    assert not any(fact.value == "secret" for fact in sysctl.values.values())


@pytest.mark.parametrize("content", [b"", b"\0\xff\xfe" * 100, b"=" * 5000, b"\n" * 5000])
def test_files_of_garbage(tmp_path: Path, content: bytes) -> None:
    names = (
        "/etc/sysctl.d/a.conf",
        "/etc/sysctl.conf",
        "/etc/default/grub",
        "/boot/grub/grub.cfg",
        "/proc/cmdline",
    )
    names += (
        "/boot/loader/entries/a.conf",
        "/etc/kernel/cmdline",
        "/proc/version",
        "/proc/uptime",
        "/proc/modules",
    )
    names += ("/proc/config.gz", "/etc/os-release", "/sys/kernel/security/lockdown", "/boot/grub/grubenv")
    read(tmp_path, dict.fromkeys(names, content), complete=True)


def test_directories_in_the_place_of_files(tmp_path: Path) -> None:
    names = (
        "/etc/sysctl.d/a.conf",
        "/etc/sysctl.conf",
        "/etc/default/grub",
        "/boot/grub/grub.cfg",
        "/proc/cmdline",
    )
    found = read(tmp_path, dict.fromkeys(names, Directory()), complete=True)
    assert found.cmdline.gap not in (None, ABSENT)


# -- configuration -----------------------------------------------------------------------------------

CONFIG = (
    "#\n# Linux\n#\nCONFIG_HZ=250\nCONFIG_NO_HZ_FULL=y\n# CONFIG_RCU_NOCB_CPU is not set\nCONFIG_PREEMPT=y\n"
)


def test_configuration_beside_the_kernel(tmp_path: Path) -> None:
    files = {"/proc/sys/kernel/osrelease": RELEASE, f"/boot/config-{RELEASE}": CONFIG}
    config = read(tmp_path, files).config
    assert config.source == f"/boot/config-{RELEASE}"
    assert config.get()["CONFIG_NO_HZ_FULL"] == "y"
    assert config.get()["CONFIG_RCU_NOCB_CPU"] == "n"
    assert config.get()["CONFIG_HZ"] == "250"


def test_packed_configuration_is_only_unpacked_where_an_argument_asks(tmp_path: Path) -> None:
    machine = zlib.compressobj(wbits=31)
    packed = machine.compress(CONFIG.encode()) + machine.flush()
    files: dict[str, Any] = {
        "/proc/sys/kernel/osrelease": RELEASE,
        "/proc/config.gz": packed,
        "/proc/cmdline": "quiet",
    }
    assert not read(tmp_path / "a", files).config.known
    files["/proc/cmdline"] = "quiet nohz_full=2-3"
    config = read(tmp_path / "b", files).config
    assert config.source == "/proc/config.gz"
    assert config.get()["CONFIG_NO_HZ_FULL"] == "y"
    files["/proc/config.gz"] = packed[:20] + b"x"
    assert read(tmp_path / "c", files).config.gap == INVALID


# -- log -----------------------------------------------------------------------------------------------

UNKNOWN = (
    'Unknown kernel command line parameters "splash BOOT_IMAGE=/vmlinuz nohz_full=2-3 x="a b"", '
    "will be passed to user space."
)


def test_unknown_parameters(tmp_path: Path) -> None:
    files = {"/proc/sys/kernel/osrelease": RELEASE, "/proc/cmdline": "quiet"}
    found = read(
        tmp_path,
        files,
        libraries=log("Linux version 6.1", UNKNOWN, "Housekeeping: nohz unsupported.", "other"),
    )
    assert found.unknown_parameters.get() == ["splash", "BOOT_IMAGE=/vmlinuz", "nohz_full=2-3", 'x="a b"']
    assert [line.text.split(" ")[0] for line in found.log] == ["Unknown", "Housekeeping:"]


@pytest.mark.parametrize(
    ("release", "lines", "value", "gap"),
    [
        (RELEASE, ("Linux version 6.1.0", "other"), [], None),
        (RELEASE, ("the beginning is lost",), None, NOT_CAPTURED),
        ("5.10.0", ("Linux version 5.10.0",), None, ABSENT),  # kernels before 5.14 do not say
    ],
)
def test_silence_of_the_log(
    tmp_path: Path, release: str, lines: tuple[str, ...], value: list[str] | None, gap: str | None
) -> None:
    found = read(tmp_path, {"/proc/sys/kernel/osrelease": release}, libraries=log(*lines))
    assert (found.unknown_parameters.value, found.unknown_parameters.gap) == (value, gap)


@pytest.mark.parametrize(("kind", "gap"), [("live", UNREADABLE), ("snapshot", NOT_CAPTURED)])
def test_a_lost_beginning_is_no_snapshot_on_a_live_host(kind: str, gap: str) -> None:
    """On a live box a capture would not hold more: nobody is sent to make one."""
    box: Any = SimpleNamespace(kind=kind)
    fact = _kernel_log.beginning_lost(box, "kmsg()")
    assert fact.gap == gap
    assert ("snapshot" in fact.why()) == (kind == "snapshot")


@pytest.mark.parametrize(
    ("files", "lines", "expected"),
    [
        ({"/sys/kernel/security/lockdown": "[none] integrity confidentiality"}, ("Linux version 6",), "none"),
        ({}, ("Linux version 6", "other"), "none"),
        (
            {},
            ("Linux version 6", "Kernel is locked down from EFI Secure Boot mode; see man kernel_lockdown.7"),
            "on",
        ),
        (
            {"/proc/cmdline": "lockdown=confidentiality"},
            ("Linux version 6", "Kernel is locked down from command line; see man kernel_lockdown.7"),
            "confidentiality",
        ),
        ({}, ("the beginning is lost",), None),
    ],
)
def test_lockdown(
    tmp_path: Path, files: dict[str, str], lines: tuple[str, ...], expected: str | None
) -> None:
    assert read(tmp_path, files, complete=True, libraries=log(*lines)).lockdown.value == expected


def test_lockdown_where_securityfs_is_not_mounted(tmp_path: Path) -> None:
    """The directory is there for whoever mounts it; what is in it shows that somebody has."""
    lost = log("the beginning is lost")
    empty = {"/sys/kernel/security": Directory()}
    assert read(tmp_path / "a", empty, complete=True, libraries=lost).lockdown.gap == "unreadable"
    mounted = {"/sys/kernel/security/lsm": "capability\n"}
    assert read(tmp_path / "b", mounted, complete=True, libraries=lost).lockdown.gap == "absent"


def test_the_part_can_be_written_as_json(tmp_path: Path) -> None:
    import msgspec

    found = read(tmp_path, TREE, complete=True)
    text = msgspec.json.encode(found, enc_hook=lambda fact: [fact.value, fact.source, fact.gap])
    assert json.loads(text)["release"][2] == ABSENT
