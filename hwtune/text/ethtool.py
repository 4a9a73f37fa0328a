"""What the program ethtool prints of one interface (ethtool(8)), from version 2 to 6.

Names are those of the kernel: attributes of its netlink messages (rx_usecs, use_adaptive_rx) and its
own words for features (rx-lro). What a driver cannot do ("n/a") is left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_TITLE = r"\s*(?:Settings|(?:Ring|Channel|Coalesce|Pause|Offload) parameters|Features) for (\S{1,40}):\s*$"
# Proprietary modes of one maker, between two of its own devices: what no switch port has is not
# what a link could be.
_PROPRIETARY = (56_000,)


class Settings(NamedTuple):
    """Of ``ethtool IF``; None where it does not say. Speeds in Mb/s."""

    speed_mbps: int | None = None
    duplex: str | None = None  # full, half
    autoneg: bool | None = None
    link: bool | None = None
    supported: tuple[str, ...] = ()
    advertised: tuple[str, ...] = ()
    partner: tuple[str, ...] = ()


def interface(text: str) -> str:
    """The interface named in the title, "" where there is none."""
    for line in text.split("\n", 4)[:4]:
        match = re.match(_TITLE, line)
        if match:
            return match[1].partition("@")[0]
    return ""


def max_speed(modes: Iterable[str]) -> int | None:
    """The highest speed among link modes ("25000baseCR/Full", and ports and FEC, which have none)."""
    speeds = {_speed_of(mode) for mode in modes}
    return max((speed for speed in speeds if speed and speed not in _PROPRIETARY), default=None)


def _speed_of(mode: str) -> int | None:
    """Of "25000baseCR/Full"; None for what is not the name of a mode."""
    digits, base, _ = mode.partition("base")
    return _number(digits) if base and 1 < len(digits) < 8 else None


_LISTS = {
    "Supported link modes": "supported",
    "Advertised link modes": "advertised",
    "Link partner advertised link modes": "partner",
}


def settings(text: str) -> Settings:
    found: dict[str, str] = {}
    lists: dict[str, list[str]] = {name: [] for name in _LISTS.values()}
    current: list[str] | None = None
    for line in text.splitlines():
        key, colon, value = line.strip().partition(":")
        if colon:
            current = lists.get(_LISTS.get(key, ""))
            found.setdefault(key, value.strip())
        else:
            value = key  # modes go on in the lines below
        if current is not None:
            current.extend(word for word in value.split() if _speed_of(word))
    speed = re.match(r"(\d{1,9})Mb/s", found.get("Speed", ""))
    return Settings(
        speed_mbps=int(speed[1]) if speed else None,
        duplex={"Full": "full", "Half": "half"}.get(found.get("Duplex", "")),
        autoneg=_switch(found.get("Auto-negotiation", "")),
        link={"yes": True, "no": False}.get(found.get("Link detected", "").partition(" ")[0]),
        supported=tuple(lists["supported"]),
        advertised=tuple(lists["advertised"]),
        partner=tuple(lists["partner"]),
    )


def _switch(text: str) -> bool | None:
    return {"on": True, "off": False}.get(text.partition(" ")[0])


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


def rings(text: str) -> dict[str, int]:
    """rx, rx_max, tx, tx_max."""
    return _with_maximums(text, {"RX": "rx", "TX": "tx"})


def channels(text: str) -> dict[str, int]:
    """rx, tx, other, combined, and each with _max."""
    return _with_maximums(text, {"RX": "rx", "TX": "tx", "Other": "other", "Combined": "combined"})


def _with_maximums(text: str, names: dict[str, str]) -> dict[str, int]:
    found: dict[str, int] = {}
    suffix: str | None = None
    for line in text.splitlines():
        key, colon, value = line.strip().partition(":")
        if key.startswith("Pre-set maximum"):
            suffix = "_max"
        elif key.startswith("Current hardware settings"):
            suffix = ""
        number = _number(value.strip())
        if colon and key in names and suffix is not None and number is not None:
            found[names[key] + suffix] = number
    return found


_COALESCE = {
    f"{way}-{key}": f"{way}_{name}"
    for way in ("rx", "tx")
    for key, name in (
        ("usecs", "usecs"),
        ("frames", "max_frames"),
        ("usecs-irq", "usecs_irq"),
        ("frames-irq", "max_frames_irq"),
    )
}
_ADAPTIVE = r"\s*Adaptive RX: (\S{1,8})\s+TX: (\S{1,8})"


def coalescing(text: str) -> dict[str, int]:
    """Microseconds and frames; use_adaptive_rx and use_adaptive_tx are 0 or 1."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        adaptive = re.match(_ADAPTIVE, line)
        if adaptive:
            for name, word in (("use_adaptive_rx", adaptive[1]), ("use_adaptive_tx", adaptive[2])):
                if word in ("on", "off"):
                    found[name] = int(word == "on")
            continue
        key, _, value = line.strip().partition(":")
        number = _number(value.strip())
        if key in _COALESCE and number is not None:
            found[_COALESCE[key]] = number
    return found


# What ethtool has called features since before the kernel named them itself.
_OLD_NAMES = {
    "rx-checksumming": "rx-checksum",
    "large-receive-offload": "rx-lro",
    "generic-receive-offload": "rx-gro",
    "generic-segmentation-offload": "tx-generic-segmentation",
    "rx-vlan-offload": "rx-vlan-hw-parse",
    "tx-vlan-offload": "tx-vlan-hw-insert",
    "ntuple-filters": "rx-ntuple-filter",
    "receive-hashing": "rx-hashing",
}


def features(text: str) -> tuple[dict[str, bool], list[str]]:
    """Name -> whether it is on, and the names of those that can be changed."""
    found: dict[str, bool] = {}
    changeable: list[str] = []
    for line in text.splitlines():
        key, colon, value = line.strip().partition(":")
        state = _switch(value.strip())
        if not colon or " " in key or state is None:
            continue
        name = _OLD_NAMES.get(key, key)
        found[name] = state
        if "[fixed]" not in value:
            changeable.append(name)
    return found, changeable


def pause(text: str) -> dict[str, bool]:
    """autoneg, rx, tx."""
    names = {"Autonegotiate": "autoneg", "RX": "rx", "TX": "tx"}
    found: dict[str, bool] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        name, state = names.get(key.strip()), _switch(value.strip())
        if name and state is not None:
            found[name] = state
    return found


def statistics(text: str) -> dict[str, int]:
    """The driver's counters. Raises ``ValueError`` where there is none."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, colon, value = line.strip().rpartition(":")
        number = _number(value.strip())
        if colon and number is not None:
            found[name.strip()] = number
    if not found:
        raise ValueError("no counter in it")
    return found


def driver(text: str) -> dict[str, str]:
    """driver, version, firmware, bus; "" where it gives none."""
    names = {
        "driver": "driver",
        "version": "version",
        "firmware-version": "firmware",
        "bus-info": "bus",
    }
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.strip().partition(":")
        if colon and key in names:
            found.setdefault(names[key], value.strip())
    return found
