"""NVLink: the links between GPUs, what manages them, and what switches them off."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hwtune.changes import ModuleOption, UnitState
from hwtune.diagnosis.row import row
from hwtune.diagnosis.verdict import Evidence, Verdict, evidence, fact_evidence
from hwtune.model.gpu import subject, subject_at
from hwtune.remediations import _gpu_common as common
from hwtune.text import nccl_env
from hwtune.text import xid as xids

if TYPE_CHECKING:
    from hwtune.model import Machine
    from hwtune.model.gpu import Gpu, NvLink
    from hwtune.profile import Profile

_RESET = (
    "Reset the GPU, or reboot; if the links stay down, look at the kernel log and the fabric manager, "
    "then ask the vendor"
)

# Products on a board whose NVLinks are wired to a switch or to the other GPUs: SXM modules and
# their kind. A PCIe card has links only where somebody put a bridge on it.
_WIRED = r"SXM|HBM3$|\bH200$|\bH20$|\bH800$|\bB[23]00\b|\bGB[23]00\b"
_BRIDGED = r" NVL\b"  # sold in pairs or fours with their bridges
# The fabric manager is for NVSwitch; these have none of it, but links wired from GPU to GPU.
_WITHOUT_SWITCH = r"V100|P100"


@row(
    "nvlink.inactive",
    title="Are the NVLinks up that this product should have?",
    symptom="Transfers between GPUs are slower than on another machine of the kind, or go over PCIe.",
    cause="A link that is down takes its share of the bandwidth with it; all of them down leaves PCIe.",
    severity="error",
    scope="hands",
    risk="A GPU reset ends the programs on it.",
    cost="none",
    sources=(
        "NVML API reference: nvmlDeviceGetNvLinkState, NVML_FI_DEV_NVLINK_GET_STATE",
        "docs.nvidia.com/health-validation: nvlink_active",
        "Azure/azurehpc-health-checks #162 (links that are inactive by design)",
    ),
)
def inactive(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    if nothing is not None:
        return nothing
    verdict = Verdict()
    for where, gpu in common.each(machine):
        if gpu.mig.value is True:
            verdict.not_applicable("a GPU in MIG mode has no NVLink")
        elif gpu.nvlinks_all_inactive.value is True:
            _all_inactive(verdict, where, gpu, machine, None)
        elif gpu.nvlinks.known:
            _links(verdict, where, gpu, machine)
        elif gpu.nvlinks.absent:
            verdict.not_applicable("this GPU has no NVLink")
        else:
            _unlisted(verdict, where, gpu, machine)
    return verdict


def _up(gpu: Gpu) -> list[NvLink]:
    return [link for link in gpu.nvlinks.value or [] if link.active.value is True]


def _alone(gpu: Gpu, machine: Machine) -> bool:
    """It is known that there is no other GPU to link with."""
    return machine.gpu.host.listed.known and len(common.nvidia(machine)) == 1 and gpu.index in (0, None)


def _links(verdict: Verdict, where: str, gpu: Gpu, machine: Machine) -> None:
    links, up = gpu.nvlinks.get(), _up(gpu)
    down = [link.link for link in links if link.active.value is False]
    shown = evidence(gpu.nvlinks.source, f"{len(up)} of {len(links)} active{_speed(up)}")
    if not down:
        verdict.ok(shown)
        return
    if not up:
        _all_inactive(verdict, where, gpu, machine, len(links))
        return
    most = max(len(_up(other)) for other in _peers(gpu, machine))
    if len(up) < most:
        _some_inactive(verdict, where, gpu, down, f"{most}, as another {common.label(gpu)} here has")
    elif (
        _wired(gpu)
        and not re.search(_WITHOUT_SWITCH, gpu.name.value or "")
        and not common.is_guest(machine, gpu)
    ):
        _some_inactive(verdict, where, gpu, down, f"{len(links)}, as all links of this product are wired")
    else:
        verdict.ok(shown, reason="the same links are inactive on every GPU of the kind, which is by design")


def _some_inactive(verdict: Verdict, where: str, gpu: Gpu, down: list[int], expected: str) -> None:
    links, up = gpu.nvlinks.get(), _up(gpu)
    verdict.finding(
        where,
        f"{len(down)} of {len(links)} NVLinks are inactive: {_join(down)}.{_bandwidth(up, len(links))}",
        evidence(gpu.nvlinks.source, f"{len(up)} of {len(links)} active; inactive: {_join(down)}", expected),
        advice=_RESET,
    )


def _all_inactive(verdict: Verdict, where: str, gpu: Gpu, machine: Machine, count: int | None) -> None:
    fact = gpu.nvlinks if count is not None else gpu.nvlinks_all_inactive
    name = gpu.name.value or ""
    shown = evidence(fact.source, "all inactive", "active")
    if _alone(gpu, machine):
        verdict.not_applicable("there is one GPU, and no other to link with")
    elif _wired(gpu) or _log_evidence(machine):
        guest = common.is_guest(machine, gpu)
        verdict.finding(
            where if gpu.labelled or not _log_evidence(machine) else "gpu:unknown",
            "All NVLinks are inactive."
            + ("" if gpu.labelled else " The text does not say of which GPU.")
            + _log_says(machine),
            shown,
            *_log_evidence(machine),
            advice=_RESET,
            severity="warning" if guest and not _log_evidence(machine) else "error",
        )
    elif not name:
        reason = (
            f"{fact.source}: all NVLinks are inactive, which is a fault of an SXM product and right for a "
            "card without a bridge; the product's name is not here"
        )
        common.note(verdict, where, reason, common.NVIDIA_SMI_Q)
    elif re.search(_BRIDGED, name) or any(_up(other) for other in _peers(gpu, machine)):
        verdict.finding(
            where,
            f"All NVLinks are inactive; a {name} has them over bridges to its neighbours.",
            shown,
            advice="Reboot, and if they stay down check that the bridges are fitted and seated",
            severity="warning" if re.search(_BRIDGED, name) else "info",
        )
    else:
        verdict.not_applicable("no NVLink bridge is fitted")


def _peers(gpu: Gpu, machine: Machine) -> list[Gpu]:
    return [other for other in common.nvidia(machine) if other.name.value == gpu.name.value]


def _wired(gpu: Gpu) -> bool:
    return bool(re.search(_WIRED, gpu.name.value or ""))


def _log_evidence(machine: Machine) -> list[Evidence]:
    """The Xids of NVLink in the kernel log, or named by it as causes."""
    found = []
    for event in machine.gpu.host.events:
        numbers = [number for number in (event.xid, event.caused_by) if number is not None]
        if event.kind == "xid" and any(xids.meaning(number).area == xids.NVLINK for number in numbers):
            found.append(evidence(event.source, event.line))
    return found


def _log_says(machine: Machine) -> str:
    told: dict[str, None] = {}
    for event in machine.gpu.host.events:
        for number in (event.xid, event.caused_by):
            if number is not None and xids.meaning(number).area == xids.NVLINK:
                told[f"Xid {number} of {subject_at(machine.gpu.gpus, event.address or '')}"] = None
    return f" The kernel log tells of {_join(list(told))}." if told else ""


def _speed(up: list[NvLink]) -> str:
    speeds = {link.speed_mbps.get() for link in up if link.speed_mbps.known}
    return f" at {speeds.pop() / 1000:g} GB/s" if len(speeds) == 1 else ""


def _bandwidth(up: list[NvLink], count: int) -> str:
    """What is left of the bandwidth, where all active links have one speed."""
    speeds = {link.speed_mbps.get() for link in up if link.speed_mbps.known}
    if len(speeds) != 1:
        return ""
    each = speeds.pop() / 1000
    return f" That leaves {each * len(up):.1f} of {each * count:.1f} GB/s."


def _join(items: list[int] | list[str]) -> str:
    return ", ".join(str(item) for item in items)


def _unlisted(verdict: Verdict, where: str, gpu: Gpu, machine: Machine) -> None:
    """No list of links: a matrix of the topology may still show that there are some, or none."""
    pairs = [
        p
        for p in machine.gpu.host.pairs
        if p.first.startswith("GPU") and p.second.startswith("GPU") and p.path
    ]
    mine = [pair for pair in pairs if f"GPU{gpu.index}" in (pair.first, pair.second)]
    linked = [pair for pair in mine if pair.path.startswith("NV")]
    if linked:
        verdict.ok(
            evidence(linked[0].source, f"{linked[0].path} to {len(linked)} of {len(mine)} GPUs"),
            reason="the matrix of the topology shows NVLink to the other GPUs",
        )
    elif mine and _wired(gpu):
        verdict.finding(
            where,
            f"No NVLink to any of the {len(mine)} other GPUs, though the product is made for it.",
            evidence(mine[0].source, mine[0].path, "NV#"),
            advice=_RESET,
        )
    elif mine and gpu.name.known:
        verdict.not_applicable("this product has no NVLink, or no bridge is fitted")
    elif mine:
        every = [pair for pair in pairs if pair.path.startswith("NV")]
        reason = (
            f"{mine[0].source}: {len(every)} of {len(pairs)} GPU pairs have NVLink, which is a fault of an "
            "SXM product and right for a PCIe card; the product's name is not here"
        )
        common.note(verdict, where, reason, "add the output of nvidia-smi -q")
    elif _alone(gpu, machine):
        verdict.not_applicable("there is one GPU, and no other to link with")
    else:
        common.unknown(verdict, where, gpu, gpu.nvlinks)


@row(
    "nvlink.errors",
    title="Do NVLinks have errors?",
    symptom="Collective operations stall now and then, or end with an NVLink error.",
    cause="A link that had to be recovered stood still meanwhile; corrupted packets are sent again.",
    severity="warning",
    scope="hands",
    risk="none",
    cost="none",
    sources=(
        "NVML API reference: nvmlNvLinkErrorCounter_t, NVML_FI_DEV_NVLINK_COUNT_*",
        "NVIDIA Fabric Manager user guide: SXid errors",
    ),
)
def errors(machine: Machine, profile: Profile) -> Verdict:
    switch = [event for event in machine.gpu.host.events if event.kind == "sxid"]
    nothing = common.nothing_to_judge(machine)
    if nothing is not None and not switch:
        return nothing
    verdict = Verdict()
    for event in switch:
        verdict.finding(
            f"pci:{event.address}" if event.address else "kernel",
            f"An NVSwitch reports SXid {event.xid}{_times(event.count)}"
            + (f" ({event.detail})." if event.detail else "."),
            evidence(event.source, event.line),
            advice="Look the SXid up in the Fabric Manager user guide, and drain the machine if it is fatal",
            severity="error" if event.detail == "fatal" else "warning",
        )
    for where, gpu in common.each(machine):
        if gpu.mig.value is True:
            verdict.not_applicable("a GPU in MIG mode has no NVLink")
        elif not common.judge_gaps(verdict, where, gpu, gpu.nvlinks, "this GPU has no NVLink"):
            _errors(verdict, where, gpu)
    return verdict


def _times(count: int) -> str:
    return "" if count == 1 else f" {count} times"


# Counters that tell of a link that stood still or lost data; the others (replays, CRC) are
# repaired on the way and are told as evidence.
_GRAVE = ("recovery", "recovery_failed", "malformed_packets", "buffer_overruns", "link_integrity")


def _errors(verdict: Verdict, where: str, gpu: Gpu) -> None:
    links = [link for link in gpu.nvlinks.get() if link.errors.known]
    if not links:
        counters = [link.errors for link in gpu.nvlinks.get()]
        if counters and all(fact.absent for fact in counters):
            verdict.not_applicable("this GPU counts no errors of its links")
        else:
            common.unknown(verdict, where, gpu, *counters[:1])
        return
    grave = {
        link.link: {name: count for name, count in link.errors.get().items() if name in _GRAVE and count}
        for link in links
    }
    bad = {number: counts for number, counts in grave.items() if counts}
    total = sum(count for link in links for count in link.errors.get().values())
    if bad:
        shown = "; ".join(
            f"link {n}: {', '.join(f'{k} {v}' for k, v in counts.items())}" for n, counts in bad.items()
        )
        verdict.finding(
            where,
            f"{len(bad)} of {len(links)} NVLinks had to be recovered or lost packets since the last reset.",
            evidence(links[0].errors.source, shown, "0"),
            advice="Watch whether the counters grow under load; if they do, have the link looked at",
        )
    else:
        reason = (
            f"{total} packets were sent again or corrected, which costs nothing but time" if total else ""
        )
        verdict.ok(evidence(links[0].errors.source, f"{total} errors on {len(links)} links"), reason=reason)


def _unset(name: str, source: str) -> str:
    """How to be rid of a variable: a pasted environment is not the place where it is set."""
    if source.startswith("/"):
        return f"Remove {name} from {source}, and from the environment of the programs"
    return f"Unset {name} in the environment of the programs"


@row(
    "nvlink.disabled-by-env",
    title="Is direct transfer between GPUs switched off by a setting?",
    symptom="NCCL goes through host memory although the links are up.",
    cause="An environment variable, or an option of the driver, that somebody once set switches it off.",
    severity="warning",
    scope="service",
    risk="none",
    cost="none",
    sources=(
        "NCCL user guide: NCCL_P2P_DISABLE, NCCL_P2P_LEVEL",
        "NCCL src/graph/paths.cc (ncclTopoCheckP2p), src/misc/param.cc",
        "NVIDIA open-gpu-kernel-modules: kernel-open/nvidia/nv-reg.h (NvLinkDisable)",
    ),
)
def disabled_by_env(machine: Machine, profile: Profile) -> Verdict:
    host = machine.gpu.host
    verdict = Verdict()
    for name, settings in host.environment.items():
        for source, value in settings:
            effect = nccl_env.p2p_disabled(name, value)
            if effect:
                verdict.finding(
                    "process:nccl",
                    f"{name}={value} {effect}.",
                    evidence(source, f"{name}={value}", "not set"),
                    advice=_unset(name, source),
                )
    _nvlink_disabled(verdict, machine)
    if verdict.findings:
        return verdict
    nothing = common.nothing_to_judge(machine)
    if nothing is not None and not host.environment_known.known:
        return nothing
    if nothing is not None and not host.environment:
        return nothing
    if host.environment_known.known:
        verdict.ok(evidence(host.environment_known.source, "nothing that turns peer-to-peer off"))
    else:
        verdict.unknown(
            "process:nccl", host.environment_known, remedy="add the output of env, and /etc/nccl.conf"
        )
    return verdict


def _nvlink_disabled(verdict: Verdict, machine: Machine) -> None:
    parameters = machine.gpu.host.driver_parameters
    in_force = (parameters.value or {}).get("NvLinkDisable", "0") != "0"
    # of an option that is given twice, in the order of the files' names, the module takes the last
    set_in = list(machine.gpu.host.module_options.get("NVreg_NvLinkDisable", []))[-1:]
    set_in += [("/proc/cmdline", v) for v in machine.kernel.argument_values("nvidia.NVreg_NvLinkDisable")]
    set_in = [(source, value) for source, value in set_in if value != "0"]
    if not in_force and not set_in:
        return
    shown = [evidence(source, f"NVreg_NvLinkDisable={value}", "not set") for source, value in set_in]
    if in_force:
        shown.insert(0, evidence(parameters.source, "NvLinkDisable: 1", "NvLinkDisable: 0"))
    gpus = common.nvidia(machine)
    verdict.finding(
        subject(machine.gpu.gpus, gpus[0]) if gpus else "kernel",
        "The driver is told not to initialize NVLink" + ("." if in_force else ", from its next load on."),
        *shown,
        changes=[ModuleOption("nvidia", "NVreg_NvLinkDisable", "0")],
        advice=f"Remove the option from {set_in[0][0]}" if set_in else "",
    )


@row(
    "nvlink.ignored-variable",
    title="Is a variable set that NCCL does not know?",
    symptom="A setting that was meant to turn NVLink on or off has no effect.",
    cause="The variable is in scripts and articles, and not in NCCL.",
    severity="info",
    scope="service",
    risk="none",
    cost="none",
    sources=("NCCL 2.30 source: every NCCL_PARAM and ncclGetEnv", "NCCL user guide: Environment Variables"),
)
def ignored_variable(machine: Machine, profile: Profile) -> Verdict:
    host = machine.gpu.host
    verdict = Verdict()
    for name, why in nccl_env.IGNORED.items():
        for source, value in host.environment.get(name, []):
            verdict.finding(
                "process:nccl",
                f"{name}={value} has no effect: {why}.",
                evidence(source, f"{name}={value}", "not set"),
                advice=f"{_unset(name, source)}; what NCCL reads is NCCL_P2P_DISABLE and NCCL_P2P_LEVEL",
            )
    if verdict.findings:
        return verdict
    nothing = common.nothing_to_judge(machine)
    if nothing is not None and not host.environment:
        return nothing
    if host.environment_known.known:
        return verdict.ok(evidence(host.environment_known.source, "none of them"))
    return verdict.unknown(
        "process:nccl", host.environment_known, remedy="add the output of env, and /etc/nccl.conf"
    )


@row(
    "nvlink.fabric-manager",
    title="Is the NVLink fabric up, and what manages it?",
    symptom="CUDA fails with error 802 (system not yet initialized), or all NVLinks are inactive.",
    cause="On a board with NVSwitch the fabric manager must set the switches up before GPUs can use them.",
    severity="error",
    scope="service",
    risk="Starting it again while programs use the links can end them.",
    cost="none",
    sources=(
        "NVIDIA Fabric Manager user guide",
        "NVML API reference: nvmlGpuFabricInfo_v3_t",
        "NVIDIA/NVSentinel #883 (the states of the fabric)",
    ),
)
def fabric_manager(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    if nothing is not None:
        return nothing
    verdict = Verdict()
    unit = _unit(verdict, machine)
    for where, gpu in common.each(machine):
        _fabric(verdict, where, gpu, unit)
    return verdict


def _unit(verdict: Verdict, machine: Machine) -> bool | None:
    """Whether the fabric manager runs, noted where this machine has switches to manage."""
    switches = machine.gpu.host.nvswitches
    services = machine.service
    here = services.find("nvidia-fabricmanager")
    running = here.active.value if here is not None else None
    if not switches.known or switches.get() == 0:
        return running
    # A container (of the GPU operator, say) may run it where no unit tells.
    up = [gpu for gpu in common.nvidia(machine) if gpu.fabric_state.value == "Completed"]
    wanted = fact_evidence(switches), f"the board has {switches.get()} NVSwitches"
    if here is not None and running is True:
        verdict.ok(fact_evidence(here.active, "active"))
    elif up:
        verdict.ok(fact_evidence(up[0].fabric_state, "Completed"))
    elif here is not None and here.active.known:
        verdict.finding(
            "service:nvidia-fabricmanager",
            f"The fabric manager does not run, and {wanted[1]}.",
            fact_evidence(here.active, "active"),
            wanted[0],
            changes=[UnitState("nvidia-fabricmanager.service", "started")],
        )
    elif here is None and services.listed.known:
        verdict.finding(
            "service:nvidia-fabricmanager",
            f"The fabric manager is not installed, and {wanted[1]}.",
            evidence(services.listed.source, "no nvidia-fabricmanager.service", "installed"),
            wanted[0],
            advice="Install nvidia-fabricmanager of the driver's version, and start it",
        )
    else:
        fact = here.active if here is not None else services.listed
        verdict.unknown("service:nvidia-fabricmanager", fact, remedy="run hwtune on the machine itself")
    return running


def _fabric(verdict: Verdict, where: str, gpu: Gpu, running: bool | None) -> None:
    state = gpu.fabric_state
    if common.judge_gaps(verdict, where, gpu, state, "this GPU is part of no NVLink fabric"):
        return
    if state.get() != "Completed":
        verdict.finding(
            where,
            f"The fabric is not set up: {state.get()}.",
            fact_evidence(state, "Completed"),
            changes=[] if running else [UnitState("nvidia-fabricmanager.service", "started")],
            advice="Look at /var/log/fabricmanager.log; its version must be the driver's" if running else "",
        )
        return
    status, health = gpu.fabric_status, gpu.fabric_health
    if status.known and status.get() != "Success":
        verdict.finding(
            where,
            f"The GPU could not join the fabric: {status.get()}.",
            fact_evidence(status, "Success"),
            advice="Look at /var/log/fabricmanager.log, and compare its version with the driver's",
        )
        return
    if health.known and health.get() != "Healthy":
        problems = gpu.fabric_problems.value or []
        verdict.finding(
            where,
            f"The fabric of this GPU is {health.get().lower()}"
            + (f": {', '.join(problems)}." if problems else "."),
            fact_evidence(health, "Healthy"),
            advice="Drain this GPU, look at the fabric manager's log, and reset the GPU",
            severity="error" if health.get() == "Unhealthy" else "warning",
        )
        return
    if common.judge_gaps(verdict, where, gpu, status, "the fabric tells no status"):
        return
    verdict.ok(fact_evidence(state, "Completed"), fact_evidence(status, "Success"))
