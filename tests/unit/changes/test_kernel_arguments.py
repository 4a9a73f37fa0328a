"""Kernel arguments through each boot loader: what is written, what is then given, and the way back."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from hwtune.changes.boot_loader import check_length, grouped
from hwtune.changes.kinds import KernelArguments
from hwtune.changes.stores import render_template
from hwtune.changes.system import ChangeError
from hwtune.changes.targets.loader import edit
from hwtune.host.base import CommandResult
from hwtune.probes import _boot
from hwtune.text import cmdline, grub
from tests.support.changes import Machine, failing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DROP_IN = "/etc/default/grub.d/zz-hwtune.cfg"
# As Debian's installer and its cloud images leave them.
DEFAULTS = """\
# If you change this file, run 'update-grub' afterwards to update
# /boot/grub/grub.cfg.
GRUB_DEFAULT=0
GRUB_TIMEOUT=5
GRUB_DISTRIBUTOR=`lsb_release -i -s 2> /dev/null || echo Debian`
GRUB_CMDLINE_LINUX_DEFAULT="quiet splash"
GRUB_CMDLINE_LINUX="net.ifnames=0 pcie-aspm=off"
#GRUB_TERMINAL=console
"""
CLOUD = 'GRUB_CMDLINE_LINUX_DEFAULT="console=tty0 console=ttyS0,115200 isolcpus=1 isolcpus=managed_irq,4"\n'
ISOLATE = KernelArguments(set=("isolcpus=domain,managed_irq,2-3", "nohz_full=2-3"))
SHELLS = [s for s in ("dash", "bash", "busybox") if shutil.which(s)]


def shell(name: str, script: str, *arguments: str) -> str:
    program = [name, "sh"] if name == "busybox" else [name, "--posix"] if name == "bash" else [name]
    result = subprocess.run(
        [*program, "-c", script, "sh", *arguments], capture_output=True, text=True, check=True, timeout=20
    )
    assert result.stderr == ""
    return result.stdout


def sourced(name: str, linux: str, default: str, path: str) -> list[str]:
    """Both variables after a shell that ends at the first failure, as grub-mkconfig's does, sourced it."""
    said = shell(
        name,
        'set -e; GRUB_CMDLINE_LINUX=$1; GRUB_CMDLINE_LINUX_DEFAULT=$2; . "$3"; '
        'printf "%s\\n" "$GRUB_CMDLINE_LINUX" "$GRUB_CMDLINE_LINUX_DEFAULT"; set | grep ^hwtune_ || :',
        linux,
        default,
        path,
    )
    return said.splitlines()


class Debian(Machine):
    """A Debian whose update-grub really sources the configuration."""

    def __init__(self, folder: Path, **extra: str) -> None:
        self.broken = False
        files = {
            "/etc/default/grub": DEFAULTS,
            "/etc/default/grub.d/50-cloudimg-settings.cfg": CLOUD,
            "/usr/sbin/grub-mkconfig": "#!/bin/sh\nfor x in ${sysconfdir}/default/grub.d/*.cfg ; do\n",
            "/usr/sbin/update-grub": "#!/bin/sh\n",
            "/boot/grub/grub.cfg": "",
            **extra,
        }
        super().__init__(folder, files, {"update-grub": self.update_grub})
        self.update_grub([])

    def update_grub(self, argv: Sequence[str]) -> CommandResult | str:
        if self.broken:
            return failing(1, "/usr/sbin/grub-probe: error: cannot find a device for /.")
        script = (
            'set -e; . "$1/etc/default/grub"; '
            'for x in "$1"/etc/default/grub.d/*.cfg; do if [ -e "$x" ]; then . "$x"; fi; done; '
            'printf "%s" "$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"'
        )
        line = shell("dash", script, str(self.root))
        (self.root / "boot/grub/grub.cfg").write_text(
            f"set default=\"0\"\nmenuentry 'Debian' --id 'd' {{\n\tlinux /vmlinuz root=UUID=1 ro {line}\n}}\n"
        )
        return ""


def test_drop_in_takes_over_what_was_configured_elsewhere(tmp_path: Path) -> None:
    machine = Debian(tmp_path)
    applied = machine.apply(ISOLATE)
    assert [o.status for o in applied.outcomes] == ["changed"]
    assert applied.problems == []
    assert applied.reboot_required
    assert _boot.read(machine.host).next.get() == (
        "root=UUID=1 ro net.ifnames=0 pcie-aspm=off console=tty0 console=ttyS0,115200 "
        "isolcpus=domain,managed_irq,2-3 nohz_full=2-3"
    )


def test_doctor_understands_the_drop_in_without_running_it(tmp_path: Path) -> None:
    machine = Debian(tmp_path)
    machine.apply(ISOLATE)
    assert _boot.read(machine.host).configured.get() == (
        "net.ifnames=0 pcie-aspm=off console=tty0 console=ttyS0,115200 "
        "isolcpus=domain,managed_irq,2-3 nohz_full=2-3"
    )


def test_revert_leaves_every_byte_as_it_was(tmp_path: Path) -> None:
    machine = Debian(tmp_path)
    before = machine.state()
    machine.apply(ISOLATE)
    assert machine.state() != before
    reverted = machine.revert()
    assert reverted.whole
    assert machine.state() == before


def test_revert_removes_the_folder_that_it_made(tmp_path: Path) -> None:
    machine = Debian(tmp_path)
    shutil.rmtree(machine.root / "etc/default/grub.d")
    machine.update_grub([])
    before = machine.state()
    assert machine.apply(ISOLATE).problems == []
    assert (machine.root / "etc/default/grub.d").is_dir()
    assert machine.revert().whole
    assert machine.state() == before


def test_a_menu_that_did_not_take_the_arguments_leaves_nothing_behind(tmp_path: Path) -> None:
    machine = Debian(tmp_path)
    shutil.rmtree(machine.root / "etc/default/grub.d")
    machine.host.tools = {"update-grub": lambda argv: ""}
    before = machine.state()
    # the menu stays as it was, which is told
    assert machine.apply(ISOLATE).problems == [
        "kargs: /boot/grub/grub.cfg was made anew and its default entry has no "
        "isolcpus=domain,managed_irq,2-3 nohz_full=2-3"
    ]
    assert machine.state() == before
    assert machine.ledger().active_sets() == []


def test_removed_argument_is_gone_under_either_spelling(tmp_path: Path) -> None:
    machine = Debian(tmp_path)
    machine.apply(KernelArguments(set=("pcie_aspm.policy=performance",), remove=("pcie_aspm",)))
    assert "pcie-aspm" not in _boot.read(machine.host).next.get()
    assert "pcie_aspm.policy=performance" in _boot.read(machine.host).next.get().split()


def test_two_sets_share_one_drop_in_and_go_in_any_order(tmp_path: Path) -> None:
    machine = Debian(tmp_path)
    before = machine.state()
    first = machine.apply(ISOLATE).set_id
    machine.apply(KernelArguments(set=("skew_tick=1", "isolcpus=domain,5")))
    line = _boot.read(machine.host).next.get()
    assert line.endswith("nohz_full=2-3 skew_tick=1 isolcpus=domain,5")
    assert machine.revert(first).whole
    line = _boot.read(machine.host).next.get()
    assert "nohz_full" not in line
    assert line.endswith("skew_tick=1 isolcpus=domain,5")
    assert machine.revert().whole
    assert machine.state() == before


def test_second_apply_has_nothing_to_do(tmp_path: Path) -> None:
    machine = Debian(tmp_path)
    machine.apply(ISOLATE)
    runs = len(machine.host.ran)
    assert [c.status for c in machine.plan(ISOLATE).changes] == ["in-force"]
    assert machine.apply(ISOLATE).set_id is None
    assert len(machine.host.ran) == runs


def test_failing_update_grub_is_told(tmp_path: Path) -> None:
    machine = Debian(tmp_path)
    machine.broken = True
    assert machine.apply(ISOLATE).problems == [
        "kargs: /usr/sbin/update-grub ended with 1: /usr/sbin/grub-probe: error: cannot find a device for /."
    ]


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize(
    ("linux", "default", "expected"),
    [
        ("", "", ["", " isolcpus=2"]),
        ("isolcpus=1", "quiet  isolcpus=1,5 ro", ["", "quiet ro isolcpus=2"]),
        # a name that begins alike, or a value with the name in it, is another argument
        ("isolcpusx=1 foo=isolcpus=3", "isolcpus", ["isolcpusx=1 foo=isolcpus=3", " isolcpus=2"]),
        # white space within quotes, tabs, and what a shell would expand
        ('dyndbg="file a.c  +p" "isolcpus=1 2"', "a\t*\t$HOME `x` \\n", [
            'dyndbg="file a.c  +p"', "a * $HOME `x` \\n isolcpus=2",
        ]),
        ('isolcpus="1', "rcu-nocbs=4 rcu_nocbs=5", ["", " isolcpus=2"]),
    ],
)  # fmt: skip
def test_shells_strip_and_add(
    tmp_path: Path, name: str, linux: str, default: str, expected: list[str]
) -> None:
    path = tmp_path / "zz.cfg"
    text = render_template("grub.cfg.j2", names=["isolcpus", "rcu_nocbs"], arguments=["isolcpus=2"])
    path.write_text(text)
    assert sourced(name, linux, default, str(path)) == expected
    # and the reader that executes nothing sees the same
    variables: dict[str, str | None] = {"GRUB_CMDLINE_LINUX": linux, "GRUB_CMDLINE_LINUX_DEFAULT": default}
    grub.assign(text, variables)
    assert [variables["GRUB_CMDLINE_LINUX"], variables["GRUB_CMDLINE_LINUX_DEFAULT"]] == expected


def test_pages_and_their_sizes_stay_in_order() -> None:
    assert grouped(["hugepagesz=1G", "hugepages=8", "isolcpus=2", "hugepagesz=2M", "hugepages=512"]) == {
        "isolcpus": ["isolcpus=2"],
        "hugepagesz hugepages": ["hugepagesz=1G", "hugepages=8", "hugepagesz=2M", "hugepages=512"],
    }


@pytest.mark.parametrize(
    "text", ["a=$x", "a=`id`", 'dyndbg="file x +p"', "memmap=4G$8G", "a;b", "--", "a'b", ""]
)
def test_what_loaders_would_change_is_refused(text: str) -> None:
    with pytest.raises(ChangeError, match="by hand"):
        grouped([text])


def test_length_and_inits_arguments() -> None:
    check_length("quiet isolcpus=" + "1," * 1000 + "1", ["isolcpus"], ["isolcpus=2"], "x86_64")
    check_length("q" * 2043, [], ["a=b"], "x86_64")
    with pytest.raises(ChangeError, match="would have 2048 bytes, and the kernel takes 2047"):
        check_length("q" * 2044, [], ["a=b"], "x86_64")
    with pytest.raises(ChangeError, match="init"):
        check_length("quiet -- single", [], ["a=b"], "x86_64")


def test_without_keeps_all_else_byte_for_byte() -> None:
    line = '  quiet\tisolcpus=1  dyndbg="file a  +p" isolcpus=2 -- isolcpus=3'
    assert cmdline.without(line, {"isolcpus"}) == '  quiet  dyndbg="file a  +p" -- isolcpus=3'
    assert cmdline.without("isolcpus=1 quiet", {"isolcpus"}) == "quiet"
    assert cmdline.without("isolcpus=1", {"isolcpus"}) == ""


# -- loaders without drop-ins ------------------------------------------------------------------


class Fedora(Machine):
    """A BLS machine with a grubby that, as the real one, writes arguments anew at the end of the line, and
    keeps the defaults of new entries in step."""

    KERNELS = ("6.6.8-200.fc39.x86_64", "6.7.3-200.fc39.x86_64")

    def __init__(self, folder: Path) -> None:
        entry = (
            "title Fedora Linux ({0})\nversion {0}\nlinux /vmlinuz-{0}\ninitrd /initramfs-{0}.img\n"
            "options root=UUID=2 ro {1}rhgb  quiet\ngrub_class fedora\n"
        )
        files = {
            "/boot/grub2/grub.cfg": "insmod blscfg\nblscfg\n",
            "/etc/default/grub": 'GRUB_CMDLINE_LINUX="rhgb quiet"\nGRUB_ENABLE_BLSCFG=true\n',
            "/etc/kernel/cmdline": "root=UUID=2 ro rhgb quiet\n",
            "/usr/sbin/grubby": "#!/bin/sh\n",
        }
        for kernel, more in zip(self.KERNELS, ("isolcpus=7 ", ""), strict=True):
            files[f"/boot/loader/entries/abc-{kernel}.conf"] = entry.format(kernel, more)
        super().__init__(folder, files, {"grubby": self.grubby})

    def grubby(self, argv: Sequence[str]) -> CommandResult | str:
        entries = sorted((self.root / "boot/loader/entries").iterdir())
        if argv[1:] == ["--info=ALL"]:
            said = []
            for number, path in enumerate(entries):
                text = path.read_text()
                kernel = re.search(r"^linux (.*)$", text, re.M)[1]  # type: ignore[index]
                options = re.search(r"^options (.*)$", text, re.M)[1]  # type: ignore[index]
                said += [f"index={number}", f'kernel="/boot{kernel}"', f'args="{options}"', 'root="UUID=2"']
            return "\n".join(said) + "\n"
        target = argv[1].removeprefix("--update-kernel=")
        verb, _, words = argv[2].removeprefix("--").partition("=")
        chosen = [
            p
            for p in entries
            if target == "ALL" or f"linux {target.removeprefix('/boot')}\n" in p.read_text()
        ]
        assert chosen, target
        if target == "ALL":
            chosen.append(self.root / "etc/kernel/cmdline")
        for path in chosen:
            head, mark, line = (
                path.read_text().rpartition("options ") if path.suffix else ("", "", path.read_text())
            )
            line, newline, rest = line.partition("\n")
            given = [w.partition("=")[0] for w in words.split()]
            kept = [w for w in line.split() if w.partition("=")[0] not in given]
            if verb == "args":
                kept += words.split()
            path.write_text(head + mark + " ".join(kept) + newline + rest)
        return ""

    def lines(self) -> list[str]:
        names = [f"/boot/loader/entries/abc-{k}.conf" for k in self.KERNELS]
        texts = [re.search(r"^options (.*)$", self.read(n), re.M)[1] for n in names]  # type: ignore[index]
        return [*texts, self.read("/etc/kernel/cmdline").strip()]


def test_grubby_sets_all_entries_and_puts_each_back(tmp_path: Path) -> None:
    machine = Fedora(tmp_path)
    before = machine.state()
    applied = machine.apply(KernelArguments(set=("isolcpus=domain,2-3", "nohz_full=2-3"), remove=("quiet",)))
    assert [o.reason for o in applied.outcomes] == [""]
    assert machine.lines() == ["root=UUID=2 ro rhgb isolcpus=domain,2-3 nohz_full=2-3"] * 3
    assert machine.apply(KernelArguments(set=("nohz_full=2-3",), remove=("quiet",))).set_id is None
    assert machine.revert().whole
    assert machine.lines()[0] == "root=UUID=2 ro isolcpus=7 rhgb  quiet"
    assert machine.state() == before


def test_entry_of_a_new_kernel_follows_the_others_back(tmp_path: Path) -> None:
    machine = Fedora(tmp_path)
    machine.apply(KernelArguments(set=("nohz_full=2-3",)))
    new = machine.root / "boot/loader/entries/abc-6.8.1-300.fc40.x86_64.conf"
    new.write_text("title New\nversion 6.8.1\nlinux /vmlinuz-6.8.1\noptions root=UUID=2 ro nohz_full=2-3\n")
    assert machine.revert().whole
    assert "options root=UUID=2 ro\n" in new.read_text()


def test_value_that_somebody_changed_since_is_kept(tmp_path: Path) -> None:
    machine = Fedora(tmp_path)
    machine.apply(KernelArguments(set=("nohz_full=2-3",)))
    machine.grubby(["grubby", "--update-kernel=ALL", "--args=nohz_full=4-7"])
    reverted = machine.revert()
    assert [o.status for o in reverted.outcomes] == ["kept"]
    assert all(line.endswith("nohz_full=4-7") for line in machine.lines())


def test_failing_grubby_fails_alone(tmp_path: Path) -> None:
    machine = Fedora(tmp_path)
    before = machine.state()
    grubby = machine.grubby

    def refuse(argv: Sequence[str]) -> CommandResult | str:
        return (
            grubby(argv)
            if "--info=ALL" in argv
            else failing(1, "grubby: error writing /boot: Read-only file system")
        )

    machine.host.tools = {"grubby": refuse}
    applied = machine.apply(KernelArguments(set=("nohz_full=2-3",)))
    assert applied.outcomes[0].status == "failed"
    assert "Read-only file system" in applied.outcomes[0].reason
    assert machine.state() == before


SYSTEMD_BOOT = {
    "/boot/loader/loader.conf": "timeout 3\n",
    "/boot/loader/entries/id-6.1.0-18.conf": (
        "# made by kernel-install\ntitle      Debian\nlinux      /id/6.1.0-18/linux\n"
        "options    root=UUID=3 ro   isolcpus=7 quiet\noptions    splash\ninitrd     /id/initrd\n"
    ),
    "/boot/loader/entries/a-tool.conf": "title Firmware\nefi /EFI/tool.efi\n",
    "/etc/kernel/cmdline": "# for new kernels\nroot=UUID=3 ro quiet",
}


def test_systemd_boot_edits_entries_and_the_line_for_new_ones(tmp_path: Path) -> None:
    machine = Machine(tmp_path, SYSTEMD_BOOT)
    before = machine.state()
    assert (
        machine.apply(KernelArguments(set=("isolcpus=domain,2",), remove=("splash",))).outcomes[0].reason
        == ""
    )
    assert machine.read("/boot/loader/entries/id-6.1.0-18.conf") == (
        "# made by kernel-install\ntitle      Debian\nlinux      /id/6.1.0-18/linux\n"
        "options    root=UUID=3 ro quiet\noptions    isolcpus=domain,2\ninitrd     /id/initrd\n"
    )
    assert machine.read("/etc/kernel/cmdline") == "# for new kernels\nroot=UUID=3 ro quiet isolcpus=domain,2"
    assert _boot.read(machine.host).next.get().split() == ["root=UUID=3", "ro", "quiet", "isolcpus=domain,2"]
    assert machine.revert().whole
    assert machine.state() == before


def test_edit_makes_the_line_that_is_not_there() -> None:
    assert edit("/boot/loader/entries/a.conf", "title x\nlinux /l", ["a"], ["a=1"]) == (
        "title x\nlinux /l\noptions a=1\n"
    )
    assert (
        edit("/boot/loader/entries/a.conf", "linux /l\noptions\n", ["a"], ["a=1"])
        == "linux /l\noptions a=1\n"
    )


def test_ostree_makes_one_deployment_of_each_change(tmp_path: Path) -> None:
    line = ["root=UUID=4 rw isolcpus=7"]

    def ostree(argv: Sequence[str]) -> CommandResult | str:
        words = line[0].split()
        for argument in argv[2:]:
            verb, _, text = argument.partition("=")
            if verb == "--delete":
                words.remove(text)
            else:
                words.append(text)
        line[0] = " ".join(words)
        return line[0] + "\n" if argv[2:] == [] else "Staging deployment...done\n"

    machine = Machine(tmp_path, {"/run/ostree-booted": ""}, {"rpm-ostree": ostree})
    machine.apply(KernelArguments(set=("isolcpus=domain,2-3",)))
    assert line == ["root=UUID=4 rw isolcpus=domain,2-3"]
    assert machine.revert().whole
    assert line == ["root=UUID=4 rw isolcpus=7"]


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "no boot loader"),
        ({"/boot/grub/grub.cfg": "menuentry 'a' {\n}\n"}, "reads no drop-ins"),
        ({"/boot/grub2/grub.cfg": "blscfg\n"}, "grubby, which is not installed"),
        (
            {"/sys/firmware/efi/efivars/StubInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f": b"\6\0\0\0s\0"},
            "signed kernel image",
        ),
    ],
)
def test_other_loaders_get_no_write_but_the_words_to_add(
    tmp_path: Path, files: dict[str, str | bytes], why: str
) -> None:
    machine = Machine(tmp_path, files)
    before = machine.state()
    outcome = machine.apply(KernelArguments(set=("nohz_full=2",), remove=("nohz",))).outcomes[0]
    assert outcome.status == "failed"
    assert why in outcome.reason
    assert outcome.reason.endswith("; add nohz_full=2 and take out nohz by hand")
    assert machine.state() == before
