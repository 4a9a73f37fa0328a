"""Which rows of the diagnosis table would mend a cause."""

from __future__ import annotations

from hwtune.tracing import kinds

_TASKS = ("isolation.tasks", "isolation.isolcpus", "isolation.domain-flag", "isolation.cpuset-partition")
_IRQS = ("irq.on-isolated", "irq.default-affinity", "irq.irqbalance")
_TICK = ("isolation.tick", "isolation.nohz-full")
_RCU = ("isolation.kernel-args",)  # rcu_nocbs=
# Pages that change place make all CPUs forget them, and the next touch a fault.
_MAPS = ("memory.numa-balancing", "memory.khugepaged", "memory.ksm", "memory.compaction")
_SOFTIRQS = {
    "TIMER": _TICK,
    "HRTIMER": _TICK,
    "SCHED": _TICK,
    "RCU": _RCU,
    "NET_RX": ("irq.on-isolated", "nic.rps"),
    "NET_TX": ("irq.on-isolated", "nic.rps"),
    "BLOCK": _IRQS,
    "IRQ_POLL": _IRQS,
    "TASKLET": _IRQS,
    "HI": _IRQS,
}
# Of tasks, by how their names begin; the kernel's own are fixed.
_THREADS = (
    ("kworker/u", ("isolation.workqueues",)),
    ("kworker/", ("isolation.workqueues", "isolation.isolcpus")),
    ("irq/", _IRQS),
    ("ksoftirqd/", ("irq.on-isolated", *_TICK)),
    ("rcu", _RCU),
    ("khugepaged", ("memory.khugepaged",)),
    ("ksmd", ("memory.ksm",)),
    ("kcompactd", ("memory.compaction",)),
    ("kswapd", ("memory.swap-in-use", "memory.pressure")),
    ("irqbalance", ("irq.irqbalance", *_TASKS)),
)
# Functions by which their callers are known: the lockup detectors, the TLB's shootdown, packet steering.
_FUNCTIONS = (
    ("watchdog", ("isolation.watchdog",)),
    ("softlockup", ("isolation.watchdog",)),
    ("flush_tlb", _MAPS),
    ("rps_trigger_softirq", ("nic.rps",)),  # another CPU steers packets here (net/core/dev.c)
)


def rows_for(kind: str, name: str) -> tuple[str, ...]:
    """Ids of the rows to look at, the likeliest first; none where only the program itself, firmware or the
    hypervisor could change it."""
    for part, rows in _FUNCTIONS:
        if part in name:
            return rows
    if kind == kinds.IRQ:
        managed = ("isolation.managed-irq",) if _managed(name) else ()
        return (*managed, *_IRQS)
    if kind == kinds.SOFTIRQ:
        return _SOFTIRQS.get(name.partition(" ")[0], ())
    if kind == kinds.TIMER:
        return _TICK
    if kind == kinds.IPI:
        return _MAPS if name == "TLB shootdown" else _TASKS if name == "reschedule" else ()
    if kind == kinds.NMI:
        return ("isolation.watchdog",)
    if kind == kinds.SWITCH:
        return _task(name)
    if kind == kinds.PAGE_FAULT:
        return ("memory.swap-in-use", *_MAPS)
    if kind == kinds.OTHER:
        return _other(name)
    return ()


def _managed(name: str) -> bool:
    """Whether it looks like a queue whose interrupt the kernel places itself: NVMe's are."""
    *_, action = name.split(" ")
    return action.startswith("nvme") and "q" in action


def _task(name: str) -> tuple[str, ...]:
    if name == "idle":  # the thread slept of its own accord
        return ()
    if name == "throttled":
        return ("isolation.rt-throttling",)
    for begin, rows in _THREADS:
        if name.startswith(begin):
            return rows
    return _TASKS


def _other(name: str) -> tuple[str, ...]:
    if name == "thermal interrupt":
        return ("cpu.throttled", "cpu.prochot")
    if name in ("machine check threshold", "deferred error interrupt", "machine check"):
        return ("memory.ecc-errors",)
    return ()
