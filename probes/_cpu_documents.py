"""What pasted texts tell of CPUs: cpuinfo and lscpu where the tree is silent, and measured latencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import Fact, known
from hwtune.model.cpus import Measured
from hwtune.text.proc_cpuinfo import parse as parse_cpuinfo

if TYPE_CHECKING:
    from hwtune.host.base import Host
    from hwtune.model.cpus import Cpus
    from hwtune.text.proc_cpuinfo import CpuInfo


def cpuinfo(host: Host, missing: Fact[CpuInfo]) -> Fact[CpuInfo]:
    """/proc/cpuinfo as somebody pasted it, or the reason why there is none."""
    for document in host.documents("/proc/cpuinfo"):
        try:
            return known(parse_cpuinfo(document.text), document.path)
        except ValueError:
            continue
    return missing


def fill(host: Host, cpus: Cpus) -> None:
    for document in host.documents("lscpu"):
        from hwtune.probes import _cpu_lscpu

        _cpu_lscpu.fill(cpus, document.text, document.path)
    cpus.measured = _measured(host)


def _measured(host: Host) -> list[Measured]:
    cyclic = host.documents("cyclictest")
    rtla = [*host.documents("rtla timerlat"), *host.documents("rtla osnoise")]
    if not cyclic and not rtla:
        return []
    from hwtune.text.cyclictest import parse_cyclictest, parse_rtla

    found = [
        Measured("cyclictest", d.path, line.max_us, thread=line.number, average_us=line.average_us)
        for d in cyclic
        for line in parse_cyclictest(d.text)
    ]
    for document in rtla:
        tool, lines = parse_rtla(document.text)
        found += [
            Measured(
                f"rtla {tool}", document.path, line.max_us, line.number, None, line.average_us, line.kind
            )
            for line in lines
        ]
    return found
