"""Measured latencies of memory against the distances that firmware tells (`hwtune doctor --active`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.diagnosis import evidence
from hwtune.fact import NOT_PROBED

if TYPE_CHECKING:
    from hwtune.diagnosis import Verdict
    from hwtune.model.numa import MemoryPair, Numa

# What is said to be nearer has to be so much slower, and the quartiles apart: a virtual machine's neighbours,
# page walks and refresh make a tenth at times.
_SLOWER = 1.15
_AT_HOME = 0.99


def check_measured(verdict: Verdict, numa: Numa) -> None:
    """What firmware ranks one way for a node's CPUs must not rank the other way when it is measured."""
    if numa.measured.gap == NOT_PROBED or numa.measured.absent:
        return
    if not numa.measured.known:
        verdict.unknown("memory", numa.measured)
        return
    measured, source = numa.measured.get(), numa.measured.source
    for sentence in measured.left_out:
        verdict.unknown("memory", f"not measured: {sentence}")
    by_node: dict[int, list[MemoryPair]] = {}
    for pair in measured.pairs:
        if pair.at_home is not None and pair.at_home < _AT_HOME:
            verdict.unknown(
                f"node:{pair.memory_node}",
                f"{1 - pair.at_home:.0%} of the pages that were measured came to lie on another node",
            )
        else:
            by_node.setdefault(pair.cpu_node, []).append(pair)
    distances = {node.id: node.distances for node in numa.nodes}
    for node, pairs in by_node.items():
        fact = distances.get(node)
        contradiction = _worst(pairs, fact.get()) if fact is not None and fact.known else None
        if contradiction is None:
            verdict.ok(*(evidence(source, f"node {node}'s CPUs to {_told(pair)}") for pair in pairs))
            continue
        near, far = contradiction
        assert fact is not None
        verdict.finding(
            f"node:{node}",
            f"Memory of node {near.memory_node} is said to be nearer to node {node} than that of node "
            f"{far.memory_node}, and a load of it takes {near.load_ns / far.load_ns:.2g} times as long.",
            evidence(source, _told(near), f"below that of node {far.memory_node}"),
            evidence(source, _told(far)),
            evidence(
                fact.source,
                f"{fact.get()[near.memory_node]} to node {near.memory_node}, "
                f"{fact.get()[far.memory_node]} to node {far.memory_node}",
            ),
            advice="Measure once more on a quiet machine; then update the firmware, and until then choose "
            "memory by what is measured.",
        )


def _worst(pairs: list[MemoryPair], said: dict[int, int]) -> tuple[MemoryPair, MemoryPair] | None:
    """(said to be nearer, said to be farther) of the pair that contradicts firmware most."""
    found = [
        (near, far)
        for near in pairs
        for far in pairs
        if near.memory_node in said
        and far.memory_node in said
        and said[near.memory_node] < said[far.memory_node]
        and near.load_ns > _SLOWER * far.load_ns
        and near.load_low_ns > far.load_high_ns
    ]
    return max(found, key=lambda pair: pair[0].load_ns / pair[1].load_ns, default=None)


def _told(pair: MemoryPair) -> str:
    return f"node {pair.memory_node}'s memory: {pair.load_ns:.0f} ns a load, {pair.read_gbps:.3g} GB/s"
