"""Disks and NVMe controllers in the output of ``udevadm info --export-db`` (udevadm(8))."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def records(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """(device path below /sys, properties) of each NVMe controller and each whole disk."""
    path: str | None = None
    properties: dict[str, str] = {}
    for line in [*text.splitlines(), "P: "]:
        mark, rest = line[:3], line[3:].rstrip()
        if mark == "P: ":
            if path and _is_ours(properties):
                yield path, properties
            path, properties = rest, {}
        elif mark == "E: ":
            key, sign, value = rest.partition("=")
            if sign:
                properties[key] = value


def _is_ours(properties: dict[str, str]) -> bool:
    subsystem = properties.get("SUBSYSTEM")
    return subsystem == "nvme" or (subsystem == "block" and properties.get("DEVTYPE") == "disk")
