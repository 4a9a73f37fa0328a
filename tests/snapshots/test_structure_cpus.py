"""The structure of CPUs on captured machines, against what peers said of the same trees and against
each file of the trees themselves."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from hwtune.host.snapshot import open_snapshot
from hwtune.model.cpus import Cpu, Cpus
from hwtune.probes import cpus as probe
from tests.snapshots.machines import folders
from tests.support import hwloc

BASE = "/sys/devices/system/cpu"


@lru_cache(maxsize=4)
def _read(path: str) -> tuple[Any, Cpus]:
    host = open_snapshot(path)
    return host, probe.read(host)


def _by_id(cpus: Cpus) -> dict[int, Cpu]:
    return {cpu.id: cpu for cpu in cpus.cpus}


# -- hwloc -----------------------------------------------------------------------------------

# Where hwloc's answer is another one by design:
_NO_CPUS = "allowed/test1.test"  # a synthetic machine; its archive holds only cgroup files
_CONFLICTS = "40intel64-4n10c+pci-conflicts.test"  # hwloc drops a package whose sets contradict others
_BY_CPUID = "64amd64-4p2n4ca2co.test"  # hwloc takes cores from CPUID; to the kernel the two halves of
# a compute unit of AMD's family 15h are siblings


def _hwloc_tests() -> list[str]:
    folder = folders()[0] / "hwloc/tests/hwloc" if folders() else None
    if folder is None:
        return []
    names = sorted(str(p.relative_to(folder)) for p in folder.glob("*linux/**/*.test"))
    return [name for name in names if not name.endswith(_NO_CPUS)]


def _test_file(path: Path) -> dict[str, str]:
    lines = (line.partition(":") for line in path.read_text(encoding="utf-8").splitlines() if line[:1] != "#")
    return {key.strip(): value.strip() for key, colon, value in lines if colon}


@pytest.mark.parametrize("name", _hwloc_tests())
def test_hwloc(realdata: Path, name: str) -> None:
    folder = (realdata / "hwloc/tests/hwloc" / name).parent
    said = _test_file(folder / Path(name).name)
    host, cpus = _read(str(folder / said["source"]))
    theirs = hwloc.read(folder / said["target"])
    ours = _by_id(cpus)
    online = set(cpus.online.get())

    assert theirs.pus <= online
    # what hwloc leaves out of what is online, a cgroup or cpuset of the captured process forbids
    assert online - theirs.pus <= theirs.missing
    assert theirs.restricted or online == theirs.pus

    for number, pus in [] if name.endswith(_BY_CPUID) else theirs.cores:
        for pu in pus:
            assert set(ours[pu].siblings or []) & theirs.pus == pus
        assert number is None or ours[min(pus)].core == number
    _compare_packages(cpus, theirs, whole=not theirs.missing and not name.endswith(_CONFLICTS))
    _compare_nodes(host, ours, theirs)


def _compare_packages(cpus: Cpus, theirs: hwloc.Topology, whole: bool) -> None:
    ours = _by_id(cpus)
    for number, pus in theirs.packages:
        for pu in pus:
            assert ours[pu].package == number
        # two packages of one number: ia64 numbers them within their node
        if number is not None and sum(n == number for n, _ in theirs.packages) == 1:
            assert pus == {pu for pu in theirs.pus if ours[pu].package == number}
    if theirs.packages and whole:
        assert cpus.package_count.get() == len(theirs.packages)


def _compare_nodes(host: Any, ours: dict[int, Cpu], theirs: hwloc.Topology) -> None:
    if not host.names("/sys/devices/system/node").known:
        return  # hwloc makes up one node for a kernel without NUMA
    homes: dict[int, list[int]] = {}
    for number, pus in theirs.nodes:
        # hwloc gives memory without CPUs (GPU, HBM, NVDIMM) to the CPUs next to it; the kernel,
        # and so we, only knows the node that a CPU is in
        if _node_has_cpus(host, number):
            for pu in pus:
                homes.setdefault(pu, []).append(number)
    for pu, numbers in homes.items():
        assert ours[pu].node in numbers  # more than one only in a synthetic tree whose nodes overlap


def _node_has_cpus(host: Any, number: int) -> bool:
    folder = f"/sys/devices/system/node/node{number}"
    mask = host.text(f"{folder}/cpumap").value
    return bool(mask.strip("0,") if mask is not None else host.text(f"{folder}/cpulist").value)


# -- lscpu -----------------------------------------------------------------------------------

_CACHES = {
    "L1d": (1, "Data"), "L1i": (1, "Instruction"), "L2": (2, "Unified"), "L2d": (2, "Data"),
    "L2i": (2, "Instruction"), "L3": (3, "Unified"),
}  # fmt: skip


def _dumps() -> list[str]:
    folder = folders()[0] / "util-linux/tests/expected/lscpu" if folders() else None
    return sorted(p.name.removeprefix("lscpu-") for p in folder.iterdir()) if folder is not None else []


def _fields(text: str) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, value in pairs}


def _tables(text: str) -> list[tuple[list[str], dict[int, list[str]]]]:
    """The two tables: (columns, CPU -> cells), first with numbers that lscpu gives, then the kernel's."""
    found: list[tuple[list[str], dict[int, list[str]]]] = []
    for line in text.splitlines():
        if line.startswith("# CPU,"):
            found.append((line[2:].split(","), {}))
        elif found and re.match(r"\d+,", line):
            cells = line.split(",")
            found[-1][1][int(cells[0])] = cells
    return found


def _expand(text: str) -> set[int]:
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        cpus.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return cpus


def _groups(rows: dict[int, list[str]], column: int) -> set[frozenset[int]]:
    groups: dict[str, set[int]] = {}
    for cpu, cells in rows.items():
        groups.setdefault(cells[column], set()).add(cpu)
    return {frozenset(members) for members in groups.values()}


@pytest.mark.parametrize("name", _dumps())
def test_lscpu(realdata: Path, name: str) -> None:
    text = (realdata / f"util-linux/tests/expected/lscpu/lscpu-{name}").read_text(encoding="utf-8")
    _, cpus = _read(str(realdata / f"util-linux/tests/ts/lscpu/dumps/{name}.tar.gz"))
    fields, (logical, physical) = _fields(text), _tables(text)
    ours = _by_id(cpus)
    rows = logical[1]

    assert set(cpus.online.get()) == _expand(fields["On-line CPU(s) list"]) == set(rows)
    assert {frozenset(ours[c].siblings or ()) for c in rows} == _groups(rows, 1)
    assert cpus.package_count.get() == len(_groups(rows, 2))
    assert cpus.core_count.get() == len(_groups(rows, 1))
    assert cpus.threads_per_core.get() == int(fields["Thread(s) per core"])
    for cpu, cells in rows.items():
        assert cells[3] == "" or ours[cpu].node == int(cells[3])
    for cpu, cells in physical[1].items():
        assert cells[1] == ("-" if ours[cpu].core is None else str(ours[cpu].core))
        assert cells[2] == ("-" if ours[cpu].package is None else str(ours[cpu].package))
    for number, column in enumerate(logical[0]):
        mine = {frozenset(c.cpus) for c in cpus.caches if (c.level, c.type) == _CACHES.get(column)}
        if mine:
            assert mine == _groups(rows, number)
    if fields["Model name"] != "-":
        assert cpus.model_name.get() == " ".join(fields["Model name"].split())
    if fields.get("Flags") and not name.startswith("sparc"):
        assert cpus.flags.get() == fields["Flags"].split()
    if fields.get("Microcode version"):
        assert cpus.microcode.get() == fields["Microcode version"]


# -- each file of each tree ------------------------------------------------------------------


def _machines() -> list[str]:
    from tests.snapshots.machines import machines

    return machines()


def _cpu_set(host: Any, folder: str, lists: tuple[str, ...], masks: tuple[str, ...]) -> set[int] | None:
    for name in lists:
        text = host.text(f"{folder}/{name}").value
        if text is not None:
            return _expand(text)
    for name in masks:
        text = host.text(f"{folder}/{name}").value
        if text is not None:
            value = int(text.replace(",", ""), 16)
            return {bit for bit in range(value.bit_length()) if value >> bit & 1}
    return None


@pytest.mark.parametrize("name", _machines())
def test_every_file(realdata: Path, name: str) -> None:
    """The probe reads a set once and gives it to all its members; here each CPU's own files speak."""
    host, cpus = _read(str(realdata / name))
    ours = _by_id(cpus)
    online = set(cpus.online.value or [])
    text = host.text(f"{BASE}/online").value
    if text is not None:
        assert online == _expand(text)
    for number in sorted(online & set(ours)):
        cpu, folder = ours[number], f"{BASE}/cpu{number}"
        siblings = _cpu_set(
            host, f"{folder}/topology", ("thread_siblings_list",), ("thread_siblings", "core_cpus")
        )
        if siblings is not None:
            assert set(cpu.siblings or []) == siblings & set(ours)
        for file, value in (
            ("physical_package_id", cpu.package), ("core_id", cpu.core),
            ("die_id", cpu.die), ("cluster_id", cpu.cluster),
        ):  # fmt: skip
            told = host.text(f"{folder}/topology/{file}").value
            if told is not None and host.names(f"{folder}/topology").known:
                assert value == (None if told in ("-1", "65535") else int(told)), file
        for index in range(8):
            shared = _cpu_set(host, f"{folder}/cache/index{index}", ("shared_cpu_list",), ("shared_cpu_map",))
            level = host.text(f"{folder}/cache/index{index}/level").value
            kind = host.text(f"{folder}/cache/index{index}/type").value
            # old ia64 prints empty masks, one synthetic tree one without the CPU itself: what shares
            # that cache is not known
            if shared is not None and number in shared and level is not None:
                mine = [
                    set(c.cpus)
                    for c in cpus.caches
                    if number in c.cpus and str(c.level) == level and c.type == kind
                ]
                assert shared & online in mine
