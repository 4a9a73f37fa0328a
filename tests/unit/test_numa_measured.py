"""numa.buggy-topology by what `doctor --active` measures: pairs of nodes against the firmware's distances."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from hwtune.cli.doctor import command
from hwtune.diagnosis.engine import judge, probe
from hwtune.diagnosis.table import find, table
from hwtune.fact import ABSENT
from hwtune.host.libraries import LibraryGap, memory_latency
from hwtune.profile import load
from tests.support import host

ID = "numa.buggy-topology"
NODE = "/sys/devices/system/node"


def files():
    found = {f"{NODE}/online": "0-1\n", "/sys/devices/system/cpu/online": "0-7\n"}
    for node, (cpus, row) in enumerate((("0-3", "10 21"), ("4-7", "21 10"))):
        found[f"{NODE}/node{node}/cpulist"] = f"{cpus}\n"
        found[f"{NODE}/node{node}/distance"] = f"{row}\n"
        found[f"{NODE}/node{node}/meminfo"] = f"Node {node} MemTotal: 4096 kB\n"
    return found


def pair(near, home, ns, spread=2.0, at_home=1.0):
    return {
        "cpu_node": near,
        "memory_node": home,
        "mebibytes": 64,
        "load_ns": ns,
        "load_low_ns": ns - spread,
        "load_high_ns": ns + spread,
        "read_gbps": 12.0,
        "at_home": at_home,
    }


def judged(tmp_path, *pairs, left_out=(), active=True):
    said = {"pairs": list(pairs), "left_out": list(left_out)}
    machine = host(tmp_path, files(), complete=True, libraries={("memory_latency",): said})
    machine.active, machine.asked = active, frozenset((ID,))
    model, defects = probe(machine)
    diagnosis = judge(model, [find(table(), ID)], load("low-latency", ()), defects)
    assert not diagnosis.defects
    return diagnosis.results[0]


def test_what_agrees_with_firmware_is_good(tmp_path):
    result = judged(tmp_path, pair(0, 0, 90), pair(1, 1, 92), pair(0, 1, 140), pair(1, 0, 141))
    assert result.outcome == "ok"


def test_a_near_node_that_is_slower_is_a_finding(tmp_path):
    """Node 1's CPUs wait 150 ns for their own memory, and 100 for node 0's: the firmware has them swapped."""
    result = judged(tmp_path, pair(0, 0, 90), pair(1, 1, 150), pair(0, 1, 140), pair(1, 0, 100))
    assert (result.outcome, result.severity) == ("finding", "warning")
    (finding,) = result.findings
    assert finding.subject == "node:1"
    assert "1.5 times as long" in finding.message
    assert [e.value for e in finding.evidence] == [
        "node 1's memory: 150 ns a load, 12 GB/s",
        "node 0's memory: 100 ns a load, 12 GB/s",
        "10 to node 1, 21 to node 0",
    ]


@pytest.mark.parametrize(
    ("near", "far"),
    [
        (pair(0, 0, 109), pair(0, 1, 100)),  # within what noise makes
        (pair(0, 0, 150, spread=40), pair(0, 1, 100, spread=40)),  # the quartiles overlap
    ],
)
def test_noise_is_no_contradiction(tmp_path, near, far):
    assert judged(tmp_path, near, far).outcome == "ok"


def test_pages_that_came_to_lie_elsewhere_prove_nothing(tmp_path):
    result = judged(tmp_path, pair(0, 0, 150, at_home=0.4), pair(0, 1, 100))
    assert result.outcome == "unknown"
    assert "60% of the pages" in result.unknowns[0].reason


def test_what_was_not_measured_is_told(tmp_path):
    result = judged(tmp_path, pair(0, 0, 90), left_out=["node 1 has less than 512 MiB free"])
    assert result.outcome == "unknown"
    assert "node 1 has less than 512 MiB free" in result.unknowns[0].reason


def test_nothing_is_measured_unless_asked(tmp_path):
    result = judged(tmp_path, pair(1, 1, 150), pair(1, 0, 100), active=False)
    assert result.outcome == "ok"


def test_one_row_asks_for_no_other_measurement(tmp_path):
    machine = host(tmp_path, files(), complete=True)
    machine.active, machine.asked = True, frozenset((ID,))
    assert machine.measures(ID) and not machine.measures("nvme.latency-jitter")
    machine.asked = frozenset()
    assert machine.measures("nvme.latency-jitter")


def test_this_machine_is_measured():
    """Whatever its nodes are: every load takes longer than a cache's, and less than a drive's."""
    try:
        found = memory_latency.query()
    except LibraryGap as gap:
        if gap.kind == ABSENT:
            pytest.skip(gap.detail)
        raise
    if not found["pairs"]:
        pytest.skip("; ".join(found["left_out"]))
    for one in found["pairs"]:
        assert 1 < one["load_low_ns"] <= one["load_ns"] <= one["load_high_ns"] < 10_000
        assert 0.01 < one["read_gbps"] < 1000
        assert one["at_home"] is None or 0 <= one["at_home"] <= 1


def test_doctor_says_beforehand_what_it_measures(monkeypatch):
    monkeypatch.setattr(memory_latency, "query", lambda: {"pairs": [], "left_out": []})
    done = CliRunner().invoke(command, ["--active", "--only", ID, "--format", "json"], standalone_mode=False)
    assert done.exception is None
    assert "Reads memory of its own" in done.stderr
    assert "NVMe" not in done.stderr
