"""Causes name rows that exist, and the right ones."""

from __future__ import annotations

import pytest

from hwtune.diagnosis.table import table
from hwtune.tracing import kinds, rows_for
from hwtune.tracing import rows as mapping

CASES = [
    (kinds.IRQ, "IRQ 36 virtio1-req.0", "irq.on-isolated"),
    (kinds.IRQ, "IRQ 120 nvme0q3", "isolation.managed-irq"),
    (kinds.SOFTIRQ, "NET_RX", "irq.on-isolated"),
    (kinds.SOFTIRQ, "TIMER (delayed_work_timer_fn)", "isolation.tick"),
    (kinds.SOFTIRQ, "RCU", "isolation.kernel-args"),
    (kinds.TIMER, "tick", "isolation.tick"),
    (kinds.TIMER, "local timer (watchdog_timer_fn)", "isolation.watchdog"),
    (kinds.IPI, "single function call (flush_tlb_func)", "memory.numa-balancing"),
    (kinds.IPI, "single function call (rps_trigger_softirq)", "nic.rps"),
    (kinds.IPI, "reschedule", "isolation.tasks"),
    (kinds.NMI, "NMI perf_event_nmi_handler", "isolation.watchdog"),
    (kinds.SWITCH, "kworker/u8:2", "isolation.workqueues"),
    (kinds.SWITCH, "kworker/2:1 (vmstat_update)", "isolation.workqueues"),
    (kinds.SWITCH, "python3", "isolation.tasks"),
    (kinds.SWITCH, "irq/36-eth0", "irq.on-isolated"),
    (kinds.SWITCH, "rcuc/2", "isolation.kernel-args"),
    (kinds.SWITCH, "throttled", "isolation.rt-throttling"),
    (kinds.SWITCH, "khugepaged", "memory.khugepaged"),
    (kinds.PAGE_FAULT, "page fault", "memory.swap-in-use"),
    (kinds.OTHER, "thermal interrupt", "cpu.throttled"),
]


@pytest.mark.parametrize(("kind", "name", "first"), CASES)
def test_the_likeliest_row_first(kind, name, first):
    assert rows_for(kind, name)[0] == first


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kinds.SWITCH, "idle"), (kinds.UNEXPLAINED, "whatever"), (kinds.NOT_RECORDED, ""), ("strange", "x")],
)
def test_nothing_to_mend(kind, name):
    assert rows_for(kind, name) == ()


def test_every_row_exists():
    known = {row.id for row in table()}
    named = {row for kind, name, _ in CASES for row in rows_for(kind, name)}
    named |= {row for rows in mapping._SOFTIRQS.values() for row in rows}
    named |= {row for _, rows in (*mapping._THREADS, *mapping._FUNCTIONS) for row in rows}
    named |= {row for name in ("machine check", "thermal interrupt") for row in rows_for(kinds.OTHER, name)}
    assert named <= known
