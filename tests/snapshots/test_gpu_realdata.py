"""GPU and NVLink rows on machines and outputs of others: what was worked out by hand, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hwtune.diagnosis.engine import RowResult, judge, probe
from hwtune.diagnosis.table import choose, table
from hwtune.host.snapshot import open_snapshot
from hwtune.probes import gpu as gpu_probe
from hwtune.profile import load
from tests.snapshots.machines import folders, machines

if TYPE_CHECKING:
    from collections.abc import Callable

    Results = Callable[..., dict[str, RowResult]]

_QX = "k8s-test-infra/tests/e2e/go/assertions/nvidiasmi/testdata"
_AZURE = "azurehpc-health-checks/test/data"
_TELEGRAF = "telegraf/plugins/inputs/nvidia_smi/testdata"
_CAPTURES = "nvidia_gpu_exporter/internal/captures"
_FABRIC = "gpud/components/accelerator/nvidia/fabric-manager/testdata"


def _results(path: Path, profile: str = "low-latency") -> dict[str, RowResult]:
    machine, defects = probe(open_snapshot(str(path)))
    rows = choose(table(), ["gpu.*", "nvlink.*", "pcie.link-*", "pcie.path-*"], ())
    diagnosis = judge(machine, rows, load(profile), defects)
    assert not diagnosis.defects, diagnosis.defects
    return {result.id: result for result in diagnosis.results}


@pytest.fixture
def case(realdata: Path) -> Results:
    """The verdicts of a report case, by its number."""

    def results(number: str, profile: str = "low-latency") -> dict[str, RowResult]:
        (folder,) = realdata.glob(f"reports/{number}-*")
        return _results(folder, profile)

    return results


@pytest.fixture
def pasted(realdata: Path, tmp_path: Path) -> Results:
    """The verdicts of one output that was pasted into a folder."""

    def results(name: str, profile: str = "low-latency") -> dict[str, RowResult]:
        folder = tmp_path / Path(name).name.replace(".", "-")
        folder.mkdir()
        # what ends in .a100 is a text too
        kept = name if name.endswith((".txt", ".xml", ".log")) else f"{name}.txt"
        shutil.copyfile(realdata / name, folder / Path(kept).name)
        return _results(folder, profile)

    return results


def _findings(results: dict[str, RowResult]) -> list[tuple[str, str, str]]:
    return [(r.id, f.severity, f.subject) for r in results.values() for f in r.findings]


def _unknown(result: RowResult) -> list[str]:
    return [unknown.subject for unknown in result.unknowns]


# -- matrices of the topology -----------------------------------------------------------------


def test_nics_in_reversed_order_are_still_beside_their_gpus(case: Results) -> None:
    results = case("01", "gpu-training")
    assert _findings(results) == []
    assert results["gpu.nic-affinity"].outcome == "ok"
    assert results["nvlink.inactive"].outcome == "ok"


def test_a_matrix_without_nics_and_nvlink(case: Results) -> None:
    results = case("03", "gpu-training")
    assert _findings(results) == []
    assert results["gpu.nic-affinity"].outcome == "not-applicable"
    assert results["nvlink.inactive"].outcome == "unknown"
    assert "0 of 28 GPU pairs" in results["nvlink.inactive"].reason


def test_a_switch_for_each_gpu_and_no_nvlink(case: Results) -> None:
    results = case("04", "gpu-training")
    assert _findings(results) == []
    assert results["gpu.nic-affinity"].outcome == "ok"
    assert "0 of 28 GPU pairs" in results["nvlink.inactive"].reason


def test_one_gpu_alone_is_near_the_nic(case: Results) -> None:
    results = case("05")
    assert _findings(results) == [("gpu.nic-affinity", "info", "gpu:6")]
    assert "NUMA node 1" in results["gpu.nic-affinity"].findings[0].message


@pytest.mark.parametrize(
    ("profile", "severity"), [("low-latency", "info"), ("gpu-inference", "info"), ("gpu-training", "warning")]
)
def test_four_rails_for_eight_gpus(case: Results, profile: str, severity: str) -> None:
    results = case("07", profile)
    assert _findings(results) == [("gpu.nic-affinity", severity, f"gpu:{n}") for n in (0, 2, 4, 6)]
    assert results["nvlink.inactive"].outcome == "ok"


def test_rows_below_a_cut_are_unknown(case: Results) -> None:
    results = case("08")
    assert _findings(results) == []
    result = results["gpu.nic-affinity"]
    assert (result.outcome, _unknown(result)) == ("unknown", ["gpu:4-7"])
    assert len(result.evidence) == 4
    result = case("10")["gpu.nic-affinity"]
    assert (result.outcome, _unknown(result)) == ("unknown", ["gpu:4-15"])


def test_cards_of_a_dgx_are_beside_its_gpus_though_no_speed_is_told(pasted: Results) -> None:
    udev = "checkbox/checkbox-ng/checkbox_ng/support/parsers/tests/udevadm_data/NVIDIA_DGXA100.txt"
    result = pasted(udev)["gpu.nic-affinity"]
    assert result.outcome == "ok"
    pairs = [
        "07: 0c 12",
        "0f: 0c 12",
        "47: 4b 54",
        "4e: 4b 54",
        "87: 8d 94",
        "90: 8d 94",
        "b7: ba cc",
        "bd: ba cc",
    ]
    for item, pair in zip(result.evidence, pairs, strict=True):
        gpu, cards = pair.split(": ")
        named = ", ".join(f"0000:{bus}:00.0" for bus in cards.split())
        assert item.value == f"pci:0000:{gpu}:00.0 - {named} (PXB)"


def test_peer_access_is_a_limit_of_the_product(case: Results) -> None:
    assert _findings(case("12")) == [("gpu.p2p", "info", "gpu:0")]


# -- NVLink ---------------------------------------------------------------------------------


def test_two_links_of_one_gpu_are_down(case: Results) -> None:
    results = case("15")
    assert _findings(results) == [("nvlink.inactive", "error", "gpu:3")]
    message = results["nvlink.inactive"].findings[0].message
    assert "2 of 6 NVLinks are inactive: 3, 5." in message
    assert "103.1 of 154.7 GB/s" in message


def test_causes_come_before_what_followed(case: Results) -> None:
    results = case("16")
    by_xid = {f.subject: f.message for f in results["gpu.xid"].findings}
    assert {subject: message.split(" (")[0] for subject, message in by_xid.items()} == {
        "pci:0000:dc:00.0": "Xid 149",
        "pci:0000:ed:00.0": "Xid 145",
        "pci:0000:ba:00.0": "Xid 145",
        "pci:0000:97:00.0": "Xid 145",
    }
    assert all("Xid 45" in message and "followed" in message for message in by_xid.values())
    assert {f.severity for f in results["gpu.xid"].findings} == {"error"}
    down = results["nvlink.inactive"].findings
    assert [(f.subject, f.severity) for f in down] == [("gpu:unknown", "error")]
    assert "Xid 149 of pci:0000:dc:00.0" in down[0].message


def test_nvlink_is_fine_and_a_variable_forbids_it(case: Results) -> None:
    results = case("18")
    assert _findings(results) == [("nvlink.disabled-by-env", "warning", "process:nccl")]
    assert "NCCL_P2P_LEVEL=LOC" in results["nvlink.disabled-by-env"].findings[0].message
    assert results["nvlink.inactive"].outcome == "ok"


def test_link_lists_good_and_bad(pasted: Results) -> None:
    assert _findings(pasted(f"{_AZURE}/good_nvlink_status.txt")) == []
    assert _findings(pasted(f"{_AZURE}/bad_nvlink_status.txt")) == [("nvlink.inactive", "error", "gpu:6")]
    results = pasted(f"{_FABRIC}/nvidia-smi.nvlink.status.a100")
    assert _findings(results) == []
    assert results["nvlink.inactive"].outcome == "ok"


# -- the kernel log ---------------------------------------------------------------------------


def test_off_the_bus_without_an_xid(case: Results) -> None:
    assert _findings(case("34")) == [("gpu.lost", "error", "pci:0000:b3:00.0")]


def test_a_program_at_fault_comes_first(case: Results) -> None:
    results = case("35")
    assert _findings(results) == [("gpu.xid", "warning", "pci:0000:cb:00.0")]
    message = results["gpu.xid"].findings[0].message
    assert message.index("Xid 13") < message.index("Xid 109")


def test_a_log_with_xid_119(pasted: Results) -> None:
    results = pasted("gpud/components/accelerator/nvidia/xid/testdata/dmesg-with-xid-119.log")
    assert {(id, severity) for id, severity, _ in _findings(results)} == {("gpu.xid", "error")}
    assert "Xid 119" in results["gpu.xid"].findings[0].message


# -- memory -----------------------------------------------------------------------------------


def test_a_pending_remap_is_no_reason_to_return_the_card(case: Results) -> None:
    results = case("37")
    assert _findings(results) == [("gpu.row-remap", "warning", "gpu:0")]
    assert "no reason to return" in results["gpu.row-remap"].findings[0].message


def test_retired_pages(pasted: Results) -> None:
    assert _findings(pasted(f"{_AZURE}/orig_nvsmi8_output.txt")) == []
    # the bad one is the same with counts of pages written into it
    results = pasted(f"{_AZURE}/bad_nvsmi8_output.txt")
    found = [(f.subject, f.severity) for f in results["gpu.retired-pages"].findings]
    assert sorted(found) == [
        ("gpu:0", "error"), ("gpu:1", "error"), ("gpu:3", "warning"), ("gpu:5", "error"), ("gpu:7", "error"),
    ]  # fmt: skip


def test_injected_faults(pasted: Results) -> None:
    assert set(_findings(pasted(f"{_QX}/qx-gb200-ecc-injected.xml"))) == {
        ("gpu.ecc", "error", "gpu:0"),
        ("gpu.row-remap", "error", "gpu:0"),
    }
    # the faults were injected one after the other
    assert set(_findings(pasted(f"{_QX}/qx-gb200-lost.xml"))) == {
        ("gpu.lost", "error", "gpu:1"),
        ("gpu.ecc", "error", "gpu:0"),
        ("gpu.row-remap", "error", "gpu:0"),
    }
    assert _findings(pasted(f"{_QX}/qx-gb200-fabric-degraded.xml")) == [
        ("nvlink.fabric-manager", "error", "gpu:1")
    ]


# -- what is right gives no finding ---------------------------------------------------------------


@pytest.mark.parametrize("profile", ["low-latency", "gpu-inference", "gpu-training"])
@pytest.mark.parametrize(
    "name",
    [
        f"{_QX}/qx-a100-healthy.xml",
        f"{_QX}/qx-gb200-healthy.xml",
        f"{_QX}/qx-gb200-throttle-counters.xml",
        f"{_QX}/hardware/qx-a100.xml",
        f"{_QX}/hardware/qx-h100.xml",
        f"{_QX}/hardware/qx-gb200.xml",
    ],
)
def test_servers_in_health_give_no_finding(pasted: Results, name: str, profile: str) -> None:
    found = {(id, severity) for id, severity, _ in _findings(pasted(name, profile))}
    # an idle GPU without locked clocks: the one thing that the profile for inference would change
    assert found <= ({("gpu.clocks", "info")} if profile == "gpu-inference" else set())


@pytest.mark.parametrize(
    "name",
    [
        f"{_QX}/hardware/qx-l40s.xml",
        f"{_QX}/hardware/qx-t4.xml",
        f"{_TELEGRAF}/a10g.xml",
        f"{_TELEGRAF}/tesla-t4.xml",
    ],
)
def test_half_the_width_is_what_the_cloud_gives(pasted: Results, name: str) -> None:
    results = pasted(name)
    # those of telegraf have persistence off, with a program that keeps them initialized
    allowed = {("pcie.link-width", "info"), ("gpu.persistence", "info")}
    assert {(id, severity) for id, severity, _ in _findings(results)} <= allowed
    (finding,) = results["pcie.link-width"].findings
    assert finding.message.startswith("This virtual machine gives the GPU (")
    assert "x8 of the x16" in finding.message


def test_idle_consumer_cards_have_no_slow_link(pasted: Results, realdata: Path) -> None:
    for path in sorted(realdata.glob(f"{_TELEGRAF}/*.xml")):
        if path.stem in ("a10g", "tesla-t4"):
            continue
        results = pasted(str(path.relative_to(realdata)))
        # one of them shows 8 lanes of 16 while idle, which says little
        worst = {f.severity for f in results["pcie.link-width"].findings}
        assert worst <= ({"info"} if path.stem == "quadro-p2000-v12" else set()), path.name
        assert results["pcie.link-speed"].findings == []


def test_a_card_of_the_generation_after_its_host_s_is_no_finding(pasted: Results) -> None:
    results = pasted(f"{_QX}/hardware/qx-gb200.xml")
    assert results["pcie.path-bandwidth"].findings == []


def test_captures_of_one_gpu_give_no_advice_for_pairs(pasted: Results, realdata: Path) -> None:
    for path in sorted(realdata.glob(f"{_CAPTURES}/*.txt")):
        results = pasted(str(path.relative_to(realdata)))
        found = {id for id, _, _ in _findings(results)}
        assert not found & {"gpu.p2p", "gpu.nic-affinity", "nvlink.inactive", "nvlink.errors"}, path.name


# -- trees ---------------------------------------------------------------------------------------


def test_switches_are_not_gpus(realdata: Path) -> None:
    gpu = gpu_probe.read(open_snapshot(str(realdata / "gpud/pkg/pci/testdata/lspci-vvv")))
    buses = ["19", "3b", "4c", "5d", "9b", "bb", "cb", "db"]
    assert [g.address for g in gpu.gpus] == [f"0000:{bus}:00.0" for bus in buses]
    assert gpu.host.nvswitches.get() == 4
    dgx = gpu_probe.read(open_snapshot(str(realdata / "derived/udev-dgx-a100.tar.gz")))
    buses = ["07", "0f", "47", "4e", "87", "90", "b7", "bd"]
    assert [g.address for g in dgx.gpus] == [f"0000:{bus}:00.0" for bus in buses]
    assert dgx.host.nvswitches.get() == 6


@pytest.mark.skipif(
    not folders(), reason="HWTUNE_REALDATA is not set: no machines captured elsewhere to read"
)
@pytest.mark.parametrize("name", machines())
def test_any_machine_is_read(realdata: Path, name: str) -> None:
    part = gpu_probe.read(open_snapshot(str(realdata / name)))
    assert all(gpu.address or gpu.index is not None or gpu.source for gpu in part.gpus)
