"""GRUB's configuration read without a shell, and Boot Loader Specification entries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.text import bls, grub

DEBIAN = """\
# If you change this file, run 'update-grub' afterwards
GRUB_DEFAULT=0
GRUB_TIMEOUT=5
GRUB_DISTRIBUTOR=`( . /etc/os-release; echo ${NAME:-Debian} ) 2>/dev/null || echo Debian`
GRUB_CMDLINE_LINUX_DEFAULT="quiet isolcpus=1-3"
GRUB_CMDLINE_LINUX="" # none
"""


def _assigned(*texts: str) -> dict[str, str | None]:
    variables: dict[str, str | None] = {}
    for text in texts:
        grub.assign(text, variables)
    return variables


def _cmdline(*texts: str) -> str:
    return grub.cmdline(_assigned(*texts))


def test_debians_default_file() -> None:
    variables = _assigned(DEBIAN)
    assert grub.cmdline(variables) == "quiet isolcpus=1-3"
    assert variables["GRUB_DISTRIBUTOR"] is None  # only a shell can tell
    assert variables["GRUB_TIMEOUT"] == "5"


def test_drop_ins_build_on_what_was_set_before() -> None:
    more = 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=512M-:192M"\n'
    assert _cmdline(DEBIAN, more) == "quiet isolcpus=1-3 crashkernel=512M-:192M"
    replaced = 'GRUB_CMDLINE_LINUX_DEFAULT="console=ttyS0"\n'
    assert _cmdline(DEBIAN, more, replaced) == "console=ttyS0"


def test_linux_comes_before_linux_default() -> None:
    assert _cmdline("GRUB_CMDLINE_LINUX_DEFAULT='b'\nGRUB_CMDLINE_LINUX=a\n") == "a b"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("X=plain", "plain"),
        ("X='single $Y \"'", 'single $Y "'),
        ('X="a \\"b\\" \\$c"', 'a "b" $c'),
        ("X=a\\ b", "a b"),
        ('X="one \\\ntwo"', "one two"),
        ("X=\"a\"'b'c", "abc"),
        ("export X=y", "y"),
        ("Y=1; X=${Y}2", "12"),
        ('GRUB_Y=; X="${GRUB_Y:+$GRUB_Y }z"', "z"),
        ('GRUB_Y=q; X="${GRUB_Y:+$GRUB_Y }z"', "q z"),
        ('X="${GRUB_Y:-w}"', "w"),
        ("X=", ""),
        # only a shell could tell
        ("X=$(uname -r)", None),
        ("X=`uname -r`", None),
        ('X="$HOME"', None),
        ('X="${GRUB_Y%x}"', None),
        ("if true; then X=1; fi", None),
        ("[ -f /x ] && X=1", None),
        ("case $a in b) X=1;; esac", None),
        ("(X=1)", None),
        ("X=1\n. /etc/other", None),
        ("X=1\neval something", None),
        ('X="never closed', None),
        ("X+=1", None),
    ],
)
def test_one_variable(line: str, value: str | None) -> None:
    assert _assigned(line + "\n").get("X", "not set") == value


def test_a_command_with_a_variable_before_it_sets_nothing() -> None:
    assert "X" not in _assigned("X=1 command argument\n")


def test_after_a_branch_all_is_certain_again() -> None:
    assert _assigned("if x; then A=1; fi\nB=2\n") == {"A": None, "B": "2"}


def test_unknown_parts_make_the_command_line_unknown() -> None:
    with pytest.raises(ValueError, match="GRUB_CMDLINE_LINUX is"):
        _cmdline("GRUB_CMDLINE_LINUX=$(cat /x)\n")


def test_growth_without_end_is_cut() -> None:
    doubled = "A=xxxxxxxxxxxxxxxx\n" + 'A="$A$A"\n' * 60
    assert _assigned(doubled)["A"] is None
    assert _assigned("A=" + "${GRUB_B:-" * 5000)["A"] is None
    assert _assigned("A=" + "x" * 8000 + "\nB=" + "$A" * 200_000)["B"] is None
    menu = "set a=" + "x" * 8000 + "\n" + "".join(f"set b{i}=$a$a\n" for i in range(2000))
    menu += 'menuentry "x" {\n linux /v ' + "$a" * 100_000 + "\n}\n" * 3000
    entry = grub.choose(grub.parse_menu(menu, {}))
    assert entry is not None
    assert len(entry.options) <= 200_000


@given(st.text())
def test_any_file_is_read(text: str) -> None:
    grub.assign(text, {})


@given(st.text(alphabet="GRUB_X=$\"'\\ \n`(){};&|#ab:-+", max_size=60))
def test_any_shell_like_file_is_read(text: str) -> None:
    grub.assign(text, {"GRUB_X": "1"})


MENU = """\
set default="0"
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
else
   set default="DEFAULT"
fi
function load_video {
  insmod all_video
}
menuentry 'Debian GNU/Linux' --class debian $menuentry_id_option 'gnulinux-simple-1' {
\tload_video
\tlinux\t/vmlinuz-6.1.0-2-amd64 root=/dev/sda1 ro  quiet isolcpus=1-3 $vt_handoff
\tinitrd\t/initrd.img-6.1.0-2-amd64
}
submenu 'Advanced options' $menuentry_id_option 'gnulinux-advanced-1' {
\tmenuentry 'Debian, with Linux 6.1.0-2' $menuentry_id_option 'gnulinux-2-advanced' {
\t\tlinux\t/vmlinuz-6.1.0-2-amd64 root=/dev/sda1 ro second
\t}
\tmenuentry 'Debian, with Linux 6.1.0-1' $menuentry_id_option 'gnulinux-1-advanced' {
\t\tlinux\t/vmlinuz-6.1.0-1-amd64 root=/dev/sda1 ro "old one"
\t}
}
menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {
\tfwsetup
}
"""


def _chosen(default: str, environment: dict[str, str] | None = None) -> str:
    entry = grub.choose(grub.parse_menu(MENU.replace("DEFAULT", default), environment or {}))
    assert entry is not None
    return entry.options


FIRST = "root=/dev/sda1 ro quiet isolcpus=1-3 $vt_handoff"


@pytest.mark.parametrize(
    ("default", "environment", "options"),
    [
        ("0", {}, FIRST),
        ("1>1", {}, 'root=/dev/sda1 ro "old one"'),
        ("1", {}, "root=/dev/sda1 ro second"),  # a submenu stands for its first entry
        ("gnulinux-advanced-1>gnulinux-1-advanced", {}, 'root=/dev/sda1 ro "old one"'),
        ("Advanced options>Debian, with Linux 6.1.0-1", {}, 'root=/dev/sda1 ro "old one"'),
        ("${saved_entry}", {"saved_entry": "gnulinux-advanced-1>0"}, "root=/dev/sda1 ro second"),
        ("${saved_entry}", {}, FIRST),
        ("0", {"next_entry": "1>1"}, 'root=/dev/sda1 ro "old one"'),  # for one boot
        ("no such entry", {}, FIRST),  # GRUB falls back to the first
        ("2", {}, ""),  # boots no Linux
    ],
)
def test_the_entry_that_boots_next(default: str, environment: dict[str, str], options: str) -> None:
    assert _chosen(default, environment) == options


def test_a_menu_of_the_boot_loader_specification() -> None:
    menu = grub.parse_menu("insmod blscfg\nblscfg\n", {})
    assert menu.bls
    assert grub.choose(menu) is None


def test_variables_of_the_menu_are_put_in() -> None:
    text = 'set tuned_params="skew_tick=1 nohz=on"\nmenuentry "x" {\n linux /v a $tuned_params ${gone}\n}\n'
    entry = grub.choose(grub.parse_menu(text, {}))
    assert entry is not None
    assert entry.options == "a skew_tick=1 nohz=on ${gone}"


@given(st.text(alphabet="menuetrysblix{}\n \"'\\$=0fid", max_size=200))
def test_any_menu_is_read(text: str) -> None:
    grub.choose(grub.parse_menu(text, {}))


def test_grubenv() -> None:
    text = (
        "# GRUB Environment Block\nsaved_entry=abc-5.14.0\n"
        "kernelopts=root=/dev/sda1 ro \nboot_success=1\n####"
    )
    assert grub.parse_environment(text) == {
        "saved_entry": "abc-5.14.0",
        "kernelopts": "root=/dev/sda1 ro",
        "boot_success": "1",
    }


def test_an_entry_of_the_specification() -> None:
    entry = bls.parse(
        "id-5.14",
        "# c\ntitle Red Hat\nversion 5.14\nlinux /vmlinuz\noptions root=x\noptions\tquiet $t\nx y\n",
    )
    assert tuple(entry) == ("id-5.14", "Red Hat", "5.14", "", "/vmlinuz", "root=x quiet $t")


def test_the_newest_version_comes_first() -> None:
    ids = ["m-0-rescue", "m-5.14.0-70.el9.x86_64", "m-5.14.0-427.el9.x86_64", "m-6.1.0"]
    ordered = bls.newest_first([bls.parse(i, "") for i in ids])
    assert [e.id for e in ordered] == [
        "m-6.1.0",
        "m-5.14.0-427.el9.x86_64",
        "m-5.14.0-70.el9.x86_64",
        "m-0-rescue",
    ]


def test_default_of_loader_conf() -> None:
    assert bls.loader_default("timeout 3\ndefault debian-*\n") == "debian-*"
    assert bls.loader_default("#default x\n") is None


@given(st.text())
def test_any_entry_is_read(text: str) -> None:
    bls.newest_first([bls.parse("x", text), bls.parse(text, text)])
    bls.loader_default(text)
    grub.parse_environment(text)
