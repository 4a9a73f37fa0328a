"""What disturbs CPUs that are meant to be alone, for the probe of CPUs.

Read after ``isolated`` and ``nohz_full``: what costs much (a look at every thread) is only read
where the kernel keeps some CPU apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import ABSENT, NOT_PROBED, Fact, gap, known
from hwtune.model.cpus import CpusetPartition, CpuTask
from hwtune.text import cmdline
from hwtune.text.cpulist import format_list, parse_list, parse_mask
from hwtune.text.isolcpus import parse_isolcpus

if TYPE_CHECKING:
    from typing import Any

    from hwtune.host.base import Host
    from hwtune.model.cpus import Cpus

WORKQUEUES = "/sys/devices/virtual/workqueue"
FAIR_SERVER = "/sys/kernel/debug/sched/fair_server"
# Version 2 of the hierarchy: alone, or beside version 1 (systemd's hybrid layout).
_HIERARCHIES = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
# A node with 500 pods has some 3,000 groups.
_MOST_GROUPS = 20_000


def fill(host: Host, cpus: Cpus) -> None:
    """Set the fields of ``cpus`` that concern isolation, ``isolated`` and ``nohz_full`` apart."""
    cpus.workqueue_cpus = host.parse(f"{WORKQUEUES}/cpumask", parse_mask)
    cpus.writeback_workqueue_cpus = host.parse(f"{WORKQUEUES}/writeback/cpumask", parse_mask)
    cpus.rt_runtime_us = host.integer("/proc/sys/kernel/sched_rt_runtime_us")
    cpus.rt_period_us = host.integer("/proc/sys/kernel/sched_rt_period_us")
    _partitions(host, cpus)
    apart = _set_apart(host, cpus)
    _fair_server(host, cpus, apart)
    _tasks(host, cpus, apart)


def _set_apart(host: Host, cpus: Cpus) -> list[int]:
    """Every CPU that the kernel, its arguments or a cpuset partition keep apart in some sense."""
    found: set[int] = set()
    for fact in (cpus.isolated, cpus.nohz_full, cpus.cgroup_isolated):
        found.update(fact.get() if fact.known else ())
    if cpus.partitions.known:
        found.update(c for p in cpus.partitions.get() if p.state == "isolated" for c in p.cpus)
    possible = cpus.possible if cpus.possible.known else cpus.online
    last = max(possible.get(), default=None) if possible.known else None
    text = host.text("/proc/cmdline")
    for argument in cmdline.parse(text.get()) if text.known else ():
        try:
            if argument.name == "isolcpus":
                found.update(parse_isolcpus(argument.value or "", last).cpus)
            elif argument.name == "nohz_full":
                found.update(parse_list(argument.value or "", last))
        except ValueError:  # the kernel took no notice of it either; a row says so
            continue
    return sorted(found)


def _fair_server(host: Host, cpus: Cpus, apart: list[int]) -> None:
    """The fair deadline server of the CPUs apart (kernel/sched/debug.c, since Linux 6.12)."""
    names = host.names(FAIR_SERVER)
    if not names.known:
        cpus.fair_server = names.map(lambda _: [])
        return
    found: list[tuple[int, int, int]] = []
    for cpu in apart:
        if f"cpu{cpu}" not in names.get():
            continue
        runtime = host.integer(f"{FAIR_SERVER}/cpu{cpu}/runtime")
        period = host.integer(f"{FAIR_SERVER}/cpu{cpu}/period")
        if not runtime.known or not period.known:
            bad = runtime if not runtime.known else period
            cpus.fair_server = bad.map(lambda _: [])
            return
        found.append((cpu, runtime.get(), period.get()))
    cpus.fair_server = known(found, FAIR_SERVER)


def _tasks(host: Host, cpus: Cpus, apart: list[int]) -> None:
    if not apart:
        cpus.tasks_on_isolated = gap(NOT_PROBED, "tasks", "no CPU is kept apart")
        return
    cpus.tasks_on_isolated = host.ask("processes", "tasks", format_list(apart)).map(_told)


def _told(answer: Any) -> list[CpuTask]:
    found = []
    try:
        for thread, name, kernel, allowed, last in answer:
            cpus = parse_list(str(allowed))
            found.append(CpuTask(int(thread), str(name), bool(kernel), cpus, int(last), len(cpus) == 1))
    except TypeError as error:  # an answer from a capture that somebody has edited
        raise ValueError(str(error)) from None
    return found


def _partitions(host: Host, cpus: Cpus) -> None:
    """cgroup v2 cpuset partitions (Documentation/admin-guide/cgroup-v2.rst, Cpuset)."""
    controllers: Fact[str] = gap(ABSENT, "cgroup.controllers")
    for top in _HIERARCHIES:
        controllers = host.text(f"{top}/cgroup.controllers")
        if not controllers.absent:
            break
    if not controllers.known:
        cpus.partitions = controllers.map(lambda _: [])
        cpus.cgroup_isolated = controllers.map(lambda _: [])
        return
    cpus.cgroup_isolated = host.parse(f"{top}/cpuset.cpus.isolated", parse_list)
    cpus.partitions = _walk(host, top)


def _walk(host: Host, top: str) -> Fact[list[CpusetPartition]]:
    """Partitions below ``top``. A group has the cpuset files only where its parent hands the
    controller on, so that most hosts are done after one file."""
    found: list[CpusetPartition] = []
    waiting = [top]
    visited = 0
    while waiting:
        group = waiting.pop()
        handed_on = host.text(f"{group}/cgroup.subtree_control")
        if not handed_on.known:
            if handed_on.absent:  # removed since it was listed
                continue
            return handed_on.map(lambda _: [])
        if "cpuset" not in handed_on.get().split():
            continue
        names = host.names(group)
        if not names.known:
            return names.map(lambda _: [])
        for name in names.get():
            if _is_file(name):
                continue
            visited += 1
            child = f"{group}/{name}"
            partition = _partition(host, child)
            if partition is not None:
                found.append(partition)
            waiting.append(child)
        if visited > _MOST_GROUPS:
            return gap("too-large", top, f"over {_MOST_GROUPS} control groups")
    return known(found, f"{top}/**/cpuset.cpus.partition")


def _partition(host: Host, group: str) -> CpusetPartition | None:
    state = host.text(f"{group}/cpuset.cpus.partition")
    if not state.known or state.get() in ("member", ""):
        return None
    cpus = host.parse(f"{group}/cpuset.cpus.effective", parse_list)
    asked = host.parse(f"{group}/cpuset.cpus", parse_list)
    chosen = cpus if cpus.known and state.get() in ("isolated", "root") else asked
    return CpusetPartition(group, state.get(), chosen.get() if chosen.known else [])


# Names of interface files begin with "cgroup." or a controller's name (cgroup-v2.rst, Conventions).
_CONTROLLERS = frozenset(
    (
        "cgroup",
        "cpu",
        "cpuset",
        "io",
        "memory",
        "pids",
        "rdma",
        "hugetlb",
        "misc",
        "perf_event",
        "irq",
        "dmem",
    )
)
_UNITS = (".slice", ".scope", ".service", ".mount", ".socket", ".swap")


def _is_file(name: str) -> bool:
    return name.partition(".")[0] in _CONTROLLERS and "." in name and not name.endswith(_UNITS)
