"""Interrupts."""

from __future__ import annotations

import msgspec

from hwtune.fact import Fact, not_probed


class Irq(msgspec.Struct):
    """One device interrupt. ``counts`` maps a CPU to its count; CPUs with 0 are left out."""

    number: int
    actions: list[str] = []
    chip: str = ""
    affinity: Fact[list[int]] = not_probed()  # smp_affinity_list: what was asked for
    effective: Fact[list[int]] = not_probed()  # effective_affinity_list: what is in force
    node: Fact[int] = not_probed()  # read on machines of more than one node
    counts: dict[int, int] = {}
    counted: bool = False  # whether /proc/interrupts had this line
    pci_address: str | None = None  # owner, by msi_irqs, the chip's domain, the driver's name or irq
    # True where the kernel owns the affinity and nobody can move it; None where that is not known
    managed: bool | None = None
    per_cpu: bool = False  # every CPU has its own (timer, PMU, IPI): not a device's, not movable

    @property
    def total(self) -> int:
        """Interrupts since boot."""
        return sum(self.counts.values())


class Irqs(msgspec.Struct):
    irqs: list[Irq] = []
    listed: Fact[bool] = not_probed()  # known where /proc/irq was listed, not just /proc/interrupts
    counted_cpus: Fact[list[int]] = not_probed()  # the CPU columns of /proc/interrupts
    default_affinity: Fact[list[int]] = not_probed()
    local_timer_counts: Fact[dict[int, int]] = not_probed()  # LOC, or the timer's own interrupt
    rescheduling_counts: Fact[dict[int, int]] = not_probed()  # RES
    softirqs: Fact[dict[str, dict[int, int]]] = not_probed()
    # irqbalance: NAME -> value of its environment, as its unit puts it together
    irqbalance_environment: Fact[dict[str, str]] = not_probed()
    # the file in which the ban is (or would be) set
    irqbalance_source: str = ""
