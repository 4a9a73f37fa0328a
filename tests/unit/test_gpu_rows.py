"""Every row about GPUs and NVLinks: ok, finding, not applicable, unknown."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwtune.changes import GpuSetting, ModuleOption, UnitState
from hwtune.diagnosis.table import table
from tests.support import Gap, host
from tests.support.gpu import GEFORCE, H100, NOT_SUPPORTED, inactive, machine, nvml, pci_gpu
from tests.support.rows import diagnose, diagnose_one

if TYPE_CHECKING:
    from hwtune.diagnosis.engine import RowResult

ROWS = sorted(row.id for row in table() if row.subsystem in ("gpu", "nvlink"))
# A machine that keeps no CPU apart.
_ALL_ALIKE = {
    "/proc/cmdline": "root=/dev/sda1\n",
    "/sys/devices/system/cpu/online": "0-7\n",
    "/sys/devices/system/cpu/isolated": "\n",
}
# What needs more than a GPU to be asked.
_ELSEWHERE = {"gpu.nic-affinity", "gpu.cpu-affinity"}


def subjects(result: RowResult) -> list[tuple[str, str]]:
    return [(finding.subject, finding.severity) for finding in result.findings]


def test_the_rows_that_others_rely_on_are_there() -> None:
    named = (
        "driver xid lost ecc row-remap throttled persistence clocks power-limit busy nic-affinity "
        "cpu-affinity p2p"
    )
    assert {f"gpu.{name}" for name in named.split()} <= set(ROWS)
    named = "inactive errors disabled-by-env fabric-manager ignored-variable"
    assert {f"nvlink.{name}" for name in named.split()} <= set(ROWS)


def test_nothing_applies_where_there_is_no_gpu(tmp_path: Path) -> None:
    for id, result in diagnose(host(tmp_path, {}, complete=True), *ROWS).items():
        assert result.outcome == "not-applicable", id
        assert "no NVIDIA GPU" in result.reason, id


def test_everything_is_unknown_where_nothing_was_captured(tmp_path: Path) -> None:
    for id, result in diagnose(host(tmp_path, {}), *ROWS).items():
        assert result.outcome == "unknown", id


def test_gpus_of_virtual_machines_are_theirs_to_judge(tmp_path: Path) -> None:
    files = pci_gpu("0000:07:00.0", "vfio-pci")
    for id, result in diagnose(host(tmp_path, files, complete=True), *ROWS).items():
        assert result.outcome == "not-applicable", id


@pytest.mark.parametrize(("kind", "outcome"), [("0x030200", "unknown"), ("0x020000", "not-applicable")])
def test_a_function_whose_vendor_cannot_be_read_may_be_a_gpu(tmp_path: Path, kind: str, outcome: str) -> None:
    files: dict[str, Any] = {**pci_gpu("0000:07:00.0", None, kind=kind)}
    vendor = next(path for path in files if path.endswith("/vendor"))
    files[vendor] = Gap("unreadable", "Input/output error")
    assert diagnose_one(host(tmp_path, files, complete=True), "gpu.driver").outcome == outcome


def test_a_function_of_nvidia_whose_class_cannot_be_read_may_be_a_gpu(tmp_path: Path) -> None:
    files: dict[str, Any] = {**pci_gpu("0000:07:00.0", None)}
    files[next(path for path in files if path.endswith("/class"))] = Gap("unreadable", "Input/output error")
    assert diagnose_one(host(tmp_path, files, complete=True), "gpu.driver").outcome == "unknown"


def test_amd_gpus_are_not_nvidias(tmp_path: Path) -> None:
    files = pci_gpu("0000:07:00.0", "amdgpu", vendor="0x1002")
    assert diagnose_one(host(tmp_path, files, complete=True), "gpu.driver").outcome == "not-applicable"


def test_healthy_gpus_give_no_finding(tmp_path: Path) -> None:
    no_nic = matrix("\tGPU0\tGPU1\tCPU Affinity", "GPU0\t X \tNV18\t0-7", "GPU1\tNV18\t X \t0-7")
    results = diagnose(machine(tmp_path, H100, H100, files=_ALL_ALIKE, documents=no_nic), *ROWS)
    assert {id: r.outcome for id, r in results.items() if r.outcome not in ("ok", "not-applicable")} == {}
    expected = set(ROWS) - _ELSEWHERE - {"gpu.retired-pages"}
    assert {id for id, r in results.items() if r.outcome == "ok"} == expected


def test_a_card_without_the_features_gives_no_finding(tmp_path: Path) -> None:
    no_nic = matrix("\tGPU0\tCPU Affinity", "GPU0\t X \t0-7")
    results = diagnose(machine(tmp_path, GEFORCE, files=_ALL_ALIKE, documents=no_nic), *ROWS)
    assert [id for id, r in results.items() if r.outcome in ("finding", "unknown")] == []
    for id in ("gpu.ecc", "gpu.row-remap", "gpu.mig-pending", "nvlink.inactive", "nvlink.fabric-manager"):
        assert results[id].outcome == "not-applicable", id


def test_what_nvml_did_not_answer_is_unknown(tmp_path: Path) -> None:
    silent = {key: {"error": "UNKNOWN"} for key in H100}
    results = diagnose(machine(tmp_path, silent, log=None, complete=False), *ROWS)
    assert {id for id, r in results.items() if r.outcome != "unknown"} <= {
        "gpu.driver",  # it did answer
        "gpu.p2p",  # one GPU
        "gpu.groups",
        "gpu.nic-affinity",
        "nvlink.inactive",
    }


def test_gpus_that_are_alike_are_one_finding(tmp_path: Path) -> None:
    off = {**H100, "nvmlDeviceGetPersistenceMode": 0}
    result = diagnose_one(machine(tmp_path, off, H100, off), "gpu.persistence")
    assert subjects(result) == [("gpu:0,2", "warning")]
    assert [change.gpu for change in result.findings[0].changes] == ["0000:07:00.0", "0000:17:00.0"]


# -- the driver -----------------------------------------------------------------------------


def test_driver_missing_and_wrong(tmp_path: Path) -> None:
    files = pci_gpu("0000:07:00.0", None) | pci_gpu("0000:0f:00.0", "nouveau")
    result = diagnose_one(host(tmp_path, files, complete=True), "gpu.driver")
    assert subjects(result) == [("pci:0000:07:00.0", "error"), ("pci:0000:0f:00.0", "error")]
    assert "nouveau" in result.findings[1].message


def test_driver_of_a_gpu_that_was_not_captured_is_unknown(tmp_path: Path) -> None:
    files = {k: v for k, v in pci_gpu("0000:07:00.0").items() if not k.endswith("/driver")}
    assert diagnose_one(host(tmp_path, files), "gpu.driver").outcome == "unknown"


@pytest.mark.parametrize(
    ("error", "word"),
    [("LIB_RM_VERSION_MISMATCH", "versions"), ("LIBRARY_NOT_FOUND", "libnvidia-ml"), ("UNKNOWN", "UNKNOWN")],
)
def test_driver_that_does_not_answer(tmp_path: Path, error: str, word: str) -> None:
    libraries = {("nvml",): nvml(start={"error": error})}
    result = diagnose_one(
        host(tmp_path, pci_gpu("0000:07:00.0"), complete=True, libraries=libraries), "gpu.driver"
    )
    assert subjects(result) == [("pci:0000:07:00.0", "error")]
    assert word in result.findings[0].message


def test_driver_that_hangs(tmp_path: Path) -> None:
    stopped = {
        "why": "hung",
        "scope": "gpu 0",
        "call": "nvmlDeviceGetEccMode",
        "detail": "no answer within 30 s",
    }
    result = diagnose_one(machine(tmp_path, H100, stopped=stopped), "gpu.driver")
    assert subjects(result) == [("gpu:0", "error")]
    assert "nvmlDeviceGetEccMode" in result.findings[0].message


def test_driver_that_may_not_be_asked_is_unknown(tmp_path: Path) -> None:
    files = {
        **pci_gpu("0000:07:00.0"),
        "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  x\n",
    }
    libraries = {("nvml",): nvml(start={"error": "NO_PERMISSION"})}
    result = diagnose_one(host(tmp_path, files, complete=True, libraries=libraries), "gpu.driver")
    assert (result.outcome, result.unknowns[0].remedy) == ("unknown", "run as root")


def test_driver_bound_and_not_started(tmp_path: Path) -> None:
    libraries = {("nvml",): _gap()}
    result = diagnose_one(
        host(tmp_path, pci_gpu("0000:07:00.0"), complete=True, libraries=libraries), "gpu.driver"
    )
    assert subjects(result) == [("pci:0000:07:00.0", "error")]


def _gap() -> Any:
    from tests.support import Gap

    return Gap("absent", "no NVIDIA driver is loaded")


def test_driver_complaints_in_the_log(tmp_path: Path) -> None:
    log = (
        "NVRM: API mismatch: the client has the version 535.171.04, but\n"
        "NVRM: this kernel module has the version 535.161.07.  Please\n"
        "NVRM: GPU 0000:07:00.0: RmInitAdapter failed! (0x22:0x40:894)\n"
    )
    result = diagnose_one(machine(tmp_path, H100, log=log), "gpu.driver")
    assert subjects(result) == [("kernel", "error"), ("gpu:0", "error")]


# -- lost -----------------------------------------------------------------------------------

LOST = (
    "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\n"
    "NVRM: fallen off the bus and is not responding to commands.\n"
    "NVRM: The NVIDIA probe routine failed for 1 device(s).\n"
)


def test_lost_by_the_log_alone(tmp_path: Path) -> None:
    result = diagnose_one(host(tmp_path, {}, documents={"dmesg.txt": f"[    1.000000] {LOST}"}), "gpu.lost")
    assert subjects(result) == [("pci:0000:b3:00.0", "error")]
    sources = [evidence.source for evidence in result.findings[0].evidence]
    assert sources == ["documents/dmesg.txt", "documents/dmesg.txt"]


def test_lost_by_xid_79_and_by_nvml_is_one_finding(tmp_path: Path) -> None:
    gone = {"nvmlDeviceGetHandleByIndex": {"error": "GPU_IS_LOST"}}
    log = "NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
    assert subjects(diagnose_one(machine(tmp_path, H100, gone, log=log), "gpu.lost")) == [("gpu:1", "error")]


def test_lost_by_nvml_alone(tmp_path: Path) -> None:
    gone = {**H100, "nvmlDeviceGetPowerUsage": {"error": "GPU_IS_LOST"}}
    assert subjects(diagnose_one(machine(tmp_path, gone), "gpu.lost")) == [("gpu:0", "error")]


def test_missing_from_nvml_on_a_whole_machine_but_not_in_a_container(tmp_path: Path) -> None:
    files = pci_gpu("0000:07:00.0") | pci_gpu("0000:0f:00.0")
    result = diagnose_one(machine(tmp_path / "a", H100, files=files), "gpu.lost")
    assert subjects(result) == [("pci:0000:0f:00.0", "error")]
    files["/.dockerenv"] = ""
    result = diagnose_one(machine(tmp_path / "b", H100, files=files), "gpu.lost")
    assert result.outcome == "ok"


# -- Xid ------------------------------------------------------------------------------------


def xid_row(tmp_path: Path, log: str) -> RowResult:
    return diagnose_one(machine(tmp_path, H100, H100, log=log), "gpu.xid")


def test_xid_of_a_program_blames_no_hardware(tmp_path: Path) -> None:
    log = (
        "NVRM: Xid (PCI:0000:07:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception\n" * 3
        + "NVRM: Xid (PCI:0000:07:00): 109, pid=4242, name=pt_main_thread, CTX SWITCH TIMEOUT\n"
    )
    result = xid_row(tmp_path, log)
    assert subjects(result) == [("gpu:0", "warning")]
    finding = result.findings[0]
    assert "Xid 13" in finding.message and "3 times" in finding.message
    assert finding.message.index("Xid 13") < finding.message.index("Xid 109")
    assert "program" in finding.advice and "eplace" not in finding.advice


def test_xid_45_is_a_consequence_and_its_cause_is_named(tmp_path: Path) -> None:
    log = "NVRM: Xid (PCI:0000:0f:00): 45, pid=1, name=p, Ch 00000001 caused by previous Xid 149\n"
    result = xid_row(tmp_path, log)
    assert subjects(result) == [("gpu:1", "error")]
    assert result.findings[0].message.startswith("Xid 149")
    assert "Xid 45 (once) only followed" in result.findings[0].message


def test_xid_45_alone_is_a_program_that_ended(tmp_path: Path) -> None:
    result = xid_row(tmp_path, "NVRM: Xid (PCI:0000:07:00): 45, pid=1, name=p, Ch 00000001\n")
    assert (result.outcome, "clean-up" in result.reason) == ("ok", True)


def test_xid_of_one_gpu_is_one_finding_with_the_gravest_severity(tmp_path: Path) -> None:
    log = (
        "NVRM: Xid (PCI:0000:07:00): 63, pid=1, name=p, Row Remapper: New row marked\n"
        "NVRM: Xid (PCI:0000:07:00): 48, pid=1, name=p, An uncorrectable double bit error\n"
        "NVRM: Xid (PCI:0000:07:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset)\n"
        "NVRM: Xid (PCI:0000:0f:00): 31, pid=1, name=p, MMU Fault\n"
    )
    result = xid_row(tmp_path, log)
    assert subjects(result) == [("gpu:0", "error"), ("gpu:1", "warning")]
    assert "reset" in result.findings[0].advice


def test_xid_that_no_catalog_describes_is_told(tmp_path: Path) -> None:
    assert subjects(xid_row(tmp_path, "NVRM: Xid (PCI:0000:07:00): 999, what is this\n")) == [
        ("gpu:0", "warning")
    ]


def test_xid_is_unknown_without_a_log(tmp_path: Path) -> None:
    result = diagnose_one(machine(tmp_path, H100, log=None, complete=False), "gpu.xid")
    assert result.outcome == "unknown"


# -- memory ---------------------------------------------------------------------------------


def test_ecc_now_and_ever(tmp_path: Path) -> None:
    now = {**H100, "nvmlDeviceGetTotalEccErrors(volatile, uncorrectable)": 2}
    ever = {
        **H100,
        "nvmlDeviceGetTotalEccErrors(aggregate, uncorrectable)": 1,
        "nvmlDeviceGetMemoryErrorCounter(aggregate, dram, uncorrectable)": 1,
    }
    corrected = {**H100, "nvmlDeviceGetTotalEccErrors(aggregate, correctable)": 1000}
    worn = {**H100, "nvmlDeviceGetSramEccErrorStatus": {"bThresholdExceeded": 1}}
    result = diagnose_one(machine(tmp_path, now, ever, corrected, worn), "gpu.ecc")
    assert subjects(result) == [("gpu:0", "error"), ("gpu:1", "info"), ("gpu:3", "error")]


def test_ecc_switched_off_is_not_judged(tmp_path: Path) -> None:
    assert (
        diagnose_one(machine(tmp_path, {**H100, "nvmlDeviceGetEccMode": [0, 0]}), "gpu.ecc").outcome
        == "not-applicable"
    )


def test_ecc_change_that_waits(tmp_path: Path) -> None:
    result = diagnose_one(machine(tmp_path, {**H100, "nvmlDeviceGetEccMode": [1, 0]}), "gpu.ecc-pending")
    assert subjects(result) == [("gpu:0", "info")]


def test_row_remap_pending_is_no_return_and_failure_is(tmp_path: Path) -> None:
    pending = {**H100, "nvmlDeviceGetRemappedRows": [0, 4, 1, 0]}
    failed = {**H100, "nvmlDeviceGetRemappedRows": [0, 8, 0, 1]}
    done = {**H100, "nvmlDeviceGetRemappedRows": [1, 2, 0, 0]}
    result = diagnose_one(machine(tmp_path, pending, failed, done), "gpu.row-remap")
    assert subjects(result) == [("gpu:0", "warning"), ("gpu:1", "error")]
    assert "no reason to return" in result.findings[0].message
    assert "return" in result.findings[1].advice
    assert diagnose_one(machine(tmp_path / "ok", done), "gpu.row-remap").reason.startswith("3 rows")


def test_retired_pages(tmp_path: Path) -> None:
    def pages(single: int, double: int, pending: int) -> dict[str, Any]:
        told = {"field(RETIRED_SBE)": single, "field(RETIRED_DBE)": double, "field(RETIRED_PENDING)": pending}
        return {**H100, **told}

    gpus = (pages(0, 0, 0), pages(6, 0, 1), pages(60, 5, 0), pages(3, 0, 0))
    result = diagnose_one(machine(tmp_path, *gpus), "gpu.retired-pages")
    assert subjects(result) == [("gpu:1", "warning"), ("gpu:2", "error")]


# -- speed ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reasons", "found"),
    [
        (0x001, []),  # idle
        (0x004, []),  # at the power limit, as under full load
        (0x008, []),  # a change of the P-state
        (0x048, [("gpu:0", "warning")]),
        (0x088, [("gpu:0", "warning")]),
        (0x020, [("gpu:0", "warning")]),
        (0x800, []),  # a reason that has no name yet
    ],
)
def test_throttled_now(tmp_path: Path, reasons: int, found: list[tuple[str, str]]) -> None:
    gpu = {**H100, "nvmlDeviceGetCurrentClocksEventReasons": reasons}
    assert subjects(diagnose_one(machine(tmp_path, gpu), "gpu.throttled")) == found


def test_throttled_before(tmp_path: Path) -> None:
    hot = {
        **H100,
        "nvmlDeviceGetViolationStatus(thermal)": {"referenceTime": 1, "violationTime": 9_000_000_000},
    }
    files = {"/proc/uptime": "86400.00 1.00\n"}
    # 9 s of a day is regulation; of a quarter of an hour it is not.
    assert diagnose_one(machine(tmp_path / "a", hot, files=files), "gpu.throttled").outcome == "ok"
    files = {"/proc/uptime": "900.00 1.00\n"}
    assert subjects(diagnose_one(machine(tmp_path / "b", hot, files=files), "gpu.throttled")) == [
        ("gpu:0", "info")
    ]


def test_persistence(tmp_path: Path) -> None:
    off = {**H100, "nvmlDeviceGetPersistenceMode": 0}
    result = diagnose_one(machine(tmp_path / "a", off), "gpu.persistence")
    assert subjects(result) == [("gpu:0", "warning")]
    assert result.findings[0].changes == [GpuSetting("0000:07:00.0", "persistence", "1")]
    consumer = {**GEFORCE, "nvmlDeviceGetPersistenceMode": 0}
    assert subjects(diagnose_one(machine(tmp_path / "b", consumer), "gpu.persistence")) == [("gpu:0", "info")]
    virtual = {**off, "nvmlDeviceGetVirtualizationMode": 2}
    assert diagnose_one(machine(tmp_path / "c", virtual), "gpu.persistence").outcome == "not-applicable"
    inside = machine(tmp_path / "d", off, files={"/.dockerenv": ""})
    assert diagnose_one(inside, "gpu.persistence").outcome == "unknown"


def test_persistence_by_the_daemon_where_it_is_installed(tmp_path: Path) -> None:
    files = {
        "/lib/systemd/system/nvidia-persistenced.service": "[Service]\n",
        "/run/systemd/units/invocation:sshd.service": "",
    }
    off = {**H100, "nvmlDeviceGetPersistenceMode": 0}
    result = diagnose_one(machine(tmp_path, off, files=files), "gpu.persistence")
    assert result.findings[0].changes == [UnitState("nvidia-persistenced.service", "started")]


def test_clocks(tmp_path: Path) -> None:
    low = {**H100, "nvmlDeviceGetApplicationsClock(graphics)": 1200}
    assert subjects(diagnose_one(machine(tmp_path / "a", low), "gpu.clocks")) == [("gpu:0", "warning")]
    result = diagnose_one(machine(tmp_path / "b", H100), "gpu.clocks", profile="gpu-inference")
    assert subjects(result) == [("gpu:0", "info")]
    assert result.findings[0].changes == [GpuSetting("0000:07:00.0", "locked-clocks", "1980,1980")]
    untold = {**low, "nvmlDeviceGetDefaultApplicationsClock(graphics)": NOT_SUPPORTED}
    assert diagnose_one(machine(tmp_path / "e", untold), "gpu.clocks").outcome == "ok"
    high = {**H100, "nvmlDeviceGetClockInfo(sm)": 1980}
    assert diagnose_one(machine(tmp_path / "c", high), "gpu.clocks", profile="gpu-inference").outcome == "ok"
    busy = {**H100, "nvmlDeviceGetCurrentClocksEventReasons": 4, "nvmlDeviceGetClockInfo(sm)": 1700}
    assert (
        diagnose_one(machine(tmp_path / "d", busy), "gpu.clocks", profile="gpu-inference").outcome
        == "unknown"
    )


def test_power_limit(tmp_path: Path) -> None:
    low = {**H100, "nvmlDeviceGetEnforcedPowerLimit": 500_000}
    high = {**H100, "nvmlDeviceGetEnforcedPowerLimit": 750_000}
    unset = {**H100, "nvmlDeviceGetEnforcedPowerLimit": NOT_SUPPORTED}
    result = diagnose_one(machine(tmp_path, low, high, unset), "gpu.power-limit")
    assert subjects(result) == [("gpu:0", "warning")]
    assert result.findings[0].changes == [GpuSetting("0000:07:00.0", "power-limit", "700000")]


def test_compute_mode(tmp_path: Path) -> None:
    result = diagnose_one(
        machine(tmp_path, {**H100, "nvmlDeviceGetComputeMode": 2}, {**H100, "nvmlDeviceGetComputeMode": 3}),
        "gpu.compute-mode",
    )
    assert subjects(result) == [("gpu:0", "error")]


def test_mig_change_that_waits(tmp_path: Path) -> None:
    result = diagnose_one(machine(tmp_path, {**H100, "nvmlDeviceGetMigMode": [0, 1]}), "gpu.mig-pending")
    assert subjects(result) == [("gpu:0", "info")]


def test_recovery_action(tmp_path: Path) -> None:
    result = diagnose_one(
        machine(tmp_path, {**H100, "field(GET_GPU_RECOVERY_ACTION)": 2}), "gpu.recovery-action"
    )
    assert subjects(result) == [("gpu:0", "error")]
    assert result.findings[0].advice == "Reboot the machine"


def test_busy(tmp_path: Path) -> None:
    def with_processes(*pids: int) -> dict[str, Any]:
        names = {f"nvmlSystemGetProcessName({pid})": f"serve{pid}" for pid in pids}
        return {**H100, "nvmlDeviceGetComputeRunningProcesses_v3": [[pid, 1] for pid in pids], **names}

    one, two = with_processes(7), with_processes(7, 8)
    result = diagnose_one(machine(tmp_path / "a", one, two), "gpu.busy")
    assert subjects(result) == [("gpu:1", "info")]
    assert "serve7 (7)" in diagnose_one(machine(tmp_path / "b", one), "gpu.busy").reason
    # The profile of a box that serves many models wants them to share.
    assert diagnose_one(machine(tmp_path / "c", two), "gpu.busy", profile="gpu-inference").outcome == "ok"
    divided = {**two, "nvmlDeviceGetMigMode": [1, 1]}
    assert diagnose_one(machine(tmp_path / "d", divided), "gpu.busy").outcome == "ok"


_BUSY = {"nvmlDeviceGetCurrentClocksEventReasons": 0}
_HALF = {"nvmlDeviceGetCurrPcieLinkWidth": 8}


@pytest.mark.parametrize(
    ("row", "changes", "found"),
    [
        ("speed", {"nvmlDeviceGetCurrPcieLinkGeneration": 1}, []),  # idle
        ("speed", {"nvmlDeviceGetCurrPcieLinkGeneration": 3, **_BUSY}, ["error"]),
        ("width", _HALF, ["info"]),  # idle
        ("width", {**_HALF, "nvmlDeviceGetCurrentClocksEventReasons": NOT_SUPPORTED}, ["warning"]),
        ("width", {**_HALF, **_BUSY}, ["error"]),
        ("width", {**_HALF, **_BUSY, "nvmlDeviceGetVirtualizationMode": 1}, ["info"]),  # in a guest
        (  # the slot's
            "speed",
            {"nvmlDeviceGetMaxPcieLinkGeneration": 3, "nvmlDeviceGetCurrPcieLinkGeneration": 3},
            [],
        ),
        ("width", {"nvmlDeviceGetCurrPcieLinkWidth": 63}, []),  # not a width
    ],
)
def test_pcie_link_where_no_tree_tells(
    tmp_path: Path, row: str, changes: dict[str, Any], found: list[str]
) -> None:
    captured = machine(tmp_path, {**H100, **changes}, complete=False)
    result = diagnose_one(captured, f"pcie.link-{row}")
    assert [finding.severity for finding in result.findings] == found
    other = "width" if row == "speed" else "speed"
    assert diagnose_one(captured, f"pcie.link-{other}").findings == []


# -- placement ------------------------------------------------------------------------------


def matrix(*rows: str) -> dict[str, str]:
    return {"topo.txt": "\n".join(rows) + "\n"}


def test_a_matrix_of_peers_that_gives_no_reason(tmp_path: Path) -> None:
    text = matrix(
        " \tGPU0\tGPU1\t", " GPU0\tX\tNS\t", " GPU1\tNS\tX\t", "", "Legend:", "  NS   = Not supported"
    )
    result = diagnose_one(host(tmp_path, {}, documents=text), "gpu.p2p")
    assert (result.outcome, result.unknowns[0].reason) == (
        "unknown",
        "documents/topo.txt says NS, and not why",
    )


def test_nic_affinity_of_a_matrix(tmp_path: Path) -> None:
    text = matrix(
        "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity",
        "GPU0\t X \tSYS\tSYS\tSYS\tPIX\tSYS\t0-7\t0",
        "GPU1\tSYS\t X \tSYS\tSYS\tNODE\tSYS\t0-7\t0",
        "GPU2\tSYS\tSYS\t X \tSYS\tSYS\tPXB\t8-15\t1",
        "GPU3\tSYS\tSYS\tSYS\t X \tSYS\tPIX\t8-15\t1",
    )
    captured = host(tmp_path, {}, documents=text)
    result = diagnose_one(captured, "gpu.nic-affinity")
    assert subjects(result) == [("gpu:1", "info")]
    assert "NIC0 (NODE)" in result.findings[0].message
    assert subjects(diagnose_one(captured, "gpu.nic-affinity", profile="gpu-training")) == [
        ("gpu:1", "warning")
    ]


def test_groups_of_gpus_without_nvlink(tmp_path: Path) -> None:
    """SYS stands for root ports of one node as well as for two: the nodes tell them apart."""
    text = matrix(
        "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity",
        "GPU0\t X \tPIX\tSYS\tSYS\t0-7\t0",
        "GPU1\tPIX\t X \tSYS\tSYS\t0-7\t0",
        "GPU2\tSYS\tSYS\t X \tSYS\t8-15\t1",
        "GPU3\tSYS\tSYS\tSYS\t X \t8-15\t1",
    )
    result = diagnose_one(host(tmp_path, {}, documents=text), "gpu.groups")
    assert result.outcome == "ok"
    assert result.reason == (
        "GPU0-1 of node 0, GPU2-3 of node 1: a job over GPUs of several nodes crosses the link between the "
        "nodes; nearest are GPU0-1 (PIX)"
    )
    assert result.evidence[0].value == "pairs: 1 PIX, 5 SYS"


def test_groups_of_gpus_with_nvlink(tmp_path: Path) -> None:
    text = matrix("\tGPU0\tGPU1\tCPU Affinity", "GPU0\t X \tNV18\t0-7", "GPU1\tNV18\t X \t8-15")
    result = diagnose_one(host(tmp_path / "a", {}, documents=text), "gpu.groups")
    assert result.reason == "NVLink joins all pairs"
    cut = matrix("\tGPU0\tGPU1\tGPU2\tCPU Affinity", "GPU0\t X \tNV18\tNV18\t0-7")
    result = diagnose_one(host(tmp_path / "b", {}, documents=cut), "gpu.groups")
    assert result.reason == "NVLink joins the 2 of 3 pairs that are told"


def test_groups_by_the_pci_tree_leave_nvlink_open(tmp_path: Path) -> None:
    files = {**pci_gpu("0000:07:00.0"), **pci_gpu("0000:87:00.0")}
    result = diagnose_one(host(tmp_path / "a", files), "gpu.groups")
    assert (result.outcome, "NVLink joins" in result.reason) == ("ok", False)
    lone = matrix("\tGPU0\tCPU Affinity", "GPU0\t X \t0-7")
    assert diagnose_one(host(tmp_path / "b", {}, documents=lone), "gpu.groups").outcome == "not-applicable"


def test_nic_affinity_names_the_nearest(tmp_path: Path) -> None:
    text = matrix(
        "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity",
        "GPU0\t X \tNV6\tPXB\tPIX\t0-7\t0",
        "GPU1\tNV6\t X \tPXB\tPXB\t0-7\t0",
    )
    result = diagnose_one(host(tmp_path, {}, documents=text), "gpu.nic-affinity")
    assert [item.value for item in result.evidence] == ["gpu:0 - NIC1 (PIX)", "gpu:1 - NIC0, NIC1 (PXB)"]


def test_nic_affinity_where_one_gpu_is_nearest(tmp_path: Path) -> None:
    text = matrix(
        "\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity",
        "GPU0\t X \tSYS\tSYS\tSYS\t0-7\t0",
        "GPU1\tSYS\t X \tSYS\tSYS\t0-7\t0",
        "GPU2\tSYS\tSYS\t X \tPHB\t8-15\t1",
    )
    result = diagnose_one(host(tmp_path, {}, documents=text), "gpu.nic-affinity")
    assert subjects(result) == [("gpu:2", "info")]
    assert "node 1" in result.findings[0].message


def test_nic_affinity_of_an_old_matrix(tmp_path: Path) -> None:
    text = matrix(
        "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity",
        "GPU0\t X \tSOC\tSOC\t0-7",
        "GPU1\tSOC\t X \tPHB\t8-15",
        "mlx5_0\tSOC\tPHB\t X \t",
    )
    result = diagnose_one(host(tmp_path, {}, documents=text), "gpu.nic-affinity")
    assert subjects(result) == [("gpu:1", "info")]


def test_nic_affinity_where_two_gpus_are_nearest(tmp_path: Path) -> None:
    text = matrix(
        "\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity",
        "GPU0\t X \tSYS\tSYS\tPHB\t0-7",
        "GPU1\tSYS\t X \tSYS\tPHB\t0-7",
        "GPU2\tSYS\tSYS\t X \tSYS\t8-15",
    )
    result = diagnose_one(host(tmp_path, {}, documents=text), "gpu.nic-affinity")
    assert subjects(result) == [("gpu:0", "info"), ("gpu:1", "info")]
    assert not any("Only" in finding.message for finding in result.findings)


def test_nic_affinity_of_a_matrix_that_was_cut_off(tmp_path: Path) -> None:
    text = matrix(
        "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity",
        "GPU0\t X \tNV12\tPXB\tSYS\t0-7\t0",
        "GPU1\tNV12\t X \tSY",
    )
    result = diagnose_one(host(tmp_path, {}, documents=text), "gpu.nic-affinity")
    assert (result.outcome, [u.subject for u in result.unknowns]) == ("unknown", ["gpu:1"])


def test_nic_affinity_of_a_matrix_without_nics(tmp_path: Path) -> None:
    text = matrix("\tGPU0\tGPU1\tCPU Affinity", "GPU0\t X \tPHB\t0-7", "GPU1\tPHB\t X \t0-7")
    assert diagnose_one(host(tmp_path, {}, documents=text), "gpu.nic-affinity").outcome == "not-applicable"


def test_cpu_affinity(tmp_path: Path) -> None:
    def box(folder: str, isolated: str) -> Any:
        files = {
            "/sys/devices/system/cpu/isolated": isolated,
            "/sys/devices/system/cpu/online": "0-15\n",
            "/sys/devices/system/cpu/possible": "0-15\n",
            "/proc/cmdline": "quiet\n",
        }
        return machine(tmp_path / folder, H100, files=files)

    assert diagnose_one(box("a", "4-5\n"), "gpu.cpu-affinity").outcome == "ok"
    result = diagnose_one(box("b", "12-13\n"), "gpu.cpu-affinity")
    assert subjects(result) == [("gpu:0", "warning")]
    assert "0-7" in result.findings[0].advice
    assert diagnose_one(box("c", "\n"), "gpu.cpu-affinity").outcome == "not-applicable"
    unknown = machine(tmp_path / "d", H100, complete=False)
    assert diagnose_one(unknown, "gpu.cpu-affinity").outcome == "unknown"


@pytest.mark.parametrize(
    ("state", "profile", "severity"),
    [
        (1, "low-latency", "info"),
        (1, "gpu-training", "warning"),
        (2, "gpu-training", "info"),  # a limit of the product
        (3, "gpu-training", "info"),
        (4, "low-latency", "warning"),
    ],
)
def test_p2p(tmp_path: Path, state: int, profile: str, severity: str) -> None:
    values = () if profile == "gpu-training" else ("pcie.p2p=false",)
    result = diagnose_one(machine(tmp_path, GEFORCE, GEFORCE, p2p=state), "gpu.p2p", profile, values)
    assert subjects(result) == [("gpu:0", severity)]


def test_p2p_does_not_apply_or_is_not_known(tmp_path: Path) -> None:
    assert diagnose_one(machine(tmp_path / "a", H100), "gpu.p2p").outcome == "not-applicable"
    divided = {**H100, "nvmlDeviceGetMigMode": [1, 1]}
    assert diagnose_one(machine(tmp_path / "b", divided, divided), "gpu.p2p").outcome == "not-applicable"
    assert diagnose_one(machine(tmp_path / "c", H100, H100, p2p=None), "gpu.p2p").outcome == "unknown"


# -- NVLink ---------------------------------------------------------------------------------


def test_inactive_links_of_a_wired_product(tmp_path: Path) -> None:
    result = diagnose_one(machine(tmp_path, H100, {**H100, **inactive(3, 5)}), "nvlink.inactive")
    assert subjects(result) == [("gpu:1", "error")]
    assert "2 of 18 NVLinks are inactive: 3, 5" in result.findings[0].message
    assert "425.0 of 478.1 GB/s" in result.findings[0].message


def test_all_links_of_a_wired_product_inactive(tmp_path: Path) -> None:
    down = {**H100, **inactive(*range(18))}
    assert subjects(diagnose_one(machine(tmp_path, down, down), "nvlink.inactive")) == [
        ("gpu:0", "error"),
        ("gpu:1", "error"),
    ]


def test_one_gpu_has_nobody_to_link_with(tmp_path: Path) -> None:
    down = {**H100, **inactive(*range(18))}
    assert diagnose_one(machine(tmp_path, down), "nvlink.inactive").outcome == "not-applicable"


def test_links_that_are_inactive_by_design(tmp_path: Path) -> None:
    # Azure's NC H100 v5: bridges use 12 of the 18 links of each card.
    card = {**H100, "nvmlDeviceGetName": "NVIDIA H100 NVL", **inactive(4, 5, 10, 11, 16, 17)}
    result = diagnose_one(machine(tmp_path, card, card), "nvlink.inactive")
    assert (result.outcome, "by design" in result.reason) == ("ok", True)


def test_cards_without_a_bridge(tmp_path: Path) -> None:
    card = {**H100, "nvmlDeviceGetName": "NVIDIA A100 80GB PCIe", **inactive(*range(18))}
    assert diagnose_one(machine(tmp_path / "a", card, card), "nvlink.inactive").outcome == "not-applicable"
    # A product that is sold with its bridges, without any link up.
    card["nvmlDeviceGetName"] = "NVIDIA H100 NVL"
    result = diagnose_one(machine(tmp_path / "b", card, card), "nvlink.inactive")
    assert subjects(result) == [("gpu:0", "warning"), ("gpu:1", "warning")]


def test_all_links_down_of_an_unknown_product(tmp_path: Path) -> None:
    text = {"links.txt": "NVML: Unable to retrieve NVLink information as all links are inActive\n"}
    result = diagnose_one(host(tmp_path, {}, documents=text), "nvlink.inactive")
    assert (result.outcome, "product's name" in result.reason) == ("unknown", True)


def test_mig_has_no_nvlink(tmp_path: Path) -> None:
    divided = {**H100, "nvmlDeviceGetMigMode": [1, 1], **inactive(*range(18))}
    for id in ("nvlink.inactive", "nvlink.errors"):
        assert diagnose_one(machine(tmp_path / id, divided, divided), id).outcome == "not-applicable"


def test_matrix_without_nvlink_depends_on_the_product(tmp_path: Path) -> None:
    text = matrix("\tGPU0\tGPU1\tCPU Affinity", "GPU0\t X \tSYS\t0-7", "GPU1\tSYS\t X \t8-15")
    result = diagnose_one(host(tmp_path / "a", {}, documents=text), "nvlink.inactive")
    assert (result.outcome, "0 of 1 GPU pairs" in result.reason) == ("unknown", True)
    named = {**text, "list.txt": _list("NVIDIA H100 80GB HBM3")}
    result = diagnose_one(host(tmp_path / "b", {}, documents=named), "nvlink.inactive")
    assert subjects(result) == [("gpu:0", "error"), ("gpu:1", "error")]
    named = {**text, "list.txt": _list("NVIDIA L40S")}
    assert (
        diagnose_one(host(tmp_path / "c", {}, documents=named), "nvlink.inactive").outcome == "not-applicable"
    )


def _list(name: str) -> str:
    return "".join(f"GPU {n}: {name} (UUID: GPU-0000000{n}-0000-4000-8000-000000000000)\n" for n in range(2))


def test_nvlink_errors(tmp_path: Path) -> None:
    replayed = {**H100, "nvmlDeviceGetNvLinkErrorCounter(2, replay)": 9}
    recovered = {**H100, "nvmlDeviceGetNvLinkErrorCounter(7, recovery)": 1}
    result = diagnose_one(machine(tmp_path / "a", replayed, recovered), "nvlink.errors")
    assert subjects(result) == [("gpu:1", "warning")]
    assert "link 7: recovery 1" in result.findings[0].evidence[0].value
    untold = {
        **H100,
        **{call: {"error": "UNKNOWN"} for call in H100 if call.startswith("nvmlDeviceGetNvLinkErrorCounter")},
    }
    assert diagnose_one(machine(tmp_path / "b", untold), "nvlink.errors").outcome == "unknown"


def test_errors_of_a_switch(tmp_path: Path) -> None:
    log = (
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO\n"
        "nvidia-nvswitch1: SXid (PCI:0000:c2:00.0): 24007, Fatal, Link 44 sourcetrack timeout error\n"
    )
    result = diagnose_one(machine(tmp_path, H100, log=log), "nvlink.errors")
    assert subjects(result) == [("pci:0000:c1:00.0", "warning"), ("pci:0000:c2:00.0", "error")]


def test_disabled_by_variables(tmp_path: Path) -> None:
    files = {"/etc/nccl.conf": "NCCL_P2P_DISABLE=1\nNCCL_DEBUG=INFO\n"}
    result = diagnose_one(machine(tmp_path / "a", H100, H100, files=files), "nvlink.disabled-by-env")
    assert subjects(result) == [("process:nccl", "warning")]
    assert result.findings[0].evidence[0].source == "/etc/nccl.conf"
    files = {"/etc/nccl.conf": "NCCL_P2P_LEVEL=NVL\n"}
    assert diagnose_one(machine(tmp_path / "b", H100, files=files), "nvlink.disabled-by-env").outcome == "ok"


def test_a_pasted_environment_is_not_the_place_to_change(tmp_path: Path) -> None:
    text = {"environ.txt": "NCCL_P2P_DISABLE=1\nNCCL_NVLINK_DISABLE=0\n"}
    results = diagnose(
        host(tmp_path, {}, documents=text), "nvlink.disabled-by-env", "nvlink.ignored-variable"
    )
    advice = [result.findings[0].advice for result in results.values()]
    assert advice[0] == "Unset NCCL_P2P_DISABLE in the environment of the programs"
    assert advice[1].startswith("Unset NCCL_NVLINK_DISABLE in the environment of the programs; ")


def test_disabled_in_the_file_that_a_variable_names(tmp_path: Path) -> None:
    files = {"/etc/environment": "NCCL_CONF_FILE=/opt/nccl.conf\n", "/opt/nccl.conf": "NCCL_P2P_LEVEL=LOC\n"}
    result = diagnose_one(machine(tmp_path, H100, files=files), "nvlink.disabled-by-env")
    assert [f.evidence[0].source for f in result.findings] == ["/opt/nccl.conf"]


def test_disabled_in_the_driver(tmp_path: Path) -> None:
    files = {
        "/proc/driver/nvidia/params": "NvLinkDisable: 1\nEnableMSI: 1\n",
        "/etc/modprobe.d/nvidia.conf": "# none\noptions nvidia NVreg_NvLinkDisable=1 NVreg_EnableMSI=1\n",
    }
    result = diagnose_one(machine(tmp_path, H100, files=files), "nvlink.disabled-by-env")
    assert subjects(result) == [("gpu:0", "warning")]
    assert result.findings[0].changes == [ModuleOption("nvidia", "NVreg_NvLinkDisable", "0")]
    assert "/etc/modprobe.d/nvidia.conf" in result.findings[0].advice


def test_ignored_variable(tmp_path: Path) -> None:
    files = {"/etc/environment": 'NCCL_NVLINK_DISABLE="0"\n'}
    result = diagnose_one(machine(tmp_path, H100, files=files), "nvlink.ignored-variable")
    assert subjects(result) == [("process:nccl", "info")]


@pytest.mark.parametrize(
    ("info", "severity"),
    [
        ({"state": 1, "status": 0, "healthMask": 0}, "error"),
        ({"state": 2, "status": 0, "healthMask": 0}, "error"),
        ({"state": 3, "status": 19, "healthMask": 0}, "error"),
        ({"state": 3, "status": 0, "healthMask": 0x10, "healthSummary": 2}, "error"),
        ({"state": 3, "status": 0, "healthMask": 0x1, "healthSummary": 3}, "warning"),
        ({"state": 3, "status": 0, "healthMask": 0x2AA, "healthSummary": 1}, None),
        ({"state": 0, "status": 0, "healthMask": 0}, None),
    ],
)
def test_fabric(tmp_path: Path, info: dict[str, int], severity: str | None) -> None:
    result = diagnose_one(
        machine(tmp_path, {**H100, "nvmlDeviceGetGpuFabricInfo": info}), "nvlink.fabric-manager"
    )
    assert subjects(result) == ([("gpu:0", severity)] if severity else [])


def test_fabric_manager_of_a_board_with_switches(tmp_path: Path) -> None:
    switches = pci_gpu("0000:c1:00.0", None, kind="0x068000") | pci_gpu("0000:c2:00.0", None, kind="0x068000")
    unit = {
        "/lib/systemd/system/nvidia-fabricmanager.service": "[Service]\n",
        "/run/systemd/units/invocation:sshd.service": "",
    }
    a100 = {**H100, "nvmlDeviceGetGpuFabricInfo": NOT_SUPPORTED}
    stopped = machine(tmp_path / "a", a100, files=switches | unit)
    result = diagnose_one(stopped, "nvlink.fabric-manager")
    assert subjects(result) == [("service:nvidia-fabricmanager", "error")]
    assert result.findings[0].changes == [UnitState("nvidia-fabricmanager.service", "started")]
    unit["/run/systemd/units/invocation:nvidia-fabricmanager.service"] = ""
    running = machine(tmp_path / "b", a100, files=switches | unit)
    assert diagnose_one(running, "nvlink.fabric-manager").outcome == "ok"
    # A container may run it: the GPU's own word counts.
    assert (
        diagnose_one(machine(tmp_path / "c", H100, files=switches), "nvlink.fabric-manager").outcome == "ok"
    )
    uncaptured = machine(tmp_path / "d", a100, files=switches, complete=False)
    assert diagnose_one(uncaptured, "nvlink.fabric-manager").outcome == "unknown"


# -- no answer of the library is too odd ------------------------------------------------------

_ODD = st.sampled_from(
    [None, 0, -1, 2**64 - 1, 1.5, "", "x", True, [], [[1]], {}, {"total": 1}, {"error": 5}, NOT_SUPPORTED]
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(H100)), _ODD, max_size=25), st.sampled_from(["a", "b"]))
def test_any_answer_is_judged(changes: dict[str, Any], other: str) -> None:
    with TemporaryDirectory() as folder:
        box = machine(Path(folder), {**H100, **changes}, H100 if other == "a" else {**GEFORCE, **changes})
        diagnose(box, *ROWS, profile="gpu-inference")
