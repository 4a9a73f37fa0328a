"""The row of memory errors: EDAC counts, the kernel log, and machines that cannot tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support import Directory, Gap, host
from tests.support.rows import diagnose_one

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult

MC = "/sys/devices/system/edac/mc"
BARE_METAL = {"/proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu tsc lm\n"}
GUEST = {"/proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu tsc lm hypervisor\n"}
CE = (
    "[  100.5] EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_Chan#0_DIMM#0 "
    "(channel:0 slot:0 page:0xee30a0 offset:0x0 grain:32 syndrome:0x0)\n"
)
UE = (
    "[  200.5] EDAC MC3: 1 UE memory read error on CPU_SrcID#1_Chan#2_DIMM#0 "
    "(channel:2 slot:0 page:0xb757589 offset:0x140 grain:32 - OVERFLOW)\n"
)


def _row(tmp_path: Path, files: dict[str, Any], log: str = "", **more: Any) -> RowResult:
    documents = {"dmesg.txt": log} if log else None
    settings = more.pop("settings", ())
    return diagnose_one(
        host(tmp_path, files, documents=documents, **more), "memory.ecc-errors", settings=settings
    )


def _controller(corrected: str = "0", uncorrected: str = "0") -> dict[str, Any]:
    return {
        f"{MC}/mc0/ce_count": corrected,
        f"{MC}/mc0/ue_count": uncorrected,
        f"{MC}/mc0/seconds_since_reset": "86400",
    }


def test_counts_of_zero_are_good_with_or_without_a_log(tmp_path: Path) -> None:
    assert _row(tmp_path, _controller()).outcome == "ok"
    assert _row(tmp_path, _controller(), "[    0.000000] Linux version 6.1.0\n").outcome == "ok"


def test_counts_name_the_dimm(tmp_path: Path) -> None:
    files = {
        **_controller(corrected="7"),
        f"{MC}/mc0/dimm0/dimm_label": "CPU0_A1\n",
        f"{MC}/mc0/dimm0/dimm_ce_count": "0",
        f"{MC}/mc0/dimm0/dimm_ue_count": "0",
        f"{MC}/mc0/dimm3/dimm_label": "CPU0_B1\n",
        f"{MC}/mc0/dimm3/dimm_ce_count": "7",
        f"{MC}/mc0/dimm3/dimm_ue_count": "0",
    }
    result = _row(tmp_path, files)
    (finding,) = result.findings
    assert result.severity == "warning"
    assert finding.message.startswith("7 corrected memory errors at CPU0_B1.")
    assert [(item.source, item.value) for item in finding.evidence] == [
        (f"{MC}/mc0/ce_count", "7 in 86400 s"),
        (f"{MC}/mc0 CPU0_B1", "7"),
    ]


def test_the_old_interface_counts_by_row_and_channel(tmp_path: Path) -> None:
    files = {
        **_controller(corrected="2", uncorrected="1"),
        f"{MC}/mc0/csrow0/ue_count": "0",
        f"{MC}/mc0/csrow0/ch0_ce_count": "2",
        f"{MC}/mc0/csrow0/ch0_dimm_label": "DIMM_A1",
        f"{MC}/mc0/csrow1/ue_count": "1",
        f"{MC}/mc0/csrow1/ch0_ce_count": "0",
    }
    result = _row(tmp_path, files)
    assert result.severity == "error"
    lost, corrected = result.findings
    assert lost.severity == "error" and "1 uncorrected memory error at csrow1" in lost.message
    assert "2 corrected memory errors at DIMM_A1" in corrected.message


def test_a_profile_may_let_some_pass(tmp_path: Path) -> None:
    files = _controller(corrected="3")
    assert _row(tmp_path, files, settings=["memory.ecc_corrected_max=3"]).outcome == "ok"
    assert _row(tmp_path, files, settings=["memory.ecc_corrected_max=2"]).outcome == "finding"


def test_one_corrected_error_in_the_log(tmp_path: Path) -> None:
    result = _row(tmp_path, {}, CE)
    (finding,) = result.findings
    assert result.severity == "warning"
    assert "CPU_SrcID#1_Chan#0_DIMM#0 (page 0xee30a0)" in finding.message
    assert "One alone is no fault" in finding.message


def test_a_page_that_repeats_is_a_cell_that_fails(tmp_path: Path) -> None:
    result = _row(tmp_path, {}, CE + CE.replace("100.5", "900.5"), settings=["memory.ecc_corrected_max=10"])
    (finding,) = result.findings
    assert "2 corrected memory errors" in finding.message and "not chance" in finding.message


def test_an_uncorrected_error_comes_first_and_is_an_error(tmp_path: Path) -> None:
    result = _row(tmp_path, _controller(), CE + UE)
    first, second = result.findings
    assert (first.severity, second.severity) == ("error", "warning")
    assert "more than the hardware could note" in first.message
    assert first.evidence[0].source.endswith("dmesg.txt")


def test_the_log_and_the_counts_of_one_error_are_one(tmp_path: Path) -> None:
    (finding,) = _row(tmp_path, _controller(uncorrected="1"), UE).findings
    assert finding.message.startswith("1 uncorrected memory error at mc0, CPU_SrcID#1_Chan#2_DIMM#0")


def test_memory_out_of_use_after_errors(tmp_path: Path) -> None:
    files = {**_controller(), "/proc/meminfo": "MemTotal: 100 kB\nHardwareCorrupted:     8 kB\n"}
    result = _row(tmp_path, files)
    assert (result.outcome, result.severity) == ("finding", "warning")
    assert "8 KiB" in result.findings[0].message


def test_without_a_driver_nothing_is_known_on_bare_metal(tmp_path: Path) -> None:
    without = {**BARE_METAL, MC: Directory(), "/sys/class/dmi/id/sys_vendor": "Dell Inc."}
    result = _row(tmp_path, without)
    assert (result.outcome, "EDAC driver" in result.unknowns[0].remedy) == ("unknown", True)
    assert _row(tmp_path, BARE_METAL).outcome == "unknown"
    assert (
        _row(tmp_path, {f"{MC}/mc0/ce_count": Gap("denied"), f"{MC}/mc0/ue_count": "0"}).outcome == "unknown"
    )


def test_a_virtual_machine_does_not_see_its_dimms(tmp_path: Path) -> None:
    assert _row(tmp_path, GUEST, complete=True).outcome == "not-applicable"


def test_edac_util_that_somebody_pasted(tmp_path: Path) -> None:
    text = "mc0: 0 Uncorrected Errors with no DIMM info\nmc0: csrow0: DIMM_A1: 4 Corrected Errors\n"
    documents = {"edac.txt": text}
    result = diagnose_one(host(tmp_path, {}, documents=documents), "memory.ecc-errors")
    assert "4 corrected memory errors at DIMM_A1" in result.findings[0].message
