"""Network interfaces as sysfs has them (Documentation/ABI/testing/sysfs-class-net and its neighbours)."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from hwtune.fact import ABSENT, INVALID, UNREADABLE, Fact, absent, gap, known
from hwtune.model.network import Nic
from hwtune.text import net_dev
from hwtune.text.cpulist import parse_mask
from hwtune.text.number import hexadecimal
from hwtune.text.pci_sysfs import is_address

if TYPE_CHECKING:
    from hwtune.host.base import Host

CLASS = "/sys/class/net"
PCI = "/sys/bus/pci/devices"

# Of the 24 counters those of which rows ask.
_COUNTERS = (
    "rx_packets",
    "rx_errors",
    "rx_dropped",
    "rx_missed_errors",
    "rx_fifo_errors",
    "rx_over_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_length_errors",
    "tx_packets",
    "tx_errors",
    "tx_dropped",
    "tx_carrier_errors",
)
_IFF_UP = 0x1
# "type": ARPHRD_ETHER and ARPHRD_INFINIBAND of include/uapi/linux/if_arp.h
_LAYERS = {"1": "ethernet", "32": "infiniband"}
# SPEED_UNKNOWN as kernels have printed it: in 32 bits with and without a sign, and in 16.
_NO_SPEED = (-1, 0xFFFFFFFF, 0xFFFF)
# How interfaces are called that software makes (iproute2, container and VM managers).
_MADE = (
    *("lo", "dummy", "veth", "br-", "br0", "virbr", "docker", "cni", "cali", "flannel", "vxlan", "gre"),
    *("sit", "tun", "tap", "bond", "team", "vlan", "wg", "ifb", "ip6tnl", "ipvlan", "macvlan", "macvtap"),
    *("vnet", "ovs-", "tailscale", "kube-", "nodelocal", "lxc", "vmbr"),
)


def read(host: Host) -> tuple[list[Nic], Fact[bool]]:
    """Interfaces with a device behind them by name, and whether these are all."""
    listing = host.names(CLASS)
    nics = [nic for name in listing.value or () if (nic := _named(host, name)) is not None]
    if not listing.known and not listing.absent:
        nics = [_nic(host, name, path, path.rpartition("/net/")[0]) for name, path in below_pci(host, "net")]
    nics.sort(key=_order)
    for nic in nics:
        _read(host, nic)
    _routes(host, nics)
    _totals(host, nics)
    return nics, listing.map(lambda _: True)


def _order(nic: Nic) -> tuple[str, int, str]:
    head = nic.name.rstrip("0123456789")
    return head, int(nic.name[len(head) :] or 0), nic.name


def below_pci(host: Host, folder: str) -> list[tuple[str, str]]:
    """(name, path) of what PCI functions have in ``folder``, for trees without the class."""
    found = []
    for address in host.names(PCI).value or ():
        for name in host.names(f"{PCI}/{address}/{folder}").value or ():
            found.append((name, f"{PCI}/{address}/{folder}/{name}"))
    return found


def is_made(name: str) -> bool:
    """Whether an interface of this name is one that software makes."""
    return name.startswith(_MADE) or "." in name


def _named(host: Host, name: str) -> Nic | None:
    """The interface of the class, or None for one that software made, or that has no wire."""
    path = f"{CLASS}/{name}"
    real = host.resolve(path).value or path
    if "/devices/virtual/" in real or name == "bonding_masters" or host.resolve(f"{path}/phy80211").known:
        return None
    if real != path and "/net/" in real:
        return _nic(host, name, path, real.rpartition("/net/")[0])
    # The kernel has a link there. A folder was made by hand, and may still tell its device.
    device = host.resolve(f"{path}/device")
    if device.absent or (not device.known and is_made(name)):
        return None
    return _nic(host, name, path, device.value or f"{path}/device")


def _nic(host: Host, name: str, path: str, device: str) -> Nic:
    """``device``: the real folder of what is behind it."""
    nic = Nic(name, source=path, pci_address=pci_address(host, device))
    if nic.pci_address.known:
        nic.numa_node = host.integer(f"{PCI}/{nic.pci_address.get()}/numa_node")
    if not nic.numa_node.known:
        nic.numa_node = nic.numa_node.or_else(host.integer(f"{device}/numa_node"))
    nic.driver = host.link_name(f"{device}/driver")
    if not nic.driver.known:
        nic.driver = nic.driver.or_else(host.parse(f"{device}/uevent", _driver_of))
    return nic


def pci_address(host: Host, device: str) -> Fact[str]:
    """The PCI function of a device's real folder: itself, or the one below which virtio or a
    subfunction lies."""
    if not host.resolve(device).known:
        return host.resolve(device)
    parts = device.rsplit("/", 2)
    last = parts[-1]
    if len(parts) == 3 and (_is_virtio(last) or ".sf." in last):
        last = parts[-2]
    if is_address(last):
        return known(last, device)
    return absent(device)


def _is_virtio(name: str) -> bool:
    return name.startswith("virtio") and name[6:].isdecimal()


def _driver_of(uevent: str) -> str:
    for line in uevent.splitlines():
        if line.startswith("DRIVER="):
            return line[7:]
    raise ValueError("no DRIVER= in it")


# -- one interface -----------------------------------------------------------------------


def _read(host: Host, nic: Nic) -> None:
    path = nic.source
    nic.operstate = host.parse(f"{path}/operstate", _word)
    nic.carrier = host.parse(f"{path}/carrier", _bit)
    nic.admin_up = _admin_up(host, nic)
    nic.carrier_changes = host.integer(f"{path}/carrier_changes")
    nic.carrier_up_count = host.integer(f"{path}/carrier_up_count")
    nic.speed_mbps = _speed(host, nic)
    # "pf0vf3": the switch side of a virtual function, whose link is that of a virtual machine
    nic.virtual = "vf" in (port := host.text(f"{path}/phys_port_name").value or "") or "sf" in port
    nic.duplex = host.parse(f"{path}/duplex", _duplex)
    nic.mtu = host.integer(f"{path}/mtu")
    nic.link_layer = host.parse(f"{path}/type", _layer)
    nic.master = host.link_name(f"{path}/master")
    if nic.admin_up.value is False:
        return  # what an interface would do that is down is nobody's concern
    nic.threaded = host.integer(f"{path}/threaded")
    nic.napi_defer_hard_irqs = host.integer(f"{path}/napi_defer_hard_irqs")
    nic.gro_flush_timeout_ns = host.integer(f"{path}/gro_flush_timeout")
    nic.statistics = _statistics(host, path)
    _queues(host, nic)


def _word(text: str) -> str:
    if not text.isalpha():
        raise ValueError("not a state")
    return text


def _bit(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("neither 0 nor 1")
    return text == "1"


def _duplex(text: str) -> str:
    if text not in ("full", "half", "unknown"):
        raise ValueError("not a duplex mode")
    return text


def _layer(text: str) -> str:
    return _LAYERS.get(text, str(int(text)))


def _admin_up(host: Host, nic: Nic) -> Fact[bool]:
    """By the flags; by what only an interface has that is up, where these are not known."""
    flags = host.parse(f"{nic.source}/flags", lambda text: bool(hexadecimal(text) & _IFF_UP))
    if flags.known:
        return flags
    if nic.operstate.value in ("up", "dormant", "testing"):
        return known(True, nic.operstate.source)
    return nic.carrier.map(lambda _: True) if nic.carrier.known else flags


def _speed(host: Host, nic: Nic) -> Fact[int]:
    speed = host.integer(f"{nic.source}/speed")
    # EINVAL of an interface that is up: its driver has no such thing (net-sysfs.c, speed_show)
    refused = speed.gap == UNREADABLE and speed.detail == os.strerror(errno.EINVAL)
    if (speed.known and speed.get() in _NO_SPEED) or (refused and nic.carrier.value):
        return gap(ABSENT, speed.source, "the device does not say")
    if speed.known and not 0 < speed.get() < 100_000_000:
        return gap(INVALID, speed.source, str(speed.get()))
    return speed


def _statistics(host: Host, path: str) -> Fact[dict[str, int]]:
    found: dict[str, int] = {}
    first: Fact[Any] | None = None
    for name in _COUNTERS:
        value = host.integer(f"{path}/statistics/{name}")
        if value.known:
            found[name] = value.get()
        elif first is None:
            first = value
            if not found:
                break
    if found:
        return known(found, f"{path}/statistics")
    assert first is not None
    return Fact(None, f"{path}/statistics", first.gap, first.detail)


def _queues(host: Host, nic: Nic) -> None:
    folder = f"{nic.source}/queues"
    names = host.names(folder)
    receiving = [n for n in names.value or () if n.startswith("rx-") and n[3:].isdecimal()]
    nic.queues = names.map(lambda _: len(receiving))
    steered: dict[str, list[int]] = {}
    for queue in receiving:
        cpus = host.parse(f"{folder}/{queue}/rps_cpus", parse_mask)
        if not cpus.known:
            nic.rps_cpus = Fact(None, cpus.source, cpus.gap, cpus.detail)
            return
        if cpus.get():
            steered[queue] = cpus.get()
    nic.rps_cpus = names.map(lambda _: steered)


def _routes(host: Host, nics: list[Nic]) -> None:
    """Which interfaces IPv4 routes lead to: asked where one is up and has no link."""
    dark = [n for n in nics if n.admin_up.value and n.carrier.value is False]
    if not dark:
        return
    table = host.parse("/proc/net/route", _interfaces)
    for nic in dark:
        name = nic.name
        nic.routed = table.map(lambda names, name=name: name in names)  # type: ignore[misc]


def _interfaces(text: str) -> frozenset[str]:
    lines = text.splitlines()
    if not lines or not lines[0].startswith("Iface"):
        raise ValueError("not a routing table")
    return frozenset(line.split("\t", 1)[0].strip() for line in lines[1:])


def _totals(host: Host, nics: list[Nic]) -> None:
    """What /proc/net/dev says of interfaces whose own counters are not there."""
    without = [n for n in nics if n.statistics.unknown and n.admin_up.value is not False]
    if not without:
        return
    table = host.parse("/proc/net/dev", net_dev.parse)
    for nic in without:
        if table.known and nic.name in table.get():
            nic.statistics = known(table.get()[nic.name], table.source)
