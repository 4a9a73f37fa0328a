"""What hwloc's lstopo says of a machine, in its text (.console) and XML forms, as far as CPUs go."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LINE = re.compile(r"^( *)([A-Z][A-Za-z0-9]*)(?:\(\w+\))? L#\d+(?: \(P#(\d+))?")
_MISSING = re.compile(r"processors not represented in topology: (\S+)")


@dataclass
class Topology:
    """Sets of PUs by kind. An object's own number (P#, os_index) is None where hwloc knows none."""

    pus: set[int] = field(default_factory=set)
    cores: list[tuple[int | None, frozenset[int]]] = field(default_factory=list)
    packages: list[tuple[int | None, frozenset[int]]] = field(default_factory=list)
    nodes: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    missing: set[int] = field(default_factory=set)  # "processors not represented"
    restricted: bool = False  # a cgroup or cpuset limits what a process sees


class _Object:
    def __init__(self, kind: str, number: int | None, parent: _Object | None) -> None:
        self.kind = kind
        self.number = number
        self.parent = parent
        self.pus: set[int] = set()

    def add(self, pu: int) -> None:
        self.pus.add(pu)
        if self.parent is not None:
            self.parent.add(pu)


def read(path: Path) -> Topology:
    text = path.read_text(encoding="utf-8")
    return _xml(text) if path.suffix == ".xml" else _console(text)


def _console(text: str) -> Topology:
    stack: list[tuple[int, _Object]] = []
    objects: list[_Object] = []
    for line in text.splitlines():
        match = _LINE.match(line) or re.match(r"^( *)(Machine)()", line)
        if match is None:
            continue
        depth = len(match[1])
        while stack and stack[-1][0] >= depth:
            stack.pop()
        found = _Object(match[2], int(match[3]) if match[3] else None, stack[-1][1] if stack else None)
        stack.append((depth, found))
        objects.append(found)
        if found.kind == "PU" and found.number is not None:
            found.add(found.number)
    topology = Topology(restricted="LinuxCgroup=" in text)
    for found in objects:
        _sort(topology, found.kind, found.number, frozenset(_locality(found).pus))
    match = _MISSING.search(text)
    if match is not None:
        topology.missing = _mask(match[1])
    return topology


def _locality(found: _Object) -> _Object:
    """A memory child (a node, perhaps below a memory-side cache) is local to what holds it."""
    while found.kind in ("NUMANode", "MemCache") and found.parent is not None:
        found = found.parent
    return found


def _xml(text: str) -> Topology:
    root = ElementTree.fromstring(text)
    topology = Topology(restricted='name="LinuxCgroup"' in text)
    for found in root.iter("object"):
        number = found.get("os_index")
        pus = frozenset(_mask(found.get("cpuset", "0x0")))
        _sort(topology, found.get("type", ""), None if number is None else int(number), pus)
        if found.get("type") == "Machine":
            topology.missing = _mask(found.get("complete_cpuset", "0x0")) - set(pus)
    return topology


def _sort(topology: Topology, kind: str, number: int | None, pus: frozenset[int]) -> None:
    if kind == "PU" and number is not None:
        topology.pus.add(number)
    elif kind == "Core":
        topology.cores.append((number, pus))
    elif kind == "Package":
        topology.packages.append((number, pus))
    elif kind == "NUMANode" and number is not None:
        topology.nodes.append((number, pus))


def _mask(text: str) -> set[int]:
    """0x00000001,0xffffffff: words of 32 bits, the highest first; empty words are left out."""
    words = [int(word, 16) if word else 0 for word in text.split(",")]
    value = 0
    for word in words:
        value = value << 32 | word
    return {bit for bit in range(value.bit_length()) if value >> bit & 1}
