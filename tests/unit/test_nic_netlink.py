"""The ethtool library against a kernel made of bytes, and against the real one."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.host.libraries import LibraryGap, _ethtool_ioctl, _genetlink, ethtool

# -- messages, put together here by the layouts of linux/netlink.h, genetlink.h and ethtool_netlink.h --------


def attr(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", len(value) + 4, kind) + value + bytes(-len(value) % 4)


def nest(kind: int, *inner: bytes) -> bytes:
    return attr(kind | 0x8000, b"".join(inner))


def u32(value: int) -> bytes:
    return struct.pack("=I", value)


def u64(value: int) -> bytes:
    return struct.pack("=Q", value)


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def bits(kind: int, names: list[tuple[str, bool]], mask: bool = True) -> bytes:
    """A verbose bitset: size, and each bit's index, name and, where it is set, its value flag."""
    listed = [
        nest(1, attr(1, u32(n)), attr(2, text(name)), *([attr(3, b"")] if on and mask else []))
        for n, (name, on) in enumerate(names)
    ]
    return nest(kind, *([] if mask else [attr(1, b"")]), attr(2, u32(64)), nest(3, *listed))


def message(kind: int, sequence: int, payload: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(payload), kind, 0, sequence, 0) + payload + bytes(-len(payload) % 4)


ETHTOOL, NETDEV = 21, 24
FAMILIES = {"ethtool": ETHTOOL, "netdev": NETDEV}


class FakeKernel:
    """A netlink socket whose kernel answers each (family, command) with these attributes, or an errno."""

    def __init__(self, answers: dict[tuple[int, int], bytes | int], noise: bytes = b"") -> None:
        self.answers = answers
        self.noise = noise
        self.asked: list[tuple[int, int, bytes]] = []
        self.closed = False
        self._out: list[bytes] = []

    def __call__(self, family: int, kind: int, protocol: int) -> FakeKernel:
        assert (family, protocol) == (socket.AF_NETLINK, 16)
        assert kind & socket.SOCK_RAW
        return self

    def settimeout(self, seconds: float) -> None:
        assert seconds <= 5

    def bind(self, address: tuple[int, int]) -> None:
        assert address == (0, 0)

    def close(self) -> None:
        self.closed = True

    def send(self, data: bytes) -> int:
        length, family, flags, sequence, port = struct.unpack_from("=IHHII", data)
        command, version, reserved = struct.unpack_from("=BBH", data, 16)
        assert (length, port, version, reserved) == (len(data), 0, 1, 0)
        assert flags == 0x5  # NLM_F_REQUEST | NLM_F_ACK: a question about one thing
        self.asked.append((family, command, data[20:]))
        answer: bytes | int
        if family == 16:
            name = data[24:].partition(b"\0")[0].decode()
            answer = (
                attr(2, text(name)) + attr(1, struct.pack("=H", FAMILIES[name])) if name in FAMILIES else 2
            )
        else:
            answer = self.answers.get((family, command), errno.EOPNOTSUPP)
        reply = b"" if isinstance(answer, int) else message(family, sequence, bytes(4) + answer)
        code = answer if isinstance(answer, int) else 0
        end = message(2, sequence, struct.pack("=i", -code) + data[:16])
        # some kernels answer in one datagram, some in two
        self._out += [self.noise + reply + end] if self.noise else [reply, end] if reply else [end]
        return len(data)

    def recv(self, size: int) -> bytes:
        if not self._out:
            raise TimeoutError("timed out")
        return self._out.pop(0)[:size]


HEADER = nest(1, attr(1, u32(7)), attr(2, text("eth9")))
FEATURES = [("rx-gro", True), ("rx-lro", True), ("", False), ("rx-hashing", False)]
ANSWERS: dict[tuple[int, int], bytes | int] = {
    # LINKMODES_GET: autoneg, ours (value: advertised, mask: supported), peer, speed
    (ETHTOOL, 4): HEADER
    + attr(2, b"\1")
    + bits(3, [("Autoneg", True), ("1000baseT/Full", True), ("10000baseT/Full", False)])
    + bits(4, [("1000baseT/Full", True)], mask=False)
    + attr(5, u32(1000)),
    # FEATURES_GET: hw (value: changeable), wanted, active, nochange
    (ETHTOOL, 11): HEADER
    + bits(2, FEATURES)
    + bits(4, [("rx-gro", True), ("highdma", True)], mask=False)
    + bits(5, [("highdma", True)], mask=False),
    # RINGS_GET: rx-max, rx-mini-max, tx-max, rx, tx, tcp-data-split (u8)
    (ETHTOOL, 15): HEADER
    + b"".join(attr(k, u32(v)) for k, v in ((2, 4096), (3, 0), (5, 2048), (6, 512), (9, 256)))
    + attr(11, b"\0"),
    # CHANNELS_GET
    (ETHTOOL, 17): HEADER + attr(5, u32(63)) + attr(9, u32(8)),
    # COALESCE_GET: rx-usecs, rx-max-frames, use-adaptive-rx (u8), tx-usecs
    (ETHTOOL, 19): HEADER + attr(2, u32(20)) + attr(3, u32(128)) + attr(11, b"\1") + attr(6, u32(50)),
    # PAUSE_GET: autoneg, rx, tx, stats (tx and rx frames)
    (ETHTOOL, 21): HEADER
    + attr(2, b"\0")
    + attr(3, b"\1")
    + attr(4, b"\1")
    + nest(5, attr(2, u64(2**64 - 1)), attr(3, u64(5_000_000_000))),
    # netdev's dev-get: ifindex, xdp-features (bits 0, 1, 3)
    (NETDEV, 1): attr(1, u32(7)) + attr(3, u64(0b1011)),
}


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(answers: dict[tuple[int, int], bytes | int], **options: Any) -> FakeKernel:
        fake = FakeKernel(answers, **options)
        monkeypatch.setattr(_genetlink.socket, "socket", fake)
        monkeypatch.setattr(ethtool.socket, "if_nametoindex", lambda name: 7)
        return fake

    return install


def test_settings_of_one_interface(kernel: Any) -> None:
    fake = kernel(ANSWERS)
    assert ethtool.query("settings", "eth9") == {
        "rings": {"rx_max": 4096, "tx_max": 2048, "rx": 512, "tx": 256},
        "channels": {"combined_max": 63, "combined": 8},
        "coalescing": {"rx_usecs": 20, "rx_max_frames": 128, "use_adaptive_rx": 1, "tx_usecs": 50},
        "link": {
            "autoneg": True,
            "supported": ["Autoneg", "1000baseT/Full", "10000baseT/Full"],
            "advertised": ["Autoneg", "1000baseT/Full"],
            "partner": ["1000baseT/Full"],
        },
        "features": {"rx-gro": True, "rx-lro": False, "rx-hashing": False},
        "changeable": ["rx-gro", "rx-lro"],
        "pause": {"autoneg": False, "rx": True, "tx": True, "rx_frames": 5_000_000_000},
        "xdp": ["basic", "redirect", "xsk-zerocopy"],
        "refused": {},
    }
    assert fake.closed
    # Each question names the interface; pause asks for its counters (flag 4), and nobody sets anything.
    questions = [(command, body) for family, command, body in fake.asked if family == ETHTOOL]
    assert [command for command, _ in questions] == [15, 17, 19, 4, 11, 21]
    name = attr(2, b"eth9\0")
    assert {body for command, body in questions if command != 21} == {nest(1, name)}
    assert questions[-1][1] == nest(1, name, attr(3, u32(4)))


def test_a_driver_that_offers_nothing(kernel: Any) -> None:
    kernel({(ETHTOOL, 11): ANSWERS[ETHTOOL, 11], (NETDEV, 1): attr(1, u32(7))})
    said = ethtool.query("settings", "eth9")
    assert said["refused"] == dict.fromkeys(
        ("rings", "channels", "coalescing", "link", "pause"), "EOPNOTSUPP"
    )
    assert set(said) == {"features", "changeable", "refused"}


def test_a_kernel_without_the_flag_for_pause_counters(kernel: Any) -> None:
    """Kernels before 5.10 refuse flags that they do not know."""

    class Old(FakeKernel):
        def send(self, data: bytes) -> int:
            family, command = struct.unpack_from("=H", data, 4)[0], data[16]
            known = self.answers[ETHTOOL, 21]
            if family == ETHTOOL and command == 21:
                self.answers[ETHTOOL, 21] = errno.EOPNOTSUPP if len(data) > 36 else attr(3, b"\1")
            done = super().send(data)
            self.answers[ETHTOOL, 21] = known
            return done

    fake = Old(dict(ANSWERS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_genetlink.socket, "socket", fake)
        patch.setattr(ethtool.socket, "if_nametoindex", lambda name: 7)
        said = ethtool.query("settings", "eth9")
    assert said["pause"] == {"rx": True}
    assert said["refused"] == {}


def test_errors_are_told_apart(kernel: Any) -> None:
    kernel({**ANSWERS, (ETHTOOL, 17): errno.EIO, (ETHTOOL, 15): errno.ENODEV})
    said = ethtool.query("settings", "eth9")
    assert said["refused"] == {"channels": "EIO", "rings": "ENODEV"}
    assert said["coalescing"]["rx_usecs"] == 20


def test_a_kernel_without_ethtool_in_netlink(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = kernel(ANSWERS)
    monkeypatch.setitem(FAMILIES, "ethtool", 0)
    monkeypatch.delitem(FAMILIES, "ethtool")
    with pytest.raises(LibraryGap) as told:
        ethtool.query("settings", "eth9")
    assert told.value.kind == "unreadable"
    assert fake.closed


def test_a_kernel_without_netdev_in_netlink(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(ANSWERS)
    monkeypatch.delitem(FAMILIES, "netdev")
    said = ethtool.query("settings", "eth9")
    assert said["refused"] == {"xdp": "ENOENT"}
    assert "xdp" not in said


def test_answers_to_other_questions_are_left_out(kernel: Any) -> None:
    """The late end of an answer that was given up, and messages cut short."""
    late = message(ETHTOOL, 4_000_000, bytes(4) + attr(9, u32(1))) + message(
        2, 4_000_000, struct.pack("=i", -5)
    )
    kernel(ANSWERS, noise=late)
    assert ethtool.query("settings", "eth9")["channels"] == {"combined_max": 63, "combined": 8}


def test_silence_ends(kernel: Any) -> None:
    fake = kernel(ANSWERS)
    fake.recv = lambda size: (_ for _ in ()).throw(TimeoutError("timed out"))
    with pytest.raises(OSError):
        ethtool.query("settings", "eth9")
    assert fake.closed


@pytest.mark.parametrize(
    "data", [b"", b"\1", b"\4\0\1\0", b"\x10\0\1\0\0", struct.pack("=HH", 3, 1), struct.pack("=HH", 400, 1)]
)
def test_broken_attributes_are_no_loop(data: bytes) -> None:
    assert _genetlink.attributes_of(data) in ([], [(1, b"")])


@given(st.binary(max_size=300))
def test_no_bytes_stop_the_parsers(data: bytes) -> None:
    assert len(_genetlink._messages(data)) <= len(data) // 16
    assert len(_genetlink.attributes_of(data)) <= len(data) // 4
    listed, valued = ethtool._bits(data)
    assert set(valued) <= set(listed)


def test_no_such_question() -> None:
    with pytest.raises(ValueError):
        ethtool.query("reset", "eth0")


# -- ioctl ------------------------------------------------------------------------------------


class FakeDriver:
    """SIOCETHTOOL of a driver with these counters, written where the request points to."""

    def __init__(self, counters: dict[str, int], grows_by: int = 0) -> None:
        self.counters = counters
        self.grows_by = grows_by

    def __call__(self, handle: int, request: int, argument: bytes) -> int:
        assert request == 0x8946
        name, pointer = struct.unpack_from("16sP", argument)
        assert name == b"eth9" + bytes(12)
        (command,) = struct.unpack("=I", ctypes.string_at(pointer, 4))
        names = list(self.counters)
        if command == 0x37:  # GSSET_INFO: the sets asked for, then their sizes
            answer = struct.pack("=IIQI", command, 0, 2 if names else 0, len(names))
            names += [f"late{n}" for n in range(self.grows_by)]
            self.counters = {**self.counters, **dict.fromkeys(names[len(self.counters) :], 0)}
        elif command == 0x1B:  # GSTRINGS
            answer = struct.pack("=III", command, 1, len(names))
            answer += b"".join(n.encode().ljust(32, b"\0") for n in names)
        elif command == 0x1D:  # GSTATS
            answer = struct.pack("=II", command, len(names)) + b"".join(map(u64, self.counters.values()))
        else:
            assert command == 0x03  # GDRVINFO
            fields = (b"ice", b"6.1", b"4.40 0x8001", b"0000:01:00.0")
            answer = struct.pack("=I", command) + b"".join(f.ljust(32, b"\0") for f in fields)
        ctypes.memmove(pointer, answer, len(answer))
        return 0


def test_counters_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        _ethtool_ioctl.fcntl, "ioctl", FakeDriver({"rx_packets": 7, "rx_out_of_buffer": 2**63})
    )
    assert ethtool.query("statistics", "eth9") == {"rx_packets": 7, "rx_out_of_buffer": 2**63}


def test_counters_that_grow_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues were added between the question of how many there are, and the answer."""
    monkeypatch.setattr(_ethtool_ioctl.fcntl, "ioctl", FakeDriver({"rx0": 1}, grows_by=64))
    found = ethtool.query("statistics", "eth9")
    assert len(found) == 65
    assert found["rx0"] == 1


def test_a_driver_without_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ethtool_ioctl.fcntl, "ioctl", FakeDriver({}))
    assert ethtool.query("statistics", "eth9") == {}


def test_driver_and_firmware(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ethtool_ioctl.fcntl, "ioctl", FakeDriver({}))
    assert ethtool.query("driver", "eth9") == {
        "driver": "ice",
        "version": "6.1",
        "firmware": "4.40 0x8001",
        "bus": "0000:01:00.0",
    }


def test_names_that_no_interface_can_have() -> None:
    for name in ("", "x" * 16):
        with pytest.raises(OSError):
            ethtool.query("statistics", name)


# -- the real kernel --------------------------------------------------------------------------


def _real() -> list[str]:
    found = []
    for name in os.listdir("/sys/class/net") if os.path.isdir("/sys/class/net") else ():
        folder = Path("/sys/class/net", name)
        if (folder / "device").exists() and int((folder / "flags").read_text(), 16) & 1:
            found.append(name)
    return found


@pytest.mark.skipif(not _real(), reason="this machine has no network interface with a device that is up")
def test_this_machines_interfaces() -> None:
    for name in _real():
        folder = Path("/sys/class/net", name)
        said = ethtool.query("settings", name)
        assert isinstance(said["features"].get("rx-gro"), bool)
        assert set(said["changeable"]) <= set(said["features"])
        channels = said.get("channels")
        if channels and channels.get("combined"):
            queues = [q for q in os.listdir(folder / "queues") if q.startswith("rx-")]
            assert len(queues) >= channels["combined"]
        driver = ethtool.query("driver", name)
        link = folder / "device" / "driver"
        if link.exists():
            assert driver["driver"] == link.resolve().name
        assert all(isinstance(v, int) for v in ethtool.query("statistics", name).values())


def test_an_interface_that_is_not_there() -> None:
    with pytest.raises(OSError) as told:
        ethtool.query("settings", "no-such-nic")
    assert told.value.errno == errno.ENODEV
