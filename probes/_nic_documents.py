"""What pasted texts tell of network interfaces: ethtool in its forms, and ip -s link."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hwtune.fact import ABSENT, NOT_CAPTURED, NOT_PROBED, Fact, gap, known
from hwtune.host.prompts import split
from hwtune.model.network import Nic
from hwtune.probes._nic_ethtool import source
from hwtune.probes._nic_sysfs import is_made
from hwtune.text import ethtool, ip_link
from hwtune.text.pci_address import normal

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwtune.host.base import Document, Host

UNNAMED = "?"
_NAME = re.compile(r"[A-Za-z0-9][\w.@:-]{0,30}", re.ASCII)
_GROUPS = {"ethtool -c": "coalescing", "ethtool -g": "rings", "ethtool -l": "channels"}


def fill(host: Host, nics: list[Nic], listed: Fact[bool]) -> tuple[list[Nic], Fact[bool]]:
    """The interfaces with what texts tell of them. A tree that lists its interfaces has them all,
    so that a text adds none to it."""
    table = _Table(nics, whole=listed.known)
    for document in [*host.documents("ip -s link"), *host.documents("ip link")]:
        if _links(table, document) and not listed.known:
            listed = known(True, document.path)
    later: list[tuple[Document, Callable[[Nic, Document], None]]] = []
    for kind, read in _READERS.items():
        for document in host.documents(kind):
            name = ethtool.interface(document.text) or _asked(document.command)
            if name:
                table.give(name, document, read)
            else:
                later.append((document, read))
    for document, read in later:
        # a text without a name is of the one interface that the others are of, or of one of its own
        table.give(table.only or UNNAMED, document, read)
    for nic in table.added:
        _name_gaps(nic)
    return table.nics, listed


class _Table:
    def __init__(self, nics: list[Nic], whole: bool) -> None:
        self.nics = nics
        self.added: list[Nic] = []
        self._whole = whole
        self._by_name = {nic.name: nic for nic in nics}

    @property
    def only(self) -> str:
        return self.nics[0].name if len(self.nics) == 1 and self.nics[0].name != UNNAMED else ""

    def find(self, name: str, path: str) -> Nic | None:
        """The interface of a text, None for one that the tree does not have or software made."""
        nic = self._by_name.get(name)
        if nic is not None and name != UNNAMED:
            return nic
        if self._whole:
            return None
        nic = Nic(name, source=path, virtual=name != UNNAMED and is_made(name))
        self._by_name[name] = nic
        self.nics.append(nic)
        self.added.append(nic)
        return nic

    def give(self, name: str, document: Document, read: Callable[[Nic, Document], None]) -> None:
        nic = self.find(name, document.path)
        if nic is not None:
            read(nic, document)


def _asked(command: str) -> str:
    """The interface of "ethtool -S eth0", "" where no command line is shown."""
    words = split(command)
    names = [word for word in words[1:] if not word.startswith("-") and _NAME.fullmatch(word)]
    return names[0] if words[:1] == ["ethtool"] and names else ""


def _keep(nic: Nic, field: str, fact: Fact[Any]) -> None:
    setattr(nic, field, getattr(nic, field).or_else(fact))


def _links(table: _Table, document: Document) -> bool:
    found = ip_link.parse(document.text)
    for link in found:
        if link.stacked or link.kind == "loopback" or is_made(link.name):
            continue
        nic = table.find(link.name, document.path)
        if nic is None:
            continue
        path = document.path
        _keep(nic, "admin_up", known("UP" in link.flags, path))
        if "UP" in link.flags:
            _keep(nic, "carrier", known("LOWER_UP" in link.flags, path))
        if link.state:
            _keep(nic, "operstate", known(link.state, path))
        _keep(nic, "mtu", known(link.mtu, path))
        _keep(nic, "master", known(link.master, path) if link.master else gap(ABSENT, path))
        if link.statistics:
            _keep(nic, "statistics", known(link.statistics, path))
    return bool(found)


def _settings(nic: Nic, document: Document) -> None:
    said = ethtool.settings(document.text)
    path = document.path
    for field, value in (
        ("speed_mbps", said.speed_mbps),
        ("duplex", said.duplex),
        ("autoneg", said.autoneg),
        ("carrier", said.link),
        ("max_speed_mbps", ethtool.max_speed(said.supported)),
        ("advertised_speed_mbps", ethtool.max_speed(said.advertised)),
        ("partner_speed_mbps", ethtool.max_speed(said.partner)),
    ):
        if value is not None:
            _keep(nic, field, known(value, path))


def _numbers(nic: Nic, document: Document) -> None:
    group = _GROUPS[document.kind]
    found = {"coalescing": ethtool.coalescing, "rings": ethtool.rings, "channels": ethtool.channels}[group](
        document.text
    )
    _keep(nic, group, known(found, document.path) if found else _refused(document))


def _refused(document: Document) -> Fact[Any]:
    """A title and no values: the driver does not offer them, or the interface is not there."""
    if "not supported" in document.text:
        return gap(ABSENT, document.path, "the driver does not offer it")
    return gap(NOT_CAPTURED, document.path, "no values in it")


def _features(nic: Nic, document: Document) -> None:
    found, changeable = ethtool.features(document.text)
    _keep(nic, "features", known(found, document.path) if found else _refused(document))
    _keep(nic, "changeable_features", known(changeable, document.path) if found else _refused(document))


def _pause(nic: Nic, document: Document) -> None:
    found = ethtool.pause(document.text)
    _keep(nic, "pause", known(found, document.path) if found else _refused(document))


def _statistics(nic: Nic, document: Document) -> None:
    _keep(nic, "driver_statistics", known(document.text, document.path).map(ethtool.statistics))


def _driver(nic: Nic, document: Document) -> None:
    said = ethtool.driver(document.text)
    path = document.path
    if said.get("driver"):
        _keep(nic, "driver", known(said["driver"], path))
        nic.virtual = nic.virtual or said["driver"] in (
            "bonding",
            "bridge",
            "veth",
            "tun",
            "802.1Q VLAN Support",
        )
    if said.get("firmware", "").strip("N/A"):
        _keep(nic, "firmware", known(said["firmware"], path))
    address = normal(said.get("bus", ""))
    if address:
        _keep(nic, "pci_address", known(address, path))


_READERS: dict[str, Callable[[Nic, Document], None]] = {
    "ethtool -i": _driver,
    "ethtool": _settings,
    "ethtool -c": _numbers,
    "ethtool -g": _numbers,
    "ethtool -l": _numbers,
    "ethtool -k": _features,
    "ethtool -a": _pause,
    "ethtool -S": _statistics,
}


def _name_gaps(nic: Nic) -> None:
    """Say how a person would have asked for what no text tells."""
    shown = {
        **{
            group: source(group, nic.name)
            for group in ("coalescing", "rings", "channels", "features", "pause")
        },
        "driver_statistics": f"ethtool -S {nic.name}",
        "driver": f"ethtool -i {nic.name}",
        "firmware": f"ethtool -i {nic.name}",
        "pci_address": f"ethtool -i {nic.name}",
        **dict.fromkeys(
            (
                "speed_mbps",
                "max_speed_mbps",
                "advertised_speed_mbps",
                "partner_speed_mbps",
                "duplex",
                "autoneg",
            ),
            f"ethtool {nic.name}",
        ),
        **dict.fromkeys(
            ("carrier", "operstate", "admin_up", "statistics", "master"), f"ip -s link show {nic.name}"
        ),
    }
    for field, place in shown.items():
        if getattr(nic, field).gap == NOT_PROBED:
            setattr(nic, field, gap(NOT_CAPTURED, place))
    for field in (
        "carrier_changes",
        "carrier_up_count",
        "rps_cpus",
        "napi_defer_hard_irqs",
        "gro_flush_timeout_ns",
    ):
        if getattr(nic, field).gap == NOT_PROBED:
            setattr(nic, field, gap(NOT_CAPTURED, f"/sys/class/net/{nic.name}"))
