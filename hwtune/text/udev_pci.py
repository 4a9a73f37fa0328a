"""PCI functions in the output of ``udevadm info --export-db`` (udevadm(8))."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def records(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """(device path below /sys, properties) of each PCI function."""
    path: str | None = None
    properties: dict[str, str] = {}
    for line in text.splitlines():
        mark, rest = line[:3], line[3:].rstrip()
        if mark == "P: ":
            if path is not None and properties.get("SUBSYSTEM") == "pci":
                yield path, properties
            path, properties = rest, {}
        elif mark == "E: ":
            key, sign, value = rest.partition("=")
            if sign:
                properties[key] = value
    if path is not None and properties.get("SUBSYSTEM") == "pci":
        yield path, properties


def name(properties: dict[str, str]) -> str | None:
    """Maker and model as the hardware database of udev has them."""
    words = [properties.get(f"ID_{kind}_FROM_DATABASE", "") for kind in ("VENDOR", "MODEL")]
    return " ".join(word for word in words if word) or None


def parse_database(text: str) -> dict[str, str]:
    """A file of /run/udev/data: lines "E:KEY=VALUE" among others."""
    pairs = (line[2:].partition("=") for line in text.splitlines() if line.startswith("E:"))
    return {key: value for key, sign, value in pairs if sign}
