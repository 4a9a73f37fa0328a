"""``ibstat`` and ``ibstatus`` (infiniband-diags), and the same words in /sys/class/infiniband."""

from __future__ import annotations

import re
from typing import NamedTuple

# The states of a port by their numbers (InfiniBand Architecture Specification, PortInfo), as
# drivers/infiniband/core/sysfs.c writes them and as ibstat does.
STATES = {1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE", 5: "ACTIVE_DEFER"}
PHYSICAL = {
    1: "Sleep",
    2: "Polling",
    3: "Disabled",
    4: "PortConfigurationTraining",
    5: "LinkUp",
    6: "LinkErrorRecovery",
    7: "Phy Test",
}
_SPELLED = {"down": "DOWN", "initializing": "INIT", "init": "INIT", "armed": "ARMED", "active": "ACTIVE"}
_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) ?(?:Gb/sec)?(?: \((\d{1,2})X ?([A-Z0-9]{0,8})\))?", re.ASCII)


class Rate(NamedTuple):
    gbps: float
    lanes: int | None  # 1, 2, 4, 8, 12
    speed: str  # EDR, HDR ...; "" where it is not given


class PortText(NamedTuple):
    """One port; fields as printed, "" where it does not say."""

    device: str
    port: int
    fields: dict[str, str]  # "State", "Physical state", "Rate", "Link layer", "Base lid" ...


def state(text: str) -> str:
    """DOWN, INIT ... of "4: ACTIVE" or "Active". Raises ``ValueError`` for anything else."""
    return _named(text, STATES, _SPELLED)


def physical_state(text: str) -> str:
    """LinkUp, Polling ... of "5: LinkUp" or "LinkUp". Raises ``ValueError`` for anything else."""
    return _named(text, PHYSICAL, {name.lower(): name for name in PHYSICAL.values()})


def _named(text: str, names: dict[int, str], spelled: dict[str, str]) -> str:
    number, colon, word = text.partition(":")
    if not colon:
        return _known(spelled, text.strip().lower())
    name = names.get(int(number))
    if name is None or name != word.strip():
        raise ValueError(f"no such state: {text[:40]!r}")
    return name


def _known(spelled: dict[str, str], word: str) -> str:
    if word not in spelled:
        raise ValueError(f"no such state: {word[:40]!r}")
    return spelled[word]


def rate(text: str) -> Rate:
    """Of "400 Gb/sec (4X NDR)", or the bare number of ibstat. Raises ``ValueError``."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise ValueError("no rate")
    return Rate(float(match[1]), int(match[2]) if match[2] else None, match[3] or "")


_CA = re.compile(r"CA '([^']{1,64})'\s*$")
_PORT = re.compile(r"\s+Port (\d{1,3}):\s*$", re.ASCII)


def parse(text: str) -> list[PortText]:
    """Ports of ``ibstat``. What it says of the adapter ("Firmware version", "CA type") is with
    each of its ports."""
    found: list[PortText] = []
    device = ""
    shared: dict[str, str] = {}
    port: PortText | None = None
    for line in text.splitlines():
        card = _CA.match(line)
        here = _PORT.match(line)
        if card:
            device, shared, port = card[1], {}, None
        elif here and device:
            port = PortText(device, int(here[1]), dict(shared))
            found.append(port)
        else:
            key, colon, value = line.strip().partition(":")
            if colon and device:
                (shared if port is None else port.fields)[key] = value.strip()
    return found


_STATUS = re.compile(r"Infiniband device '([^']{1,64})' port (\d{1,3}) status:", re.ASCII)
# what ibstatus calls the fields -> what ibstat does
_STATUS_NAMES = {
    "state": "State",
    "phys state": "Physical state",
    "rate": "Rate",
    "link_layer": "Link layer",
    "base lid": "Base lid",
    "sm lid": "SM lid",
}


def parse_status(text: str) -> list[PortText]:
    """Ports of ``ibstatus``."""
    found: list[PortText] = []
    for line in text.splitlines():
        head = _STATUS.match(line.strip())
        if head:
            found.append(PortText(head[1], int(head[2]), {}))
        elif found:
            key, colon, value = line.strip().partition(":")
            if colon and key in _STATUS_NAMES:
                found[-1].fields[_STATUS_NAMES[key]] = value.strip()
    return found
