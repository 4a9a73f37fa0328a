"""Probes and rows of third parties, by entry points.

Reading the metadata of every installed distribution costs more than all of hwtune's own imports,
so it is only done where some distribution besides hwtune names one of our groups.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from hwtune.errors import ToolError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUPS = ("hwtune.probes", "hwtune.remediations")


def load(group: str) -> list[Any]:
    """Import what the entry points of a group name, in the order of their names. Raises ``ToolError``
    for one that cannot be imported: what it asks would be missing without a word."""
    if not _any():
        return []
    from importlib.metadata import entry_points

    return [_load(point) for point in sorted(entry_points(group=group), key=lambda p: p.name)]


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # whatever a third party's module does when it is imported
        of = point.dist.name if point.dist is not None else point.value
        raise ToolError(
            f"the plug-in {point.name} of {of} ({point.group}) cannot be loaded:"
            f" {type(error).__name__}: {error}; mend it or uninstall it."
        ) from error


_found: list[bool] = []


def _any() -> bool:
    """Whether any entry_points.txt on the path names one of our groups (a cheap look at files)."""
    if not _found:
        _found.append(any(_names_us(folder) for folder in sys.path if folder))
    return _found[0]


def _names_us(folder: str) -> bool:
    try:
        names = os.listdir(folder)
    except OSError:  # not a directory (a zip), or unreadable: importlib.metadata may know better
        return folder.endswith(".zip") and os.path.exists(folder)
    for name in names:
        if not name.endswith((".dist-info", ".egg-info")):
            continue
        try:
            with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                content = file.read()
        except OSError:  # most distributions have none
            continue
        if any(f"[{group}]".encode() in content for group in GROUPS):
            return True
    return False
