"""Which CPUs there are, what is online, and how they are grouped.

Layout: Documentation/ABI/stable/sysfs-devices-system-cpu, admin-guide/cputopology.rst (Linux 6.12).
The kernel's sets are symmetrical (what CPU 0 says of its core holds for its siblings), so each set
is read once, of its first CPU: two reads a CPU and not five.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.fact import INVALID, NOT_CAPTURED, Fact, gap, known
from hwtune.model.cpus import Cpu, Cpus
from hwtune.text.cpulist import MAX_CPUS, format_list, parse_list, parse_mask

if TYPE_CHECKING:
    from hwtune.host.base import Host
    from hwtune.text.proc_cpuinfo import CpuInfo

BASE = "/sys/devices/system/cpu"
NODES = "/sys/devices/system/node"

# Names of one set: lists before masks, and before the names that came with 5.3 those that all
# kernels have ("thread_siblings" is "core_cpus", "core_siblings" is "package_cpus").
_CORE = ("thread_siblings_list", "core_cpus_list", "thread_siblings", "core_cpus")
_PACKAGE = ("core_siblings_list", "package_cpus_list", "core_siblings", "package_cpus")
_DIE = ("die_cpus_list", "die_cpus")
_CLUSTER = ("cluster_cpus_list", "cluster_cpus")

_TOPOLOGY = f"{BASE}/cpu*/topology"
_EACH = f"{BASE}/cpu*/online"
_NO_CLUSTER = 0xFFFF  # BAD_APICID, which x86 prints where it knows of no clusters


def read(host: Host, cpus: Cpus, cpuinfo: Fact[CpuInfo]) -> list[Cpu]:
    """Fill lists, ``cpus.cpus``, SMT groups and counts. Returns the CPUs that are online and have
    files of their own."""
    folders = host.names(BASE).map(_numbers)
    _read_lists(host, cpus)
    if not cpus.online.known:
        cpus.online = _derive_online(host, cpus.online, folders, cpuinfo)
        if cpus.online.source == _EACH and not cpus.offline.known:
            up = frozenset(cpus.online.get())
            off = [n for n in folders.value or [] if n not in up]
            if off:  # that none says so of itself proves nothing where the list is missing
                cpus.offline = known(off, _EACH)
    mine = set(folders.value or [])
    listed = cpus.online if cpus.online.known else cpus.present
    cpus.cpus = [Cpu(id=number) for number in sorted(mine | set(listed.value or []))]
    by_id = {cpu.id: cpu for cpu in cpus.cpus}
    online = by_id if not cpus.online.known else {n: by_id[n] for n in cpus.online.get()}
    readable = [cpu for cpu in online.values() if cpu.id in mine]
    _Groups(host, by_id).read(cpus, readable, len(readable) == len(online))
    if cpuinfo.known:
        _from_cpuinfo(cpus, online, cpuinfo.get(), cpuinfo.source)
    cpus.threads_per_core = cpus.smt.map(lambda groups: max(map(len, groups), default=1))
    _read_nodes(host, by_id)
    return readable


def _numbers(names: list[str]) -> list[int]:
    """Of "cpu0", "cpu1" ... among other names."""
    numbers = (name[3:] for name in names if name.startswith("cpu"))
    return sorted(int(n) for n in numbers if n.isdecimal() and int(n) < MAX_CPUS)


def _read_lists(host: Host, cpus: Cpus) -> None:
    cpus.possible = host.parse(f"{BASE}/possible", _some)
    cpus.present = host.parse(f"{BASE}/present", _some)
    cpus.online = host.parse(f"{BASE}/online", _some)
    cpus.offline = _told_offline(host, cpus)
    cpus.isolated = host.parse(f"{BASE}/isolated", parse_list)
    cpus.nohz_full = host.parse(f"{BASE}/nohz_full", parse_list)
    cpus.smt_control = host.text(f"{BASE}/smt/control")


def _some(text: str) -> list[int]:
    """A list that cannot be empty: there is a CPU that prints it."""
    cpus = parse_list(text)
    if not cpus:
        raise ValueError("no CPU in it")
    return cpus


def _told_offline(host: Host, cpus: Cpus) -> Fact[list[int]]:
    """The kernel's list of offline CPUs. A blank one, in a capture that left out every list which
    says what CPUs there are, may as well be a file that was not copied whole: not known."""
    told = host.parse(f"{BASE}/offline", parse_list)
    lists = (cpus.possible, cpus.present, cpus.online)
    if told.known and not told.get() and not any(fact.known for fact in lists):
        return gap(NOT_CAPTURED, told.source, "blank, and no list of the CPUs beside it")
    return told


# -- what is online where the kernel's own list is missing -----------------------------------


def _derive_online(
    host: Host, missing: Fact[list[int]], folders: Fact[list[int]], cpuinfo: Fact[CpuInfo]
) -> Fact[list[int]]:
    """From each CPU's own files, if they say it of every CPU, else from /proc/cpuinfo, which holds
    the online CPUs only; else the reason why the list itself is missing."""
    states = [(cpu, _is_online(host, cpu)) for cpu in folders.value or []]
    if states and all(state is not None for _, state in states):
        return known([cpu for cpu, state in states if state], _EACH)
    if cpuinfo.known and cpuinfo.get().cpus:
        return known(cpuinfo.get().cpus, cpuinfo.source)
    return missing


def _is_online(host: Host, cpu: int) -> bool | None:
    flag = host.text(f"{BASE}/cpu{cpu}/online").value
    if flag in ("0", "1"):
        return flag == "1"
    # CPUs that cannot be taken offline have no such file (the boot CPU of x86). Only an online CPU
    # has a topology: the kernel removes it when the CPU goes (drivers/base/topology.c).
    return True if host.names(f"{BASE}/cpu{cpu}/topology").value else None


# -- groups ----------------------------------------------------------------------------------


class _Groups:
    """One pass over cpuN/topology."""

    def __init__(self, host: Host, by_id: dict[int, Cpu]) -> None:
        self._host = host
        self._by_id = by_id
        self._names: dict[tuple[str, ...], str] = {}  # the one of a set's names that this tree has

    def read(self, cpus: Cpus, asked: list[Cpu], whole: bool) -> None:
        """``whole``: whether ``asked`` are all online CPUs, so that what is found can be counted."""
        absent = gap(NOT_CAPTURED, f"{_TOPOLOGY}/{_CORE[0]}")
        cores, missing = self._gather(asked, _CORE)
        packages, unpackaged = self._gather(asked, _PACKAGE)
        for group in cores:
            for member in group:
                self._by_id[member].siblings = group
        self._give(packages, "physical_package_id", "package")
        self._give(self._gather(asked, _DIE)[0], "die_id", "die")
        self._give(self._gather(asked, _CLUSTER)[0], "cluster_id", "cluster")
        for cpu in asked:
            # each its own: the two halves of a compute unit (AMD family 15h) are siblings with two ids
            cpu.core = self._identifier(cpu.id, "core_id")
            if cpu.package is None:
                cpu.package = self._identifier(cpu.id, "physical_package_id")
        if not asked or not whole:
            missing, unpackaged = missing or absent, unpackaged or absent
        source = f"{_TOPOLOGY}/{self._names.get(_CORE, _CORE[0])}"
        cpus.smt = missing or known([g for g in cores if len(g) > 1], source)
        cpus.core_count = missing or known(len(cores), source)
        source = f"{_TOPOLOGY}/{self._names.get(_PACKAGE, _PACKAGE[0])}"
        cpus.package_count = unpackaged or known(len(packages), source)

    def _gather(self, asked: list[Cpu], names: tuple[str, ...]) -> tuple[list[list[int]], Fact[Any] | None]:
        """All sets of one kind, and the first one that could not be read, if any."""
        groups: list[list[int]] = []
        seen: set[int] = set()
        missing: Fact[Any] | None = None
        for cpu in asked:
            if cpu.id in seen:
                continue
            found = self._set(cpu.id, names)
            if found.known:
                # a CPU belongs to one set; where sets contradict each other the first one counts
                group = [member for member in found.get() if member not in seen]
                groups.append(group)
                seen.update(group)
            else:
                missing = missing or found
        return groups, missing

    def _set(self, cpu: int, names: tuple[str, ...]) -> Fact[list[int]]:
        """The CPUs of a set, without those that the tree has not, from the first form that is there."""
        usual = self._names.get(names)
        order = names if usual is None else (usual, *(n for n in names if n != usual))
        first: Fact[list[int]] | None = None
        for name in order:
            parser = parse_list if name.endswith("_list") else parse_mask
            found = self._host.parse(f"{BASE}/cpu{cpu}/topology/{name}", parser)
            if found.known and cpu in found.get():
                self._names[names] = name
                return known([member for member in found.get() if member in self._by_id], found.source)
            if found.known:
                told = format_list(found.get())[:60]
                found = gap(INVALID, found.source, f"CPU {cpu} is not among its own: {told!r}")
            first = first or found
        assert first is not None
        return first

    def _give(self, groups: list[list[int]], file: str, field: str) -> None:
        for group in groups:
            number = self._identifier(group[0], file)
            if number is not None and not (field == "cluster" and number == _NO_CLUSTER):
                for member in group:
                    setattr(self._by_id[member], field, number)

    def _identifier(self, cpu: int, name: str) -> int | None:
        number = self._host.integer(f"{BASE}/cpu{cpu}/topology/{name}").value
        # -1: the architecture tells none (s390, powerpc, older kernels of arm)
        return number if number is not None and 0 <= number < 1 << 31 else None


def _from_cpuinfo(cpus: Cpus, online: dict[int, Cpu], info: CpuInfo, source: str) -> None:
    """Clocks; and where sysfs says nothing of any CPU, packages and cores as x86 prints them."""
    for number, mhz in info.mhz.items():
        if number in online:
            online[number].mhz = mhz
    if set(info.cpus) != set(online) or any(c.siblings or c.package is not None for c in online.values()):
        return
    for number, package in info.packages.items():
        online[number].package = package
        online[number].core = info.cores.get(number)
    if len(info.packages) == len(online):
        cpus.package_count = known(len(set(info.packages.values())), f"{source} physical id")
    groups = info.siblings
    if groups is None:
        return
    for group in groups:
        for number in group:
            online[number].siblings = group
    cpus.smt = known([g for g in groups if len(g) > 1], f"{source} physical id, core id")
    cpus.core_count = known(len(groups), cpus.smt.source)


def _read_nodes(host: Host, by_id: dict[int, Cpu]) -> None:
    told = False
    for name in host.names(NODES).value or []:
        number = name[4:]
        if not name.startswith("node") or not number.isdecimal():
            continue
        members = host.parse(f"{NODES}/{name}/cpulist", parse_list)
        if not members.known:
            members = host.parse(f"{NODES}/{name}/cpumap", parse_mask)
        for member in members.value or []:
            told = True
            if member in by_id and by_id[member].node is None:
                by_id[member].node = int(number)
    if not told:
        _nodes_from_links(host, by_id)


def _nodes_from_links(host: Host, by_id: dict[int, Cpu]) -> None:
    """cpuN/nodeM, which is there where the node's own folder was not captured."""
    for cpu in by_id.values():
        for name in host.names(f"{BASE}/cpu{cpu.id}").value or []:
            if name.startswith("node") and name[4:].isdecimal():
                cpu.node = int(name[4:])
