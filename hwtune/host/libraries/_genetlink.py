"""A generic netlink client for questions: one socket, one request and its answers at a time
(Linux Documentation/userspace-api/netlink/intro.rst).

Why not pyroute2: importing it takes longer than all of a live doctor may.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys

# Numbers of include/uapi/linux/netlink.h and genetlink.h.
NETLINK_GENERIC = 16
NLM_F_REQUEST, NLM_F_ACK = 0x1, 0x4
NLMSG_ERROR, NLMSG_DONE = 2, 3
GENL_ID_CTRL, CTRL_CMD_GETFAMILY = 16, 3
CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 1, 2
NLA_F_NESTED, NLA_TYPE_MASK = 0x8000, 0x3FFF

TIMEOUT_S = 2.0
# No answer to one question is longer: a network interface's features take 5 KiB.
_ROOM = 1 << 16
_HEADER = struct.Struct("=IHHII")

Attributes = list[tuple[int, bytes]]


class Connection:
    """Raises ``OSError`` for what the kernel refuses (ENOENT: no such family)."""

    def __init__(self) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_GENERIC
        )
        try:
            self._socket.settimeout(TIMEOUT_S)
            self._socket.bind((0, 0))
        except OSError:
            self._socket.close()
            raise
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def family(self, name: str) -> int:
        """The number of a generic netlink family on this kernel."""
        payload = attribute(CTRL_ATTR_FAMILY_NAME, name.encode() + b"\0")
        for attributes in self.ask(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, payload):
            for kind, value in attributes:
                if kind == CTRL_ATTR_FAMILY_ID:
                    return number(value)
        raise _refused(errno.ENOENT)

    def ask(self, family: int, command: int, payload: bytes) -> list[Attributes]:
        """The attributes of each message that answers one question (no dump)."""
        self._sequence += 1
        body = struct.pack("=BBH", command, 1, 0) + payload
        flags = NLM_F_REQUEST | NLM_F_ACK
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), family, flags, self._sequence, 0) + body)
        found: list[Attributes] = []
        while True:
            for kind, sequence, data in _messages(self._socket.recv(_ROOM)):
                if sequence != self._sequence:
                    continue  # the late end of an answer that was given up
                if kind in (NLMSG_ERROR, NLMSG_DONE):
                    # the acknowledgement: the first word is 0 or a negative errno
                    code = -struct.unpack_from("=i", data)[0] if len(data) >= 4 else 0
                    if code > 0:
                        raise _refused(code)
                    return found
                found.append(attributes_of(data[4:]))


def _refused(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def _messages(data: bytes) -> list[tuple[int, int, bytes]]:
    """(type, sequence number, payload) of each whole message."""
    found = []
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, _, sequence, _ = _HEADER.unpack_from(data, offset)
        if length < _HEADER.size or offset + length > len(data):
            break
        found.append((kind, sequence, data[offset + _HEADER.size : offset + length]))
        offset += _aligned(length)
    return found


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def attributes_of(data: bytes) -> Attributes:
    """(type, value) of each attribute, in order; flags of the type (nested, byte order) are dropped."""
    found: Attributes = []
    offset = 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4 or offset + length > len(data):
            break
        found.append((kind & NLA_TYPE_MASK, data[offset + 4 : offset + length]))
        offset += _aligned(length)
    return found


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def number(value: bytes) -> int:
    """An unsigned integer of one, two, four or eight bytes, in the host's order."""
    return int.from_bytes(value, sys.byteorder)


def text(value: bytes) -> str:
    return value.partition(b"\0")[0].decode("utf-8", "replace")
