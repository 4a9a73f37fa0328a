"""What placement has to know of the live machine: little, as the pipeline is to start soon."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hwtune.model import Machine

if TYPE_CHECKING:
    from hwtune.host.base import Host
    from hwtune.validate.placement import Placement


def place(cpus: str | None) -> Placement:
    """On this machine: on the CPUs that the user names, or on the best ones."""
    from hwtune.host.live import LiveHost
    from hwtune.validate import placement

    machine = look(LiveHost())
    own = os.sched_getaffinity(0)
    online = machine.cpus.online.get() if machine.cpus.online.known else sorted(own)
    if cpus is None:
        return placement.choose(machine, settable(online), own)
    return placement.obey(machine, cpus, settable(online), own)


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
