"""Rows on InfiniBand and RoCE ports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support import Gap, host
from tests.support.network import ib_port, nic
from tests.support.rows import diagnose_one

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult
    from hwtune.diagnosis.verdict import Finding

ROWS = ("ib.port-state", "ib.rate", "ib.errors")


def ask(tmp_path: Path, row: str, files: Any, *settings: str, **options: Any) -> RowResult:
    return diagnose_one(host(tmp_path, files, **({"complete": True} | options)), row, settings=settings)


def only(result: RowResult) -> Finding:
    assert (result.outcome, len(result.findings)) == ("finding", 1), result
    return result.findings[0]


def rails(count: int = 8, **options: Any) -> dict[str, Any]:
    """Ports mlx5_0 ... of single-port cards."""
    files: dict[str, Any] = {}
    for number in range(count):
        files |= ib_port(f"mlx5_{number}", f"0000:{0x40 + number:02x}:00.0", **options)
    return files


def state(device: str, address: str = "", **files: str) -> dict[str, str]:
    number = int(device.rpartition("_")[2])
    folder = f"/sys/devices/pci0000:40/0000:40:01.0/0000:{0x40 + number:02x}:00.0/infiniband/{device}/ports/1"
    return {f"{folder}/{name}": text for name, text in files.items()}


@pytest.mark.parametrize("row", ROWS)
def test_healthy_ports(tmp_path: Path, row: str) -> None:
    result = ask(tmp_path, row, rails())
    assert result.outcome == "ok"
    assert result.evidence


@pytest.mark.parametrize("row", ROWS)
def test_no_rdma(tmp_path: Path, row: str) -> None:
    result = ask(tmp_path, row, nic())
    assert (result.outcome, result.reason) == ("not-applicable", "there is no RDMA device")


@pytest.mark.parametrize("row", ROWS)
def test_ports_of_which_nothing_is_known(tmp_path: Path, row: str) -> None:
    assert ask(tmp_path, row, nic(), complete=False).outcome == "unknown"
    bare = {p: c for p, c in rails(2).items() if "/ports/" not in p}
    bare |= state("mlx5_0", has_smi="1\n") | state("mlx5_1", has_smi="1\n")
    result = ask(tmp_path, row, bare, complete=False)
    assert result.outcome == "unknown"
    assert "the same of mlx5_1/1" in result.reason


# -- ib.port-state ----------------------------------------------------------------------------


def test_a_port_without_a_subnet_manager(tmp_path: Path) -> None:
    found = only(ask(tmp_path, "ib.port-state", rails() | state("mlx5_6", state="2: INIT\n", lid="0x0\n")))
    assert (found.subject, found.severity) == ("ib:mlx5_6/1", "error")
    assert found.message == "mlx5_6/1 is in state INIT: no subnet manager has set it up."
    assert "subnet manager" in found.advice
    armed = only(ask(tmp_path, "ib.port-state", rails() | state("mlx5_6", state="3: ARMED\n")))
    assert armed.severity == "warning"


DOWN = {"state": "1: DOWN\n", "phys_state": "2: Polling\n", "rate": "10 Gb/sec (4X SDR)\n"}


def test_a_port_that_lost_its_cable(tmp_path: Path) -> None:
    """It still has the address that a subnet manager gave it."""
    found = only(ask(tmp_path, "ib.port-state", rails() | state("mlx5_3", **DOWN, lid="0x364\n")))
    assert (found.subject, found.severity) == ("ib:mlx5_3/1", "error")
    assert "down and Polling (no signal: cable, transceiver or switch port)" in found.message
    assert "the address 868" in found.message


def test_a_port_that_was_never_used(tmp_path: Path) -> None:
    files = rails() | state("mlx5_3", **DOWN, lid="0xffff\n")
    result = ask(tmp_path, "ib.port-state", files)
    assert (result.outcome, result.reason) == ("ok", "nothing shows that mlx5_3/1 is in use")


def test_a_port_that_has_lost_its_link_before(tmp_path: Path) -> None:
    files = rails() | state("mlx5_3", **DOWN, lid="0x0\n", **{"counters/link_downed": "4\n"})
    assert "it has lost its link 4 times" in only(ask(tmp_path, "ib.port-state", files)).message


def test_a_port_whose_interface_is_up(tmp_path: Path) -> None:
    files = ib_port(interface="ib0", **DOWN, lid="0x0\n")
    files |= {
        p: c for p, c in nic("ib0", "0000:41:00.0", type="32\n", carrier="0\n").items() if "bus/pci" not in p
    }
    files |= {
        p.replace("0000:00:01.0", "0000:40:01.0").replace("pci0000:00", "pci0000:40"): c
        for p, c in files.items()
        if "/net/ib0" in p
    }
    assert "its interface ib0 is up" in only(ask(tmp_path, "ib.port-state", files)).message


def test_whether_a_port_was_used_is_not_known(tmp_path: Path) -> None:
    text = "CA 'mlx5_9'\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Polling\n"
    result = ask(tmp_path, "ib.port-state", {}, complete=False, documents={"ibstat.txt": text})
    assert result.outcome == "unknown"


def test_an_ethernet_port_is_not_judged_here(tmp_path: Path) -> None:
    files = ib_port(state="1: DOWN\n", phys_state="3: Disabled\n", link_layer="Ethernet\n")
    assert ask(tmp_path, "ib.port-state", files).outcome == "not-applicable"


def test_a_state_that_cannot_be_read(tmp_path: Path) -> None:
    files = ib_port(state=Gap("unreadable", "Input/output error"))
    result = ask(tmp_path, "ib.port-state", files)
    assert result.outcome == "unknown"
    assert "Input/output error" in result.reason


# -- ib.rate ----------------------------------------------------------------------------------


def test_one_port_slower_than_its_kind(tmp_path: Path) -> None:
    found = only(ask(tmp_path, "ib.rate", rails() | state("mlx5_5", rate="200 Gb/sec (4X HDR)\n")))
    assert (found.subject, found.severity) == ("ib:mlx5_5/1", "warning")
    assert found.message == "mlx5_5/1 runs at 200 Gb/s; 7 ports of the same kind run at 400 Gb/s."
    assert (found.evidence[0].value, found.evidence[0].expected) == ("200 Gb/sec (4X HDR)", "400 Gb/s")


def test_one_port_slower_than_others_with_its_chip(tmp_path: Path) -> None:
    """ibstat names the chip and not the board: a card for half the rate may have it too."""
    rates = {f"mlx5_{n}": ("MT4129", 400) for n in range(4)} | {
        "mlx5_4": ("MT4129", 200),
        "mlx5_5": ("MT4123", 100),
    }
    text = "".join(
        f"CA '{device}'\n\tCA type: {chip}\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n"
        f"\t\tRate: {gbps}\n\t\tLink layer: InfiniBand\n"
        for device, (chip, gbps) in rates.items()
    )
    found = only(ask(tmp_path, "ib.rate", {}, complete=False, documents={"ibstat.txt": text}))
    assert (found.subject, found.severity) == ("ib:mlx5_4/1", "info")
    assert found.message == "mlx5_4/1 runs at 200 Gb/s; 4 ports whose card has the same chip run at 400 Gb/s."


def test_another_kind_of_card_may_be_slower(tmp_path: Path) -> None:
    """Eight rails at 400 Gb/s and a bond of Ethernet ports at 200."""
    bond = ib_port(
        "mlx5_bond_0",
        "0000:60:00.0",
        board="MT_0000000359",
        rate="200 Gb/sec (4X HDR)\n",
        link_layer="Ethernet\n",
    )
    assert ask(tmp_path, "ib.rate", rails() | bond).outcome == "ok"
    slower = ib_port("mlx5_8", "0000:60:00.0", board="MT_0000000224", rate="200 Gb/sec (4X HDR)\n")
    assert ask(tmp_path, "ib.rate", rails() | slower).outcome == "ok"


def test_no_kind_without_a_majority(tmp_path: Path) -> None:
    files = rails(2) | state("mlx5_1", rate="200 Gb/sec (4X HDR)\n")
    assert ask(tmp_path, "ib.rate", files).outcome == "ok"


def test_a_rate_below_the_profile(tmp_path: Path) -> None:
    result = ask(tmp_path, "ib.rate", rails(2, rate="100 Gb/sec (4X EDR)\n"), "nic.ib_rate_min_gbps=200")
    assert [(f.subject, f.severity) for f in result.findings] == [
        ("ib:mlx5_0/1", "error"),
        ("ib:mlx5_1/1", "error"),
    ]
    assert ask(tmp_path, "ib.rate", rails(2, rate="100 Gb/sec (4X EDR)\n")).outcome == "ok"


def test_one_lane_of_four(tmp_path: Path) -> None:
    found = only(ask(tmp_path, "ib.rate", ib_port(rate="100 Gb/sec (1X NDR)\n")))
    assert found.message == "mlx5_0/1 runs at 100 Gb/s; one lane of its cable works."
    # 25 Gb/s Ethernet has one lane by nature
    ethernet = ib_port(rate="25 Gb/sec (1X EDR)\n", link_layer="Ethernet\n")
    assert ask(tmp_path, "ib.rate", ethernet).outcome == "ok"


def test_an_ethernet_port_slower_than_its_like_may_be_meant_so(tmp_path: Path) -> None:
    files = rails(4, link_layer="Ethernet\n", rate="100 Gb/sec (4X EDR)\n")
    found = only(ask(tmp_path, "ib.rate", files | state("mlx5_2", rate="25 Gb/sec (1X EDR)\n")))
    assert (found.subject, found.severity) == ("ib:mlx5_2/1", "info")


def test_two_ports_of_one_card(tmp_path: Path) -> None:
    files = ib_port("mlx5_4", "0000:61:00.0", rate="200 Gb/sec (4X HDR)\n")
    files |= ib_port("mlx5_5", "0000:61:00.1", rate="100 Gb/sec (2X HDR)\n")
    found = only(ask(tmp_path, "ib.rate", files))
    assert (found.subject, found.severity) == ("ib:mlx5_5/1", "info")
    assert "(mlx5_5/1) runs at 100 Gb/s" in found.message
    assert "(mlx5_4/1) at 200 Gb/s" in found.message


def test_the_rate_of_a_port_that_is_down(tmp_path: Path) -> None:
    result = ask(tmp_path, "ib.rate", ib_port(**DOWN))
    assert (result.outcome, result.reason) == (
        "not-applicable",
        "mlx5_0/1 is DOWN: its rate is not that of a link",
    )


def test_a_state_of_the_link_that_does_not_exist(tmp_path: Path) -> None:
    assert ask(tmp_path, "ib.rate", ib_port(phys_state="4: ACTIVE\n")).outcome == "unknown"


# -- ib.errors --------------------------------------------------------------------------------


def test_a_counter_at_its_end(tmp_path: Path) -> None:
    """link_downed has eight bits and does not wrap."""
    found = only(ask(tmp_path, "ib.errors", ib_port(counters={"link_downed": 255})))
    assert (
        found.message
        == "mlx5_0/1 has counted at least 255 link losses (a counter at its end counts no further)."
    )
    assert (found.evidence[0].value, found.evidence[0].expected) == ("255", "at most 10")


def test_some_losses_and_errors_are_normal(tmp_path: Path) -> None:
    counters = {
        "link_downed": 10,
        "symbol_error": 300,
        "port_rcv_errors": 9,
        "excessive_buffer_overrun_errors": 3,
    }
    assert ask(tmp_path, "ib.errors", ib_port(counters=counters)).outcome == "ok"


def test_packets_with_errors(tmp_path: Path) -> None:
    """1,000 of 1,000,001,000: one per million."""
    found = only(ask(tmp_path, "ib.errors", ib_port(counters={"port_rcv_errors": 1000})))
    assert found.message == "mlx5_0/1 has counted 1,000 packets received with errors."


def test_ports_that_count_nothing(tmp_path: Path) -> None:
    assert (
        ask(tmp_path, "ib.errors", ib_port(counters={"symbol_error": "N/A (no PMA)"})).outcome
        == "not-applicable"
    )
    ethernet = ib_port(link_layer="Ethernet\n", counters={"link_downed": 255})
    assert ask(tmp_path, "ib.errors", ethernet).outcome == "not-applicable"
