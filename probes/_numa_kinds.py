"""What stands behind NUMA nodes that have only CPUs or only memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import ABSENT, Fact, gap, known
from hwtune.text.cpulist import MAX_CPUS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hwtune.host.base import Host
    from hwtune.model.numa import NumaNode

_ROOT = "/sys/devices/system/node"
_GPUS = "/proc/driver/nvidia/gpus"
_DAX = "/sys/bus/dax/devices"
# POWER9 machines with NVLink number the memory of their GPUs from here downwards, far from the nodes
# of the CPUs (as their driver's numa_status files show).
_LAST_POWER9_NODE = 255


def fill(host: Host, nodes: list[NumaNode]) -> None:
    """Set ``memory_kind`` of all nodes, and ``nearest_memory`` of those with CPUs and no memory."""
    lone = []
    for node in nodes:
        node.memory_kind = gap(ABSENT, f"{_ROOT}/node{node.id}")
        if node.cpus.known and not node.cpus.get() and not _empty(node):
            lone.append(node)
        elif node.cpus.known and node.cpus.get() and _empty(node):
            node.nearest_memory = _targets(host, node.id)
    if not lone:
        return
    told = _gpu_nodes(host) | _dax_nodes(host)
    told |= {id: kind for id, kind in _power9(nodes, lone).items() if id not in told}
    told |= {
        id: kind
        for id, kind in _fast(host, nodes, lone).items()
        if id not in told or told[id][0] == "special-purpose"
    }
    for node in lone:
        if node.id in told:
            kind, source = told[node.id]
            node.memory_kind = known(kind, source)


def _empty(node: NumaNode) -> bool:
    return node.memory_bytes.known and node.memory_bytes.get() == 0


def _targets(host: Host, id: int) -> Fact[list[int]]:
    """Nodes whose memory is nearest to this one's CPUs (Documentation/admin-guide/mm/numaperf.rst).
    Class 0 is of all initiators, class 1 of CPUs alone: a device may be nearer to the memory."""
    of_cpus = host.names(f"{_ROOT}/node{id}/access1/targets")
    names = of_cpus if of_cpus.known else of_cpus.or_else(host.names(f"{_ROOT}/node{id}/access0/targets"))
    return names.map(lambda found: sorted(_ids(found)))


def _ids(names: Iterable[str]) -> list[int]:
    return [int(n[4:]) for n in names if n.startswith("node") and n[4:].isdecimal() and len(n) < 10]


def _gpu_nodes(host: Host) -> dict[int, tuple[str, str]]:
    """Nodes that NVIDIA's driver says are a GPU's memory."""
    names = host.names(_GPUS)
    found = {}
    for name in names.get() if names.known else []:
        path = f"{_GPUS}/{name}/numa_status"
        status = host.text(path)
        for line in status.get().splitlines() if status.known else []:
            key, _, value = line.partition(":")
            if key.strip() == "Node" and value.strip().isdecimal() and len(value.strip()) < 6:
                found[int(value)] = ("gpu", path)
    return found


def _dax_nodes(host: Host) -> dict[int, tuple[str, str]]:
    """Nodes made of DAX devices (Documentation/ABI/testing/sysfs-bus-dax): persistent memory, CXL, or
    memory that firmware sets apart."""
    names = host.names(_DAX)
    found: dict[int, tuple[str, str]] = {}
    for name in names.get() if names.known else []:
        place = host.resolve(f"{_DAX}/{name}")
        node = host.integer(f"{_DAX}/{name}/target_node")
        if place.known and node.known and 0 <= node.get() < MAX_CPUS:
            found[node.get()] = (_dax_kind(place.get()), f"{_DAX}/{name}")
    return found


def _dax_kind(path: str) -> str:
    if "/ndbus" in path:
        return "pmem"
    # CXL regions hang below the CXL root of ACPI (ACPI0017) or of the platform.
    return "cxl" if "/ACPI0017" in path or "/cxl" in path or "dax_region" in path else "special-purpose"


def _power9(nodes: list[NumaNode], lone: list[NumaNode]) -> dict[int, tuple[str, str]]:
    """An unbroken run of nodes without CPUs that ends at 255, while no node of CPUs is near it."""
    ids = {node.id for node in lone}
    run = []
    id = _LAST_POWER9_NODE
    while id in ids:
        run.append(id)
        id -= 1
    others = [node.id for node in nodes if node.id not in ids]
    if not run or (others and max(others) >= id - 16):
        return {}
    return dict.fromkeys(run, ("gpu", f"node numbers {run[-1]}-{run[0]}, as POWER9 numbers GPU memory"))


def _fast(host: Host, nodes: list[NumaNode], lone: list[NumaNode]) -> dict[int, tuple[str, str]]:
    """High-bandwidth memory: firmware (HMAT) says that it reads faster than that of every node of CPUs."""
    ordinary = [_bandwidth(host, node.id) for node in nodes if node.cpus.known and node.cpus.get()]
    best = max((value for value in ordinary if value is not None), default=None)
    if best is None:
        return {}
    found = {}
    for node in lone:
        own = _bandwidth(host, node.id)
        if own is not None and own > best:
            found[node.id] = ("hbm", f"{_ROOT}/node{node.id}/access0/initiators/read_bandwidth")
    return found


def _bandwidth(host: Host, id: int) -> int | None:
    """MiB/s from the nearest initiators, or None."""
    fact = host.integer(f"{_ROOT}/node{id}/access0/initiators/read_bandwidth")
    return fact.get() if fact.known and fact.get() > 0 else None
