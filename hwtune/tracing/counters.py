"""What the kernel counts for each CPU, before and after a run: no root is needed.

That tells which sources fired on a CPU and how often, and not which one made a thread wait.
"""

from __future__ import annotations

import contextlib
import os
import struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hwtune.text.interrupts import parse_interrupts, parse_softirqs
from hwtune.tracing import kinds
from hwtune.tracing.rows import rows_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Intel SDM vol. 4, table 2-2: MSR_SMI_COUNT, since Nehalem
_SMI_COUNT = 0x34
# The architecture's own interrupts, by the labels of /proc/interrupts (arch/x86/kernel/irq.c).
_LABELS = {
    "LOC": (kinds.TIMER, "local timer"),
    "RES": (kinds.IPI, "reschedule"),
    "CAL": (kinds.IPI, "function call"),
    "TLB": (kinds.IPI, "TLB shootdown"),
    "IWI": (kinds.IPI, "irq work"),
    "PLT": (kinds.IPI, "platform"),
    "NMI": (kinds.NMI, "NMI"),
    "TRM": (kinds.OTHER, "thermal interrupt"),
    "THR": (kinds.OTHER, "machine check threshold"),
    "DFR": (kinds.OTHER, "deferred error interrupt"),
    "MCE": (kinds.OTHER, "machine check"),
    "HYP": (kinds.OTHER, "hypervisor callback"),
    "PIN": (kinds.OTHER, "posted interrupt"),
    "NPI": (kinds.OTHER, "nested posted interrupt"),
    "PIW": (kinds.OTHER, "posted interrupt wake-up"),
    "SPU": (kinds.OTHER, "spurious interrupt"),
}
# Counted once more under another label: PMIs are NMIs, polls of the machine check banks are timers.
_TWICE = frozenset(("PMI", "MCP"))
# Counters of interrupts are unsigned int.
_WRAP = 1 << 32

Source = tuple[str, str]  # kind and name


class Fired(msgspec.Struct, frozen=True):
    """A source and how often it fired on one CPU during the run."""

    kind: str
    name: str
    count: int
    rows: tuple[str, ...]


class CpuCounters(msgspec.Struct, frozen=True):
    """One CPU during the run. None: not known, for the reason in ``Counted.missing``."""

    cpu: int
    #: the most frequent first
    fired: tuple[Fired, ...]
    #: time that the hypervisor gave to others, in steps of a clock tick (proc_stat(5))
    steal_ns: int | None
    #: times that a task was put on the CPU (/proc/schedstat)
    timeslices: int | None
    #: system management interrupts (Intel)
    smi: int | None


class Counted(msgspec.Struct, frozen=True):
    """``missing``: what could not be read, each as one sentence."""

    cpus: tuple[CpuCounters, ...]
    missing: tuple[str, ...]


class Reading(NamedTuple):
    """All counters at one moment; None where they could not be read."""

    sources: dict[Source, dict[int, int]] | None
    softirqs: dict[str, dict[int, int]] | None
    steal: dict[int, int] | None
    timeslices: dict[int, int] | None
    smi: dict[int, int]
    missing: tuple[str, ...]


def read(cpus: Sequence[int], root: str = "/") -> Reading:
    """The counters of ``cpus`` now. What can't be read is named, never guessed."""
    missing: list[str] = []

    def part(path: str, parse: Callable[[str], dict[int, int]]) -> dict[int, int] | None:
        text = _text(os.path.join(root, path), missing)
        return None if text is None else parse(text)

    interrupts = _text(os.path.join(root, "proc/interrupts"), missing)
    softirqs = _text(os.path.join(root, "proc/softirqs"), missing)
    return Reading(
        sources=_sources(interrupts, missing),
        softirqs=_softirqs(softirqs, missing),
        steal=part("proc/stat", _steal),
        timeslices=part("proc/schedstat", _timeslices),
        smi=_smi(cpus, root, missing),
        missing=tuple(dict.fromkeys(missing)),
    )


def between(before: Reading, after: Reading, cpus: Sequence[int]) -> Counted:
    """What happened on each of ``cpus`` between two readings."""
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    found = []
    for cpu in cpus:
        grown = _fired(before, after, cpu)
        fired = [Fired(kind, name, count, rows_for(kind, name)) for (kind, name), count in grown]
        steal = _grown(before.steal, after.steal, cpu)
        found.append(
            CpuCounters(
                cpu=cpu,
                fired=tuple(sorted(fired, key=lambda f: (-f.count, f.kind, f.name))),
                steal_ns=None if steal is None else steal * tick_ns,
                timeslices=_grown(before.timeslices, after.timeslices, cpu),
                smi=_grown(before.smi, after.smi, cpu),
            )
        )
    return Counted(tuple(found), tuple(dict.fromkeys(before.missing + after.missing)))


def _fired(before: Reading, after: Reading, cpu: int) -> list[tuple[Source, int]]:
    found = []
    if before.sources is not None and after.sources is not None:
        for source, counts in after.sources.items():
            grown = (counts.get(cpu, 0) - before.sources.get(source, {}).get(cpu, 0)) % _WRAP
            if grown:
                found.append((source, grown))
    if before.softirqs is not None and after.softirqs is not None:
        for name, counts in after.softirqs.items():
            grown = (counts.get(cpu, 0) - before.softirqs.get(name, {}).get(cpu, 0)) % _WRAP
            if grown:
                found.append(((kinds.SOFTIRQ, name), grown))
    return found


def _grown(before: dict[int, int] | None, after: dict[int, int] | None, cpu: int) -> int | None:
    if before is None or after is None or cpu not in before or cpu not in after:
        return None
    return max(after[cpu] - before[cpu], 0)


def _text(path: str, missing: list[str]) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as error:
        missing.append(f"{path}: {error.strerror}")
        return None


def _sources(text: str | None, missing: list[str]) -> dict[Source, dict[int, int]] | None:
    if text is None:
        return None
    try:
        parsed = parse_interrupts(text)
    except ValueError as error:
        missing.append(f"/proc/interrupts: {error}")
        return None
    found: dict[Source, dict[int, int]] = {}
    for irq in parsed.irqs:
        timer = irq.per_cpu and any(action in ("arch_timer", "riscv-timer") for action in irq.actions)
        name = f"IRQ {irq.number} {', '.join(irq.actions)}".rstrip()
        found[(kinds.TIMER, "local timer") if timer else (kinds.IRQ, name)] = irq.counts
    for label, counts in parsed.others.items():
        if label in _TWICE:
            continue
        title = parsed.titles[label]
        kind = kinds.IPI if label.startswith("IPI") else kinds.OTHER
        found.setdefault(_LABELS.get(label, (kind, title or label)), counts)
    return found


def _softirqs(text: str | None, missing: list[str]) -> dict[str, dict[int, int]] | None:
    if text is None:
        return None
    try:
        return parse_softirqs(text)
    except ValueError as error:
        missing.append(f"/proc/softirqs: {error}")
        return None


def _steal(text: str) -> dict[int, int]:
    """Clock ticks by CPU: the eighth column (proc_stat(5))."""
    return _column(text, 8)


def _timeslices(text: str) -> dict[int, int]:
    """Times that a task was given the CPU: the ninth (Documentation/scheduler/sched-stats.rst)."""
    return _column(text, 9)


def _column(text: str, place: int) -> dict[int, int]:
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) > place and words[0].startswith("cpu") and words[0][3:].isdecimal():
            with contextlib.suppress(ValueError):
                found[int(words[0][3:])] = int(words[place])
    return found


def _smi(cpus: Sequence[int], root: str, missing: list[str]) -> dict[int, int]:
    if not _is_intel(root):
        missing.append("SMIs are counted by Intel's processors only")
        return {}
    found = {}
    for cpu in cpus:
        path = os.path.join(root, f"dev/cpu/{cpu}/msr")
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            missing.append("SMIs: the module msr is not loaded (`modprobe msr`)")
            continue
        except OSError as error:
            missing.append(f"SMIs: {path}: {error.strerror}")
            continue
        try:
            found[cpu] = struct.unpack("<Q", os.pread(descriptor, 8, _SMI_COUNT))[0] & 0xFFFFFFFF
        except (OSError, struct.error):  # a hypervisor without it
            missing.append("SMIs: this processor does not give their number")
        finally:
            os.close(descriptor)
    return found


def _is_intel(root: str) -> bool:
    try:
        with open(os.path.join(root, "proc/cpuinfo"), encoding="utf-8", errors="replace") as file:
            return any(line.startswith("vendor_id") and "GenuineIntel" in line for line in file)
    except OSError:
        return False
