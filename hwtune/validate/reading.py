"""The reading of a result: what its shape points at, and what to look at next.

Each rule says what was seen, with its numbers, and which rows of the diagnosis table ask about the causes
that such a shape has. A shape is a hint, not a proof: only a matched outlier names a culprit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hwtune.validate.run import ROLES, STAGES

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwtune.validate.results import Latency, Results
    from hwtune.validate.run import Thread

# A P99 of so many times P50 is another path, not a slow one: the spread of the same work is far smaller.
_OCCASIONAL = 5.0
# The share of the SLA that P50 alone may take before the work itself is in question.
_HEAVY = 0.5
# The share of the whole's P99 above which one stage is named.
_MOSTLY = 0.2
_BEHIND = 0.99  # of what was due that came through
_FULL_BATCHES = 0.5
_COSTLY_CLOCK_NS = 100.0
_STAMPS = len(STAGES)  # the time it was due is reckoned, each stage's end is read
_UNEXPLAINED = 0.5
_MEMORY_ROWS = (
    "memory.swap-in-use",
    "memory.compact-unevictable",
    "memory.numa-balancing",
    "memory.transparent-hugepages",
)
_WORK_ROWS = ("cpu.governor", "cpu.frequency-limits", "cpu.turbo", "cpu.throttled", "cpu.energy-preference")
_OCCASIONAL_ROWS = (
    "irq.on-isolated",
    "isolation.tasks",
    "isolation.tick",
    "isolation.workqueues",
    "cpu.idle-states",
)
_ALONE_ROWS = ("isolation.isolcpus", "isolation.domain-flag", "isolation.tasks", "isolation.rt-throttling")
_UNSEEN_ROWS = ("service.smi-timers", "cpu.throttled", "cpu.idle-states")
_QUEUES = ("tick-queue", "order-queue")


class Reading(msgspec.Struct, frozen=True):
    """``says``: sentences, the numbers first. ``look``: rows for `hwtune doctor --only`."""

    rule: str
    says: str
    look: tuple[str, ...] = ()


class Rule(NamedTuple):
    """``read`` gives the sentences and the rows, or None where the shape is another one."""

    name: str
    read: Callable[[Results], tuple[str, tuple[str, ...]] | None]


def read(results: Results) -> list[Reading]:
    """In the order of the rules; where none fits, that is said."""
    found = []
    for rule in RULES:
        told = rule.read(results)
        if told is not None:
            found.append(Reading(rule.name, *told))
    if not found:
        found.append(_quiet(results))
    return found


_Told = tuple[str, tuple[str, ...]]


# -- the whole -------------------------------------------------------------------------------


def _few(results: Results) -> _Told | None:
    if results.end_to_end.p99_us is not None:
        return None
    return f"Too short to read: {results.end_to_end.unknown['p99_us']}.", ()


def _occasional(results: Results) -> _Told | None:
    """Low P50, high P99."""
    whole = results.end_to_end
    if whole.p50_us is None or whole.p99_us is None or whole.p99_us < _OCCASIONAL * whole.p50_us:
        return None
    if whole.p50_us >= _HEAVY * results.sla.limit_us:  # then they are not quick
        return None
    says = f"P50 is {us(whole.p50_us)} and P99 {us(whole.p99_us)}: most ticks are quick and a few are not."
    says += " That points at something that happens now and then, not at the work itself."
    name, stage = _largest(results, "p99_us")
    if stage.p99_us:
        says += f" The stage with the highest P99 is {name} ({us(stage.p99_us)})."
    culprits = [c for c in results.attribution.causes if c.rows]
    if culprits:
        return says, tuple(dict.fromkeys(row for c in culprits[:3] for row in c.rows))
    return says, _OCCASIONAL_ROWS


def _work(results: Results) -> _Told | None:
    """High P50."""
    whole = results.end_to_end
    if whole.p50_us is None or whole.p50_us < _HEAVY * results.sla.limit_us:
        return None
    name, stage = _largest(results, "p50_us")
    share = 100 * whole.p50_us / results.sla.limit_us
    says = (
        f"P50 is {us(whole.p50_us)}, {share:.0f} % of the SLA: every tick is slow. Most of it is {name} "
        f"(P50 {us(stage.p50_us or 0.0)})."
    )
    if name in _QUEUES:
        says += " Ticks wait for the thread behind that queue: more arrives than it gets done, or its CPU is"
        return says + " taken from it.", ()
    return says + " That points at the work itself: its size, and the CPU's speed.", _WORK_ROWS


def _overspent(results: Results) -> _Told | None:
    """A stage whose median is beyond its budget already, where the whole is not told to be slow."""
    found = [
        (name, stage)
        for name, stage in results.stages.items()
        if stage.budget_us is not None and stage.p50_us is not None and stage.p50_us > stage.budget_us
    ]
    if not found or _work(results) is not None:
        return None
    told = ", ".join(f"{n} ({us(s.p50_us or 0.0)} of {us(s.budget_us or 0.0)})" for n, s in found)
    return f"At P50 already over budget: {told}. That is the usual tick, not a rare one.", _WORK_ROWS


def _parallelism(results: Results) -> _Told | None:
    """Good tails with low throughput."""
    run = results.run
    if not run.due or run.completed >= _BEHIND * run.due or results.end_to_end.p99_us is None:
        return None
    if results.end_to_end.p99_us > results.sla.limit_us:
        return None
    says = (
        f"{run.completed:,} of {run.due:,} ticks came through, and those within the SLA: good tails with low "
        "throughput. That points at the parallelism: more rows a batch, more engines, or threads of their own"
    )
    return says + (" (some roles share one here)." if len(run.threads) < len(ROLES) else "."), ()


def _drops(results: Results) -> _Told | None:
    run = results.run
    parts = [
        f"{queue.dropped:,} as the {name} queue ({queue.capacity:,} messages) was full"
        for name, queue in (("tick", run.tick_queue), ("order", run.order_queue))
        if queue.dropped
    ]
    if not parts:
        return None
    says = f"Dropped: {' and '.join(parts)}. The P99 of the table is of the ticks that came through."
    batches = sum(run.batches.values())
    if batches and len(run.batches) > 1:
        largest = max(run.batches)
        share = run.batches[largest] / batches
        if share >= _FULL_BATCHES:
            says += (
                f" {100 * share:.0f} % of the batches had the most rows seen ({largest}): it is at its limit."
            )
    return says, ()


# -- what disturbed it -----------------------------------------------------------------------


def _generator(results: Results) -> _Told | None:
    """The time before a tick is in the pipeline is the host's noise."""
    stage, whole = results.stages["generate"], results.end_to_end
    if stage.p99_us is None or whole.p99_us is None or stage.p99_us < _MOSTLY * whole.p99_us:
        return None
    cpus = results.placement.cpus
    says = f"The generator handed ticks over late (P99 {us(stage.p99_us)})"
    if cpus["generator"] == cpus["compute"]:
        return says + ", as it shares its thread with the pipeline: a due tick waits for those before it.", ()
    return (
        f"{says}: something else had CPU {cpus['generator']}. It is charged to the ticks, as a stalled feed "
        "would be, and is no work of the pipeline.",
        _OCCASIONAL_ROWS,
    )


def _preempted(results: Results) -> _Told | None:
    """Threads that spin are switched out by nobody but others who want their CPU."""
    found = [t for t in results.run.threads if t.involuntary_switches]
    if not found:
        return None
    told = ", ".join(f"{_thread(t)} {t.involuntary_switches:,} times" for t in found)
    return f"Other tasks took the CPU: from {told}.", _ALONE_ROWS


def _faults(results: Results) -> _Told | None:
    found = [t for t in results.run.threads if t.minor_faults or t.major_faults]
    if not found and results.run.memory_locked:
        return None
    says = ""
    if found:
        told = ", ".join(f"{_thread(t)} {t.minor_faults:,} minor and {t.major_faults:,} major" for t in found)
        says = f"Page faults in the measured part: {told}. Each is a way into the kernel."
    if not results.run.memory_locked:
        why = f": {results.run.memory_why}" if results.run.memory_why else ""
        says += f"{' ' if says else ''}Memory was not locked{why}. The kernel may take pages away."
    return says, _MEMORY_ROWS if found else ()


def _moved(results: Results) -> _Told | None:
    found = [t for t in results.run.threads if t.migrations]
    if not found:
        return None
    told = ", ".join(f"{_thread(t)} {t.migrations:,} times" for t in found)
    return (
        f"Pinned threads were moved to other CPUs: {told}. Somebody changed their affinity or the cpuset.",
        ("service.tuner-conflict", "isolation.cpuset-partition"),
    )


def _unexplained(results: Results) -> _Told | None:
    if results.attribution.method != "trace":
        return None
    total = sum(c.outliers for c in results.attribution.causes)
    dark = sum(c.outliers for c in results.attribution.causes if c.kind == "unexplained")
    if not total or dark < _UNEXPLAINED * total:
        return None
    return (
        f"In {dark:,} of {total:,} outliers nothing ran that the kernel tells of. Firmware (SMIs), power "
        "management and a hypervisor take time in such a way, and so does the pipeline's own work.",
        _UNSEEN_ROWS,
    )


def _drifting(results: Results) -> _Told | None:
    drift = results.drift
    if drift.direction not in ("rises", "falls") or drift.change_pct is None or drift.p_value is None:
        return None
    says = (
        f"P99 {drift.direction} over the run, by {abs(drift.change_pct):.0f} % from its beginning to its end "
        f"(the chance of so steady a trend without any: {_chance(drift.p_value)})."
    )
    if drift.direction == "rises":
        return f"{says} Heat and what other programs take grow like that.", (
            "cpu.throttled",
            "memory.pressure",
        )
    return f"{says} The start may be part of it: a longer --warmup tells.", ()


def _clock(results: Results) -> _Told | None:
    run = results.run
    if run.clock_overhead_ns < _COSTLY_CLOCK_NS:
        return None
    return (
        f"Each look at the clock ({run.clock}) costs {run.clock_overhead_ns:.0f} ns, and each tick has up to "
        f"{_STAMPS}: {_STAMPS * run.clock_overhead_ns / 1000:.1f} us of its latency is measuring.",
        ("clock.source", "clock.tsc"),
    )


def _quiet(results: Results) -> Reading:
    within = " and the SLA is met" if results.sla.met else ""
    return Reading("quiet", f"Nothing in the shape of these numbers stands out{within}.")


RULES = (
    Rule("few", _few),
    Rule("occasional", _occasional),
    Rule("work", _work),
    Rule("overspent", _overspent),
    Rule("parallelism", _parallelism),
    Rule("drops", _drops),
    Rule("generator", _generator),
    Rule("preempted", _preempted),
    Rule("faults", _faults),
    Rule("moved", _moved),
    Rule("unexplained", _unexplained),
    Rule("drifting", _drifting),
    Rule("clock", _clock),
)


# -- words -----------------------------------------------------------------------------------


def _largest(results: Results, field: str) -> tuple[str, Latency]:
    return max(results.stages.items(), key=lambda item: getattr(item[1], field) or 0.0)


def _thread(thread: Thread) -> str:
    return f"{' and '.join(thread.roles)} (CPU {thread.cpu})"


def _chance(p_value: float) -> str:
    return "below 1 in 1,000" if p_value < 0.001 else f"{100 * p_value:.1f} %"


def us(value: float) -> str:
    return f"{value:,.1f} us" if value < 100 else f"{value:,.0f} us"
