"""Rows: devices and the NUMA nodes that they hang off."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.fact import Fact
from hwtune.model.intent import hot_cpus
from hwtune.text.cpulist import format_list

if TYPE_CHECKING:
    from hwtune.diagnosis.verdict import Evidence
    from hwtune.model import Machine
    from hwtune.model.pci import PciDevice
    from hwtune.profile import Profile

_PCI_ABI = "Linux Documentation/ABI/testing/sysfs-bus-pci, numa_node"
# Makers of GPUs; the VGA of a management controller is none (ASPEED, Matrox).
_GPU_VENDORS = (0x10DE, 0x1002, 0x8086)
_INTEL = 0x8086


class _Device(NamedTuple):
    """A device on which a hot thread may wait."""

    subject: str
    kind: str  # GPU, NIC, drive
    name: str
    node: Fact[int]


def _kind(device: PciDevice) -> str | None:
    """What the device is to a hot path, or None. Virtual functions go with their physical one."""
    if not device.class_code.known or device.physical_function is not None:
        return None
    class_ = device.class_code.get() >> 8
    vendor = device.vendor.get() if device.vendor.known else None
    if class_ >> 8 == 0x12:
        return "GPU"  # processing accelerators, as AMD's Instinct cards call themselves
    if class_ in (0x0302, 0x0380) and vendor in _GPU_VENDORS:
        return "GPU"
    # Intel's VGA controllers sit in the processor.
    if class_ == 0x0300 and vendor in _GPU_VENDORS and vendor != _INTEL:
        return "GPU"
    if class_ >> 8 == 0x02:
        return "NIC"
    return "drive" if class_ == 0x0108 else None


def _devices(machine: Machine) -> list[_Device]:
    """GPUs, NICs and NVMe drives; the PCI tree's word first, then that of their classes."""
    names = _names(machine)
    found: dict[str, _Device] = {}
    virtual = {device.address for device in machine.pci.devices if device.physical_function is not None}
    for device in machine.pci.devices:
        kind = _kind(device)
        if kind is not None:
            subject = names.get(device.address, f"pci:{device.address}")
            found[device.address] = _Device(subject, kind, _call(subject, device.address), device.numa_node)
    for kind, subject, address, node in _classes(machine):
        known = found.get(address)
        if address not in virtual and (known is None or (known.node.unknown and node.known)):
            found[address or subject] = _Device(subject, kind, _call(subject, address), node)
    return list(found.values())


def _call(subject: str, address: str) -> str:
    kind, _, name = subject.partition(":")
    if kind == "pci":
        return address
    return f"GPU{name}" if kind == "gpu" else name


def _classes(machine: Machine) -> list[tuple[str, str, str, Fact[int]]]:
    """(kind, subject, PCI address or "", node) by the classes of the devices."""
    found = []
    for gpu in machine.gpu.gpus:
        subject = f"gpu:{gpu.index}" if gpu.index is not None else f"pci:{gpu.address}"
        found.append(("GPU", subject, gpu.address or "", gpu.numa_node))
    for controller in machine.nvme.controllers:
        address = controller.pci_address.get() if controller.pci_address.known else ""
        found.append(("drive", f"nvme:{controller.name}", address, controller.numa_node))
    for nic in machine.network.nics:
        address = nic.pci_address.get() if nic.pci_address.known else ""
        if address:
            found.append(("NIC", f"nic:{nic.name}", address, nic.numa_node))
    return [entry for entry in found if not entry[3].absent and entry[3].gap != "not-probed"]


def _names(machine: Machine) -> dict[str, str]:
    """PCI address -> subject by the name that people use."""
    names: dict[str, str] = {}
    for port in machine.network.ib_ports:
        if port.pci_address.known:
            names[port.pci_address.get()] = f"ib:{port.device}/{port.port}"
    for nic in machine.network.nics:
        if nic.pci_address.known:
            names[nic.pci_address.get()] = f"nic:{nic.name}"
    for controller in machine.nvme.controllers:
        if controller.pci_address.known:
            names[controller.pci_address.get()] = f"nvme:{controller.name}"
    for gpu in machine.gpu.gpus:
        if gpu.address is not None and gpu.index is not None:
            names[gpu.address] = f"gpu:{gpu.index}"
    return names


def _idle(machine: Machine) -> set[str]:
    """Subjects of NICs that are known to be down: nobody waits for them."""
    return {
        f"nic:{nic.name}"
        for nic in machine.network.nics
        if (nic.carrier.known and not nic.carrier.get())
        or (nic.operstate.known and nic.operstate.get() in ("down", "notpresent", "lowerlayerdown"))
    }


@row(
    "numa.device-node",
    title="Devices on the node of the hot CPUs",
    symptom="Each access to the GPU or NIC crosses the link between the sockets, in both directions.",
    cause="The hot threads run on one node, and the device hangs off another.",
    severity="warning",
    scope="hands",
    risk="Other CPUs may have other neighbours, as interrupts and drives.",
    cost="None.",
    sources=(
        _PCI_ABI,
        "Linux Documentation/mm/numa.rst",
    ),
)
def device_node(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    reason = _no_choice(machine)
    if reason is not None:
        return reason
    hot = hot_cpus(machine, profile)
    if not hot.known:
        return verdict.unknown(f"cpu:{profile.isolation.cpus}", hot)
    if not hot.get():
        return verdict.not_applicable("no CPUs are kept for hot threads")
    node_of = machine.numa.of_cpu()
    hot_nodes = {node_of[cpu] for cpu in hot.get() if cpu in node_of}
    if not hot_nodes:
        return verdict.unknown(f"cpu:{format_list(hot.get())}", "no node has any of the hot CPUs")
    devices = _devices(machine)
    if not devices and machine.pci.listed.unknown:
        return verdict.unknown("node:0", machine.pci.listed)
    idle = _idle(machine)
    for kind in ("GPU", "NIC", "drive"):
        own = [device for device in devices if device.kind == kind and device.subject not in idle]
        _judge_kind(verdict, machine, kind, own, hot, hot_nodes)
    if not verdict.findings and not verdict.unknowns and not verdict.good:
        verdict.not_applicable("there is no GPU, NIC or NVMe drive")
    return verdict


def _no_choice(machine: Machine) -> Verdict | None:
    """The verdict where there are not several nodes of CPUs to choose from."""
    verdict = Verdict()
    numa = machine.numa
    if numa.listed.absent:
        return verdict.not_applicable("this kernel has no NUMA support")
    if not numa.nodes:
        return verdict.unknown("node:0", numa.listed)
    for node in numa.nodes:
        if node.cpus.unknown:
            return verdict.unknown(f"node:{node.id}", node.cpus)
    return verdict.not_applicable("all CPUs are of one node") if len(numa.with_cpus()) < 2 else None


def _judge_kind(
    verdict: Verdict,
    machine: Machine,
    kind: str,
    devices: list[_Device],
    hot: Fact[list[int]],
    hot_nodes: set[int],
) -> None:
    far: dict[int, list[_Device]] = {}
    near = 0
    for device in devices:
        if not device.node.known:
            verdict.unknown(device.subject, device.node)
        elif device.node.get() < 0:
            continue  # numa.node-unknown's
        elif device.node.get() in hot_nodes:
            near += 1
            verdict.ok(fact_evidence(device.node))
        else:
            far.setdefault(device.node.get(), []).append(device)
    for node, group in far.items():
        # A GPU is there to be used. Of NICs and drives, one on the right side is enough, and a drive
        # is seldom on the hot path.
        if kind == "drive" and near:
            verdict.ok(*(fact_evidence(device.node) for device in group))
            continue
        severity = "info" if kind == "drive" or (kind == "NIC" and near) else None
        _far(verdict, machine, node, group, hot, hot_nodes, severity)


def _far(
    verdict: Verdict,
    machine: Machine,
    node: int,
    group: list[_Device],
    hot: Fact[list[int]],
    hot_nodes: set[int],
    severity: str | None,
) -> None:
    names = ", ".join(device.name for device in group)
    where = format_list(hot_nodes)
    are = "is" if len(group) == 1 else "are"
    s = "" if len(hot_nodes) == 1 else "s"
    verdict.finding(
        group[0].subject if len(group) == 1 else f"node:{node}",
        f"{names} {are} on node {node}, and all hot CPUs are on node{s} {where}.",
        *(fact_evidence(device.node, f"a node of the hot CPUs: {where}") for device in group[:8]),
        evidence(hot.source, hot.get()),
        *_distance(machine, node, hot_nodes),
        advice=f"Keep hot CPUs on node {node} for {names}, or move it to a slot of node{s} {where}.",
        severity=severity,
    )


def _distance(machine: Machine, node: int, hot_nodes: set[int]) -> list[Evidence]:
    found = next((n.distances for n in machine.numa.nodes if n.id == node), None)
    if found is None or not found.known:
        return []
    return [
        evidence(found.source, f"{distance} from node {node} to node {other}")
        for other, distance in found.get().items()
        if other in hot_nodes
    ][:2]


@row(
    "numa.node-unknown",
    title="Devices whose node is not known",
    symptom="Interrupts, buffers and threads of the device are placed by chance.",
    cause="Firmware does not say which node the device hangs off (numa_node reads -1).",
    severity="warning",
    scope="firmware",
    risk="Firmware updates have their own. Writing numa_node taints the kernel, and is never advised.",
    cost="None.",
    sources=(_PCI_ABI,),
)
def node_unknown(machine: Machine, profile: Profile) -> Verdict:
    reason = _no_choice(machine)
    if reason is not None:
        return reason
    verdict = Verdict()
    devices = _devices(machine)
    if not devices:
        if machine.pci.listed.unknown:
            return verdict.unknown("node:0", machine.pci.listed)
        return verdict.not_applicable("there is no GPU, NIC or NVMe drive")
    lost = []
    for device in devices:
        if not device.node.known:
            verdict.unknown(device.subject, device.node)
        elif device.node.get() < 0:
            lost.append(device)
        else:
            verdict.ok(fact_evidence(device.node))
    if not lost:
        return verdict
    names = ", ".join(device.name for device in lost[:8]) + (
        f" and {len(lost) - 8} more" if len(lost) > 8 else ""
    )
    guest = machine.virtualization.is_guest
    who = "The hypervisor" if guest else "Firmware"
    return verdict.finding(
        lost[0].subject,
        f"{who} does not say which node {names} {'hangs' if len(lost) == 1 else 'hang'} off.",
        *(fact_evidence(device.node, "a node") for device in lost[:8]),
        advice="Ask the provider for the topology, and pin by it."
        if guest
        else "Update the firmware, or find its option that tells the PCI locality (_PXM) to the system.",
        severity=None if guest is False and any(device.kind == "GPU" for device in lost) else "info",
    )


@row(
    "numa.node-interleaving",
    title="Sockets hidden as one node",
    symptom="Much of all memory is that of another socket, and nothing can be pinned to its own.",
    cause="Firmware interleaves memory over the sockets (node interleaving, NPS0), or numa=off was given.",
    severity="warning",
    scope="firmware",
    risk="Programs that are not bound to a node may use the memory of one node only.",
    cost="Balance of programs that know nothing of nodes.",
    sources=(
        "Linux Documentation/arch/x86/x86_64/boot-options.rst, numa=off",
        "AMD EPYC BIOS tuning guides, NPS",
    ),
)
def node_interleaving(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    numa = machine.numa
    packages = {cpu.package for cpu in machine.cpus.cpus if cpu.package is not None}
    if not packages:
        return verdict.unknown("node:0", "the packages of the CPUs are not known")
    if len(packages) == 1:
        return verdict.not_applicable("there is one socket")
    if len(numa.nodes) > 1:
        return verdict.ok(evidence(numa.listed.source, f"{len(numa.nodes)} nodes, {len(packages)} sockets"))
    if numa.listed.unknown:
        return verdict.unknown("node:0", numa.listed)
    guest = machine.virtualization.is_guest
    if guest:
        return verdict.not_applicable("the sockets of a virtual machine are its hypervisor's choice")
    own_memory = _has_memory_controllers(machine)
    if own_memory is False:
        return verdict.not_applicable("these CPUs share one memory controller outside of their sockets")
    if guest is None:
        return verdict.unknown("node:0", machine.virtualization.hypervisor)
    if own_memory is None:
        return verdict.unknown("node:0", "which CPUs these are is not known")
    arguments = [value for value in machine.kernel.argument_values("numa") if value == "off"]
    items = [evidence("packages of the CPUs", len(packages))]
    if numa.nodes:
        items.append(evidence(numa.listed.source, "one node", f"{len(packages)} or more"))
    else:
        items.append(evidence(numa.listed.source, "absent", f"{len(packages)} nodes or more"))
    advice = "Turn node interleaving off in the firmware setup (on AMD EPYC: NPS1 or higher)."
    if arguments:
        items.append(evidence(machine.kernel.arguments.source, "numa=off", "not given"))
        advice = "Boot without numa=off."
    elif not numa.nodes:
        advice = "Run a kernel that is built with CONFIG_NUMA."
    return verdict.finding(
        "node:0", f"{len(packages)} sockets with memory of their own show as one node.", *items, advice=advice
    )


def _has_memory_controllers(machine: Machine) -> bool | None:
    """Whether each socket has memory of its own: x86 since Nehalem (family 6, model 1Ah) and AMD's
    family 0Fh. Others are not judged (None)."""
    cpus = machine.cpus
    if not (cpus.vendor.known and cpus.family.known):
        return None
    if cpus.vendor.get() in ("AuthenticAMD", "HygonGenuine"):
        return cpus.family.get() >= 0x0F
    if cpus.vendor.get() == "GenuineIntel" and cpus.model.known:
        # Family 15 (NetBurst), the models of family 6 before and Dunnington (1Dh) have a front-side bus.
        model = cpus.model.get()
        return cpus.family.get() > 15 or (cpus.family.get() == 6 and model >= 0x1A and model != 0x1D)
    return None
