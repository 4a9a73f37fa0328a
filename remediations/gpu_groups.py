"""Which GPUs a job over several of them should take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.diagnosis.row import row
from hwtune.diagnosis.verdict import Verdict, evidence
from hwtune.model import paths
from hwtune.model.gpu import subject
from hwtune.remediations import _gpu_common as common
from hwtune.text.cpulist import format_list

if TYPE_CHECKING:
    from hwtune.model import Machine
    from hwtune.model.gpu import Gpu
    from hwtune.profile import Profile

_ADD_MATRIX = "add nvidia-smi topo -m"
# The way from one GPU to another, by their places in the list: (first, second) -> NV#, PIX ...
_Ways = dict[tuple[int, int], str]


@row(
    "gpu.groups",
    title="Which GPUs are near each other?",
    symptom="A job over two GPUs is slower than on one, and which two it is matters.",
    cause=(
        "Without NVLink, data between GPUs of two NUMA nodes crosses the link between the sockets. The "
        "labels do not tell it: SYS also stands between root ports of one node."
    ),
    severity="info",
    scope="hands",
    risk="none",
    cost="none",
    sources=(
        "nvidia-smi topo -m: its legend (PIX, PXB, PHB, NODE, SYS)",
        "NVIDIA/go-gpuallocator #17 (a pair over two sockets)",
    ),
)
def groups(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    if nothing is not None:
        return nothing
    gpus = common.nvidia(machine)
    if len(gpus) == 1:
        if machine.gpu.host.listed.known or not machine.gpu.host.pairs:
            return Verdict().not_applicable("there is one GPU")
        return _untold(machine, gpus)
    ways, source = _ways(machine, gpus)
    if not ways:
        return _untold(machine, gpus)
    linked = all(way.startswith("NV") for way in ways.values())
    parts = []
    if linked:
        every = len(gpus) * (len(gpus) - 1) // 2
        parts.append(f"NVLink joins {'all' if len(ways) == every else f'the {len(ways)} of {every}'} pairs")
        parts[0] += "" if len(ways) == every else " that are told"
    nodes = _by_node(machine, gpus)
    if nodes is not None:
        parts += _nodes(nodes, linked, machine.gpu.host.matrix == "" and not machine.gpu.host.pairs)
    if not linked:
        parts += _nearest(ways, gpus)
    return Verdict().ok(evidence(source, _shown(ways)), reason="; ".join(parts))


def _untold(machine: Machine, gpus: list[Gpu]) -> Verdict:
    where = subject(machine.gpu.gpus, gpus[0])
    return Verdict().unknown(where, "how the GPUs reach each other is not known", remedy=_ADD_MATRIX)


def _ways(machine: Machine, gpus: list[Gpu]) -> tuple[_Ways, str]:
    """By the matrix of nvidia-smi or NVML, else by the PCI tree, which knows no NVLink."""
    places = {f"GPU{gpu.index}": place for place, gpu in enumerate(gpus) if gpu.index is not None}
    found: _Ways = {}
    source = ""
    for pair in machine.gpu.host.pairs:
        if pair.path and pair.first in places and pair.second in places:
            first, second = sorted((places[pair.first], places[pair.second]))
            found[first, second] = pair.path
            source = pair.source
    if found:
        return found, source
    devices = machine.pci.by_address()
    at = [devices.get(gpu.address or "") for gpu in gpus]
    for first, mine in enumerate(at):
        for second in range(first + 1, len(at)):
            other = at[second]
            way = paths.way(mine, other, devices) if mine is not None and other is not None else None
            if way is not None and mine is not None:
                found[first, second] = way
                source = "/sys/bus/pci/devices" if mine.source.startswith("/") else mine.source
    return found, source


def _by_node(machine: Machine, gpus: list[Gpu]) -> dict[int, list[Gpu]] | None:
    """Node -> its GPUs; None where a node is not known."""
    devices = machine.pci.by_address()
    found: dict[int, list[Gpu]] = {}
    for gpu in gpus:
        device = devices.get(gpu.address or "")
        node = gpu.numa_node
        if not node.known and device is not None:
            node = device.numa_node
        if not node.known or node.get() < 0:
            return None
        found.setdefault(node.get(), []).append(gpu)
    return dict(sorted(found.items()))


def _nodes(nodes: dict[int, list[Gpu]], linked: bool, by_tree: bool) -> list[str]:
    if len(nodes) == 1:
        return [f"all are of node {next(iter(nodes))}"]
    told = ", ".join(f"{_names(gpus)} of node {node}" for node, gpus in nodes.items())
    if linked:
        return [told]
    unless = ", unless NVLink joins them" if by_tree else ""
    return [f"{told}: a job over GPUs of several nodes crosses the link between the nodes{unless}"]


def _nearest(ways: _Ways, gpus: list[Gpu]) -> list[str]:
    """The pairs that are joined by NVLink, or are nearer than others."""
    bridged = {pair: way for pair, way in ways.items() if way.startswith("NV")}
    best = min(ways.values(), key=paths.rank)
    near = bridged or {pair: way for pair, way in ways.items() if way == best}
    if len(near) == len(ways) or (not bridged and best not in paths.NEAR):
        return []
    names = [_names([gpus[first], gpus[second]]) for first, second in near]
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return [f"nearest are {', '.join(names[:8])}{more} ({next(iter(near.values()))})"]


def _names(gpus: list[Gpu]) -> str:
    """GPU0-3; by their addresses where there is no index."""
    if all(gpu.index is not None for gpu in gpus):
        return f"GPU{format_list([gpu.index for gpu in gpus if gpu.index is not None])}"
    return " + ".join(gpu.address or "?" for gpu in gpus)


def _shown(ways: _Ways) -> str:
    """ "4 PIX, 24 SYS"."""
    counts: dict[str, int] = {}
    for way in ways.values():
        counts[way] = counts.get(way, 0) + 1
    return "pairs: " + ", ".join(f"{count} {way}" for way, count in counts.items())
