"""Machines of any shape for placement: what a thread may be pinned to, and what is beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import known
from hwtune.model import Machine
from hwtune.model.cpus import Cache, Cpu
from hwtune.model.gpu import Gpu
from hwtune.model.network import Nic

if TYPE_CHECKING:
    from collections.abc import Sequence

T = "test"


def box(
    cores: Sequence[Sequence[int]],
    *,
    caches: Sequence[Sequence[int]] | None = None,
    nodes: Sequence[Sequence[int]] | None = None,
    isolated: Sequence[int] = (),
    offline: Sequence[int] = (),
    efficient: Sequence[int] = (),
    gpu_node: int | None = None,
    nics: dict[str, int] | None = None,
) -> Machine:
    """``cores``: the CPUs of each. ``caches``: the sets that share a last level; one for all by default."""
    everything = sorted(cpu for core in cores for cpu in core)
    online = [cpu for cpu in everything if cpu not in offline]
    places = {cpu: node for node, members in enumerate(nodes or [everything]) for cpu in members}
    machine = Machine()
    cpus = machine.cpus
    cpus.present, cpus.online = known(everything, T), known(online, T)
    cpus.isolated, cpus.nohz_full = known(list(isolated), T), known([], T)
    cpus.smt = known([list(core) for core in cores if len(core) > 1], T)
    cpus.cpus = [
        Cpu(
            cpu,
            siblings=list(core),
            node=places[cpu],
            core_type=None if not efficient else "efficient" if cpu in efficient else "performance",
        )
        for core in cores
        for cpu in core
    ]
    cpus.cpus.sort(key=lambda cpu: cpu.id)
    cpus.caches = [Cache(1, "Data", 32768, list(core)) for core in cores]
    cpus.caches += [Cache(3, "Unified", 1 << 25, list(members)) for members in caches or [everything]]
    if gpu_node is not None:
        machine.gpu.gpus = [Gpu(0, "0000:65:00.0", numa_node=known(gpu_node, T))]
    machine.network.nics = [
        Nic(name, numa_node=known(node, T), operstate=known("up", T)) for name, node in (nics or {}).items()
    ]
    return machine


def threads_apart(cores: int) -> list[list[int]]:
    """Two threads a core, numbered as Linux does on x86: the second ones after all first ones."""
    return [[core, core + cores] for core in range(cores)]


def single(cores: int) -> list[list[int]]:
    return [[core] for core in range(cores)]
