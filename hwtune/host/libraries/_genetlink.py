"""A generic netlink client for reading: one socket, requests and dumps.

Source: Linux Documentation/userspace-api/netlink/intro.rst.
Why not pyroute2: importing it takes longer than all of doctor's live run.
"""

from __future__ import annotations

import socket
import struct

NETLINK_GENERIC = 16
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 0x1, 0x4, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
GENL_ID_CTRL, CTRL_CMD_GETFAMILY = 16, 3
CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 1, 2
NLA_TYPE_MASK = 0x3FFF
TIMEOUT_S = 2.0

Attributes = list[tuple[int, bytes]]


class Connection:
    """Raises ``OSError`` for what the kernel refuses (ENOENT: no such family)."""

    def __init__(self) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_GENERIC
        )
        self._socket.settimeout(TIMEOUT_S)
        self._socket.bind((0, 0))
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def family(self, name: str) -> int:
        """The number of a generic netlink family on this kernel."""
        payload = attribute(CTRL_ATTR_FAMILY_NAME, name.encode() + b"\0")
        for attributes in self.ask(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, payload):
            for kind, value in attributes:
                if kind == CTRL_ATTR_FAMILY_ID:
                    return int(struct.unpack("=H", value[:2])[0])
        raise OSError(2, f"no netlink family {name}")

    def ask(self, family: int, command: int, payload: bytes = b"", dump: bool = False) -> list[Attributes]:
        """The attributes of every message that answers."""
        self._sequence += 1
        flags = NLM_F_REQUEST | (NLM_F_DUMP if dump else NLM_F_ACK)
        body = struct.pack("=BBH", command, 1, 0) + payload
        self._socket.send(struct.pack("=IHHII", 16 + len(body), family, flags, self._sequence, 0) + body)
        found: list[Attributes] = []
        while True:
            for kind, sequence, data in _messages(self._socket.recv(1 << 18)):
                if sequence != self._sequence:
                    continue
                if kind == NLMSG_ERROR:
                    number = -int(struct.unpack("=i", data[:4])[0])
                    if number:
                        raise OSError(number, "netlink")
                    return found
                if kind == NLMSG_DONE:
                    # a dump that failed tells its errno here
                    number = -int(struct.unpack("=i", data[:4])[0]) if len(data) >= 4 else 0
                    if number > 0:
                        raise OSError(number, "netlink")
                    return found
                found.append(attributes_of(data[4:]))


def _messages(data: bytes) -> list[tuple[int, int, bytes]]:
    found = []
    offset = 0
    while offset + 16 <= len(data):
        length, kind, _, sequence, _ = struct.unpack_from("=IHHII", data, offset)
        if length < 16:
            break
        found.append((kind, sequence, data[offset + 16 : offset + length]))
        offset += (length + 3) & ~3
    return found


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def attributes_of(data: bytes) -> Attributes:
    """(type, value) of each attribute, in order; flags of the type (nested, byte order) are dropped."""
    found: Attributes = []
    offset = 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4:
            break
        found.append((kind & NLA_TYPE_MASK, data[offset + 4 : offset + length]))
        offset += (length + 3) & ~3
    return found


def number(value: bytes) -> int:
    """An unsigned integer of one, two, four or eight bytes, in the host's order."""
    return int.from_bytes(value, "little" if struct.pack("=H", 1)[0] else "big")


def text(value: bytes) -> str:
    return value.rstrip(b"\0").decode("utf-8", "replace")
