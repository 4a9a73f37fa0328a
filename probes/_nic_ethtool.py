"""What the kernel's ethtool says of interfaces that are up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hwtune.fact import ABSENT, DENIED, NOT_CAPTURED, NOT_PROBED, UNREADABLE, Fact, gap, known
from hwtune.text.ethtool import max_speed

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwtune.host.base import Host
    from hwtune.model.network import Nic

# group -> the option of the program ethtool that shows it
OPTIONS = {
    "coalescing": "-c ",
    "rings": "-g ",
    "channels": "-l ",
    "features": "-k ",
    "pause": "-a ",
    "link": "",
}
_NUMBERS = ("coalescing", "rings", "channels")
_SHAPES: dict[str, Any] = {
    **dict.fromkeys(_NUMBERS, dict[str, int]),
    "features": dict[str, bool],
    "changeable": list[str],
    "pause": dict[str, bool | int],
    "link": dict[str, bool | list[str]],
}
# Drivers whose own counters rows ask about. Those that keep them in memory or a few registers; others
# have to ask their card for hundreds.
_COUNTING = ("ena",)
# ... and of these those that tell the kernel no pause frames
_COUNTING_PAUSES = ("e1000e", "i40e", "igb", "igc", "ixgbe")


def fill(host: Host, nics: list[Nic]) -> None:
    for nic in nics:
        if nic.admin_up.value is False:
            _without(nic, gap(NOT_PROBED, f"ethtool {nic.name}", "the interface is down"))
            continue
        asleep = host.text(f"{nic.source}/device/power/runtime_status")
        if asleep.value == "suspended":
            _without(nic, gap(UNREADABLE, asleep.source, "suspended, and asking it would wake it"))
            continue
        answer = host.ask("ethtool", "settings", nic.name).map(_shape(dict[str, Any]))
        if answer.known:
            _settings(nic, answer.get())
        else:
            _without(nic, answer)
        _driver(host, nic)
        if host.patient or host.kind != "live" or _has_to_count(nic):
            nic.driver_statistics = _counters(
                host.ask("ethtool", "statistics", nic.name), f"ethtool -S {nic.name}"
            )
        else:
            nic.driver_statistics = gap(
                NOT_PROBED, f"ethtool -S {nic.name}", "no row asks about this driver's"
            )


def _has_to_count(nic: Nic) -> bool:
    if nic.driver.value in _COUNTING:
        return True
    uncounted = nic.pause_frames.absent and bool((nic.pause.value or {}).get("rx"))
    return uncounted and nic.driver.value in _COUNTING_PAUSES


def source(group: str, name: str) -> str:
    return f"ethtool {OPTIONS[group]}{name}"


def _without(nic: Nic, why: Fact[Any]) -> None:
    """No answer at all: each setting says so under the name by which a person would ask."""
    for group in OPTIONS:
        place = source(group, nic.name)
        missing: Fact[Any] = Fact(None, place, why.gap, why.detail)
        if group == "link":
            nic.max_speed_mbps = nic.advertised_speed_mbps = nic.partner_speed_mbps = missing
            nic.autoneg = missing
        else:
            setattr(nic, group, missing)
    nic.changeable_features = nic.features.map(lambda _: [])
    nic.pause_frames = nic.pause.map(lambda _: {})
    nic.xdp_features = Fact(None, f"netdev (netlink), {nic.name}", why.gap, why.detail)
    if why.gap in (NOT_PROBED, UNREADABLE):
        nic.driver_statistics = Fact(None, f"ethtool -S {nic.name}", why.gap, why.detail)


def _settings(nic: Nic, said: dict[str, Any]) -> None:
    refused = known(said.get("refused") or {}, "").map(_shape(dict[str, str])).value or {}

    def group(name: str, key: str = "") -> Fact[Any]:
        place = f"{source(name, nic.name)} (netlink)"
        if (key or name) in said:
            return known(said[key or name], place).map(_shape(_SHAPES[key or name]))
        code = refused.get(name)
        if code in ("EPERM", "EACCES"):
            return gap(DENIED, place)
        if code == "EOPNOTSUPP" or code is None:
            return gap(ABSENT, place, "the driver does not offer it")
        return gap(UNREADABLE, place, str(code))

    for name in _NUMBERS:
        setattr(nic, name, group(name))
    nic.features = group("features")
    nic.changeable_features = group("features", "changeable")
    _pause(nic, group("pause"))
    link = group("link")
    nic.max_speed_mbps = _fastest(link, "supported")
    nic.advertised_speed_mbps = _fastest(link, "advertised")
    nic.partner_speed_mbps = _fastest(link, "partner")
    nic.autoneg = link.map(lambda found: bool(found.get("autoneg")))
    place = f"netdev (netlink), {nic.name}"
    if "xdp" in said:
        nic.xdp_features = known(said["xdp"], place).map(_shape(list[str]))
    elif refused.get("xdp") == "ENOENT":
        nic.xdp_features = gap(ABSENT, place, "a kernel before 6.3")
    else:
        nic.xdp_features = gap(UNREADABLE, place, str(refused.get("xdp", "no answer")))


def _pause(nic: Nic, said: Fact[dict[str, Any]]) -> None:
    nic.pause = said.map(lambda v: {k: bool(v[k]) for k in ("autoneg", "rx", "tx") if k in v})
    nic.pause_frames = said.map(lambda v: {k: v[f"{k}_frames"] for k in ("rx", "tx") if f"{k}_frames" in v})
    if nic.pause_frames.value == {}:
        nic.pause_frames = gap(ABSENT, said.source, "the driver does not count pause frames")


def _fastest(link: Fact[dict[str, Any]], key: str) -> Fact[int]:
    modes = link.map(lambda found: _shape(list[str])(found.get(key) or []))
    speed = modes.map(lambda names: max_speed(names) or 0)
    return gap(ABSENT, link.source, f"no {key} link modes") if speed.value == 0 else speed


def _shape(kind: Any) -> Callable[[Any], Any]:
    """Raises ``ValueError`` where an answer, which a snapshot may hold in any shape, is not a ``kind``."""
    return lambda value: msgspec.convert(value, kind)


def _driver(host: Host, nic: Nic) -> None:
    said = host.ask("ethtool", "driver", nic.name)
    place = f"ethtool -i {nic.name}"
    if not said.known or not isinstance(said.value, dict):
        nic.firmware = Fact(None, place, said.gap or UNREADABLE, said.detail)
        return
    text = str(said.value.get("firmware", "")).strip()
    nic.firmware = known(text, place) if text.strip("N/A") else gap(ABSENT, place, "no firmware version")
    if nic.driver.gap in (NOT_CAPTURED, NOT_PROBED) and said.value.get("driver"):
        nic.driver = known(str(said.value["driver"]), place)


def _counters(fact: Fact[Any], place: str) -> Fact[dict[str, int]]:
    return Fact(fact.value, place, fact.gap, fact.detail).map(_shape(dict[str, int]))
