"""What the kernel's ethtool says of one interface: settings by netlink, the driver's counters by ioctl.

Only GET messages are sent, which need no privilege. Each wakes a device that is runtime-suspended
(net/ethtool/netlink.c, ethnl_ops_begin): ask about interfaces that are up.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from typing import TYPE_CHECKING, Any

from hwtune.host.libraries import LibraryGap
from hwtune.host.libraries import _genetlink as netlink

if TYPE_CHECKING:
    from hwtune.host.libraries._genetlink import Attributes, Connection

# Numbers of include/uapi/linux/ethtool_netlink.h. Every message has its header as attribute 1, in
# which 2 is the interface's name and 3 are flags.
HEADER, HEADER_NAME, HEADER_FLAGS = 1, 2, 3
FLAG_STATS = 1 << 2
LINKMODES_GET, FEATURES_GET, PAUSE_GET = 4, 11, 21
# group -> (its message, attribute -> name). The names are those of the attributes, in lower case
# (Documentation/networking/ethtool-netlink.rst); a driver that cannot do a thing leaves it out.
NUMBERS: dict[str, tuple[int, dict[int, str]]] = {
    "rings": (15, {2: "rx_max", 5: "tx_max", 6: "rx", 9: "tx"}),
    "channels": (
        17,
        {
            2: "rx_max",
            3: "tx_max",
            4: "other_max",
            5: "combined_max",
            6: "rx",
            7: "tx",
            8: "other",
            9: "combined",
        },
    ),
    "coalescing": (
        19,
        {
            2: "rx_usecs",
            3: "rx_max_frames",
            4: "rx_usecs_irq",
            5: "rx_max_frames_irq",
            6: "tx_usecs",
            7: "tx_max_frames",
            8: "tx_usecs_irq",
            9: "tx_max_frames_irq",
            11: "use_adaptive_rx",
            12: "use_adaptive_tx",
        },
    ),
}
LINK_AUTONEG, LINK_OURS, LINK_PEER = 2, 3, 4
FEATURES_HW, FEATURES_ACTIVE = 2, 4
PAUSE_NAMES = {2: "autoneg", 3: "rx", 4: "tx"}
PAUSE_STATS, PAUSE_STAT_NAMES = 5, {2: "tx_frames", 3: "rx_frames"}
BITSET_BITS, BITSET_BIT, BIT_NAME, BIT_VALUE = 3, 1, 2, 3
UNSUPPORTED = "EOPNOTSUPP"
# What a counter says that the driver does not keep (include/linux/ethtool.h, ETHTOOL_STAT_NOT_SET).
_NOT_KEPT = (1 << 64) - 1

# Family "netdev" (Documentation/netlink/specs/netdev.yaml): dev-get, and its XDP bits from bit 0 on.
NETDEV_DEV_GET, NETDEV_IFINDEX, NETDEV_XDP_FEATURES = 1, 1, 3
XDP_NAMES = ("basic", "redirect", "ndo-xmit", "xsk-zerocopy", "hw-offload", "rx-sg", "ndo-xmit-sg")


def query(what: str, interface: str) -> dict[str, Any]:
    """``settings``: group -> values, with the groups that were refused in ``refused`` (group ->
    name of the errno). ``driver``: driver, version, firmware and bus. ``statistics``: the
    driver's own counters by name.

    Groups: ``rings``, ``channels``, ``coalescing`` (numbers), ``link`` (autoneg, and the names of
    the link modes in supported, advertised and partner), ``features`` (name -> on) with
    ``changeable``, ``pause`` (autoneg, rx, tx, and frames where the driver counts them), ``xdp``.
    Raises ``OSError``; ``LibraryGap`` where the kernel has no ethtool in netlink (before 5.6).
    """
    if what == "settings":
        return _settings(interface)
    from hwtune.host.libraries import _ethtool_ioctl

    if what == "driver":
        return dict(_ethtool_ioctl.driver(interface))
    if what == "statistics":
        return dict(_ethtool_ioctl.statistics(interface))
    raise ValueError(f"ethtool knows no {what}")


def _settings(interface: str) -> dict[str, Any]:
    connection = netlink.Connection()
    try:
        family = _family(connection)
        index = _index(interface)
        found: dict[str, Any] = {}
        refused: dict[str, str] = {}

        def ask(group: str, command: int, flags: int = 0) -> Attributes:
            header = netlink.attribute(HEADER_NAME, interface.encode() + b"\0")
            if flags:
                header += netlink.attribute(HEADER_FLAGS, flags.to_bytes(4, sys.byteorder))
            payload = netlink.attribute(HEADER | netlink.NLA_F_NESTED, header)
            try:
                answers = connection.ask(family, command, payload)
            except OSError as error:
                refused[group] = _name(error)
                return []
            return answers[0] if answers else []

        for group, (command, names) in NUMBERS.items():
            values = ask(group, command)
            if group not in refused:
                found[group] = {names[k]: netlink.number(v) for k, v in values if k in names}
        _link(ask("link", LINKMODES_GET), found)
        _features(ask("features", FEATURES_GET), found)
        pause = ask("pause", PAUSE_GET, FLAG_STATS)
        if refused.get("pause") in ("EINVAL", UNSUPPORTED):
            del refused["pause"]
            pause = ask("pause", PAUSE_GET)  # kernels before 5.10 know no such flag
        _pause(pause, found)
        _xdp(connection, index, found, refused)
        return {**found, "refused": refused}
    finally:
        connection.close()


def _family(connection: Connection) -> int:
    try:
        return connection.family("ethtool")
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise LibraryGap("unreadable", "this kernel has no ethtool in netlink") from None
        raise


def _index(interface: str) -> int:
    try:
        return socket.if_nametoindex(interface)
    except OSError:  # which carries no errno
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV)) from None


def _name(error: OSError) -> str:
    if error.errno == errno.EOPNOTSUPP:
        return UNSUPPORTED  # errno.errorcode has another name for the same number
    return errno.errorcode.get(error.errno or 0, str(error))


def _link(attributes: Attributes, found: dict[str, Any]) -> None:
    if not attributes:
        return
    link: dict[str, Any] = {}
    for kind, value in attributes:
        if kind == LINK_AUTONEG:
            link["autoneg"] = bool(netlink.number(value))
        elif kind == LINK_OURS:
            # value: advertised, mask: supported
            link["supported"], link["advertised"] = _bits(value)
        elif kind == LINK_PEER:
            link["partner"] = _bits(value)[0]
    found["link"] = link


def _features(attributes: Attributes, found: dict[str, Any]) -> None:
    sets = {k: _bits(v) for k, v in attributes if k in (FEATURES_HW, FEATURES_ACTIVE)}
    if FEATURES_HW in sets and FEATURES_ACTIVE in sets:
        every, changeable = sets[FEATURES_HW]
        active = frozenset(sets[FEATURES_ACTIVE][0])
        found["features"] = {name: name in active for name in every}
        found["changeable"] = changeable


def _pause(attributes: Attributes, found: dict[str, Any]) -> None:
    if not attributes:
        return
    values: dict[str, Any] = {}
    for kind, value in attributes:
        if kind in PAUSE_NAMES:
            values[PAUSE_NAMES[kind]] = bool(netlink.number(value))
        elif kind == PAUSE_STATS:
            for inner, count in netlink.attributes_of(value):
                if inner in PAUSE_STAT_NAMES and netlink.number(count) != _NOT_KEPT:
                    values[PAUSE_STAT_NAMES[inner]] = netlink.number(count)
    found["pause"] = values


def _xdp(connection: Connection, index: int, found: dict[str, Any], refused: dict[str, str]) -> None:
    payload = netlink.attribute(NETDEV_IFINDEX, index.to_bytes(4, sys.byteorder))
    try:
        answers = connection.ask(connection.family("netdev"), NETDEV_DEV_GET, payload)
    except OSError as error:
        refused["xdp"] = _name(error)
        return
    for kind, value in answers[0] if answers else ():
        if kind == NETDEV_XDP_FEATURES:
            mask = netlink.number(value)
            found["xdp"] = [name for bit, name in enumerate(XDP_NAMES) if mask >> bit & 1]


def _bits(bitset: bytes) -> tuple[list[str], list[str]]:
    """The names that a verbose bitset lists, and those of them that carry the value flag.

    Without a mask all that are listed are set, and none carries the flag.
    """
    listed, valued = [], []
    for kind, bits in netlink.attributes_of(bitset):
        if kind != BITSET_BITS:
            continue
        for inner, bit in netlink.attributes_of(bits):
            values = dict(netlink.attributes_of(bit)) if inner == BITSET_BIT else {}
            name = netlink.text(values.get(BIT_NAME, b""))
            if name:  # numbers that the kernel has kept free have none
                listed.append(name)
                if BIT_VALUE in values:
                    valued.append(name)
    return listed, valued
