"""The CPU latency request: it lives as long as the file is open, so a small service holds it
(Linux Documentation/power/pm_qos_interface.rst)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes.persist.boot_unit import interpreter
from hwtune.changes.stores import Item, Render, Store, render_template
from hwtune.changes.system import ChangeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.changes.system import System

UNIT = "hwtune-cpu-latency.service"
_UNITS = "/etc/systemd/system"


def _render(system: System, items: Sequence[Item]) -> list[Render]:
    unit, enabled = f"{_UNITS}/{UNIT}", f"{_UNITS}/multi-user.target.wants/{UNIT}"
    if not items:
        return [Render(enabled, None, link=True), Render(unit, None)]
    content = render_template(
        "hwtune-cpu-latency.service.j2", python=interpreter(), microseconds=items[-1].value
    )
    return [Render(unit, content), Render(enabled, f"../{UNIT}", link=True)]


def _refresh(system: System, items: Sequence[Item]) -> list[list[str]]:
    reload = ["systemctl", "daemon-reload"]
    if items:
        return [reload, ["systemctl", "restart", UNIT]]
    if _active(system):
        return [["systemctl", "stop", UNIT], reload]
    return [reload]


def _active(system: System) -> bool:
    said = system.host.command(["systemctl", "is-active", UNIT])
    return said.known and said.get().stdout.strip() == "active"


def _check(system: System, items: Sequence[Item]) -> None:
    """That the service runs, and that the kernel keeps to the request."""
    if not items:
        return
    if not _active(system):
        raise ChangeError(f"{UNIT} does not run; journalctl -u {UNIT} says why")
    now = system.host.ask("cpu_latency")
    if now.known and now.get() > int(items[-1].value):
        raise ChangeError(f"{UNIT} runs, and CPUs may still take {now.get()} us to wake")


STORE = Store("cpu-latency", _render, _refresh, _check)
