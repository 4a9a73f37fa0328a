"""NVMe admin commands that read, through the driver's own ioctl (include/uapi/linux/nvme_ioctl.h).

Three opcodes and no other leave this module: Get Log Page, Identify, Get Features. A command is
sent only where Identify says that the drive knows what is asked for.

``query(device)`` returns JSON-able data, each answer under its name::

    {"identify": {"data": BASE64}, "smart": {"data": BASE64}, "apst": {"result": N, "data": BASE64},
     "write_cache": {"result": N}, "thermal_management": {"result": N}, "hung": null or NAME}

An answer may be {"gap": [KIND, DETAIL]} instead, with "status" where the drive refused. One whose
gate is closed is left out. "hung" names the command that had no answer in time.
"""

from __future__ import annotations

import array
import binascii
import errno
import fcntl
import os
import re
import stat
import struct
from typing import TYPE_CHECKING, Any

from hwtune.fact import DENIED, INVALID, UNREADABLE
from hwtune.host import gaps
from hwtune.host.libraries import LibraryGap, _child
from hwtune.text import nvme_identify, nvme_log

if TYPE_CHECKING:
    from collections.abc import Iterator

GET_LOG_PAGE = 0x02
IDENTIFY = 0x06
GET_FEATURES = 0x0A
_READS = frozenset((GET_LOG_PAGE, IDENTIFY, GET_FEATURES))

_ADMIN_CMD = 0xC0484E41  # NVME_IOCTL_ADMIN_CMD: _IOWR('N', 0x41, struct nvme_passthru_cmd)
# opcode, flags, reserved, nsid, cdw2, cdw3, metadata, address, metadata length, data length,
# cdw10 to cdw15, timeout (ms), result
_COMMAND = struct.Struct("=BBHIIIQQIIIIIIIIII")
_ALL_NAMESPACES = 0xFFFFFFFF

_CONTROLLER = 0x01  # CNS of Identify
_SMART = 0x02  # log page
_WRITE_CACHE, _APST, _THERMAL_MANAGEMENT = 0x06, 0x0C, 0x10  # features
# Bit 15 of Get Log Page: keep the asynchronous event that the page is about (since 1.3). Without it
# reading the log would take the event away from whoever waits for it.
_RETAIN_EVENT = 1 << 15
_HAS_RETAIN = 0x10300

_KEPT = 3072  # of Identify; what follows is the vendor's own
_DEVICE = re.compile(r"nvme\d{1,5}")

# How long doctor waits for a drive. The driver waits longer, and must: where a command's own time
# runs out, nvme_timeout() resets the controller (drivers/nvme/host/pci.c), which no reading tool may
# bring about. So commands carry no timeout (the driver's default), and the child is left behind.
WAIT_S = 5.0


class Refused(Exception):
    """The drive completed the command with an NVMe status other than success."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def query(device: str) -> dict[str, Any]:
    """All that the controller ``device`` ("nvme0") says. Raises ``LibraryGap``."""
    descriptor = open_controller(device)
    try:
        answers, ended = _child.collect(lambda: _answers(descriptor), WAIT_S)
    finally:
        os.close(descriptor)
    begun = answers.pop("begun", None)
    answers["hung"] = None if ended else begun or "identify"
    return answers


def open_controller(device: str) -> int:
    """Raises ``LibraryGap``."""
    if not _DEVICE.fullmatch(device):
        raise LibraryGap(INVALID, f"{device!r} is no NVMe controller")
    path = f"/dev/{device}"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as error:
        # No such node does not mean that there is no such drive: a container has none.
        if error.errno in (errno.ENOENT, errno.ENXIO, errno.ENODEV):
            raise LibraryGap(UNREADABLE, f"there is no {path} here") from None
        kind, detail = gaps.of_error(error)
        raise LibraryGap(kind, f"{path}: {detail}") from None
    if not stat.S_ISCHR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise LibraryGap(UNREADABLE, f"{path} is no character device")
    return descriptor


def _answers(descriptor: int) -> Iterator[tuple[str, Any]]:
    """In the child: each answer, and before each command its name as "begun"."""
    yield "begun", "identify"
    try:
        _, data = identify(descriptor)
    except (OSError, Refused) as error:
        yield "identify", gap_of(error)
        return
    yield "identify", {"data": base64(data[:_KEPT])}
    yield "begun", "smart"
    yield "smart", _answer(descriptor, "smart", _version(data))
    try:
        controller = nvme_identify.decode(data)
    except ValueError:
        return
    for name, gate in (
        ("apst", controller.apst),
        ("write_cache", controller.write_cache),
        ("thermal_management", controller.thermal_management),
    ):
        if gate:
            yield "begun", name
            yield name, _answer(descriptor, name)


def _version(identify: bytes) -> int:
    return int.from_bytes(identify[80:84], "little")


def _answer(descriptor: int, name: str, version: int = 0) -> dict[str, Any]:
    try:
        if name == "smart":
            return {"data": base64(_smart(descriptor, version))}
        if name == "apst":
            result, data = _feature(descriptor, _APST, nvme_log.APST_LENGTH)
            return {"result": result, "data": base64(data)}
        feature = _WRITE_CACHE if name == "write_cache" else _THERMAL_MANAGEMENT
        return {"result": _feature(descriptor, feature, 0)[0]}
    except (OSError, Refused) as error:
        return gap_of(error)


def identify(descriptor: int) -> tuple[int, bytes]:
    return admin(descriptor, IDENTIFY, 0, _CONTROLLER, nvme_identify.LENGTH)


def _smart(descriptor: int, version: int) -> bytes:
    words = nvme_log.LENGTH // 4 - 1
    retain = _RETAIN_EVENT if version >= _HAS_RETAIN else 0
    return admin(descriptor, GET_LOG_PAGE, _ALL_NAMESPACES, words << 16 | retain | _SMART, nvme_log.LENGTH)[1]


def _feature(descriptor: int, feature: int, length: int) -> tuple[int, bytes]:
    """The feature's current value (select 0), and its data structure where it has one."""
    return admin(descriptor, GET_FEATURES, 0, feature, length)


def admin(
    descriptor: int, opcode: int, namespace: int, word10: int, length: int, word14: int = 0
) -> tuple[int, bytes]:
    """Send one command that reads: its result (dword 0 of the completion) and its data.

    The only place that calls the ioctl. Raises ``ValueError`` for any opcode that does not just
    read, ``OSError`` from the driver, ``Refused`` from the drive.
    """
    if opcode not in _READS:
        raise ValueError(f"admin command 0x{opcode:02x} is not one that reads")
    data = array.array("B", bytes(length))
    address = data.buffer_info()[0] if length else 0
    command = bytearray(
        _COMMAND.pack(opcode, 0, 0, namespace, 0, 0, 0, address, 0, length, word10, 0, 0, 0, word14, 0, 0, 0)
    )
    status = fcntl.ioctl(descriptor, _ADMIN_CMD, command)
    if status > 0:
        raise Refused(status)
    return _COMMAND.unpack(command)[-1], data.tobytes()


def gap_of(error: OSError | Refused) -> dict[str, Any]:
    if isinstance(error, Refused):
        status = nvme_log.status_code(error.status)
        return {"gap": [UNREADABLE, nvme_log.status_name(status)], "status": status}
    kind, detail = gaps.of_error(error)
    return {"gap": [kind if kind == DENIED else UNREADABLE, detail or os.strerror(error.errno or 0)]}


def base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")
