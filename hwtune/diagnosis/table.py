"""The whole diagnosis table: built-in rows and those of third parties."""

from __future__ import annotations

from fnmatch import fnmatchcase
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from hwtune.diagnosis.row import SCOPES, Row, registered
from hwtune.diagnosis.verdict import SEVERITIES
from hwtune.errors import ToolError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_table: list[Row] = []


def table() -> list[Row]:
    """All rows, by id. The modules of ``hwtune.remediations`` are found by name, third parties'
    by the entry-point group of the same name. Raises ``ToolError`` on two rows of one id."""
    if not _table:
        import hwtune.remediations as package

        for module in sorted(m.name for m in iter_modules(package.__path__) if not m.name.startswith("_")):
            import_module(f"{package.__name__}.{module}")
        _load_third_parties()
        rows = sorted(registered(), key=lambda r: r.id)
        _check(rows)
        _table.extend(rows)
    return list(_table)


def _load_third_parties() -> None:
    from hwtune.plugins import load

    load("hwtune.remediations")


def _check(rows: Sequence[Row]) -> None:
    seen: set[str] = set()
    for row in rows:
        if row.id in seen:
            raise ToolError(
                f"two rows of the diagnosis table are called {row.id}; remove one of the plug-ins"
            )
        if row.severity not in SEVERITIES or row.scope not in SCOPES:
            raise ToolError(f"row {row.id} of {row.module} has an unknown severity or scope")
        seen.add(row.id)


def choose(rows: Sequence[Row], only: Sequence[str], skip: Sequence[str]) -> list[Row]:
    """The rows that match any pattern of ``only`` (all, when empty) and none of ``skip``.
    Raises ``UsageError`` for a pattern that matches no row, naming the nearest id."""
    for pattern in (*only, *skip):
        if not any(fnmatchcase(r.id, pattern) for r in rows):
            raise UsageError(_no_such(pattern, [r.id for r in rows]))
    return [
        r
        for r in rows
        if (not only or any(fnmatchcase(r.id, p) for p in only))
        and not any(fnmatchcase(r.id, p) for p in skip)
    ]


def find(rows: Sequence[Row], id: str) -> Row:
    for row in rows:
        if row.id == id:
            return row
    raise UsageError(_no_such(id, [r.id for r in rows]))


def _no_such(pattern: str, ids: Sequence[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(pattern, ids, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]}?" if near else "; `hwtune table` lists them all"
    return f"no row matches {pattern!r}{hint}"
