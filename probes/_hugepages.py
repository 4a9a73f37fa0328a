"""Pools of huge pages, of the machine or of one node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import Fact
from hwtune.model.numa import HugePagePool

if TYPE_CHECKING:
    from hwtune.host.base import Host


def pools(host: Host, folder: str) -> tuple[list[HugePagePool], Fact[bool]]:
    """The pools of ``folder`` by size, and whether they could be listed. Reserved and overcommit
    pages are kept in the machine's folder only."""
    names = host.names(folder)
    if not names.known:
        return [], names.map(lambda _: True)
    whole = folder == "/sys/kernel/mm/hugepages"
    found = [_pool(host, f"{folder}/{name}", size, whole) for name in names.get() if (size := _size(name))]
    return sorted(found, key=lambda pool: pool.size_kb), Fact(True, folder, None)


def _size(name: str) -> int:
    """The size in KiB of ``hugepages-2048kB``; 0 for any other name."""
    digits = name.removeprefix("hugepages-").removesuffix("kB")
    return int(digits) if digits.isdecimal() and len(digits) < 12 and name == f"hugepages-{digits}kB" else 0


def _pool(host: Host, path: str, size_kb: int, whole: bool) -> HugePagePool:
    pool = HugePagePool(
        size_kb,
        total=host.integer(f"{path}/nr_hugepages"),
        free=host.integer(f"{path}/free_hugepages"),
        surplus=host.integer(f"{path}/surplus_hugepages"),
    )
    if whole:
        pool.reserved = host.integer(f"{path}/resv_hugepages")
        pool.overcommit = host.integer(f"{path}/nr_overcommit_hugepages")
    return pool
