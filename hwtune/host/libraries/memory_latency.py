"""How far each node's memory is from each node's CPUs, measured in at most twenty seconds by one thread.

``query()`` returns {"pairs": [MemoryPair as plain data, ...], "left_out": [SENTENCE, ...]}.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from hwtune.fact import ABSENT, UNREADABLE
from hwtune.host.libraries import LibraryGap
from hwtune.text.cpulist import parse_list

if TYPE_CHECKING:
    from collections.abc import Mapping

_NODES = "/sys/devices/system/node"
_MIB = 1 << 20
_LEAST, _MOST = 64 * _MIB, 512 * _MIB
_SHARE = 8  # of a node's free memory one part of so many is taken at most
_EACH_S = 0.1
_ALL_S = 20.0


def query() -> dict[str, Any]:
    """Raises ``LibraryGap`` where nothing can be measured at all."""
    try:
        from hwtune import _native as native
    except ImportError as error:
        raise LibraryGap(UNREADABLE, f"the native module cannot be loaded ({error})") from None
    nodes, left_out = _nodes()
    size = _size(nodes.values())
    nodes = {node: cpu for node, cpu in nodes.items() if _room(node, size, left_out)}
    clock = native.make_clock()
    end = time.monotonic() + _ALL_S
    pairs: list[dict[str, Any]] = []
    # the near ones first, as the others are compared with them
    for near, home in sorted(((a, b) for a in nodes for b in nodes), key=lambda pair: pair[0] != pair[1]):
        if time.monotonic() > end:
            left_out.append("there was no time for all pairs of nodes")
            break
        try:
            found = native.measure_memory(
                nodes[near], nodes[home], bytes=size, duration_s=_EACH_S, clock=clock
            )
        except OSError as error:
            left_out.append(f"nodes {near} and {home}: {error.strerror}")
            continue
        pairs.append(_pair(near, home, size, found))
    return {"pairs": pairs, "left_out": left_out}


def _pair(near: int, home: int, size: int, found: Any) -> dict[str, Any]:
    import numpy as np

    low, middle, high = (float(x) for x in np.percentile(found.load_ns, (25, 50, 75)))
    told = [node for node in found.nodes if node >= 0]
    return {
        "cpu_node": near,
        "memory_node": home,
        "mebibytes": size // _MIB,
        "load_ns": middle,
        "load_low_ns": low,
        "load_high_ns": high,
        "read_gbps": float(np.median(found.read_gbps)),
        "at_home": sum(node == home for node in told) / len(told) if told else None,
    }


def _nodes() -> tuple[dict[int, int], list[str]]:
    """(node -> one of its CPUs that this process may have, what is left out)."""
    try:
        names = os.listdir(_NODES)
    except FileNotFoundError:
        raise LibraryGap(ABSENT, "this kernel has no NUMA support") from None
    allowed = os.sched_getaffinity(0)
    found: dict[int, int] = {}
    left_out = []
    for node in sorted(int(name[4:]) for name in names if name.startswith("node") and name[4:].isdecimal()):
        with open(f"{_NODES}/node{node}/cpulist", encoding="ascii") as file:
            cpus = allowed.intersection(parse_list(file.read()))
        if cpus:
            found[node] = max(cpus)
        else:
            left_out.append(f"node {node} has no CPU that this process may have")
    return found, left_out


def _size(cpus: Any) -> int:
    """Twice the last cache, so that most loads miss it, within bounds; whole MiB."""
    largest = 0
    for cpu in cpus:
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/cache/index3/size", encoding="ascii") as file:
                text = file.read().strip()
        except OSError:  # no third level, or a guest that is told of none
            continue
        if text.endswith("K") and text[:-1].isdecimal():
            largest = max(largest, int(text[:-1]) << 10)
    return int(min(max(2 * largest, _LEAST), _MOST) // _MIB * _MIB)


def _room(node: int, size: int, left_out: list[str]) -> bool:
    with open(f"{_NODES}/node{node}/meminfo", encoding="ascii") as file:
        free: Mapping[str, int] = {
            words[2].rstrip(":"): int(words[3]) for words in map(str.split, file) if len(words) > 3
        }
    if free.get("MemFree", 0) << 10 >= size * _SHARE:
        return True
    left_out.append(f"node {node} has less than {size * _SHARE // _MIB} MiB free")
    return False
