"""What the kernel counted between two readings: differences, worked out by hand."""

from __future__ import annotations

import os
import struct

import pytest

from hwtune.tracing import counters
from tests.support import tree

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def files(irq36, loc, tlb, rx, steal, slices, vendor="AuthenticAMD"):
    """Two CPUs; each argument is (CPU 0, CPU 1)."""
    return {
        "/proc/interrupts": (
            "           CPU0       CPU1\n"
            f" 36:  {irq36[0]}  {irq36[1]}  PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0\n"
            f"LOC:  {loc[0]}  {loc[1]}   Local timer interrupts\n"
            f"TLB:  {tlb[0]}  {tlb[1]}   TLB shootdowns\n"
            f"PMI:  {loc[0]}  {loc[1]}   Performance monitoring interrupts\n"
            "ERR:          0\n"
        ),
        "/proc/softirqs": f"      CPU0   CPU1\n  NET_RX:  {rx[0]}  {rx[1]}\n   TIMER:  5  5\n",
        "/proc/stat": (
            "cpu  1 2 3 4 5 6 7 8 9 10\n"
            f"cpu0 1 2 3 4 5 6 7 {steal[0]} 0 0\ncpu1 1 2 3 4 5 6 7 {steal[1]} 0 0\nctxt 5\n"
        ),
        "/proc/schedstat": (
            f"version 15\ntimestamp 5\ncpu0 0 0 0 0 0 0 1 2 {slices[0]}\ndomain0 3 1 1\n"
            f"cpu1 0 0 0 0 0 0 1 2 {slices[1]}\n"
        ),
        "/proc/cpuinfo": f"vendor_id\t: {vendor}\n",
    }


def counted(tmp_path, before, after, cpus=(1,)):
    tree(tmp_path, before)
    first = counters.read(cpus, str(tmp_path))
    tree(tmp_path, after)
    return counters.between(first, counters.read(cpus, str(tmp_path)), cpus)


def test_what_fired_on_the_cpu_and_how_often(tmp_path):
    result = counted(
        tmp_path,
        files((5, 100), (1000, 2000), (1, 1), (7, 7), (3, 3), (10, 10)),
        files((500, 103), (9000, 2040), (9, 3), (70, 9), (30, 5), (90, 14)),
    )
    (cpu,) = result.cpus
    assert [(f.kind, f.name, f.count) for f in cpu.fired] == [
        ("timer", "local timer", 40),
        ("irq", "IRQ 36 virtio1-req.0", 3),
        ("ipi", "TLB shootdown", 2),
        ("softirq", "NET_RX", 2),
    ]
    assert cpu.fired[1].rows[0] == "irq.on-isolated"
    assert (cpu.steal_ns, cpu.timeslices, cpu.smi) == (2 * TICK_NS, 4, None)
    assert result.missing == ("SMIs are counted by Intel's processors only",)


def test_a_counter_that_began_anew(tmp_path):
    same = {"tlb": (0, 0), "rx": (0, 0), "steal": (0, 0), "slices": (0, 0)}
    result = counted(
        tmp_path,
        files((0, (1 << 32) - 5), (0, 0), **same),
        files((0, 3), (0, 0), **same),
    )
    assert [(f.name, f.count) for f in result.cpus[0].fired] == [("IRQ 36 virtio1-req.0", 8)]


def test_what_cannot_be_read_is_named(tmp_path):
    tree(tmp_path, {"/proc/cpuinfo": "vendor_id : GenuineIntel\n"})
    first = counters.read([1], str(tmp_path))
    result = counters.between(first, first, [1])
    (cpu,) = result.cpus
    assert (cpu.fired, cpu.steal_ns, cpu.timeslices, cpu.smi) == ((), None, None, None)
    text = " ".join(result.missing)
    for name in ("proc/interrupts", "proc/softirqs", "proc/stat", "proc/schedstat", "msr is not loaded"):
        assert name in text


@pytest.mark.parametrize("content", ["", "garbage\n", "CPU0\n"])
def test_nonsense_is_named(tmp_path, content):
    before = files((5, 100), (1000, 2000), (1, 1), (7, 7), (3, 3), (10, 10))
    tree(tmp_path, before | {"/proc/interrupts": content, "/proc/softirqs": content, "/proc/stat": content})
    first = counters.read([1], str(tmp_path))
    assert counters.between(first, first, [1]).cpus[0].fired == ()


def test_smis_of_an_intel_processor(tmp_path):
    before = files((0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), vendor="GenuineIntel")
    # MSR 0x34 holds the number in its lower half
    msr = {"/dev/cpu/1/msr": bytes(0x34) + struct.pack("<Q", 1 << 40 | 100)}
    after = {"/dev/cpu/1/msr": bytes(0x34) + struct.pack("<Q", 1 << 40 | 103)}
    result = counted(tmp_path, before | msr, after)
    assert result.cpus[0].smi == 3
    assert result.missing == ()
