"""Rows: pools of huge pages that are not what was asked for, or not where the hot CPUs are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.model.intent import hot_cpus
from hwtune.remediations._common import plural, size
from hwtune.text import hugepages as grammar

if TYPE_CHECKING:
    from hwtune.model import Machine
    from hwtune.model.numa import HugePagePool
    from hwtune.profile import Profile


@row(
    "memory.hugepages",
    title="Huge page pools",
    symptom="A program falls back to small pages, or fails to start, or its huge pages are remote.",
    cause="The kernel reserves what it can get: fewer pages than asked for, or all of them on one node.",
    severity="warning",
    scope="boot",
    risk="Memory that is reserved is lost to everything else.",
    cost="The memory of the pool.",
    sources=(
        "Linux Documentation/admin-guide/mm/hugetlbpage.rst",
        "Linux Documentation/admin-guide/kernel-parameters.txt, hugepages=",
    ),
)
def hugepages(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    memory = machine.memory
    if memory.hugepages_listed.absent:
        return verdict.not_applicable("this kernel has no huge page pools (CONFIG_HUGETLBFS)")
    if not memory.hugepages:
        if memory.hugepages_listed.known:
            return verdict.not_applicable("this CPU and kernel have no size of huge page")
        return verdict.unknown("memory", memory.hugepages_listed)
    _compare_with_arguments(verdict, machine)
    _compare_with_sysctl(verdict, machine)
    for pool in memory.hugepages:
        _judge_pool(verdict, pool)
        _judge_nodes(verdict, machine, profile, pool)
    return verdict


def _default_size_kb(machine: Machine) -> int | None:
    meminfo = machine.memory.meminfo
    bytes_ = meminfo.get().get("Hugepagesize") if meminfo.known else None
    return None if bytes_ is None else bytes_ >> 10


def _pool(machine: Machine, size_kb: int | None) -> HugePagePool | None:
    return next((pool for pool in machine.memory.hugepages if pool.size_kb == size_kb), None)


def _compare_with_arguments(verdict: Verdict, machine: Machine) -> None:
    arguments = machine.kernel.arguments
    if not arguments.known:
        verdict.unknown("karg:hugepages", arguments)
        return
    for request in grammar.requests((a.name, a.value) for a in arguments.get()):
        size_kb = _default_size_kb(machine) if request.size_kb is None else request.size_kb
        pool = _pool(machine, size_kb)
        asked = evidence(arguments.source, request.text)
        if request.pages == 0:
            continue
        if pool is None:
            if machine.memory.hugepages_listed.known and size_kb is not None:
                verdict.finding(
                    "karg:hugepages",
                    f"The boot argument asks for huge pages of {size(size_kb << 10)}, which is none here.",
                    asked,
                    advice=f"Ask for a size that {machine.memory.hugepages_listed.source} lists.",
                )
            else:
                verdict.unknown("karg:hugepages", f"the pool that {request.text} is for is not known")
        elif not pool.total.known:
            verdict.unknown("karg:hugepages", pool.total)
        elif pool.total.get() < request.pages:
            verdict.finding(
                "karg:hugepages",
                f"{plural(request.pages, 'huge page')} of {size(pool.size_kb << 10)} were asked for at boot, "
                f"and the pool has {pool.total.get()}: memory was short, or the pool was made smaller since.",
                asked,
                fact_evidence(pool.total, request.pages),
                advice="Ask for no more than the memory allows, or add memory.",
            )


def _compare_with_sysctl(verdict: Verdict, machine: Machine) -> None:
    """The default size's pool against the last vm.nr_hugepages of sysctl.d."""
    settings = [s for s in machine.kernel.sysctl.settings if s.key == "vm.nr_hugepages"]
    pool = _pool(machine, _default_size_kb(machine))
    if not settings or pool is None or not pool.total.known or not (settings[-1].value or "").isdecimal():
        return
    last = settings[-1]
    asked = int(last.value or 0)
    if pool.total.get() < asked:
        verdict.finding(
            "sysctl:vm.nr_hugepages",
            f"{plural(asked, 'huge page')} were asked for, and the pool has {pool.total.get()}: "
            "memory was too fragmented by then, or the pool was made smaller since.",
            evidence(f"{last.file}:{last.line}", f"vm.nr_hugepages = {last.value}"),
            fact_evidence(pool.total, asked),
            advice="Reserve the pages at boot, with hugepages= on the kernel's command line.",
        )


def _judge_pool(verdict: Verdict, pool: HugePagePool) -> None:
    name = size(pool.size_kb << 10)
    if not pool.total.known:
        verdict.unknown("memory", pool.total)
        return
    if pool.surplus.known and pool.surplus.get() > 0:
        verdict.finding(
            "memory",
            f"{plural(pool.surplus.get(), 'huge page')} of {name} beyond the pool: taken from ordinary "
            "memory while a thread waited, or left over from a larger pool.",
            fact_evidence(pool.surplus, 0),
            fact_evidence(pool.total),
            advice=f"Reserve as many pages of {name} as the programs use at their peak.",
            severity="info",
        )
        return
    total = pool.total.get()
    reason = f"no huge page of {name} is reserved"
    if total:
        free = f", {pool.free.get()} of them free" if pool.free.known else ""
        reason = f"{plural(total, 'huge page')} of {name}{free}"
    verdict.ok(fact_evidence(pool.total), reason=reason)


def _judge_nodes(verdict: Verdict, machine: Machine, profile: Profile, pool: HugePagePool) -> None:
    """A pool that leaves out a node of hot CPUs serves them from another."""
    hot = hot_cpus(machine, profile)
    if not hot.known or not hot.get() or not pool.total.known or pool.total.get() == 0:
        return
    node_of = machine.numa.of_cpu()
    hot_nodes = {node_of[cpu] for cpu in hot.get() if cpu in node_of}
    pages = {
        node.id: own.total
        for node in machine.numa.nodes
        for own in node.hugepages
        if own.size_kb == pool.size_kb and own.total.known
    }
    elsewhere = sorted(id for id, total in pages.items() if total.get() > 0)
    for id in sorted(hot_nodes & pages.keys()):
        if pages[id].get() == 0 and elsewhere:
            verdict.finding(
                f"node:{id}",
                f"Node {id} has hot CPUs and no huge page of {size(pool.size_kb << 10)}: theirs are remote.",
                fact_evidence(pages[id]),
                *(fact_evidence(pages[other]) for other in elsewhere[:4]),
                evidence(hot.source, hot.get()),
                advice=f"Reserve pages on node {id}, as with hugepages={id}:COUNT on the command line.",
            )
