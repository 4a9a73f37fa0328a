"""NUMA nodes."""

from __future__ import annotations

import msgspec

from hwtune.fact import Fact, not_probed


class HugePagePool(msgspec.Struct):
    """Huge pages of one size, of the whole machine or of one node."""

    size_kb: int
    total: Fact[int] = not_probed()
    free: Fact[int] = not_probed()
    surplus: Fact[int] = not_probed()


class NumaNode(msgspec.Struct):
    """One NUMA node. ``distances`` maps the other nodes' ids (its own too) to SLIT distances."""

    id: int
    cpus: Fact[list[int]] = not_probed()
    memory_bytes: Fact[int] = not_probed()
    free_bytes: Fact[int] = not_probed()
    distances: Fact[dict[int, int]] = not_probed()
    stats: Fact[dict[str, int]] = not_probed()  # numastat: numa_hit, numa_miss, numa_foreign ...
    hugepages: list[HugePagePool] = []
    # a node without CPUs is not always a fault: "gpu" (GPU memory), "cxl", "pmem", "hbm" where
    # the tree says so, else None
    memory_kind: Fact[str] = not_probed()


class Numa(msgspec.Struct):
    nodes: list[NumaNode] = []
    listed: Fact[bool] = not_probed()
    online: Fact[list[int]] = not_probed()
    balancing: Fact[int] = not_probed()  # kernel.numa_balancing
