"""What placement has to know of the live machine: little, as the pipeline is to start soon."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hwtune.model import Machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwtune.host.base import Host
    from hwtune.validate.placement import Placement


def place(cpus: str | None) -> Placement:
    """On this machine: on the CPUs that the user names, or on the best ones."""
    from hwtune.host.live import LiveHost
    from hwtune.validate import placement

    host = LiveHost()
    machine = look(host)
    own = os.sched_getaffinity(0)
    online = machine.cpus.online.get() if machine.cpus.online.known else sorted(own)
    if cpus is None:
        placed = placement.choose(machine, settable(online), own)
    else:
        placed = placement.obey(machine, cpus, settable(online), own)
    return _limited(placed, quota(host))


def _limited(placed: Placement, limit: tuple[float, str] | None) -> Placement:
    """With a word on a quota that the threads, which spin, use up."""
    from msgspec.structs import replace

    if limit is None or limit[0] >= len(placed.threads):
        return placed
    told = (
        f"This process's control group may use {limit[0]:.3g} CPUs ({limit[1]}): its {len(placed.threads)} "
        "threads, which spin, are stopped for the rest of each period."
    )
    return replace(placed, given_up=[*placed.given_up, told])


def look(host: Host) -> Machine:
    """CPUs, caches, nodes, GPUs and network interfaces; everything else of the Machine stays unknown."""
    from hwtune.probes import cpus, gpu, network

    return Machine(
        cpus=cpus.read_topology(host), gpu=gpu.read_bus(host), network=network.read_interfaces(host)
    )


def settable(online: list[int]) -> frozenset[int]:
    """The CPUs that the kernel lets this thread have: what remains of all that are online once its cpuset is
    applied (sched_setaffinity(2)). The kernel is asked by trying, as it alone knows of every hierarchy of
    cpusets; the thread's affinity is put back."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, online)
        return frozenset(os.sched_getaffinity(0))
    except OSError:  # not even one of them
        return frozenset(before)
    finally:
        os.sched_setaffinity(0, before)


def quota(host: Host) -> tuple[float, str] | None:
    """(CPUs' worth of time, the file that says so): the least that a control group of this process, or one
    above it, may use of each period (cgroup-v2.rst, cpu.max; sched-bwc.rst). Threads that spin are stopped
    for the rest of a period once that is used up. None: no limit, or none that can be read."""
    found: list[tuple[float, str]] = []
    for line in (host.text("/proc/self/cgroup").value or "").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            found += _limits(host, "/sys/fs/cgroup", path, _max)
        elif "cpu" in controllers.split(","):
            found += _limits(host, f"/sys/fs/cgroup/{controllers}", path, _cfs)
    return min(found, default=None)


def _limits(
    host: Host, top: str, path: str, read: Callable[[Host, str], tuple[float, str] | None]
) -> list[tuple[float, str]]:
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    groups = [top, *("/".join((top, *parts[: n + 1])) for n in range(len(parts)))]
    return [limit for group in groups if (limit := read(host, group)) is not None]


def _max(host: Host, group: str) -> tuple[float, str] | None:
    """ "150000 100000", or "max 100000" for none."""
    file = f"{group}/cpu.max"
    words = (host.text(file).value or "").split()
    if len(words) != 2 or not all(word.isdecimal() for word in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1]), file


def _cfs(host: Host, group: str) -> tuple[float, str] | None:
    file = f"{group}/cpu.cfs_quota_us"
    allowed, period = host.integer(file), host.integer(f"{group}/cpu.cfs_period_us")
    if not (allowed.known and period.known) or allowed.get() <= 0 or period.get() <= 0:
        return None
    return allowed.get() / period.get(), file
