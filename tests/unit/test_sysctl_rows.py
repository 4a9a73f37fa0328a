"""Rows on sysctl.d: precedence worked out by hand from sysctl.d(5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support import Directory, Gap, Link, host
from tests.support.rows import diagnose_one

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult

OK, FINDING, NOT_APPLICABLE, UNKNOWN = "ok", "finding", "not-applicable", "unknown"
HOST = {
    "/proc/self/ns/pid": Link("pid:[4026531836]"),
    "/proc/sys/kernel/osrelease": "6.1.0",
    "/usr/lib/systemd/systemd-sysctl": "",
}
CONTAINER = {"/proc/self/ns/pid": Link("pid:[4026532281]")}
ROWS = ("kernel.sysctl-conflict", "kernel.sysctl-unread", "kernel.sysctl-not-live", "kernel.sysctl-noop")


def said(tmp_path: Path, row: str, files: dict[str, Any], **more: Any) -> RowResult:
    return diagnose_one(host(tmp_path, {**HOST, **files}, **{"complete": True, **more}), row)


def subjects(result: RowResult) -> list[tuple[str, str]]:
    return [(f.severity, f.subject) for f in result.findings]


def evidence(result: RowResult) -> list[tuple[str, str]]:
    return [(e.source, e.value) for e in result.findings[0].evidence]


@pytest.mark.parametrize("row", ROWS)
def test_no_settings_at_all(tmp_path: Path, row: str) -> None:
    assert said(tmp_path, row, {}).outcome == OK


@pytest.mark.parametrize("row", ROWS)
def test_a_container_applies_no_sysctls(tmp_path: Path, row: str) -> None:
    files = {**CONTAINER, "/etc/sysctl.d/a.conf": "vm.swappiness=1\nvm.swappiness=2\n"}
    assert said(tmp_path, row, files).outcome == NOT_APPLICABLE


@pytest.mark.parametrize("row", ROWS)
def test_directories_that_were_not_captured(tmp_path: Path, row: str) -> None:
    assert (
        said(tmp_path, row, {"/etc/sysctl.d/a.conf": "vm.swappiness=1\n"}, complete=False).outcome == UNKNOWN
    )


# -- sysctl-conflict -------------------------------------------------------------------------------

CONFLICT = "kernel.sysctl-conflict"


def test_the_name_that_sorts_last_wins(tmp_path: Path) -> None:
    files = {
        "/etc/sysctl.d/99-hwtune.conf": "# ours\nvm.swappiness = 1\n",
        "/etc/sysctl.d/99-sysctl.conf": Link("../sysctl.conf"),
        "/etc/sysctl.conf": "vm.swappiness=60\n",
        "/proc/sys/vm/swappiness": "60\n",
    }
    result = said(tmp_path, CONFLICT, files)
    assert subjects(result) == [("warning", "sysctl:vm.swappiness")]
    assert evidence(result) == [
        ("/etc/sysctl.d/99-hwtune.conf:2", "vm.swappiness = 1   loses"),
        ("/etc/sysctl.conf:1 (read as /etc/sysctl.d/99-sysctl.conf)", "vm.swappiness = 60   wins"),
        ("/proc/sys/vm/swappiness", "60"),
    ]


def test_what_hwtune_overrides_is_no_contradiction(tmp_path: Path) -> None:
    files = {
        "/etc/sysctl.d/70-site.conf": "vm.swappiness = 60\nvm.dirty_bytes = 4096\n",
        "/etc/sysctl.d/99-zz-hwtune.conf": "vm.swappiness = 1\nvm.dirty_ratio = 10\n",
    }
    result = said(tmp_path / "a", CONFLICT, files)
    assert (result.outcome, result.findings) == (OK, [])
    assert [(e.source, e.value) for e in result.evidence][:2] == [
        ("/etc/sysctl.d/70-site.conf:1", "vm.swappiness = 60   overridden by hwtune"),
        ("/etc/sysctl.d/99-zz-hwtune.conf:1", "vm.swappiness = 1"),
    ]
    # a file that comes after hwtune's takes its settings away
    late = {**files, "/etc/sysctl.d/99-zzz.conf": "vm.swappiness = 60\n"}
    assert subjects(said(tmp_path / "b", CONFLICT, late)) == [("warning", "sysctl:vm.swappiness")]


def test_a_distribution_file_that_wins_over_yours(tmp_path: Path) -> None:
    files = {
        "/etc/sysctl.d/10-mine.conf": "kernel.pid_max = 1000\n",
        "/usr/lib/sysctl.d/50-pid-max.conf": "kernel.pid_max = 4194304\n",
    }
    result = said(tmp_path, CONFLICT, files)
    assert subjects(result) == [("warning", "sysctl:kernel.pid_max")]
    assert "distribution" in result.findings[0].message


@pytest.mark.parametrize(
    "files",
    [
        # to override the distribution is what /etc is for
        {
            "/usr/lib/sysctl.d/50-default.conf": "kernel.sysrq=16\n",
            "/etc/sysctl.d/90-x.conf": "kernel.sysrq=1\n",
        },
        # nor Ubuntu's own files in /etc
        {"/etc/sysctl.d/10-ptrace.conf": "kernel.sysrq=1\n", "/etc/sysctl.d/90-x.conf": "kernel.sysrq=0\n"},
        # a file of the same name hides the other
        {"/usr/lib/sysctl.d/60-x.conf": "vm.swappiness=1\n", "/etc/sysctl.d/60-x.conf": "vm.swappiness=2\n"},
        # the same value twice
        {"/etc/sysctl.d/1.conf": "vm.swappiness=10\n", "/etc/sysctl.d/2.conf": "vm/swappiness = 0xa\n"},
        # a pattern yields to the key itself
        {
            "/etc/sysctl.d/1.conf": "net.ipv4.conf.all.rp_filter=1\n",
            "/etc/sysctl.d/2.conf": "net.ipv4.conf.*.rp_filter=2\n-net.ipv4.conf.all.rp_filter\n",
        },
        # not a file of sysctl.d at all
        {"/etc/sysctl.d/1.conf": "vm.swappiness=10\n", "/etc/sysctl.d/2.conf.bak": "vm.swappiness=11\n"},
    ],
)
def test_no_conflict(tmp_path: Path, files: dict[str, str]) -> None:
    assert said(tmp_path, CONFLICT, files).outcome == OK


def test_one_file_that_contradicts_itself(tmp_path: Path) -> None:
    result = said(tmp_path, CONFLICT, {"/etc/sysctl.d/1.conf": "vm.swappiness=10\n\nvm.swappiness=1\n"})
    assert evidence(result) == [
        ("/etc/sysctl.d/1.conf:1", "vm.swappiness = 10   loses"),
        ("/etc/sysctl.d/1.conf:3", "vm.swappiness = 1   wins"),
    ]
    assert "One file" in result.findings[0].message


def test_settings_that_exclude_each_other(tmp_path: Path) -> None:
    files = {
        "/etc/sysctl.d/1.conf": "vm.dirty_bytes = 268435456\n",
        "/etc/sysctl.d/2.conf": "vm.dirty_ratio = 10\n",
    }
    result = said(tmp_path, CONFLICT, files)
    assert subjects(result) == [("warning", "sysctl:vm.dirty_bytes")]
    assert "vm.dirty_ratio" in result.findings[0].message


# -- sysctl-unread -----------------------------------------------------------------------------------

UNREAD = "kernel.sysctl-unread"


def test_sysctl_conf_is_read_through_its_link(tmp_path: Path) -> None:
    files = {"/etc/sysctl.conf": "vm.swappiness=1\n", "/etc/sysctl.d/99-sysctl.conf": Link("../sysctl.conf")}
    assert said(tmp_path, UNREAD, files).outcome == OK


@pytest.mark.parametrize(("live", "words"), [("1", "by hand"), ("60", "not in force")])
def test_sysctl_conf_without_a_link(tmp_path: Path, live: str, words: str) -> None:
    files = {"/etc/sysctl.conf": "# x\nvm.swappiness=1\n", "/proc/sys/vm/swappiness": live}
    result = said(tmp_path, UNREAD, files)
    assert subjects(result) == [("warning", "sysctl:vm.swappiness")]
    assert evidence(result) == [("/etc/sysctl.conf:2", "vm.swappiness = 1")]
    assert words in result.findings[0].message


def test_sysctl_conf_that_repeats_what_is_read(tmp_path: Path) -> None:
    files = {"/etc/sysctl.conf": "vm.swappiness=1\n", "/etc/sysctl.d/9.conf": "vm.swappiness=1\n"}
    assert said(tmp_path, UNREAD, files).outcome == OK


@pytest.mark.parametrize("content", [Gap("denied"), Gap("unreadable"), Directory()])
def test_sysctl_conf_that_cannot_be_read(tmp_path: Path, content: Any) -> None:
    result = said(tmp_path, UNREAD, {"/etc/sysctl.conf": content})
    assert (result.outcome, "/etc/sysctl.conf" in result.reason) == (UNKNOWN, True)


def test_sysctl_conf_without_systemd(tmp_path: Path) -> None:
    tree = {k: v for k, v in HOST.items() if "systemd" not in k}
    files = {**tree, "/etc/sysctl.conf": "vm.swappiness=1\n"}
    assert diagnose_one(host(tmp_path, files, complete=True), UNREAD).outcome == NOT_APPLICABLE


# -- sysctl-not-live -----------------------------------------------------------------------------------

NOT_LIVE = "kernel.sysctl-not-live"


def test_values_in_force(tmp_path: Path) -> None:
    files = {
        "/etc/sysctl.d/1.conf": "vm.swappiness=10\nnet.ipv4.tcp_rmem = 4096 131072 6291456\n",
        "/etc/sysctl.d/2.conf": "kernel.core_pattern=x\n",
        "/proc/sys/vm/swappiness": "10\n",
        "/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n",
        "/proc/sys/kernel/core_pattern": "|/usr/lib/handler\n",
    }
    assert said(tmp_path, NOT_LIVE, files).outcome == OK


def test_a_value_that_something_else_set(tmp_path: Path) -> None:
    files = {
        "/etc/sysctl.d/1.conf": "vm.swappiness=1\n",
        "/proc/sys/vm/swappiness": "60\n",
        "/run/systemd/units/invocation:tuned.service": Link("0f"),
        "/etc/tuned/active_profile": "virtual-guest\n",
    }
    result = said(tmp_path, NOT_LIVE, files)
    assert subjects(result) == [("warning", "sysctl:vm.swappiness")]
    assert evidence(result) == [
        ("/etc/sysctl.d/1.conf:1", "vm.swappiness = 1"),
        ("/proc/sys/vm/swappiness", "60"),
    ]
    assert "tuned (profile virtual-guest)" in result.findings[0].message


def test_a_loser_is_not_expected_to_be_in_force(tmp_path: Path) -> None:
    files = {
        "/etc/sysctl.d/1.conf": "vm.swappiness=1\n",
        "/etc/sysctl.d/2.conf": "vm.swappiness=60\n",
        "/proc/sys/vm/swappiness": "60\n",
    }
    assert said(tmp_path, NOT_LIVE, files).outcome == OK


def test_values_that_were_not_captured(tmp_path: Path) -> None:
    files = {"/etc/sysctl.d/1.conf": "vm.swappiness=1\n", "/proc/sys/vm/swappiness": Gap("denied")}
    assert said(tmp_path, NOT_LIVE, files).outcome == UNKNOWN


# -- sysctl-noop -----------------------------------------------------------------------------------------

NOOP = "kernel.sysctl-noop"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("net.ipv4.tcp_low_latency = 1", ("info", "sysctl:net.ipv4.tcp_low_latency")),
        ("kernel.sched_min_granularity_ns = 10000000", ("warning", "sysctl:kernel.sched_min_granularity_ns")),
        ("vm.no_such_thing = 1", ("info", "sysctl:vm.no_such_thing")),
    ],
)
def test_lines_without_effect(tmp_path: Path, line: str, expected: tuple[str, str]) -> None:
    files = {"/etc/sysctl.d/1.conf": line + "\n", "/proc/sys/net/ipv4/tcp_low_latency": "1\n"}
    assert subjects(said(tmp_path, NOOP, files)) == [expected]


@pytest.mark.parametrize(
    "files",
    [
        {"/etc/sysctl.d/1.conf": "-vm.no_such_thing = 1\n"},  # may be missing, it says
        {"/etc/sysctl.d/1.conf": "net.netfilter.nf_conntrack_max = 1\n"},  # its module may come later
        {"/usr/lib/sysctl.d/1.conf": "vm.no_such_thing = 1\n"},  # the distribution's
        {"/etc/sysctl.d/1.conf": "net.ipv4.tcp_adv_win_scale = 2\n"},  # works until 6.6
    ],
)
def test_lines_that_are_left_alone(tmp_path: Path, files: dict[str, str]) -> None:
    files = {**files, "/proc/sys/net/ipv4/tcp_adv_win_scale": "2\n"}
    assert said(tmp_path, NOOP, files).outcome == OK
