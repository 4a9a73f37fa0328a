"""/proc/interrupts and /proc/softirqs of several architectures and ages, and whatever else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.text.interrupts import parse_interrupts, parse_softirqs

X86 = """\
           CPU0       CPU2       CPU3
  0:         12          0          0   IO-APIC    2-edge      timer
  1:          0          7          0   IO-APIC    1-edge      i8042
 16:          0          0          5   IO-APIC   16-fasteoi   ehci_hcd:usb1, mmc0
 24:          0          0          0  DMAR-MSI    0-edge      dmar0
 30:          4          0          0  IR-PCI-MSI 524288-edge
128:          0        900          1  IR-PCI-MSIX-0000:3e:00.0    3-edge      nvme0q3
NMI:          1          1          1   Non-maskable interrupts
LOC:        100        200        300   Local timer interrupts
RES:         10         20         30   Rescheduling interrupts
ERR:          0
MIS:          0
"""

OLD_X86 = """\
           CPU0       CPU1
  0:         18          0  IR-IO-APIC-edge      timer
 46:   43078464        130  IR-PCI-MSI-edge      iwlwifi
"""

ARM64 = """\
           CPU0       CPU1
 10: 3287008667 3310445093     GICv3  27 Level     arch_timer
 49:          5          5     GICv3  23 Level     arm-pmu
 50:          0          0  ARMH0061:00   3 Edge      ACPI:Event
 51:         13          0   ITS-MSI 65536 Edge      nvme0q0
 57:          0         51   ITS-MSI 81920 Edge      ena-mgmnt@pci:0000:00:05.0
IPI0:2768808080 2844211768       Rescheduling interrupts
IPI1: 357815098  213258177       Function call interrupts
Err:          0
"""

OTHERS = """\
           CPU0       CPU1
  1:       1000       2000  xen-percpu    -virq      timer0
 17:          0         30  xen-dyn    -event     eth0-q0-tx
 18:          5          0  XICS 4097 Edge      IPI
 19:          0          6  XIVE-IRQ 131072 Edge      nvme0q1
 20:          7          0  RISC-V INTC   5 Edge      riscv-timer
 21:          0          8  SiFive PLIC  10 Level     ttyS0
 22:          9          0      MIPS   7  timer
"""


def test_x86_with_gaps_between_cpus() -> None:
    table = parse_interrupts(X86)
    assert table.cpus == [0, 2, 3]
    by_number = {irq.number: irq for irq in table.irqs}
    assert sorted(by_number) == [0, 1, 16, 24, 30, 128]
    assert by_number[0].counts == {0: 12}
    assert by_number[1].counts == {2: 7}
    assert (by_number[16].actions, by_number[16].chip, by_number[16].hwirq) == (
        ["ehci_hcd:usb1", "mmc0"],
        "IO-APIC",
        16,
    )
    assert by_number[24].counts == {}
    assert (by_number[30].chip, by_number[30].hwirq, by_number[30].actions) == ("IR-PCI-MSI", 524288, [])
    assert by_number[128].counts == {2: 900, 3: 1}
    assert by_number[128].address == "0000:3e:00.0"
    assert not any(irq.per_cpu for irq in table.irqs)
    assert table.local_timer() == {0: 100, 2: 200, 3: 300}
    assert table.rescheduling() == {0: 10, 2: 20, 3: 30}
    assert "ERR" not in table.others  # one number and no CPU's


def test_old_x86_writes_chip_and_flow_in_one() -> None:
    timer, wifi = parse_interrupts(OLD_X86).irqs
    assert (timer.chip, timer.hwirq, timer.actions) == ("IR-IO-APIC", None, ["timer"])
    assert (wifi.chip, wifi.counts) == ("IR-PCI-MSI", {0: 43078464, 1: 130})


def test_arm64_timers_belong_to_each_cpu() -> None:
    table = parse_interrupts(ARM64)
    by_number = {irq.number: irq for irq in table.irqs}
    assert [n for n, irq in by_number.items() if irq.per_cpu] == [10, 49]
    assert table.local_timer() == {0: 3287008667, 1: 3310445093}
    assert table.rescheduling() == {0: 2768808080, 1: 2844211768}
    assert (by_number[50].chip, by_number[50].actions) == ("ARMH0061:00", ["ACPI:Event"])
    assert (by_number[51].chip, by_number[51].hwirq) == ("ITS-MSI", 65536)
    assert by_number[57].address == "0000:00:05.0"


def test_xen_power_riscv_and_mips() -> None:
    by_number = {irq.number: irq for irq in parse_interrupts(OTHERS).irqs}
    assert [n for n, irq in by_number.items() if irq.per_cpu] == [1, 18, 20]
    assert (by_number[17].chip, by_number[17].actions) == ("xen-dyn", ["eth0-q0-tx"])
    assert (by_number[19].chip, by_number[19].actions) == ("XIVE-IRQ", ["nvme0q1"])
    assert (by_number[21].chip, by_number[21].hwirq, by_number[21].actions) == ("SiFive PLIC", 10, ["ttyS0"])
    assert (by_number[22].chip, by_number[22].actions) == ("MIPS", ["timer"])


def test_pasted_with_a_prompt_cut_lines_and_a_second_sample() -> None:
    text = "root@box:~# cat /proc/interrupts\n" + X86 + "128:   4\n" + X86.replace("900", "999")
    assert {irq.number: irq.counts for irq in parse_interrupts(text).irqs}[128] == {2: 900, 3: 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  0:         45   IO-APIC-edge      timer\n",
        "CPU0 CPU0\n",
        "CPU99999999\n",
        "CPU0 memory\n",
        "\x00\xff" * 50,
    ],
)
def test_without_a_heading_it_is_no_table(text: str) -> None:
    with pytest.raises(ValueError):
        parse_interrupts(text)


def test_softirqs_leave_out_zeros() -> None:
    text = "                    CPU0       CPU1\n          HI:          0          3\n      NET_RX:   12  0\n"
    assert parse_softirqs(text) == {"HI": {1: 3}, "NET_RX": {0: 12}}


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[int], dict[int, list[int]]]:
    cpus = sorted(draw(st.sets(st.integers(0, 200), min_size=1, max_size=12)))
    numbers = draw(st.sets(st.integers(0, 5000), max_size=12))
    counts = st.lists(
        st.one_of(st.just(0), st.integers(0, 2**32 - 1)), min_size=len(cpus), max_size=len(cpus)
    )
    return cpus, {number: draw(counts) for number in sorted(numbers)}


@given(tables(), st.sampled_from(["IO-APIC    2-edge      a b, c", "ITS-MSI 65536 Edge      a b, c"]))
def test_what_the_kernel_prints_is_what_is_read(
    table: tuple[list[int], dict[int, list[int]]], tail: str
) -> None:
    cpus, rows = table
    lines = ["           " + "".join(f"CPU{cpu:<8d}" for cpu in cpus)]
    lines += [f"{n:3d}: {' '.join(f'{c:10d}' for c in counts)}  {tail}" for n, counts in rows.items()]
    read = parse_interrupts("\n".join(lines))
    assert read.cpus == cpus
    assert {irq.number: [irq.counts.get(cpu, 0) for cpu in cpus] for irq in read.irqs} == rows
    assert all(irq.actions == ["a b", "c"] for irq in read.irqs)


@given(st.text(max_size=300))
def test_any_text_is_a_table_or_a_value_error(text: str) -> None:
    for candidate in (text, "CPU0 CPU1\n" + text):
        try:
            read = parse_interrupts(candidate)
        except ValueError:
            continue
        for irq in read.irqs:
            assert set(irq.counts) <= set(read.cpus) and all(n > 0 for n in irq.counts.values())
