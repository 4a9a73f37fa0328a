"""Rows: memory that gives wrong bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.remediations._common import plural, size

if TYPE_CHECKING:
    from hwtune.diagnosis.verdict import Evidence
    from hwtune.fact import Fact
    from hwtune.model import Machine
    from hwtune.model.memory import EdacController, Memory, MemoryFault
    from hwtune.profile import Profile

    Counted = list[tuple[EdacController, Fact[int]]]

# How many DIMMs or lines of the log a finding shows.
_SHOWN = 8


@row(
    "memory.ecc-errors",
    title="Memory errors",
    symptom="Stalls while errors are corrected and logged, killed processes, crashes.",
    cause="A DIMM (or its contact) gives wrong bits: corrected ones cost time, uncorrected ones data.",
    severity="warning",
    scope="hands",
    risk="None for reading; replacing a DIMM needs the machine off.",
    cost="A DIMM.",
    sources=(
        "Linux Documentation/ABI/testing/sysfs-devices-edac",
        "Linux Documentation/admin-guide/RAS/main.rst",
        "Linux drivers/edac/edac_mc.c, the lines of the log",
    ),
)
def ecc_errors(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    memory = machine.memory
    _judge_uncorrected(verdict, memory)
    _judge_corrected(verdict, memory, profile.memory.ecc_corrected_max)
    if verdict.findings:
        return verdict
    for controller in memory.edac:
        for count in (controller.corrected, controller.uncorrected):
            if count.known:
                verdict.ok(fact_evidence(count, 0))
            else:
                verdict.unknown("memory", count)
    if not memory.edac:
        _without_counts(verdict, machine)
    return verdict


def _judge_uncorrected(verdict: Verdict, memory: Memory) -> None:
    faults = [fault for fault in memory.errors if not fault.corrected]
    counted = [(c, c.uncorrected) for c in memory.edac if c.uncorrected.known and c.uncorrected.get() > 0]
    items = [*_count_evidence(counted, 1), *_fault_evidence(faults)]
    lost = memory.meminfo.get().get("HardwareCorrupted", 0) if memory.meminfo.known else 0
    if lost:
        items.append(evidence(memory.meminfo.source, f"HardwareCorrupted {size(lost)}", "0"))
    count = max(sum(fact.get() for _, fact in counted), sum(fault.count for fault in faults))
    if count:
        where = _where(counted, 1, faults)
        more = ", and more than the hardware could note" if any(fault.overflow for fault in faults) else ""
        verdict.finding(
            "memory",
            f"{plural(count, 'uncorrected memory error')}{where}{more}: what was there is lost.",
            *items,
            advice="Take the machine out of service and replace the DIMM.",
            severity="error",
        )
    elif lost:
        verdict.finding(
            "memory",
            f"{size(lost)} of memory has been taken out of use, as the kernel does with pages that failed.",
            *items,
            advice="Look for Memory failure and EDAC in the logs of this boot, and replace the DIMM named.",
        )


def _judge_corrected(verdict: Verdict, memory: Memory, most: int) -> None:
    faults = [fault for fault in memory.errors if fault.corrected]
    counted = [(c, c.corrected) for c in memory.edac if c.corrected.known and c.corrected.get() > most]
    logged = sum(fault.count for fault in faults)
    repeats = [fault for fault in faults if any(n > 1 for n in fault.pages.values())]
    if not counted and logged <= most and not repeats:
        return
    count = max(sum(fact.get() for _, fact in counted), logged)
    if repeats:
        judgement = "One page failed more than once: that is a cell that fails, not chance."
    elif count == 1:
        judgement = "One alone is no fault; a repeat at the same page is."
    else:
        judgement = "Each one stops a CPU while it is handled."
    verdict.finding(
        "memory",
        f"{plural(count, 'corrected memory error')}{_where(counted, 0, faults)}. {judgement}",
        *_count_evidence(counted, 0, most),
        *_fault_evidence(faults),
        advice="Watch the count; replace the DIMM when it rises or one page repeats.",
    )


def _count_evidence(counted: Counted, place: int, expected: int = 0) -> list[Evidence]:
    """Controllers and their DIMMs; ``place`` is that of the count in a DIMM's pair."""
    items = []
    for controller, fact in counted:
        since = f" in {controller.seconds.get()} s" if controller.seconds.known else ""
        items.append(evidence(fact.source, f"{fact.get()}{since}", expected))
        for label, counts in list(controller.dimms.items())[:_SHOWN]:
            if counts[place]:
                items.append(evidence(f"{fact.source.rpartition('/')[0]} {label}", counts[place], expected))
    return items


def _fault_evidence(faults: list[MemoryFault]) -> list[Evidence]:
    return [evidence(fault.source, fault.line) for fault in faults[:_SHOWN]]


def _where(counted: Counted, place: int, faults: list[MemoryFault]) -> str:
    """ " at" the DIMMs, as the kernel calls them, or the controllers where no DIMM is named."""
    names: dict[str, None] = {}
    for controller, _ in counted:
        labels = [label for label, counts in controller.dimms.items() if counts[place]]
        names.update(dict.fromkeys(labels or [controller.name]))
    for fault in faults:
        if fault.where:
            pages = ", ".join(list(fault.pages)[:3])
            names[fault.where + (f" (page {pages})" if pages and fault.corrected else "")] = None
    if not names:
        return ""
    shown = list(names)
    return " at " + ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")


def _without_counts(verdict: Verdict, machine: Machine) -> None:
    listed = machine.memory.edac_listed
    if machine.virtualization.is_guest:
        verdict.not_applicable("a virtual machine does not see the errors of its host's memory")
    elif listed.unknown:
        verdict.unknown("memory", listed)
    else:
        verdict.unknown(
            "memory",
            f"{listed.source} has no memory controller: no EDAC driver counts errors here",
            remedy="load the EDAC driver of this CPU; memory without ECC has none and cannot tell",
        )
