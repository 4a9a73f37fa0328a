"""Settings of network interfaces, read by netlink and set by ethtool(8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.changes.system import ChangeError
from hwtune.changes.targets.base import Target, Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hwtune.changes.system import System

# group -> (ethtool's option, the group's name in netlink's answer, and where that calls a setting
# by another name, ethtool's name -> that one)
_COALESCING = {
    "rx-usecs": "rx_usecs",
    "rx-frames": "rx_max_frames",
    "rx-usecs-irq": "rx_usecs_irq",
    "rx-frames-irq": "rx_max_frames_irq",
    "tx-usecs": "tx_usecs",
    "tx-frames": "tx_max_frames",
    "tx-usecs-irq": "tx_usecs_irq",
    "tx-frames-irq": "tx_max_frames_irq",
    "adaptive-rx": "use_adaptive_rx",
    "adaptive-tx": "use_adaptive_tx",
}
_GROUPS: dict[str, tuple[str, str, dict[str, str]]] = {
    "coalesce": ("-C", "coalescing", _COALESCING),
    "rings": ("-G", "rings", {}),
    "channels": ("-L", "channels", {}),
    "features": ("-K", "features", {}),
    "pause": ("-A", "pause", {}),
}
_SWITCHES = ("adaptive-rx", "adaptive-tx", "autoneg")


class NicGroup(Target):
    """Some settings of one group of one interface, by ethtool's names. The value has them in order,
    "rx=4096 tx=512"; None where there is no such interface."""

    kind = "nic"
    atomic = False

    def __init__(self, interface: str, group: str, names: Sequence[str]) -> None:
        group = {"coalescing": "coalesce", "offloads": "features"}.get(group, group)
        if group not in _GROUPS:
            raise ChangeError(f"this version knows no {group} of network interfaces")
        if interface.startswith("-") or "/" in interface or not interface:
            raise ChangeError(f"{interface!r} is no interface")
        self.interface = interface
        self.group = group
        by_other = {other: name for name, other in _GROUPS[group][2].items()}
        self.names = [by_other.get(name, name) for name in names]

    @classmethod
    def from_rest(cls, rest: str) -> NicGroup:
        interface, group, *names = rest.split(" ")
        return cls(interface, group, names)

    @property
    def key(self) -> str:
        return f"nic {self.interface} {self.group} {' '.join(self.names)}"

    def value(self, system: System, wanted: Mapping[str, str]) -> str:
        """The value that these settings make. Raises ``ChangeError`` for one that the interface does
        not have or cannot do."""
        group = self._group(system)
        if group is None:
            raise ChangeError(f"there is no interface {self.interface}")
        by_other = {other: name for name, other in _GROUPS[self.group][2].items()}
        given = {by_other.get(name, name): value for name, value in wanted.items()}
        for name in self.names:
            self._can(group, name, given[name])
        return self._text({name: _canonical(given[name], self._switch(name)) for name in self.names})

    def _can(self, group: dict[str, Any], name: str, value: str) -> None:
        if self._field(group, name) is None:
            raise ChangeError(f"the driver of {self.interface} has no {name} in its {self.group}")
        most = group.get(f"{name}_max")
        if most is not None and value.isdecimal() and int(value) > int(most):
            raise ChangeError(f"{self.interface} can have at most {most} of {name} {self.group}")
        changeable = group.get("changeable")
        if changeable is not None and name not in changeable:
            raise ChangeError(f"the driver of {self.interface} lets nobody change {name}")

    def read(self, system: System) -> Value:
        group = self._group(system)
        if group is None:
            return None
        found = {}
        for name in self.names:
            value = self._field(group, name)
            if value is None:
                raise ChangeError(f"the driver of {self.interface} does not tell its {name}")
            found[name] = _canonical(str(value), self._switch(name))
        return self._text(found)

    def write(self, system: System, value: Value) -> None:
        now, wanted = self.read(system), _pairs(value)
        if now is None:
            raise ChangeError(f"there is no interface {self.interface}")
        present = _pairs(now)
        # only what differs: drivers refuse a whole request for one value that they do not know
        changed = [word for n in self.names if wanted[n] != present[n] for word in (n, wanted[n])]
        if not changed:
            return
        system.run(["ethtool", _GROUPS[self.group][0], self.interface, *changed])

    def _group(self, system: System) -> dict[str, Any] | None:
        """The settings of the group, by ethtool's names where these differ."""
        if system.host.exists(f"/sys/class/net/{self.interface}").value is False:
            return None
        said = system.host.ask("ethtool", "settings", self.interface)
        if not said.known:
            raise ChangeError(said.why())
        settings = said.get()
        group = settings.get(_GROUPS[self.group][1])
        if group is None:
            refused = settings.get("refused", {}).get(_GROUPS[self.group][1], "no answer")
            raise ChangeError(f"the driver of {self.interface} has no {self.group} to set ({refused})")
        found = dict(group)
        if self.group == "features" and "changeable" in settings:
            found["changeable"] = settings["changeable"]
        return found

    def _field(self, group: dict[str, Any], name: str) -> Any:
        return group.get(_GROUPS[self.group][2].get(name, name))

    def _switch(self, name: str) -> bool:
        return self.group in ("features", "pause") or name in _SWITCHES

    def _text(self, values: Mapping[str, str]) -> str:
        return " ".join(f"{name}={values[name]}" for name in self.names)


def _pairs(value: Any) -> dict[str, str]:
    pairs = (word.partition("=") for word in str(value).split(" "))
    return {name: text for name, _, text in pairs}


def _canonical(value: str, switch: bool) -> str:
    if not switch:
        return value
    return {"1": "on", "true": "on", "on": "on", "0": "off", "false": "off", "off": "off"}.get(
        value.lower(), value
    )
