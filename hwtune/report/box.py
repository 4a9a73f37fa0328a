"""A picture of the machine: which CPUs, memory, GPUs, drives and NICs belong to which node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.model.intent import hot_cpus
from hwtune.text.cpulist import show_list

if TYPE_CHECKING:
    from hwtune.fact import Fact
    from hwtune.model import Machine
    from hwtune.model.pci import Link
    from hwtune.profile import Profile

_GIB = 1 << 30


class NodeLine:
    """One line of the picture: the node's name and its parts, each a short text."""

    __slots__ = ("name", "parts")

    def __init__(self, name: str, parts: list[str]) -> None:
        self.name = name
        self.parts = parts


def picture(machine: Machine, profile: Profile) -> list[NodeLine]:
    """A line a node; what belongs to no known node comes last. [] when nothing is known."""
    nodes: dict[int | None, list[str]] = {}
    hot = set(hot_cpus(machine, profile).value or [])
    online = set(machine.cpus.online.value or [])
    for node in machine.numa.nodes:
        nodes[node.id] = _node_parts(node.cpus, node.memory_bytes, node.memory_kind, online, hot)
    if not nodes and online:
        # a kernel without NUMA, or a tree without node folders: one line for the whole box
        nodes[0] = _node_parts(machine.cpus.online, machine.memory.total_bytes, None, online, hot)
    sole = next(iter(nodes)) if len(nodes) == 1 else None
    # where nothing tells the nodes, those that devices name are all that is known of them
    open_set = not nodes
    for node_id, text in _devices(machine):
        where = sole if sole is not None and node_id not in nodes else node_id
        nodes.setdefault(where if where in nodes or open_set else None, []).append(text)
    return [
        NodeLine("node ?" if i is None else f"node {i}", parts)
        for i, parts in sorted(nodes.items(), key=lambda item: (item[0] is None, item[0] or 0))
    ]


def _node_parts(
    cpus: Fact[list[int]],
    memory: Fact[int],
    kind: Fact[str] | None,
    online: set[int],
    hot: set[int],
) -> list[str]:
    parts = []
    if cpus.known:
        mine = set(cpus.get()) & online if online else set(cpus.get())
        parts.append(f"CPU {show_list(mine)}" if mine else "no CPU")
        if mine & hot:
            parts.append(f"isolated {show_list(mine & hot)}")
    if memory.known:
        parts.append(size(memory.get()))
    if kind is not None and kind.known:
        parts.append(f"{kind.get()} memory")
    return parts


def size(count: int) -> str:
    """Bytes in the unit that a person would use, binary."""
    for unit, factor in (("TiB", _GIB << 10), ("GiB", _GIB), ("MiB", 1 << 20)):
        if count >= factor:
            number = count / factor
            return f"{number:.0f} {unit}" if number >= 10 or number == int(number) else f"{number:.1f} {unit}"
    return f"{count >> 10} KiB"


def link_text(link: Link) -> str:
    """ "x16 32 GT/s", as far as it is known."""
    width = f"x{link.current_width.get()}" if link.current_width.known else ""
    speed = f"{link.current_gts.get():g} GT/s" if link.current_gts.known else ""
    return " ".join(p for p in (width, speed) if p)


def _devices(machine: Machine) -> list[tuple[int | None, str]]:
    """(node, text) of each GPU, drive and NIC; None where the node is not known."""
    pci = machine.pci.by_address()
    found: list[tuple[int | None, str]] = []
    for gpu in machine.gpu.gpus:
        device = pci.get(gpu.address or "")
        link = link_text(device.link if device is not None else gpu.link) or link_text(gpu.link)
        name = gpu.name.value or (device.name.value if device is not None else None) or gpu.vendor
        title = "GPU" if gpu.index is None else f"GPU{gpu.index}"
        node = _node(device.numa_node if device is not None else gpu.numa_node)
        found.append((node, " ".join(p for p in (title, _short(name), link) if p)))
    for controller in machine.nvme.controllers:
        device = pci.get(controller.pci_address.value or "")
        link = link_text(device.link) if device is not None else ""
        node = _node(
            controller.numa_node if controller.numa_node.known or device is None else device.numa_node
        )
        found.append((node, " ".join(p for p in (controller.name, link) if p)))
    for block in machine.block.devices:
        if block.nvme is None and not block.name.startswith(
            ("loop", "ram", "zram", "dm-", "md", "sr", "nbd")
        ):
            device = pci.get(block.pci_address.value or "")
            found.append((_node(device.numa_node) if device is not None else None, block.name))
    for nic in machine.network.nics:
        if not nic.virtual:
            speed = _speed(nic.speed_mbps.value)
            found.append((_node(nic.numa_node), " ".join(p for p in (nic.name, speed) if p)))
    for port in machine.network.ib_ports:
        rate = f"{port.rate_gbps.get():g} Gb/s" if port.rate_gbps.known else ""
        found.append((_node(port.numa_node), " ".join(p for p in (port.device, rate) if p)))
    return found + _only_in_pci(machine)


# PCI classes (base and sub) of what a person looks for in a box, and what to call it
_KINDS = {0x0300: "GPU", 0x0302: "GPU", 0x0108: "NVMe", 0x0200: "NIC", 0x0207: "IB", 0x1200: "accelerator"}
# class 0300 is also the small display chip of a server's management controller
_GPU_VENDORS = (0x10DE, 0x1002)


def _only_in_pci(machine: Machine) -> list[tuple[int | None, str]]:
    """Devices that only the PCI tree tells of (an lspci text, a tree without class folders),
    counted by kind and link."""
    told = {gpu.address for gpu in machine.gpu.gpus}
    told |= {c.pci_address.value for c in machine.nvme.controllers}
    told |= {n.pci_address.value for n in machine.network.nics}
    told |= {p.pci_address.value for p in machine.network.ib_ports}
    counts: dict[tuple[int | None, str], int] = {}
    for device in machine.pci.devices:
        kind = _KINDS.get(device.class_code.get() >> 8) if device.class_code.known else None
        if kind is None or device.address in told or device.physical_function is not None:
            continue
        if kind == "GPU" and device.vendor.value not in _GPU_VENDORS:
            continue
        text = f"{kind} {link_text(device.link)}".rstrip()
        counts[_node(device.numa_node), text] = counts.get((_node(device.numa_node), text), 0) + 1
    return [(node, text if count == 1 else f"{count} {text}") for (node, text), count in counts.items()]


def _node(fact: Fact[int]) -> int | None:
    return fact.get() if fact.known and fact.get() >= 0 else None


def _short(name: str) -> str:
    for word in ("NVIDIA ", "Corporation ", "Advanced Micro Devices, Inc. [AMD/ATI] "):
        name = name.replace(word, "")
    return name[:28]


def _speed(mbps: int | None) -> str:
    if not mbps or mbps < 0:
        return ""
    return f"{mbps / 1000:g} Gb/s" if mbps >= 1000 else f"{mbps} Mb/s"
