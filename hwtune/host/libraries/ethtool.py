"""What the kernel's ethtool says of every interface: settings by netlink, names and driver counts by ioctl.

Numbers are those of include/uapi/linux/ethtool_netlink.h and ethtool.h; only GET messages are sent, which
need no privilege.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
import struct
from typing import Any

from hwtune.host.libraries import _genetlink as netlink

HEADER, HEADER_NAME = 1, 2
# message -> (its number, attribute number -> name); the names are those that ethtool(8) prints
_GROUPS: dict[str, tuple[int, dict[int, str]]] = {
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
    "coalesce": (
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
            10: "stats_block_usecs",
            11: "use_adaptive_rx",
            12: "use_adaptive_tx",
        },
    ),
    "pause": (21, {2: "autoneg", 3: "rx", 4: "tx"}),
    "link": (4, {2: "autoneg", 5: "speed", 6: "duplex"}),
}
FEATURES, FEATURES_HW, FEATURES_ACTIVE = 11, 2, 4
LINKMODES_OURS = 3
BITSET_BITS, BITSET_BIT, BIT_NAME, BIT_VALUE = 3, 1, 2, 3

SIOCETHTOOL = 0x8946
ETHTOOL_GDRVINFO, ETHTOOL_GSTRINGS, ETHTOOL_GSTATS, ETHTOOL_GSSET_INFO = 0x3, 0x1B, 0x1D, 0x37
ETH_SS_STATS, ETH_GSTRING_LEN = 1, 32
MAX_STATISTICS = 16_384

# family "netdev" (Documentation/netlink/specs/netdev.yaml, since Linux 6.3): dev-get
NETDEV_CMD_DEV_GET = 1
NETDEV_IFINDEX, NETDEV_XDP_FEATURES = 1, 3
_XDP = ("basic", "redirect", "ndo-xmit", "xsk-zerocopy", "hw-offload", "rx-sg", "ndo-xmit-sg")


def query(what: str, *arguments: Any) -> Any:
    """``settings``: interface -> group -> values, or group -> the name of the errno that refused
    it. ``driver`` NAME: driver, version, firmware, bus. ``statistics`` NAME: the driver's own
    counters."""
    if what == "settings":
        return _settings()
    if what == "driver":
        return _driver(str(arguments[0]))
    if what == "statistics":
        return _statistics(str(arguments[0]))
    raise ValueError(f"ethtool knows no {what}")


def _settings() -> dict[str, Any]:
    connection = netlink.Connection()
    try:
        found: dict[str, Any] = {}
        try:
            family = connection.family("ethtool")
        except OSError as error:
            return {"error": errno.errorcode.get(error.errno or 0, str(error.errno))}
        for group, (command, names) in _GROUPS.items():
            _collect(connection, family, group, command, names, found)
        _features(connection, family, found)
        _xdp(connection, found)
        return found
    finally:
        connection.close()


def _collect(
    connection: netlink.Connection,
    family: int,
    group: str,
    command: int,
    names: dict[int, str],
    found: dict[str, Any],
) -> None:
    try:
        messages = connection.ask(family, command, netlink.attribute(HEADER | 0x8000, b""), dump=True)
    except OSError as error:
        found.setdefault("errors", {})[group] = errno.errorcode.get(error.errno or 0, str(error.errno))
        return
    for attributes in messages:
        interface = _interface(attributes)
        if interface is None:
            continue
        values = {names[k]: netlink.number(v) for k, v in attributes if k in names and v}
        if group == "link":
            values["modes"] = next((_bits(v) for k, v in attributes if k == LINKMODES_OURS), [])  # type: ignore[assignment]
        found.setdefault("interfaces", {}).setdefault(interface, {})[group] = values


def _features(connection: netlink.Connection, family: int, found: dict[str, Any]) -> None:
    try:
        messages = connection.ask(family, FEATURES, netlink.attribute(HEADER | 0x8000, b""), dump=True)
    except OSError as error:
        found.setdefault("errors", {})["features"] = errno.errorcode.get(error.errno or 0, str(error.errno))
        return
    for attributes in messages:
        interface = _interface(attributes)
        if interface is None:
            continue
        sets = {k: _bits(v) for k, v in attributes if k in (FEATURES_HW, FEATURES_ACTIVE)}
        values = dict.fromkeys(sets.get(FEATURES_HW, ()), False)
        values.update(dict.fromkeys(sets.get(FEATURES_ACTIVE, ()), True))
        found.setdefault("interfaces", {}).setdefault(interface, {})["features"] = values


def _xdp(connection: netlink.Connection, found: dict[str, Any]) -> None:
    try:
        messages = connection.ask(connection.family("netdev"), NETDEV_CMD_DEV_GET, dump=True)
    except OSError as error:
        found.setdefault("errors", {})["xdp"] = errno.errorcode.get(error.errno or 0, str(error.errno))
        return
    for attributes in messages:
        values = dict(attributes)
        if NETDEV_IFINDEX not in values or NETDEV_XDP_FEATURES not in values:
            continue
        try:
            interface = socket.if_indextoname(netlink.number(values[NETDEV_IFINDEX]))
        except OSError:  # it went away between the two calls
            continue
        mask = netlink.number(values[NETDEV_XDP_FEATURES])
        names = [name for i, name in enumerate(_XDP) if mask >> i & 1]
        found.setdefault("interfaces", {}).setdefault(interface, {})["xdp"] = names


def _interface(attributes: netlink.Attributes) -> str | None:
    for kind, value in attributes:
        if kind == HEADER:
            for inner, name in netlink.attributes_of(value):
                if inner == HEADER_NAME:
                    return netlink.text(name)
    return None


def _bits(value: bytes) -> list[str]:
    """The names of the bits that a verbose bitset has set (all that are listed, in one without a mask)."""
    top = dict(netlink.attributes_of(value))
    masked = 1 not in top  # ETHTOOL_A_BITSET_NOMASK
    found = []
    for kind, bit in netlink.attributes_of(top.get(BITSET_BITS, b"")):
        if kind == BITSET_BIT:
            inner = dict(netlink.attributes_of(bit))
            if BIT_NAME in inner and (not masked or BIT_VALUE in inner):
                found.append(netlink.text(inner[BIT_NAME]))
    return found


# -- the older interface, for what netlink does not tell ---------------------------------


def _ioctl(interface: str, data: bytearray) -> bytearray:
    buffer = array.array("B", data)
    request = struct.pack("16sP16x", interface.encode()[:15], buffer.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as handle:
        fcntl.ioctl(handle.fileno(), SIOCETHTOOL, request)
    return bytearray(buffer)


def _driver(interface: str) -> dict[str, str]:
    data = _ioctl(interface, bytearray(struct.pack("=I", ETHTOOL_GDRVINFO) + bytes(192)))
    fields = {"driver": (4, 32), "version": (36, 32), "firmware": (68, 32), "bus": (100, 32)}
    return {name: netlink.text(bytes(data[o : o + n]).partition(b"\0")[0]) for name, (o, n) in fields.items()}


def _statistics(interface: str) -> dict[str, int]:
    info = _ioctl(interface, bytearray(struct.pack("=IIQI", ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_STATS, 0)))
    mask, count = struct.unpack_from("=QI", info, 8)
    if not mask or not count:
        return {}
    if count > MAX_STATISTICS:
        raise OSError(errno.EOVERFLOW, os.strerror(errno.EOVERFLOW))
    header = struct.pack("=III", ETHTOOL_GSTRINGS, ETH_SS_STATS, count)
    names = _ioctl(interface, bytearray(header + bytes(count * ETH_GSTRING_LEN)))
    values = _ioctl(interface, bytearray(struct.pack("=II", ETHTOOL_GSTATS, count) + bytes(count * 8)))
    found = {}
    for i in range(count):
        name = bytes(names[12 + i * ETH_GSTRING_LEN : 12 + (i + 1) * ETH_GSTRING_LEN]).partition(b"\0")[0]
        found[name.decode("utf-8", "replace").strip()] = struct.unpack_from("=Q", values, 8 + i * 8)[0]
    return found
