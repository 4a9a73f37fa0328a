"""``nvidia-smi topo -m`` and ``topo -p2p``: matrices of the ways between devices.

What the words mean stands in nvidia-smi's own legend: PIX crosses one PCIe bridge at most, PXB
several, PHB a host bridge, NODE the host bridges of one NUMA node, SYS the link between nodes,
NV# that many NVLinks.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hwtune.text.cpulist import parse_list

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_WAY = re.compile(r"PIX|PXB|PHB|NODE|SYS|SOC|PSB|NV\d{1,2}")
_PEER = ("OK", "CNS", "GNS", "TNS", "NS", "DR", "U")
_NAME = re.compile(r"GPU\d{1,3}|(?!GPU)[A-Za-z][\w.-]{0,30}\d", re.ASCII)
_LEGEND = re.compile(r"\s*(NIC\d{1,3})\s*:\s*(\S{1,64})\s*$")


class Topology(NamedTuple):
    """``ways``: (row, column) -> PIX, NV18 ...; each pair once, as it was first met.
    ``incomplete``: columns whose row the text lacks or cuts off (NICs need no row)."""

    columns: list[str]
    ways: dict[tuple[str, str], str]
    affinity: dict[str, str]  # CPU list as printed
    numa_node: dict[str, int]
    nic_names: dict[str, str]
    incomplete: list[str]


def parse_matrix(text: str) -> Topology:
    """Raises ``ValueError`` where there is no heading of a matrix."""
    lines = _ANSI.sub("", text).splitlines()
    start, columns = _heading(lines)
    found = Topology(columns, {}, {}, {}, {}, [])
    whole: set[str] = set()
    for line in lines[start + 1 :]:
        cells = line.split()
        legend = _LEGEND.match(line)
        if legend is not None:
            found.nic_names[legend[1]] = legend[2]
        elif cells and cells[0] in columns and _row(found, cells):
            whole.add(cells[0])
    found.incomplete.extend(name for name in columns if name.startswith("GPU") and name not in whole)
    return found


def _row(found: Topology, cells: list[str]) -> bool:
    """Take one row; whether it was whole."""
    name, rest = cells[0], cells[1:]
    for number, column in enumerate(found.columns):
        if number >= len(rest) or not (rest[number] == "X" or _WAY.fullmatch(rest[number])):
            return False
        if rest[number] != "X" and (column, name) not in found.ways:
            found.ways[name, column] = rest[number]
    after = rest[len(found.columns) :]
    if after and _is_list(after[0]):
        found.affinity[name] = after[0]
    if len(after) > 1 and after[1].isdecimal():
        found.numa_node[name] = int(after[1])
    return True


def parse_peer_access(text: str) -> dict[tuple[str, str], str]:
    """``topo -p2p``: (row, column) -> OK, CNS (chipset), GNS (GPU), TNS (topology), NS, DR
    (disabled by a registry key), U. Which capability was asked for, the text does not say.
    Raises ``ValueError`` where there is no heading of a matrix."""
    lines = _ANSI.sub("", text).splitlines()
    start, columns = _heading(lines)
    found: dict[tuple[str, str], str] = {}
    for line in lines[start + 1 :]:
        cells = line.split()
        if not cells or cells[0] not in columns:
            continue
        for column, state in zip(columns, cells[1:], strict=False):
            if state in _PEER:
                found[cells[0], column] = state
    return found


def _heading(lines: list[str]) -> tuple[int, list[str]]:
    for number, line in enumerate(lines):
        cells = line.split("CPU Affinity")[0].split()
        named = cells[:1] == ["GPU0"] and all(_NAME.fullmatch(cell) for cell in cells)
        if named and len(set(cells)) == len(cells):
            return number, cells
    raise ValueError("no heading of a matrix of GPUs")


def _is_list(text: str) -> bool:
    try:
        return bool(parse_list(text))
    except ValueError:
        return False
