"""GPUs: how far they are from NICs, CPUs and each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hwtune.diagnosis.row import row
from hwtune.diagnosis.verdict import Verdict, evidence
from hwtune.model import paths
from hwtune.model.gpu import subject
from hwtune.model.intent import hot_cpus
from hwtune.remediations import _gpu_common as common
from hwtune.text.cpulist import format_list

if TYPE_CHECKING:
    from hwtune.model import Machine
    from hwtune.model.gpu import Gpu, GpuPair
    from hwtune.model.pci import PciDevice
    from hwtune.profile import Profile

_LEGEND = "nvidia-smi topo -m: its legend (PIX, PXB, PHB, NODE, SYS)"
_ADD_MATRIX = "add nvidia-smi topo -m"
# NICs below this are for management, and no GPU waits for them.
_FAST_MBPS = 10_000
# Eight lanes at 8 GT/s: what cards of 25 Gb/s and more are built with, and those of 1 Gb/s are not.
_FAST_GTS = 64
# Drivers of cards for 10 Gb/s and more alone (drivers/net/ethernet/*/Kconfig).
_FAST_DRIVERS = ("mlx4_core", "mlx5_core", "bnxt_en", "ice", "ixgbe", "cxgb4", "qede")


class _Reach(NamedTuple):
    """The way from each GPU to each NIC: subject -> NIC -> PIX ..., with the source; the same to
    those of which nothing tells whether they are fast."""

    ways: dict[str, dict[str, str]]
    source: str
    unsure: dict[str, dict[str, str]]


@row(
    "gpu.nic-affinity",
    title="Has every GPU a fast NIC beside it?",
    symptom="Network transfers of some GPUs are slower, or two GPUs share a NIC while others have their own.",
    cause="Without a common PCIe switch, data between GPU and NIC crosses a host bridge or the socket link.",
    severity="info",
    scope="hands",
    risk="none",
    cost="none",
    sources=(_LEGEND, "NVIDIA GPUDirect RDMA documentation: Supported Systems"),
)
def nic_affinity(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    if nothing is not None:
        return nothing
    verdict = Verdict()
    reach = _from_matrix(machine) or _from_tree(machine)
    missing = _rows_missing(verdict, machine)
    if reach is None:
        if missing:
            return verdict
        return _no_way(verdict, machine)
    near = {where: _at(ways, paths.NEAR) for where, ways in reach.ways.items()}
    maybe = {where: _at(reach.unsure.get(where, {}), paths.NEAR) for where in near}
    with_nic = [where for where, nics in near.items() if nics or maybe[where]]
    if len(with_nic) * 2 < len(near):
        _few(verdict, machine, reach)
        return verdict
    for where, nics in near.items():
        if nics or not maybe[where]:
            _judge(verdict, where, nics, reach, profile)
        else:
            common.note(verdict, where, _how_fast(maybe[where]), _ADD_MATRIX)
    return verdict


def _how_fast(nics: list[str]) -> str:
    return f"how fast {', '.join(nics)} beside it {'is' if len(nics) == 1 else 'are'} is not known"


def _at(ways: dict[str, str], wanted: tuple[str, ...]) -> list[str]:
    return [nic for nic, way in ways.items() if way in wanted]


def _judge(verdict: Verdict, where: str, nics: list[str], reach: _Reach, profile: Profile) -> None:
    if nics:
        nearest, way = _nearest(reach.ways[where])
        verdict.ok(evidence(reach.source, f"{where} - {nearest} ({way})", "PIX or PXB"))
        return
    nearest, way = _nearest(reach.ways[where])
    verdict.finding(
        where,
        f"No NIC is beside this GPU, as one is beside others; the nearest is {nearest} ({way}).",
        evidence(reach.source, f"{nearest} {way}", "PIX or PXB"),
        advice="Give network-bound work to the GPUs with a NIC beside them, or plan for two GPUs a NIC",
        severity="warning" if profile.gpu.nic_per_gpu else "info",
    )


def _nearest(ways: dict[str, str]) -> tuple[str, str]:
    best = min(ways.values(), key=paths.rank)
    return ", ".join(nic for nic, way in ways.items() if way == best), best


def _few(verdict: Verdict, machine: Machine, reach: _Reach) -> None:
    """The box has no NIC for every GPU. Where some GPU is nearer to one than others are, that is
    the GPU (and the CPUs) for work on the network."""
    if any(reach.unsure.values()):
        nics = sorted({nic for ways in reach.unsure.values() for nic in ways})
        for where in reach.ways:
            common.note(verdict, where, _how_fast(nics).replace(" beside it", ""), _ADD_MATRIX)
        return
    best = min((way for ways in reach.ways.values() for way in ways.values()), key=paths.rank)
    nearest = {where: _at(ways, (best,)) for where, ways in reach.ways.items() if _at(ways, (best,))}
    if len(nearest) == len(reach.ways):
        verdict.ok(evidence(reach.source, best), reason=f"every GPU reaches a NIC in the same way ({best})")
        return
    nodes = {subject(machine.gpu.gpus, g): g.numa_node for g in common.nvidia(machine)}
    others = len(reach.ways) - len(nearest)
    for where, nics in nearest.items():
        node = nodes[where]
        on = f" on NUMA node {node.get()}" if node.known else ""
        only = (
            "Only this GPU is near the NICs" if len(nearest) == 1 else "This GPU is nearer than most to a NIC"
        )
        verdict.finding(
            where,
            f"{only}: {', '.join(nics)} at {best}{on}.",
            evidence(reach.source, f"{', '.join(nics)} {best}; {others} other GPUs are further away"),
            advice=f"Use this GPU for work on the network, and run its threads{on or ' beside it'}",
        )


def _from_matrix(machine: Machine) -> _Reach | None:
    """The ways in pasted matrices: pairs of a GPU and what is no GPU."""
    index = {
        f"GPU{g.index}": subject(machine.gpu.gpus, g) for g in common.nvidia(machine) if g.index is not None
    }
    host = machine.gpu.host
    ways: dict[str, dict[str, str]] = {}
    source = ""
    for pair in host.pairs:
        for gpu, nic in ((pair.first, pair.second), (pair.second, pair.first)):
            if gpu in index and not nic.startswith("GPU") and gpu not in host.rows_missing:
                ways.setdefault(index[gpu], {})[host.nic_names.get(nic, nic)] = pair.path
                source = pair.source
    return _Reach(ways, source, {}) if ways else None


def _from_tree(machine: Machine) -> _Reach | None:
    """The ways in the PCI tree, to NICs that are fast."""
    devices = machine.pci.by_address()
    fast, unsure = _nics(machine, devices)
    found: dict[str, dict[str, str]] = {}
    open_: dict[str, dict[str, str]] = {}
    source = ""
    for where, gpu in common.each(machine):
        mine = devices.get(gpu.address or "")
        if mine is None:
            continue
        for nics, ways in ((fast, found), (unsure, open_)):
            for address, name in nics.items():
                other = devices.get(address)
                way = paths.way(mine, other, devices) if other is not None else None
                if way is not None:
                    ways.setdefault(where, {})[name] = way
                    source = "/sys/bus/pci/devices" if mine.source.startswith("/") else mine.source
    if not found and not open_:
        return None
    return _Reach({where: found.get(where, {}) for where in {**found, **open_}}, source, open_)


def _nics(machine: Machine, devices: dict[str, PciDevice]) -> tuple[dict[str, str], dict[str, str]]:
    """PCI address -> name of the NICs that are fast by their own account, or where they give none
    by the lanes that they are built for or their driver; and of those of which none is known."""
    network = machine.network
    fast = {port.pci_address.get(): port.device for port in network.ib_ports if port.pci_address.known}
    unsure: dict[str, str] = {}
    for nic in network.nics:
        if nic.virtual or not nic.pci_address.known:
            continue
        address = nic.pci_address.get()
        speed = nic.max_speed_mbps if nic.max_speed_mbps.known else nic.speed_mbps
        sure = speed.get() >= _FAST_MBPS if speed.known and speed.get() > 0 else None
        if sure is None:
            sure = _built_fast(devices.get(address))
        if sure is not False and address not in fast:
            (fast if sure else unsure).setdefault(address, nic.name)
    for device in machine.pci.devices:
        if device.physical_function is not None or device.address in fast:
            continue
        # a card of InfiniBand's class is fast, whether or not its driver is loaded
        if device.role == "infiniband" or (
            device.role == "nic" and not network.listed.known and _built_fast(device)
        ):
            fast[device.address] = unsure.pop(device.address, device.address)
    return fast, unsure


def _built_fast(device: PciDevice | None) -> bool | None:
    """By its lanes, or its driver; None where neither is known, as in a capture without them."""
    if device is None:
        return None
    gts, width = device.link.max_gts, device.link.max_width
    if gts.known and width.known:
        return gts.get() * width.get() >= _FAST_GTS
    if device.driver.value in _FAST_DRIVERS:
        return True
    # a device without a link of its own, such as an emulated one, is no fast card
    return False if gts.absent or width.absent else None


def _rows_missing(verdict: Verdict, machine: Machine) -> bool:
    """A matrix that was cut off says nothing of the GPUs below the cut."""
    missing = machine.gpu.host.rows_missing
    if not missing or not any(not pair.second.startswith("GPU") for pair in machine.gpu.host.pairs):
        return False
    for where, gpu in common.each(machine):
        source = missing.get(f"GPU{gpu.index}")
        if source is not None:
            common.note(verdict, where, f"{source} has no whole row for it", "add the whole matrix")
    return True


def _no_way(verdict: Verdict, machine: Machine) -> Verdict:
    network = machine.network
    if machine.gpu.host.matrix or (network.listed.known and not network.nics and not network.ib_ports):
        return verdict.not_applicable("no NIC is listed beside the GPUs")
    if network.listed.known and machine.pci.listed.known:
        return verdict.not_applicable("no NIC beside the GPUs is known to carry 10 Gb/s or more")
    return verdict.unknown(
        "gpu:0",
        "neither a matrix of the topology nor a PCI tree with NICs is here",
        remedy=_ADD_MATRIX,
    )


@row(
    "gpu.cpu-affinity",
    title="Is a GPU local to the CPUs that are kept for hot threads?",
    symptom="Launches and copies take longer, and more so under memory load.",
    cause="A thread on another NUMA node reaches the GPU over the link between the sockets.",
    severity="warning",
    scope="boot",
    risk="Other CPUs may have other neighbours, such as the NIC.",
    cost="none",
    sources=(
        "NVML API reference: nvmlDeviceGetCpuAffinity",
        "L6.12:Documentation/ABI/testing/sysfs-bus-pci (local_cpulist)",
    ),
)
def cpu_affinity(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    if nothing is not None:
        return nothing
    hot = hot_cpus(machine, profile)
    if hot.known and not hot.get():
        return Verdict().not_applicable("no CPUs are kept for hot threads")
    verdict = Verdict()
    if not hot.known:
        return verdict.unknown("kernel", hot)
    local: dict[str, set[int]] = {}
    for where, gpu in common.each(machine):
        cpus = _local_cpus(gpu, machine)
        if cpus is None:
            common.unknown(verdict, where, gpu, gpu.cpu_affinity)
        else:
            local[where] = cpus
    served = {where for where, cpus in local.items() if cpus & set(hot.get())}
    shown = evidence(hot.source, f"hot CPUs {format_list(hot.get())}")
    if served:
        others = len(local) - len(served)
        reason = f"{', '.join(sorted(served))} is local to them" if others else ""
        verdict.ok(shown, reason=reason)
        return verdict
    for where, cpus in local.items():
        verdict.finding(
            where,
            "None of the CPUs kept for hot threads is local to this GPU, or to any other.",
            shown,
            evidence("CPUs of the GPU", format_list(cpus)),
            advice=f"Keep CPUs of {format_list(cpus)} for the threads that feed this GPU",
        )
    return verdict


def _local_cpus(gpu: Gpu, machine: Machine) -> set[int] | None:
    if gpu.cpu_affinity.known and gpu.cpu_affinity.get():
        return set(gpu.cpu_affinity.get())
    device = machine.pci.by_address().get(gpu.address or "")
    if device is not None and device.local_cpus.known and device.local_cpus.get():
        return set(device.local_cpus.get())
    return None


# What the states of nvidia-smi topo -p2p mean (its legend; NVML: nvmlGpuP2PStatus_t).
_STATES = {
    "CNS": (
        "the chipset does not support it",
        "Put both GPUs behind one PCIe switch or root complex that does",
    ),
    "GNS": (
        "the GPU does not support it, which is a limit of the product",
        "Plan for copies through host memory",
    ),
    "TNS": ("the way between them does not support it", "Put both GPUs below one socket"),
    "DR": ("it is disabled by a driver option", "Remove the registry key from the options of module nvidia"),
}
# Not supported, unknown: what a matrix of writes or of NVLink says of any pair without it.
_VAGUE = ("NS", "U")


@row(
    "gpu.p2p",
    title="Can GPUs read and write each other's memory directly?",
    symptom="Transfers between GPUs go through host memory, at a fraction of the speed.",
    cause="Peer access is limited by the product, the chipset, the topology, or a driver option.",
    severity="warning",
    scope="hands",
    risk="none",
    cost="none",
    sources=("nvidia-smi topo -p2p: its legend", "NVML API reference: nvmlGpuP2PStatus_t"),
)
def p2p(machine: Machine, profile: Profile) -> Verdict:
    nothing = common.nothing_to_judge(machine)
    if nothing is not None:
        return nothing
    verdict = Verdict()
    gpus = common.nvidia(machine)
    if len(gpus) == 1 and machine.gpu.host.listed.known:
        return verdict.not_applicable("there is one GPU")
    if any(gpu.mig.value is True for gpu in gpus):
        return verdict.not_applicable("a GPU in MIG mode has no peer access")
    told = [pair for pair in machine.gpu.host.pairs if pair.p2p is not None]
    vague = [pair for pair in told if pair.p2p in _VAGUE]
    told = [pair for pair in told if pair.p2p not in _VAGUE]
    if not told:
        reason = (
            f"{vague[0].p2p_source} says {vague[0].p2p}, and not why" if vague else "no peer access is told"
        )
        return verdict.unknown(
            subject(machine.gpu.gpus, gpus[0]), reason, remedy="" if vague else "add nvidia-smi topo -p2p r"
        )
    for state in dict.fromkeys(pair.p2p for pair in told):
        pairs = [pair for pair in told if pair.p2p == state]
        if state == "OK":
            verdict.ok(evidence(pairs[0].p2p_source or pairs[0].source, f"{_pairs(pairs)} OK"))
        else:
            _no_peer_access(verdict, machine, profile, str(state), pairs)
    return verdict


def _no_peer_access(
    verdict: Verdict, machine: Machine, profile: Profile, state: str, pairs: list[GpuPair]
) -> None:
    text, advice = _STATES[state]
    first = next(
        (g for g in common.nvidia(machine) if f"GPU{g.index}" == pairs[0].first), common.nvidia(machine)[0]
    )
    severity = "info"
    if state == "DR" or (state == "CNS" and profile.pcie.p2p and not common.is_guest(machine, first)):
        severity = "warning"
    verdict.finding(
        subject(machine.gpu.gpus, first),
        f"No peer access between {_pairs(pairs)}: {text}.",
        evidence(pairs[0].p2p_source or pairs[0].source, state, "OK"),
        advice=advice,
        severity=severity,
    )


def _pairs(pairs: list[GpuPair]) -> str:
    shown = [f"{pair.first} and {pair.second}" for pair in pairs[:3]]
    more = f" and {len(pairs) - 3} more pairs" if len(pairs) > 3 else ""
    return ", ".join(shown) + more
