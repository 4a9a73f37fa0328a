"""How far two PCI functions are from each other, in nvidia-smi's words (facts C10).

PIX: one bridge between them at most; PXB: several, all below one root port; PHB: through the host
bridge; NODE: through host bridges of one NUMA node; SYS: through the link between nodes; NODE/SYS:
one of these two, where the node of either is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwtune.model.pci import PciDevice

NEAR = ("PSB", "PIX", "PXB")
# PSB: a switch on the card itself; SOC: what matrices of old drivers call SYS.
_ORDER = ("PSB", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC", "NODE/SYS")


def rank(way: str) -> int:
    """The lower, the nearer; what is not known by name comes last."""
    return _ORDER.index(way) if way in _ORDER else len(_ORDER)


def way(first: PciDevice, second: PciDevice, by_address: dict[str, PciDevice]) -> str | None:
    """None where the tree does not tell (a function whose place is not known)."""
    if first.root is None or second.root is None:
        return None
    mine, other = _bridges(first, by_address), _bridges(second, by_address)
    shared = [bridge for bridge in mine if bridge in other]
    if shared:
        # The bridges from the one up to the first shared one, and down to the other.
        steps = mine.index(shared[0]) + other.index(shared[0])
        return "PIX" if steps <= 1 or _one_switch(mine, other, shared[0]) else "PXB"
    if first.root == second.root:
        return "PHB"
    nodes = first.numa_node.value, second.numa_node.value
    if None in nodes or -1 in nodes:
        return "NODE/SYS"
    return "NODE" if nodes[0] == nodes[1] else "SYS"


def _bridges(device: PciDevice, by_address: dict[str, PciDevice]) -> list[str]:
    """The bridges above, the nearest first."""
    found: list[str] = []
    parent = device.parent
    while parent is not None and parent not in found:
        found.append(parent)
        above = by_address.get(parent)
        parent = above.parent if above is not None else None
    return found


def _one_switch(mine: list[str], other: list[str], shared: str) -> bool:
    """Both hang off downstream ports of the same switch, whose upstream port they share: that is
    one bridge to nvidia-smi."""
    return mine.index(shared) == 1 and other.index(shared) == 1
