"""One question or order to NVML: ``get|set ADDRESS SETTING VALUE``, answered by one JSON object on
stdout, {"value": ...} or {"error": NAME} with the name of the NVML_ERROR."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_SM = 1  # NVML_CLOCK_SM


def main(argv: Sequence[str]) -> None:
    import pynvml

    sys.stdout.write(json.dumps(answer(pynvml, *argv)) + "\n")


def answer(nvml: Any, verb: str, address: str, setting: str, value: str) -> dict[str, Any]:
    try:
        nvml.nvmlInit()
        device = nvml.nvmlDeviceGetHandleByPciBusId(address)
        return {"value": (_get if verb == "get" else _set)(nvml, device, setting, value)}
    except nvml.NVMLError as error:
        names = {
            number: name.removeprefix("NVML_ERROR_")
            for name, number in vars(nvml).items()
            if name.startswith("NVML_ERROR_") and isinstance(number, int)
        }
        # of one that is not there, by whichever driver
        name = names.get(error.value, f"error {error.value}")
        return {"error": "NOT_FOUND" if name == "INVALID_ARGUMENT" and verb == "get" else name}


def _get(nvml: Any, device: Any, setting: str, value: str) -> Any:
    if setting == "persistence":
        return nvml.nvmlDeviceGetPersistenceMode(device)
    if setting == "power-limit":
        return nvml.nvmlDeviceGetPowerManagementLimit(device)
    if setting == "compute-mode":
        return nvml.nvmlDeviceGetComputeMode(device)
    clock = nvml.nvmlDeviceGetClockInfo(device, _SM)
    return [clock, nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)]


def _set(nvml: Any, device: Any, setting: str, value: str) -> bool:
    if setting == "persistence":
        nvml.nvmlDeviceSetPersistenceMode(device, int(value))
    elif setting == "power-limit":
        nvml.nvmlDeviceSetPowerManagementLimit(device, int(value))
    elif setting == "compute-mode":
        nvml.nvmlDeviceSetComputeMode(device, int(value))
    elif value == "unlocked":
        nvml.nvmlDeviceResetGpuLockedClocks(device)
    else:
        low, _, high = value.partition(",")
        nvml.nvmlDeviceSetGpuLockedClocks(device, int(low), int(high))
    return True
