"""irqbalance's environment, put together as systemd does it (systemd.exec(5), systemd.unit(5))."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import ABSENT, Fact, gap, known
from hwtune.text import irqbalance

if TYPE_CHECKING:
    from hwtune.host.base import Host

_UNIT = "irqbalance.service"
_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
# Where no unit can be read: Debian's two in the order of its unit, then that of Fedora and RHEL.
_USUAL = ("/usr/lib/irqbalance/defaults.env", "/etc/default/irqbalance", "/etc/sysconfig/irqbalance")


def read(host: Host) -> tuple[Fact[dict[str, str]], str]:
    """The environment, and the file that sets the ban, or in which it would be set."""
    unit = parsed_unit(host)
    files = list(_USUAL) if unit is None else unit.files
    environment: dict[str, str] = {}
    sources: list[str] = []
    place = files[-1] if files else ""
    if unit is not None:
        environment.update(irqbalance.parse_environment("\n".join(unit.assignments)))
    doubt: Fact[dict[str, str]] | None = None
    for path in files:
        found = host.parse(path, irqbalance.parse_environment)
        if found.known:
            environment.update(found.get())
            sources.append(path)
            if irqbalance.MASK in found.get() or irqbalance.LIST in found.get() or unit is None:
                place = path
        elif found.unknown:
            doubt = doubt or found
    # Of the usual files a capture holds the ones that its machine had, hardly ever a trace of the
    # others; one that a unit names and that was not read may say anything.
    if doubt is not None and (unit is not None or not sources):
        return doubt, place
    if not sources and not environment:
        return gap(ABSENT, " ".join(files) or _UNIT), place
    return known(environment, " ".join(sources) or _UNIT), place


def parsed_unit(host: Host) -> irqbalance.Unit | None:
    """The unit with its drop-ins, or None where none can be read."""
    for folder in _FOLDERS:
        found = host.parse(f"{folder}/{_UNIT}", irqbalance.parse_unit)
        if found.known:
            break
    else:
        return None
    parts = [found.get(), *_drop_ins(host)]
    return irqbalance.Unit(
        _after_reset([path for part in parts for path in part.files]),
        _after_reset([text for part in parts for text in part.assignments]),
    )


def _drop_ins(host: Host) -> list[irqbalance.Unit]:
    """Drop-ins in the order of their names; of the same name only the one of the first folder."""
    places: dict[str, str] = {}
    for folder in _FOLDERS:
        names = host.names(f"{folder}/{_UNIT}.d")
        if names.known:
            for name in names.get():
                if name.endswith(".conf"):
                    places.setdefault(name, f"{folder}/{_UNIT}.d/{name}")
    found = [host.parse(places[name], irqbalance.parse_unit) for name in sorted(places)]
    return [part.get() for part in found if part.known]


def _after_reset(values: list[str]) -> list[str]:
    """What stands after the last empty value: an empty assignment clears those before it."""
    last = max((i for i, value in enumerate(values) if not value), default=-1)
    return values[last + 1 :]
