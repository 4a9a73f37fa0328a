"""What rows of several subsystems need: sysctl values, and changes that a container cannot make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.fact import NOT_PROBED, Fact, gap

if TYPE_CHECKING:
    from hwtune.changes import Change
    from hwtune.model import Machine

HOST_ONLY = "Set it on the host: a container sees the host's value and cannot change it."


def sysctl(machine: Machine, key: str) -> Fact[str]:
    """A live value, with its file under /proc/sys as source."""
    return machine.kernel.sysctl.values.get(key) or gap(NOT_PROBED, path(key))


def path(key: str) -> str:
    return "/proc/sys/" + key.replace(".", "/")


def sysctl_number(machine: Machine, key: str) -> Fact[int]:
    return sysctl(machine, key).map(lambda text: int(text.split()[0]) if text.strip() else int(text))


def fix(machine: Machine, *changes: Change) -> dict[str, Any]:
    """``changes=`` for a finding; in a container, whose kernel is the host's, ``advice=`` instead."""
    if machine.virtualization.is_container:
        return {"advice": HOST_ONLY}
    return {"changes": changes}


def size(amount: int) -> str:
    """Bytes for a reader: "16 GiB", "62.8 GiB", "176 KiB"."""
    value, unit = float(amount), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value >= 100 or value == int(value) else f"{value:.1f} {unit}"


def plural(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"
