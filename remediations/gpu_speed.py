"""GPUs: what makes them slower than they could be, or slow to answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes import GpuSetting, UnitState
from hwtune.diagnosis.row import row
from hwtune.diagnosis.verdict import Verdict, evidence, fact_evidence
from hwtune.remediations import _gpu_common as common

if TYPE_CHECKING:
    from hwtune.changes import Change
    from hwtune.model import Machine
    from hwtune.model.gpu import Gpu
    from hwtune.profile import Profile

_REASONS = "NVML API reference: NvmlClocksEventReasons"

# Reasons that are faults while they last, and what to look at.
_FAULTS = {
    "hw_thermal_slowdown": (
        "too hot: the hardware halves its clocks or worse",
        "Check the cooling: fans, air flow, dust, the heat sink's contact",
    ),
    "sw_thermal_slowdown": (
        "too hot: the driver lowers its clocks",
        "Check the cooling: fans, air flow, dust, the room's temperature",
    ),
    "hw_power_brake_slowdown": (
        "the power supply or the system asks it to halve its clocks",
        "Check the power supplies and the power cap of the chassis",
    ),
}
# Counters of past slowdowns (microseconds since the driver was loaded): what they tell, and the
# share of the uptime from which on that is a finding. The hardware's own slowdown is the last
# resort and never right; the driver's is regulation, of which healthy machines have seconds.
_COUNTERS = {
    "hw_thermal_slowdown": ("was slowed by its hardware for heat", 0.0),
    "hw_power_brake_slowdown": ("was slowed by the power brake", 0.0),
    "sw_thermal_slowdown": ("was slowed by the driver for heat", 0.001),
    "thermal": ("was slowed for heat", 0.001),
}


@row(
    "gpu.throttled",
    title="Is a GPU slowed down by heat or power?",
    symptom="Inference takes longer, in phases, on one GPU of several.",
    cause="Protection against heat and overload lowers the clocks; the hardware's own by half or more.",
    severity="warning",
    scope="hands",
    risk="none",
    cost="none",
    sources=(
        _REASONS,
        "NVML API reference: nvmlDeviceGetViolationStatus",
        "nvidia-smi(1): Clocks Event Reasons",
    ),
)
def throttled(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    if nothing is not None:
        return nothing
    verdict = Verdict()
    for where, gpu in common.each(machine):
        _throttled(verdict, where, gpu, machine.kernel.uptime_s.value)
    return verdict


def _throttled(verdict: Verdict, where: str, gpu: Gpu, uptime_s: float | None) -> None:
    reasons = gpu.event_reasons
    active = [reason for reason in _FAULTS if reason in (reasons.value or [])]
    for reason in active:
        text, advice = _FAULTS[reason]
        verdict.finding(where, f"{_name(gpu)} is slowed down: {text}.", *_heat(gpu, reason), advice=advice)
    past = {
        key: us
        for key, us in (gpu.throttle_counters_us.value or {}).items()
        if key in _COUNTERS and _grave(us, _COUNTERS[key][1], uptime_s)
    }
    if past and not active:
        key, us = max(past.items(), key=lambda item: item[1])
        verdict.finding(
            where,
            f"{_name(gpu)} {_COUNTERS[key][0]} for {_duration(us)} since its driver was loaded, not now.",
            evidence(gpu.throttle_counters_us.source, f"{key} {us} us", f"{key} 0 us"),
            advice="Check the cooling and the power supply under the load that it had then",
            severity="info",
        )
    if active or past:
        return
    if common.judge_gaps(verdict, where, gpu, reasons, "this GPU tells no clock event reasons"):
        return
    verdict.ok(evidence(reasons.source, ", ".join(reasons.get()) or "none active"), reason=_harmless(gpu))


def _grave(us: int, share: float, uptime_s: float | None) -> bool:
    if share == 0:
        return us > 0
    return uptime_s is not None and us > share * uptime_s * 1e6


def _harmless(gpu: Gpu) -> str:
    """What is active and no fault."""
    reasons = gpu.event_reasons.get()
    if "sw_power_cap" in reasons and gpu.idle is not True:
        return "the clocks are held at the power limit, as they should be under full load"
    if "hw_slowdown" in reasons:
        return "hw_slowdown also comes for a moment with a change of the P-state; no cause is named"
    return ""


def _heat(gpu: Gpu, reason: str) -> list:  # type: ignore[type-arg]
    found = [evidence(gpu.event_reasons.source, f"{reason} active", "not active")]
    if gpu.temperature_c.known:
        limit = f"below {gpu.slowdown_c.get()} C" if gpu.slowdown_c.known else ""
        found.append(evidence(gpu.temperature_c.source, f"{gpu.temperature_c.get()} C", limit))
    return found


def _name(gpu: Gpu) -> str:
    return gpu.name.value or "The GPU"


def _duration(us: int) -> str:
    if us < 1000:
        return f"{us} us"
    if us < 1_000_000:
        return f"{us / 1000:.3g} ms"
    if us < 3_600_000_000:
        return f"{us / 1e6:.3g} s"
    return f"{us / 3.6e9:.3g} h"


@row(
    "gpu.persistence",
    title="Does the driver keep idle GPUs initialized?",
    symptom="The first program after a pause waits for seconds; clock and power settings are forgotten.",
    cause="When its last client ends, the driver takes a GPU down; the next sets it up again (1 to 3 s).",
    severity="warning",
    scope="service",
    risk="none",
    cost="A few watts per idle GPU.",
    sources=("docs.nvidia.com/deploy/driver-persistence", "nvidia-persistenced(1)"),
)
def persistence(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    if nothing is not None:
        return nothing
    if not profile.gpu.persistence:
        return Verdict().not_applicable(f"profile {profile.name} does not ask for it")
    verdict = Verdict()
    for where, gpu in common.each(machine):
        _persistence(verdict, where, gpu, machine)
    return common.alike(verdict)


def _persistence(verdict: Verdict, where: str, gpu: Gpu, machine: Machine) -> None:
    if gpu.virtualization.value == "vgpu":
        verdict.not_applicable("a virtual GPU is kept by its host")
        return
    if common.judge_gaps(verdict, where, gpu, gpu.persistence, "this GPU has no persistence mode"):
        return
    if gpu.persistence.get():
        verdict.ok(fact_evidence(gpu.persistence, "on"))
    elif machine.virtualization.is_container:
        # The daemon's socket is not in the container, and so the mode reads as off there.
        common.note(
            verdict,
            where,
            "inside a container the mode reads as off, whatever it is",
            "run hwtune on the host",
        )
    else:
        held = ", ".join(process.name for process in gpu.processes.value or [] if process.name)
        verdict.finding(
            where,
            f"Persistence mode of {common.label(gpu)} is off"
            + (f"; what runs on it now keeps it initialized ({held[:80]})." if held else "."),
            evidence(gpu.persistence.source, "off", "on"),
            changes=_keep(machine, gpu),
            severity="info" if "GeForce" in (gpu.name.value or "") or held else "warning",
        )


def _keep(machine: Machine, gpu: Gpu) -> list[Change]:
    """The daemon, where it is installed; else the mode itself, which a reboot forgets."""
    for service in machine.service.services:
        if service.name.startswith("nvidia-persistenced"):
            return [UnitState("nvidia-persistenced.service", "started")]
    return [GpuSetting(gpu.address, "persistence", "1")] if gpu.address else []


@row(
    "gpu.clocks",
    title="Are the GPU's clocks free to go up, and steady where that is wanted?",
    symptom="Inference is slower than on a GPU of the same kind, or the first requests after a pause are.",
    cause="Application clocks below the default cap the GPU; from a low idle clock it first has to speed up.",
    severity="info",
    scope="runtime",
    risk="Locked clocks may run into the power limit, and then they are not steady either.",
    cost="Power: an idle GPU with locked clocks draws more.",
    sources=(
        _REASONS,
        "nvidia-smi(1): --lock-gpu-clocks, Applications Clocks",
        "TensorRT best practices: GPU clock locking",
    ),
)
def clocks(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    if nothing is not None:
        return nothing
    verdict = Verdict()
    for where, gpu in common.each(machine):
        _clocks(verdict, where, gpu, profile.gpu.locked_clocks)
    return common.alike(verdict)


def _clocks(verdict: Verdict, where: str, gpu: Gpu, locked: bool) -> None:
    application, default = gpu.application_clocks.value or {}, gpu.default_application_clocks.value or {}
    now, most = gpu.clocks.value or {}, gpu.max_clocks.value or {}
    low = {name: mhz for name, mhz in application.items() if name in default and mhz < default[name]}
    if low:
        wanted = ", ".join(f"{name} {default[name]} MHz" for name in low)
        verdict.finding(
            where,
            "The application clocks are set below their default.",
            evidence(
                gpu.application_clocks.source, ", ".join(f"{n} {mhz} MHz" for n, mhz in low.items()), wanted
            ),
            advice="Reset the application clocks: nvidia-smi --reset-applications-clocks",
            severity="warning",
        )
        return
    if not locked:
        if common.judge_gaps(verdict, where, gpu, gpu.clocks, "this GPU tells no clocks"):
            return
        verdict.ok(evidence(gpu.clocks.source, _megahertz(now)), reason="the clocks follow the load")
        return
    sm, top = now.get("sm"), most.get("sm")
    if sm is None or top is None:
        common.unknown(verdict, where, gpu, *(f for f in (gpu.clocks, gpu.max_clocks) if not f.known))
    elif sm >= top:
        verdict.ok(evidence(gpu.clocks.source, f"sm {sm} MHz", f"{top} MHz"))
    elif gpu.idle is True:
        verdict.finding(
            where,
            f"The SM clock falls to {sm} of {top} MHz while idle, and has to rise for the next request.",
            evidence(gpu.clocks.source, f"sm {sm} MHz", f"locked, at most {top} MHz"),
            changes=[GpuSetting(gpu.address, "locked-clocks", f"{top},{top}")] if gpu.address else [],
        )
    else:
        reason = "NVML does not tell locked clocks, and the GPU is not known to be idle"
        common.note(verdict, where, reason, "look again when nothing runs on it")


def _megahertz(clocks: dict[str, int]) -> str:
    return ", ".join(f"{name} {mhz} MHz" for name, mhz in clocks.items())


@row(
    "gpu.power-limit",
    title="May the GPU draw the power that it is made for?",
    symptom="Under load the clocks stay below those of another GPU of the same kind.",
    cause="A power limit below the default was set, by hand or by a management tool, and caps the clocks.",
    severity="warning",
    scope="runtime",
    risk="The power supply and the cooling must be good for it.",
    cost="Power and heat.",
    sources=(
        "NVML API reference: nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetPowerManagementDefaultLimit",
    ),
)
def power_limit(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    if nothing is not None:
        return nothing
    verdict = Verdict()
    for where, gpu in common.each(machine):
        limit, default = gpu.power_limit_mw, gpu.power_default_mw
        if common.judge_gaps(verdict, where, gpu, limit, "this GPU has no power limit to set"):
            continue
        if common.judge_gaps(verdict, where, gpu, default, "this GPU has no default power limit"):
            continue
        # The default is told with a watt's rounding by some boards.
        if limit.get() >= default.get() - 1000:
            verdict.ok(evidence(limit.source, _watts(limit.get()), _watts(default.get())))
            continue
        verdict.finding(
            where,
            f"{_name(gpu)} may draw {_watts(limit.get())} of its default {_watts(default.get())}.",
            evidence(limit.source, _watts(limit.get()), _watts(default.get())),
            changes=[GpuSetting(gpu.address, "power-limit", str(default.get()))] if gpu.address else [],
        )
    return common.alike(verdict)


def _watts(milliwatts: int) -> str:
    return f"{milliwatts / 1000:g} W"


@row(
    "gpu.compute-mode",
    title="May programs compute on the GPU?",
    symptom="CUDA says that no device is available, or that all are busy.",
    cause="The compute mode Prohibited refuses every CUDA context.",
    severity="error",
    scope="runtime",
    risk="none",
    cost="none",
    sources=("NVML API reference: nvmlComputeMode_t",),
)
def compute_mode(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    if nothing is not None:
        return nothing
    verdict = Verdict()
    for where, gpu in common.each(machine):
        mode = gpu.compute_mode
        if common.judge_gaps(verdict, where, gpu, mode, "this GPU has no compute mode"):
            continue
        if mode.get() == "Prohibited":
            verdict.finding(
                where,
                "The compute mode is Prohibited: no CUDA program can use this GPU.",
                fact_evidence(mode, "Default"),
                changes=[GpuSetting(gpu.address, "compute-mode", "Default")] if gpu.address else [],
            )
        else:
            verdict.ok(fact_evidence(mode))
    return common.alike(verdict)


@row(
    "gpu.mig-pending",
    title="Does a change of the MIG mode wait for a reset?",
    symptom="The GPU is not divided as it was set, or still is.",
    cause="Before Hopper a change of the MIG mode takes effect only at a reset of the GPU.",
    severity="info",
    scope="hands",
    risk="A GPU reset ends the programs on it.",
    cost="none",
    sources=("NVIDIA MIG user guide: Enable MIG Mode", "NVML API reference: nvmlDeviceGetMigMode"),
)
def mig_pending(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    if nothing is not None:
        return nothing
    verdict = Verdict()
    for where, gpu in common.each(machine):
        if common.judge_gaps(verdict, where, gpu, gpu.mig, "this GPU has no MIG mode"):
            continue
        if common.judge_gaps(verdict, where, gpu, gpu.mig_pending, "this GPU has no MIG mode"):
            continue
        now, then = (("on" if fact.get() else "off") for fact in (gpu.mig, gpu.mig_pending))
        if now == then:
            verdict.ok(evidence(gpu.mig.source, f"MIG {now}"))
        else:
            verdict.finding(
                where,
                f"MIG mode is {now} and will be {then} after a reset.",
                evidence(gpu.mig.source, f"MIG {now}", f"MIG {then}"),
                advice="Stop the programs on this GPU, and reset it (nvidia-smi --gpu-reset), or reboot",
            )
    return common.alike(verdict)


@row(
    "gpu.busy",
    title="Who computes on the GPU?",
    symptom="Latency on a GPU comes and goes with somebody else's work.",
    cause="Programs that share a GPU take turns on it, a time slice each, unless MPS or MIG divides it.",
    severity="info",
    scope="service",
    risk="none",
    cost="none",
    sources=(
        "NVML API reference: nvmlDeviceGetComputeRunningProcesses",
        "NVIDIA MPS documentation: time-slicing",
    ),
)
def busy(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    if nothing is not None:
        return nothing
    verdict = Verdict()
    for where, gpu in common.each(machine):
        _busy(verdict, where, gpu, profile.gpu.shared)
    return verdict


def _busy(verdict: Verdict, where: str, gpu: Gpu, shared: bool) -> None:
    if common.judge_gaps(verdict, where, gpu, gpu.processes, "this GPU tells no processes"):
        return
    computing = {p.pid: p.name for p in gpu.processes.get() if p.kind == "compute"}
    who = ", ".join(f"{name or 'a process'} ({pid})" for pid, name in list(computing.items())[:4])
    if len(computing) > 4:
        who += f" and {len(computing) - 4} more"
    if len(computing) < 2 or shared or gpu.mig.value is True or _through_mps(computing):
        reason = f"{who} runs here; a measurement would disturb it, and be disturbed" if computing else ""
        verdict.ok(evidence(gpu.processes.source, who or "nothing computes"), reason=reason)
        return
    verdict.finding(
        where,
        f"{len(computing)} programs take turns on {common.label(gpu)}.",
        evidence(gpu.processes.source, who, "one program"),
        advice="Give the latency-critical program a GPU of its own, or divide this one with MIG or MPS",
    )


def _through_mps(computing: dict[int, str]) -> bool:
    return any("nvidia-cuda-mps" in name for name in computing.values())
