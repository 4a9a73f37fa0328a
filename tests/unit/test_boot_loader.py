"""What the boot loader is, what it is configured to give, and what the next boot will have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hwtune.fact import ABSENT, DENIED, INVALID, NOT_CAPTURED
from hwtune.probes import _boot
from tests.support import Directory, Gap, Link, host

if TYPE_CHECKING:
    from pathlib import Path

VENDOR = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
GRUB_CFG = """\
set default="0"
menuentry 'Debian GNU/Linux' --class debian $menuentry_id_option 'gnulinux-simple-1' {
\tlinux\t/vmlinuz-6.1.0-18-amd64 root=/dev/sda1 ro  quiet isolcpus=1-3
\tinitrd\t/initrd.img-6.1.0-18-amd64
}
"""


MORE = 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT ARGUMENT"\n'


def read(tmp_path: Path, files: dict[str, Any], **more: Any) -> _boot.Boot:
    return _boot.read(host(tmp_path, files, **{"complete": True, **more}))


def variable(text: str) -> bytes:
    """A variable of EFI: attributes, then UTF-16 with its end."""
    return b"\x06\0\0\0" + text.encode("utf-16-le") + b"\0\0"


def test_debian(tmp_path: Path) -> None:
    boot = read(
        tmp_path,
        {
            "/etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n',
            "/etc/default/grub.d/50-a.cfg": MORE.replace("ARGUMENT", "nohz_full=1-3"),
            "/etc/default/grub.d/99-b.cfg": MORE.replace("ARGUMENT", "tsc=reliable"),
            "/etc/default/grub.d/README": "GRUB_CMDLINE_LINUX=no\n",
            "/boot/grub/grub.cfg": GRUB_CFG,
        },
    )
    assert boot.loader.get() == "grub"
    assert boot.configured.get() == "quiet nohz_full=1-3 tsc=reliable"
    assert (
        boot.configured.source
        == "/etc/default/grub, /etc/default/grub.d/50-a.cfg, /etc/default/grub.d/99-b.cfg"
    )
    assert boot.next.get() == "root=/dev/sda1 ro quiet isolcpus=1-3"
    assert boot.next.source == "/boot/grub/grub.cfg, entry Debian GNU/Linux"


def test_a_drop_in_that_may_not_be_read_leaves_the_configuration_unknown(tmp_path: Path) -> None:
    files = {
        "/etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n',
        "/etc/default/grub.d/50-a.cfg": Gap(DENIED),
        "/boot/grub/grub.cfg": GRUB_CFG,
    }
    assert read(tmp_path, files).configured.gap == INVALID


def test_a_menu_that_only_root_may_read(tmp_path: Path) -> None:
    files = {
        "/etc/default/grub": 'GRUB_ENABLE_BLSCFG=true\nGRUB_CMDLINE_LINUX="rhgb"\n',
        "/boot/grub2/grub.cfg": Gap(DENIED),
    }
    boot = read(tmp_path, files)
    assert boot.loader.get() == "grub-bls"
    assert boot.next.gap == DENIED
    assert boot.next.source == "/boot/grub2/grub.cfg"
    assert boot.configured.absent


RHEL = {
    "/etc/default/grub": 'GRUB_CMDLINE_LINUX="crashkernel=1G"\nGRUB_DEFAULT=saved\n',
    "/boot/grub2/grub.cfg": 'if [ -z "${kernelopts}" ]; then\n  set kernelopts="root=/dev/a"\nfi\nblscfg\n',
    "/boot/loader/entries/id-5.14.0-70.el9.x86_64.conf": "version 5.14.0-70\noptions root=/dev/a ro old\n",
    "/boot/loader/entries/id-5.14.0-427.el9.x86_64.conf": (
        "options root=/dev/a ro isolcpus=2-7 $tuned_params\n"
    ),
    "/boot/loader/entries/id-0-rescue.conf": "options rescue\n",
}


@pytest.mark.parametrize(
    ("grubenv", "options", "entry"),
    [
        ("saved_entry=id-5.14.0-427.el9.x86_64\n", "root=/dev/a ro isolcpus=2-7", "id-5.14.0-427.el9.x86_64"),
        ("saved_entry=id-5.14.0-70.el9.x86_64\n", "root=/dev/a ro old", "id-5.14.0-70.el9.x86_64"),
        ("saved_entry=2\n", "rescue", "id-0-rescue"),
        ("saved_entry=gone\n", "root=/dev/a ro isolcpus=2-7", "id-5.14.0-427.el9.x86_64"),
        ("tuned_params=skew_tick=1\n", "root=/dev/a ro isolcpus=2-7 skew_tick=1", "id-5.14.0-427.el9.x86_64"),
    ],
)
def test_red_hat(tmp_path: Path, grubenv: str, options: str, entry: str) -> None:
    boot = read(tmp_path, {**RHEL, "/boot/grub2/grubenv": "# GRUB Environment Block\n" + grubenv})
    assert boot.loader.get() == "grub-bls"
    assert boot.next.get() == options
    assert boot.next.source == f"/boot/loader/entries/{entry}.conf"
    assert boot.configured.absent  # grubby writes the entries themselves


def test_red_hats_menu_in_the_efi_partition(tmp_path: Path) -> None:
    files = {
        "/sys/firmware/efi": Directory(),
        "/etc/grub2-efi.cfg": Link("../boot/efi/EFI/redhat/grub.cfg"),
        "/boot/efi/EFI/redhat/grub.cfg": GRUB_CFG.replace("quiet", "right"),
        "/boot/grub2/grub.cfg": GRUB_CFG.replace("quiet", "stale"),
        "/etc/default/grub": "GRUB_CMDLINE_LINUX=right\n",
    }
    boot = read(tmp_path, files)
    assert boot.next.get() == "root=/dev/sda1 ro right isolcpus=1-3"
    assert boot.next.source.startswith("/boot/efi/EFI/redhat/grub.cfg")


SYSTEMD = {
    "/efi/loader/loader.conf": "timeout 3\n",
    "/efi/loader/entries/m-6.1.0-17.conf": "version 6.1.0-17\nsort-key debian\noptions root=/dev/a 17\n",
    "/efi/loader/entries/m-6.1.0-18.conf": "version 6.1.0-18\nsort-key debian\noptions root=/dev/a 18\n",
    "/efi/loader/entries/zz.conf": "title other\noptions other\n",
    "/etc/kernel/cmdline": "root=/dev/a\n18 nohz_full=1\n",
}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "root=/dev/a 18"),
        ({"/efi/loader/loader.conf": "default m-6.1.0-17.conf\n"}, "root=/dev/a 17"),
        ({"/efi/loader/loader.conf": "default m-*\n"}, "root=/dev/a 18"),
        ({"/efi/loader/loader.conf": "default @saved\n"}, None),
        (
            {f"/sys/firmware/efi/efivars/LoaderEntryDefault-{VENDOR}": variable("m-6.1.0-17.conf")},
            "root=/dev/a 17",
        ),
        ({f"/sys/firmware/efi/efivars/LoaderEntryOneShot-{VENDOR}": variable("zz.conf")}, "other"),
        ({f"/sys/firmware/efi/efivars/LoaderEntryDefault-{VENDOR}": variable("gone.conf")}, None),
    ],
)
def test_systemd_boot(tmp_path: Path, more: dict[str, Any], expected: str | None) -> None:
    boot = read(tmp_path, {**SYSTEMD, **more})
    assert boot.loader.get() == "systemd-boot"
    assert boot.next.value == expected
    assert boot.configured.get() == "root=/dev/a 18 nohz_full=1"


def test_the_loader_that_says_its_name_counts_before_files_of_another(tmp_path: Path) -> None:
    files = {
        **SYSTEMD,
        "/boot/grub/grub.cfg": GRUB_CFG,
        f"/sys/firmware/efi/efivars/LoaderInfo-{VENDOR}": variable("systemd-boot 252.22"),
    }
    assert read(tmp_path, files).loader.get() == "systemd-boot"


def test_a_unified_image_holds_its_own_command_line(tmp_path: Path) -> None:
    files = {f"/sys/firmware/efi/efivars/StubInfo-{VENDOR}": variable("systemd-stub 254")}
    boot = read(tmp_path, files)
    assert boot.loader.get() == "uki"
    assert boot.next.unknown


def test_ostree(tmp_path: Path) -> None:
    files = {
        "/run/ostree-booted": "",
        "/boot/loader/entries/ostree-1-rhcos.conf": "version 1\noptions old ostree=/ostree/boot.0/x\n",
        "/boot/loader/entries/ostree-2-rhcos.conf": "version 2\noptions new ostree=/ostree/boot.1/x\n",
    }
    boot = read(tmp_path, files)
    assert boot.loader.get() == "rpm-ostree"
    assert boot.next.get() == "new ostree=/ostree/boot.1/x"


def test_nothing_that_boots(tmp_path: Path) -> None:
    assert read(tmp_path, {"/boot": Directory()}).loader.gap == ABSENT


def test_nothing_captured(tmp_path: Path) -> None:
    boot = read(tmp_path, {"/proc/cmdline": "quiet"}, complete=False)
    assert boot.loader.gap == NOT_CAPTURED
    assert boot.next.gap == NOT_CAPTURED
