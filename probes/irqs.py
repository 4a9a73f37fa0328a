"""Interrupts: counts, affinities in force, owners, and who may move them.

/proc/interrupts and /proc/irq (Documentation/filesystems/proc.rst, core-api/irq/irq-affinity.rst).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hwtune.fact import ABSENT, Fact, gap, known
from hwtune.model.irqs import Irq, Irqs
from hwtune.probes import _irqbalance
from hwtune.text.cpulist import parse_list, parse_mask
from hwtune.text.interrupts import parse_interrupts, parse_softirqs

if TYPE_CHECKING:
    from hwtune.host.base import Host
    from hwtune.text.interrupts import Interrupts

PART = "irq"

# 1,024 CPUs with 2,000 interrupts print 23 MB.
_TABLE_LIMIT = 1 << 28
# What drivers call the vectors that they leave to the kernel to spread (PCI_IRQ_AFFINITY, or a struct
# irq_affinity given to virtio): NVMe I/O queues, reply queues of SAS and RAID controllers, request
# queues of virtio-blk on PCI (a write is refused by 6.1 and 6.18). The first vector (admin,
# configuration) is never among them.
_MANAGED = re.compile(
    r"nvme\d+q[1-9]\d*|(?:megasas|mpt[23]sas|mpi3mr|hpsa)\d+-msix[1-9]\d*|virtio\d+-req\.\d+", re.ASCII
)
# Interrupts of the platform, whose owner is no PCI function.
_PLATFORM = ("timer", "i8042", "rtc", "acpi", "ACPI:", "cascade", "dmar", "AMD-Vi", "hpet", "ttyS", "pinctrl")


def read(host: Host) -> Irqs:
    found = Irqs()
    table = _table(host)
    irqs = _counted(table)
    _list(host, irqs, found)
    found.irqs = [irqs[number] for number in sorted(irqs)]
    _affinities(host, found)
    _owners(host, found.irqs)
    _managed(host, found.irqs)
    found.counted_cpus = table.map(lambda t: t.cpus)
    found.local_timer_counts = _of_architecture(table, table.map(lambda t: t.local_timer()), "LOC")
    found.rescheduling_counts = _of_architecture(table, table.map(lambda t: t.rescheduling()), "RES")
    found.default_affinity = host.parse("/proc/irq/default_smp_affinity", parse_mask)
    found.softirqs = host.parse("/proc/softirqs", parse_softirqs, _TABLE_LIMIT)
    found.irqbalance_environment, found.irqbalance_source = _irqbalance.read(host)
    return found


def _table(host: Host) -> Fact[Interrupts]:
    table = host.parse("/proc/interrupts", parse_interrupts, _TABLE_LIMIT)
    if table.known:
        return table
    for document in host.documents("/proc/interrupts"):
        pasted = known(document.text, document.path).map(parse_interrupts)
        if pasted.known:
            return pasted
    return table


def _counted(table: Fact[Interrupts]) -> dict[int, Irq]:
    if not table.known:
        return {}
    return {
        line.number: Irq(
            line.number,
            actions=line.actions,
            chip=line.chip,
            counts=line.counts,
            counted=True,
            pci_address=line.address,
            per_cpu=line.per_cpu,
        )
        for line in table.get().irqs
    }


def _of_architecture(
    table: Fact[Interrupts], counts: Fact[dict[int, int] | None], label: str
) -> Fact[dict[int, int]]:
    """Counts of one of the architecture's own interrupts; those of CPUs without any are 0."""
    if counts.known and counts.value is None:
        return gap(ABSENT, f"{table.source} {label}")
    cpus = table.get().cpus if table.known else []
    return counts.map(lambda found: {cpu: (found or {}).get(cpu, 0) for cpu in cpus})


def _list(host: Host, irqs: dict[int, Irq], found: Irqs) -> None:
    """Add the interrupts of /proc/irq: those without an action have no line in the table."""
    names = host.names("/proc/irq")
    found.listed = names.map(lambda _: True)
    if names.known:
        for name in names.get():
            if name.isdecimal() and len(name) < 10:
                irqs.setdefault(int(name), Irq(int(name)))


def _affinities(host: Host, found: Irqs) -> None:
    if not found.listed.known:
        missing = gap(found.listed.gap or ABSENT, found.listed.source, found.listed.detail)
        for irq in found.irqs:
            irq.affinity = irq.effective = missing
            irq.node = missing
        return
    nodes = host.parse("/sys/devices/system/node/online", parse_list)
    one_node = nodes.known and len(nodes.get()) == 1
    # Hundreds of interrupts have the same few lists.
    lists: dict[str, list[int]] = {}
    masks: dict[str, list[int]] = {}

    def parse(text: str) -> list[int]:
        cpus = lists.get(text)
        if cpus is None:
            cpus = lists[text] = parse_list(text)
        return cpus

    def parse_old(text: str) -> list[int]:
        cpus = masks.get(text)
        if cpus is None:
            cpus = masks[text] = parse_mask(text)
        return cpus

    for irq in found.irqs:
        folder = f"/proc/irq/{irq.number}"
        irq.affinity = host.parse(f"{folder}/smp_affinity_list", parse)
        if not irq.affinity.known:
            irq.affinity = irq.affinity.or_else(host.parse(f"{folder}/smp_affinity", parse_old))
        irq.effective = host.parse(f"{folder}/effective_affinity_list", parse)
        if not irq.effective.known:
            irq.effective = irq.effective.or_else(host.parse(f"{folder}/effective_affinity", parse_old))
        if not one_node:
            irq.node = host.integer(f"{folder}/node")


def _owners(host: Host, irqs: list[Irq]) -> None:
    """PCI functions by their msi_irqs folder, else by their interrupt line (the file irq).

    Newer kernels name the owner in the chip's domain. The folders are only listed where that has
    left out an interrupt that was counted and is not the platform's: one listing a device.
    """
    if not any(_wants_owner(irq) for irq in irqs):
        return
    devices = host.names("/sys/bus/pci/devices")
    if not devices.known:
        return
    by_number = {irq.number: irq for irq in irqs}
    for address in devices.get():
        vectors = host.names(f"/sys/bus/pci/devices/{address}/msi_irqs")
        for name in vectors.get() if vectors.known else ():
            irq = by_number.get(int(name)) if name.isdecimal() and len(name) < 10 else None
            if irq is not None:
                irq.pci_address = address.lower()
    if not any(_wants_owner(irq) for irq in irqs):
        return
    lines: dict[int, set[str]] = {}
    for address in devices.get():
        line = host.integer(f"/sys/bus/pci/devices/{address}/irq")
        if line.known and line.get() > 0:
            lines.setdefault(line.get(), set()).add(address.lower())
    for irq in irqs:
        sharers = lines.get(irq.number, set())
        # A line that several functions share has no one owner.
        if irq.pci_address is None and len(sharers) == 1:
            irq.pci_address = next(iter(sharers))


def _wants_owner(irq: Irq) -> bool:
    return (
        irq.pci_address is None
        and bool(irq.counts)
        and not irq.per_cpu
        and not any(action.startswith(_PLATFORM) for action in irq.actions)
    )


def _managed(host: Host, irqs: list[Irq]) -> None:
    """By the kernel's own word in debugfs where that can be read, else by what drivers call the
    vectors that they leave to the kernel; None is neither."""
    told = host.names("/sys/kernel/debug/irq/irqs")
    numbers = set(told.get()) if told.known else set()
    for irq in irqs:
        if str(irq.number) in numbers:
            state = host.parse(f"/sys/kernel/debug/irq/irqs/{irq.number}", _is_managed)
            if state.known:
                irq.managed = state.get()
                continue
        if any(_MANAGED.fullmatch(action) for action in irq.actions):
            irq.managed = True


def _is_managed(text: str) -> bool:
    if "dstate:" not in text:
        raise ValueError("no state of the interrupt")
    return "IRQD_AFFINITY_MANAGED" in text
