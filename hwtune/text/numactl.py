"""NUMA nodes as ``numactl -H`` (also ``--hardware``) prints them."""

from __future__ import annotations

import re

from hwtune.text.cpulist import MAX_CPUS

_CPUS = re.compile(r"node (\d+) cpus:(.*)")
_SIZE = re.compile(r"node (\d+) (size|free): (\d+) MB")
_ROW = re.compile(r"(\d+):((?: +\d+)+)")
_NUMBERS = re.compile(r"[\d ]+")


class Node:
    """One node of the text; what it does not say is None."""

    __slots__ = ("cpus", "distances", "free_bytes", "id", "size_bytes")

    def __init__(self, id: int) -> None:
        self.id = id
        self.cpus: list[int] | None = None
        self.size_bytes: int | None = None
        self.free_bytes: int | None = None
        self.distances: dict[int, int] | None = None


def parse_hardware(text: str) -> list[Node]:
    """``numactl -H``, by node. A list of CPUs that a terminal broke over several lines is joined.

    Raises ``ValueError`` when it names no node.
    """
    nodes: dict[int, Node] = {}
    columns: list[int] = []
    listing: Node | None = None  # whose CPUs the next line may go on with
    for line in text.splitlines():
        line = line.strip()
        if listing is not None and line and _NUMBERS.fullmatch(line):
            assert listing.cpus is not None
            listing.cpus.extend(_cpus(line))
            continue
        listing = None
        if match := _CPUS.fullmatch(line):
            listing = _node(nodes, match[1])
            listing.cpus = _cpus(match[2])
        elif match := _SIZE.match(line):
            node, size = _node(nodes, match[1]), int(match[3]) << 20
            if match[2] == "size":
                node.size_bytes = size
            else:
                node.free_bytes = size
        elif line.startswith("node ") and all(word.isdecimal() for word in line.split()[1:]):
            columns = [int(word) for word in line.split()[1:]]
        elif columns and (match := _ROW.fullmatch(line)):
            values = [int(word) for word in match[2].split()]
            if len(values) == len(columns):
                _node(nodes, match[1]).distances = dict(zip(columns, values, strict=True))
    if not nodes:
        raise ValueError("no NUMA node in it")
    for node in nodes.values():
        if node.cpus is not None:
            node.cpus = sorted(set(node.cpus))
    return [nodes[id] for id in sorted(nodes)]


def _node(nodes: dict[int, Node], number: str) -> Node:
    id = int(number)
    if id >= MAX_CPUS:
        raise ValueError(f"no machine has a node {number[:20]}")
    return nodes.setdefault(id, Node(id))


def _cpus(text: str) -> list[int]:
    return [int(word) for word in text.split() if word.isdecimal() and len(word) < 6]
