"""The older interface of ethtool, for what netlink does not tell: the driver, and its own counters.

Numbers and layouts of include/uapi/linux/ethtool.h (SIOCETHTOOL of linux/sockios.h).
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
import struct

SIOCETHTOOL = 0x8946
GDRVINFO, GSTRINGS, GSTATS, GSSET_INFO = 0x03, 0x1B, 0x1D, 0x37
SS_STATS, GSTRING_LEN = 1, 32
_MAX_COUNTERS = 32_768
# Their number may grow between the question of how many and the answer (somebody adds channels), and
# before Linux 6.19 the kernel wrote all of them, whatever room was given (ethtool_get_stats).
_SPARE = 4096


def driver(interface: str) -> dict[str, str]:
    data = _ask(interface, struct.pack("=I", GDRVINFO) + bytes(192))
    fields = {"driver": 4, "version": 36, "firmware": 68, "bus": 100}
    return {name: _text(data[offset : offset + 32]) for name, offset in fields.items()}


def statistics(interface: str) -> dict[str, int]:
    """{} where the driver has none."""
    info = _ask(interface, struct.pack("=IIQI", GSSET_INFO, 0, 1 << SS_STATS, 0))
    mask, count = struct.unpack_from("=QI", info, 8)
    if not mask or not count:
        return {}
    if count > _MAX_COUNTERS:
        raise OSError(errno.EOVERFLOW, os.strerror(errno.EOVERFLOW))
    room = count + _SPARE
    names = _ask(interface, struct.pack("=III", GSTRINGS, SS_STATS, count) + bytes(room * GSTRING_LEN))
    values = _ask(interface, struct.pack("=II", GSTATS, count) + bytes(room * 8))
    named, valued = struct.unpack_from("=I", names, 8)[0], struct.unpack_from("=I", values, 4)[0]
    if named != valued or not named:
        # newer kernels write nothing where the room would not do
        raise OSError(errno.EAGAIN, "the number of counters changed meanwhile")
    found: dict[str, int] = {}
    for i in range(min(named, room)):
        at = 12 + i * GSTRING_LEN
        found[_text(names[at : at + GSTRING_LEN])] = struct.unpack_from("=Q", values, 8 + i * 8)[0]
    return found


def _ask(interface: str, question: bytes) -> bytes:
    name = interface.encode()
    if not 0 < len(name) < 16:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
    buffer = array.array("B", question)
    # struct ifreq: the name, and a union whose first word points to the data
    request = struct.pack("16sP16x", name, buffer.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as handle:
        fcntl.ioctl(handle.fileno(), SIOCETHTOOL, request)
    return buffer.tobytes()


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace").strip()
