"""The latency monitor log: asked of those drives alone that say whose log it is."""

from __future__ import annotations

import binascii
import os
import struct

import pytest

from hwtune.fact import ABSENT, UNREADABLE
from hwtune.host.libraries import LibraryGap, nvme_admin, nvme_latency_log
from hwtune.text.nvme_latency_log import GUID, decode
from tests.support import fake_nvme

OCP = bytes.fromhex("c194d55be0944794a21d29998f56be6f")
OTHER = bytes.fromhex("00112233445566778899aabbccddeeff")


def log(enabled: int = 1, reads: tuple[int, int, int, int] = (7, 5, 2, 1)) -> bytes:
    """Thresholds of 5, 10, 50 and 1,280 ms: in steps of 5, from 0 on."""
    data = bytearray(512)
    data[0] = enabled
    data[6:10] = bytes((0, 1, 9, 255))
    for bucket, count in enumerate(reads):
        struct.pack_into("<I", data, 0x20 + 16 * bucket + 12, count)
        struct.pack_into("<I", data, 0x20 + 16 * bucket + 8, 999)  # of writes
    data[496:] = GUID
    return bytes(data)


def uuid_list(*uuids: bytes) -> bytes:
    data = bytearray(4096)
    for index, uuid in enumerate(uuids, 1):
        data[32 * index + 16 : 32 * index + 32] = uuid
    return bytes(data)


class Controller(fake_nvme.FakeController):
    """Knows the list, and the page behind one index."""

    def __init__(self, has_list: bool, uuids: bytes, page: bytes, index: int) -> None:
        identify = bytearray(fake_nvme.identify())
        identify[97] = 2 if has_list else 0  # CTRATT bit 9
        super().__init__(bytes(identify), fake_nvme.smart())
        self.uuids, self.page, self.index = uuids, page, index

    def ioctl(self, descriptor, request, argument=0, mutate=True):
        command = dict(zip(fake_nvme.FIELDS, struct.unpack(fake_nvme.LAYOUT, argument), strict=True))
        if command["cdw14"]:
            assert (command["opcode"], command["cdw14"]) == (0x02, self.index)
            argument[56:60] = bytes(4)  # the base checks that all else is empty
        return super().ioctl(descriptor, request, argument, mutate)

    def _answer(self, opcode, word10, nsid):
        if (opcode, word10) == (0x06, 0x17):
            return 0, self.uuids
        if opcode == 0x02 and word10 & 0xFF == 0xC3:
            assert word10 >> 16 == 127 and nsid == 0xFFFFFFFF
            return 0, self.page
        return super()._answer(opcode, word10, nsid)


def ask(controller: Controller):
    with pytest.MonkeyPatch.context() as patch:
        fake_nvme.install(patch, {"nvme0": controller})
        return nvme_latency_log.query("nvme0")


def sent(controller: Controller) -> list[tuple[int, int]]:
    """In this process, so that the fake's log is ours."""
    with pytest.MonkeyPatch.context() as patch:
        fake_nvme.install(patch, {"nvme0": controller})
        descriptor = nvme_admin.open_controller("nvme0")
        try:
            list(nvme_latency_log._answers(descriptor))
        finally:
            os.close(descriptor)
    return controller.log


def test_the_page_of_a_drive_that_follows_the_specification() -> None:
    said = ask(Controller(True, uuid_list(OTHER, OCP), log(), 2))
    found = decode(binascii.a2b_base64(said["data"]))
    assert found.enabled
    assert found.thresholds_ms == [5, 10, 50, 1280]
    assert found.reads == [7, 5, 2, 1]


@pytest.mark.parametrize(
    "controller",
    [Controller(False, uuid_list(OCP), log(), 1), Controller(True, uuid_list(OTHER), log(), 1)],
    ids=["without a list", "not in its list"],
)
def test_others_pages_are_never_asked_for(controller: Controller) -> None:
    with pytest.raises(LibraryGap) as caught:
        ask(controller)
    assert caught.value.kind == ABSENT
    assert not any(word10 & 0xFF == 0xC3 for opcode, word10 in sent(controller) if opcode == 0x02)


def test_a_refusal_is_a_gap() -> None:
    controller = Controller(True, uuid_list(OCP), log(), 1)
    controller.fails = {(0x02, 0xC3): 0x109}
    with pytest.raises(LibraryGap) as caught:
        ask(controller)
    assert caught.value.kind == UNREADABLE


@pytest.mark.parametrize("data", [b"", bytes(512), log()[:-1], log()[:-16] + OTHER])
def test_another_page_is_none(data: bytes) -> None:
    with pytest.raises(ValueError, match="no latency monitor log"):
        decode(data)
