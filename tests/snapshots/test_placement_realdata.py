"""Placement on captured machines, against what a person reads in their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwtune.host.snapshot import open_snapshot
from hwtune.model import Machine
from hwtune.probes import gpu, network
from hwtune.probes.cpus import read_topology
from hwtune.validate.placement import choose
from hwtune.validate.run import ROLES
from tests.snapshots.machines import folders, machines

_POLICY = "nri-plugins/cmd/plugins/topology-aware/policy/testdata/sysfs.tar.bz2/sysfs"


def _machine(path: Path) -> Machine:
    host = open_snapshot(str(path))
    return Machine(cpus=read_topology(host), gpu=gpu.read_bus(host), network=network.read_interfaces(host))


def _chosen(machine: Machine) -> tuple[int, ...]:
    placed = choose(machine, machine.cpus.online.get())
    return tuple(placed.cpus[role] for role in ROLES)


def test_isolated_cpus_of_a_server(realdata: Path) -> None:
    # isolated 4-7,60-63, whose cores are (4,60) (5,61) (6,62) (7,63)
    machine = _machine(realdata / f"{_POLICY}/server")
    assert machine.cpus.isolated.get() == [4, 5, 6, 7, 60, 61, 62, 63]
    assert set(_chosen(machine)) == {4, 5, 6}


def test_a_hybrid_desktop_gets_performance_cores(realdata: Path) -> None:
    # cpu_core 0-7 in four cores of two threads, cpu_atom 8-15
    machine = _machine(realdata / "nri-plugins/pkg/sysfs/test-data-sample1.tar.xz")
    by_id = {cpu.id: cpu for cpu in machine.cpus.cpus}
    chosen = _chosen(machine)
    assert {by_id[c].core_type for c in chosen} == {"performance"}
    assert 0 not in chosen


@pytest.mark.parametrize("name", [n for n in machines() if folders()])
def test_every_machine_whose_cpus_are_known(realdata: Path, name: str) -> None:
    machine = _machine(realdata / name)
    if not machine.cpus.online.known:
        pytest.skip("it does not tell which CPUs are online")
    placed = choose(machine, machine.cpus.online.get())
    chosen = {cpu for _, cpu in placed.threads}
    assert chosen <= set(machine.cpus.online.get())
    assert set(placed.rest) <= set(machine.cpus.online.get())
    if machine.cpus.smt.known and len(machine.cpus.smt.get()) > 2:
        for group in machine.cpus.smt.get():
            assert len(chosen & set(group)) <= 1
