"""A server of any size, as a tree of files: for benchmarks of growth and tests of large machines.

It is a sound machine: two threads a core, half of each node's cores isolated (whole cores, not the
boot CPU's), interrupts on housekeeping CPUs of their device's node, every link at its full speed.
"""

from __future__ import annotations

import os
from pathlib import Path

from hwtune.text.cpulist import format_list, format_mask

_CPU = "sys/devices/system/cpu"
# Root ports of one domain: a bus number each, below 256.
_PORTS_A_DOMAIN = 120


def build(
    path: Path, *, cpus: int, irqs: int, pci_devices: int, nodes: int, nics: int = 0, drives: int = 0
) -> Path:
    """Write the tree below ``path`` and return it. ``cpus`` is even and a multiple of ``nodes``;
    half of the ``pci_devices`` are root ports with one endpoint each, of which the first ``nics`` have
    a network interface and the next ``drives`` are NVMe drives of one namespace."""
    if cpus % (2 * nodes) or pci_devices < 2 or nics + drives > pci_devices // 2:
        raise ValueError(
            "cpus must be a multiple of twice the nodes, and pci_devices twice the NICs and drives"
        )
    tree = _Tree(path)
    places = _places(cpus, nodes)
    hot = {c for node in places for c in _second_half_of_cores(node, cpus)}
    _kernel(tree, cpus, hot)
    _cpus(tree, cpus, nodes, places, hot)
    _nodes(tree, cpus, places)
    endpoints = _pci(tree, pci_devices, places, nics, drives)
    _irqs(tree, cpus, irqs, endpoints, places, hot)
    return path


class _Tree:
    """Writes files, making each directory once."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._made: set[str] = set()

    def _place(self, path: str) -> str:
        place = f"{self._root}/{path}"
        parent = place.rpartition("/")[0]
        if parent not in self._made:
            os.makedirs(parent, exist_ok=True)
            self._made.add(parent)
        return place

    def file(self, path: str, content: object) -> None:
        with open(self._place(path), "w", encoding="ascii") as file:
            file.write(f"{content}\n")

    def files(self, folder: str, contents: dict[str, object]) -> None:
        for name, content in contents.items():
            self.file(f"{folder}/{name}", content)

    def link(self, path: str, target: str) -> None:
        os.symlink(target, self._place(path))


def _places(cpus: int, nodes: int) -> list[list[int]]:
    """CPUs of each node: a run of cores, and their second threads, which come after all cores."""
    cores = cpus // 2 // nodes
    return [
        [c + thread * (cpus // 2) for thread in (0, 1) for c in range(node * cores, (node + 1) * cores)]
        for node in range(nodes)
    ]


def _second_half_of_cores(node: list[int], cpus: int) -> list[int]:
    cores = [c for c in node if c < cpus // 2]
    isolated = cores[(len(cores) + 1) // 2 :]
    return isolated + [c + cpus // 2 for c in isolated]


def _kernel(tree: _Tree, cpus: int, hot: set[int]) -> None:
    alone, others = format_list(hot), format_list(set(range(cpus)) - hot)
    tree.files(
        "proc",
        {
            "version": "Linux version 6.12.0-synthetic (nobody@nowhere) (gcc) #1 SMP PREEMPT_DYNAMIC",
            "cmdline": f"root=/dev/sda1 ro isolcpus=domain,managed_irq,{alone} nohz_full={alone} "
            f"irqaffinity={others}",
            "uptime": "1000000.00 1000000.00",
            "meminfo": f"MemTotal:       {cpus * 4194304} kB\nMemFree:        {cpus * 2097152} kB\n"
            f"MemAvailable:   {cpus * 3145728} kB\nSwapTotal:             0 kB\nSwapFree:              0 kB",
            "sys/kernel/osrelease": "6.12.0-synthetic",
            "sys/kernel/hostname": "synthetic",
            "sys/kernel/arch": "x86_64",
            "cpuinfo": "\n\n".join(
                f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
                "model name\t: A processor that nobody makes\nmicrocode\t: 0x2b000000\n"
                "flags\t\t: fpu tsc msr constant_tsc nonstop_tsc tsc_known_freq"
                for cpu in range(cpus)
            ),
        },
    )
    tree.file("sys/devices/virtual/workqueue/cpumask", format_mask(set(range(cpus)) - hot))


def _cpus(tree: _Tree, cpus: int, nodes: int, places: list[list[int]], hot: set[int]) -> None:
    everything = format_list(range_set(cpus))
    tree.files(
        _CPU,
        {
            "possible": everything,
            "present": everything,
            "online": everything,
            "offline": "",
            "isolated": format_list(hot),
            "nohz_full": format_list(hot),
            "smt/control": "on",
            "smt/active": 1,
        },
    )
    for node, here in enumerate(places):
        package = format_list(here)
        for cpu in here:
            _cpu(tree, cpu, cpus, node, package)


def range_set(count: int) -> set[int]:
    return set(range(count))


def _cpu(tree: _Tree, cpu: int, cpus: int, node: int, package: str) -> None:
    core = cpu % (cpus // 2)
    siblings = f"{core},{core + cpus // 2}"
    folder = f"{_CPU}/cpu{cpu}"
    tree.files(
        f"{folder}/topology",
        {
            "physical_package_id": node,
            "die_id": 0,
            "core_id": core,
            "thread_siblings_list": siblings,
            "core_cpus_list": siblings,
            "package_cpus_list": package,
        },
    )
    for index, (level, kind, size) in enumerate(
        ((1, "Data", "48K"), (1, "Instruction", "32K"), (2, "Unified", "2048K"), (3, "Unified", "61440K"))
    ):
        tree.files(
            f"{folder}/cache/index{index}",
            {
                "level": level,
                "type": kind,
                "size": size,
                "id": node if level == 3 else core,
                "shared_cpu_list": package if level == 3 else siblings,
            },
        )
    for number, (name, latency) in enumerate((("POLL", 0), ("C1", 1), ("C1E", 2))):
        tree.files(
            f"{folder}/cpuidle/state{number}", {"name": name, "latency": latency, "disable": 0, "desc": name}
        )
    tree.files(
        f"{_CPU}/cpufreq/policy{cpu}",
        {
            "affected_cpus": cpu,
            "related_cpus": cpu,
            "scaling_driver": "intel_pstate",
            "scaling_governor": "performance",
            "scaling_available_governors": "performance powersave",
            "scaling_min_freq": 800000,
            "scaling_max_freq": 3800000,
            "cpuinfo_min_freq": 800000,
            "cpuinfo_max_freq": 3800000,
        },
    )
    tree.link(f"{folder}/cpufreq", f"../cpufreq/policy{cpu}")
    tree.file(f"{folder}/online", 1)


def _nodes(tree: _Tree, cpus: int, places: list[list[int]]) -> None:
    online = format_list(range_set(len(places)))
    for name in ("online", "possible", "has_cpu", "has_memory", "has_normal_memory"):
        tree.file(f"sys/devices/system/node/{name}", online)
    for node, here in enumerate(places):
        distances = " ".join("10" if other == node else "21" for other in range(len(places)))
        total = len(here) * 4194304
        tree.files(
            f"sys/devices/system/node/node{node}",
            {
                "cpulist": format_list(here),
                "cpumap": format_mask(here),
                "distance": distances,
                "meminfo": f"Node {node} MemTotal:       {total} kB\n"
                f"Node {node} MemFree:        {total // 2} kB",
                "numastat": "numa_hit 1000000\nnuma_miss 0\nnuma_foreign 0\ninterleave_hit 0\n"
                "local_node 1000000\nother_node 0",
            },
        )


def _pci(tree: _Tree, count: int, places: list[list[int]], nics: int, drives: int) -> list[tuple[str, int]]:
    """Write the PCI tree; addresses of the endpoints and their nodes."""
    endpoints = []
    for number in range(count // 2):
        domain, slot = divmod(number, _PORTS_A_DOMAIN)
        node = number % len(places)
        root = f"sys/devices/pci{domain:04x}:00"
        port = f"{domain:04x}:00:{slot // 8:02x}.{slot % 8}"
        endpoint = f"{domain:04x}:{slot + 1:02x}:00.0"
        cpulist = format_list(places[node])
        _function(tree, f"{root}/{port}", port, 0x060400, 0x352A, node, cpulist, "pcieport")
        folder = f"{root}/{port}/{endpoint}"
        drive = nics <= number < nics + drives
        kind, driver = (0x010802, "nvme") if drive else (0x020000, "mlx5_core")
        _function(tree, folder, endpoint, kind, 0x1021, node, cpulist, driver)
        if drive:
            _drive(tree, folder, number - nics, node)
        elif number < nics:
            _interface(tree, folder, number)
        endpoints.append((endpoint, node))
    return endpoints


def _function(
    tree: _Tree, folder: str, address: str, kind: int, device: int, node: int, cpulist: str, driver: str
) -> None:
    tree.files(
        folder,
        {
            "class": f"0x{kind:06x}",
            "vendor": "0x8086" if driver == "pcieport" else "0x15b3",
            "device": f"0x{device:04x}",
            "subsystem_vendor": "0x0000",
            "subsystem_device": "0x0000",
            "numa_node": node,
            "local_cpulist": cpulist,
            "irq": 0,
            "enable": 1,
            "current_link_speed": "32.0 GT/s PCIe",
            "current_link_width": 16,
            "max_link_speed": "32.0 GT/s PCIe",
            "max_link_width": 16,
            "power/control": "on",
            "power/runtime_status": "active",
        },
    )
    depth = folder.count("/")
    tree.link(f"{folder}/driver", "../" * depth + f"sys/bus/pci/drivers/{driver}".removeprefix("sys/"))
    tree.link(f"sys/bus/pci/devices/{address}", "../../../" + folder.removeprefix("sys/"))
    marker = f"sys/bus/pci/drivers/{driver}/new_id"
    tree.file(marker, "")


def _interface(tree: _Tree, folder: str, number: int) -> None:
    own = f"{folder}/net/eth{number}"
    tree.files(
        own,
        {
            "operstate": "up",
            "carrier": 1,
            "carrier_changes": 2,
            "speed": 100000,
            "duplex": "full",
            "mtu": 1500,
            "flags": "0x1003",
            "type": 1,
            **{f"queues/rx-{queue}/rps_cpus": "0" for queue in range(4)},
            "statistics/rx_packets": 1000000,
            "statistics/tx_packets": 1000000,
            **{
                f"statistics/{way}_{what}": 0
                for way in ("rx", "tx")
                for what in ("errors", "dropped", "fifo_errors", "missed_errors")
            },
        },
    )
    tree.link(f"{own}/device", "../..")
    tree.link(f"sys/class/net/eth{number}", "../../" + own.removeprefix("sys/"))


def _drive(tree: _Tree, folder: str, number: int, node: int) -> None:
    name = f"nvme{number}"
    own, disk = f"{folder}/nvme/{name}", f"{folder}/nvme/{name}/{name}n1"
    tree.files(
        own,
        {
            "transport": "pcie",
            "state": "live",
            "model": "A drive that nobody makes",
            "serial": f"S{number}",
            "firmware_rev": "1",
            "numa_node": node,
            "queue_count": 5,
            "power/pm_qos_latency_tolerance_us": 0,
        },
    )
    tree.files(
        disk,
        {
            "size": 2048,
            "queue/rotational": 0,
            "queue/scheduler": "[none] mq-deadline",
            "queue/write_cache": "write back",
        },
    )
    tree.link(f"sys/class/nvme/{name}", "../../" + own.removeprefix("sys/"))
    tree.link(f"sys/block/{name}n1", "../" + disk.removeprefix("sys/"))


def _irqs(
    tree: _Tree,
    cpus: int,
    count: int,
    endpoints: list[tuple[str, int]],
    places: list[list[int]],
    hot: set[int],
) -> None:
    quiet = [[c for c in node if c not in hot] for node in places]
    others = [c for node in quiet for c in node]
    tree.file("proc/irq/default_smp_affinity", format_mask(others))
    lines = [" " * 12 + " ".join(f"{f'CPU{cpu}':<10}" for cpu in range(cpus))]
    zeros = ["         0"] * cpus
    for vector in range(count):
        number = 24 + vector
        address, node = endpoints[vector % len(endpoints)]
        queue = vector // len(endpoints)
        cpu = quiet[node][(vector // len(places)) % len(quiet[node])]
        counts = zeros.copy()
        counts[cpu] = f"{1000 + vector:10d}"
        lines.append(
            f"{number:4d}: {' '.join(counts)}  IR-PCI-MSIX-{address} {queue:4d}-edge      "
            f"eth{vector % len(endpoints)}-{queue}"
        )
        tree.files(
            f"proc/irq/{number}",
            {"smp_affinity_list": format_list(quiet[node]), "effective_affinity_list": cpu, "node": node},
        )
    ticks = " ".join(f"{1000000 if cpu in hot else 90000000:10d}" for cpu in range(cpus))
    lines.append(f" LOC: {ticks}   Local timer interrupts")
    lines.append(f" RES: {' '.join(zeros)}   Rescheduling interrupts")
    tree.file("proc/interrupts", "\n".join(lines))
