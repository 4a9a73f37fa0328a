"""An NVMe controller behind the ioctl: what the library sends is checked as the driver would."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from typing import Any

import pytest

# struct nvme_passthru_cmd of include/uapi/linux/nvme_ioctl.h, field by field.
FIELDS = (
    "opcode", "flags", "rsvd1", "nsid", "cdw2", "cdw3", "metadata", "addr", "metadata_len", "data_len",
    "cdw10", "cdw11", "cdw12", "cdw13", "cdw14", "cdw15", "timeout_ms", "result",
)  # fmt: skip
LAYOUT = "=BBHIIIQQIIIIIIIIII"
ADMIN_CMD = 0xC0484E41


def identify(
    *,
    model: str = "ACME Fast 960",
    serial: str = "SN0001",
    firmware: str = "FW1",
    version: int = 0x10400,
    apsta: int = 1,
    wctemp: int = 343,
    cctemp: int = 353,
    hmpre: int = 0,
    hctma: int = 1,
    vwc: int = 1,
    states: tuple[tuple[int, int, int, int], ...] = ((900, 0, 0, 0), (450, 2, 2000, 3000)),
) -> bytes:
    """Identify Controller; states are (maximum power, flags, entry, exit latency)."""
    data = bytearray(4096)
    data[4:24] = serial.ljust(20).encode()
    data[24:64] = model.ljust(40).encode()
    data[64:72] = firmware.ljust(8).encode()
    struct.pack_into("<I", data, 80, version)
    data[263] = len(states) - 1
    data[265] = apsta
    struct.pack_into("<HH", data, 266, wctemp, cctemp)
    struct.pack_into("<I", data, 272, hmpre)
    struct.pack_into("<H", data, 322, hctma)
    data[525] = vwc
    for index, (power, flags, enter, leave) in enumerate(states):
        struct.pack_into("<HBBII", data, 2048 + 32 * index, power, 0, flags, enter, leave)
    return bytes(data)


def smart(
    *,
    warning: int = 0,
    kelvin: int = 313,
    spare: int = 100,
    threshold: int = 10,
    used: int = 3,
    read: int = 0,
    written: int = 0,
    cycles: int = 20,
    hours: int = 1000,
    unsafe: int = 2,
    media: int = 0,
    errors: int = 0,
    warning_minutes: int = 0,
    critical_minutes: int = 0,
    transitions: tuple[int, int] = (0, 0),
    seconds: tuple[int, int] = (0, 0),
) -> bytes:
    """The SMART / Health log."""
    data = bytearray(512)
    data[0] = warning
    struct.pack_into("<H", data, 1, kelvin)
    data[3:6] = bytes((spare, threshold, used))
    for at, value in (
        (32, read),
        (48, written),
        (112, cycles),
        (128, hours),
        (144, unsafe),
        (160, media),
        (176, errors),
    ):
        data[at : at + 16] = value.to_bytes(16, "little")
    struct.pack_into("<II", data, 192, warning_minutes, critical_minutes)
    struct.pack_into("<IIII", data, 216, *transitions, *seconds)
    return bytes(data)


def apst(*transitions: tuple[int, int, int]) -> bytes:
    """The table of feature 0Ch from (state, target, idle milliseconds)."""
    data = bytearray(256)
    for state, target, idle_ms in transitions:
        struct.pack_into("<Q", data, 8 * state, target << 3 | idle_ms << 8)
    return bytes(data)


class FakeController:
    """Answers from bytes. ``features``: id -> (result, data). ``fails``: (opcode, word 10's low byte)
    -> an NVMe status, or an ``OSError`` to raise."""

    def __init__(
        self,
        identify_data: bytes,
        smart_data: bytes,
        features: dict[int, tuple[int, bytes]] | None = None,
        fails: dict[tuple[int, int], int | OSError] | None = None,
    ) -> None:
        self.identify = identify_data
        self.smart = smart_data
        self.features = features or {}
        self.fails = fails or {}
        self.log: list[tuple[int, int]] = []

    def ioctl(self, descriptor: int, request: int, argument: Any = 0, mutate: bool = True) -> int:
        """What the driver does with NVME_IOCTL_ADMIN_CMD; anything unexpected is an AssertionError."""
        assert request == ADMIN_CMD, hex(request)
        assert isinstance(argument, bytearray) and len(argument) == 72
        command = dict(zip(FIELDS, struct.unpack(LAYOUT, argument), strict=True))
        unused = ("flags", "rsvd1", "cdw2", "cdw3", "metadata", "metadata_len")
        unused += ("cdw11", "cdw12", "cdw13", "cdw14", "cdw15", "result")
        assert not any(command[name] for name in unused), command
        # The driver resets a controller whose command ran out of its own time.
        assert command["timeout_ms"] == 0
        opcode, word10 = command["opcode"], command["cdw10"]
        self.log.append((opcode, word10))
        failure = self.fails.get((opcode, word10 & 0xFF))
        if isinstance(failure, OSError):
            raise failure
        if failure is not None:
            return failure
        result, data = self._answer(opcode, word10, command["nsid"])
        assert command["data_len"] == len(data), command
        assert bool(command["addr"]) == bool(data)
        if data:
            ctypes.memmove(command["addr"], data, len(data))
        struct.pack_into("=I", argument, 68, result)
        return 0

    def _answer(self, opcode: int, word10: int, nsid: int) -> tuple[int, bytes]:
        if opcode == 0x06:
            assert word10 == 1 and nsid == 0
            return 0, self.identify
        if opcode == 0x02:
            assert word10 & 0xFF == 2 and word10 >> 16 == 127 and nsid == 0xFFFFFFFF
            version = int.from_bytes(self.identify[80:84], "little")
            assert bool(word10 & 1 << 15) == (version >= 0x10300), "the event must be retained"
            return 0, self.smart
        assert opcode == 0x0A, f"opcode 0x{opcode:02x} must never be sent"
        assert nsid == 0 and word10 in self.features, hex(word10)
        return self.features[word10]


def install(monkeypatch: Any, controllers: dict[str, FakeController | OSError]) -> None:
    """Let the library find these controllers ("nvme0") in /dev."""
    opened: dict[int, FakeController] = {}
    real_open = os.open

    def open_(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if not str(path).startswith("/dev/nvme"):
            return real_open(path, flags, *rest, **more)
        assert flags & os.O_ACCMODE == os.O_RDONLY
        controller = controllers.get(str(path)[5:])
        if controller is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if isinstance(controller, OSError):
            raise controller
        descriptor = real_open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        opened[descriptor] = controller
        return descriptor

    def ioctl(descriptor: int, request: int, argument: Any = 0, mutate: bool = True) -> int:
        return opened[descriptor].ioctl(descriptor, request, argument, mutate)

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(fcntl, "ioctl", ioctl)


def said(controller: FakeController) -> dict[str, Any]:
    """What the library makes of this controller, as ``Host.ask("nvme_admin", NAME)`` gives it."""
    from hwtune.host.libraries import nvme_admin

    with pytest.MonkeyPatch.context() as patch:
        install(patch, {"nvme0": controller})
        return nvme_admin.query("nvme0")
