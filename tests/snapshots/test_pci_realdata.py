"""PCI rows on machines of others: what was worked out by hand must come out, and nothing else."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

from hwtune.diagnosis.engine import RowResult, judge, probe
from hwtune.diagnosis.table import choose, table
from hwtune.host.snapshot import open_snapshot
from hwtune.profile import load
from tests.snapshots.machines import machines

_DELL = "gpud/pkg/pci/testdata/lspci-vvv"


@lru_cache(maxsize=4)
def _diagnose(path: Path, profile: str = "low-latency") -> dict[str, RowResult]:
    machine, defects = probe(open_snapshot(str(path)))
    diagnosis = judge(machine, choose(table(), ["pcie.*"], ()), load(profile), defects)
    assert not diagnosis.defects, diagnosis.defects
    return {result.id: result for result in diagnosis.results}


def _findings(path: Path, profile: str = "low-latency") -> list[tuple[str, str, str]]:
    results = _diagnose(path, profile).values()
    return [(r.id, f.severity, f.subject) for r in results for f in r.findings]


# -- a GPU server with all its links, 517 functions ---------------------------------------------


@pytest.mark.parametrize("profile", ["low-latency", "gpu-inference", "gpu-training"])
def test_a_healthy_gpu_server_has_one_note_at_most(realdata: Path, profile: str) -> None:
    findings = _findings(realdata / _DELL, profile)
    assert findings == [("pcie.aer-correctable", "info", "pci:0000:19:00.0")]


def test_its_devices_are_where_they_are(realdata: Path) -> None:
    machine, _ = probe(open_snapshot(str(realdata / _DELL)))
    devices = machine.pci.by_address()
    assert len(devices) == 517
    node = {f"{bus}:00.0": int(bus >= "80") for bus in ("19", "3b", "4c", "5d", "9b", "bb", "cb", "db")}
    for place, where in node.items():
        gpu = devices[f"0000:{place}"]
        assert (gpu.role, gpu.vendor.get(), gpu.device.get()) == ("gpu", 0x10DE, 0x2330)
        assert gpu.numa_node.get() == where
        assert (gpu.link.current_gts.get(), gpu.link.current_width.get()) == (32.0, 16)
        assert (gpu.link.expected_gts.get(), gpu.link.expected_width.get()) == (32.0, 16)
        assert (gpu.max_payload.get(), gpu.max_read_request.get()) == (256, 4096)
        # each has a network card on the port beside its own, below the same switch
        nic = devices[f"0000:{int(place[:2], 16) + 1:02x}:00.0"]
        assert nic.role == "nic"
        assert devices[nic.parent].parent == devices[gpu.parent].parent
    for bus in ("18", "3a", "4b", "5c", "9a", "ba", "ca", "da"):
        nvme = devices[f"0000:{bus}:00.0"]
        assert (nvme.role, nvme.link.current_gts.get(), nvme.link.current_width.get()) == ("nvme", 16.0, 4)
        assert (nvme.link.expected_gts.get(), nvme.link.expected_width.get()) == (16.0, 4)
    # the onboard card has two lanes, its port one
    onboard = devices["0000:01:00.0"]
    assert (onboard.link.max_width.get(), onboard.link.expected_width.get()) == (2, 1)


def test_its_errors_are_on_gpus_and_their_ports_alone(realdata: Path) -> None:
    (finding,) = _diagnose(realdata / _DELL)["pcie.aer-correctable"].findings
    assert len(finding.evidence) == 16
    assert "8 x GPU, 8 x port" in finding.message
    assert _diagnose(realdata / _DELL)["pcie.aer-uncorrectable"].outcome == "ok"


def test_its_links_are_judged_and_good(realdata: Path) -> None:
    results = _diagnose(realdata / _DELL)
    for row in (
        "link-width",
        "link-speed",
        "path-bandwidth",
        "acs-redirect",
        "max-payload",
        "aspm",
        "shared-uplink",
    ):
        assert results[f"pcie.{row}"].outcome == "ok", row
    assert not results["pcie.link-width"].unknowns


# -- a fleet with one slow card --------------------------------------------------------------------


def test_the_one_card_that_is_slower_than_its_seven_peers(realdata: Path) -> None:
    results = _diagnose(realdata / "derived/gcm-compute_samsung980pro-downgraded.tar.gz")
    (finding,) = results["pcie.link-speed"].findings
    assert finding.subject == "pci:0000:8d:00.0"
    assert "7 others like it run at 16 GT/s" in finding.message
    good = _diagnose(realdata / "derived/gcm-compute_samsung980pro.tar.gz")
    assert not any(result.findings for result in good.values())


# -- cloud GPUs and GPUs at rest --------------------------------------------------------------------

_SMI = "k8s-test-infra/tests/e2e/go/assertions/nvidiasmi/testdata/hardware"
_TELEGRAF = "telegraf/plugins/inputs/nvidia_smi/testdata"


@pytest.mark.parametrize(
    "name", [f"{_SMI}/qx-l40s.xml", f"{_SMI}/qx-t4.xml", f"{_TELEGRAF}/a10g.xml", f"{_TELEGRAF}/tesla-t4.xml"]
)
def test_half_the_lanes_in_a_cloud_are_a_note(realdata: Path, name: str) -> None:
    findings = _findings(realdata / name)
    assert {(row, severity) for row, severity, _ in findings} == {("pcie.link-width", "info")}


@pytest.mark.parametrize("name", ["qx-h100.xml", "qx-a100.xml", "qx-gb200.xml"])
def test_whole_links(realdata: Path, name: str) -> None:
    results = _diagnose(realdata / _SMI / name)
    assert (results["pcie.link-width"].outcome, results["pcie.link-speed"].outcome) == ("ok", "ok")


@pytest.mark.parametrize(
    "name", ["gtx-1660-ti.xml", "quadro-p400.xml", "rtx-3060-v12.xml", "rtx-3090-v12.xml"]
)
def test_a_gpu_at_rest_is_not_judged_by_its_speed(realdata: Path, name: str) -> None:
    result = _diagnose(realdata / _TELEGRAF / name)["pcie.link-speed"]
    assert result.outcome == "unknown"
    assert "while the GPU works" in result.unknowns[0].remedy


# -- report cases -----------------------------------------------------------------------------------

_CASES = {
    "19-nvme-gen4x4-at-gen3x2": [
        ("pcie.link-speed", "error", "pci:0000:c9:00.0"),
        ("pcie.link-width", "error", "pci:0000:c9:00.0"),
    ],
    "20-gpu-idle-gen1-plus-acs-redirect": [("pcie.acs-redirect", "warning", "pci:0000:00:01.1")],
    "22-dmesg-available-bandwidth-x1": [("pcie.path-bandwidth", "error", "pci:0000:01:00.0")],
    "25-acs-redirect-on-5-of-11-ports": [("pcie.acs-redirect", "warning", "kernel")],
    "27-aer-corrected-rxerr-nvme": [("pcie.aer-correctable", "warning", "pci:0000:03:00.0")],
    "28-aer-replay-timer-timeout": [("pcie.aer-correctable", "warning", "pci:0000:00:00.0")],
    "30-aer-uncorrected-completion-timeout": [("pcie.aer-uncorrectable", "error", "pci:0000:00:00.0")],
    "31-edac-ue-and-firmware-pcie-error": [("pcie.aer-uncorrectable", "error", "pci:0000:5e:00.0")],
    "55-timerlat-1035us-from-igpu-runtime-pm": [("pcie.runtime-pm", "warning", "pci:0000:00:02.0")],
}  # fmt: skip


@pytest.mark.parametrize("case", _CASES)
def test_reports(realdata: Path, case: str) -> None:
    assert _findings(realdata / "reports" / case) == _CASES[case]


def test_words_of_the_reports(realdata: Path) -> None:
    def message(case: str, row: str) -> str:
        return _diagnose(next((realdata / "reports").glob(f"{case}-*")))[row].findings[0].message

    assert "1.97 of 7.88 GB/s (25%)" in message("19", "pcie.link-width")
    assert "7.876 of 126.016 Gb/s (6.25 %)" in message("22", "pcie.path-bandwidth")
    assert "on 5 of 11 ports; 2 only check addresses, which is harmless, and 4 have it off" in message(
        "25", "pcie.acs-redirect"
    )
    assert "NVMe drive 0000:03:00.0" in message("27", "pcie.aer-correctable")
    assert "3 cases of Timeout (replay timer timeout)" in message("28", "pcie.aer-correctable")
    assert "could not recover 0000:01:00.0" in message("30", "pcie.aer-uncorrectable")
    assert "CPU 0 had a latency of 1035 us, the others 13 us" in message("55", "pcie.runtime-pm")
    idle = _diagnose(realdata / "reports/20-gpu-idle-gen1-plus-acs-redirect")
    assert (idle["pcie.link-speed"].outcome, idle["pcie.link-width"].outcome) == ("unknown", "ok")


def test_the_other_reports_have_nothing_to_say_of_pci(realdata: Path) -> None:
    for folder in sorted((realdata / "reports").iterdir()):
        if folder.is_dir() and folder.name not in _CASES:
            assert _findings(folder) == [], folder.name


@pytest.mark.parametrize("name", machines())
def test_no_machine_is_accused_without_evidence(realdata: Path, name: str) -> None:
    """None of the captured trees is known to have a fault of its links, but for the one above."""
    if "downgraded" in name or "reports/55" in name:
        pytest.skip("has its own test")
    assert _findings(realdata / name) == []
