"""The process that asks NVML: ``python -m hwtune.host.libraries._nvml_child``.

Every call is a line: scope, call, and as JSON its value or the name of its error. Scope and call
are written before the call is made, so that the last line tells where a driver hangs or crashes.
Only calls that read are made.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# Field ids of nvml.h ("Field Identifiers"), for nvmlDeviceGetFieldValues; each becomes a call
# "field(NAME)". Where a GPU or a driver has no such field, its own answer says so.
FIELDS = {
    "RETIRED_SBE": 29,
    "RETIRED_DBE": 30,
    "RETIRED_PENDING": 31,
    "NVLINK_LINK_COUNT": 91,
    "PCIE_REPLAY_COUNTER": 94,
    "GET_GPU_RECOVERY_ACTION": 230,
}
# nvmlPerfPolicyType_t. The fields NVML_FI_DEV_CLOCKS_EVENT_REASON_* tell more of the thermal ones,
# but their numbers changed between driver releases (251 became 269), so that they cannot be asked
# of a driver whose age is not known.
POLICIES = {"power": 0, "thermal": 1, "sync_boost": 2, "board_limit": 3, "reliability": 5}
# per link (the scope of the field is the link)
LINK_FIELDS = {
    "NVLINK_GET_SPEED": 164,
    "NVLINK_GET_STATE": 165,
    "NVLINK_GET_VERSION": 166,
}
# NVLink 5 has no error counters of the old kind, but these
LINK5_FIELDS = {
    "NVLINK_COUNT_MALFORMED_PACKET_ERRORS": 206,
    "NVLINK_COUNT_BUFFER_OVERRUN_ERRORS": 207,
    "NVLINK_COUNT_RCV_ERRORS": 208,
    "NVLINK_COUNT_RCV_REMOTE_ERRORS": 209,
    "NVLINK_COUNT_RCV_GENERAL_ERRORS": 210,
    "NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS": 211,
    "NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS": 213,
    "NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS": 214,
}
LINK_ERRORS = {"replay": 0, "recovery": 1, "crc_flit": 2, "crc_data": 3}
# nvmlGpuP2PCapsIndex_t (nvidia-ml-py 13.615 has a tuple in place of the first)
PEER_ACCESS = {"read": 0, "write": 1, "nvlink": 2}
CLOCKS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
LOCATIONS = {"dram": 2, "sram": 7}
SLOWDOWN_THRESHOLD = 1
# Calls with no argument but the handle whose value is JSON already.
PLAIN = (
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetVirtualizationMode",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetPowerManagementDefaultLimit",
    "nvmlDeviceGetPowerManagementLimitConstraints",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetGpuMaxPcieLinkGeneration",
    "nvmlDeviceGetNumaNodeId",
)
# The most links that any driver may tell of (NVML_NVLINK_MAX_LINKS of nvml.h is 36).
MOST_LINKS = 64
MOST_GPUS = 128
MOST_PIDS = 256


class Reporter:
    """Makes the calls and writes the lines. ``missing``: the last call does not exist here."""

    def __init__(self, nvml: Any, write: Callable[[str], object]) -> None:
        self.nvml = nvml
        self.missing = False
        self._write = write
        self._errors = {
            value: name.removeprefix("NVML_ERROR_")
            for name, value in vars(nvml).items()
            if name.startswith("NVML_ERROR_") and isinstance(value, int)
        }

    def call(
        self,
        scope: str,
        name: str,
        *arguments: Any,
        detail: str | int = "",
        shape: Callable[[Any], Any] | None = None,
    ) -> Any:
        """The value that NVML's function returns (``shape`` makes JSON of it), or None where there
        was an error; both are told. ``detail``: what stands in the brackets after the name."""

        def function() -> Any:
            value = getattr(self.nvml, name)(*arguments)
            return value if shape is None else shape(value)

        return self.run(scope, f"{name}({detail})" if detail != "" else name, function)

    def run(self, scope: str, call: str, function: Callable[[], Any]) -> Any:
        self._write(f"{scope}\t{call}\t")
        value = None
        self.missing = False
        try:
            value = function()
            text = json.dumps({"value": value})
        except self.nvml.NVMLError as error:
            self.missing = self.error(error.value) in (
                "FUNCTION_NOT_FOUND",
                "ARGUMENT_VERSION_MISMATCH",
                "DEPRECATED",
            )
            text = json.dumps({"error": self.error(error.value)})
        except Exception as error:
            # Not the driver's answer but a fault on the way to it: a name that is not UTF-8, a
            # function that this nvidia-ml-py does not have.
            value = None
            self.missing = isinstance(error, AttributeError)
            text = json.dumps({"error": f"{type(error).__name__}: {error}"[:200]})
        self._write(text + "\n")
        return value

    def tell(self, scope: str, call: str, answer: dict[str, Any]) -> None:
        """A part of what one call answered."""
        self._write(f"{scope}\t{call}\t{json.dumps(answer)}\n")

    def error(self, code: int) -> str:
        return str(self._errors.get(code, f"ERROR_{code}"))


def main() -> None:
    import pynvml

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    report(Reporter(pynvml, write))


def report(reporter: Reporter) -> None:
    if reporter.call("system", "nvmlInit", shape=lambda _: True) is None:
        return
    reporter.call("system", "nvmlSystemGetDriverVersion")
    reporter.call("system", "nvmlSystemGetCudaDriverVersion")
    count = reporter.call("system", "nvmlDeviceGetCount") or 0
    handles: dict[int, Any] = {}
    # Who is there first, so that a GPU that hangs the driver does not hide the others.
    for index in range(min(count, MOST_GPUS)):
        _identity(reporter, index, handles)
    for index, handle in handles.items():
        _device(reporter, f"gpu {index}", handle)
    _pairs(reporter, handles)


def _identity(reporter: Reporter, index: int, handles: dict[int, Any]) -> None:
    scope = f"gpu {index}"

    def keep(handle: Any) -> bool:
        handles[index] = handle
        return True

    if reporter.call(scope, "nvmlDeviceGetHandleByIndex", index, shape=keep) is not None:
        reporter.call(scope, "nvmlDeviceGetPciInfo", handles[index], shape=lambda info: info.busId)
        reporter.call(scope, "nvmlDeviceGetName", handles[index])
        reporter.call(scope, "nvmlDeviceGetUUID", handles[index])


def _device(reporter: Reporter, scope: str, handle: Any) -> None:
    for name in PLAIN:
        reporter.call(scope, name, handle)
    capability = reporter.call(scope, "nvmlDeviceGetCudaComputeCapability", handle)
    _clocks(reporter, scope, handle)
    reporter.call(scope, "nvmlDeviceGetTemperatureV", handle, 0, detail="gpu")
    if reporter.missing:  # before driver 560
        reporter.call(scope, "nvmlDeviceGetTemperature", handle, 0, detail="gpu")
    reporter.call(scope, "nvmlDeviceGetTemperatureThreshold", handle, SLOWDOWN_THRESHOLD, detail="slowdown")
    reporter.call(scope, "nvmlDeviceGetMemoryInfo", handle, shape=_numbers)
    reporter.call(scope, "nvmlDeviceGetUtilizationRates", handle, shape=_numbers)
    reporter.call(scope, "nvmlDeviceGetCpuAffinity", handle, _words(), shape=list)
    _ecc(reporter, scope, handle)
    _processes(reporter, scope, handle)
    count = _fields(reporter, scope, handle)
    _links(reporter, scope, handle, count, capability)
    reporter.run(scope, "nvmlDeviceGetGpuFabricInfo", lambda: _fabric(reporter, handle))


def _words() -> int:
    """How many 64-bit words hold a bit for each CPU that the kernel may have."""
    import os

    return max(-(-(os.cpu_count() or 1) // 64), 16)


def _numbers(structure: Any) -> dict[str, int]:
    return {field[0]: int(getattr(structure, field[0])) for field in structure._fields_}


def _clocks(reporter: Reporter, scope: str, handle: Any) -> None:
    for name, kind in CLOCKS.items():
        reporter.call(scope, "nvmlDeviceGetClockInfo", handle, kind, detail=name)
        reporter.call(scope, "nvmlDeviceGetMaxClockInfo", handle, kind, detail=name)
    for name in ("graphics", "memory"):
        reporter.call(scope, "nvmlDeviceGetApplicationsClock", handle, CLOCKS[name], detail=name)
        reporter.call(scope, "nvmlDeviceGetDefaultApplicationsClock", handle, CLOCKS[name], detail=name)
    reporter.call(scope, "nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reporter.missing:  # before driver 535
        reporter.call(scope, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    for name, policy in POLICIES.items():
        reporter.call(scope, "nvmlDeviceGetViolationStatus", handle, policy, detail=name, shape=_numbers)


def _ecc(reporter: Reporter, scope: str, handle: Any) -> None:
    for counter, when in enumerate(("volatile", "aggregate")):
        for kind, what in enumerate(("correctable", "uncorrectable")):
            reporter.call(
                scope, "nvmlDeviceGetTotalEccErrors", handle, kind, counter, detail=f"{when}, {what}"
            )
            for location, number in LOCATIONS.items():
                reporter.call(
                    scope,
                    "nvmlDeviceGetMemoryErrorCounter",
                    handle,
                    kind,
                    counter,
                    number,
                    detail=f"{when}, {location}, {what}",
                )
    reporter.run(scope, "nvmlDeviceGetSramEccErrorStatus", lambda: _sram(reporter.nvml, handle))


def _sram(nvml: Any, handle: Any) -> dict[str, int]:
    from ctypes import byref

    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    nvml.nvmlDeviceGetSramEccErrorStatus(handle, byref(status))
    return _numbers(status)


def _processes(reporter: Reporter, scope: str, handle: Any) -> None:
    pids: set[int] = set()
    for kind in ("Compute", "Graphics"):
        found = None
        for version in (3, 2):  # the third since driver 510
            found = reporter.call(
                scope, f"nvmlDeviceGet{kind}RunningProcesses_v{version}", handle, shape=_running
            )
            if not reporter.missing:
                break
        pids.update(pid for pid, _ in found or [])
    for pid in sorted(pids):
        reporter.call(scope, "nvmlSystemGetProcessName", pid, detail=pid)


def _running(processes: list[Any]) -> list[list[int | None]]:
    return [[process.pid, process.usedGpuMemory] for process in processes[:MOST_PIDS]]


def _fields(reporter: Reporter, scope: str, handle: Any) -> int | None:
    """Tells the fields; returns the number of NVLinks where the GPU says it."""
    wanted = [(number, 0) for number in FIELDS.values()]
    count = None
    for name, answer in zip(FIELDS, _field_values(reporter, scope, handle, "", wanted), strict=False):
        reporter.tell(scope, f"field({name})", answer)
        if name == "NVLINK_LINK_COUNT":
            count = answer.get("value")
    return count


def _field_values(
    reporter: Reporter, scope: str, handle: Any, detail: str | int, wanted: list[tuple[int, int]]
) -> list[dict[str, Any]]:
    def shape(values: Any) -> list[dict[str, Any]]:
        return [_field(reporter, value) for value in values]

    return reporter.call(scope, "nvmlDeviceGetFieldValues", handle, wanted, detail=detail, shape=shape) or []


def _field(reporter: Reporter, field: Any) -> dict[str, Any]:
    if field.nvmlReturn:
        return {"error": reporter.error(field.nvmlReturn)}
    # nvmlValueType_t: double, uint, ulong, ullong, sllong, sint, ushort
    member = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[field.valueType]
    return {"value": getattr(field.value, member)}


def _links(reporter: Reporter, scope: str, handle: Any, count: int | None, capability: Any) -> None:
    """One link after the other, until the GPU says that there is no such link."""
    generation = capability[0] if capability is not None else 0
    wanted = {**LINK_FIELDS, **(LINK5_FIELDS if generation >= 10 else {})}
    for link in range(MOST_LINKS if count is None else min(count, MOST_LINKS)):
        state = reporter.call(scope, "nvmlDeviceGetNvLinkState", handle, link, detail=link)
        if state is None and generation < 9:
            return
        # From Hopper on, the field is the one to ask (NCCL's src/graph/xml.cc does so).
        scoped = [(number, link) for number in wanted.values()]
        answers = dict(zip(wanted, _field_values(reporter, scope, handle, link, scoped), strict=False))
        for name, answer in answers.items():
            reporter.tell(scope, f"field({name}, {link})", answer)
        if state is None and "value" not in answers.get("NVLINK_GET_STATE", {}):
            return
        _link(reporter, scope, handle, link)


def _link(reporter: Reporter, scope: str, handle: Any, link: int) -> None:
    reporter.call(scope, "nvmlDeviceGetNvLinkVersion", handle, link, detail=link)
    reporter.call(scope, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link, detail=link)
    reporter.call(
        scope, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link, detail=link, shape=lambda info: info.busId
    )
    for name, counter in LINK_ERRORS.items():
        reporter.call(
            scope, "nvmlDeviceGetNvLinkErrorCounter", handle, link, counter, detail=f"{link}, {name}"
        )


def _fabric(reporter: Reporter, handle: Any) -> dict[str, int]:
    """State, status and health; the newest structure that this driver knows."""
    from ctypes import byref

    nvml = reporter.nvml
    for name in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"):
        info = getattr(nvml, name)()
        try:
            nvml.nvmlDeviceGetGpuFabricInfoV(handle, byref(info))
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
                continue
            raise
        told = {"state": info.state, "status": info.status, "healthMask": info.healthMask}
        if name.endswith("v3_t"):
            told["healthSummary"] = info.healthSummary
        return told
    raise nvml.NVMLError(nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)


def _pairs(reporter: Reporter, handles: dict[int, Any]) -> None:
    for first in handles:
        for second in handles:
            if first < second:
                _pair(reporter, f"pair {first}-{second}", handles[first], handles[second])


def _pair(reporter: Reporter, scope: str, first: Any, second: Any) -> None:
    reporter.call(scope, "nvmlDeviceGetTopologyCommonAncestor", first, second)
    for name, index in PEER_ACCESS.items():
        reporter.call(scope, "nvmlDeviceGetP2PStatus", first, second, index, detail=name)


if __name__ == "__main__":
    main()
