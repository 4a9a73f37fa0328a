"""Rows on how network interfaces are set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hwtune.changes import NicSetting, SysctlChange, SysfsAttribute
from tests.support import host
from tests.support.network import DARK, ethtool, nic
from tests.support.rows import diagnose_one

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult
    from hwtune.diagnosis.verdict import Finding

CPU = "/sys/devices/system/cpu"
# Eight CPUs on two nodes; 2, 3, 6 and 7 are kept apart.
ISOLATED = {
    "/proc/cmdline": "ro isolcpus=domain,2-3,6-7\n",
    f"{CPU}/possible": "0-7\n",
    f"{CPU}/online": "0-7\n",
    f"{CPU}/isolated": "2-3,6-7\n",
    "/sys/devices/system/node/online": "0-1\n",
    "/sys/devices/system/node/node0/cpumap": "0f\n",
    "/sys/devices/system/node/node1/cpumap": "f0\n",
}


def ask(
    tmp_path: Path, row: str, files: Any, *settings: str, profile: str = "low-latency", **options: Any
) -> RowResult:
    options = {"complete": True, "libraries": ethtool()} | options
    return diagnose_one(host(tmp_path, files, **options), row, profile, settings)


def only(result: RowResult) -> Finding:
    assert (result.outcome, len(result.findings)) == ("finding", 1), result
    return result.findings[0]


ROWS = (
    "nic.coalescing", "nic.irq-deferral", "nic.channels", "nic.rps", "nic.offloads", "nic.pause",
    "nic.xdp-support",
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_an_interface_set_for_latency(tmp_path: Path, row: str) -> None:
    result = ask(tmp_path, row, nic() | ISOLATED)
    assert result.outcome == "ok", result
    assert result.evidence


@pytest.mark.parametrize("row", ROWS)
def test_no_interface(tmp_path: Path, row: str) -> None:
    assert ask(tmp_path, row, {"/proc/uptime": "1.0 1.0\n"}).outcome == "not-applicable"


@pytest.mark.parametrize("row", ROWS)
def test_no_link(tmp_path: Path, row: str) -> None:
    assert ask(tmp_path, row, nic(**DARK) | ISOLATED).outcome == "not-applicable"


@pytest.mark.parametrize("row", ROWS)
def test_settings_that_are_not_known(tmp_path: Path, row: str) -> None:
    files = {
        p: c
        for p, c in nic().items()
        if not p.endswith(("napi_defer_hard_irqs", "gro_flush_timeout")) and "/queues/" not in p
    }
    result = ask(tmp_path, row, files | ISOLATED, complete=False, libraries={})
    assert result.outcome == "unknown", result
    assert "eth0" in result.reason


@pytest.mark.parametrize(
    ("row", "group"),
    [
        ("nic.coalescing", "coalescing"),
        ("nic.channels", "channels"),
        ("nic.offloads", "features"),
        ("nic.pause", "pause"),
    ],
)
def test_drivers_that_offer_nothing(tmp_path: Path, row: str, group: str) -> None:
    result = ask(tmp_path, row, nic() | ISOLATED, libraries=ethtool(**{group: None}))
    assert result.outcome == "not-applicable"


# -- nic.coalescing ---------------------------------------------------------------------------


def test_a_nic_that_adapts_its_delay(tmp_path: Path) -> None:
    libraries = ethtool(coalescing={"rx_usecs": 8, "use_adaptive_rx": 1})
    found = only(ask(tmp_path, "nic.coalescing", nic(), libraries=libraries))
    assert found.changes == [NicSetting("eth0", "coalesce", (("adaptive-rx", "off"),))]
    assert found.evidence[0].value == "eth0: adaptive-rx on rx-usecs 8"
    assert found.evidence[0].source == "ethtool -c eth0 (netlink)"
    allowed = ask(tmp_path, "nic.coalescing", nic(), "nic.adaptive_coalescing=true", libraries=libraries)
    assert allowed.outcome == "ok"


def test_a_long_delay(tmp_path: Path) -> None:
    libraries = ethtool(coalescing={"rx_usecs": 50, "use_adaptive_rx": 0})
    found = only(ask(tmp_path, "nic.coalescing", nic(), libraries=libraries))
    assert found.changes == [NicSetting("eth0", "coalesce", (("rx-usecs", "8"),))]
    assert found.message == "eth0 holds interrupts of received packets back: it waits 50 us."
    assert (
        ask(tmp_path, "nic.coalescing", nic(), profile="gpu-inference", libraries=libraries).outcome == "ok"
    )


def test_a_long_delay_that_also_adapts(tmp_path: Path) -> None:
    libraries = ethtool(coalescing={"rx_usecs": 50, "use_adaptive_rx": 1})
    found = only(ask(tmp_path, "nic.coalescing", nic(), libraries=libraries))
    assert found.changes == [NicSetting("eth0", "coalesce", (("adaptive-rx", "off"), ("rx-usecs", "8")))]


@pytest.mark.parametrize(("driver", "value"), [("igb", 3), ("igc", 3), ("e1000e", 3), ("ixgbe", 1)])
def test_values_that_mean_a_mode(tmp_path: Path, driver: str, value: int) -> None:
    """3 is no 3 us to igb: its driver adapts the delay, and takes no value from 4 to 9."""
    libraries = ethtool(coalescing={"rx_usecs": value})
    found = only(ask(tmp_path, "nic.coalescing", nic(driver=driver), libraries=libraries))
    wanted = "8" if driver == "ixgbe" else "0"
    assert found.changes == [NicSetting("eth0", "coalesce", (("rx-usecs", wanted),))]
    assert f"rx-usecs {value} tells this driver to adapt" in found.message


def test_a_long_delay_of_a_driver_that_takes_no_short_one(tmp_path: Path) -> None:
    libraries = ethtool(coalescing={"rx_usecs": 100})
    found = only(ask(tmp_path, "nic.coalescing", nic(driver="igb"), libraries=libraries))
    assert found.changes == [NicSetting("eth0", "coalesce", (("rx-usecs", "0"),))]
    found = only(
        ask(tmp_path, "nic.coalescing", nic(driver="igb"), "nic.rx_usecs_max=20", libraries=libraries)
    )
    assert found.changes == [NicSetting("eth0", "coalesce", (("rx-usecs", "20"),))]


def test_slow_links_are_worth_a_note(tmp_path: Path) -> None:
    libraries = ethtool(coalescing={"rx_usecs": 50})
    assert only(ask(tmp_path, "nic.coalescing", nic(speed="1000\n"), libraries=libraries)).severity == "info"
    assert only(ask(tmp_path, "nic.coalescing", nic(), libraries=libraries)).severity == "warning"


def test_a_container_cannot_set_its_hosts_nic(tmp_path: Path) -> None:
    libraries = ethtool(coalescing={"rx_usecs": 50})
    files = nic() | {"/.dockerenv": "", "/proc/1/cgroup": "0::/docker/abc\n"}
    found = only(ask(tmp_path, "nic.coalescing", files, libraries=libraries))
    assert found.changes == []
    assert found.advice


def test_other_delays_do_not_matter(tmp_path: Path) -> None:
    libraries = ethtool(coalescing={"tx_usecs": 200, "rx_max_frames": 1})
    assert ask(tmp_path, "nic.coalescing", nic(), libraries=libraries).outcome == "not-applicable"


# -- nic.irq-deferral -------------------------------------------------------------------------


def test_interrupts_that_the_kernel_holds_back(tmp_path: Path) -> None:
    found = only(
        ask(tmp_path, "nic.irq-deferral", nic(napi_defer_hard_irqs="2\n", gro_flush_timeout="200000\n"))
    )
    assert found.severity == "info"
    assert "a timer of 200 us" in found.message
    assert found.changes == [
        SysfsAttribute("/sys/class/net/eth0/napi_defer_hard_irqs", "0", persist="udev"),
        SysfsAttribute("/sys/class/net/eth0/gro_flush_timeout", "0", persist="udev"),
    ]


@pytest.mark.parametrize(("times", "period"), [("0", "200000"), ("2", "0"), ("2", "8000")])
def test_interrupts_that_come_soon(tmp_path: Path, times: str, period: str) -> None:
    files = nic(napi_defer_hard_irqs=times, gro_flush_timeout=period)
    assert ask(tmp_path, "nic.irq-deferral", files).outcome == "ok"


def test_old_kernels_hold_nothing_back(tmp_path: Path) -> None:
    files = nic(without=("napi_defer_hard_irqs",))
    assert ask(tmp_path, "nic.irq-deferral", files).outcome == "not-applicable"


# -- nic.channels -----------------------------------------------------------------------------


def test_unequal_channels(tmp_path: Path) -> None:
    """Drivers without combined channels: that says nothing of how many queues there are."""
    libraries = ethtool(
        channels={"rx_max": 16, "tx_max": 16, "combined_max": 0, "rx": 4, "tx": 1, "combined": 0}
    )
    found = only(ask(tmp_path, "nic.channels", nic(), libraries=libraries))
    assert found.severity == "warning"
    assert found.message.startswith("eth0 has 4 channels to receive and 1 to send")
    assert found.changes == [NicSetting("eth0", "channels", (("rx", "1"), ("tx", "1")))]
    slow = ask(tmp_path, "nic.channels", nic(speed="1000\n"), libraries=libraries)
    assert only(slow).severity == "info"


def test_equal_channels(tmp_path: Path) -> None:
    libraries = ethtool(channels={"rx": 2, "tx": 2, "combined": 0})
    assert ask(tmp_path, "nic.channels", nic() | ISOLATED, libraries=libraries).outcome == "ok"


def test_more_queues_than_cpus(tmp_path: Path) -> None:
    """Of the NIC's node, CPUs 0 and 1 are left; 8 queues share them."""
    libraries = ethtool(channels={"combined_max": 16, "combined": 8})
    found = only(ask(tmp_path, "nic.channels", nic() | ISOLATED, libraries=libraries))
    assert found.severity == "info"
    assert found.message.startswith("eth0 has 8 receive queues for 2 housekeeping CPUs")
    assert found.changes == [NicSetting("eth0", "channels", (("combined", "2"),))]
    nobody = {**ISOLATED, "/proc/cmdline": "ro\n", f"{CPU}/isolated": "\n", f"{CPU}/nohz_full": "\n"}
    assert ask(tmp_path, "nic.channels", nic() | nobody, libraries=libraries).outcome == "ok"


def test_more_queues_than_cpus_of_all_nodes(tmp_path: Path) -> None:
    libraries = ethtool(channels={"rx_max": 8, "rx": 6, "tx": 6, "combined": 0})
    files = nic() | ISOLATED
    files["/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/numa_node"] = "-1\n"
    found = only(ask(tmp_path, "nic.channels", files, libraries=libraries))
    assert "6 receive queues for 4 housekeeping CPUs" in found.message
    assert found.changes == [NicSetting("eth0", "channels", (("rx", "4"), ("tx", "4")))]


# -- nic.rps ----------------------------------------------------------------------------------


def test_packets_handed_to_isolated_cpus(tmp_path: Path) -> None:
    """0x0f is CPUs 0-3, of which 2 and 3 are apart; 0x03 is fine."""
    found = only(ask(tmp_path, "nic.rps", nic(rps=("0f", "03", "0")) | ISOLATED))
    assert found.severity == "error"
    assert found.message == "1 queue of eth0 may hand packets to the isolated CPUs 2-3."
    assert found.changes == [SysfsAttribute("/sys/class/net/eth0/queues/rx-0/rps_cpus", "3", persist="udev")]


def test_packets_handed_to_housekeeping(tmp_path: Path) -> None:
    assert ask(tmp_path, "nic.rps", nic(rps=("03", "30")) | ISOLATED).outcome == "ok"


def test_nobody_is_apart(tmp_path: Path) -> None:
    files = nic(rps=("ff",)) | {"/proc/cmdline": "ro\n", f"{CPU}/isolated": "\n", f"{CPU}/online": "0-7\n"}
    assert ask(tmp_path, "nic.rps", files).outcome == "not-applicable"


# -- nic.offloads -----------------------------------------------------------------------------


def test_lro(tmp_path: Path) -> None:
    libraries = ethtool(features={"rx-lro": True, "rx-gro": True})
    found = only(ask(tmp_path, "nic.offloads", nic(), libraries=libraries))
    assert found.changes == [NicSetting("eth0", "features", (("rx-lro", "off"),))]
    assert (
        ask(tmp_path, "nic.offloads", nic(), profile="gpu-training", libraries=libraries).outcome
        == "not-applicable"
    )


def test_lro_that_cannot_be_changed(tmp_path: Path) -> None:
    libraries = ethtool(features={"rx-lro": True}, changeable=[])
    found = only(ask(tmp_path, "nic.offloads", nic(), libraries=libraries))
    assert found.changes == []
    assert found.advice


def test_gro_is_left_alone(tmp_path: Path) -> None:
    libraries = ethtool(features={"rx-lro": False, "rx-gro": True, "rx-gro-hw": True})
    assert ask(tmp_path, "nic.offloads", nic(), libraries=libraries).outcome == "ok"


# -- nic.pause --------------------------------------------------------------------------------

ON = {"autoneg": True, "rx": True, "tx": True}


def test_a_partner_that_stops_the_nic(tmp_path: Path) -> None:
    libraries = ethtool(pause={**ON, "rx_frames": 1234, "tx_frames": 0})
    found = only(ask(tmp_path, "nic.pause", nic(), libraries=libraries))
    assert found.message == "The link partner has stopped eth0 from sending with 1,234 pause frames."
    assert found.changes == [NicSetting("eth0", "pause", (("autoneg", "off"), ("rx", "off"), ("tx", "off")))]
    assert found.changes[0].disruption == "link-reset"
    assert (
        ask(tmp_path, "nic.pause", nic(), profile="gpu-inference", libraries=libraries).outcome
        == "not-applicable"
    )


def test_a_few_pauses_are_worth_a_note(tmp_path: Path) -> None:
    libraries = ethtool(pause={**ON, "rx_frames": 99})
    assert only(ask(tmp_path, "nic.pause", nic(), libraries=libraries)).severity == "info"


def test_flow_control_that_was_never_used(tmp_path: Path) -> None:
    libraries = ethtool(pause={**ON, "rx_frames": 0})
    assert ask(tmp_path, "nic.pause", nic(), libraries=libraries).outcome == "ok"


def test_pause_frames_that_nobody_heeds(tmp_path: Path) -> None:
    libraries = ethtool(pause={"autoneg": False, "rx": False, "tx": False, "rx_frames": 9})
    assert ask(tmp_path, "nic.pause", nic(), libraries=libraries).outcome == "ok"


def test_pause_frames_that_nobody_counts(tmp_path: Path) -> None:
    assert ask(tmp_path, "nic.pause", nic(), libraries=ethtool(pause=ON)).outcome == "not-applicable"


def test_pause_frames_in_a_text(tmp_path: Path) -> None:
    text = "$ ethtool -S eth1\nNIC statistics:\n     rx_flow_control_xoff: 77\n"
    found = only(ask(tmp_path, "nic.pause", {}, complete=False, libraries={}, documents={"a.txt": text}))
    assert "77 pause frames" in found.message
    assert found.changes == []


# -- nic.busy-poll ----------------------------------------------------------------------------


def polling(read: str, poll: str) -> dict[str, str]:
    return {"/proc/sys/net/core/busy_read": read, "/proc/sys/net/core/busy_poll": poll}


def test_sockets_choose_for_themselves(tmp_path: Path) -> None:
    result = ask(tmp_path, "nic.busy-poll", polling("0", "0"))
    assert (result.outcome, result.reason) == ("ok", "sockets choose for themselves (SO_BUSY_POLL)")
    assert ask(tmp_path, "nic.busy-poll", polling("50", "50")).outcome == "ok"


def test_a_profile_that_wants_polling(tmp_path: Path) -> None:
    found = only(ask(tmp_path, "nic.busy-poll", polling("0", "70"), "nic.busy_poll_us=50"))
    assert found.changes == [
        SysctlChange("net.core.busy_read", "50"),
        SysctlChange("net.core.busy_poll", "70"),
    ]
    assert ask(tmp_path, "nic.busy-poll", polling("50", "50"), "nic.busy_poll_us=50").outcome == "ok"


def test_polling_of_nothing(tmp_path: Path) -> None:
    """busy_poll polls sockets with SO_BUSY_POLL only, which busy_read is the default of."""
    found = only(ask(tmp_path, "nic.busy-poll", polling("0", "50")))
    assert found.subject == "sysctl:net.core.busy_poll"
    assert found.changes == [SysctlChange("net.core.busy_read", "50")]


def test_polling_is_not_there(tmp_path: Path) -> None:
    nothing = {"/proc/uptime": "1.0 1.0\n"}
    assert ask(tmp_path, "nic.busy-poll", nothing).outcome == "not-applicable"
    assert ask(tmp_path, "nic.busy-poll", nothing, complete=False).outcome == "unknown"


# -- nic.xdp-support --------------------------------------------------------------------------

NO_SOCKETS = {
    "/proc/sys/kernel/osrelease": "6.9.0\n",
    "/boot/config-6.9.0": "CONFIG_SMP=y\n# CONFIG_XDP_SOCKETS is not set\n",
}


def test_what_a_driver_offers(tmp_path: Path) -> None:
    assert "the driver of eth0 offers AF_XDP without copies" in ask(tmp_path, "nic.xdp-support", nic()).reason
    libraries = ethtool(xdp=["basic", "redirect"])
    result = ask(tmp_path, "nic.xdp-support", nic(), libraries=libraries)
    assert (result.outcome, result.reason) == ("ok", "the driver of eth0 offers XDP, and AF_XDP with copies")
    assert "no XDP" in ask(tmp_path, "nic.xdp-support", nic(), libraries=ethtool(xdp=[])).reason


def test_programs_that_need_zero_copy(tmp_path: Path) -> None:
    libraries = ethtool(xdp=["basic", "redirect"])
    found = only(ask(tmp_path, "nic.xdp-support", nic(), "nic.af_xdp=true", libraries=libraries))
    assert (found.subject, found.severity) == ("nic:eth0", "warning")
    assert ask(tmp_path, "nic.xdp-support", nic(), "nic.af_xdp=true").outcome == "ok"


def test_a_kernel_without_af_xdp(tmp_path: Path) -> None:
    assert ask(tmp_path, "nic.xdp-support", nic() | NO_SOCKETS).outcome == "not-applicable"
    found = only(ask(tmp_path, "nic.xdp-support", nic() | NO_SOCKETS, "nic.af_xdp=true"))
    assert found.subject == "kernel"


def test_a_kernel_that_does_not_tell(tmp_path: Path) -> None:
    libraries = ethtool()
    said = libraries["ethtool", "settings", "eth0"]
    said.pop("xdp")
    said["refused"] = {"xdp": "ENOENT"}
    assert ask(tmp_path, "nic.xdp-support", nic(), libraries=libraries).outcome == "not-applicable"
