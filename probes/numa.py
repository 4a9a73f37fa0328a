"""NUMA nodes: CPUs, memory, distances, counters, huge pages, and what a node without CPUs is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.fact import ABSENT, INVALID, NOT_CAPTURED, Fact, known
from hwtune.model.numa import Numa, NumaNode
from hwtune.probes import _hugepages, _numa_kinds
from hwtune.text.cpulist import parse_list, parse_mask
from hwtune.text.meminfo import parse_counters, parse_meminfo

if TYPE_CHECKING:
    from hwtune.host.base import Host

PART = "numa"

_ROOT = "/sys/devices/system/node"


def read(host: Host) -> Numa:
    """From sysfs (Documentation/ABI/stable/sysfs-devices-node); what it lacks from pasted text."""
    numa = Numa()
    numa.online = host.parse(f"{_ROOT}/online", parse_list)
    names = host.names(_ROOT)
    numa.listed = names.map(lambda _: True)
    if names.known:
        ids = sorted(
            int(name[4:]) for name in names.get() if name.startswith("node") and _is_number(name[4:])
        )
        numa.nodes = [_node(host, id) for id in ids]
        _read_distances(host, numa)
    _add_pasted(host, numa)
    _numa_kinds.fill(host, numa.nodes)
    if host.measures("numa.buggy-topology"):
        from hwtune.probes import _memory_latency

        numa.measured = _memory_latency.measure(host)
    return numa


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 6


def _node(host: Host, id: int) -> NumaNode:
    path = f"{_ROOT}/node{id}"
    meminfo = host.parse(f"{path}/meminfo", parse_meminfo)
    node = NumaNode(
        id,
        cpus=_cpus(host, path),
        memory_bytes=meminfo.map(lambda lines: _entry(lines, "MemTotal")),
        free_bytes=meminfo.map(lambda lines: _entry(lines, "MemFree")),
        stats=host.parse(f"{path}/numastat", parse_counters),
    )
    node.hugepages, _ = _hugepages.pools(host, f"{path}/hugepages")
    return node


def _cpus(host: Host, path: str) -> Fact[list[int]]:
    """One bitmap, printed in two ways; captures may hold but one of them."""
    cpus = host.parse(f"{path}/cpumap", parse_mask)
    return cpus if cpus.known else cpus.or_else(host.parse(f"{path}/cpulist", parse_list))


def _entry(lines: dict[str, int], name: str) -> int:
    if name not in lines:
        raise ValueError(f"no {name} in it")
    return lines[name]


def _read_distances(host: Host, numa: Numa) -> None:
    """A node's distances are in the order of the nodes online (drivers/base/node.c)."""
    ids = numa.online.get() if numa.online.known else [node.id for node in numa.nodes]
    for node in numa.nodes:
        row = host.parse(f"{_ROOT}/node{node.id}/distance", _numbers)
        node.distances = _by_node(row, ids)


def _numbers(text: str) -> list[int]:
    numbers = [int(word) for word in text.split()]
    if not numbers:
        raise ValueError("no distance in it")
    return numbers


def _by_node(row: Fact[list[int]], ids: list[int]) -> Fact[dict[int, int]]:
    if not row.known:
        return Fact(None, row.source, row.gap, row.detail)
    if len(row.get()) != len(ids):
        return Fact(None, row.source, INVALID, f"{len(row.get())} distances for {len(ids)} nodes")
    return known(dict(zip(ids, row.get(), strict=True)), row.source)


def _add_pasted(host: Host, numa: Numa) -> None:
    """What ``numactl -H`` and ``lscpu`` tell, where the tree does not."""
    told: dict[int, list[tuple[str, Any, str]]] = {}  # node -> (field, value, source)
    for document in host.documents("numactl -H"):
        from hwtune.text import numactl

        try:
            nodes = numactl.parse_hardware(document.text)
        except ValueError:
            continue
        for pasted in nodes:
            told.setdefault(pasted.id, []).extend(
                (field, value, document.path)
                for field, value in (
                    ("cpus", pasted.cpus),
                    ("memory_bytes", pasted.size_bytes),
                    ("free_bytes", pasted.free_bytes),
                    ("distances", pasted.distances),
                )
                if value is not None
            )
    for document in host.documents("lscpu"):
        from hwtune.text import lscpu

        for id, cpus in lscpu.node_cpus(lscpu.fields(document.text)).items():
            told.setdefault(id, []).append(("cpus", cpus, document.path))
    if told:
        _merge(numa, told)


def _merge(numa: Numa, told: dict[int, list[tuple[str, Any, str]]]) -> None:
    nodes = {node.id: node for node in numa.nodes}
    # A tree that lists its nodes has them all; a text adds none to it.
    whole = bool(nodes)
    for id, values in told.items():
        if id not in nodes:
            if whole:
                continue
            nodes[id] = NumaNode(id)
        for field, value, source in values:
            fact = getattr(nodes[id], field)
            if fact.unknown:
                setattr(nodes[id], field, known(value, source))
    if not whole:
        numa.nodes = [nodes[id] for id in sorted(nodes)]
        source = next(iter(told.values()))[0][2]
        numa.listed = known(True, source)
        for node in numa.nodes:
            _name_gaps(node, source)
    if numa.online.unknown:
        numa.online = known([node.id for node in numa.nodes], numa.listed.source)


def _name_gaps(node: NumaNode, source: str) -> None:
    """Say which text lacks the values that it does not tell."""
    for field in ("cpus", "memory_bytes", "free_bytes", "distances", "stats"):
        if getattr(node, field).gap not in (None, ABSENT):
            setattr(node, field, Fact(None, f"{source} node {node.id} {field}", NOT_CAPTURED))
