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
    node: Fact[int] = not_probed()
    counts: dict[int, int] = {}
    counted: bool = False  # whether /proc/interrupts had this line
    pci_address: str | None = None  # owner, by msi_irqs or irq
    managed: bool | None = None  # True where the kernel owns the affinity; None where not known


class Irqs(msgspec.Struct):
    irqs: list[Irq] = []
    listed: Fact[bool] = not_probed()
    counted_cpus: Fact[list[int]] = not_probed()  # the CPU columns of /proc/interrupts
    default_affinity: Fact[list[int]] = not_probed()
    softirqs: Fact[dict[str, dict[int, int]]] = not_probed()
    # irqbalance: NAME -> value of its environment files, with the file it came from
    irqbalance_environment: Fact[dict[str, str]] = not_probed()
    irqbalance_source: str = ""
