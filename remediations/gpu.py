"""GPUs: the driver, and what it says went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.diagnosis.row import row
from hwtune.diagnosis.verdict import Verdict, evidence, fact_evidence
from hwtune.model.gpu import subject_at
from hwtune.remediations import _gpu_common as common
from hwtune.text import xid as xids

if TYPE_CHECKING:
    from hwtune.model import Machine
    from hwtune.model.gpu import Gpu, GpuEvent
    from hwtune.profile import Profile

_CATALOG = "NVIDIA Xid catalog: docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"

# What NVML's error at start means, and what to do (nvml.h, nvmlReturn_t).
_START_ERRORS = {
    "DRIVER_NOT_LOADED": (
        "the driver is not loaded",
        "Load the nvidia module, or reboot after installing the driver",
    ),
    "LIB_RM_VERSION_MISMATCH": (
        "the libraries and the loaded kernel module have different versions",
        "Reboot, so that the kernel module of the installed version is loaded",
    ),
    "LIBRARY_NOT_FOUND": (
        "the driver is loaded and its library libnvidia-ml.so.1 is not there",
        "Install the driver's libraries of the same version as the kernel module",
    ),
    "NO_PERMISSION": ("the device files may not be opened", ""),
    "IRQ_ISSUE": (
        "the driver gets no interrupts from a GPU",
        "Look at the kernel log, and check the GPU's slot and power",
    ),
}


@row(
    "gpu.driver",
    title="Is every GPU driven by NVIDIA's driver, and does the driver answer?",
    symptom="CUDA finds no device, or nvidia-smi fails or hangs.",
    cause="Without the driver, or with one whose parts do not fit together, no program can use the GPU.",
    severity="error",
    scope="boot",
    risk="Another driver version can change what programs on top of it need.",
    cost="none",
    sources=(
        "NVML API reference: nvmlReturn_t, nvmlInitWithFlags",
        "NVIDIA driver README: Known Issues, API mismatch",
        "L6.12:Documentation/ABI/testing/sysfs-bus-pci (driver)",
    ),
)
def driver(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    events = [e for e in machine.gpu.host.events if e.kind in ("mismatch", "init-failed")]
    if nothing is not None and not events:
        return nothing
    verdict = Verdict()
    _bound(verdict, machine)
    _answers(verdict, machine)
    for event in events:
        _complaint(verdict, machine, event)
    version = machine.gpu.host.driver_version
    if version.known:
        return verdict.ok(fact_evidence(version), reason=f"driver {version.get()}")
    if not verdict.findings and not verdict.unknowns and not verdict.good:
        for where, gpu in common.each(machine):
            common.unknown(verdict, where, gpu, gpu.driver)
    return verdict


def _bound(verdict: Verdict, machine: Machine) -> None:
    for where, gpu in common.each(machine):
        driver = gpu.driver
        if driver.known and driver.get() == "nvidia":
            verdict.ok(fact_evidence(driver, "nvidia"))
        elif driver.known:
            verdict.finding(
                where,
                f"{common.label(gpu)} is driven by {driver.get()}, which cannot run CUDA programs.",
                fact_evidence(driver, "nvidia"),
                advice="Install NVIDIA's driver, and keep the other from loading",
            )
        elif driver.absent:
            verdict.finding(
                where,
                f"{common.label(gpu)} has no driver.",
                fact_evidence(driver, "nvidia"),
                advice="Install NVIDIA's driver, or load it: modprobe nvidia",
            )
        elif gpu.source.startswith("/sys/") and not machine.gpu.host.driver_version.known:
            common.unknown(verdict, where, gpu, driver)


def _answers(verdict: Verdict, machine: Machine) -> None:
    host = machine.gpu.host
    bound = [where for where, gpu in common.each(machine) if gpu.driver.value == "nvidia"]
    where = bound[0] if bound else next((where for where, _ in common.each(machine)), "gpu:unknown")
    if host.nvml.known and (not host.nvml.get() or host.nvml_error):
        error = host.nvml_error
        text, advice = _START_ERRORS.get(
            error, (f"NVML says {error}", "Look at the kernel log for the driver's own words")
        )
        if " hung in " in error or " crashed in " in error:
            text = f"the driver does not answer: {error}"
            advice = "Look at the kernel log for an Xid, and reset the GPU or reboot"
        if error == "NO_PERMISSION":
            verdict.unknown(where, text, remedy="run as root")
            return
        verdict.finding(
            where, f"{text[:1].upper()}{text[1:]}.", evidence("NVML", error, "an answer"), advice=advice
        )
    elif host.nvml.known:
        verdict.ok(evidence("NVML", "answers"))
    elif bound and host.nvml.absent:
        verdict.finding(
            where,
            "The driver is bound to the GPU, and /proc/driver/nvidia and /dev/nvidiactl do not exist.",
            evidence("/proc/driver/nvidia", "absent", "present"),
            advice="Look at the kernel log for why the driver did not start",
        )
    elif bound and not host.driver_version.known:
        verdict.unknown(where, host.nvml)


def _complaint(verdict: Verdict, machine: Machine, event: GpuEvent) -> None:
    where = subject_at(machine.gpu.gpus, event.address) if event.address else "kernel"
    if event.kind == "mismatch":
        verdict.finding(
            where,
            "A program uses driver libraries of another version than the loaded kernel module.",
            evidence(event.source, event.line, "the same version"),
            advice="Reboot, so that the kernel module of the installed version is loaded",
        )
    else:
        verdict.finding(
            where,
            f"The driver could not initialize the GPU ({event.count} times in the log).",
            evidence(event.source, event.line),
            advice="Look at the lines around it in the kernel log; check the GPU's slot, power and firmware",
        )


@row(
    "gpu.lost",
    title="Has a GPU been lost?",
    symptom="A GPU is missing from nvidia-smi, its programs fail, and every query of it fails.",
    cause="The driver reads only ones from the GPU: its PCIe link is down, or it is dead or without power.",
    severity="error",
    scope="hands",
    risk="none",
    cost="The machine is down while it is powered off.",
    sources=(
        f"{_CATALOG} (Xid 79)",
        "NVIDIA open-gpu-kernel-modules: arch/nvalloc/unix/src/osinit.c (three lines without an Xid)",
        "NVML API reference: NVML_ERROR_GPU_IS_LOST",
    ),
)
def lost(machine: Machine, profile: Profile) -> Verdict:
    events = _lost_events(machine)
    nothing = common.nothing_to_judge(machine)
    if nothing is not None and not events:
        return nothing
    verdict = Verdict()
    advice = xids.meaning(79).step
    told = set()
    for where, said in events.items():
        told.add(where)
        verdict.finding(where, "The GPU has fallen off the bus.", *said, advice=advice)
    for where, gpu in common.each(machine):
        if where in told:
            continue
        if gpu.lost.value is True:
            verdict.finding(
                where,
                f"The driver says that {common.label(gpu)} is lost.",
                evidence(gpu.lost.source, "GPU is lost", "an answer"),
                advice=advice,
            )
        elif gpu.lost.known:
            verdict.ok(evidence(gpu.lost.source, "answers"))
        elif _missing(machine, gpu):
            verdict.finding(
                where,
                "The driver is bound to the GPU, and NVML does not list it.",
                evidence("nvmlDeviceGetCount", "not listed", "listed"),
                advice="Look at the kernel log for why the driver gave it up",
            )
        elif machine.gpu.host.log_known.known:
            verdict.ok(evidence(machine.gpu.host.log_known.source, "no loss in the kernel log"))
        else:
            common.unknown(verdict, where, gpu, gpu.lost, machine.gpu.host.log_known)
    return verdict


def _lost_events(machine: Machine) -> dict[str, list]:  # type: ignore[type-arg]
    """Subject -> the log's lines that tell of the loss."""
    found: dict[str, list] = {}  # type: ignore[type-arg]
    for event in machine.gpu.host.events:
        if event.kind == "lost" or (event.kind == "xid" and 79 in (event.xid, event.caused_by)):
            where = subject_at(machine.gpu.gpus, event.address) if event.address else "gpu:unknown"
            found.setdefault(where, []).append(evidence(event.source, event.line))
    failed = [e for e in machine.gpu.host.events if e.kind == "probe-failed"]
    if found and failed:
        next(iter(found.values())).append(evidence(failed[0].source, failed[0].line))
    return found


def _missing(machine: Machine, gpu: Gpu) -> bool:
    """NVML answered, and this GPU on its bus is none of its own. A container is shown only some of
    the GPUs, so nothing follows there."""
    return (
        machine.gpu.host.nvml.value is True
        and not machine.gpu.host.nvml_error
        and gpu.driver.value == "nvidia"
        and gpu.index is None
        and machine.virtualization.is_container is False
    )


@row(
    "gpu.xid",
    title="Has the driver reported errors (Xid) of a GPU?",
    symptom="A program stops with a CUDA error, hangs, or a GPU becomes slow or unusable.",
    cause="An Xid is the driver's report of a fault: of a program, the driver, memory, a link or the GPU.",
    severity="warning",
    scope="hands",
    risk="A GPU reset ends the programs on it.",
    cost="none",
    sources=(_CATALOG, "docs.nvidia.com/deploy/gpu-debug-guidelines"),
)
def xid(machine: Machine, profile: Profile) -> Verdict:
    host = machine.gpu.host
    by_gpu: dict[str, list[GpuEvent]] = {}
    for event in host.events:
        if event.kind == "xid" and event.xid is not None and event.xid not in xids.TESTS:
            by_gpu.setdefault(event.address or "", []).append(event)
    if not by_gpu:
        nothing = common.nothing_to_judge(machine)
        if nothing is not None:
            return nothing
        if not host.log_known.known:
            return Verdict().unknown("kernel", host.log_known)
        return Verdict().ok(evidence(host.log_known.source, "no Xid in the log"))
    verdict = Verdict()
    for address, events in by_gpu.items():
        _errors(verdict, subject_at(machine.gpu.gpus, address) if address else "gpu:unknown", events)
    return verdict


def _errors(verdict: Verdict, where: str, events: list[GpuEvent]) -> None:
    """One finding for a GPU: the causes in their order, then what only followed from them."""
    roots = [e for e in events if e.xid not in xids.CONSEQUENCES]
    followed = [e for e in events if e.xid in xids.CONSEQUENCES]
    logged = {e.xid for e in roots}
    named = {e.caused_by: e for e in followed if e.caused_by is not None and e.caused_by not in logged}
    parts = [f"Xid {e.xid} ({xids.meaning(e.xid or 0).name}){_times(e.count)}" for e in roots]
    parts += [
        f"Xid {number} ({xids.meaning(number).name}), which the log names as the cause of later ones"
        for number in named
    ]
    if not parts:
        if all(e.xid == 45 for e in followed):
            verdict.ok(
                *(evidence(e.source, e.line) for e in followed),
                reason="Xid 45 alone is the clean-up after a program that ended or was killed",
            )
            return
        parts = [
            f"Xid {e.xid} ({xids.meaning(e.xid or 0).name}): {e.detail}" for e in followed if e.xid != 45
        ]
    message = ", then ".join(parts) + "."
    if followed and (roots or named):
        numbers = ", ".join(str(number) for number in sorted({e.xid for e in followed if e.xid}))
        message += f" Xid {numbers} ({_count(followed)}) only followed from it."
    meanings = [xids.meaning(number) for number in (*(e.xid or 0 for e in roots), *named)]
    meanings = meanings or [xids.meaning(e.xid or 0) for e in followed]
    worst = max(meanings, key=lambda m: ("info", "warning", "error").index(m.severity))
    verdict.finding(
        where,
        message,
        *(evidence(e.source, e.line) for e in (*roots, *followed)),
        advice=_advice(meanings, worst),
        severity=worst.severity,
    )


def _advice(meanings: list[xids.XidMeaning], worst: xids.XidMeaning) -> str:
    """The step of the gravest; among equals the first is the cause. Where a program's fault came
    first, it is to be looked at first, and no hardware is blamed."""
    if worst.severity != "error" and meanings[0].area == xids.PROGRAM:
        return meanings[0].step
    return worst.step


def _times(count: int) -> str:
    return "" if count == 1 else f" {count} times"


def _count(events: list[GpuEvent]) -> str:
    total = sum(e.count for e in events)
    return "once" if total == 1 else f"{total} times"


@row(
    "gpu.recovery-action",
    title="Does the driver ask for a reset or a reboot?",
    symptom="New programs on the GPU fail, or run with less than the whole GPU.",
    cause="After some errors the driver knows what is needed before the GPU is whole again.",
    severity="error",
    scope="hands",
    risk="A GPU reset ends the programs on it; a reboot all of them.",
    cost="none",
    sources=(
        "docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt: Error Recovery and Response Flags",
        "NVML API reference: NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",
    ),
)
def recovery_action(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    if nothing is not None:
        return nothing
    verdict = Verdict()
    for where, gpu in common.each(machine):
        action = gpu.recovery_action
        if common.judge_gaps(verdict, where, gpu, action, "this GPU or its driver tells no recovery action"):
            continue
        if action.get().lower() == "none":
            verdict.ok(fact_evidence(action, "None"))
        else:
            verdict.finding(
                where,
                f"The driver asks for: {action.get()}.",
                fact_evidence(action, "None"),
                advice=_RECOVERY.get(action.get().lower(), "Do what the driver asks for, then look again"),
            )
    return verdict


_RECOVERY = {
    "gpu reset": "Stop the programs on this GPU, and reset it: nvidia-smi --gpu-reset",
    "reset": "Stop the programs on this GPU, and reset it: nvidia-smi --gpu-reset",
    "node reboot": "Reboot the machine",
    "reboot": "Reboot the machine",
    "system reboot": "Reboot the machine",
    "drain p2p": "Stop the programs that use this GPU from other GPUs",
    "drain and reset": "Let the programs on this GPU end, start no new ones, and reset it",
    "bus reset": "Stop the programs on this GPU, and reset it through its bus",
}
