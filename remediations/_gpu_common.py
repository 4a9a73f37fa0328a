"""What the rows about GPUs share: which GPUs there are to judge, and how they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.diagnosis.verdict import Verdict
from hwtune.fact import DENIED, NOT_CAPTURED, NOT_PROBED
from hwtune.model.gpu import subject
from hwtune.text.cpulist import format_list, parse_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hwtune.diagnosis.verdict import Finding
    from hwtune.fact import Fact
    from hwtune.model import Machine
    from hwtune.model.gpu import Gpu

NVIDIA_SMI_Q = "add the output of nvidia-smi -q, or run hwtune on the machine itself"
# Drivers that keep a GPU for a virtual machine: what it does is the guest's to judge.
_FOR_GUESTS = ("vfio-pci", "pci-stub", "xen-pciback")


def nvidia(machine: Machine) -> list[Gpu]:
    """The GPUs whose state NVIDIA's driver of this machine can tell."""
    return [gpu for gpu in machine.gpu.gpus if gpu.vendor == "nvidia" and gpu.driver.value not in _FOR_GUESTS]


def nothing_to_judge(machine: Machine) -> Verdict | None:
    """The verdict where there is no such GPU, or where it is not known; None where there is one."""
    if nvidia(machine):
        return None
    verdict = Verdict()
    if any(gpu.vendor == "nvidia" for gpu in machine.gpu.gpus):
        return verdict.not_applicable("the GPUs are given to virtual machines (vfio)")
    listed = machine.gpu.host.listed
    if listed.known:
        return verdict.not_applicable("there is no NVIDIA GPU here")
    return verdict.unknown("gpu:unknown", listed, remedy=NVIDIA_SMI_Q)


def each(machine: Machine) -> Iterator[tuple[str, Gpu]]:
    """Every GPU to judge, with its subject."""
    for gpu in nvidia(machine):
        yield subject(machine.gpu.gpus, gpu), gpu


def label(gpu: Gpu) -> str:
    """A GPU in a sentence: its name, else what it is."""
    return gpu.name.value or "the GPU"


def is_guest(machine: Machine, gpu: Gpu) -> bool | None:
    """Whether this is a virtual machine: its own signs, or that the driver says so of the GPU."""
    if machine.virtualization.is_guest is not None:
        return machine.virtualization.is_guest
    if gpu.virtualization.value in ("pass-through", "vgpu"):
        return True
    return None


def judge_gaps(verdict: Verdict, where: str, gpu: Gpu, fact: Fact[Any], what: str) -> bool:
    """Note a gap: an absence is that the GPU has no such thing (``what``). False where the fact is
    known."""
    if fact.known:
        return False
    if fact.absent:
        verdict.not_applicable(what)
    else:
        unknown(verdict, where, gpu, fact)
    return True


def unknown(verdict: Verdict, where: str, gpu: Gpu, *facts: Fact[Any]) -> None:
    """Facts of a GPU that are not known."""
    reasons = [_why(gpu, fact) for fact in facts]
    remedy = ""
    if any(fact.gap in (NOT_PROBED, NOT_CAPTURED) for fact in facts):
        remedy = NVIDIA_SMI_Q
    elif any(fact.gap == DENIED for fact in facts):
        remedy = "run as root"
    note(verdict, where, "; ".join(dict.fromkeys(reasons)), remedy)


def _why(gpu: Gpu, fact: Fact[Any]) -> str:
    if fact.gap == NOT_PROBED:
        # The folder of all devices, so that GPUs of which the same is not known are noted as one.
        source = gpu.source.rpartition("/")[0] if gpu.source.startswith("/") else gpu.source
        return f"{source} does not tell it"
    if fact.gap == NOT_CAPTURED and fact.detail and not fact.source.startswith("/"):
        return f"{fact.source} has no {fact.detail}"
    return fact.why()


def note(verdict: Verdict, where: str, reason: str, remedy: str = "") -> None:
    """Something unknown of a GPU; the same of several GPUs is noted as one."""
    for noted in verdict.unknowns:
        if (noted.reason, noted.remedy) == (reason, remedy):
            noted.subject = _both(noted.subject, where)
            return
    verdict.unknown(where, reason, remedy=remedy)


def alike(verdict: Verdict) -> Verdict:
    """The verdict with findings of several GPUs that say the same made into one."""
    kept: dict[tuple[object, ...], Finding] = {}
    for finding in verdict.findings:
        shown = tuple((item.value, item.expected) for item in finding.evidence)
        first = kept.setdefault((finding.message, shown, finding.advice, finding.severity), finding)
        if first is finding:
            continue
        first.subject = _both(first.subject, finding.subject)
        first.evidence += [item for item in finding.evidence if item not in first.evidence]
        first.changes += [change for change in finding.changes if change not in first.changes]
    verdict.findings = list(kept.values())
    return verdict


def _both(first: str, second: str) -> str:
    """gpu:0 and gpu:1 are gpu:0-1; what has no index is named beside."""
    kinds = first.partition(":"), second.partition(":")
    try:
        numbers = [parse_list(number) for kind, _, number in kinds if kind == "gpu"]
    except ValueError:
        numbers = []
    if len(numbers) == 2 and first != second:
        return f"gpu:{format_list({*numbers[0], *numbers[1]})}"
    return first if first == second else f"{first}, {second}"
