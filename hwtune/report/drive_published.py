"""The shape of ``nvme-latency --format json``."""

from __future__ import annotations

import msgspec

from hwtune import __version__
from hwtune.drive.results import DriveReport
from hwtune.report.digest import moment
from hwtune.report.published import SCHEMA_VERSION, Tool


class NvmeLatencyReport(msgspec.Struct, frozen=True):
    """What ``hwtune nvme-latency --format json`` prints. ``captured_at`` in ISO 8601, UTC."""

    schema_version: str
    tool: Tool
    hostname: str | None
    kernel: str | None
    captured_at: str | None
    drive: DriveReport


def publish(drive: DriveReport, hostname: str, kernel: str, started: float) -> NvmeLatencyReport:
    return NvmeLatencyReport(
        SCHEMA_VERSION, Tool("hwtune", __version__), hostname, kernel, moment(started), drive
    )
