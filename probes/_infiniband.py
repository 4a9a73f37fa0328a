"""RDMA devices and their ports: sysfs (Documentation/ABI/stable/sysfs-class-infiniband), ibstat and
ibstatus, topologies of NCCL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.fact import ABSENT, NOT_CAPTURED, NOT_PROBED, Fact, gap, known
from hwtune.model.network import IbPort
from hwtune.probes._nic_sysfs import below_pci, pci_address
from hwtune.text.number import hexadecimal

if TYPE_CHECKING:
    from hwtune.host.base import Host
    from hwtune.text import nccl_topology

CLASS = "/sys/class/infiniband"
# Each is a message to the card: only what rows ask about.
_COUNTERS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "port_rcv_packets",
)
# How RDMA devices are called, by their drivers or by rdma-core's rules; other names in a topology
# are those of interfaces.
_DEVICES = (
    "mlx",
    "bnxt_re",
    "irdma",
    "i40iw",
    "qedr",
    "hfi1_",
    "ib",
    "roce",
    "rdmap",
    "efa_",
    "mana_",
    "erdma",
)
_ENCODING = 128 / 130


def read(host: Host) -> tuple[list[IbPort], Fact[bool]]:
    """All ports by device and number, and whether these are all."""
    listing = host.names(CLASS)
    devices = [(name, f"{CLASS}/{name}") for name in listing.value or ()]
    if not listing.known and not listing.absent:
        devices = below_pci(host, "infiniband")
    ports = [port for name, path in devices for port in _ports(host, name, path)]
    listed = listing.map(lambda _: True)
    if devices and not ports:
        folder = host.names(f"{devices[0][1]}/ports")
        listed = gap(folder.gap or NOT_CAPTURED, folder.source, folder.detail)
    ports, listed = _texts(host, ports, listed)
    return sorted(ports, key=_order), listed


def _order(port: IbPort) -> tuple[str, int, str, int]:
    head = port.device.rstrip("0123456789")
    return head, int(port.device[len(head) :] or 0), port.device, port.port


def _ports(host: Host, device: str, path: str) -> list[IbPort]:
    real = host.resolve(path).value or path
    place = real.rpartition("/infiniband/")[0] if not real.startswith(CLASS) else ""
    place = place or host.resolve(f"{path}/device").value or f"{path}/device"
    numbers = sorted(int(n) for n in host.names(f"{path}/ports").value or () if n.isdecimal() and len(n) < 4)
    firmware = host.parse(f"{path}/fw_ver", _version)
    board = host.parse(f"{path}/board_id", _board)
    node = host.integer(f"{place}/numa_node")
    found = []
    for number in numbers:
        port = IbPort(device, number, source=f"{path}/ports/{number}", firmware=firmware, board_id=board)
        port.pci_address = pci_address(host, place)
        port.numa_node = node
        _state(host, port)
        port.netdevs = _netdevs(host, place, number, len(numbers))
        found.append(port)
    return found


def _state(host: Host, port: IbPort) -> None:
    from hwtune.text import ibstat

    path = port.source
    port.link_layer = host.parse(f"{path}/link_layer", _layer)
    port.state = host.parse(f"{path}/state", ibstat.state)
    port.physical_state = host.parse(f"{path}/phys_state", ibstat.physical_state)
    _set_rate(port, host.parse(f"{path}/rate", _rate_text))
    port.lid = host.parse(f"{path}/lid", hexadecimal)
    if port.link_layer.value != "Ethernet":
        port.counters = _counters(host, f"{path}/counters")


def _layer(text: str) -> str:
    if text not in ("InfiniBand", "Ethernet"):
        raise ValueError("not a link layer")
    return text


def _rate_text(text: str) -> str:
    from hwtune.text.ibstat import rate

    rate(text)
    return text


def _set_rate(port: IbPort, text: Fact[str]) -> None:
    from hwtune.text.ibstat import rate

    port.rate_text = text
    port.rate_gbps = text.map(lambda said: rate(said).gbps)
    port.lanes = text.map(lambda said: rate(said).lanes or 0)
    if port.lanes.value == 0:
        port.lanes = gap(NOT_CAPTURED, text.source, "it does not say how many lanes")


def _version(text: str) -> str:
    if not text[:1].isdigit():
        raise ValueError("not a version")
    return text


def _board(text: str) -> str:
    if not any(c.isdigit() for c in text):
        raise ValueError("not a board's id")
    return text


def _counters(host: Host, folder: str) -> Fact[dict[str, int]]:
    found: dict[str, int] = {}
    first: Fact[Any] | None = None
    for name in _COUNTERS:
        value = host.text(f"{folder}/{name}")
        if value.value is not None and value.value.startswith("N/A"):
            # what the kernel prints where the card keeps no counters (show_pma_counter)
            return gap(ABSENT, f"{folder}/{name}", value.value)
        number = value.map(int)
        if number.known:
            found[name] = number.get()
        else:
            first = first or number
    if found:
        return known(found, folder)
    assert first is not None
    return Fact(None, folder, first.gap, first.detail)


def _netdevs(host: Host, place: str, port: int, ports: int) -> list[str]:
    """The interfaces of the same function; of a device with several ports, those of this one
    (dev_port counts from 0)."""
    names = host.names(f"{place}/net").value or []
    if ports < 2:
        return names
    return [name for name in names if host.integer(f"{place}/net/{name}/dev_port").value == port - 1]


_OF_TEXTS = ("link_layer", "state", "physical_state", "rate_gbps", "rate_text", "lanes", "lid", "firmware")


# -- texts -------------------------------------------------------------------------------


def _texts(host: Host, ports: list[IbPort], listed: Fact[bool]) -> tuple[list[IbPort], Fact[bool]]:
    """What pasted texts tell, where the tree does not: a tree that lists its devices has them all."""
    if ports or host.kind == "live":
        return ports, listed
    from hwtune.text import ibstat, nccl_topology

    found: dict[tuple[str, int], IbPort] = {}
    for kind, parse in (("ibstat", ibstat.parse), ("ibstatus", ibstat.parse_status)):
        for document in host.documents(kind):
            for said in parse(document.text):
                key = (said.device, said.port)
                port = found.setdefault(key, IbPort(*key, source=document.path))
                _from_text(port, said.fields, document.path)
            if found and not listed.known:
                listed = known(True, document.path)
    for document in host.documents("NCCL topology"):
        parsed = known(document.text, document.path).map(nccl_topology.parse)
        for net in parsed.value or ():
            key = (net.name, net.port)
            if net.name.startswith(_DEVICES) and net.port and key not in found:
                found[key] = _from_nccl(net, document.path)
    for port in found.values():
        for field in _OF_TEXTS:
            if getattr(port, field).gap == NOT_PROBED:
                setattr(port, field, gap(NOT_CAPTURED, f"ibstat {port.device} {port.port}"))
        if port.counters.gap == NOT_PROBED:
            port.counters = gap(NOT_CAPTURED, f"{CLASS}/{port.device}/ports/{port.port}/counters")
    return list(found.values()), listed


def _from_text(port: IbPort, fields: dict[str, str], path: str) -> None:
    from hwtune.text import ibstat

    def take(name: str, parse: Any) -> Fact[Any]:
        if name not in fields:
            return gap(NOT_CAPTURED, f"{path} {name}")
        return known(fields[name], path).map(parse)

    port.link_layer = port.link_layer.or_else(take("Link layer", _layer))
    port.adapter = port.adapter.or_else(take("CA type", str))
    port.state = port.state.or_else(take("State", ibstat.state))
    port.physical_state = port.physical_state.or_else(take("Physical state", ibstat.physical_state))
    _set_rate(port, port.rate_text.or_else(take("Rate", _rate_text)))
    port.lid = port.lid.or_else(take("Base lid", lambda text: int(text, 0)))
    port.firmware = port.firmware.or_else(take("Firmware version", _version))


def _from_nccl(net: nccl_topology.Port, path: str) -> IbPort:
    port = IbPort(net.name, net.port, source=path)
    # NCCL lists ports that are active, and only these
    port.state = known("ACTIVE", path)
    _set_rate(port, known(f"{net.speed_mbps / 1000:.10g} Gb/sec", path).map(_rate_text))
    if net.address:
        port.pci_address = known(net.address, path)
    if net.node is not None:
        port.numa_node = known(net.node, path)
    if net.gts is not None and net.width is not None and 8 <= net.gts <= 32:
        port.slot_gbps = known(net.gts * net.width * _ENCODING, path)
    return port
