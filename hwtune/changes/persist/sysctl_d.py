"""Sysctls, in a sysctl.d file that comes after all others (facts E12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes.places import SYSCTL as PATH
from hwtune.changes.stores import Item, Render, Store, render_template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwtune.changes.system import System

__all__ = ["PATH", "STORE"]


def _render(system: System, items: Sequence[Item]) -> list[Render]:
    content = render_template("sysctl.conf.j2", items=items) if items else None
    return [Render(PATH, content)]


def _refresh(system: System, items: Sequence[Item]) -> list[list[str]]:
    return []  # the values in force are written by the change itself


STORE = Store("sysctl", _render, _refresh)
