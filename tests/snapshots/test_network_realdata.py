"""Network interfaces and InfiniBand ports of captured machines and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hwtune.diagnosis.engine import judge, probe
from hwtune.diagnosis.table import table
from hwtune.errors import UsageError
from hwtune.host.snapshot import open_snapshot
from hwtune.probes import network
from hwtune.profile import load
from tests.snapshots.machines import folders, machines

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult

pytestmark = pytest.mark.skipif(not folders(), reason="HWTUNE_REALDATA names no folder of captured machines")

_TEXTS = (
    "insights-core/ethtool/*",
    "jc/tests/fixtures/generic/ethtool*",
    "node_exporter/collector/fixtures/ethtool/*/*",
    "superbenchmark/tests/data/*ib*",
    "superbenchmark/dockerfile/etc/*.xml",
    "rccl/tools/topo_expl/models/*.xml",
)


def _results(path: Path | str) -> dict[str, RowResult]:
    machine, defects = probe(open_snapshot(str(path)))
    rows = [row for row in table() if row.subsystem in ("nic", "ib")]
    diagnosis = judge(machine, rows, load(), [d for d in defects if d.where == "probe network"])
    assert not diagnosis.defects
    return {result.id: result for result in diagnosis.results}


def _said(results: dict[str, RowResult]) -> list[tuple[str, str, str]]:
    return [(r.id, f.severity, f.subject) for r in results.values() for f in r.findings]


def _root() -> Path:
    return folders()[0]


# What each captured machine is known to have; all others have nothing to find.
KNOWN = {
    # ib4 is down beside its seven like, and has changed its carrier 98 times
    "derived/gcm-learn_ib_intf_operstate_down.tar.gz": [
        ("nic.flaps", "warning", "nic:ib4"),
        ("nic.link", "warning", "nic:ib4"),
    ],
    # two ports that no subnet manager has set up
    "derived/gcm-learn_stuck_ib_intf.tar.gz": [
        ("ib.port-state", "error", "ib:mlx5_6/1"),
        ("ib.port-state", "error", "ib:mlx5_8/1"),
    ],
    # ports at 100 Gb/s whose interfaces say 200
    **{
        f"derived/gcm-learn_ib_intf_bad_{what}.tar.gz": [
            ("ib.rate", "warning", f"ib:mlx5_{n}/1") for n in (0, 1, 2, 3, 6, 7, 8, 9)
        ]
        for what in ("rate", "version")
    },
    # rx_fifo_errors 2,045 of 44 million packets
    "hwloc/tests/hwloc/linux/32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2": [("nic.drops", "warning", "nic:eth0")],
}


@pytest.mark.parametrize("name", machines())
def test_captured_machines(name: str) -> None:
    assert _said(_results(_root() / name)) == KNOWN.get(name, [])


def test_a_healthy_machine_of_eight_rails() -> None:
    results = _results(_root() / "derived/gcm-learn_good.tar.gz")
    assert {results[row].outcome for row in ("nic.link", "nic.flaps", "ib.port-state", "ib.rate")} == {"ok"}
    seen = network.read(open_snapshot(str(_root() / "derived/gcm-learn_good.tar.gz")))
    assert [(p.device, p.rate_gbps.value, p.netdevs) for p in seen.ib_ports] == [
        (f"mlx5_{device}", 200.0, [f"ib{rail}"]) for rail, device in enumerate((0, 1, 2, 3, 6, 7, 8, 9))
    ]


def test_a_dgx_of_udevs_database() -> None:
    """Eight interfaces of Mellanox cards and one of Intel's, by their PCI functions; no links are known,
    nor the ports of ten RDMA devices."""
    path = _root() / "derived/udev-dgx-a100.tar.gz"
    seen = network.read(open_snapshot(str(path)))
    assert [(n.name, n.pci_address.value) for n in seen.nics if n.driver.value == "igb"] == [
        ("enp226s0", "0000:e2:00.0")
    ]
    assert len([n for n in seen.nics if n.driver.value == "mlx5_core"]) == 8
    assert seen.ib_ports == []
    assert _results(path)["ib.port-state"].outcome == "unknown"


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("14-*", [("ib.rate", "info", "ib:mlx5_5/2")]),
        ("67-*", [("ib.port-state", "error", "ib:mlx5_10/1")]),
        ("69-*", [("nic.drops", "info", "nic:?")]),
        ("71-*", [("nic.channels", "warning", "nic:ens3")]),
    ],
)
def test_reported_cases(case: str, said: list[tuple[str, str, str]]) -> None:
    (path,) = _root().glob(f"reports/{case}")
    assert _said(_results(path)) == said


def test_what_the_reported_cases_say() -> None:
    def finding(case: str, row: str) -> str:
        (path,) = _root().glob(f"reports/{case}-*")
        return _results(path)[row].findings[0].message

    card = finding("14", "ib.rate")
    assert "(mlx5_5/2) runs at 100 Gb/s" in card
    assert "PCIe link (252 Gb/s) could not carry two ports at 200 Gb/s" in card
    assert "down and Polling (no signal" in finding("67", "ib.port-state")
    assert "4,954 of 3,811,447,725 packets (1.3 per million)" in finding("69", "nic.drops")
    assert "2 channels to receive and 1 to send" in finding("71", "nic.channels")


def test_the_rate_of_a_port_that_is_down_is_no_rate() -> None:
    (path,) = _root().glob("reports/67-*")
    assert _results(path)["ib.rate"].outcome == "not-applicable"


TEXT_FINDINGS = {
    "ETHTOOL_S_eth0_1.txt": [("nic.drops", "warning", "nic:?")],
    "TEST_ETHTOOL_C_DOCS.txt": [("nic.coalescing", "warning", "nic:eth0")],
    # the partner offers 100 Mb/s to a port that can do 1 Gb/s
    "ethtool--link-partner-advertised-link-modes.out": [("nic.speed", "info", "nic:eth0")],
    "statistics": [("nic.drops", "warning", "nic:eth0")],
    # cards with one port at 200 and one at 100 Gb/s
    "topo_8p_rome_n2_2.xml": [("ib.rate", "info", "ib:mlx5_0/1")],
    "topo_8p_ts1_n4_2.xml": [("ib.rate", "info", "ib:mlx5_1/2")],
}


def _texts() -> list[str]:
    return sorted(
        str(path.relative_to(root)) for root in folders() for glob in _TEXTS for path in root.glob(glob)
    )


@pytest.mark.parametrize("name", _texts())
def test_pasted_outputs(name: str) -> None:
    """Many of them cut, garbled or error messages: those are refused with one sentence."""
    path = _root() / name
    try:
        results = _results(path)
    except UsageError as error:
        assert "\n" not in str(error)
        return
    assert _said(results) == TEXT_FINDINGS.get(path.name, [])
