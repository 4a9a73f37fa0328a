"""The CPUs that irqbalance leaves alone.

Its environment comes from files that its unit names, /etc/default/irqbalance on Debian and
/etc/sysconfig/irqbalance on RHEL, and those stay as the administrator and the package wrote them: a
drop-in for the unit names one more file, and of a variable in two files systemd takes the later
(systemd.exec(5), EnvironmentFile=). What was banned before stays banned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes.stores import Item, Render, Store, render_template
from hwtune.changes.system import ChangeError
from hwtune.text import irqbalance as text
from hwtune.text.cpulist import format_list, format_mask, parse_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.changes.system import System

UNIT = "irqbalance.service"
ENVIRONMENT = "/etc/hwtune/irqbalance.env"
DROP_IN = f"/etc/systemd/system/{UNIT}.d/zz-hwtune.conf"
# The release that brought IRQBALANCE_BANNED_CPULIST; those before only know the mask.
_LISTS_SINCE = (1, 8)


def need(system: System) -> None:
    """Raises ``ChangeError`` where there is no irqbalance that systemd starts."""
    from hwtune.probes import _irqbalance

    if _irqbalance.parsed_unit(system.host) is None:
        raise ChangeError("irqbalance is not installed, or not started by systemd")


def _render(system: System, items: Sequence[Item]) -> list[Render]:
    if not items:
        return [Render(DROP_IN, None), Render(ENVIRONMENT, None)]
    theirs, source = _theirs(system)
    wanted = set(parse_list(items[-1].value)) | set(theirs)
    lists = _knows_lists(system)
    content = render_template(
        "irqbalance.env.j2",
        mask="" if lists else format_mask(wanted),
        list=format_list(wanted) if lists else "",
        kept=format_list(theirs),
        source=source,
    )
    return [
        Render(ENVIRONMENT, content),
        Render(DROP_IN, render_template("irqbalance.service.j2", path=ENVIRONMENT)),
    ]


def _theirs(system: System) -> tuple[list[int], str]:
    """What is banned without hwtune, and the files that say so."""
    from hwtune.probes import _irqbalance

    unit = _irqbalance.parsed_unit(system.host)
    if unit is None:
        return [], ""
    environment = text.parse_environment("\n".join(unit.assignments))
    sources = []
    for path in unit.files:
        found = system.host.parse(path, text.parse_environment)
        if path != ENVIRONMENT and found.known:
            environment.update(found.get())
            if text.MASK in found.get() or text.LIST in found.get():
                sources.append(path)
    return text.effective_ban(environment).cpus or [], " and ".join(sources) or UNIT


def _knows_lists(system: System) -> bool:
    said = system.host.command(["irqbalance", "--version"])
    words = said.get().stdout.split() if said.known else []
    version = words[-1].removeprefix("v").split(".") if words else []
    try:
        return (int(version[0]), int(version[1])) >= _LISTS_SINCE
    except (IndexError, ValueError):
        return False  # every release knows the mask


def _refresh(system: System, items: Sequence[Item]) -> list[list[str]]:
    # restarted only where it runs
    return [["systemctl", "daemon-reload"], ["systemctl", "try-restart", UNIT]]


STORE = Store("irqbalance", _render, _refresh)
