"""The library that asks NVMe drives: what it sends, and what it makes of each way to fail."""

from __future__ import annotations

import binascii
import errno
import os
import time

import pytest

from hwtune.fact import ABSENT, DENIED, INVALID, UNREADABLE
from hwtune.host.libraries import LibraryGap, _child, nvme_admin, nvme_hwmon
from hwtune.host.live import LiveHost
from tests.support import fake_nvme, tree
from tests.support.fake_nvme import FakeController, install

APST = (1, fake_nvme.apst((0, 1, 100)))


def controller(**changes):
    return FakeController(
        changes.pop("identify", fake_nvme.identify()),
        changes.pop("smart", fake_nvme.smart()),
        features={0x06: (1, b""), 0x0C: APST, 0x10: (353 << 16 | 363, b"")},
        **changes,
    )


def ask(monkeypatch, fake, device="nvme0"):
    install(monkeypatch, {"nvme0": fake})
    return nvme_admin.query(device)


def test_a_drive_that_has_everything(monkeypatch):
    fake = controller()
    said = ask(monkeypatch, fake)
    assert binascii.a2b_base64(said["identify"]["data"]) == fake.identify[:3072]
    assert binascii.a2b_base64(said["smart"]["data"]) == fake.smart
    assert said["apst"]["result"] == 1
    assert binascii.a2b_base64(said["apst"]["data"]) == APST[1]
    assert said["write_cache"] == {"result": 1}
    assert said["thermal_management"] == {"result": 353 << 16 | 363}
    assert said["hung"] is None


def test_what_is_sent_and_in_which_order():
    fake = controller()
    answers = list(_answers_of(fake))
    assert [name for name, _ in answers if name != "begun"] == [
        "identify", "smart", "apst", "write_cache", "thermal_management",
    ]  # fmt: skip
    retain = 1 << 15
    assert fake.log == [(0x06, 1), (0x02, 127 << 16 | retain | 2), (0x0A, 0x0C), (0x0A, 0x06), (0x0A, 0x10)]


def _answers_of(fake):
    """In this process, so that the fake's log is ours."""
    with pytest.MonkeyPatch.context() as patch:
        install(patch, {"nvme0": fake})
        descriptor = os.open("/dev/nvme0", os.O_RDONLY)
        yield from nvme_admin._answers(descriptor)
        os.close(descriptor)


def test_before_1_3_the_bit_that_retains_events_is_reserved():
    fake = controller(identify=fake_nvme.identify(version=0x10201))
    list(_answers_of(fake))
    assert fake.log[1] == (0x02, 127 << 16 | 2)


def test_closed_gates_send_nothing():
    fake = controller(identify=fake_nvme.identify(apsta=0, vwc=0, hctma=0))
    names = [name for name, _ in _answers_of(fake) if name != "begun"]
    assert names == ["identify", "smart"]
    assert [opcode for opcode, _ in fake.log] == [0x06, 0x02]


@pytest.mark.parametrize(
    "opcode", [0x00, 0x01, 0x04, 0x05, 0x08, 0x09, 0x0C, 0x0D, 0x10, 0x11, 0x80, 0x84, 0xC0]
)
def test_no_other_opcode_leaves(opcode, monkeypatch):
    fake = controller()
    install(monkeypatch, {"nvme0": fake})
    descriptor = os.open("/dev/nvme0", os.O_RDONLY)
    with pytest.raises(ValueError, match="not one that reads"):
        nvme_admin.admin(descriptor, opcode, 0, 0, 0)
    assert fake.log == []
    os.close(descriptor)


def test_the_allow_list_is_three_opcodes_that_read():
    assert sorted(nvme_admin._READS) == [0x02, 0x06, 0x0A]


def test_a_refusal_has_its_status(monkeypatch):
    said = ask(monkeypatch, controller(fails={(0x02, 0x02): 0x4006, (0x0A, 0x0C): 0x02}))
    assert said["smart"] == {"gap": [UNREADABLE, "NVMe status 0x006, Internal Error"], "status": 6}
    assert said["apst"]["gap"] == [UNREADABLE, "NVMe status 0x002, Invalid Field in Command"]
    assert said["write_cache"] == {"result": 1}


def test_what_needs_privilege_is_denied(monkeypatch):
    # The driver lets those without CAP_SYS_ADMIN identify, and nothing else.
    denied = OSError(errno.EACCES, "Permission denied")
    said = ask(
        monkeypatch,
        controller(fails={(0x02, 0x02): denied, (0x0A, 0x0C): denied, (0x0A, 0x06): OSError(errno.EIO, "")}),
    )
    assert "data" in said["identify"]
    assert said["smart"]["gap"] == [DENIED, "Permission denied"]
    assert said["apst"]["gap"][0] == DENIED
    assert said["write_cache"]["gap"] == [UNREADABLE, "Input/output error"]


def test_a_drive_that_does_not_identify_is_asked_no_more(monkeypatch):
    said = ask(monkeypatch, controller(fails={(0x06, 1): 0x371}))
    assert said["identify"]["gap"] == [UNREADABLE, "NVMe status 0x371, Command Aborted By Host"]
    assert "smart" not in said and "apst" not in said


def test_a_device_that_went_away_is_no_absence(monkeypatch):
    said = ask(monkeypatch, controller(fails={(0x06, 1): OSError(errno.ENODEV, "No such device")}))
    assert said["identify"]["gap"][0] == UNREADABLE


@pytest.mark.parametrize(
    ("failure", "kind", "detail"),
    [
        (OSError(errno.EACCES, "Permission denied"), DENIED, "/dev/nvme0: Permission denied"),
        (OSError(errno.EWOULDBLOCK, "Resource temporarily unavailable"), UNREADABLE, "/dev/nvme0: Resource"),
        (OSError(errno.ENODEV, "No such device"), UNREADABLE, "there is no /dev/nvme0 here"),
        (None, UNREADABLE, "there is no /dev/nvme0 here"),
    ],
)
def test_a_device_that_cannot_be_opened(monkeypatch, failure, kind, detail):
    install(monkeypatch, {"nvme0": failure} if failure else {})
    with pytest.raises(LibraryGap) as raised:
        nvme_admin.query("nvme0")
    assert raised.value.kind == kind
    assert raised.value.detail.startswith(detail)


@pytest.mark.parametrize("name", ["nvme0n1", "../nvme0", "sda", "", "nvme0\n", "nvme"])
def test_only_controllers_are_opened(name):
    with pytest.raises(LibraryGap) as raised:
        nvme_admin.query(name)
    assert raised.value.kind == INVALID


def test_a_file_in_the_place_of_a_device(monkeypatch, tmp_path):
    path = tmp_path / "nvme0"
    path.write_text("")
    real = os.open
    monkeypatch.setattr(os, "open", lambda p, *rest: real(path if p == "/dev/nvme0" else p, *rest))
    with pytest.raises(LibraryGap, match="no character device"):
        nvme_admin.query("nvme0")


def test_a_drive_that_hangs_is_left_behind(monkeypatch):
    class Hanging(FakeController):
        def ioctl(self, descriptor, request, argument=0, mutate=True):
            if argument[0] == 0x02:
                time.sleep(60)
            return super().ioctl(descriptor, request, argument, mutate)

    fake = Hanging(fake_nvme.identify(), fake_nvme.smart())
    monkeypatch.setattr(nvme_admin, "WAIT_S", 0.2)
    began = time.monotonic()
    said = ask(monkeypatch, fake)
    assert time.monotonic() - began < 5
    assert said["hung"] == "smart"
    assert "data" in said["identify"]
    assert "smart" not in said


def test_what_the_fake_refuses_fails_the_test(monkeypatch):
    """A command that the driver would not know must not look like an answer."""
    install(monkeypatch, {"nvme0": FakeController(fake_nvme.identify(), fake_nvme.smart(), features={})})
    with pytest.raises(RuntimeError, match="AssertionError"):
        nvme_admin.query("nvme0")


def test_through_the_live_host(monkeypatch):
    install(monkeypatch, {"nvme0": controller()})
    host = LiveHost()
    assert host.ask("nvme_admin", "nvme0").known
    gone = host.ask("nvme_admin", "nvme1")
    assert (gone.gap, gone.source) == (UNREADABLE, "nvme_admin(nvme1)")


# -- the child ----------------------------------------------------------------------------


def test_answers_come_back_in_their_order_and_a_later_one_wins():
    said, ended = _child.collect(lambda: iter([("a", 1), ("b", [None, "x"]), ("a", {"k": 2})]), 5)
    assert (said, ended) == ({"a": {"k": 2}, "b": [None, "x"]}, True)


def test_no_child_is_left():
    _child.collect(lambda: iter([("a", 1)]), 5)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_large_answers_come_whole():
    said, ended = _child.collect(lambda: iter([("a", "x" * 300_000)]), 5)
    assert ended and len(said["a"]) == 300_000


def test_a_defect_is_raised_here():
    def broken():
        yield "a", 1
        raise KeyError("b")

    with pytest.raises(RuntimeError, match="KeyError"):
        _child.collect(broken, 5)


# -- the kernel's sensor ------------------------------------------------------------------


@pytest.mark.parametrize("place", ["hwmon3", "device/hwmon/hwmon3"])
def test_sensor(monkeypatch, tmp_path, place):
    folder = tmp_path / "nvme0"
    tree(
        folder,
        {f"{place}/temp1_input": "41850\n", f"{place}/temp1_max": "-273150\n", f"{place}/name": "nvme"},
    )
    monkeypatch.setattr(nvme_hwmon, "_CLASS", str(tmp_path))
    said = nvme_hwmon.query("nvme0")
    assert said == {"path": str(folder / place), "temp1_input": 42, "temp1_max": -273, "hung": None}


def test_no_sensor(monkeypatch, tmp_path):
    monkeypatch.setattr(nvme_hwmon, "_CLASS", str(tmp_path))
    with pytest.raises(LibraryGap) as raised:
        nvme_hwmon.query("nvme0")
    assert raised.value.kind == ABSENT
    with pytest.raises(LibraryGap):
        nvme_hwmon.query("../nvme0")
