"""Large machines: sound ones give no finding, and are read in a time that grows as their files do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from hwtune.diagnosis.engine import judge, probe
from hwtune.diagnosis.table import table
from hwtune.host.snapshot import open_snapshot
from hwtune.probes import irqs
from hwtune.profile import load
from hwtune.text.interrupts import parse_interrupts
from tests.support.synthetic import build

if TYPE_CHECKING:
    from pathlib import Path


def test_a_sound_server_of_64_cpus(tmp_path: Path) -> None:
    build(tmp_path, cpus=64, irqs=128, pci_devices=64, nodes=2)
    machine, defects = probe(open_snapshot(str(tmp_path)))
    assert defects == []
    assert machine.cpus.online.get() == list(range(64))
    assert len(machine.numa.nodes) == 2
    assert len(machine.pci.devices) == 64
    assert len(machine.irq.irqs) == 128
    # half of the cores 0-15 of node 0 and 16-31 of node 1, with their siblings 32 above
    assert machine.cpus.isolated.get() == [*range(8, 16), *range(24, 32), *range(40, 48), *range(56, 64)]
    found = judge(machine, [r for r in table() if r.subsystem in ("irq", "isolation")], load())
    assert [result.id for result in found.results if result.findings] == []
    assert found.defects == []


@pytest.mark.parametrize("arguments", [(63, 2, 4, 1), (64, 2, 1, 1), (64, 2, 4, 3)])
def test_machines_that_cannot_be(tmp_path: Path, arguments: tuple[int, int, int, int]) -> None:
    cpus, count, devices, nodes = arguments
    with pytest.raises(ValueError):
        build(tmp_path, cpus=cpus, irqs=count, pci_devices=devices, nodes=nodes)


def test_a_table_of_1024_cpus_and_2000_interrupts_takes_a_fraction_of_a_second() -> None:
    zeros = ["         0"] * 1024
    lines = [" " * 12 + " ".join(f"CPU{cpu}" for cpu in range(1024))]
    for number in range(2000):
        counts = zeros.copy()
        counts[number % 1024] = f"{number + 1:10d}"
        lines.append(
            f"{number:4d}: {' '.join(counts)}  IR-PCI-MSIX-0000:3e:00.0  {number}-edge      q{number}"
        )
    text = "\n".join(lines)
    started = time.process_time()
    read = parse_interrupts(text)
    spent = time.process_time() - started
    assert [irq.counts for irq in read.irqs[:2]] == [{0: 1}, {1: 2}]
    assert sum(sum(irq.counts.values()) for irq in read.irqs) == 2000 * 2001 // 2
    # some 0.1 s on the slowest machine at hand; quadratic work would take minutes
    assert spent < 2


def test_the_owners_of_a_kernel_without_domains_come_from_msi_irqs(tmp_path: Path) -> None:
    build(tmp_path, cpus=8, irqs=4, pci_devices=4, nodes=1)
    text = (tmp_path / "proc/interrupts").read_text(encoding="ascii")
    for address in ("0000:01:00.0", "0000:02:00.0"):
        text = text.replace(f"IR-PCI-MSIX-{address}", "IR-PCI-MSI")
    (tmp_path / "proc/interrupts").write_text(text, encoding="ascii")
    vectors = tmp_path / "sys/devices/pci0000:00/0000:00:00.1/0000:02:00.0/msi_irqs"
    vectors.mkdir()
    for number in (25, 27):
        (vectors / str(number)).write_text("msix\n", encoding="ascii")
    line = tmp_path / "sys/devices/pci0000:00/0000:00:00.0/0000:01:00.0/irq"
    line.write_text("24\n", encoding="ascii")
    owners = {irq.number: irq.pci_address for irq in irqs.read(open_snapshot(str(tmp_path))).irqs}
    assert owners == {24: "0000:01:00.0", 25: "0000:02:00.0", 26: None, 27: "0000:02:00.0"}
