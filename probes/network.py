"""Network interfaces, RDMA ports, and what received packets cost each CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import Fact
from hwtune.model.network import Network, SoftnetCpu
from hwtune.probes import _infiniband, _nic_ethtool, _nic_sysfs
from hwtune.text import net_dev, softnet
from hwtune.text.cpulist import parse_list

if TYPE_CHECKING:
    from hwtune.host.base import Host

PART = "network"


def read(host: Host) -> Network:
    network = Network()
    nics, listed = _nic_sysfs.read(host)
    _nic_ethtool.fill(host, nics)
    if host.kind != "live":
        from hwtune.probes import _nic_documents  # the parsers of texts, which a live host has none of

        nics, listed = _nic_documents.fill(host, nics, listed)
    network.nics, network.listed = nics, listed
    network.ib_ports, network.ib_listed = _infiniband.read(host)
    network.softnet = _softnet(host)
    if any(cpu.dropped or cpu.squeezed for cpu in network.softnet.value or ()):
        network.received = host.parse("/proc/net/dev", net_dev.received)
    return network


def read_interfaces(host: Host) -> Network:
    """The interfaces and their nodes, as sysfs has them."""
    network = Network()
    network.nics, network.listed = _nic_sysfs.read(host)
    return network


def _softnet(host: Host) -> Fact[list[SoftnetCpu]]:
    lines = host.parse("/proc/net/softnet_stat", softnet.parse)
    if not lines.known or all(line.cpu is not None for line in lines.get()):
        return lines.map(_numbered)
    # kernels before 5.10 leave the CPU out: the lines are of those online, in their order
    online = host.parse("/sys/devices/system/cpu/online", parse_list)
    if not online.known:
        return Fact(None, online.source, online.gap, online.detail)
    if len(online.get()) != len(lines.get()):
        return Fact(None, lines.source, "invalid", f"{len(lines.get())} lines for {len(online.get())} CPUs")
    cpus = online.get()
    return lines.map(
        lambda found: _numbered([line._replace(cpu=c) for line, c in zip(found, cpus, strict=True)])
    )


def _numbered(lines: list[softnet.Line]) -> list[SoftnetCpu]:
    return [SoftnetCpu(line.cpu or 0, line.processed, line.dropped, line.squeezed) for line in lines]
