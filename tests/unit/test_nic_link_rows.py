"""Rows on links of network interfaces and the firmware of their cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support import Gap, host
from tests.support.network import DARK, ethtool, ib_port, nic
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


ROWS = ("nic.link", "nic.flaps", "nic.speed", "nic.errors")


@pytest.mark.parametrize("row", ROWS)
def test_a_healthy_interface(tmp_path: Path, row: str) -> None:
    result = ask(tmp_path, row, nic())
    assert result.outcome == "ok"
    assert result.evidence


@pytest.mark.parametrize("row", ROWS)
def test_a_machine_without_interfaces(tmp_path: Path, row: str) -> None:
    assert ask(tmp_path, row, {"/proc/uptime": "1.0 1.0\n"}).outcome == "not-applicable"


@pytest.mark.parametrize("row", ROWS)
def test_nothing_is_known(tmp_path: Path, row: str) -> None:
    result = ask(tmp_path, row, {"/proc/uptime": "1.0 1.0\n"}, complete=False)
    assert (result.outcome, result.reason) == ("unknown", "/sys/class/net is not in the snapshot")
    bare = {p: c for p, c in nic().items() if p.count("/net/eth0") == 0 or "class/net" in p}
    bare["/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/net/eth0/addr_len"] = "6\n"
    assert ask(tmp_path, row, bare, complete=False, libraries={}).outcome == "unknown"


# -- nic.link ---------------------------------------------------------------------------------


def test_a_port_that_nothing_was_ever_plugged_into(tmp_path: Path) -> None:
    files = nic(**DARK, carrier_changes="1\n", carrier_up_count="0\n")
    result = ask(tmp_path, "nic.link", files | {"/proc/net/route": "Iface\tDestination\n"})
    assert (result.outcome, result.reason) == ("ok", "eth0 is up and was never plugged in")


def test_a_port_that_is_down(tmp_path: Path) -> None:
    down = {n: Gap("unreadable", "Invalid argument") for n in ("carrier", "speed", "duplex")}
    result = ask(tmp_path, "nic.link", nic(flags="0x1002\n", operstate="down\n", **down))
    assert (result.outcome, result.reason) == ("ok", "eth0 is not in use (down)")


def test_a_link_that_was_lost(tmp_path: Path) -> None:
    found = only(ask(tmp_path, "nic.link", nic(**DARK, carrier_changes="3\n")))
    assert (found.subject, found.severity) == ("nic:eth0", "warning")
    assert found.message == "eth0 has lost its link: it had one since its driver was loaded."
    assert found.evidence[0].source == "/sys/class/net/eth0/carrier"
    assert found.evidence[0].value == "eth0 no link"


def test_a_link_that_was_lost_on_an_old_kernel(tmp_path: Path) -> None:
    """Before 4.16 only the changes are counted: without at first, with, and without."""
    route = {"/proc/net/route": "Iface\tDestination\n"}
    lost = nic(**DARK, carrier_changes="3\n", without=("carrier_up_count",)) | route
    assert ask(tmp_path, "nic.link", lost).outcome == "finding"
    never = nic(**DARK, carrier_changes="1\n", without=("carrier_up_count",)) | route
    assert ask(tmp_path, "nic.link", never).outcome == "ok"


def test_routes_that_lead_nowhere(tmp_path: Path) -> None:
    files = nic(**DARK, carrier_up_count="0\n")
    files["/proc/net/route"] = "Iface\tDestination\tGateway\neth0\t00000000\t0100000A\n"
    found = only(ask(tmp_path, "nic.link", files))
    assert found.severity == "error"
    assert found.message == "eth0 is up and has routes, but no link."


def test_a_bond_on_one_leg(tmp_path: Path) -> None:
    files = nic(**DARK, carrier_up_count="0\n", master="bond0")
    found = only(ask(tmp_path, "nic.link", files))
    assert found.message == "eth0 has no link, so bond0 runs without it."
    down = nic(flags="0x1002\n", operstate="down\n", carrier=Gap("unreadable"), master="bond0")
    assert only(ask(tmp_path, "nic.link", down)).message == "eth0 belongs to bond0 and is down."


def test_a_dark_port_of_which_nothing_more_is_known(tmp_path: Path) -> None:
    files = nic(**DARK, without=("carrier_changes", "carrier_up_count"))
    result = ask(tmp_path, "nic.link", files, complete=False)
    assert result.outcome == "unknown"
    assert "carrier_changes is not in the snapshot" in result.reason


def test_an_ipoib_interface_apart_from_the_others(tmp_path: Path) -> None:
    files: dict[str, Any] = {}
    for number in range(4):
        address = f"0000:4{number}:00.0"
        files |= ib_port(f"mlx5_{number}", address, interface=f"ib{number}")
        state = {"operstate": "down\n", "carrier": Gap("unreadable")} if number == 2 else {}
        own = nic(f"ib{number}", address, type="32\n", **state)
        files |= {p: c for p, c in own.items() if not p.startswith("/sys/bus/pci/devices")}
        files[f"/sys/class/net/ib{number}"] = own[f"/sys/class/net/ib{number}"]
    files["/sys/devices/pci0000:00/0000:00:01.0/0000:42:00.0/net/ib2/flags"] = "0x1002\n"
    found = only(ask(tmp_path, "nic.link", files))
    assert found.subject == "nic:ib2"
    assert "mlx5_2/1 is ACTIVE and 3 of 3 other interfaces of this kind are up" in found.message


def test_an_ipoib_interface_whose_port_waits(tmp_path: Path) -> None:
    """ib.port-state tells of that."""
    files = ib_port(interface="ib0", state="2: INIT\n")
    files |= {p: c for p, c in nic("ib0", "0000:41:00.0", type="32\n", **DARK).items() if "bus/pci" not in p}
    assert ask(tmp_path, "nic.link", files).outcome == "not-applicable"


# -- nic.flaps --------------------------------------------------------------------------------


def test_flaps(tmp_path: Path) -> None:
    """98 changes: the start without a link, the link, and 48 times both ways."""
    files = nic(carrier_changes="98\n") | {"/proc/uptime": "864000.00 100.00\n"}
    found = only(ask(tmp_path, "nic.flaps", files))
    assert found.message == "eth0 has lost its link 48 times in 10.0 days."
    assert found.severity == "warning"
    rare = nic(carrier_changes="98\n") | {"/proc/uptime": "8640000.00 100.00\n"}
    assert only(ask(tmp_path, "nic.flaps", rare)).severity == "info"
    assert ask(tmp_path, "nic.flaps", nic(carrier_changes="22\n")).outcome == "ok"
    assert (
        ask(tmp_path, "nic.flaps", nic(carrier_changes="22\n"), "nic.link_losses_max=9").outcome == "finding"
    )


def test_flaps_on_a_kernel_that_counts_none(tmp_path: Path) -> None:
    files = nic(without=("carrier_changes",))
    assert ask(tmp_path, "nic.flaps", files).outcome == "not-applicable"
    assert ask(tmp_path, "nic.flaps", files, complete=False).outcome == "unknown"


# -- nic.speed --------------------------------------------------------------------------------


def link(supported: int, offered: int | None = None, partner: int | None = None, autoneg: bool = True) -> Any:
    said = {
        "autoneg": autoneg,
        "supported": [f"{supported}baseT/Full", "1000baseT/Full"],
        "advertised": [f"{offered or supported}baseT/Full"],
    }
    if partner is not None:
        said["partner"] = [f"{partner}baseT/Full"]
    return ethtool(link=said)


def test_less_than_both_ends_offer(tmp_path: Path) -> None:
    result = ask(tmp_path, "nic.speed", nic(speed="100\n"), libraries=link(10_000, partner=1000))
    found = only(result)
    assert found.message == "eth0 runs at 100 Mb/s, though both ends offer 1 Gb/s."
    assert found.severity == "warning"
    assert (found.evidence[0].value, found.evidence[0].expected) == ("100 Mb/s", "1 Gb/s")


def test_far_less_than_the_card_can_do(tmp_path: Path) -> None:
    result = ask(tmp_path, "nic.speed", nic(speed="1000\n"), libraries=link(25_000, autoneg=False))
    assert only(result).severity == "info"
    slow_partner = ask(tmp_path, "nic.speed", nic(speed="100\n"), libraries=link(1000, partner=100))
    assert "the link partner offers 100 Mb/s" in only(slow_partner).message
    assert only(slow_partner).severity == "info"


@pytest.mark.parametrize(
    ("speed", "libraries"),
    [
        ("25000\n", link(25_000)),
        # a 10 Gb/s switch below a 25 Gb/s card is how many are built
        ("10000\n", link(25_000, autoneg=False)),
        (
            "40000\n",
            ethtool(link={"supported": ["40000baseSR4/Full", "56000baseSR4/Full"], "advertised": []}),
        ),
        # somebody has told it to offer no more
        ("1000\n", link(10_000, offered=1000)),
        ("10000\n", ethtool(link=None)),
    ],
)
def test_speeds_that_are_right(tmp_path: Path, speed: str, libraries: Any) -> None:
    assert ask(tmp_path, "nic.speed", nic(speed=speed), libraries=libraries).outcome == "ok"


def test_half_duplex(tmp_path: Path) -> None:
    assert "half duplex" in only(ask(tmp_path, "nic.speed", nic(duplex="half\n"))).message


def test_a_virtual_interface_has_no_speed(tmp_path: Path) -> None:
    result = ask(tmp_path, "nic.speed", nic(speed="-1\n", duplex="unknown\n"))
    assert result.outcome == "not-applicable"


def test_only_dark_interfaces(tmp_path: Path) -> None:
    result = ask(tmp_path, "nic.speed", nic(**DARK))
    assert (result.outcome, result.reason) == ("not-applicable", "no network interface here has a link")


def test_what_a_card_can_do_is_not_known(tmp_path: Path) -> None:
    result = ask(tmp_path, "nic.speed", nic(), complete=False, libraries={})
    assert (result.outcome, result.reason) == ("unknown", "ethtool eth0 is not in the snapshot")


# -- nic.errors -------------------------------------------------------------------------------


def test_damaged_packets(tmp_path: Path) -> None:
    """50 of 5,000,050 packets: 10 per million."""
    found = only(ask(tmp_path, "nic.errors", nic(counters={"rx_crc_errors": 50})))
    assert found.message == "50 of 5,000,050 packets (10.0 per million) arrived damaged at eth0."
    assert found.evidence[0].value == "rx_crc_errors 50"


def test_few_damaged_packets(tmp_path: Path) -> None:
    few = ask(tmp_path, "nic.errors", nic(counters={"rx_crc_errors": 9}))
    assert (few.outcome, few.reason) == ("ok", "eth0: 9 damaged of 5,000,009 packets")
    rare = ask(tmp_path, "nic.errors", nic(counters={"rx_crc_errors": 50, "rx_packets": 5_000_000_000}))
    assert rare.outcome == "ok"


def test_damaged_packets_in_a_text(tmp_path: Path) -> None:
    text = "$ ethtool -S eth5\nNIC statistics:\n     rx_packets: 1000000\n     rx_crc_errors_phy: 1000\n"
    found = only(ask(tmp_path, "nic.errors", {}, complete=False, libraries={}, documents={"a.txt": text}))
    assert (found.subject, found.message) == (
        "nic:eth5",
        "1,000 of 1,001,000 packets (999 per million) arrived damaged at eth5.",
    )


def test_an_interface_that_its_text_does_not_name(tmp_path: Path) -> None:
    text = (
        "NIC statistics:\n     rx_packets: 1000000\n     rx_crc_errors: 1000\n     rx_missed_errors: 9000\n"
    )
    more: dict[str, Any] = {"complete": False, "libraries": {}, "documents": {"a.txt": text}}
    assert only(ask(tmp_path / "a", "nic.errors", {}, **more)).message.endswith(
        "arrived damaged at the interface."
    )
    assert only(ask(tmp_path / "b", "nic.drops", {}, **more)).message.startswith("The interface has lost ")


# -- nic.firmware -----------------------------------------------------------------------------


def cards(*versions: str, subsystem: int = 0x0001) -> dict[str, Any]:
    """Ports of cards of one kind, each with its firmware."""
    files: dict[str, Any] = {}
    libraries: dict[Any, Any] = {}
    for number, version in enumerate(versions):
        address = f"0000:0{number + 1}:00.0"
        files |= nic(f"eth{number}", address)
        files[f"/sys/devices/pci0000:00/0000:00:01.0/{address}/uevent"] = (
            f"DRIVER=ice\nPCI_CLASS=20000\nPCI_ID=8086:159B\nPCI_SUBSYS_ID=8086:{subsystem + 0:04X}\n"
        )
        libraries |= ethtool(f"eth{number}", {"firmware": version})
    return {"files": files, "libraries": libraries}


def test_cards_of_one_firmware(tmp_path: Path) -> None:
    box = cards("4.40", "4.40")
    assert ask(tmp_path, "nic.firmware", box["files"], libraries=box["libraries"]).outcome == "ok"


def test_cards_of_two_firmwares(tmp_path: Path) -> None:
    box = cards("4.40", "4.20", "4.40")
    found = only(ask(tmp_path, "nic.firmware", box["files"], libraries=box["libraries"]))
    assert (found.subject, found.severity) == ("nic:eth1", "info")
    assert found.message == "1 card of kind 8086:159b:8086:0001 has firmware 4.20; 4.40 is on 2 of them."


def test_infiniband_cards_of_two_firmwares(tmp_path: Path) -> None:
    files: dict[str, Any] = {}
    for number, version in enumerate(("28.41.1000", "28.39.1002")):
        files |= ib_port(f"mlx5_{number}", f"0000:4{number}:00.0", firmware=version)
    found = only(ask(tmp_path, "nic.firmware", files | nic()))
    assert found.message.startswith("1 card of kind MT_0000000838 has firmware 28.39.1002")


def test_one_card_is_compared_with_nothing(tmp_path: Path) -> None:
    assert ask(tmp_path, "nic.firmware", nic()).outcome == "not-applicable"


def test_firmware_is_not_known(tmp_path: Path) -> None:
    box = cards("4.40", "4.40")
    assert ask(tmp_path, "nic.firmware", box["files"], complete=False, libraries={}).outcome == "unknown"
