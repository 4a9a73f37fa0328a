"""The latency monitor log of a drive that follows the OCP Datacenter NVMe SSD Specification.

Pages from C0h on are each vendor's own. So it is asked for only where the drive has the specification's
UUID in its list, and by that UUID's index: another vendor's page cannot be hit.

``query(device)`` returns {"data": BASE64} or raises ``LibraryGap``: ABSENT where the drive does not follow
it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hwtune.fact import ABSENT, UNREADABLE
from hwtune.host.libraries import LibraryGap, _child, nvme_admin
from hwtune.text import nvme_latency_log

if TYPE_CHECKING:
    from collections.abc import Iterator

_PAGE = 0xC3
_UUID_LIST = 0x17  # CNS of Identify
_LIST_LENGTH, _ENTRY, _UUID_AT = 4096, 32, 16
# Identify Controller: CTRATT, and its bit that there is a UUID list (NVM Express Base Specification 2.0).
_ATTRIBUTES, _HAS_LIST = 96, 1 << 9
_OCP = bytes.fromhex("c194d55be0944794a21d29998f56be6f")


def query(device: str) -> dict[str, Any]:
    descriptor = nvme_admin.open_controller(device)
    try:
        answers, ended = _child.collect(lambda: _answers(descriptor), nvme_admin.WAIT_S)
    finally:
        os.close(descriptor)
    if not ended:
        raise LibraryGap(UNREADABLE, "no answer in time")
    if "gap" in answers:
        kind, detail = answers["gap"]
        raise LibraryGap(kind, detail)
    return {"data": answers["data"]}


def _answers(descriptor: int) -> Iterator[tuple[str, Any]]:
    try:
        data = _log(descriptor)
    except (OSError, nvme_admin.Refused) as error:
        yield "gap", nvme_admin.gap_of(error)["gap"]
        return
    if data is None:
        yield "gap", [ABSENT, "the drive does not follow the OCP specification"]
    else:
        yield "data", nvme_admin.base64(data)


def _log(descriptor: int) -> bytes | None:
    _, identify = nvme_admin.identify(descriptor)
    if not int.from_bytes(identify[_ATTRIBUTES : _ATTRIBUTES + 4], "little") & _HAS_LIST:
        return None
    _, listed = nvme_admin.admin(descriptor, nvme_admin.IDENTIFY, 0, _UUID_LIST, _LIST_LENGTH)
    index = index_of(listed)
    if index is None:
        return None
    words = nvme_latency_log.LENGTH // 4 - 1
    return nvme_admin.admin(
        descriptor, nvme_admin.GET_LOG_PAGE, 0xFFFFFFFF, words << 16 | _PAGE, nvme_latency_log.LENGTH, index
    )[1]


def index_of(listed: bytes) -> int | None:
    """Where the specification's UUID is in a UUID list: indices begin at 1, an entry of zeros ends it."""
    for index in range(1, len(listed) // _ENTRY):
        uuid = listed[_ENTRY * index + _UUID_AT : _ENTRY * (index + 1)]
        if uuid == _OCP:
            return index
        if not any(uuid):
            return None
    return None
