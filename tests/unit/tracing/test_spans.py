"""From events to spans: who had a CPU, from when to when. All expected values follow from the records."""

from __future__ import annotations

import numpy as np

from hwtune.tracing import kinds
from hwtune.tracing.ringbuffer import decode
from hwtune.tracing.spans import Context, Names, build
from tests.support import trace_pages as tp
from tests.support.trace_pages import LAYOUT, PAGE, Record

BEGIN, END = 1000, 9000
TICK_FN, WATCHDOG_FN, VMSTAT_FN, NMI_FN, FLUSH_FN = 0xA0, 0xB0, 0xC0, 0xD0, 0xE0
FUNCTIONS = {
    TICK_FN: "tick_nohz_handler",
    WATCHDOG_FN: "watchdog_timer_fn",
    VMSTAT_FN: "vmstat_update",
    NMI_FN: "perf_event_nmi_handler",
    FLUSH_FN: "flush_tlb_func",
}
HOT, IDLE = 77, 0


def traced(records, *, lost=0, per_page=20, missed=frozenset(), events=(), follows=3):
    """The trace of CPU 2; and its spans as (start, end, kind, name, pid, start of its origin)."""
    names = Names()
    context = Context(
        formats=tp.formats(*events),
        functions=lambda addresses: {a: FUNCTIONS[a] for a in addresses if a in FUNCTIONS},
        strings={0xFF00: "Rescheduling interrupts"},
        ticks=lambda time: time,
        nanoseconds=lambda ns: ns // 2,
        follows=follows,
    )
    ordered = sorted(records, key=lambda r: r.time)
    trace = build(
        2, decode(tp.pages(ordered, per_page, missed), PAGE, LAYOUT), BEGIN, END, lost, context, names
    )
    spans = trace.spans
    table = [
        (int(a), int(b), kinds.KINDS[k], names.all[n], int(p), int(spans.start[o]))
        for a, b, k, n, p, o in zip(*spans, strict=True)
    ]
    return trace, table


def short(table):
    return [row[:4] for row in table]


def irq(start, end, number=36, name="virtio1-req.0", pid=HOT):
    return [
        Record(start, "irq:irq_handler_entry", pid, (number, name)),
        Record(end, "irq:irq_handler_exit", pid, (number, 1)),
    ]


def softirq(start, end, vector, pid=HOT):
    return [
        Record(start, "irq:softirq_entry", pid, (vector,)),
        Record(end, "irq:softirq_exit", pid, (vector,)),
    ]


def timer(start, end, pid=HOT):
    return [
        Record(start, "irq_vectors:local_timer_entry", pid, (236,)),
        Record(end, "irq_vectors:local_timer_exit", pid, (236,)),
    ]


def switch(time, previous, state, following):
    (pid, comm), (next_pid, next_comm) = previous, following
    return [Record(time, "sched:sched_switch", pid, (comm, pid, 120, state, next_comm, next_pid, 120))]


def test_an_interrupt_and_the_softirq_that_it_brought():
    _, table = traced([*irq(2000, 2010), *softirq(2012, 2040, 4)])
    assert table == [
        (2000, 2010, "irq", "IRQ 36 virtio1-req.0", HOT, 2000),
        (2012, 2040, "softirq", "BLOCK", HOT, 2000),
    ]


def test_a_softirq_long_after_an_interrupt_is_its_own():
    _, table = traced([*irq(2000, 2010), *softirq(2014, 2040, 4)])
    assert table[1][5] == 2014


def test_softirqs_one_behind_the_other_are_all_the_interrupts():
    _, table = traced(
        [*timer(2000, 2010), *softirq(2011, 2020, 1), *softirq(2021, 2030, 7), *softirq(2033, 2035, 9)]
    )
    assert [row[5] for row in table] == [2000] * 4


def test_an_interrupt_within_a_softirq_brings_itself_only():
    records = [*irq(2000, 2010), *softirq(2011, 2100, 3), *timer(2050, 2060), *softirq(2101, 2110, 9)]
    _, table = traced(records)
    assert [(row[0], row[5]) for row in table] == [(2000, 2000), (2011, 2000), (2050, 2050), (2101, 2000)]


def test_tasks_from_switch_to_switch():
    records = [
        *switch(3000, (HOT, "hot"), 0, (50, "kworker/2:1")),
        *switch(3500, (50, "kworker/2:1"), 0x80, (HOT, "hot")),
    ]
    _, table = traced(records)
    assert table == [
        (BEGIN, 3000, "switch", "hot", HOT, BEGIN),
        (3000, 3500, "switch", "kworker/2:1", 50, 3000),
        (3500, END, "switch", "hot", HOT, 3500),
    ]


def test_idle_of_its_own_accord_and_throttled():
    asleep = switch(3000, (HOT, "hot"), 1, (IDLE, "swapper/2"))
    ready = switch(3000, (HOT, "hot"), 0, (IDLE, "swapper/2"))
    preempted = switch(3000, (HOT, "hot"), 0x100, (IDLE, "swapper/2"))
    assert short(traced(asleep)[1])[1] == (3000, END, "switch", "idle")
    assert short(traced(ready)[1])[1] == (3000, END, "switch", "throttled")
    assert short(traced(preempted)[1])[1] == (3000, END, "switch", "throttled")


def test_what_a_kworker_did():
    records = [
        *switch(3000, (HOT, "hot"), 0, (50, "kworker/2:1")),
        Record(3010, "workqueue:workqueue_execute_start", 50, (1, VMSTAT_FN)),
        *switch(3500, (50, "kworker/2:1"), 0x80, (HOT, "hot")),
    ]
    assert short(traced(records)[1])[1] == (3000, 3500, "switch", "kworker/2:1 (vmstat_update)")


def hrtimer(time, function):
    return Record(time, "timer:hrtimer_expire_entry", HOT, (1, 0, function))


def test_the_tick_is_known_by_its_function():
    records = [
        *timer(2000, 2010),
        hrtimer(2002, TICK_FN),
        *timer(3000, 3010),
        hrtimer(3002, WATCHDOG_FN),
        *timer(4000, 4010),
        hrtimer(4002, WATCHDOG_FN),
        hrtimer(4003, TICK_FN),
        *timer(5000, 5010),
        hrtimer(5002, 0x123),
        hrtimer(6000, TICK_FN),  # within none
    ]
    assert short(traced(records)[1]) == [
        (2000, 2010, "timer", "tick"),
        (3000, 3010, "timer", "local timer (watchdog_timer_fn)"),
        (4000, 4010, "timer", "tick + watchdog_timer_fn"),
        (5000, 5010, "timer", "local timer"),
    ]


def test_a_timer_without_an_interrupt_that_is_told_of():
    """As Hyper-V's and Xen's: only the expirations are; those within an interrupt or softirq are its."""
    records = [
        hrtimer(2002, TICK_FN),
        Record(2008, "timer:hrtimer_expire_exit", HOT, (1,)),
        *timer(3000, 3010),
        hrtimer(3002, TICK_FN),
        Record(3008, "timer:hrtimer_expire_exit", HOT, (1,)),
        *softirq(4000, 4010, 8),
        hrtimer(4002, WATCHDOG_FN),
        Record(4008, "timer:hrtimer_expire_exit", HOT, (1,)),
    ]
    assert short(traced(records)[1]) == [
        (2002, 2008, "timer", "tick"),
        (3000, 3010, "timer", "tick"),
        (4000, 4010, "softirq", "HRTIMER"),
    ]


def test_what_a_timer_softirq_and_a_function_call_did():
    records = [
        *softirq(2000, 2010, 1),
        Record(2003, "timer:timer_expire_entry", HOT, (1, 0, VMSTAT_FN)),
        *softirq(2100, 2110, 7),
        Record(2103, "timer:timer_expire_entry", HOT, (1, 0, VMSTAT_FN)),
        Record(3000, "irq_vectors:call_function_single_entry", HOT, (251,)),
        Record(3001, "csd:csd_function_entry", HOT, (FLUSH_FN, 1)),
        Record(3005, "irq_vectors:call_function_single_exit", HOT, (251,)),
    ]
    assert short(traced(records)[1]) == [
        (2000, 2010, "softirq", "TIMER (vmstat_update)"),
        (2100, 2110, "softirq", "SCHED"),
        (3000, 3005, "ipi", "single function call (flush_tlb_func)"),
    ]


def test_an_nmi_is_told_of_at_its_end():
    records = [Record(4000, "nmi:nmi_handler", HOT, (NMI_FN, 600, 1))]
    assert short(traced(records)[1]) == [(3700, 4000, "nmi", "NMI perf_event_nmi_handler")]


def test_a_page_fault_is_a_point():
    records = [Record(4000, "exceptions:page_fault_user", HOT, (1 << 47, 1 << 22))]
    assert short(traced(records)[1]) == [(4000, 4000, "page-fault", "page fault")]


def test_arm_names_its_ipis_and_has_its_timer_as_an_interrupt():
    records = [
        Record(2000, "ipi:ipi_entry", HOT, (0xFF00,)),
        Record(2010, "ipi:ipi_exit", HOT, (0xFF00,)),
        *irq(3000, 3010, 11, "arch_timer"),
        hrtimer(3002, TICK_FN),
    ]
    assert short(traced(records)[1]) == [
        (2000, 2010, "ipi", "Rescheduling interrupts"),
        (3000, 3010, "timer", "tick"),
    ]


def test_a_timer_beside_devices():
    records = [*irq(2000, 2010), *irq(3000, 3010, 11, "arch_timer")]
    assert [row[2] for row in traced(records)[1]] == ["irq", "timer"]


def test_begins_and_ends_that_have_no_other_are_left_out():
    records = [
        irq(0, 1500)[1],  # had begun before
        irq(2000, 0)[0],  # two begins
        *irq(2100, 2110),
        softirq(8000, 0, 3)[0],  # not over yet
    ]
    trace, table = traced(records)
    assert short(table) == [(2100, 2110, "irq", "IRQ 36 virtio1-req.0")]
    assert trace.left_out == 3


def test_no_span_reaches_over_lost_events():
    records = [
        irq(2000, 0)[0],
        *switch(2500, (HOT, "hot"), 0, (50, "other")),
        irq(0, 6000, pid=60)[1],  # of another interrupt: two events between them are missing
        *switch(7000, (60, "third"), 1, (HOT, "hot")),
    ]
    trace, table = traced(records, lost=4, per_page=2, missed=frozenset((1,)))
    assert short(table) == [
        (BEGIN, 2500, "switch", "hot"),
        (2500, 2500, "switch", "other"),
        (6000, 7000, "switch", "third"),
        (7000, END, "switch", "hot"),
    ]
    assert trace.lost.tolist() == [[2500, 6000]]


def test_a_switch_that_the_kernel_left_out():
    """The interrupt at 3000 stopped the worker, the fault at 3500 was another task's: who left whom in
    between is not known, and the CPU is neither the worker's nor the other's until then."""
    records = [
        *switch(2000, (HOT, "hot"), 0, (70, "worker")),
        *irq(3000, 3010, pid=70),
        Record(3500, "exceptions:page_fault_user", 60, (0, 0, 0)),
        *switch(4000, (60, "third"), 1, (HOT, "hot")),
        # one is left out at the end too: nobody tells its name
        *irq(5000, 5010, pid=88),
    ]
    trace, table = traced(records)
    assert [row[:5] for row in table if row[2] == "switch"] == [
        (BEGIN, 2000, "switch", "hot", HOT),
        (2000, 3010, "switch", "worker", 70),
        (3500, 4000, "switch", "third", 60),
        (4000, 4000, "switch", "hot", HOT),
        (5000, END, "switch", "PID 88", 88),
    ]
    assert trace.lost.tolist() == [[3010, 3500], [4000, 5000]]
    assert (trace.events_lost, trace.left_out) == (0, 0)


def test_two_switches_with_one_left_out_between_them():
    records = [
        *switch(2000, (HOT, "hot"), 0, (70, "worker")),
        *switch(4000, (60, "third"), 1, (HOT, "hot")),
    ]
    trace, table = traced(records)
    assert short(table) == [
        (BEGIN, 2000, "switch", "hot"),
        (2000, 2000, "switch", "worker"),
        (4000, END, "switch", "hot"),
    ]
    assert trace.lost.tolist() == [[2000, 4000]]


def test_an_interrupt_in_the_middle_of_a_switch_is_no_missing_one():
    """An NMI right behind the event still finds the task before."""
    records = [
        *switch(2000, (HOT, "hot"), 0, (70, "worker")),
        Record(2001, "nmi:nmi_handler", HOT, (0, 500, 1)),
        *irq(3000, 3010, pid=70),
    ]
    trace, table = traced(records)
    assert [row for row in short(table) if row[2] == "switch"] == [
        (BEGIN, 2000, "switch", "hot"),
        (2000, END, "switch", "worker"),
    ]
    assert trace.lost.tolist() == []


def test_the_oldest_events_were_overwritten():
    trace, _ = traced(irq(5000, 5010), lost=100)
    assert trace.lost.tolist() == [[BEGIN, 5000]]
    marked, _ = traced(irq(5000, 5010), lost=100, missed=frozenset((0,)))
    assert marked.lost.tolist() == [[BEGIN, 5000]]


def test_nothing_recorded():
    trace, table = traced([])
    assert (table, trace.lost.tolist()) == ([], [])
    assert traced([], lost=7)[0].lost.tolist() == [[BEGIN, END]]


def test_a_softirq_that_was_preempted_had_the_cpu_only_while_its_task_had():
    irq_thread = 40
    records = [
        *switch(2000, (HOT, "hot"), 0, (irq_thread, "irq/36-eth0")),
        softirq(2100, 0, 3, irq_thread)[0],
        *switch(2200, (irq_thread, "irq/36-eth0"), 0, (HOT, "hot")),
        *switch(2800, (HOT, "hot"), 0, (irq_thread, "irq/36-eth0")),
        softirq(0, 2900, 3, irq_thread)[1],
        *switch(3000, (irq_thread, "irq/36-eth0"), 1, (HOT, "hot")),
    ]
    table = traced(records)[1]
    assert [row[:2] for row in table if row[2] == "softirq"] == [(2100, 2200), (2800, 2900)]


def test_two_tasks_in_the_same_softirq_are_kept_apart():
    records = [
        softirq(2000, 0, 3, 40)[0],
        *switch(2100, (40, "a"), 0, (41, "b")),
        *softirq(2200, 2300, 3, 41),
        *switch(2400, (41, "b"), 1, (40, "a")),
        softirq(0, 2500, 3, 40)[1],
    ]
    table = traced(records)[1]
    assert [(*row[:2], row[4]) for row in table if row[2] == "softirq"] == [
        (2000, 2100, 40),
        (2200, 2300, 41),
        (2400, 2500, 40),
    ]


def test_events_that_this_kernel_does_not_have():
    _, table = traced(irq(2000, 2010), events=("irq:irq_handler_entry", "irq:irq_handler_exit"))
    assert short(table) == [(2000, 2010, "irq", "IRQ 36 virtio1-req.0")]


def test_a_begin_whose_end_this_kernel_does_not_have():
    assert traced(irq(2000, 2010), events=("irq:irq_handler_entry",))[1] == []


def test_shared_interrupts_and_names_with_numbers_alike():
    records = [*irq(2000, 2010, 9, "acpi"), *irq(2020, 2030, 9, "i801_smbus"), *irq(2040, 2050, 10, "acpi")]
    assert [row[3] for row in traced(records)[1]] == ["IRQ 9 acpi", "IRQ 9 i801_smbus", "IRQ 10 acpi"]


def test_times_outside_of_the_watch_are_drawn_to_its_edges():
    table = traced(irq(990, 1010) + irq(8990, 9100))[1]
    assert [row[:2] for row in table] == [(1000, 1010), (8990, 9000)]
    assert np.all([row[0] <= row[1] for row in table])
