"""GPUs: their memory's errors, and what became of the faulty cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.diagnosis.row import row
from hwtune.diagnosis.verdict import Verdict, evidence, fact_evidence
from hwtune.remediations import _gpu_common as common

if TYPE_CHECKING:
    from hwtune.model import Machine
    from hwtune.model.gpu import Gpu
    from hwtune.profile import Profile

_MEMORY = "docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt (GPU Memory Error Management)"
_RETIREMENT = "docs.nvidia.com/deploy/dynamic-page-retirement"
_RESET = "Stop the programs on this GPU, and reset it (nvidia-smi --gpu-reset), or reboot"


def errors(counts: dict[str, int], when: str, correctable: bool) -> int:
    """The sum of one kind, "volatile" (since the driver was loaded) or "aggregate" (for life).

    Old GPUs count single and double bit errors by place with a total; newer ones by DRAM and
    SRAM, where NVML has a total beside.
    """
    words = ("_correctable", "single_bit") if correctable else ("_uncorrectable", "double_bit")
    mine = {
        key: value
        for key, value in counts.items()
        if key.startswith(f"{when}.") and any(word in f"_{key.partition('.')[2]}" for word in words)
    }
    totals = [value for key, value in mine.items() if key.endswith(("_total", ".total"))]
    parts = sum(value for key, value in mine.items() if not key.endswith(("_total", ".total")))
    return max([parts, *totals])


@row(
    "gpu.ecc",
    title="Has GPU memory had errors that ECC could not correct?",
    symptom="Programs stop with an ECC error (Xid 48, 94, 95), or a GPU must be reset again and again.",
    cause="Memory cells lose bits; what ECC cannot correct stops the program that uses the cell.",
    severity="error",
    scope="hands",
    risk="A GPU reset ends the programs on it.",
    cost="none",
    sources=(_MEMORY, "NVIDIA Xid catalog (Xid 48)", "NVML API reference: nvmlDeviceGetMemoryErrorCounter"),
)
def ecc(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    if nothing is not None:
        return nothing
    verdict = Verdict()
    for where, gpu in common.each(machine):
        _ecc(verdict, where, gpu)
    return verdict


def _ecc(verdict: Verdict, where: str, gpu: Gpu) -> None:
    counts = gpu.ecc_counts
    if gpu.ecc_enabled.value is False:
        verdict.not_applicable("ECC is switched off")
        return
    if gpu.sram_threshold_exceeded.value is True:
        verdict.finding(
            where,
            "The GPU's SRAM has had more uncorrectable errors than NVIDIA's limit for a replacement.",
            fact_evidence(gpu.sram_threshold_exceeded, "no"),
            advice="Run the vendor's field diagnostic on this GPU, and return it if that fails",
        )
    if not counts.known and gpu.ecc_enabled.absent:
        verdict.not_applicable("this GPU has no ECC")
        return
    if common.judge_gaps(verdict, where, gpu, counts, "this GPU counts no memory errors"):
        return
    now, ever = errors(counts.get(), "volatile", False), errors(counts.get(), "aggregate", False)
    if now:
        verdict.finding(
            where,
            f"{_errors(now)} that ECC could not correct since the driver was loaded.",
            evidence(counts.source, f"{now} uncorrectable since the driver was loaded, {ever} in all", "0"),
            advice=f"{_RESET}; if errors come again, run the vendor's field diagnostic",
        )
    elif ever:
        verdict.finding(
            where,
            f"{_errors(ever)} that ECC could not correct in this GPU's life; none since the last load.",
            evidence(counts.source, f"{ever} uncorrectable in all", "0"),
            advice="Watch the counter, and see the row about remapped rows",
            severity="info",
        )
    else:
        corrected = errors(counts.get(), "aggregate", True)
        verdict.ok(
            evidence(counts.source, "0 uncorrectable", "0"),
            reason=f"ECC has corrected {_errors(corrected)}, which is what it is for" if corrected else "",
        )


def _errors(count: int) -> str:
    return "1 memory error" if count == 1 else f"{count} memory errors"


@row(
    "gpu.ecc-pending",
    title="Does a change of the ECC mode wait for a reset?",
    symptom="The ECC mode that somebody set is not the one in force.",
    cause="A change of the ECC mode takes effect at the next GPU reset or reboot.",
    severity="info",
    scope="hands",
    risk="A GPU reset ends the programs on it.",
    cost="ECC takes some memory and bandwidth on GPUs without HBM.",
    sources=("NVML API reference: nvmlDeviceGetEccMode, nvmlDeviceSetEccMode",),
)
def ecc_pending(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    if nothing is not None:
        return nothing
    verdict = Verdict()
    for where, gpu in common.each(machine):
        if common.judge_gaps(verdict, where, gpu, gpu.ecc_enabled, "this GPU has no ECC"):
            continue
        if common.judge_gaps(verdict, where, gpu, gpu.ecc_pending, "this GPU has no ECC"):
            continue
        now, then = (("on" if fact.get() else "off") for fact in (gpu.ecc_enabled, gpu.ecc_pending))
        if now == then:
            verdict.ok(evidence(gpu.ecc_enabled.source, now))
        else:
            verdict.finding(
                where,
                f"ECC is {now} and will be {then} after a reset.",
                evidence(gpu.ecc_enabled.source, now, then),
                advice=_RESET,
            )
    return common.alike(verdict)


@row(
    "gpu.row-remap",
    title="Are faulty memory rows of a GPU remapped, or does a remapping wait or fail?",
    symptom="Xid 63 or 64; memory errors that come again.",
    cause="From Ampere on a GPU replaces faulty rows by spare ones at a reset, until a bank has none left.",
    severity="warning",
    scope="hands",
    risk="A GPU reset ends the programs on it.",
    cost="none",
    sources=(_MEMORY, "NVML API reference: nvmlDeviceGetRemappedRows"),
)
def row_remap(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    if nothing is not None:
        return nothing
    verdict = Verdict()
    for where, gpu in common.each(machine):
        _row_remap(verdict, where, gpu)
    return verdict


def _row_remap(verdict: Verdict, where: str, gpu: Gpu) -> None:
    rows = gpu.remapped_rows.value or {}
    count = ", ".join(f"{number} rows {kind}" for kind, number in rows.items())
    if gpu.remap_failed.value is True:
        verdict.finding(
            where,
            "A memory row could not be remapped: its bank has no spare row left.",
            evidence(
                gpu.remap_failed.source, f"remapping failed{'; ' + count if count else ''}", "no failure"
            ),
            advice="Reset the GPU and run the vendor's field diagnostic; return the GPU if that confirms it",
            severity="error",
        )
        return
    if gpu.remap_pending.value is True:
        verdict.finding(
            where,
            "A row remapping waits for the next reset of the GPU. This is no reason to return it.",
            evidence(gpu.remap_pending.source, f"pending{'; ' + count if count else ''}", "not pending"),
            advice=f"{_RESET}, when convenient",
        )
        return
    if common.judge_gaps(verdict, where, gpu, gpu.remap_pending, _no_remapping(gpu)):
        return
    if common.judge_gaps(verdict, where, gpu, gpu.remap_failed, _no_remapping(gpu)):
        return
    total = sum(rows.values())
    verdict.ok(
        evidence(gpu.remap_pending.source, count or "nothing pending", "none pending, none failed"),
        reason=f"{total} rows have been remapped and nothing waits" if total else "",
    )


def _no_remapping(gpu: Gpu) -> str:
    if gpu.mig.value is True:
        return "a GPU in MIG mode does not tell its remapped rows"
    return "this GPU does not remap rows (before Ampere, or without ECC)"


# At most 64 can be retired; operators have GPUs replaced from 60 on (Azure/azurehpc-health-checks).
_PAGES_LIMIT = 60


@row(
    "gpu.retired-pages",
    title="Have memory pages of an older GPU been retired, or do they wait to be?",
    symptom="Xid 48, 63 or 64 on a GPU before Ampere.",
    cause="A page with a double bit error, or two single ones, is left out when the driver is loaded again.",
    severity="warning",
    scope="hands",
    risk="Loading the driver again ends all programs on the GPU.",
    cost="none",
    sources=(
        _RETIREMENT,
        f"{_MEMORY}: Row Remapping, at most 64 retirements on older GPUs",
        "Azure/azurehpc-health-checks: retired pages",
    ),
)
def retired_pages(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    if nothing is not None:
        return nothing
    verdict = Verdict()
    for where, gpu in common.each(machine):
        _retired(verdict, where, gpu)
    return verdict


def _retired(verdict: Verdict, where: str, gpu: Gpu) -> None:
    pages = gpu.retired_pages
    total = sum((pages.value or {}).values())
    count = ", ".join(
        f"{number} for {kind.replace('_', ' ')} errors" for kind, number in (pages.value or {}).items()
    )
    pending = gpu.retired_pending.value is True
    if total >= _PAGES_LIMIT:
        more = ", and more wait to be" if pending else ""
        verdict.finding(
            where,
            f"{total} memory pages have been retired{more}; from {_PAGES_LIMIT} on a replacement is due.",
            evidence(pages.source, f"{count}{'; pending' if pending else ''}", f"below {_PAGES_LIMIT}"),
            advice="Run the vendor's field diagnostic, and ask for a replacement",
            severity="error",
        )
    elif pending:
        verdict.finding(
            where,
            "Memory pages wait to be retired until the driver is loaded again.",
            evidence(
                gpu.retired_pending.source, f"pending; retired {count}" if count else "pending", "not pending"
            ),
            advice="Stop the programs on this GPU, and reset it or reboot",
        )
    elif not common.judge_gaps(
        verdict, where, gpu, pages, "this GPU retires no pages (it remaps rows, or has no ECC)"
    ):
        reason = f"{total} pages are retired, which is what retirement is for" if total else ""
        verdict.ok(evidence(pages.source, count, f"below {_PAGES_LIMIT}"), reason=reason)
