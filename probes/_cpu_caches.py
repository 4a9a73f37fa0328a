"""Caches, and which CPUs share them (Documentation/ABI/testing/sysfs-devices-system-cpu)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.model.cpus import Cache
from hwtune.probes._cpu_topology import BASE
from hwtune.text.cpulist import parse_list, parse_mask

if TYPE_CHECKING:
    from hwtune.host.base import Host
    from hwtune.model.cpus import Cpu

_MOST = 8  # leaves of cpuN/cache; x86 has four, s390 up to six


def read(host: Host, asked: list[Cpu]) -> list[Cache]:
    """Every cache once: it is read of the first CPU that has it, and passed over at the others."""
    found: list[Cache] = []
    existing = {cpu.id for cpu in asked}
    covered: set[tuple[int, int]] = set()
    for cpu in asked:
        for index in range(_MOST):
            if (cpu.id, index) in covered:
                continue
            folder = f"{BASE}/cpu{cpu.id}/cache/index{index}"
            level = host.integer(f"{folder}/level").value
            if level is None:
                continue
            shared = host.parse(f"{folder}/shared_cpu_list", parse_list)
            if not shared.known:
                shared = host.parse(f"{folder}/shared_cpu_map", parse_mask)
            cpus = [c for c in shared.value or [] if c in existing and (c, index) not in covered]
            if cpu.id not in cpus:
                cpus = [cpu.id]  # old ia64 prints an empty mask
            kind = host.text(f"{folder}/type").value or ""
            found.append(Cache(level, kind, host.parse(f"{folder}/size", size).value, cpus))
            covered.update((member, index) for member in cpus)
    return found


def size(text: str) -> int:
    """Bytes of "32K", "8M" or "65536". Raises ``ValueError``."""
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    return int(text[:-1] if factor > 1 else text) * factor
