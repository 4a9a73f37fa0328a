"""Which of the kernel's events tell who took a CPU, and what each one means.

Names are those of include/trace/events/*.h and arch/x86/include/asm/trace/*.h (Linux 6.12). Not every
kernel has all of them: AArch64 has no page faults and no NMIs, and its timer is an interrupt like others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hwtune.tracing import kinds
from hwtune.tracing.formats import Format, parse_format

if TYPE_CHECKING:
    from hwtune.tracing.tracefs import Tracefs


class Pair(NamedTuple):
    """Two events, at the begin and at the end. ``key`` is the field that tells one pair from another."""

    kind: str
    entry: str
    exit: str
    key: str = ""
    name: str = ""  # what it is called where no field tells


class Note(NamedTuple):
    """An event within a span, with the kernel function that the span is about."""

    event: str
    function: str  # the field
    on: str  # the kind of the span
    only: str = ""  # of such spans only that one, by name


def _vector(kind: str, event: str, name: str) -> Pair:
    return Pair(kind, f"irq_vectors:{event}_entry", f"irq_vectors:{event}_exit", name=name)


IRQ_HANDLER = Pair(kinds.IRQ, "irq:irq_handler_entry", "irq:irq_handler_exit", key="irq")
SOFTIRQ = Pair(kinds.SOFTIRQ, "irq:softirq_entry", "irq:softirq_exit", key="vec")
ARM_IPI = Pair(kinds.IPI, "ipi:ipi_entry", "ipi:ipi_exit", name="IPI")
VECTORS = (
    _vector(kinds.TIMER, "local_timer", "local timer"),
    _vector(kinds.IPI, "reschedule", "reschedule"),
    _vector(kinds.IPI, "call_function", "function call"),
    _vector(kinds.IPI, "call_function_single", "single function call"),
    _vector(kinds.IPI, "irq_work", "irq work"),
    _vector(kinds.IPI, "x86_platform_ipi", "platform"),
    _vector(kinds.OTHER, "thermal_apic", "thermal interrupt"),
    _vector(kinds.OTHER, "threshold_apic", "machine check threshold"),
    _vector(kinds.OTHER, "deferred_error_apic", "deferred error interrupt"),
    _vector(kinds.OTHER, "error_apic", "APIC error"),
    _vector(kinds.OTHER, "spurious_apic", "spurious interrupt"),
)
PAIRS = (IRQ_HANDLER, SOFTIRQ, ARM_IPI, *VECTORS)
# Where the timer's interrupt has no events of its own (Hyper-V's and Xen's), what it does has.
HRTIMER = Pair(
    kinds.TIMER, "timer:hrtimer_expire_entry", "timer:hrtimer_expire_exit", key="hrtimer", name="local timer"
)
SWITCH = "sched:sched_switch"
FAULTS = {
    "exceptions:page_fault_user": "page fault",
    "exceptions:page_fault_kernel": "page fault in the kernel",
}
NMI = "nmi:nmi_handler"
# Of the events that are only within others, those that a quiet CPU has few of.
NOTES = (
    Note(HRTIMER.entry, "function", kinds.TIMER),
    Note("timer:timer_expire_entry", "function", kinds.SOFTIRQ, "TIMER"),
    Note("csd:csd_function_entry", "func", kinds.IPI),
    Note("workqueue:workqueue_execute_start", "function", kinds.SWITCH),
)

#: every event that is asked for, as group:name
WANTED: tuple[str, ...] = (
    *(event for pair in PAIRS for event in (pair.entry, pair.exit)),
    SWITCH,
    *FAULTS,
    NMI,
    HRTIMER.exit,
    *(note.event for note in NOTES),
)
# What is not recorded at all where none of these exists; AArch64's and RISC-V's timer is a device's.
_TELLS = {
    "interrupts": (IRQ_HANDLER.entry,),
    "softirqs": (SOFTIRQ.entry,),
    "task switches": (SWITCH,),
    "IPIs": (ARM_IPI.entry, "irq_vectors:call_function_single_entry"),
    "page faults": tuple(FAULTS),
    "NMIs": (NMI,),
}

Formats = dict[str, Format]


def read_formats(tracefs: Tracefs) -> tuple[Formats, list[str]]:
    """The formats of the wanted events that this kernel has, and those that made no sense, by name."""
    found: Formats = {}
    strange = []
    for event in WANTED:
        try:
            found[event] = parse_format(tracefs.read(f"events/{event.replace(':', '/')}/format"))
        except FileNotFoundError:
            continue
        except ValueError:
            strange.append(event)
    return found, strange


def untold(formats: Formats) -> list[str]:
    """What this kernel has no event for."""
    return [what for what, events in _TELLS.items() if not any(event in formats for event in events)]
