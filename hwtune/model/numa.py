"""NUMA nodes."""

from __future__ import annotations

import msgspec

from hwtune.fact import Fact, not_probed


class HugePagePool(msgspec.Struct):
    """Huge pages of one size, of the whole machine or of one node.

    ``reserved`` (promised to mappings, not yet touched) and ``overcommit`` (how many more may be
    taken from ordinary memory) are kept for the whole machine only.
    """

    size_kb: int
    total: Fact[int] = not_probed()
    free: Fact[int] = not_probed()
    surplus: Fact[int] = not_probed()
    reserved: Fact[int] = not_probed()
    overcommit: Fact[int] = not_probed()


class NumaNode(msgspec.Struct):
    """One NUMA node. ``distances`` maps the nodes' ids (its own too) to their SLIT distances."""

    id: int
    cpus: Fact[list[int]] = not_probed()
    memory_bytes: Fact[int] = not_probed()
    free_bytes: Fact[int] = not_probed()
    distances: Fact[dict[int, int]] = not_probed()
    stats: Fact[dict[str, int]] = not_probed()  # numastat: numa_hit, numa_miss, numa_foreign ...
    hugepages: list[HugePagePool] = []
    # What a node without CPUs is made of: "gpu" (GPU memory), "cxl", "pmem", "hbm", "special-purpose"
    # (memory that firmware sets apart, EFI_MEMORY_SP). ABSENT where nothing tells, and on all other nodes.
    memory_kind: Fact[str] = not_probed()
    # The nodes whose memory is the nearest of this node's CPUs by firmware's HMAT (access1/targets);
    # only asked of a node that has CPUs and no memory.
    nearest_memory: Fact[list[int]] = not_probed()


class MemoryPair(msgspec.Struct):
    """From a node's CPU to a node's memory, by one thread. ``load_ns``: one load behind the other in random
    order, the median of many pieces, and their quartiles; ``at_home``: share of the pages that are where they
    should be, None where the kernel cannot tell."""

    cpu_node: int
    memory_node: int
    mebibytes: int
    load_ns: float
    load_low_ns: float
    load_high_ns: float
    read_gbps: float
    at_home: float | None


class MemoryMeasured(msgspec.Struct):
    """What ``doctor --active`` found. ``left_out``: what was not measured and why, a sentence each."""

    pairs: list[MemoryPair]
    left_out: list[str]


class Numa(msgspec.Struct):
    """Nodes by id. ``listed`` is ABSENT on a kernel without NUMA, which has no node folders."""

    nodes: list[NumaNode] = []
    listed: Fact[bool] = not_probed()
    online: Fact[list[int]] = not_probed()
    measured: Fact[MemoryMeasured] = not_probed()  # only when asked for

    def of_cpu(self) -> dict[int, int]:
        """CPU -> node; a CPU that two nodes claim is given to the first."""
        found: dict[int, int] = {}
        for node in self.nodes:
            if node.cpus.known:
                for cpu in node.cpus.get():
                    found.setdefault(cpu, node.id)
        return found

    def with_cpus(self) -> list[NumaNode]:
        """The nodes that have CPUs; those of unknown CPUs are left out."""
        return [node for node in self.nodes if node.cpus.known and node.cpus.get()]
