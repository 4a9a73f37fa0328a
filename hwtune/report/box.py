"""A picture of the machine: which CPUs, memory, GPUs, drives and NICs belong to which node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.model.intent import hot_cpus
from hwtune.text.cpulist import show_list

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hwtune.fact import Fact
    from hwtune.model import Machine
    from hwtune.model.pci import Link
    from hwtune.profile import Profile

_GIB = 1 << 30


class NodeLine:
    """One line of the picture: a node and what is on it, each a short text; "" for what is not
    known. ``devices`` are told alike ones together: "nvme0-3 x4 16 GT/s"."""

    __slots__ = ("cpus", "devices", "isolated", "memory", "memory_kind", "name")

    def __init__(self) -> None:
        self.name = ""
        self.cpus = ""  # "0-3", or "none"
        self.isolated = ""
        self.memory = ""
        self.memory_kind = ""  # "gpu memory"; "" for the ordinary one
        self.devices: list[str] = []

    @property
    def parts(self) -> list[str]:
        """All of it in a line's order."""
        cpus = {"": "", "none": "no CPU"}.get(self.cpus, f"CPU {self.cpus}")
        isolated = f"isolated {self.isolated}" if self.isolated else ""
        return [p for p in (cpus, isolated, self.memory, self.memory_kind, *self.devices) if p]


def picture(machine: Machine, profile: Profile) -> list[NodeLine]:
    """A line a node; what belongs to no known node comes last. [] when nothing is known."""
    nodes: dict[int | None, NodeLine] = {}
    hot = set(hot_cpus(machine, profile).value or [])
    online = set(machine.cpus.online.value or [])
    for node in machine.numa.nodes:
        nodes[node.id] = _node(node.cpus, node.memory_bytes, node.memory_kind, online, hot)
    if not nodes and online:
        # a kernel without NUMA, or a tree without node folders: one line for the whole box
        nodes[0] = _node(machine.cpus.online, machine.memory.total_bytes, None, online, hot)
    sole = next(iter(nodes)) if len(nodes) == 1 else None
    # where nothing tells the nodes, those that devices name are all that is known of them
    open_set = not nodes
    for node_id, text in _devices(machine):
        where = sole if sole is not None and node_id not in nodes else node_id
        place = where if where in nodes or open_set else None
        nodes.setdefault(place, NodeLine()).devices.append(text)
    for number, line in nodes.items():
        line.name = "node ?" if number is None else f"node {number}"
        line.devices = _grouped(line.devices)
    return [line for _, line in sorted(nodes.items(), key=lambda item: (item[0] is None, item[0] or 0))]


def _node(
    cpus: Fact[list[int]],
    memory: Fact[int],
    kind: Fact[str] | None,
    online: set[int],
    hot: set[int],
) -> NodeLine:
    line = NodeLine()
    if cpus.known:
        mine = set(cpus.get()) & online if online else set(cpus.get())
        line.cpus = show_list(mine) or "none"
        line.isolated = show_list(mine & hot)
    if memory.known:
        line.memory = size(memory.get()) if memory.get() else "no memory"
    if kind is not None and kind.known:
        line.memory_kind = f"{kind.get()} memory"
    return line


def _counts(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


def _grouped(parts: list[str]) -> list[str]:
    """Parts as they are; those that are equal are counted, those that differ in their first word
    alone (drives, ports) are named together."""
    counted = _counts(parts)
    alike: dict[str, list[str]] = {}
    for part, count in counted.items():
        name, _, rest = part.partition(" ")
        if count == 1 and rest and _stem(name) not in ("", name):
            alike.setdefault(rest, []).append(part)
    found: list[str] = []
    for part, count in counted.items():
        rest = part.partition(" ")[2]
        group = alike.get(rest, [])
        if part not in group or len(group) == 1:
            found.append(part if count == 1 else f"{count} {part}")
        elif part == group[0]:
            found.append(f"{', '.join(_runs([p.partition(' ')[0] for p in group]))} {rest}")
    return found


def _runs(names: list[str]) -> list[str]:
    """Names that end in numbers; three and more that count up are one: "nvme4-9"."""
    runs: list[list[str]] = []
    for name in names:
        if runs and name == _next(runs[-1][-1]):
            runs[-1].append(name)
        else:
            runs.append([name])
    shown: list[str] = []
    for run in runs:
        shown += run if len(run) < 3 else [f"{run[0]}-{run[-1][len(_stem(run[-1])) :]}"]
    return shown


def _stem(name: str) -> str:
    return name.rstrip("0123456789")


def _next(name: str) -> str:
    stem = _stem(name)
    digits = name[len(stem) :]
    # no device counts further; a hostile name may have more digits than Python makes an int of
    return f"{stem}{int(digits) + 1}" if len(digits) < 10 else ""


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
        node = _where(device.numa_node if device is not None else gpu.numa_node)
        found.append((node, " ".join(p for p in (title, _short(name), link) if p)))
    for controller in machine.nvme.controllers:
        device = pci.get(controller.pci_address.value or "")
        link = link_text(device.link) if device is not None else ""
        node = _where(
            controller.numa_node if controller.numa_node.known or device is None else device.numa_node
        )
        found.append((node, " ".join(p for p in (controller.name, link) if p)))
    for block in machine.block.devices:
        if block.nvme is None and not block.name.startswith(
            ("loop", "ram", "zram", "dm-", "md", "sr", "nbd")
        ):
            device = pci.get(block.pci_address.value or "")
            found.append((_where(device.numa_node) if device is not None else None, block.name))
    for nic in machine.network.nics:
        if not nic.virtual:
            speed = _speed(nic.speed_mbps.value)
            found.append((_where(nic.numa_node), " ".join(p for p in (nic.name, speed) if p)))
    ports = _counts(port.device for port in machine.network.ib_ports)
    for port in machine.network.ib_ports:
        rate = f"{port.rate_gbps.get():g} Gb/s" if port.rate_gbps.known else ""
        name = port.device if ports[port.device] == 1 else f"{port.device}/{port.port}"
        found.append((_where(port.numa_node), " ".join(p for p in (name, rate) if p)))
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
        counts[_where(device.numa_node), text] = counts.get((_where(device.numa_node), text), 0) + 1
    return [(node, text if count == 1 else f"{count} {text}") for (node, text), count in counts.items()]


def _where(fact: Fact[int]) -> int | None:
    return fact.get() if fact.known and fact.get() >= 0 else None


def _short(name: str) -> str:
    for word in ("NVIDIA ", "Corporation ", "Advanced Micro Devices, Inc. [AMD/ATI] "):
        name = name.replace(word, "")
    return name[:28]


def _speed(mbps: int | None) -> str:
    if not mbps or mbps < 0:
        return ""
    return f"{mbps / 1000:g} Gb/s" if mbps >= 1000 else f"{mbps} Mb/s"
