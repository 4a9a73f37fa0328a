"""How often CPUs were slowed down: counters of sysfs, and what the kernel's log says.

drivers/thermal/intel/therm_throt.c (Linux 6.12) counts per CPU, package events too: a package of
28 CPUs counts one event 28 times. So a package's number is the highest of its CPUs, never a sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import Fact, gap, known
from hwtune.model.cpus import ClockNote, Throttle
from hwtune.probes import _kernel_log
from hwtune.probes._cpu_topology import BASE
from hwtune.text.throttle_log import Event, note, throttle

if TYPE_CHECKING:
    from hwtune.host.base import Host
    from hwtune.model.cpus import Cpu, Cpus
    from hwtune.model.kernel import LogLine


def read(host: Host, cpus: Cpus, asked: list[Cpu]) -> None:
    lines, log = _kernel_log.lines(host)
    cpus.clock_notes_listed = log
    cpus.clock_notes = _notes(lines)
    cpus.throttles, cpus.throttles_listed = _counters(host, asked)
    if cpus.throttles_listed.known:
        return
    # without counters the log can show that there was throttling; its silence shows nothing
    found = _from_log(lines, cpus.cpus)
    if found:
        cpus.throttles, cpus.throttles_listed = found, known(True, found[0].source)


def _counters(host: Host, asked: list[Cpu]) -> tuple[list[Throttle], Fact[bool]]:
    packages: dict[int | None, Throttle] = {}
    listed: Fact[bool] = gap("not-captured", f"{BASE}/cpu*/thermal_throttle")
    names: list[str] = []
    for position, cpu in enumerate(asked):
        folder = f"{BASE}/cpu{cpu.id}/thermal_throttle"
        if position == 0:
            listing = host.names(folder)
            listed, names = listing.map(bool), listing.value or []
            if not listed.known:
                break
            listed = known(True, f"{BASE}/cpu*/thermal_throttle")
        mine = packages.setdefault(cpu.package, Throttle(cpu.package, listed.source, []))
        mine.cpus.append(cpu.id)
        if "core_throttle_count" in names:
            _core(mine, cpu.id, host.integer(f"{folder}/core_throttle_count").value)
        if "package_throttle_count" in names:
            _package(mine, cpu.id, host.integer(f"{folder}/package_throttle_count").value)
        for name in ("core_power_limit_count", "package_power_limit_count"):
            if name in names:
                count = host.integer(f"{folder}/{name}").value
                mine.power_limit_events = _most(mine.power_limit_events, count)
    for found in packages.values():
        found.total_ms = _total(host, found, names)
    return list(packages.values()), listed


def _core(mine: Throttle, cpu: int, count: int | None) -> None:
    if count is not None and (mine.core_events is None or count > mine.core_events):
        mine.core_events, mine.core_cpu = count, cpu


def _package(mine: Throttle, cpu: int, count: int | None) -> None:
    if count is not None and (mine.package_events is None or count > mine.package_events):
        mine.package_events, mine.package_cpu = count, cpu


def _most(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _total(host: Host, found: Throttle, names: list[str]) -> int | None:
    """The time that the CPU with the most events was throttled."""
    for level, cpu, events in (
        ("package", found.package_cpu, found.package_events),
        ("core", found.core_cpu, found.core_events),
    ):
        if events and f"{level}_throttle_total_time_ms" in names:
            return host.integer(f"{BASE}/cpu{cpu}/thermal_throttle/{level}_throttle_total_time_ms").value
    return None


def _from_log(lines: list[LogLine], cpus: list[Cpu]) -> list[Throttle]:
    package_of = {cpu.id: cpu.package for cpu in cpus}
    found: dict[int | None, Throttle] = {}
    for line in lines:
        event: Event | None = throttle(line.text)
        if event is None:
            continue
        package = package_of.get(event.cpu)
        mine = found.setdefault(package, Throttle(package, line.source, []))
        if event.cpu not in mine.cpus:
            mine.cpus.append(event.cpu)
        (_package if event.package else _core)(mine, event.cpu, event.total)
    for mine in found.values():
        mine.cpus.sort()
    return list(found.values())


def _notes(lines: list[LogLine]) -> list[ClockNote]:
    """One a kind and text, the CPU numbers aside; a log may hold thousands of the same."""
    found: dict[tuple[str, str], ClockNote] = {}
    for line in lines:
        kind = note(line.text)
        if kind is not None:
            key = (kind, "".join(c for c in line.text if not c.isdigit()))
            found.setdefault(key, ClockNote(kind, line.text, line.source))
    return list(found.values())
