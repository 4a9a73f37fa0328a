"""pcie.link-width, pcie.link-speed, pcie.path-bandwidth and pcie.shared-uplink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hwtune.diagnosis.engine import probe
from hwtune.diagnosis.table import find, table
from hwtune.fact import known
from hwtune.model.network import IbPort
from hwtune.profile import load
from tests.support import Gap, host
from tests.support.pci import (
    BARE_METAL,
    BRIDGE,
    GPU,
    GUEST,
    IB,
    NIC,
    NVME,
    X4,
    X16,
    Files,
    config,
    drive,
    function,
    switch,
)
from tests.support.rows import diagnose_one

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult
    from hwtune.diagnosis.verdict import Finding

WIDTH, SPEED, PATH, SHARED = "pcie.link-width", "pcie.link-speed", "pcie.path-bandwidth", "pcie.shared-uplink"


def _row(tmp_path: Path, row: str, files: Files, **more: object) -> RowResult:
    return diagnose_one(host(tmp_path, files, **more), row)  # type: ignore[arg-type]


# -- width --------------------------------------------------------------------------------------


def test_all_lanes(tmp_path: Path) -> None:
    assert _row(tmp_path, WIDTH, drive()).outcome == "ok"


def test_lost_lanes(tmp_path: Path) -> None:
    result = _row(tmp_path, WIDTH, drive(("16.0 GT/s PCIe", "2", "16.0 GT/s PCIe", "4")))
    (finding,) = result.findings
    assert (finding.subject, finding.severity) == ("pci:0000:01:00.0", "error")
    (item,) = finding.evidence
    assert (item.value, item.expected) == ("x2", "x4")
    assert item.source.endswith("0000:01:00.0/current_link_width")
    # 16 GT/s carries 128 of 130 bits: 1.969 GB/s a lane
    assert "3.94 of 7.88 GB/s (50%)" in finding.message
    assert finding.advice.startswith("Reseat")


def test_a_port_with_fewer_lanes_is_no_fault(tmp_path: Path) -> None:
    port = ("16.0 GT/s PCIe", "2", "16.0 GT/s PCIe", "2")
    assert _row(tmp_path, WIDTH, drive(("16.0 GT/s PCIe", "2", "16.0 GT/s PCIe", "4"), port)).outcome == "ok"


def test_a_device_with_fewer_lanes_than_its_port_is_no_fault(tmp_path: Path) -> None:
    port = ("16.0 GT/s PCIe", "4", "32.0 GT/s PCIe", "16")
    for row in (WIDTH, SPEED, PATH):
        assert _row(tmp_path, row, drive(X4, port)).outcome == "ok"


def test_a_width_that_cannot_be_true_is_unknown(tmp_path: Path) -> None:
    for width in ("0", "63", "255"):
        result = _row(tmp_path, WIDTH, drive(("16.0 GT/s PCIe", width, "16.0 GT/s PCIe", "4")))
        assert result.outcome == "unknown"
        assert result.unknowns[0].subject == "pci:0000:01:00.0"


def test_an_unknown_port_leaves_the_width_unknown(tmp_path: Path) -> None:
    files = drive(("16.0 GT/s PCIe", "2", "16.0 GT/s PCIe", "4"), ("", "", "", ""))
    assert _row(tmp_path, WIDTH, files).outcome == "unknown"


def test_nothing_to_judge(tmp_path: Path) -> None:
    files = {**BARE_METAL, **function("pci0000:00/0000:00:1f.0", 0x060100, None, (0x8086, 2), "lpc_ich")}
    for row in (WIDTH, SPEED, PATH, SHARED):
        result = _row(tmp_path, row, files)
        assert result.outcome == "not-applicable"
        assert "no GPU, NVMe drive or network card" in result.reason


@pytest.mark.parametrize("row", ["pcie.link-width", "pcie.aer-correctable", "pcie.runtime-pm"])
def test_a_function_of_unknown_class_may_be_a_drive(tmp_path: Path, row: str) -> None:
    files: dict[str, Any] = {**drive()}
    folder = "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    files |= {f"{folder}/{name}": Gap("unreadable") for name in ("uevent", "class", "config")}
    result = diagnose_one(host(tmp_path, files, complete=True), row)
    assert (result.outcome, "class" in result.reason or "uevent" in result.reason) == ("unknown", True)


def test_no_capture_of_pci_is_unknown(tmp_path: Path) -> None:
    for row in (WIDTH, SPEED, PATH, SHARED):
        assert _row(tmp_path, row, dict(BARE_METAL)).outcome == "unknown"


def test_a_machine_without_pci(tmp_path: Path) -> None:
    for row in (WIDTH, SPEED, PATH, SHARED):
        assert _row(tmp_path, row, dict(BARE_METAL), complete=True).reason == "this machine has no PCI"


def test_devices_without_a_link_of_their_own(tmp_path: Path) -> None:
    files = {**BARE_METAL, **function("pci0000:00/0000:00:03.0", NIC, None, (0x1AF4, 0x1041), "virtio-pci")}
    for row in (WIDTH, SPEED, PATH, SHARED):
        result = _row(tmp_path, row, files, complete=True)
        assert (result.outcome, "no PCI Express link" in result.reason) == ("not-applicable", True)


def test_a_guest_sees_what_the_host_offers(tmp_path: Path) -> None:
    files = {
        **GUEST,
        **function(
            "pci0000:00/0000:00:1e.0", GPU, ("8.0 GT/s PCIe", "8", "8.0 GT/s PCIe", "16"), (0x10DE, 0x1EB8)
        ),
    }
    (finding,) = _row(tmp_path, WIDTH, files).findings
    assert finding.severity == "info"
    assert "virtual machine" in finding.message
    hidden = {
        **GUEST,
        **function("pci0000:00/0000:00:1e.0", GPU, ("Unknown", "0", "Unknown", "0"), (0x10DE, 1)),
    }
    assert _row(tmp_path, WIDTH, hidden).outcome == "not-applicable"


def test_virtual_and_further_functions_are_not_judged_again(tmp_path: Path) -> None:
    from tests.support import Link

    base = "pci0000:00/0000:00:01.0"
    low = ("16.0 GT/s PCIe", "2", "16.0 GT/s PCIe", "4")
    files = {
        **drive(low),
        **function(f"{base}/0000:01:00.1", NVME, low),
        **function(f"{base}/0000:01:10.0", NVME, ("Unknown", "0", "Unknown", "0")),
        f"/sys/devices/{base}/0000:01:10.0/physfn": Link("../0000:01:00.0"),
    }
    result = _row(tmp_path, WIDTH, files)
    assert [f.subject for f in result.findings] == ["pci:0000:01:00.0"]
    assert result.unknowns == []


# -- speed --------------------------------------------------------------------------------------


def test_full_speed(tmp_path: Path) -> None:
    assert _row(tmp_path, SPEED, drive()).outcome == "ok"


def test_a_drive_that_trained_low(tmp_path: Path) -> None:
    (finding,) = _row(tmp_path, SPEED, drive(("8.0 GT/s PCIe", "4", "16.0 GT/s PCIe", "4"))).findings
    assert (finding.severity, finding.evidence[0].value) == ("error", "8 GT/s")
    assert finding.evidence[0].expected == "16 GT/s"


def test_a_port_that_is_told_to_be_slow(tmp_path: Path) -> None:
    from tests.support.pci import config

    files = drive(
        ("8.0 GT/s PCIe", "4", "16.0 GT/s PCIe", "4"), ("8.0 GT/s PCIe", "4", "16.0 GT/s PCIe", "4")
    )
    files["/sys/devices/pci0000:00/0000:00:01.0/config"] = config("root-port", target=3, class_code=BRIDGE)
    (finding,) = _row(tmp_path, SPEED, files).findings
    assert "told to train to 8 GT/s" in finding.message
    assert "BIOS" in finding.advice


def test_a_gpu_that_may_be_idle_is_not_judged(tmp_path: Path) -> None:
    files = {
        **drive(),
        **function("pci0000:00/0000:00:02.0", BRIDGE, X16, (0x8086, 1), "pcieport"),
        **function(
            "pci0000:00/0000:00:02.0/0000:02:00.0",
            GPU,
            ("2.5 GT/s PCIe", "16", "32.0 GT/s PCIe", "16"),
            (0x10DE, 1),
        ),
    }
    result = _row(tmp_path, SPEED, files)
    assert result.outcome == "unknown"
    assert [u.subject for u in result.unknowns] == ["pci:0000:02:00.0"]
    assert "while the GPU works" in result.unknowns[0].remedy
    # its width is judged all the same
    assert _row(tmp_path, WIDTH, files).outcome == "ok"


_SMI = """\
==============NVSMI LOG==============

Attached GPUs                             : 1
GPU 00000000:02:00.0
    Product Name                          : NVIDIA H100
    Performance State                     : P0
    Clocks Event Reasons
        Idle                              : {idle}
    Utilization
        Gpu                               : {busy} %
"""


def test_a_busy_gpu_at_low_speed_is_a_fault(tmp_path: Path) -> None:
    files = {
        **BARE_METAL,
        **function("pci0000:00/0000:00:02.0", BRIDGE, X16, (0x8086, 1), "pcieport"),
        **function(
            "pci0000:00/0000:00:02.0/0000:02:00.0",
            GPU,
            ("16.0 GT/s PCIe", "16", "32.0 GT/s PCIe", "16"),
            (0x10DE, 1),
        ),
    }
    busy = {"smi.txt": _SMI.format(idle="Not Active", busy="97")}
    (finding,) = _row(tmp_path, SPEED, files, documents=busy).findings
    assert (finding.subject, finding.severity) == ("pci:0000:02:00.0", "error")
    idle = {"smi.txt": _SMI.format(idle="Active", busy="0")}
    assert _row(tmp_path, SPEED, files, documents=idle).outcome == "unknown"


def _cards(speeds: list[str]) -> Files:
    """InfiniBand cards of one model whose best speed nobody tells."""
    files: Files = dict(BARE_METAL)
    for number, speed in enumerate(speeds):
        address = f"0000:{number + 1:02x}:00.0"
        made = function(
            f"pci0000:{number:02x}/0000:{number:02x}:01.0/{address}", IB, None, (0x15B3, 0x101B), "mlx5_core"
        )
        made[f"/sys/devices/pci0000:{number:02x}/0000:{number:02x}:01.0/{address}/current_link_speed"] = speed
        files.update(made)
    return files


def test_one_card_slower_than_all_like_it(tmp_path: Path) -> None:
    result = _row(tmp_path, SPEED, _cards(["16 GT/s"] * 4 + ["8 GT/s"] + ["16 GT/s"] * 3))
    (finding,) = result.findings
    assert finding.subject == "pci:0000:05:00.0"
    assert "7 others like it run at 16 GT/s" in finding.message


def test_cards_that_agree_prove_nothing(tmp_path: Path) -> None:
    assert _row(tmp_path, SPEED, _cards(["8 GT/s"] * 8)).outcome == "unknown"
    # two kinds of slots, not one bad card
    assert _row(tmp_path, SPEED, _cards(["16 GT/s"] * 6 + ["8 GT/s"] * 2)).outcome == "unknown"


# -- the way up ---------------------------------------------------------------------------------


def test_a_whole_way(tmp_path: Path) -> None:
    assert _row(tmp_path, PATH, switch({"03": (GPU, X16), "04": (NVME, X4)})).outcome == "ok"


def test_a_switch_that_lost_lanes(tmp_path: Path) -> None:
    files = switch({"03": (NIC, X16)}, uplink=("32.0 GT/s PCIe", "8", "32.0 GT/s PCIe", "16"))
    (finding,) = _row(tmp_path, PATH, files).findings
    assert (finding.subject, finding.severity) == ("pci:0000:01:00.0", "error")
    assert "8 of 16 lanes" in finding.message
    assert finding.evidence[0].expected == "32 GT/s x16"


def test_a_slow_switch_of_an_idle_gpu_is_unknown_and_of_a_drive_a_fault(tmp_path: Path) -> None:
    uplink = ("2.5 GT/s PCIe", "16", "32.0 GT/s PCIe", "16")
    idle = _row(tmp_path, PATH, switch({"03": (GPU, X16)}, uplink))
    assert idle.outcome == "unknown"
    drives = _row(tmp_path, PATH, switch({"03": (NVME, X4)}, uplink))
    assert drives.findings[0].subject == "pci:0000:01:00.0"


def test_a_slot_with_few_lanes(tmp_path: Path) -> None:
    # a Gen4 x16 GPU in an x4 slot: a quarter, which is below the profile's half and not yet grave
    files = {
        **BARE_METAL,
        **function("pci0000:00/0000:00:01.0", BRIDGE, X4, (0x8086, 1), "pcieport"),
        **function(
            "pci0000:00/0000:00:01.0/0000:01:00.0",
            GPU,
            ("16.0 GT/s PCIe", "4", "16.0 GT/s PCIe", "16"),
            (0x10DE, 1),
        ),
    }
    (finding,) = _row(tmp_path, PATH, files).findings
    assert (finding.subject, finding.severity) == ("pci:0000:01:00.0", "warning")
    assert "(25%)" in finding.message
    # half is what people choose
    half = drive(("8.0 GT/s PCIe", "4", "16.0 GT/s PCIe", "4"), ("8.0 GT/s PCIe", "4", "8.0 GT/s PCIe", "4"))
    assert _row(tmp_path, PATH, half).outcome == "ok"


def test_a_port_faster_than_its_way(tmp_path: Path) -> None:
    # 200 Gb/s on Gen3 x16, which carries 126
    gen3 = ("8.0 GT/s PCIe", "16", "8.0 GT/s PCIe", "16")
    base = "pci0000:00/0000:00:01.0"
    files = {
        **BARE_METAL,
        **function(base, BRIDGE, gen3, (0x8086, 1), "pcieport"),
        **function(
            f"{base}/0000:01:00.0", IB, ("8.0 GT/s PCIe", "16", "16.0 GT/s PCIe", "16"), (0x15B3, 0x101B)
        ),
    }
    machine, _ = probe(host(tmp_path, files))
    row = find(table(), PATH)

    def judge(gbps: float, text: str = "") -> list[Finding]:
        port = IbPort("mlx5_0", 1, state=known("ACTIVE", "state"), rate_gbps=known(gbps, "rate"))
        port.rate_text = known(text, "rate")
        port.pci_address = known("0000:01:00.0", "device")
        machine.network.ib_ports = [port]
        return row.check(machine, load()).findings

    (finding,) = judge(200.0)
    assert (finding.subject, finding.severity) == ("pci:0000:01:00.0", "warning")
    assert "200 Gb/s" in finding.message and "126.0 Gb/s" in finding.message
    assert judge(100.0) == []
    # of what a QDR port signals, 80 % is data; those since send all but a little as data
    assert judge(150.0, "150 Gb/sec (12X QDR)") == []
    assert len(judge(150.0, "150 Gb/sec (12X FDR10)")) == 1
    # a card whose maker left it just short is in the right slot
    assert judge(128.0) == []


_LIMITED = (
    "[    0.5] {driver} 0000:01:00.0: {have} Gb/s available PCIe bandwidth, limited by {limit} link at "
    "0000:00:00.0 (capable of {could} Gb/s with {best} link)\n"
)


def test_one_generation_less_is_one_half_by_either_reckoning(tmp_path: Path) -> None:
    log = _LIMITED.format(
        driver="mlx5_core",
        have="126.016",
        limit="8.0 GT/s PCIe x16",
        could="252.048",
        best="16.0 GT/s PCIe x16",
    )
    assert _row(tmp_path / "a", PATH, dict(BARE_METAL), documents={"dmesg.txt": log}).findings == []
    # at 64 GT/s the kernel takes off no encoding: 63 of 128 GB/s
    gen5, gen6 = ("32.0 GT/s PCIe", "16"), ("64.0 GT/s PCIe", "16")
    files = {
        **BARE_METAL,
        **function("pci0000:00/0000:00:01.0", BRIDGE, (*gen5, *gen5), (0x8086, 1), "pcieport"),
        **function("pci0000:00/0000:00:01.0/0000:01:00.0", GPU, (*gen5, *gen6), (0x10DE, 0x2941)),
    }
    assert _row(tmp_path / "b", PATH, files).outcome == "ok"


def test_lanes_of_a_gpu_that_may_be_idle(tmp_path: Path) -> None:
    half = ("16.0 GT/s PCIe", "8", "32.0 GT/s PCIe", "16")
    files = {
        **BARE_METAL,
        **function("pci0000:00/0000:00:02.0", BRIDGE, X16, (0x8086, 1), "pcieport"),
        **function("pci0000:00/0000:00:02.0/0000:02:00.0", GPU, half, (0x10DE, 1)),
    }

    def judge(folder: str, **documents: str) -> Finding:
        (finding,) = _row(tmp_path / folder, WIDTH, files, documents=documents).findings
        return finding

    assert judge("a").severity == "warning"
    assert judge("b", smi=_SMI.format(idle="Not Active", busy="97")).severity == "error"
    idle = judge("c", smi=_SMI.format(idle="Active", busy="0"))
    assert (idle.severity, "Look again under load" in idle.advice) == ("info", True)


def test_a_limit_that_only_the_log_tells_of(tmp_path: Path) -> None:
    log = _LIMITED.format(
        driver="pci", have="7.876", limit="8.0 GT/s PCIe x1", could="126.016", best="8.0 GT/s PCIe x16"
    )
    (finding,) = _row(tmp_path, PATH, dict(BARE_METAL), documents={"dmesg.txt": log}).findings
    assert (finding.subject, finding.severity) == ("pci:0000:01:00.0", "error")
    assert "(6.25 %)" in finding.message and "x1 of x16 at 0000:00:00.0" in finding.message


def test_a_gpu_that_was_found_at_its_lowest_speed(tmp_path: Path) -> None:
    log = _LIMITED.format(
        driver="pci", have="32.000", limit="2.5 GT/s PCIe x16", could="252.048", best="16.0 GT/s PCIe x16"
    )
    result = _row(tmp_path, PATH, dict(BARE_METAL), documents={"dmesg.txt": log})
    assert result.outcome == "unknown"
    assert result.unknowns[0].subject == "pci:0000:01:00.0"


def test_a_network_card_that_its_driver_found_slow(tmp_path: Path) -> None:
    log = _LIMITED.format(
        driver="mlx5_core",
        have="31.504",
        limit="8.0 GT/s PCIe x4",
        could="252.048",
        best="16.0 GT/s PCIe x16",
    )
    (finding,) = _row(tmp_path, PATH, dict(BARE_METAL), documents={"dmesg.txt": log}).findings
    assert finding.severity == "error"
    assert "x4 of x16 and 8 of 16 GT/s" in finding.message


def test_a_device_pasted_alone_leaves_its_way_unknown(tmp_path: Path) -> None:
    link = "Speed 16GT/s, Width x4"
    text = f"c9:00.0 Non-Volatile memory controller: X\n\tLnkSta:\t{link}\n\tLnkCap:\t{link}\n"
    assert _row(tmp_path, PATH, {}, documents={"lspci.txt": text}).outcome == "unknown"
    assert _row(tmp_path, SHARED, {}, documents={"lspci.txt": text}).outcome == "unknown"
    # at its best it is, whatever the port
    assert _row(tmp_path, WIDTH, {}, documents={"lspci.txt": text}).outcome == "ok"


# -- shared uplinks -----------------------------------------------------------------------------


def test_a_network_card_beside_a_gpu_is_no_crowd(tmp_path: Path) -> None:
    assert (
        _row(tmp_path, SHARED, switch({"03": (GPU, X16), "04": (NIC, X16), "05": (NVME, X4)})).outcome == "ok"
    )


def test_four_gpus_on_one_uplink(tmp_path: Path) -> None:
    files = switch({f"{bus:02x}": (GPU, X16) for bus in range(3, 7)})
    (finding,) = _row(tmp_path, SHARED, files).findings
    assert (finding.subject, finding.severity) == ("pci:0000:01:00.0", "info")
    assert "4.0 times" in finding.message


def test_devices_apart(tmp_path: Path) -> None:
    assert _row(tmp_path, SHARED, drive()).outcome == "not-applicable"


def test_a_switch_without_its_links_is_unknown(tmp_path: Path) -> None:
    files = switch({"03": (NVME, X4), "04": (NVME, X4)})
    files = {k: v for k, v in files.items() if "_link_" not in k and not k.endswith("/config")}
    assert _row(tmp_path, SHARED, files).outcome == "unknown"


def _switches_below_a_switch(inner: int) -> Files:
    """``inner`` switches below one, two drives below each; all links are x4."""
    files = switch({f"{0x10 + i:02x}": (BRIDGE, X4) for i in range(inner)}, uplink=X4)
    for i in range(inner):
        bus = 0x10 + i
        path = f"pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:{i:02x}.0/0000:{bus:02x}:00.0"
        ids = (0x1000, 0xC030)
        files |= function(path, BRIDGE, X4, ids, "pcieport", config=config("upstream", class_code=BRIDGE))
        for slot in range(2):
            port = f"{path}/0000:{0x20 + i:02x}:{slot:02x}.0"
            down = config("downstream", class_code=BRIDGE)
            files |= function(port, BRIDGE, X4, ids, "pcieport", config=down)
            files |= function(f"{port}/0000:{0x40 + 2 * i + slot:02x}:00.0", NVME, X4)
    return files


def test_no_more_comes_out_of_an_inner_switch_than_its_uplink_carries(tmp_path: Path) -> None:
    """Two times four drives' lanes below, but each switch lets four lanes through: twice the outer uplink."""
    result = _row(tmp_path, SHARED, _switches_below_a_switch(2))
    assert result.outcome == "ok"
    assert any("2.0 times" in item.value for item in result.evidence)
    (finding,) = _row(tmp_path, SHARED, _switches_below_a_switch(4)).findings
    assert finding.subject == "pci:0000:01:00.0"
    assert "4.0 times" in finding.message
