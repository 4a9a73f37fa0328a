"""Rows: NUMA nodes, their memory and distances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.model.intent import hot_cpus
from hwtune.remediations._common import plural, size, sysctl
from hwtune.remediations._numa_measured import check_measured
from hwtune.text.cpulist import format_list

if TYPE_CHECKING:
    from hwtune.diagnosis.verdict import Evidence
    from hwtune.fact import Fact
    from hwtune.model import Machine
    from hwtune.model.numa import NumaNode
    from hwtune.profile import Profile

_ABI = "Linux Documentation/ABI/stable/sysfs-devices-node"
_ONE_NODE = "all memory is one node"
_NO_NUMA = "this kernel has no NUMA support"


def _none(verdict: Verdict, machine: Machine) -> bool:
    """Note why there are no nodes to judge, if there are none."""
    numa = machine.numa
    if numa.nodes:
        return False
    if numa.listed.absent:
        verdict.not_applicable(_NO_NUMA)
    elif numa.listed.known:
        verdict.unknown("node:0", f"{numa.listed.source} lists no node")
    else:
        verdict.unknown("node:0", numa.listed)
    return True


def _memory(fact: Fact[int], expected: str = "") -> Evidence:
    return evidence(fact.source, size(fact.get()), expected)


@row(
    "numa.memoryless-node",
    title="Nodes of CPUs without memory",
    symptom="Half of the CPUs are slower than the other half, whatever runs on them.",
    cause="No DIMM is fitted at these CPUs' memory controllers, so that all they touch is remote.",
    severity="warning",
    scope="hands",
    risk="None for reading; DIMMs are fitted with the machine off.",
    cost="DIMMs, or fewer nodes.",
    sources=(_ABI, "Linux Documentation/mm/numa.rst"),
)
def memoryless_node(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    if _none(verdict, machine):
        return verdict
    nodes = machine.numa.nodes
    with_memory = [n.id for n in nodes if n.memory_bytes.known and n.memory_bytes.get() > 0]
    all_cpus = sum(len(node.cpus.get()) for node in machine.numa.with_cpus())
    others: dict[str, list[int]] = {}
    for node in nodes:
        if not node.cpus.known:
            verdict.unknown(f"node:{node.id}", node.cpus)
        elif not node.cpus.get():
            others.setdefault(_without_cpus(node), []).append(node.id)
        elif not node.memory_bytes.known:
            verdict.unknown(f"node:{node.id}", node.memory_bytes)
        elif node.memory_bytes.get() > 0:
            verdict.ok(_memory(node.memory_bytes))
        elif node.nearest_memory.known and node.nearest_memory.get():
            near = format_list(node.nearest_memory.get())
            verdict.ok(
                fact_evidence(node.nearest_memory), reason=f"the memory of node {node.id} is node {near}"
            )
        else:
            _remote(verdict, node, with_memory, all_cpus)
    for what, ids in others.items():
        verdict.ok(reason=f"node{'s' if len(ids) > 1 else ''} {format_list(ids)}: {what}")
    return verdict


def _without_cpus(node: NumaNode) -> str:
    """What a node without CPUs is; that it has none is no fault."""
    amount = (
        f" of {size(node.memory_bytes.get())}" if node.memory_bytes.known and node.memory_bytes.get() else ""
    )
    if node.memory_kind.known:
        names = {
            "gpu": "GPU memory",
            "pmem": "persistent memory",
            "cxl": "CXL memory",
            "hbm": "high-bandwidth memory",
        }
        return names.get(node.memory_kind.get(), f"{node.memory_kind.get()} memory") + amount
    if node.memory_bytes.known and not amount:
        return "neither CPUs nor memory"
    return f"memory{amount} without CPUs"


def _remote(verdict: Verdict, node: NumaNode, with_memory: list[int], all_cpus: int) -> None:
    cpus = node.cpus.get()
    items = [_memory(node.memory_bytes, "more than 0"), fact_evidence(node.cpus)]
    far = ""
    if node.distances.known:
        near = {id: d for id, d in node.distances.get().items() if id in with_memory}
        if near:
            least = min(near.values())
            nearest = format_list([id for id, d in near.items() if d == least])
            far = f", at distance {least} (of node {nearest}) or more"
            items.append(evidence(node.distances.source, f"{least} to node {nearest}"))
    better = f", or run what is critical on nodes {format_list(with_memory)}" if with_memory else ""
    verdict.finding(
        f"node:{node.id}",
        f"Node {node.id} has {len(cpus)} of {all_cpus} CPUs and no memory: all they touch is remote{far}.",
        *items,
        advice=f"Fit DIMMs at its channels, choose fewer nodes per socket in the firmware setup{better}.",
    )


@row(
    "numa.memory-balance",
    title="Equal memory on all nodes",
    symptom="One node runs out of memory first, and its programs get remote memory.",
    cause="DIMMs are spread unevenly, which also leaves memory channels unused.",
    severity="info",
    scope="hands",
    risk="None for reading; DIMMs are moved with the machine off.",
    cost="DIMMs.",
    sources=(_ABI,),
)
def memory_balance(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    if _none(verdict, machine):
        return verdict
    nodes = machine.numa.with_cpus()
    for node in machine.numa.nodes:
        if node.cpus.unknown or (node in nodes and node.memory_bytes.unknown):
            verdict.unknown(f"node:{node.id}", node.cpus if node.cpus.unknown else node.memory_bytes)
    # A node without any memory is numa.memoryless-node's.
    sizes = {n.id: n.memory_bytes for n in nodes if n.memory_bytes.known and n.memory_bytes.get() > 0}
    if len(sizes) < 2:
        return verdict if verdict.unknowns else verdict.not_applicable("at most one node has CPUs and memory")
    if machine.virtualization.is_guest:
        return verdict.not_applicable("the memory of a virtual machine's nodes is its hypervisor's choice")
    least, most = min(sizes, key=lambda id: sizes[id].get()), max(sizes, key=lambda id: sizes[id].get())
    ratio = sizes[most].get() / sizes[least].get()
    limit = profile.numa.memory_ratio_max
    if ratio <= limit:
        return verdict.ok(*(_memory(fact) for fact in sizes.values()))
    expected = f"at least {size(int(sizes[most].get() / limit))}"
    return verdict.finding(
        f"node:{least}",
        f"Node {least} has {size(sizes[least].get())} of memory, node {most} {size(sizes[most].get())}.",
        _memory(sizes[least], expected),
        _memory(sizes[most]),
        advice="Spread the DIMMs evenly over the sockets and their channels.",
    )


@row(
    "numa.misses",
    title="Pages that another node had to give",
    symptom="Memory is remote although the program asked for that of its own node.",
    cause="The node had no free page when it was asked for one, as where file cache had filled it.",
    severity="info",
    scope="runtime",
    risk="None: the counters are read only.",
    cost="None.",
    sources=("Linux Documentation/admin-guide/numastat.rst", f"{_ABI}, numastat"),
)
def misses(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    if _none(verdict, machine):
        return verdict
    counting = sysctl(machine, "vm.numa_stat")
    if counting.known and counting.get() == "0":
        return verdict.unknown("sysctl:vm.numa_stat", f"{counting.source} is 0: the kernel does not count")
    if len(machine.numa.nodes) == 1:
        return verdict.not_applicable(_ONE_NODE)
    hits = missed = 0
    worst: NumaNode | None = None
    for node in machine.numa.nodes:
        if not node.stats.known:
            return verdict.unknown(f"node:{node.id}", node.stats)
        stats = node.stats.get()
        if "numa_hit" not in stats or "numa_foreign" not in stats:
            return verdict.unknown(f"node:{node.id}", f"{node.stats.source} lacks numa_hit or numa_foreign")
        hits += stats["numa_hit"]
        missed += stats["numa_foreign"]
        if worst is None or stats["numa_foreign"] > worst.stats.get()["numa_foreign"]:
            worst = node
    share = missed / (hits + missed) if hits + missed else 0.0
    limit = profile.numa.miss_share_max
    text = f"{missed} of {hits + missed} pages since boot, {share:.2%}"
    source = f"{machine.numa.listed.source}/node*/numastat"
    if worst is None or share <= limit:
        return verdict.ok(evidence(source, text, f"at most {limit:.2%}"))
    items = [
        evidence(source, text, f"at most {limit:.2%}"),
        evidence(worst.stats.source, f"numa_foreign {worst.stats.get()['numa_foreign']}"),
    ]
    if worst.free_bytes.known:
        items.append(evidence(worst.free_bytes.source, f"MemFree {size(worst.free_bytes.get())} now"))
    return verdict.finding(
        f"node:{worst.id}",
        f"{share:.1%} of all pages since boot are not of the node asked for, most often of node {worst.id}.",
        *items,
        advice="See whether the counters rise while the hot program starts, and free memory there first.",
    )


@row(
    "numa.buggy-topology",
    title="A topology that contradicts itself",
    symptom="Programs that choose CPUs and memory by node choose wrongly.",
    cause="Firmware (ACPI SRAT and SLIT, or the device tree) describes nodes that cannot be.",
    severity="warning",
    scope="firmware",
    risk="Firmware updates have their own.",
    cost="None.",
    sources=(
        "ACPI specification, System Locality Information Table (SLIT)",
        f"{_ABI}, distance",
        "Linux drivers/acpi/numa/srat.c, slit_valid()",
    ),
    measures=True,
)
def buggy_topology(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    if _none(verdict, machine):
        return verdict
    _check_distances(verdict, machine)
    _check_cpus(verdict, machine)
    check_measured(verdict, machine.numa)
    return verdict


def _check_distances(verdict: Verdict, machine: Machine) -> None:
    rows = {}
    for node in machine.numa.nodes:
        if node.distances.known:
            rows[node.id] = node.distances
        elif not node.distances.absent and len(machine.numa.nodes) > 1:
            verdict.unknown(f"node:{node.id}", node.distances)
    one_way: list[tuple[int, int]] = []
    for id, fact in rows.items():
        row_ = fact.get()
        own = row_.get(id)
        nearer = sorted(
            other for other, distance in row_.items() if own is not None and other != id and distance <= own
        )
        if nearer:
            verdict.finding(
                f"node:{id}",
                f"Node {id} is said to be no nearer to itself ({own}) than to node {format_list(nearer)}.",
                fact_evidence(fact, "less to itself than to any other"),
                advice="Update the firmware; until then take distances of this machine for unknown.",
            )
        else:
            verdict.ok(fact_evidence(fact))
        one_way.extend(
            (id, other)
            for other, distance in row_.items()
            if id < other and other in rows and rows[other].get().get(id, distance) != distance
        )
    if one_way:
        first, second = one_way[0]
        verdict.finding(
            f"node:{first}",
            f"{plural(len(one_way), 'pair')} of nodes with another distance in the one direction than in the "
            "other, which ACPI allows and hardware seldom means.",
            evidence(rows[first].source, f"{rows[first].get()[second]} to node {second}"),
            evidence(rows[second].source, f"{rows[second].get()[first]} to node {first}"),
            advice="Compare with what the vendor documents, and report a fault of the firmware.",
            severity="info",
        )


def _check_cpus(verdict: Verdict, machine: Machine) -> None:
    nodes = machine.numa.nodes
    owners: dict[int, int] = {}
    shared: dict[tuple[int, int], list[int]] = {}
    for node in nodes:
        if not node.cpus.known:
            verdict.unknown(f"node:{node.id}", node.cpus)
            continue
        for cpu in node.cpus.get():
            if cpu in owners:
                shared.setdefault((owners[cpu], node.id), []).append(cpu)
            owners.setdefault(cpu, node.id)
    for (first, second), cpus in shared.items():
        verdict.finding(
            f"cpu:{format_list(cpus)}",
            f"CPUs {format_list(cpus)} are said to belong to node {first} and to node {second}.",
            *(
                fact_evidence(node.cpus, "no CPU of another node")
                for node in nodes
                if node.id in (first, second)
            ),
            advice="Update the firmware; until then choose CPUs of this machine by hand.",
        )
    online = machine.cpus.online
    homeless = [cpu for cpu in online.get() if cpu not in owners] if online.known else []
    if homeless and all(node.cpus.known for node in nodes):
        verdict.finding(
            f"cpu:{format_list(homeless)}",
            f"CPUs {format_list(homeless)} are online and belong to no node.",
            fact_evidence(online),
            evidence(machine.numa.listed.source, f"CPUs of all nodes: {format_list(set(owners))}"),
            advice="Update the firmware; until then keep hot threads off these CPUs.",
        )


@row(
    "numa.cpu-numbering",
    title="CPU numbers of a node",
    symptom="A program that was pinned to a range of CPUs runs on several nodes.",
    cause="Firmware numbers CPUs across the nodes, so that neighbours in number are strangers in the box.",
    severity="info",
    scope="runtime",
    risk="None.",
    cost="None.",
    sources=(f"{_ABI}, cpulist", "Linux Documentation/admin-guide/cputopology.rst"),
)
def cpu_numbering(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    if _none(verdict, machine):
        return verdict
    nodes = machine.numa.with_cpus()
    unknown = [node for node in machine.numa.nodes if node.cpus.unknown]
    if unknown:
        return verdict.unknown(f"node:{unknown[0].id}", unknown[0].cpus)
    if len(nodes) < 2:
        return verdict.not_applicable("all CPUs are of one node")
    step = _dealt_out(nodes)
    if step is None:
        return verdict.ok(*(fact_evidence(node.cpus) for node in nodes))
    how = f"CPU n is on node {'n' if step[1] else 'number n'} modulo {step[0]}"
    example = f"node {nodes[0].id} has CPUs {format_list(nodes[0].cpus.get())}"
    hot = hot_cpus(machine, profile)
    hot_nodes = {machine.numa.of_cpu().get(cpu) for cpu in hot.get()} if hot.known else set()
    if len(hot_nodes - {None}) < 2:
        return verdict.ok(
            *(fact_evidence(node.cpus) for node in nodes),
            reason=f"{how}: a range of numbers spans all nodes; pin by a node's own list ({example})",
        )
    return verdict.finding(
        f"cpu:{format_list(hot.get())}",
        f"{how}, and the hot CPUs are of {len(hot_nodes - {None})} nodes: a range of numbers spans all.",
        evidence(hot.source, hot.get()),
        *(fact_evidence(node.cpus) for node in nodes),
        advice=f"Pin each hot thread by the list of the node that it belongs to: {example}.",
    )


def _dealt_out(nodes: list[NumaNode]) -> tuple[int, bool] | None:
    """(number of nodes, whether the node's id is the remainder) where CPUs are dealt out to the nodes
    one by one; None where they are not."""
    count = len(nodes)
    remainders = []
    for node in nodes:
        cpus = node.cpus.get()
        if len(cpus) < 2 or any((cpu - cpus[0]) % count for cpu in cpus):
            return None
        remainders.append(cpus[0] % count)
    if len(set(remainders)) != count:
        return None
    return count, all(node.id == remainder for node, remainder in zip(nodes, remainders, strict=True))
