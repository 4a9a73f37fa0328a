"""NUMA nodes of machines captured elsewhere, against what hwloc and lscpu made of the same trees.

The expectations are parsed here from the outputs that lie beside the trees.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from hwtune.host.snapshot import open_snapshot
from hwtune.probes import numa as probe
from hwtune.text.cpulist import parse_mask

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.model.numa import Numa

HWLOC = "hwloc/tests/hwloc/linux"
LSCPU = "util-linux/tests"


class Expected(NamedTuple):
    """``cpus`` of each node; ``memory`` as (value, bytes of one unit) or None where there is none."""

    cpus: dict[int, set[int]]
    memory: dict[int, tuple[int, int] | None]
    distances: dict[int, dict[int, int]]


_LINE = re.compile(r"( *)(\w+)(?:\([\w]+\))? L#(\d+) \((?:P#(\d+))?(.*)")
_LOCAL = re.compile(r"local=(\d+)(KiB|MiB|GiB|TiB)")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def _console(text: str) -> Expected:
    """lstopo's text: a node lies beside the objects that are local to it, below the same parent."""
    cpus: dict[int, set[int]] = {}
    memory: dict[int, tuple[int, int] | None] = {}
    logical: dict[int, int] = {}  # L# -> P#
    # (indent, CPUs below, nodes below) of the objects that the line lies in
    open_: list[tuple[int, set[int], list[int]]] = [(-1, set(), [])]

    def close(indent: int) -> None:
        while open_[-1][0] >= indent:
            _, below, nodes = open_.pop()
            for node in nodes:
                cpus[node] = set(below)
            open_[-1][1].update(below)

    body, _, rest = text.partition("\ndepth 0:")
    for line in body.splitlines():
        if line.startswith("Machine"):
            open_.append((0, set(), []))
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        indent = len(match[1])
        close(indent)
        if match[2] == "NUMANode":
            node = int(match[4] or 0)
            logical[int(match[3])] = node
            open_[-1][2].append(node)
            local = _LOCAL.search(match[5])
            memory[node] = (int(local[1]), _UNITS[local[2]]) if local else None
        elif match[2] == "MemCache":
            continue  # between a node and its place
        elif match[2] == "PU":
            open_[-1][1].add(int(match[4]))
        else:
            open_.append((indent, set(), []))
    close(0)
    return Expected(cpus, memory, _matrix(rest, logical))


def _matrix(text: str, logical: dict[int, int]) -> dict[int, dict[int, int]]:
    _, found, table = text.partition("Relative latency matrix (name NUMALatency")
    if not found:
        return {}
    lines = [line.split() for line in table.splitlines()[1:]]
    columns = [logical[int(word)] for word in lines[0][1:]]
    rows = {}
    for words in lines[1 : 1 + len(columns)]:
        rows[logical[int(words[0])]] = dict(zip(columns, map(int, words[1:]), strict=True))
    return rows


def _xml(text: str) -> Expected:
    root = ElementTree.fromstring(text)
    nodes = [o for o in root.iter("object") if o.get("type") == "NUMANode"]
    cpus = {int(o.attrib["os_index"]): set(parse_mask(o.attrib["cpuset"].replace("0x", ""))) for o in nodes}
    memory: dict[int, tuple[int, int] | None] = {
        int(o.attrib["os_index"]): (int(o.attrib["local_memory"]), 1) if "local_memory" in o.attrib else None
        for o in nodes
    }
    distances: dict[int, dict[int, int]] = {}
    for matrix in root.iter("distances2"):
        if matrix.get("name") == "NUMALatency" and matrix.get("indexing") == "os":
            columns = [int(w) for part in matrix.iter("indexes") for w in (part.text or "").split()]
            values = [int(w) for part in matrix.iter("u64values") for w in (part.text or "").split()]
            for i, row in enumerate(columns):
                distances[row] = dict(zip(columns, values[i * len(columns) :], strict=False))
    return Expected(cpus, memory, distances)


# What hwloc leaves out on purpose: GPU memory, CPUs and nodes that a cgroup forbids, and objects
# that it merges or drops because they contradict others; and trees whose files say less than it found.
_TARGETS = (
    "128arm-2pa2n8cluster4co.console",
    "128ia64-17n4s2c.console",
    "16amd64-8n2c.console",
    "16amd64-8n2c-cpusets-disallowed.console",
    "16em64t-4s2c2t.console",
    "16ia64-8n2s.console",
    "256ia64-64n2s2c.console",
    "2pa-pcidomain32bits.console",
    "32em64t-2n8c+dax+nvme+mic+dimms.xml",
    "40intel64-4n10c+pci-conflicts.console",
    "64fake-4n2s2ca2c2t.console",
    "8em64t-2s2ca2c.console",
    "8em64t-2s4c-asymcaches.console",
    "8ia64-2n2s2c.console",
    "8ia64-2s2c2t.console",
    "96em64t-4no4pa3ca2co.console",
    "fakecpuid1f-64intel64-2p4d2n2c2t.console",
    "fakepcilocalities.xml",
    "memorysidecaches.console",
    "nvidiagpunumanodes-kept.console",
)


def _open(realdata: Path, archive: str) -> Numa:
    return probe.read(open_snapshot(str(realdata / archive)))


@pytest.mark.parametrize("target", _TARGETS)
def test_nodes_are_those_that_hwloc_found(realdata: Path, target: str) -> None:
    folder = realdata / HWLOC
    text = (folder / target).read_text()
    expected = _xml(text) if target.endswith(".xml") else _console(text)
    name = target.rpartition(".")[0].removesuffix("-kept").removesuffix("-disallowed")
    numa = _open(realdata, f"{HWLOC}/{name}.tar.bz2")
    # To memory without CPUs hwloc gives those that are near.
    lone = {node.id for node in numa.nodes if not node.cpus.get() and expected.cpus[node.id]}
    assert lone == {int(id) for id in re.findall(r"NUMANode\(GPUMemory\) L#\d+ \(P#(\d+)", text)}
    assert {node.id for node in numa.nodes} == expected.cpus.keys() != set()
    for node in numa.nodes:
        assert node.id in lone or set(node.cpus.get()) == expected.cpus[node.id]
    for node in numa.nodes:
        if (memory := expected.memory[node.id]) is not None:
            value, unit = memory
            # lstopo rounds to its unit
            assert abs(node.memory_bytes.get() - value * unit) <= (unit // 2 if unit > 1 else 0)
    for id, row in expected.distances.items():
        (node,) = (n for n in numa.nodes if n.id == id)
        assert node.distances.get() == row


def test_the_memory_of_gpus_is_known_for_what_it_is(realdata: Path) -> None:
    text = (realdata / HWLOC / "nvidiagpunumanodes-kept.console").read_text()
    gpus = {int(number) for number in re.findall(r"NUMANode\(GPUMemory\) L#\d+ \(P#(\d+)", text)}
    numa = _open(realdata, f"{HWLOC}/nvidiagpunumanodes.tar.bz2")
    assert {node.id for node in numa.nodes if node.memory_kind.value == "gpu"} == gpus
    assert len(gpus) == 6


def test_persistent_and_set_apart_memory_is_known_for_what_it_is(realdata: Path) -> None:
    text = (realdata / HWLOC / "fakeheteromemtiers.console").read_text()
    numa = _open(realdata, f"{HWLOC}/fakeheteromemtiers.tar.bz2")
    told = {int(id): kind for id, kind in re.findall(r"\(P#(\d+) .*?DAXType=(\w+)", text)}
    ours = {"NVM": "pmem", "SPM": "special-purpose"}
    for node in numa.nodes:
        if not node.cpus.get():
            assert node.memory_kind.get() == ours[told[node.id]]


_NODE_LINE = re.compile(r"NUMA node(\d+) CPU\(s\):[^\S\n]*(\S*)")
_NAMES = (
    "loongarch-kvm_on_loongson_3c6000",
    "loongarch-loongson_3a5000_hv",
    "ppc64-POWER7",
    "ppc64-POWER7-64cpu",
    "rv64-milkvpioneer",
    "rv64-visionfive2",
    "s390-lpar-drawer",
    "s390-nested-virt",
    "vbox-win",
    "x86_64-64cpu",
    "x86_64-64cpu-linux6.2",
)


def _list(text: str) -> set[int]:
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        ends, _, step = part.partition(":")
        first, _, last = ends.partition("-")
        found.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


@pytest.mark.parametrize("name", _NAMES)
def test_nodes_are_those_that_lscpu_prints(realdata: Path, name: str) -> None:
    text = (realdata / LSCPU / "expected/lscpu" / f"lscpu-{name}").read_text()
    expected = {int(id): _list(cpus) for id, cpus in _NODE_LINE.findall(text)}
    numa = _open(realdata, f"{LSCPU}/ts/lscpu/dumps/{name}.tar.gz")
    assert expected
    assert {node.id: set(node.cpus.get()) for node in numa.nodes} == expected


def test_64_nodes_are_read_in_a_moment(realdata: Path) -> None:
    numa: Any = _open(realdata, f"{HWLOC}/256ia64-64n2s2c.tar.bz2")
    assert len(numa.nodes) == 64
    assert sorted(cpu for node in numa.nodes for cpu in node.cpus.get()) == list(range(256))
