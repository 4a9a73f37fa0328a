"""/proc/interrupts and /proc/softirqs, live or pasted.

The layout is show_interrupts() of kernel/irq/proc.c (Linux 6.12): a heading with one column for
each online CPU, then per line a label, one count per column, and for device interrupts the chip,
its own number of the interrupt, the flow ("2-edge" on x86, "27 Level" elsewhere) and the actions,
separated by a comma and a blank.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hwtune.text.cpulist import MAX_CPUS

# How the flow handlers call themselves behind a dash (irq_desc->name), Xen's event kinds included.
_FLOWS = frozenset(("edge", "level", "fasteoi", "event", "virq", "ipi", "pirq", "eoi", "ioapic", "simple"))
_ADDRESS = re.compile(
    r"(?<![0-9a-fA-F])([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?![0-9a-fA-F])"
)
_PER_CPU_ACTIONS = frozenset(
    ("arch_timer", "arm-pmu", "riscv-timer", "IPI", "kvm guest vtimer", "kvm guest ptimer")
)
# A count is an unsigned int; the sums of some architectures are 64 bits wide.
_MOST_DIGITS = 20


class IrqLine(NamedTuple):
    """A numbered interrupt; ``counts`` leaves out the CPUs with 0."""

    number: int
    counts: dict[int, int]
    chip: str
    hwirq: int | None
    actions: list[str]

    @property
    def per_cpu(self) -> bool:
        """Whether every CPU has its own (a timer, a PMU, an IPI): no device's, and not movable."""
        chip = self.chip
        if chip.startswith("GIC") and self.hwirq is not None:
            # Private peripheral interrupts: INTIDs 16-31 and 1056-1119 (Arm GIC architecture, 2.2.1).
            return 16 <= self.hwirq < 32 or 1056 <= self.hwirq < 1120
        return (
            chip.startswith("xen-percpu")
            or chip == "RISC-V INTC"
            or any(a in _PER_CPU_ACTIONS for a in self.actions)
        )

    @property
    def address(self) -> str | None:
        """The PCI function that the chip's domain is named after ("PCI-MSIX-0000:3e:00.0", on
        kernels with a domain for each device), or that the driver put into the action's name."""
        for text in (self.chip, *self.actions):
            match = _ADDRESS.search(text)
            if match is not None:
                return match[1].lower()
        return None


class Interrupts(NamedTuple):
    """``others``: the architecture's own counters by label (LOC, RES, IPI0 ...), those without a
    count for each CPU (ERR, MIS) left out; ``titles``: what they say of themselves."""

    cpus: list[int]
    irqs: list[IrqLine]
    others: dict[str, dict[int, int]]
    titles: dict[str, str]

    def local_timer(self) -> dict[int, int] | None:
        """Timer interrupts of each CPU: LOC, or where the timer is an interrupt like others, its."""
        found = self.others.get("LOC")
        if found is not None:
            return found
        for irq in self.irqs:
            if irq.per_cpu and any(a in ("arch_timer", "riscv-timer") for a in irq.actions):
                return irq.counts
        return None

    def rescheduling(self) -> dict[int, int] | None:
        """Rescheduling interrupts of each CPU: RES, or the IPI of that title."""
        found = self.others.get("RES")
        if found is not None:
            return found
        for label, title in self.titles.items():
            if title == "Rescheduling interrupts":
                return self.others[label]
        return None


def parse_interrupts(text: str) -> Interrupts:
    """Raises ``ValueError`` where there is no heading of CPU columns. What stands before the
    heading (a prompt) and lines that are cut short are passed over."""
    cpus, lines = _columns(text)
    irqs: dict[int, IrqLine] = {}
    others: dict[str, dict[int, int]] = {}
    titles: dict[str, str] = {}
    for line in lines:
        found = _counts(line, cpus)
        if found is None:
            continue
        label, counts, rest = found
        if label.isdecimal() and len(label) < 10:
            number = int(label)
            irqs.setdefault(number, IrqLine(number, counts, *_describe(rest)))
        elif label not in others:
            others[label] = counts
            titles[label] = rest.strip()
    return Interrupts(cpus, list(irqs.values()), others, titles)


def parse_softirqs(text: str) -> dict[str, dict[int, int]]:
    """Counts by softirq name and CPU, zeros left out; ``ValueError`` as above."""
    cpus, lines = _columns(text)
    return {found[0]: found[1] for line in lines if (found := _counts(line, cpus)) is not None}


def _columns(text: str) -> tuple[list[int], list[str]]:
    """The CPUs of the first heading, and the lines up to the next one."""
    lines = text.splitlines()
    heading = next((i for i, line in enumerate(lines) if _is_heading(line)), None)
    if heading is None:
        raise ValueError("no heading of CPUs")
    cpus = [int(word[3:]) for word in lines[heading].split()]
    if len(set(cpus)) != len(cpus) or max(cpus) >= MAX_CPUS:
        raise ValueError("a heading of impossible CPUs")
    end = next((i for i in range(heading + 1, len(lines)) if _is_heading(lines[i])), len(lines))
    return cpus, lines[heading + 1 : end]


def _is_heading(line: str) -> bool:
    if not line.lstrip().startswith("CPU"):
        return False
    return all(w.startswith("CPU") and w[3:].isdecimal() and len(w) < 9 for w in line.split())


def _counts(line: str, cpus: list[int]) -> tuple[str, dict[int, int], str] | None:
    """Label, counts and the rest of a line, or None where it has not a count for each CPU."""
    label, colon, rest = line.partition(":")
    if not colon:
        return None
    # A fixed number of splits: what follows the counts is kept as it is written.
    words = rest.split(None, len(cpus))
    if len(words) < len(cpus):
        return None
    counts = {}
    for cpu, word in zip(cpus, words):  # noqa: B905 - the words may hold one more, the rest
        if word != "0":
            if not word.isdecimal() or len(word) > _MOST_DIGITS:
                return None
            counts[cpu] = int(word)
    return label.strip(), counts, words[len(cpus)] if len(words) > len(cpus) else ""


def _describe(rest: str) -> tuple[str, int | None, list[str]]:
    """Chip, the chip's number of the interrupt, and the actions."""
    words = rest.split()
    for i, word in enumerate(words):
        if word in ("Edge", "Level"):
            chip = words[:i]
        else:
            head, dash, flow = word.rpartition("-")
            if not dash or flow not in _FLOWS:
                continue
            chip = [*words[:i], head] if head else words[:i]
        return (*_chip(chip), _actions(" ".join(words[i + 1 :])))
    # No flow: the columns are set apart by more than one blank, and the last one has the actions.
    columns = re.split(r"\s{2,}", rest.strip())
    if len(columns) < 2 or columns[-1].isdecimal():
        return (*_chip(words), [])
    return (*_chip(" ".join(columns[:-1]).split()), _actions(columns[-1]))


def _chip(words: list[str]) -> tuple[str, int | None]:
    if words and words[-1].isdecimal() and len(words[-1]) < _MOST_DIGITS:
        return " ".join(words[:-1]), int(words[-1])
    return " ".join(words), None


def _actions(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]
