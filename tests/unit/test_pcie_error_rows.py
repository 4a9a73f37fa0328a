"""pcie.aer-correctable, pcie.aer-uncorrectable, pcie.link-down and pcie.slot-power."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import host
from tests.support.pci import BARE_METAL, NIC, NVME, X4, X16, Files, config, drive, function, switch
from tests.support.rows import diagnose_one

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult

CORRECTED, LOST, DOWN, POWER = (
    "pcie.aer-correctable",
    "pcie.aer-uncorrectable",
    "pcie.link-down",
    "pcie.slot-power",
)

_CLEAN = "RxErr 0\nBadTLP 0\nBadDLLP 0\nRollover 0\nTimeout 0\nNonFatalErr 0\nTOTAL_ERR_COR 0\n"
_PORT = "/sys/devices/pci0000:00/0000:00:01.0"
_DRIVE = f"{_PORT}/0000:01:00.0"


def _row(tmp_path: Path, row: str, files: Files, **more: object) -> RowResult:
    return diagnose_one(host(tmp_path, files, **more), row)  # type: ignore[arg-type]


def _counting(corrected: str, hours: float | None = 1000) -> Files:
    files = drive(aer_dev_correctable=corrected, aer_dev_nonfatal="DLP 0\n", aer_dev_fatal="DLP 0\n")
    if hours is not None:
        files["/proc/uptime"] = f"{hours * 3600:.2f} 1.00\n"
    return files


# -- corrected ----------------------------------------------------------------------------------


def test_no_error_counted(tmp_path: Path) -> None:
    result = _row(tmp_path, CORRECTED, _counting(_CLEAN))
    assert result.outcome == "ok"
    assert result.evidence[0].source == f"{_DRIVE}/aer_dev_correctable"


def test_some_errors_in_a_long_time_are_normal(tmp_path: Path) -> None:
    result = _row(tmp_path, CORRECTED, _counting(_CLEAN.replace("RxErr 0", "RxErr 174")))
    assert (result.outcome, "few corrected errors" in result.reason) == ("ok", True)


def test_many_errors_an_hour(tmp_path: Path) -> None:
    files = _counting(_CLEAN.replace("Timeout 0", "Timeout 50000"))
    (finding,) = _row(tmp_path, CORRECTED, files).findings
    assert (finding.subject, finding.severity) == ("pci:0000:01:00.0", "warning")
    assert "50 corrected errors an hour" in finding.message
    assert "replay timer timeout" in finding.message


def test_a_minute_after_boot_is_not_an_hour(tmp_path: Path) -> None:
    assert (
        _row(tmp_path, CORRECTED, _counting(_CLEAN.replace("RxErr 0", "RxErr 3"), hours=0.02)).outcome == "ok"
    )


def test_counts_without_their_time_are_a_note(tmp_path: Path) -> None:
    (finding,) = _row(
        tmp_path, CORRECTED, _counting(_CLEAN.replace("RxErr 0", "RxErr 3"), hours=None)
    ).findings
    assert finding.severity == "info"
    assert "rate, is not known" in finding.message


def test_both_ends_of_a_link_are_one_finding_about_the_device(tmp_path: Path) -> None:
    files = _counting(_CLEAN.replace("RxErr 0", "RxErr 40000"))
    files[f"{_PORT}/aer_dev_correctable"] = _CLEAN.replace("BadTLP 0", "BadTLP 30000")
    (finding,) = _row(tmp_path, CORRECTED, files).findings
    assert finding.subject == "pci:0000:01:00.0"
    assert "70 corrected errors an hour" in finding.message
    assert "0000:00:01.0 and 0000:01:00.0" in finding.message


def test_advisory_errors_are_harmless(tmp_path: Path) -> None:
    files = _counting(_CLEAN.replace("NonFatalErr 0", "NonFatalErr 900000"))
    assert _row(tmp_path, CORRECTED, files).outcome == "ok"


_LOG = """\
[   10.0] pcieport 0000:00:01.0: AER: Multiple Corrected error received: 0000:01:00.0
[   10.1] nvme 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)
[   10.1] nvme 0000:01:00.0:   device [144d:a808] error status/mask=00000001/0000e000
[   10.1] nvme 0000:01:00.0:    [ 0] RxErr
"""


def test_errors_that_only_the_log_tells_of(tmp_path: Path) -> None:
    (finding,) = _row(tmp_path, CORRECTED, drive(), documents={"dmesg.txt": _LOG}).findings
    assert (finding.subject, finding.severity) == ("pci:0000:01:00.0", "warning")
    assert "NVMe drive 0000:01:00.0" in finding.message
    assert finding.evidence[0].value == "0000:01:00.0 [144d:a808]: RxErr (receiver error)"


def test_where_counters_exist_they_set_the_rate(tmp_path: Path) -> None:
    files = _counting(_CLEAN.replace("RxErr 0", "RxErr 1"))
    assert _row(tmp_path, CORRECTED, files, documents={"dmesg.txt": _LOG}).outcome == "ok"


def test_bits_that_stay_are_one_note_for_all(tmp_path: Path) -> None:
    files = switch({"03": (NIC, X16), "04": (NVME, X4)})
    for bus in ("03", "04"):
        path = next(p for p in files if p.endswith(f"0000:{bus}:00.0/config"))
        files[path] = config(correctable=0x41)
    (finding,) = _row(tmp_path, CORRECTED, files).findings
    assert (finding.subject, finding.severity) == ("pci:0000:03:00.0", "info")
    assert "no rate is known" in finding.message
    assert "1 x NIC, 1 x NVMe drive" in finding.message


def test_without_counters_and_log_errors_are_unknown(tmp_path: Path) -> None:
    for row in (CORRECTED, LOST):
        result = _row(tmp_path, row, drive())
        assert (result.outcome, result.unknowns[0].subject) == ("unknown", "pci:0000:01:00.0")


def test_a_silent_log_is_an_answer(tmp_path: Path) -> None:
    for row in (CORRECTED, LOST, DOWN, POWER):
        result = _row(tmp_path, row, drive(), documents={"dmesg.txt": "[    1.0] Linux version 6.1.0\n"})
        assert result.outcome == "ok"


def test_no_device_that_reports(tmp_path: Path) -> None:
    files = {**BARE_METAL, **function("pci0000:00/0000:00:1f.0", 0x060100, None, (0x8086, 2), "lpc_ich")}
    for row in (CORRECTED, LOST):
        assert _row(tmp_path, row, files).outcome == "not-applicable"
    files = drive()
    for row in (CORRECTED, LOST):
        assert _row(tmp_path, row, files, complete=True).outcome == "not-applicable"


# -- uncorrected --------------------------------------------------------------------------------


def _losing(nonfatal: str = "DLP 0\n", fatal: str = "DLP 0\n") -> Files:
    return drive(aer_dev_correctable=_CLEAN, aer_dev_nonfatal=nonfatal, aer_dev_fatal=fatal)


def test_nothing_lost(tmp_path: Path) -> None:
    assert _row(tmp_path, LOST, _losing()).outcome == "ok"


@pytest.mark.parametrize("kind", ["nonfatal", "fatal"])
def test_a_lost_transfer(tmp_path: Path, kind: str) -> None:
    (finding,) = _row(tmp_path, LOST, _losing(**{kind: "DLP 0\nCmpltTO 2\nTOTAL_ERR_X 2\n"})).findings
    assert (finding.subject, finding.severity) == ("pci:0000:01:00.0", "error")
    assert "2 cases" in finding.message and "completion timeout" in finding.message


def test_requests_to_functions_that_do_not_exist_are_harmless(tmp_path: Path) -> None:
    assert _row(tmp_path, LOST, _losing(nonfatal="UnsupReq 12\nTOTAL_ERR_NONFATAL 12\n")).outcome == "ok"


def test_a_device_that_could_not_be_recovered(tmp_path: Path) -> None:
    log = """\
[    5.0] pcieport 0000:00:01.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer
[    5.0] pcieport 0000:00:01.0:   device [8086:0001] error status/mask=00040000/00000000
[    5.0] pcieport 0000:00:01.0:    [18] MalfTLP                (First)
[    5.1] nvme 0000:01:00.0: AER: can't recover (no error_detected callback)
[    5.2] pcieport 0000:00:01.0: AER: device recovery failed
"""
    (finding,) = _row(tmp_path, LOST, drive(), documents={"dmesg.txt": log}).findings
    assert (finding.subject, finding.severity) == ("pci:0000:00:01.0", "error")
    assert "malformed TLP" in finding.message
    assert "could not recover 0000:01:00.0" in finding.message


def test_firmware_reports(tmp_path: Path) -> None:
    log = """\
[    5.0] {1}[Hardware Error]: event severity: recoverable
[    5.0] {1}[Hardware Error]:   section_type: PCIe error
[    5.0] {1}[Hardware Error]:   device_id: 0000:01:00.0
"""
    (finding,) = _row(tmp_path, LOST, drive(), documents={"dmesg.txt": log}).findings
    assert (finding.subject, finding.severity) == ("pci:0000:01:00.0", "error")


# -- links and power ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "line", "severity"),
    [
        (DOWN, "pcieport 0000:00:01.0: pciehp: Slot(3): Link Down", "warning"),
        (
            DOWN,
            "pci 0000:00:01.0: broken device, retraining non-functional downstream link at 2.5GT/s",
            "error",
        ),
        (
            DOWN,
            "nvme 0000:00:01.0: Unable to change power state from D3cold to D0, device inaccessible",
            "error",
        ),
        (POWER, "mlx5_core 0000:00:01.0: Detected insufficient power on the PCIe slot (27W).", "warning"),
    ],
)
def test_complaints_of_the_log(tmp_path: Path, row: str, line: str, severity: str) -> None:
    (finding,) = _row(tmp_path, row, drive(), documents={"dmesg.txt": f"[    1.0] {line}\n"}).findings
    assert (finding.subject, finding.severity) == ("pci:0000:00:01.0", severity)
    assert finding.evidence[0].value == line


def test_without_a_log_nobody_can_tell(tmp_path: Path) -> None:
    for row in (DOWN, POWER):
        assert _row(tmp_path, row, drive()).outcome == "unknown"


def test_without_pci_there_is_no_link(tmp_path: Path) -> None:
    for row in (DOWN, POWER):
        assert _row(tmp_path, row, dict(BARE_METAL), complete=True).outcome == "not-applicable"
