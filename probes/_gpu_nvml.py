"""The GPUs in what NVML said (``hwtune.host.libraries.nvml`` describes the shape)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.fact import DENIED, INVALID, NOT_PROBED, UNREADABLE, Fact, absent, gap, known
from hwtune.model.gpu import EVENT_REASONS, GENERATIONS, Gpu, GpuHost, GpuPair, GpuProcess, NvLink
from hwtune.text.pci_address import normal

if TYPE_CHECKING:
    from collections.abc import Callable

_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
_COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
_VIRTUALIZATION = {0: "none", 1: "pass-through", 2: "vgpu", 3: "host-vgpu", 4: "host-vsga"}
_REMOTES = {0: "gpu", 1: "npu", 2: "switch", 255: "unknown"}
_WAYS = {0: "PSB", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_PEER = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS", 6: "U"}
_FABRIC_STATES = {1: "Not Started", 2: "In Progress", 3: "Completed"}
_FABRIC_HEALTH = {1: "Healthy", 2: "Unhealthy", 3: "Limited Capacity"}
# Bits of the fabric's health mask, two each: 1 is true, 2 is false (nvml.h).
_FABRIC_PROBLEMS = {
    0: "bandwidth degraded",
    2: "route recovery in progress",
    4: "route unhealthy",
    6: "access timeout recovery in progress",
}
_FABRIC_CONFIGURATION = {
    2: "incorrect system GUID",
    3: "incorrect chassis serial number",
    4: "no partition",
    5: "insufficient NVLinks",
    6: "incompatible GPU firmware",
    7: "invalid location",
    8: "invalid GPU state",
}
_RECOVERY = {
    0: "None",
    1: "GPU Reset",
    2: "Node Reboot",
    3: "Drain P2P",
    4: "Drain and Reset",
    5: "Recover IMEX Domain",
    6: "Bus Reset",
    7: "System Reboot",
}
_POLICIES = {
    "power": "sw_power_cap",
    "thermal": "thermal",
    "sync_boost": "sync_boost",
    "board_limit": "board_limit",
    "reliability": "reliability",
}
_LINK_ERRORS = ("replay", "recovery", "crc_flit", "crc_data")
_LINK5_ERRORS = {
    "NVLINK_COUNT_MALFORMED_PACKET_ERRORS": "malformed_packets",
    "NVLINK_COUNT_BUFFER_OVERRUN_ERRORS": "buffer_overruns",
    "NVLINK_COUNT_RCV_ERRORS": "receive",
    "NVLINK_COUNT_RCV_REMOTE_ERRORS": "receive_remote",
    "NVLINK_COUNT_RCV_GENERAL_ERRORS": "receive_general",
    "NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS": "link_integrity",
    "NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS": "recovery",
    "NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS": "recovery_failed",
}


class Answers:
    """What NVML answered of one scope: a GPU, a pair, the system."""

    __slots__ = ("_answers", "_label", "_stopped")

    def __init__(self, answers: dict[str, Any], label: str, stopped: str) -> None:
        self._answers = answers
        self._label = label
        self._stopped = stopped

    def __contains__(self, call: str) -> bool:
        return call in self._answers

    def calls(self) -> list[str]:
        return list(self._answers)

    def source(self, call: str) -> str:
        name, _, arguments = call.rstrip(")").partition("(")
        inside = ", ".join(part for part in (self._label, arguments) if part)
        return f"{name}({inside})" if inside else name

    def error(self, call: str) -> str:
        answer = self._answers.get(call)
        return str(answer.get("error", "")) if isinstance(answer, dict) else ""

    def fact(self, call: str, parse: Callable[[Any], Any] | None = None) -> Fact[Any]:
        """The value, or the gap that the error means: what a GPU does not support it has not."""
        source = self.source(call)
        answer = self._answers.get(call)
        if not isinstance(answer, dict):
            return gap(UNREADABLE, source, self._stopped) if self._stopped else gap(NOT_PROBED, source)
        error = answer.get("error")
        if error == "NOT_SUPPORTED":
            return absent(source)
        if error is not None:
            return gap(DENIED if error == "NO_PERMISSION" else UNREADABLE, source, f"NVML: {error}")
        value = answer.get("value")
        if parse is None:
            return known(value, source)
        try:
            return known(parse(value), source)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError):
            return gap(INVALID, source, repr(value)[:60])

    def either(self, *calls: str, parse: Callable[[Any], Any] | None = None) -> Fact[Any]:
        """One question under several names: the answer of the last that was asked."""
        asked = [call for call in calls if call in self._answers]
        return self.fact(asked[-1] if asked else calls[0], parse)

    def group(self, calls: dict[str, str], parse: Callable[[Any], int] = int) -> Fact[dict[str, int]]:
        """Several numbers as one fact: those that are known, or else why the first is not."""
        facts = {key: self.fact(call, parse) for key, call in calls.items()}
        found = {key: fact.get() for key, fact in facts.items() if fact.known}
        first = next(iter(facts.values()))
        if found:
            return known(found, next(fact.source for fact in facts.values() if fact.known))
        return Fact(None, first.source, first.gap, first.detail)


def read(answer: Fact[Any], host: GpuHost) -> list[Gpu]:
    """The GPUs, and in ``host`` what concerns all of them."""
    if answer.known and not _well_formed(answer.get()):
        answer = gap(INVALID, answer.source, "not in the form of this library's answers")
    if not answer.known:
        host.nvml = Fact(None, answer.source, answer.gap, answer.detail)
        return []
    report = answer.get()
    stopped = _stopped(report.get("stopped"))
    system = Answers(report["system"], "", stopped)
    started = system.fact("nvmlInit")
    host.nvml = known(started.known, "nvmlInit")
    host.nvml_error = stopped or (system.error("nvmlInit") if not started.known else "")
    if not started.known:
        return []
    host.driver_version = system.fact("nvmlSystemGetDriverVersion", str)
    host.cuda_version = system.fact("nvmlSystemGetCudaDriverVersion", _cuda)
    count = system.fact("nvmlDeviceGetCount", int)
    host.listed = host.listed.or_else(count.map(lambda _: True))
    gpus = [
        _gpu(index, Answers(answers, f"GPU {index}", stopped)) for index, answers in enumerate(report["gpus"])
    ]
    for first, second, answers in report["pairs"]:
        host.pairs.append(_pair(gpus, first, second, answers, stopped))
    return gpus


def _well_formed(report: Any) -> bool:
    """A capture may hold anything in the answer's place."""
    return (
        isinstance(report, dict)
        and isinstance(report.get("system"), dict)
        and isinstance(report.get("gpus"), list)
        and all(isinstance(answers, dict) for answers in report["gpus"])
        and isinstance(report.get("pairs"), list)
        and all(
            isinstance(pair, list) and list(map(type, pair)) == [int, int, dict] for pair in report["pairs"]
        )
    )


def _stopped(stopped: Any) -> str:
    if not isinstance(stopped, dict):
        return ""
    why, call, scope, detail = (stopped.get(key) for key in ("why", "call", "scope", "detail"))
    return f"NVML {why} in {call} of {scope} ({detail})"


def _cuda(value: int) -> str:
    return f"{value // 1000}.{value % 1000 // 10}"


def _gpu(index: int, said: Answers) -> Gpu:
    gpu = Gpu(
        index=index,
        address=said.fact("nvmlDeviceGetPciInfo", normal).value,
        source="NVML",
        name=said.fact("nvmlDeviceGetName", str),
        uuid=said.fact("nvmlDeviceGetUUID", str),
        architecture=said.fact("nvmlDeviceGetArchitecture", _ARCHITECTURES.__getitem__),
        persistence=said.fact("nvmlDeviceGetPersistenceMode", bool),
        compute_mode=said.fact("nvmlDeviceGetComputeMode", _COMPUTE_MODES.__getitem__),
        mig=said.fact("nvmlDeviceGetMigMode", lambda modes: bool(modes[0])),
        mig_pending=said.fact("nvmlDeviceGetMigMode", lambda modes: bool(modes[1])),
        virtualization=said.fact("nvmlDeviceGetVirtualizationMode", _VIRTUALIZATION.__getitem__),
        performance_state=said.fact("nvmlDeviceGetPerformanceState", int),
        event_reasons=said.either(
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
            parse=reasons,
        ),
        throttle_counters_us=said.group(
            {key: f"nvmlDeviceGetViolationStatus({name})" for name, key in _POLICIES.items()},
            lambda times: int(times["violationTime"]) // 1000,
        ),
        power_mw=said.fact("nvmlDeviceGetPowerUsage", int),
        power_limit_mw=said.fact("nvmlDeviceGetEnforcedPowerLimit", int),
        power_default_mw=said.fact("nvmlDeviceGetPowerManagementDefaultLimit", int),
        power_min_mw=said.fact("nvmlDeviceGetPowerManagementLimitConstraints", lambda pair: int(pair[0])),
        power_max_mw=said.fact("nvmlDeviceGetPowerManagementLimitConstraints", lambda pair: int(pair[1])),
        temperature_c=said.either(
            "nvmlDeviceGetTemperatureV(gpu)", "nvmlDeviceGetTemperature(gpu)", parse=int
        ),
        slowdown_c=said.fact("nvmlDeviceGetTemperatureThreshold(slowdown)", int),
        memory_total_bytes=said.fact("nvmlDeviceGetMemoryInfo", lambda m: int(m["total"])),
        memory_used_bytes=said.fact("nvmlDeviceGetMemoryInfo", lambda m: int(m["used"])),
        utilization_pct=said.fact("nvmlDeviceGetUtilizationRates", lambda rates: int(rates["gpu"])),
        ecc_enabled=said.fact("nvmlDeviceGetEccMode", lambda modes: bool(modes[0])),
        ecc_pending=said.fact("nvmlDeviceGetEccMode", lambda modes: bool(modes[1])),
        ecc_counts=_ecc(said),
        sram_threshold_exceeded=said.fact(
            "nvmlDeviceGetSramEccErrorStatus", lambda status: bool(status["bThresholdExceeded"])
        ),
        retired_pages=said.group({"single_bit": "field(RETIRED_SBE)", "double_bit": "field(RETIRED_DBE)"}),
        retired_pending=said.fact("field(RETIRED_PENDING)", bool),
        remapped_rows=said.fact(
            "nvmlDeviceGetRemappedRows",
            lambda rows: {"correctable": int(rows[0]), "uncorrectable": int(rows[1])},
        ),
        remap_pending=said.fact("nvmlDeviceGetRemappedRows", lambda rows: bool(rows[2])),
        remap_failed=said.fact("nvmlDeviceGetRemappedRows", lambda rows: bool(rows[3])),
        replay_count=said.fact("field(PCIE_REPLAY_COUNTER)", int),
        cpu_affinity=said.fact("nvmlDeviceGetCpuAffinity", _bits),
        numa_node=said.fact("nvmlDeviceGetNumaNodeId", int),
        processes=_processes(said),
        nvlinks=_nvlinks(said),
        recovery_action=_recovery(said),
        lost=_lost(said),
    )
    _clocks(gpu, said)
    _link(gpu, said)
    _fabric(gpu, said)
    return gpu


def reasons(mask: int) -> list[str]:
    """Clock event reasons of a bit mask; a bit without a name keeps its number."""
    found = [name for bit, name in EVENT_REASONS.items() if mask & bit]
    rest = mask & ~sum(EVENT_REASONS)
    return [*found, *(hex(1 << bit) for bit in range(rest.bit_length()) if rest >> bit & 1)]


def _bits(words: list[int]) -> list[int]:
    return [64 * n + bit for n, word in enumerate(words[:1024]) for bit in range(64) if word >> bit & 1]


def _clocks(gpu: Gpu, said: Answers) -> None:
    every = ("graphics", "sm", "memory", "video")
    gpu.clocks = said.group({name: f"nvmlDeviceGetClockInfo({name})" for name in every})
    gpu.max_clocks = said.group({name: f"nvmlDeviceGetMaxClockInfo({name})" for name in every})
    two = ("graphics", "memory")
    gpu.application_clocks = said.group({name: f"nvmlDeviceGetApplicationsClock({name})" for name in two})
    gpu.default_application_clocks = said.group(
        {name: f"nvmlDeviceGetDefaultApplicationsClock({name})" for name in two}
    )


def _link(gpu: Gpu, said: Answers) -> None:
    link = gpu.link
    link.current_gts = said.fact("nvmlDeviceGetCurrPcieLinkGeneration", GENERATIONS.__getitem__)
    link.current_width = said.fact("nvmlDeviceGetCurrPcieLinkWidth", _width)
    link.max_gts = said.fact("nvmlDeviceGetGpuMaxPcieLinkGeneration", GENERATIONS.__getitem__)
    # "the lower of what the GPU and the system can do" (nvml.h)
    link.expected_gts = said.fact("nvmlDeviceGetMaxPcieLinkGeneration", GENERATIONS.__getitem__)
    link.max_width = said.fact("nvmlDeviceGetMaxPcieLinkWidth", _width)
    link.expected_width = link.max_width


def _width(lanes: int) -> int:
    if lanes not in (1, 2, 4, 8, 16, 32):
        raise ValueError(lanes)
    return lanes


def _ecc(said: Answers) -> Fact[dict[str, int]]:
    calls = {}
    for when in ("volatile", "aggregate"):
        for what in ("correctable", "uncorrectable"):
            calls[f"{when}.{what}_total"] = f"nvmlDeviceGetTotalEccErrors({when}, {what})"
            for where in ("dram", "sram"):
                calls[f"{when}.{where}_{what}"] = f"nvmlDeviceGetMemoryErrorCounter({when}, {where}, {what})"
    return said.group(calls)


def _processes(said: Answers) -> Fact[list[GpuProcess]]:
    found: list[GpuProcess] = []
    first: Fact[Any] | None = None
    for kind in ("Compute", "Graphics"):
        fact = said.either(
            *(f"nvmlDeviceGet{kind}RunningProcesses_v{version}" for version in (3, 2)), parse=_pids
        )
        first = first or fact
        for pid, memory in fact.value or []:
            name = said.fact(f"nvmlSystemGetProcessName({pid})", str)
            found.append(GpuProcess(pid, name.value or "", kind.lower(), memory))
    assert first is not None
    return first.map(lambda _: found)


def _pids(processes: list[Any]) -> list[tuple[int, int | None]]:
    return [(int(pid), None if memory is None else int(memory)) for pid, memory in processes]


def _nvlinks(said: Answers) -> Fact[list[NvLink]]:
    """ABSENT where the GPU has no link at all."""
    first = said.fact("nvmlDeviceGetNvLinkState(0)")
    count = said.fact("field(NVLINK_LINK_COUNT)", int)
    if count.known and count.get() == 0:
        return absent(count.source)
    links = []
    number = 0
    while f"nvmlDeviceGetNvLinkState({number})" in said:
        link = _nvlink(said, number)
        if link is not None:
            links.append(link)
        number += 1
    if links:
        return known(links, first.source)
    if first.known or first.absent or said.error("nvmlDeviceGetNvLinkState(0)") == "INVALID_ARGUMENT":
        return absent(first.source)
    return Fact(None, first.source, first.gap, first.detail)


def _nvlink(said: Answers, number: int) -> NvLink | None:
    state = said.fact(f"field(NVLINK_GET_STATE, {number})", _active)
    if not state.known:
        state = said.fact(f"nvmlDeviceGetNvLinkState({number})", bool)
    if not state.known:
        return None
    version = said.fact(f"nvmlDeviceGetNvLinkVersion({number})", int)
    errors = {name: f"nvmlDeviceGetNvLinkErrorCounter({number}, {name})" for name in _LINK_ERRORS}
    errors.update(
        {
            name: f"field({field}, {number})"
            for field, name in _LINK5_ERRORS.items()
            if _has(said, field, number)
        }
    )
    return NvLink(
        link=number,
        active=state,
        version=version,
        remote_type=said.fact(f"nvmlDeviceGetNvLinkRemoteDeviceType({number})", _REMOTES.__getitem__),
        remote_address=said.fact(f"nvmlDeviceGetNvLinkRemotePciInfo({number})", normal),
        speed_mbps=said.fact(f"field(NVLINK_GET_SPEED, {number})", int),
        errors=said.group(errors),
    )


def _has(said: Answers, field: str, number: int) -> bool:
    return said.fact(f"field({field}, {number})").known


def _active(state: int) -> bool:
    """NVML_NVLINK_STATE_*: 0 inactive, 1 active, 2 asleep to save power, 3 active without traffic."""
    return state != 0


def _recovery(said: Answers) -> Fact[str]:
    fact = said.fact("field(GET_GPU_RECOVERY_ACTION)", _RECOVERY.__getitem__)
    for call in said.calls():
        if said.error(call) == "RESET_REQUIRED":
            return known("GPU Reset", said.source(call))
    return fact


def _lost(said: Answers) -> Fact[bool]:
    for call in said.calls():
        if said.error(call) == "GPU_IS_LOST":
            return known(True, said.source(call))
    handle = said.fact("nvmlDeviceGetHandleByIndex")
    return handle.map(lambda _: False)


def _fabric_numbers(info: dict[str, int]) -> dict[str, int]:
    wanted = {key: int(info[key]) for key in ("state", "status", "healthMask")}
    return {**wanted, "healthSummary": int(info.get("healthSummary", 0))}


def _fabric(gpu: Gpu, said: Answers) -> None:
    info = said.fact("nvmlDeviceGetGpuFabricInfo", _fabric_numbers)
    if info.known and info.get()["state"] == 0:
        info = absent(info.source)
    if said.error("nvmlDeviceGetGpuFabricInfo") in ("FUNCTION_NOT_FOUND", "NOT_FOUND"):
        info = absent(info.source)  # drivers before the fabric's time
    gpu.fabric_state = info.map(lambda i: _FABRIC_STATES.get(i["state"], f"state {i['state']}"))
    # The rest is valid only once the registration is completed (nvml.h).
    if info.known and info.get()["state"] != 3:
        info = gap(NOT_PROBED, info.source, "the fabric is not completed")
    gpu.fabric_status = info.map(lambda i: "Success" if i["status"] == 0 else f"NVML error {i['status']}")
    gpu.fabric_problems = info.map(lambda i: _problems(i["healthMask"]))
    gpu.fabric_health = info.map(_health)
    if gpu.fabric_health.known and gpu.fabric_health.get() == "":
        gpu.fabric_health = absent(info.source)


def _problems(mask: int) -> list[str]:
    found = [text for shift, text in _FABRIC_PROBLEMS.items() if mask >> shift & 3 == 1]
    configuration = _FABRIC_CONFIGURATION.get(mask >> 8 & 15)
    return [*found, configuration] if configuration else found


def _health(info: dict[str, int]) -> str:
    """The summary, or where the driver has none, what the mask says; "" where that says nothing."""
    summary = info["healthSummary"]
    if summary:
        return _FABRIC_HEALTH.get(summary, f"health {summary}")
    return "Unhealthy" if _problems(info["healthMask"]) else "Healthy" if info["healthMask"] else ""


def _pair(gpus: list[Gpu], first: int, second: int, answers: dict[str, Any], stopped: str) -> GpuPair:
    said = Answers(answers, f"GPU {first}, GPU {second}", stopped)
    ancestor = said.fact("nvmlDeviceGetTopologyCommonAncestor", _WAYS.__getitem__)
    states = [said.fact(f"nvmlDeviceGetP2PStatus({name})", _PEER.__getitem__) for name in ("read", "write")]
    told = [fact.get() for fact in states if fact.known]
    bonded = _bonded(gpus, first, second)
    return GpuPair(
        first=f"GPU{first}",
        second=f"GPU{second}",
        path=f"NV{bonded}" if bonded else ancestor.value or "",
        source=ancestor.source,
        p2p=next((state for state in told if state != "OK"), told[0] if told else None),
        p2p_source=states[0].source,
    )


def _bonded(gpus: list[Gpu], first: int, second: int) -> int:
    """How many active NVLinks lead from one GPU to the other, by themselves or over a switch."""
    if first >= len(gpus) or second >= len(gpus):
        return 0
    one, other = (
        [link for link in gpu.nvlinks.value or [] if link.active.value] for gpu in (gpus[first], gpus[second])
    )
    direct = sum(1 for link in one if link.remote_address.value == gpus[second].address)
    if direct or not gpus[second].address:
        return direct
    switched = [sum(1 for link in links if link.remote_type.value == "switch") for links in (one, other)]
    return min(switched)
