"""CPUs: topology, frequency, idle states, throttling, isolation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import NOT_PROBED, gap
from hwtune.model.cpus import Cpus
from hwtune.probes import (
    _cpu_caches,
    _cpu_documents,
    _cpu_frequency,
    _cpu_identity,
    _cpu_idle,
    _cpu_throttle,
    _cpu_topology,
    _isolation,
)
from hwtune.text.proc_cpuinfo import parse as parse_cpuinfo

if TYPE_CHECKING:
    from hwtune.host.base import Host

PART = "cpus"

# 1.6 KB a CPU on x86, at most 8192 CPUs
_CPUINFO_LIMIT = 16 << 20


def read(host: Host) -> Cpus:
    cpus = Cpus()
    cpuinfo = host.parse("/proc/cpuinfo", parse_cpuinfo, _CPUINFO_LIMIT)
    if not cpuinfo.known:
        cpuinfo = _cpu_documents.cpuinfo(host, cpuinfo)
    asked = _cpu_topology.read(host, cpus, cpuinfo)
    _cpu_identity.read(host, cpus, cpuinfo)
    cpus.caches = _cpu_caches.read(host, asked)
    _cpu_frequency.read(host, cpus, asked)
    _cpu_idle.read(host, cpus, asked)
    _cpu_throttle.read(host, cpus, asked)
    _cpu_documents.fill(host, cpus)
    _isolation.fill(host, cpus)
    return cpus


def read_topology(host: Host) -> Cpus:
    """What tells where a thread may go, and no more: which CPUs there are, their cores, caches, nodes and
    kinds, and what the kernel keeps apart. For commands that start threads and are to start soon."""
    cpus = Cpus()
    asked = _cpu_topology.read(host, cpus, gap(NOT_PROBED, "/proc/cpuinfo"))
    _cpu_identity.read_kinds(host, cpus)
    cpus.caches = _cpu_caches.read(host, asked)
    return cpus
