"""Units of systemd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes.system import ChangeError
from hwtune.changes.targets.base import Target, Value

if TYPE_CHECKING:
    from hwtune.changes.system import System


class Unit(Target):
    """A systemd unit: "enabled active", as is-enabled and is-active say."""

    kind = "unit"
    lasting = True
    atomic = False
    #: states of a unit that is neither enabled nor disabled by systemctl
    FIXED = ("static", "generated", "transient", "indirect", "alias", "linked", "enabled-runtime")
    _ACTIVE = ("active", "activating", "reloading")

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def key(self) -> str:
        return f"unit {self.name}"

    def real(self, system: System) -> Unit:
        """The unit that an alias stands for."""
        if self._ask(system, "is-enabled") != "alias":
            return self
        answer = system.host.command(["systemctl", "show", "--property=Id", "--value", self.name])
        name = answer.get().stdout.strip() if answer.known else ""
        return Unit(name) if name else self

    def read(self, system: System) -> Value:
        enabled = self._ask(system, "is-enabled")
        if enabled in ("not-found", ""):
            return None
        return f"{enabled} {'active' if self._ask(system, 'is-active') in self._ACTIVE else 'inactive'}"

    def write(self, system: System, value: Value) -> None:
        if value is None:
            raise ChangeError(f"unit {self.name} cannot be removed")
        enabled, _, active = str(value).partition(" ")
        now = (self.read(system) or "").partition(" ")[0]
        if now == "masked" and enabled != "masked":
            system.run(["systemctl", "unmask", self.name])
            now = self._ask(system, "is-enabled")
        if active == "inactive":
            system.run(["systemctl", "stop", self.name])
        if enabled != now:
            # what has no [Install] section (static, generated) is neither enabled nor disabled
            verb = {"enabled": "enable", "disabled": "disable", "masked": "mask"}.get(enabled)
            if verb is not None:
                system.run(["systemctl", verb, self.name])
        if active == "active":
            system.run(["systemctl", "start", self.name])

    def _ask(self, system: System, verb: str) -> str:
        answer = system.host.command(["systemctl", verb, self.name])
        if answer.absent:
            raise ChangeError("systemctl is not installed: this machine has no systemd")
        if not answer.known:
            raise ChangeError(answer.why())
        return answer.get().stdout.strip()
