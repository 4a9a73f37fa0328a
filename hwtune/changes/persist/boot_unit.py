"""What has no place of its own in the system: a list that one unit carries out at each boot."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from functools import cache
from typing import TYPE_CHECKING

from hwtune.changes.boot import FORMAT, PATH
from hwtune.changes.stores import Item, Render, Store, render_template
from hwtune.changes.system import ChangeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.changes.system import System
    from hwtune.changes.targets import Target

UNIT = "hwtune-boot.service"
_UNITS = "/etc/systemd/system"
# what systemd takes as it is (systemd.syntax(7))
_PLAIN = re.compile(r"/[A-Za-z0-9_./+@:,-]+", re.ASCII)
# root and staff, to whom Debian gives /usr/local
_TRUSTED = (0, 50)


def item(target: Target, value: str) -> Item:
    """At each boot, ``target`` is to have ``value``."""
    return Item("boot", target.key, value)


def _render(system: System, items: Sequence[Item]) -> list[Render]:
    unit, enabled = f"{_UNITS}/{UNIT}", f"{_UNITS}/multi-user.target.wants/{UNIT}"
    if not items:
        # the unit before its list, and what starts it before both: a boot between two of these
        # finds nothing that is half there
        return [Render(enabled, None, link=True), Render(unit, None), Render(PATH, None, 0o600)]
    listed = [{"target": i.key, "value": i.value} for i in items]
    content = json.dumps({"format": FORMAT, "apply": listed}, indent=1, ensure_ascii=False) + "\n"
    return [
        Render(PATH, content, 0o600),
        Render(unit, render_template("hwtune-boot.service.j2", python=interpreter(), path=PATH)),
        Render(enabled, f"../{UNIT}", link=True),
    ]


def _refresh(system: System, items: Sequence[Item]) -> list[list[str]]:
    return [["systemctl", "daemon-reload"]]


def interpreter() -> str:
    """The interpreter that units of hwtune are to start. Raises ``ChangeError`` where root would
    thereby run what others may change, or where it does not find hwtune by itself."""
    program = sys.executable
    why = _fault(program)
    if why:
        raise ChangeError(why)
    return program


@cache
def _fault(program: str) -> str:
    import hwtune
    from hwtune.host import commands

    if not _PLAIN.fullmatch(program):
        return f"the path of the interpreter cannot stand in a unit: {program!r}"
    for path in (program, os.path.realpath(program), os.path.dirname(os.path.abspath(hwtune.__file__))):
        place = _open_to_others(path)
        if place:
            return f"a unit of root's would run what others may change ({place}); install hwtune for root"
    found = commands.run([program, "-I", "-c", "import hwtune.changes.boot"], 30.0)
    if not found.known or found.get().status != 0:
        return f"{program} does not find hwtune by itself; install hwtune into it or into a venv"
    return ""


def _open_to_others(path: str) -> str:
    """Which part of the way others than root could replace; "" for none. Every folder on the way
    counts, as whoever may rename in it may replace what is below."""
    while True:
        status = os.lstat(path)
        shared = status.st_mode & (0o022 if status.st_gid not in _TRUSTED else 0o002)
        harmless = stat.S_ISLNK(status.st_mode) or status.st_mode & stat.S_ISVTX
        if status.st_uid not in (0, os.geteuid()) or (shared and not harmless):
            return path
        if path == "/":
            return ""
        path = os.path.dirname(path)


STORE = Store("boot", _render, _refresh)
