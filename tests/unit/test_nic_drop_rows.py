"""Rows on packets that get lost between wire and socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hwtune.changes import NicSetting, SysctlChange
from tests.support import host
from tests.support.network import ethtool, nic
from tests.support.rows import diagnose_one

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult
    from hwtune.diagnosis.verdict import Finding


def ask(tmp_path: Path, row: str, files: Any, *settings: str, **options: Any) -> RowResult:
    options = {"complete": True, "libraries": ethtool()} | options
    return diagnose_one(host(tmp_path, files, **options), row, settings=settings)


def only(result: RowResult) -> Finding:
    assert (result.outcome, len(result.findings)) == ("finding", 1), result
    return result.findings[0]


@pytest.mark.parametrize("row", ["nic.drops", "nic.rings"])
def test_outcomes_but_findings(tmp_path: Path, row: str) -> None:
    assert ask(tmp_path, row, nic()).outcome == "ok"
    assert ask(tmp_path, row, {"/proc/uptime": "1.0 1.0\n"}).outcome == "not-applicable"
    bare = {p: c for p, c in nic().items() if "/statistics/" not in p}
    result = ask(tmp_path, row, bare, complete=False, libraries={})
    assert result.outcome == "unknown"
    assert "/sys/class/net/eth0/statistics is not in the snapshot" in result.reason


# -- nic.drops --------------------------------------------------------------------------------


def test_lost_packets(tmp_path: Path) -> None:
    """500 of 5,000,500: 100 per million."""
    found = only(ask(tmp_path, "nic.drops", nic(counters={"rx_missed_errors": 500})))
    assert (found.subject, found.severity) == ("nic:eth0", "warning")
    assert found.message.startswith("eth0 has lost 500 of 5,000,500 packets (100.0 per million)")
    assert found.evidence[0].value == "rx_missed_errors 500"
    assert "ethtool -G eth0 rx N" in found.advice


def test_one_loss_under_two_names(tmp_path: Path) -> None:
    found = only(ask(tmp_path, "nic.drops", nic(counters={"rx_missed_errors": 500, "rx_fifo_errors": 500})))
    assert "lost 500 of" in found.message


def test_a_trickle_is_worth_a_note(tmp_path: Path) -> None:
    """10 of 5,000,010: 2 per million. 4 are less than one."""
    assert only(ask(tmp_path, "nic.drops", nic(counters={"rx_missed_errors": 10}))).severity == "info"
    result = ask(tmp_path, "nic.drops", nic(counters={"rx_missed_errors": 4}))
    assert result.outcome == "ok"
    assert result.reason == "eth0 has lost 4 of 5,000,004 packets (0.8 per million)"


def test_a_few_of_few_packets_say_nothing(tmp_path: Path) -> None:
    few = nic(counters={"rx_missed_errors": 4, "rx_packets": 100})
    assert ask(tmp_path, "nic.drops", few).outcome == "ok"
    assert ask(tmp_path, "nic.rings", few).outcome == "ok"


def test_packets_that_nobody_wanted_are_not_lost(tmp_path: Path) -> None:
    """rx_dropped also counts frames of protocols that nobody listens to."""
    assert ask(tmp_path, "nic.drops", nic(counters={"rx_dropped": 4_000_000})).outcome == "ok"


def test_a_ring_that_cannot_grow(tmp_path: Path) -> None:
    libraries = ethtool(rings={"rx_max": 512, "rx": 512})
    found = only(ask(tmp_path, "nic.drops", nic(counters={"rx_missed_errors": 500}), libraries=libraries))
    assert found.advice == "Give the interrupts of eth0 CPUs of their own: its RX ring cannot grow (512)."


def test_losses_in_a_text(tmp_path: Path) -> None:
    text = "NIC statistics:\n     rx_packets: 3000000\n     rx_no_buffer_count: 7\n     rx_missed_errors: 6\n"
    found = only(ask(tmp_path, "nic.drops", {}, complete=False, libraries={}, documents={"a.txt": text}))
    assert (found.subject, found.severity) == ("nic:?", "info")
    assert "lost 6 of 3,000,006 packets (2.0 per million)" in found.message
    assert any(e.value == "rx_no_buffer_count 7" for e in found.evidence)


def test_losses_by_queue_in_a_text(tmp_path: Path) -> None:
    lines = [f"     rxq{n}: rx_pkts: 500000\n     rxq{n}: rx_drops_no_frags: {n}0\n" for n in range(3)]
    text = "NIC statistics:\n" + "".join(lines)
    found = only(ask(tmp_path, "nic.drops", {}, complete=False, libraries={}, documents={"a.txt": text}))
    assert "lost 30 of 1,500,030 packets (20.0 per million)" in found.message


def test_losses_without_the_packets(tmp_path: Path) -> None:
    text = "NIC statistics:\n     rx_missed_errors: 6\n"
    result = ask(tmp_path, "nic.drops", {}, complete=False, libraries={}, documents={"a.txt": text})
    assert result.outcome == "unknown"


# -- nic.rings --------------------------------------------------------------------------------


def test_a_small_ring_that_loses(tmp_path: Path) -> None:
    found = only(ask(tmp_path, "nic.rings", nic(counters={"rx_missed_errors": 500})))
    assert found.changes == [NicSetting("eth0", "rings", (("rx", "4096"),))]
    assert found.changes[0].disruption == "link-reset"
    assert (found.evidence[0].value, found.evidence[0].expected) == ("rx 512", "rx 4096")


def test_a_tiny_ring_that_loses(tmp_path: Path) -> None:
    libraries = ethtool(rings={"rx_max": 400, "rx": 64})
    found = only(ask(tmp_path, "nic.rings", nic(counters={"rx_missed_errors": 500}), libraries=libraries))
    assert found.changes == [NicSetting("eth0", "rings", (("rx", "400"),))]


def test_a_small_ring_that_loses_nothing_is_good(tmp_path: Path) -> None:
    assert (
        ask(tmp_path, "nic.rings", nic(), libraries=ethtool(rings={"rx_max": 8192, "rx": 64})).outcome == "ok"
    )


def test_rings_that_cannot_be_set(tmp_path: Path) -> None:
    assert ask(tmp_path, "nic.rings", nic(), libraries=ethtool(rings=None)).outcome == "not-applicable"


# -- nic.softnet ------------------------------------------------------------------------------


def softnet(*lines: tuple[int, int, int], received: int = 9_000_000) -> dict[str, str]:
    rows = [
        " ".join(f"{word:08x}" for word in (*numbers, *[0] * 9, cpu)) for cpu, numbers in enumerate(lines)
    ]
    return {
        "/proc/net/softnet_stat": "\n".join(rows) + "\n",
        "/proc/net/dev": f"Inter-| Receive\n face |bytes packets\n lo: 1 10 0\neth0: 9 {received - 10} 0\n",
    }


def test_cpus_that_keep_up(tmp_path: Path) -> None:
    result = ask(tmp_path, "nic.softnet", softnet((1_000_000, 0, 3), (2_000_000, 1, 0)))
    assert result.outcome == "ok"
    assert result.evidence[0].value == "dropped 1, time_squeeze 3"


def test_a_backlog_that_runs_over(tmp_path: Path) -> None:
    """1,000 of 1,001,000: 999 per million, on CPU 1 alone."""
    files = softnet((1_000_000, 0, 0), (1_000_000, 1000, 0)) | {
        "/proc/sys/net/core/netdev_max_backlog": "1000\n"
    }
    found = only(ask(tmp_path, "nic.softnet", files))
    assert (found.subject, found.severity) == ("cpu:1", "warning")
    assert found.changes == [SysctlChange("net.core.netdev_max_backlog", "10000")]
    assert "1,000 packets were dropped" in found.message
    assert found.evidence[0].value == "CPU 1: 1,000 dropped, 1,000,000 handled"


def test_a_softirq_that_gives_up(tmp_path: Path) -> None:
    """2,900 per million on CPUs 0 and 2."""
    files = softnet((1_000_000, 0, 2900), (1_000_000, 0, 0), (1_000_000, 0, 2900))
    found = only(ask(tmp_path, "nic.softnet", files | {"/proc/sys/net/core/netdev_budget": "300\n"}))
    assert (found.subject, found.severity) == ("cpu:0,2", "info")
    assert "gave up 5,800 times" in found.message
    assert any((e.source, e.value) == ("/proc/sys/net/core/netdev_budget", "300") for e in found.evidence)


def test_a_few_of_few_packets(tmp_path: Path) -> None:
    """A CPU that has seen 17 packets gives no rates."""
    assert ask(tmp_path, "nic.softnet", softnet((17, 4, 99), received=18)).outcome == "ok"


def test_counts_that_have_wrapped(tmp_path: Path) -> None:
    """A CPU's count has 32 bits: beyond them, what all interfaces received is the least share."""
    files = softnet((1000, 1000, 0), received=10**10)
    assert ask(tmp_path, "nic.softnet", files).outcome == "ok"
    found = only(ask(tmp_path, "nic.softnet", softnet((1000, 2_000_000, 0), received=10**10)))
    assert found.evidence[0].value == "CPU 0: 2,000,000 dropped, 20,000,000,000 handled"


def test_whether_counts_have_wrapped_is_not_known(tmp_path: Path) -> None:
    files = softnet((1000, 1000, 0))
    del files["/proc/net/dev"]
    result = ask(tmp_path, "nic.softnet", files, complete=False)
    assert (result.outcome, result.reason) == ("unknown", "/proc/net/dev is not in the snapshot")


def test_softnet_is_not_there(tmp_path: Path) -> None:
    nothing = {"/proc/uptime": "1.0 1.0\n"}
    assert ask(tmp_path, "nic.softnet", nothing).outcome == "not-applicable"
    assert ask(tmp_path, "nic.softnet", nothing, complete=False).outcome == "unknown"


# -- nic.allowance ----------------------------------------------------------------------------


def ena(**counters: int) -> dict[str, Any]:
    libraries = ethtool()
    libraries["ethtool", "statistics", "eth0"] = {
        "bw_in_allowance_exceeded": 0,
        "pps_allowance_exceeded": 0,
        **counters,
    }
    return {"files": nic(driver="ena"), "libraries": libraries}


def test_within_the_allowance(tmp_path: Path) -> None:
    box = ena()
    assert ask(tmp_path, "nic.allowance", box["files"], libraries=box["libraries"]).outcome == "ok"


def test_beyond_the_allowance(tmp_path: Path) -> None:
    """900 of 9,000,000 packets: 100 per million; 9 are 1."""
    box = ena(pps_allowance_exceeded=900)
    found = only(ask(tmp_path, "nic.allowance", box["files"], libraries=box["libraries"]))
    assert found.severity == "warning"
    assert found.message == "Traffic of eth0 went beyond the instance's allowance of packets per second."
    box = ena(bw_in_allowance_exceeded=9)
    assert only(ask(tmp_path, "nic.allowance", box["files"], libraries=box["libraries"])).severity == "info"


def test_other_nics_have_no_allowance(tmp_path: Path) -> None:
    assert ask(tmp_path, "nic.allowance", nic()).outcome == "not-applicable"
    assert ask(tmp_path, "nic.allowance", {"/proc/uptime": "1.0 1.0\n"}).outcome == "not-applicable"


def test_an_old_driver_counts_no_allowance(tmp_path: Path) -> None:
    libraries = ethtool()
    libraries["ethtool", "statistics", "eth0"] = {"tx_timeout": 0}
    assert ask(tmp_path, "nic.allowance", nic(driver="ena"), libraries=libraries).outcome == "not-applicable"


def test_allowances_are_not_known(tmp_path: Path) -> None:
    assert (
        ask(tmp_path, "nic.allowance", nic(driver="ena"), complete=False, libraries={}).outcome == "unknown"
    )
