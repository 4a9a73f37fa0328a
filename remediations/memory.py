"""Rows: what the kernel does to memory behind a thread's back, and memory that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.changes import SysctlChange, SysfsAttribute
from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.fact import Fact
from hwtune.remediations._common import fix, plural, size, sysctl_number

if TYPE_CHECKING:
    from hwtune.diagnosis.verdict import Evidence
    from hwtune.model import Machine
    from hwtune.model.memory import Memory, SwapArea
    from hwtune.profile import Profile

_VM = "Linux Documentation/admin-guide/sysctl/vm.rst"
_THP_DOC = "Linux Documentation/admin-guide/mm/transhuge.rst"
_THP = "/sys/kernel/mm/transparent_hugepage"
_KSM = "/sys/kernel/mm/ksm/run"


def _counters(memory: Memory, *names: str) -> list[Evidence]:
    """Those counters of /proc/vmstat that are not zero; all of them count since boot."""
    if not memory.vmstat.known:
        return []
    values = memory.vmstat.get()
    return [
        evidence(memory.vmstat.source, f"{name} {values[name]} since boot")
        for name in names
        if values.get(name)
    ]


# -- swap -----------------------------------------------------------------------------------


@row(
    "memory.swappiness",
    title="Willingness to swap",
    symptom="A thread stalls for milliseconds on memory that it has not touched for a while.",
    cause="With a high vm.swappiness the kernel moves idle anonymous memory to swap to keep file cache.",
    severity="warning",
    scope="runtime",
    risk="With little free memory, file cache is reclaimed earlier.",
    cost="File cache under memory pressure.",
    sources=(f"{_VM}, swappiness",),
)
def swappiness(machine: Machine, profile: Profile) -> Verdict:
    key = "vm.swappiness"
    verdict = Verdict()
    value = sysctl_number(machine, key)
    if value.absent:
        return verdict.not_applicable("this kernel cannot swap (CONFIG_SWAP)")
    areas = _has_swap(machine)
    if areas.value is False:
        return verdict.not_applicable("no swap area is in use, so that vm.swappiness decides nothing")
    if not value.known:
        return verdict.unknown(f"sysctl:{key}", value)
    most = profile.memory.swappiness_max
    if value.get() <= most:
        return verdict.ok(fact_evidence(value, f"at most {most}"))
    if not areas.known:
        return verdict.unknown(f"sysctl:{key}", areas)
    return verdict.finding(
        f"sysctl:{key}",
        "The kernel is free to swap out idle memory of processes in favour of file cache.",
        fact_evidence(value, f"at most {most}"),
        **fix(machine, SysctlChange(key, str(most))),
    )


def _has_swap(machine: Machine) -> Fact[bool]:
    """Whether there is any: by the list of areas, else by the sum that meminfo tells."""
    areas = machine.memory.swaps.map(bool)
    return areas if areas.known else areas.or_else(machine.memory.meminfo.map(_swap_total))


def _swap_total(meminfo: dict[str, int]) -> bool:
    if "SwapTotal" not in meminfo:
        raise ValueError("no SwapTotal in it")
    return meminfo["SwapTotal"] > 0


def _use(area: SwapArea) -> str:
    return f"{area.path}: {size(area.used_bytes)} of {size(area.size_bytes)} used"


def _is_zram(area: SwapArea) -> bool:
    return area.path.rsplit("/", 1)[-1].startswith("zram")


@row(
    "memory.swap-in-use",
    title="Memory in swap",
    symptom="The first touch of a page takes as long as a read of the drive.",
    cause="Pages that are in swap come back by a major fault, which the thread waits for.",
    severity="warning",
    scope="runtime",
    risk="swapoff fails, or calls the OOM killer, where memory does not suffice.",
    cost="Memory that swap would have spared.",
    sources=("proc_swaps(5)", "proc_pid_status(5), VmSwap", "mlock(2)"),
)
def swap_in_use(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    memory = machine.memory
    areas = memory.swaps
    if areas.absent:
        return verdict.not_applicable("this kernel cannot swap (CONFIG_SWAP)")
    if not areas.known:
        return verdict.unknown("memory", areas)
    if not areas.get():
        return verdict.ok(evidence(areas.source, "no swap area"), reason="no swap area is in use")
    used = [area for area in areas.get() if area.used_bytes > 0]
    if not used:
        return verdict.ok(
            *(evidence(areas.source, _use(area)) for area in areas.get()),
            reason="swap is there, and nothing is in it",
        )
    total = sum(area.used_bytes for area in used)
    items = [evidence(areas.source, _use(area), "0 used") for area in used]
    items.extend(_counters(memory, "pswpin", "pswpout"))
    processes = memory.swapped_processes.get() if memory.swapped_processes.known else []
    for process in processes[:5]:
        text = f"{process.name}: VmSwap {size(process.swap_bytes)}"
        items.append(evidence(f"/proc/{process.pid}/status", text, "0"))
    compressed = all(_is_zram(area) for area in used)
    never_read = memory.vmstat.known and memory.vmstat.get().get("pswpin") == 0 and not processes
    place = "compressed memory (zram)" if compressed else "swap"
    owners = f", of {plural(len(processes), 'process', 'processes')}" if processes else ""
    return verdict.finding(
        "memory",
        f"{size(total)} of memory is in {place}{owners}; whoever touches it waits for a major fault.",
        *items,
        advice="Lock the hot process in memory with mlockall(), and run swapoff -a while memory is free.",
        severity="info" if compressed or never_read else None,
    )


# -- huge pages that come unasked ------------------------------------------------------------


def _thp_effective(memory: Memory) -> list[tuple[str, Fact[str]]]:
    """Sizes in rising order (``hugepages-2048kB``, or "" for the one setting of older kernels),
    and what is in force for each: "inherit" is the top-level setting."""
    if not memory.thp_sizes:
        return [("", memory.thp_enabled)]
    return [
        (name, memory.thp_enabled if value.known and value.get() == "inherit" else value)
        for name, value in memory.thp_sizes.items()
    ]


@row(
    "memory.transparent-hugepages",
    title="Transparent huge pages",
    symptom="Page faults that take up to milliseconds, and pauses while memory is being moved together.",
    cause="With 'always', any fault may clear or assemble a huge page, and khugepaged remaps memory in use.",
    severity="warning",
    scope="runtime",
    risk="Programs that gain from huge pages and do not ask for them (madvise) get slower.",
    cost="TLB reach of programs that do not ask for huge pages.",
    sources=(f"{_THP_DOC}, Global THP controls",),
)
def transparent_hugepages(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    memory = machine.memory
    accepted = profile.memory.transparent_hugepages
    top = memory.thp_enabled
    if top.absent:
        return verdict.not_applicable("this kernel has no transparent huge pages (as all PREEMPT_RT kernels)")
    if not top.known:
        return verdict.unknown("memory", top)
    expected = " or ".join(accepted)
    sizes = _thp_effective(memory)
    wrong = [(name, value) for name, value in sizes if value.known and value.get() not in accepted]
    for _, value in sizes:
        if value.unknown:
            verdict.unknown("memory", value)
    # Where no size inherits it, the top-level setting rules nothing but file-backed huge pages.
    if not wrong:
        return verdict.ok(fact_evidence(top, expected))
    target = accepted[0]
    changes, items = [], []
    if any(value is top for _, value in wrong):
        items.append(fact_evidence(top, expected))
        changes.append(SysfsAttribute(f"{_THP}/enabled", target))
    own = [(name, value) for name, value in wrong if value is not top]
    items.extend(fact_evidence(value, expected) for _, value in own)
    # To inherit is to follow the one setting that everybody looks at.
    changes.extend(SysfsAttribute(f"{_THP}/{name}/enabled", "inherit") for name, _ in own)
    message = "The kernel gives huge pages to memory that did not ask for them."
    if own and top.get() in accepted:
        names = ", ".join(name.removeprefix("hugepages-") for name, _ in own)
        message = f"Huge pages of {names} have a setting of their own, which the top-level one does not rule."
    return verdict.finding("memory", message, *items, **fix(machine, *changes))


@row(
    "memory.thp-defrag",
    title="Memory assembled within a page fault",
    symptom="Rare page faults that take milliseconds.",
    cause="With defrag 'always', a fault that finds no free huge page reclaims and compacts memory itself.",
    severity="warning",
    scope="runtime",
    risk="None known; huge pages are then found less often at the fault.",
    cost="Fewer huge pages on a machine of fragmented memory.",
    sources=(f"{_THP_DOC}, defrag",),
)
def thp_defrag(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    memory = machine.memory
    if memory.thp_enabled.absent:
        return verdict.not_applicable("this kernel has no transparent huge pages")
    sizes = _thp_effective(memory)
    if all(value.known and value.get() == "never" for _, value in sizes):
        return verdict.not_applicable("transparent huge pages are off")
    value = memory.thp_defrag
    if not value.known:
        return verdict.unknown("memory", value)
    accepted = profile.memory.thp_defrag
    expected = " or ".join(accepted)
    if value.get() in accepted:
        return verdict.ok(fact_evidence(value, expected))
    return verdict.finding(
        "memory",
        "A page fault may reclaim and compact memory until a huge page is free.",
        fact_evidence(value, expected),
        *_counters(memory, "compact_stall"),
        **fix(machine, SysfsAttribute(f"{_THP}/defrag", accepted[0])),
    )


@row(
    "memory.khugepaged",
    title="Pages replaced while in use",
    symptom="A thread that touches only memory it owns stops for tens of microseconds, now and then.",
    cause="khugepaged holds a process's memory map while it copies its pages into a huge one.",
    severity="info",
    scope="runtime",
    risk="Long-running programs get fewer huge pages.",
    cost="TLB reach of programs that do not ask for huge pages.",
    sources=(f"{_THP_DOC}, Khugepaged controls",),
)
def khugepaged(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    memory = machine.memory
    if memory.thp_enabled.absent:
        return verdict.not_applicable("this kernel has no transparent huge pages")
    # khugepaged makes pages of the largest size only, that of a page-table directory.
    _, value = _thp_effective(memory)[-1]
    if not value.known:
        return verdict.unknown("memory", value)
    if value.get() == "never":
        return verdict.not_applicable("transparent huge pages are off, so that khugepaged does not run")
    if value.get() != "always":
        return verdict.ok(
            fact_evidence(value), reason="khugepaged serves only memory that asked for huge pages"
        )
    if "always" in profile.memory.transparent_hugepages:
        return verdict.ok(fact_evidence(value), reason="the profile lets all memory have huge pages")
    return _collapsing(verdict, machine)


def _collapsing(verdict: Verdict, machine: Machine) -> Verdict:
    memory = machine.memory
    value = memory.khugepaged_defrag
    if not value.known:
        return verdict.unknown("memory", value)
    if value.get() == 0:
        return verdict.ok(fact_evidence(value, 0), reason="khugepaged may not move memory to make room")
    items = [fact_evidence(value, 0)]
    pace = (memory.khugepaged_pages_to_scan, memory.khugepaged_scan_sleep_ms)
    items.extend(fact_evidence(fact) for fact in pace if fact.known)
    return verdict.finding(
        "memory",
        "khugepaged scans all processes and moves memory to make huge pages of theirs.",
        *items,
        *_counters(memory, "thp_collapse_alloc"),
        **fix(machine, SysfsAttribute(f"{_THP}/khugepaged/defrag", "0")),
    )


# -- pages that move -------------------------------------------------------------------------


@row(
    "memory.ksm",
    title="Pages merged with those of others",
    symptom="A write to memory that the process owns takes a page fault and a copy.",
    cause="Kernel samepage merging makes equal pages one, write-protected; ksmd uses a CPU to find them.",
    severity="warning",
    scope="runtime",
    risk="Unmerging needs the memory that merging saved.",
    cost="Memory: what merging saves.",
    sources=("Linux Documentation/admin-guide/mm/ksm.rst",),
)
def ksm(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    memory = machine.memory
    run, shared, saved = memory.ksm_run, memory.ksm_pages_shared, memory.ksm_pages_sharing
    if run.absent:
        return verdict.not_applicable("this kernel cannot merge pages (CONFIG_KSM)")
    if not run.known:
        return verdict.unknown("memory", run)
    if run.get() == 2:
        return verdict.ok(fact_evidence(run), reason="ksmd has stopped and merged pages are separate again")
    if not shared.known:
        return verdict.unknown("memory", shared)
    if shared.get() == 0:
        reason = "ksmd may run, but nothing is merged" if run.get() == 1 else ""
        return verdict.ok(fact_evidence(run), fact_evidence(shared, 0), reason=reason)
    items = [fact_evidence(run, 2), fact_evidence(shared, 0), *_counters(memory, "cow_ksm")]
    if saved.known:
        items.append(fact_evidence(saved))
    active = run.get() == 1
    message = (
        "ksmd is merging pages of processes" if active else "ksmd has stopped, but what it merged still is"
    )
    return verdict.finding(
        "memory",
        f"{message}: a write to one of {plural(shared.get(), 'merged page')} costs a fault and a copy.",
        *items,
        **_unmerge(machine),
        severity=None if active else "info",
    )


def _unmerge(machine: Machine) -> dict[str, Any]:
    """To unmerge takes the memory that merging saved, in pages of 4 KiB at least."""
    saved, available = machine.memory.ksm_pages_sharing, machine.memory.available_bytes
    if saved.known and available.known and saved.get() * 4096 > available.get() * 0.8:
        needed = size(saved.get() * 4096)
        return {
            "advice": f"Free {needed} of memory, which the merged pages need, before you write 2 to {_KSM}."
        }
    return fix(machine, SysfsAttribute(_KSM, "2"))


@row(
    "memory.numa-balancing",
    title="Automatic NUMA balancing",
    symptom="Page faults on memory that was touched before, and pages that migrate while in use.",
    cause="The kernel unmaps pages to see which node touches them, and moves them there.",
    severity="warning",
    scope="runtime",
    risk="Programs that are not bound to a node run on memory of another for longer.",
    cost="Placement of programs that are not bound to nodes.",
    sources=("Linux Documentation/admin-guide/sysctl/kernel.rst, numa_balancing",),
)
def numa_balancing(machine: Machine, profile: Profile) -> Verdict:
    key = "kernel.numa_balancing"
    verdict = Verdict()
    value = sysctl_number(machine, key)
    if value.absent:
        return verdict.not_applicable("this kernel has no automatic NUMA balancing")
    if not value.known:
        return verdict.unknown(f"sysctl:{key}", value)
    target = profile.memory.numa_balancing
    if value.get() == target:
        return verdict.ok(fact_evidence(value, target))
    message = (
        "The kernel takes pages away from threads to see who uses them, and moves them."
        if target == 0
        else "Automatic NUMA balancing is not set as the profile wants it."
    )
    return verdict.finding(
        f"sysctl:{key}",
        message,
        fact_evidence(value, target),
        *_counters(machine.memory, "numa_hint_faults", "numa_pages_migrated"),
        **fix(machine, SysctlChange(key, str(target))),
    )


@row(
    "memory.zone-reclaim",
    title="Reclaim within a node",
    symptom="Allocations stall while other nodes have free memory.",
    cause="With vm.zone_reclaim_mode set, a full node frees its own file cache before it borrows.",
    severity="warning",
    scope="runtime",
    risk="Memory comes from another node sooner.",
    cost="Locality of file cache.",
    sources=(f"{_VM}, zone_reclaim_mode",),
)
def zone_reclaim(machine: Machine, profile: Profile) -> Verdict:
    key = "vm.zone_reclaim_mode"
    verdict = Verdict()
    value = sysctl_number(machine, key)
    if value.absent:
        return verdict.not_applicable("this kernel has no NUMA support")
    if not value.known:
        return verdict.unknown(f"sysctl:{key}", value)
    target = profile.memory.zone_reclaim_mode
    if value.get() == target:
        return verdict.ok(fact_evidence(value, target))
    message = (
        "A node that is full reclaims its own pages first, while the thread waits."
        if target == 0
        else "Reclaim within a node is not set as the profile wants it."
    )
    return verdict.finding(
        f"sysctl:{key}", message, fact_evidence(value, target), **fix(machine, SysctlChange(key, str(target)))
    )


@row(
    "memory.compaction",
    title="Compaction in the background",
    symptom="Latency spikes with no cause in the process itself, on a machine that does little.",
    cause="Proactive compaction moves pages of all processes, a few each half second, for huge ones.",
    severity="info",
    scope="runtime",
    risk="A later request for huge pages may have to compact by itself.",
    cost="Fewer free huge pages.",
    sources=(f"{_VM}, compaction_proactiveness",),
)
def compaction(machine: Machine, profile: Profile) -> Verdict:
    key = "vm.compaction_proactiveness"
    verdict = Verdict()
    value = sysctl_number(machine, key)
    if value.absent:
        return verdict.not_applicable("this kernel has no proactive compaction (it came with Linux 5.9)")
    if not value.known:
        return verdict.unknown(f"sysctl:{key}", value)
    most = profile.memory.compaction_proactiveness_max
    if value.get() <= most:
        return verdict.ok(fact_evidence(value, most))
    return verdict.finding(
        f"sysctl:{key}",
        "The kernel moves pages of all processes in the background to have huge ones ready.",
        fact_evidence(value, most),
        *_counters(machine.memory, "compact_daemon_wake"),
        **fix(machine, SysctlChange(key, str(most))),
    )


@row(
    "memory.compact-unevictable",
    title="Compaction of locked memory",
    symptom="Minor page faults in a process that has locked and touched all of its memory.",
    cause="Compaction may move mlocked pages: their mapping is gone for as long as that takes.",
    severity="info",
    scope="runtime",
    risk="Memory is harder to compact around locked pages.",
    cost="Fewer free huge pages on a machine that locks much memory.",
    sources=(f"{_VM}, compact_unevictable_allowed",),
)
def compact_unevictable(machine: Machine, profile: Profile) -> Verdict:
    key = "vm.compact_unevictable_allowed"
    verdict = Verdict()
    value = sysctl_number(machine, key)
    if value.absent:
        return verdict.not_applicable("this kernel does not compact memory (CONFIG_COMPACTION)")
    if not value.known:
        return verdict.unknown(f"sysctl:{key}", value)
    if value.get() == 0:
        return verdict.ok(fact_evidence(value, 0))
    if profile.memory.compact_unevictable:
        return verdict.ok(fact_evidence(value), reason="the profile lets locked memory be moved")
    return verdict.finding(
        f"sysctl:{key}",
        "Compaction may move pages that a process has locked, which then faults on them.",
        fact_evidence(value, 0),
        **fix(machine, SysctlChange(key, "0")),
    )


# -- writeback and pressure ------------------------------------------------------------------


@row(
    "memory.dirty-limits",
    title="Limits of dirty memory",
    symptom="Writers stall and drives are busy for seconds, long after the data was written.",
    cause="Much dirty memory is flushed at once, and whoever writes beyond the limit writes it back himself.",
    severity="info",
    scope="runtime",
    risk="Writeback starts earlier, so that data written and deleted soon reaches the drive.",
    cost="Throughput of bursts of writes.",
    sources=(f"{_VM}, dirty_ratio, dirty_bytes, dirty_background_ratio, dirty_background_bytes",),
)
def dirty_limits(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    targets = profile.memory
    items, changes = [], []
    for prefix, most in (
        ("vm.dirty", targets.dirty_ratio_max_pct),
        ("vm.dirty_background", targets.dirty_background_ratio_max_pct),
    ):
        found = _dirty_limit(machine, prefix, most)
        if isinstance(found, Fact):
            if found.absent:
                return verdict.not_applicable("this system has no dirty limits")
            verdict.unknown(f"sysctl:{prefix}_ratio", found)
            continue
        item, change = found
        if change is None:
            verdict.ok(item)
        else:
            items.append(item)
            changes.append(change)
    if changes:
        verdict.finding(
            f"sysctl:{changes[0].key}",
            "Much dirty memory may gather before it is written back.",
            *items,
            **fix(machine, *changes),
        )
    return verdict


def _dirty_limit(
    machine: Machine, prefix: str, most: int
) -> tuple[Evidence, SysctlChange | None] | Fact[int]:
    """The limit in force, as evidence, and the change where it is too high; or what is not known.

    Ratio and bytes are one limit in two units: the one not in use reads 0, and writing either
    clears the other.
    """
    ratio_key, bytes_key = f"{prefix}_ratio", f"{prefix}_bytes"
    ratio, amount = sysctl_number(machine, ratio_key), sysctl_number(machine, bytes_key)
    if ratio.known and ratio.get() > 0:
        change = SysctlChange(ratio_key, str(most), clears=(bytes_key,)) if ratio.get() > most else None
        return evidence(ratio.source, f"{ratio.get()} %", f"at most {most} %"), change
    if not amount.known:
        return amount
    if amount.get() == 0:
        # Both read 0 only where the ratio is 0 itself: writeback at once.
        return (evidence(ratio.source, "0 %", f"at most {most} %"), None) if ratio.known else ratio
    total = machine.memory.total_bytes
    if not total.known:
        return total
    limit = total.get() * most // 100
    item = evidence(amount.source, size(amount.get()), f"at most {size(limit)}, {most} % of memory")
    return item, SysctlChange(bytes_key, str(limit), clears=(ratio_key,)) if amount.get() > limit else None


@row(
    "memory.pressure",
    title="Waiting for memory now",
    symptom="Everything is slow at once while memory is short.",
    cause="All tasks that were not idle waited for memory: for reclaim, refaults or swap.",
    severity="warning",
    scope="runtime",
    risk="None: the finding is a measurement of the moment.",
    cost="Memory, or fewer programs on the machine.",
    sources=("Linux Documentation/accounting/psi.rst",),
)
def pressure(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    value = machine.memory.pressure
    if value.absent:
        return verdict.not_applicable("this kernel keeps no pressure stall information (CONFIG_PSI, psi=0)")
    if not value.known:
        remedy = "boot with psi=1" if value.gap == "unreadable" else ""
        return verdict.unknown("memory", value, remedy=remedy)
    full = value.get().get("full_avg10")
    if full is None:
        return verdict.unknown("memory", f"{value.source} has no line for full")
    most = profile.memory.pressure_full_max_pct
    item = evidence(value.source, f"full avg10={full:.2f}", f"at most {most:g}")
    if full <= most:
        return verdict.ok(item)
    return verdict.finding(
        "memory",
        f"During {full:g} % of the last 10 s no task could run for want of memory.",
        item,
        *_counters(machine.memory, "pswpin", "pgmajfault"),
        advice="Find who uses the memory, and move it to another machine or give this one more.",
    )
