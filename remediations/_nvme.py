"""What the rows on NVMe drives share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwtune.diagnosis import Verdict
    from hwtune.fact import Fact
    from hwtune.model import Machine
    from hwtune.model.storage import NvmeController

SPEC = "NVM Express Base Specification 2.0"

NONE = "this machine has no NVMe drive"


def subject(controller: NvmeController) -> str:
    return f"nvme:{controller.name}"


def drives(machine: Machine, verdict: Verdict) -> list[NvmeController]:
    """The controllers of this machine's own drives; where there are none, the verdict says why."""
    nvme = machine.nvme
    found = []
    for controller in nvme.controllers:
        if controller.transport.known and controller.transport.get() != "pcie":
            verdict.not_applicable(f"{controller.name} is reached over {controller.transport.get()}")
        else:
            found.append(controller)
    if not nvme.controllers:
        if nvme.listed.unknown:
            verdict.unknown("nvme:*", nvme.listed)
        else:
            verdict.not_applicable(NONE)
    return found


def unknown(verdict: Verdict, controller: NvmeController, *facts: Fact[Any]) -> None:
    """Not known of this drive, and what would help."""
    missing = [fact for fact in facts if not fact.known]
    remedy = ""
    if any(fact.gap == "unreadable" and "there is no /dev/" in fact.detail for fact in missing):
        remedy = "run it outside the container, where the drive's device is"
    verdict.unknown(subject(controller), *missing, remedy=remedy)


def each(judge: Callable[[Verdict, NvmeController], None], machine: Machine, verdict: Verdict) -> Verdict:
    for controller in drives(machine, verdict):
        judge(verdict, controller)
    return verdict


def kernel_name(controller: NvmeController) -> bool:
    """Whether its name is the kernel's, and not that of a pasted text."""
    return controller.name.startswith("nvme") and controller.name[4:].isdecimal()
