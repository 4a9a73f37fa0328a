"""cpuidle: driver, governor, states; and the latency requests that keep CPUs from the deep ones.

Layout: Documentation/admin-guide/pm/cpuidle.rst (Linux 6.12). A state's name and latency come from
the one table of its driver (drivers/cpuidle/sysfs.c shows ``drv->states[i]``), so they are read
once; ``disable`` is each CPU's own. Only kernels with a driver a CPU
(CONFIG_CPU_IDLE_MULTIPLE_DRIVERS) may have several tables; these have cpuN/cpuidle/driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import Fact, gap, known
from hwtune.model.cpus import IdleGroup, IdleState
from hwtune.probes._cpu_frequency import per_cpu, word
from hwtune.probes._cpu_topology import BASE

if TYPE_CHECKING:
    from hwtune.host.base import Host
    from hwtune.model.cpus import Cpu, Cpus


def read(host: Host, cpus: Cpus, asked: list[Cpu]) -> None:
    cpus.idle_driver = host.parse(f"{BASE}/cpuidle/current_driver", word)
    governor = host.text(f"{BASE}/cpuidle/current_governor")
    cpus.idle_governor = governor.or_else(host.text(f"{BASE}/cpuidle/current_governor_ro"))
    cpus.idle_groups, cpus.idle_listed = _groups(host, asked)
    request = host.ask("cpu_latency")
    cpus.latency_request_us = Fact(request.value, "/dev/cpu_dma_latency", request.gap, request.detail)
    cpus.resume_latency, cpus.resume_latency_listed = per_cpu(host, asked, "power/pm_qos_resume_latency_us")


def _groups(host: Host, asked: list[Cpu]) -> tuple[list[IdleGroup], Fact[bool]]:
    tables: dict[tuple[str, ...], list[tuple[str, int | None]]] = {}
    groups: dict[tuple[object, ...], IdleGroup] = {}
    listed: Fact[bool] = gap("not-captured", f"{BASE}/cpu*/cpuidle")
    for position, cpu in enumerate(asked):
        folder = f"{BASE}/cpu{cpu.id}/cpuidle"
        names = host.names(folder)
        if not names.known:
            if position == 0:
                listed = names.map(bool)
            if not listed.known:
                break  # no CPU has it
            continue
        listed = known(True, f"{BASE}/cpu*/cpuidle")
        states = sorted((n for n in names.get() if n.startswith("state") and n[5:].isdecimal()), key=_index)
        key = (str(cpu.id), *states) if "driver" in names.get() else tuple(states)
        if key not in tables:
            tables[key] = [_state(host, f"{folder}/{state}") for state in states]
        disabled = tuple(_disabled(host.text(f"{folder}/{state}/disable").value) for state in states)
        alike = (tuple(tables[key]), tuple(states), disabled)
        if alike not in groups:
            groups[alike] = IdleGroup(cpus=[], states=_states(folder, states, tables[key], disabled))
        groups[alike].cpus.append(cpu.id)
    return list(groups.values()), listed


def _index(name: str) -> int:
    return int(name[5:])


def _state(host: Host, folder: str) -> tuple[str, int | None]:
    return host.text(f"{folder}/name").value or "", host.integer(f"{folder}/latency").value


def _disabled(text: str | None) -> bool | None:
    return {"0": False, "1": True}.get(text or "")


def _states(
    folder: str, names: list[str], table: list[tuple[str, int | None]], disabled: tuple[bool | None, ...]
) -> list[IdleState]:
    return [
        IdleState(_index(name), title, latency, off, f"{folder}/{name}")
        for name, (title, latency), off in zip(names, table, disabled, strict=True)
    ]
