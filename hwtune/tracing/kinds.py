"""What can take a CPU from a thread, in the words of the reports."""

from __future__ import annotations

IRQ = "irq"  # a device's interrupt
SOFTIRQ = "softirq"
TIMER = "timer"  # the local timer's interrupt: the tick, and hrtimers
IPI = "ipi"  # another CPU's
NMI = "nmi"
SWITCH = "switch"  # another task ran
PAGE_FAULT = "page-fault"
OTHER = "other"  # the interrupt controller's own: thermal, machine check thresholds
# Not recorded by any event
UNEXPLAINED = "unexplained"  # nothing that the kernel tells of was running
NOT_RECORDED = "not-recorded"  # events of this time were lost, or not traced

#: the kinds that a span may have; its ``kind`` is the place in here
KINDS = (IRQ, SOFTIRQ, TIMER, IPI, NMI, SWITCH, PAGE_FAULT, OTHER)
#: those that stop whatever runs, a softirq too
HARD = frozenset((IRQ, TIMER, IPI, NMI, OTHER))
