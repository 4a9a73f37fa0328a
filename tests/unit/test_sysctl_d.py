"""sysctl.d files, worked out from sysctl.d(5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.text import sysctl_d


def test_lines_of_a_file() -> None:
    text = (
        "# comment\n"
        "; another\n"
        "\n"
        "vm.swappiness = 10\n"
        "  kernel/printk=4 4\t1 7  \n"
        "-net.core.bpf_jit_enable=1\n"
        "-net.ipv4.conf.lo.rp_filter\n"
        "not an assignment\n"
        "= 3\n"
        "a.b = c = d # kept\n"
    )
    found, bad = sysctl_d.parse(text)
    assert [tuple(a) for a in found] == [
        ("vm.swappiness", "10", False, 4),
        ("kernel.printk", "4 4\t1 7", False, 5),
        ("net.core.bpf_jit_enable", "1", True, 6),
        ("net.ipv4.conf.lo.rp_filter", None, True, 7),
        ("a.b", "c = d # kept", False, 10),
    ]
    assert bad == [8, 9]


@pytest.mark.parametrize(
    ("written", "key", "path"),
    [
        ("vm.swappiness", "vm.swappiness", "/proc/sys/vm/swappiness"),
        ("vm/swappiness", "vm.swappiness", "/proc/sys/vm/swappiness"),
        # the first separator tells: a dot inside a part is then a slash, and the other way round
        (
            "net.ipv4.conf.eth0/100.rp_filter",
            "net.ipv4.conf.eth0/100.rp_filter",
            "/proc/sys/net/ipv4/conf/eth0.100/rp_filter",
        ),
        (
            "net/ipv4/conf/eth0.100/rp_filter",
            "net.ipv4.conf.eth0/100.rp_filter",
            "/proc/sys/net/ipv4/conf/eth0.100/rp_filter",
        ),
        ("single", "single", "/proc/sys/single"),
    ],
)
def test_names(written: str, key: str, path: str) -> None:
    assert sysctl_d.normalize(written) == key
    assert sysctl_d.path(key) == path


@pytest.mark.parametrize("key", ["", "kernel.", ".kernel", "a..b", "kernel.//.//.etc.passwd", "a.\0", "//"])
def test_no_name_leads_out_of_proc_sys(key: str) -> None:
    with pytest.raises(ValueError, match="not a sysctl"):
        sysctl_d.path(key)


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_paths_stay_below_proc_sys(name: str) -> None:
    try:
        path = sysctl_d.path(sysctl_d.normalize(name))
    except ValueError:
        return
    assert path.startswith("/proc/sys/")
    assert not {"", ".", ".."} & set(path.split("/")[1:])


@given(st.text())
def test_any_text_is_parsed(text: str) -> None:
    found, bad = sysctl_d.parse(text)
    lines = text.split("\n")
    assert all(1 <= a.line <= len(lines) for a in found)
    assert not {a.line for a in found} & set(bad)


_keys = st.from_regex(r"[a-z]{1,8}(\.[a-z0-9_]{1,8}){1,4}", fullmatch=True)
_values = st.from_regex(r"[!-~]([ -~]{0,20}[!-~])?", fullmatch=True)


@given(st.lists(st.tuples(_keys, _values), max_size=10))
def test_written_assignments_come_back(wanted: list[tuple[str, str]]) -> None:
    found, bad = sysctl_d.parse("".join(f"{key} = {value}\n" for key, value in wanted))
    assert [(a.key, a.value) for a in found] == wanted
    assert bad == []


@pytest.mark.parametrize(
    ("configured", "live", "same"),
    [
        ("10", "10", True),
        ("10", "60", False),
        ("0x10", "16", True),
        ("010", "8", True),  # octal, as strtoul(..., 0) reads it
        ("4096 87380 6291456", "4096\t87380\t6291456", True),
        ("4", "4 4 1 7", True),  # kernel.printk: the first numbers of a vector may be set alone
        ("4 4 1 7", "4", False),
        ("5 4", "4 4 1 7", False),
        ("|/usr/bin/handler %p", "core", False),
        ("cubic", "cubic", True),
        ("core", "core dump", False),
        ("", "1", False),
        ("1_0", "10", False),
    ],
)
def test_whether_a_value_is_in_force(configured: str, live: str, same: bool) -> None:
    assert sysctl_d.same_value(configured, live) is same


def test_order_is_by_name_and_masking_by_directory() -> None:
    order, masked = sysctl_d.applied_order(
        [
            "/etc/sysctl.d/99-sysctl.conf",
            "/etc/sysctl.d/50-default.conf",
            "/run/sysctl.d/60-run.conf",
            "/usr/lib/sysctl.d/50-default.conf",
            "/usr/lib/sysctl.d/10-first.conf",
        ]
    )
    assert order == [
        "/usr/lib/sysctl.d/10-first.conf",
        "/etc/sysctl.d/50-default.conf",
        "/run/sysctl.d/60-run.conf",
        "/etc/sysctl.d/99-sysctl.conf",
    ]
    assert masked == {"/usr/lib/sysctl.d/50-default.conf": "/etc/sysctl.d/50-default.conf"}
    # the trap of "99-": h comes before s
    assert sysctl_d.applied_order(["/etc/sysctl.d/99-sysctl.conf", "/etc/sysctl.d/99-hwtune.conf"])[0][
        -1
    ] == ("/etc/sysctl.d/99-sysctl.conf")


def test_patterns_keep_to_one_part() -> None:
    assert sysctl_d.is_pattern("net.ipv4.conf.*.rp_filter")
    assert not sysctl_d.is_pattern("net.ipv4.conf.all.rp_filter")
    assert sysctl_d.matches("net.ipv4.conf.*.rp_filter", "net.ipv4.conf.eth0/100.rp_filter")
    assert not sysctl_d.matches("net.ipv4.*.rp_filter", "net.ipv4.conf.all.rp_filter")


def test_secrets_are_known() -> None:
    assert sysctl_d.is_secret("net.ipv6.conf.all.stable_secret")
    assert sysctl_d.is_secret("net.ipv4.tcp_fastopen_key")
    assert not sysctl_d.is_secret("net.ipv4.tcp_fastopen")
