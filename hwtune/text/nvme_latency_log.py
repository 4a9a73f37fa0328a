"""The latency monitor log (C3h) of drives made for data centres: how often reads took how long, by the
drive's own clock.

Offsets and units: OCP Datacenter NVMe SSD Specification 2.0, "Latency Monitor Log Page"; nvme-cli,
plugins/ocp/ocp-nvme.c, struct ssd_latency_monitor_log.
"""

from __future__ import annotations

from typing import NamedTuple

LENGTH = 512
# Of the page, as it lies in memory.
GUID = bytes.fromhex("927ac08cd0846c9c7043e6d4585ed485")
_STEP_MS = 5
_THRESHOLDS, _COUNTERS, _BUCKETS, _KINDS, _READ = 6, 0x20, 4, 4, 3


class LatencyLog(NamedTuple):
    """``reads``: since the counters' last reset, from each threshold (milliseconds) up to the next one."""

    enabled: bool
    thresholds_ms: list[int]
    reads: list[int]


def decode(data: bytes) -> LatencyLog:
    """Raises ``ValueError`` for a page that is another one."""
    if len(data) < LENGTH or data[LENGTH - 16 : LENGTH] != GUID:
        raise ValueError("no latency monitor log")
    thresholds = [(data[_THRESHOLDS + i] + 1) * _STEP_MS for i in range(_BUCKETS)]
    places = [_COUNTERS + 4 * (_KINDS * bucket + _READ) for bucket in range(_BUCKETS)]
    reads = [int.from_bytes(data[at : at + 4], "little") for at in places]
    return LatencyLog(bool(data[0] & 1), thresholds, reads)
