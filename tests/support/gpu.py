"""GPUs for row tests: what NVML answers, as a capture keeps it, and files around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support import Link, host

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hwtune.host.base import Host

# Calls of one healthy H100 that is idle, as hwtune.host.libraries.nvml reports them.
H100: dict[str, Any] = {
    "nvmlDeviceGetHandleByIndex": True,
    "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetUUID": "GPU-00000000-0000-4000-8000-000000000000",
    "nvmlDeviceGetArchitecture": 9,
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetComputeMode": 0,
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceGetVirtualizationMode": 0,
    "nvmlDeviceGetPerformanceState": 0,
    "nvmlDeviceGetPowerUsage": 70_000,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
    "nvmlDeviceGetPowerManagementLimitConstraints": [200_000, 700_000],
    "nvmlDeviceGetEccMode": [1, 1],
    "nvmlDeviceGetRemappedRows": [0, 0, 0, 0],
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetClockInfo(graphics)": 345,
    "nvmlDeviceGetClockInfo(sm)": 345,
    "nvmlDeviceGetMaxClockInfo(graphics)": 1980,
    "nvmlDeviceGetMaxClockInfo(sm)": 1980,
    "nvmlDeviceGetApplicationsClock(graphics)": 1980,
    "nvmlDeviceGetDefaultApplicationsClock(graphics)": 1980,
    "nvmlDeviceGetCurrentClocksEventReasons": 1,
    "nvmlDeviceGetViolationStatus(power)": {"referenceTime": 1, "violationTime": 7_000_000_000},
    "nvmlDeviceGetViolationStatus(thermal)": {"referenceTime": 1, "violationTime": 0},
    "nvmlDeviceGetTemperatureV(gpu)": 31,
    "nvmlDeviceGetTemperatureThreshold(slowdown)": 89,
    "nvmlDeviceGetMemoryInfo": {"total": 80 << 30, "free": 79 << 30, "used": 1 << 30},
    "nvmlDeviceGetUtilizationRates": {"gpu": 0, "memory": 0},
    "nvmlDeviceGetCpuAffinity": [0xFF],
    "nvmlDeviceGetTotalEccErrors(volatile, correctable)": 0,
    "nvmlDeviceGetTotalEccErrors(volatile, uncorrectable)": 0,
    "nvmlDeviceGetTotalEccErrors(aggregate, correctable)": 0,
    "nvmlDeviceGetTotalEccErrors(aggregate, uncorrectable)": 0,
    "nvmlDeviceGetComputeRunningProcesses_v3": [],
    "nvmlDeviceGetGraphicsRunningProcesses_v3": [],
    "field(RETIRED_SBE)": {"error": "NOT_SUPPORTED"},
    "field(RETIRED_DBE)": {"error": "NOT_SUPPORTED"},
    "field(RETIRED_PENDING)": {"error": "NOT_SUPPORTED"},
    "field(NVLINK_LINK_COUNT)": 18,
    "field(PCIE_REPLAY_COUNTER)": 150,
    "field(GET_GPU_RECOVERY_ACTION)": 0,
    "nvmlDeviceGetGpuFabricInfo": {"state": 3, "status": 0, "healthMask": 0, "healthSummary": 1},
    **{f"nvmlDeviceGetNvLinkState({n})": 1 for n in range(18)},
    **{f"field(NVLINK_GET_STATE, {n})": 1 for n in range(18)},
    **{f"field(NVLINK_GET_SPEED, {n})": 26_562 for n in range(18)},
    **{f"nvmlDeviceGetNvLinkRemoteDeviceType({n})": 2 for n in range(18)},
    **{f"nvmlDeviceGetNvLinkErrorCounter({n}, {c})": 0 for n in range(18) for c in ("replay", "recovery")},
}
NOT_SUPPORTED = {"error": "NOT_SUPPORTED"}
# A card without any of the features of the data centre.
GEFORCE: dict[str, Any] = {
    **{k: v for k, v in H100.items() if "NvLink" not in k and "NVLINK" not in k and "Ecc" not in k},
    "nvmlDeviceGetName": "NVIDIA GeForce RTX 4090",
    "nvmlDeviceGetMigMode": NOT_SUPPORTED,
    "nvmlDeviceGetEccMode": NOT_SUPPORTED,
    "nvmlDeviceGetTotalEccErrors(volatile, correctable)": NOT_SUPPORTED,
    "nvmlDeviceGetRemappedRows": NOT_SUPPORTED,
    "nvmlDeviceGetNvLinkState(0)": NOT_SUPPORTED,
    "nvmlDeviceGetGpuFabricInfo": NOT_SUPPORTED,
    "nvmlDeviceGetPerformanceState": 8,
}


def inactive(*links: int) -> dict[str, int]:
    """Changes of an H100 whose links with these numbers are down."""
    calls = ("nvmlDeviceGetNvLinkState({})", "field(NVLINK_GET_STATE, {})")
    return {call.format(n): 0 for n in links for call in calls}


def nvml(
    *gpus: Mapping[str, Any], p2p: int | None = 0, stopped: Any = None, start: Any = True
) -> dict[str, Any]:
    """The library's answer for these GPUs at the buses 07, 0f, 17 ..."""
    told = []
    for index, gpu in enumerate(gpus):
        calls = {"nvmlDeviceGetPciInfo": f"00000000:{0x07 + 8 * index:02X}:00.0", **gpu}
        told.append({call: _answer(value) for call, value in calls.items()})
    pairs = [
        [
            first,
            second,
            {
                "nvmlDeviceGetTopologyCommonAncestor": {"value": 50},
                **({} if p2p is None else {"nvmlDeviceGetP2PStatus(read)": {"value": p2p}}),
            },
        ]
        for first in range(len(gpus))
        for second in range(first + 1, len(gpus))
    ]
    system = {
        "nvmlInit": _answer(start),
        "nvmlSystemGetDriverVersion": {"value": "550.54.15"},
        "nvmlDeviceGetCount": {"value": len(gpus)},
    }
    return {"system": system, "gpus": told, "pairs": pairs, "stopped": stopped}


def _answer(value: Any) -> Any:
    return value if isinstance(value, dict) and set(value) == {"error"} else {"value": value}


def pci_gpu(
    address: str, driver: str | None = "nvidia", vendor: str = "0x10de", kind: str = "0x030200"
) -> dict[str, str | Link]:
    """The files of one display controller in sysfs."""
    folder = f"/sys/devices/pci0000:00/{address}"
    files: dict[str, str | Link] = {
        f"{folder}/class": kind + "\n",
        f"{folder}/vendor": vendor + "\n",
        f"{folder}/device": "0x2330\n",
        f"{folder}/numa_node": "0\n",
        f"/sys/bus/pci/devices/{address}": Link(f"../../../devices/pci0000:00/{address}"),
    }
    if driver is not None:
        files[f"/sys/bus/pci/drivers/{driver}/module"] = ""
        files[f"{folder}/driver"] = Link(f"../../../bus/pci/drivers/{driver}")
    return files


def machine(
    tmp_path: Path,
    *gpus: Mapping[str, Any],
    files: Mapping[str, Any] | None = None,
    log: str | None = "",
    complete: bool = True,
    documents: Mapping[str, str] | None = None,
    **options: Any,
) -> Host:
    """A captured machine with these GPUs by NVML, and a kernel log of these lines."""
    libraries: dict[Any, Any] = {("nvml",): nvml(*gpus, **options)}
    if log is not None:
        libraries["kmsg",] = [[6, float(n), line] for n, line in enumerate(log.splitlines())]
    return host(tmp_path, files or {}, complete=complete, libraries=libraries, documents=documents)
