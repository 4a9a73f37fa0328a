"""A libnvidia-ml.so.1 for tests: tests/native/fake_nvml.c, compiled here and driven by a file.

``answers`` are what hwtune.host.libraries.nvml reports of it, through the real nvidia-ml-py in the
real child process.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE = Path(__file__).parent.parent / "native" / "fake_nvml.c"

# One healthy A100 of an NVSwitch board, 12 links.
A100 = {
    "nvmlDeviceGetName": "NVIDIA A100-SXM4-80GB",
    "nvmlDeviceGetArchitecture": "7",
    "nvmlDeviceGetCudaComputeCapability": "8 0",
    "nvmlDeviceGetPersistenceMode": "1",
    "nvmlDeviceGetComputeMode": "0",
    "nvmlDeviceGetMigMode": "0 0",
    "nvmlDeviceGetVirtualizationMode": "0",
    "nvmlDeviceGetPerformanceState": "0",
    "nvmlDeviceGetPowerUsage": "62000",
    "nvmlDeviceGetEnforcedPowerLimit": "400000",
    "nvmlDeviceGetPowerManagementDefaultLimit": "400000",
    "nvmlDeviceGetPowerManagementLimitConstraints": "100000 400000",
    "nvmlDeviceGetEccMode": "1 1",
    "nvmlDeviceGetRemappedRows": "0 0 0 0",
    "nvmlDeviceGetCurrPcieLinkGeneration": "4",
    "nvmlDeviceGetCurrPcieLinkWidth": "16",
    "nvmlDeviceGetMaxPcieLinkGeneration": "4",
    "nvmlDeviceGetMaxPcieLinkWidth": "16",
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": "4",
    "nvmlDeviceGetClockInfo(0)": "210",
    "nvmlDeviceGetClockInfo(1)": "210",
    "nvmlDeviceGetClockInfo(2)": "1593",
    "nvmlDeviceGetMaxClockInfo(0)": "1410",
    "nvmlDeviceGetMaxClockInfo(1)": "1410",
    "nvmlDeviceGetMaxClockInfo(2)": "1593",
    "nvmlDeviceGetApplicationsClock(0)": "1275",
    "nvmlDeviceGetDefaultApplicationsClock(0)": "1275",
    "nvmlDeviceGetCurrentClocksEventReasons": "1",
    "nvmlDeviceGetViolationStatus(0)": "0",
    "nvmlDeviceGetViolationStatus(1)": "0",
    "nvmlDeviceGetTemperature(0)": "31",
    "nvmlDeviceGetTemperatureThreshold(1)": "89",
    "nvmlDeviceGetMemoryInfo": "85899345920 85000000000 899345920",
    "nvmlDeviceGetUtilizationRates": "0 0",
    "nvmlDeviceGetCpuAffinity": "0xffff",
    "ecc(0, 0)": "0",
    "ecc(1, 0)": "0",
    "ecc(0, 1)": "0",
    "ecc(1, 1)": "0",
    "sram.threshold_exceeded": "0",
    "compute": "",
    "graphics": "",
    "field91": "12",
    "field94": "3",
    "field230": "0",
    "fabric": "3 0 0x0",
    **{f"link{n}.state": "1" for n in range(12)},
    **{f"link{n}.version": "3" for n in range(12)},
    **{f"link{n}.remote": "2" for n in range(12)},
    **{f"link{n}.pci": "00000000:C6:00.0" for n in range(12)},
    **{f"link{n}.field164": "25000" for n in range(12)},
    **{f"link{n}.errors{c}": "0" for n in range(12) for c in range(4)},
}
# A T4 has neither NVLink nor a fabric, and retires pages.
T4 = {
    **{k: v for k, v in A100.items() if not k.startswith("link") and k not in ("fabric", "field91")},
    "nvmlDeviceGetName": "Tesla T4",
    "nvmlDeviceGetArchitecture": "6",
    "nvmlDeviceGetCudaComputeCapability": "7 5",
    "nvmlDeviceGetMigMode": "!3",
    "nvmlDeviceGetRemappedRows": "!3",
    "nvmlDeviceGetEnforcedPowerLimit": "70000",
    "nvmlDeviceGetPowerManagementDefaultLimit": "70000",
    "field29": "0",
    "field30": "0",
    "field31": "0",
}
# An H100 tells its links by field 165, and its fabric's health with a summary.
H100 = {
    **A100,
    "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetArchitecture": "9",
    "nvmlDeviceGetCudaComputeCapability": "9 0",
    "field91": "18",
    "fabric": "3 0 0x2aa 1",
    **{f"link{n}.state": "1" for n in range(18)},
    **{f"link{n}.remote": "2" for n in range(18)},
    **{f"link{n}.pci": "00000000:C6:00.0" for n in range(18)},
    **{f"link{n}.field165": "1" for n in range(18)},
    **{f"link{n}.field164": "26562" for n in range(18)},
}


def build(folder: Path) -> Path:
    """The folder of the compiled library; the test is skipped where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the fake NVML with")
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-O1"]
    target = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, *options, "-o", str(target), str(SOURCE)], check=True)
    return folder


def scenario(
    *gpus: Mapping[str, str], pairs: Mapping[str, str] | None = None, driver: str = "550.54.15", **more: str
) -> str:
    """The file's text: GPUs at the buses 07, 0f, 47 ..., pairs of them five hops apart."""
    lines = {"driver": driver, "cuda": "12040", "gpus": str(len(gpus)), **more}
    for index, gpu in enumerate(gpus):
        lines[f"gpu{index}.pci"] = f"00000000:{0x07 + 8 * index:02X}:00.0"
        lines[f"gpu{index}.nvmlDeviceGetUUID"] = f"GPU-00000000-0000-4000-8000-{index:012d}"
        lines.update({f"gpu{index}.{key}" if key else f"gpu{index}": value for key, value in gpu.items()})
        for other in range(index):
            lines[f"pair{other}-{index}.ancestor"] = "50"
            lines.update({f"pair{other}-{index}.p2p{n}": "0" for n in range(3)})
    lines.update(pairs or {})
    return "".join(f"{key} = {value}\n" for key, value in lines.items())


def answers(
    library: Path, text: str, monkeypatch: pytest.MonkeyPatch, timeout_s: float = 20.0
) -> dict[str, Any]:
    from hwtune.host.libraries import nvml

    path = library / "scenario.txt"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("FAKE_NVML_SCENARIO", str(path))
    return nvml.ask(timeout_s)
