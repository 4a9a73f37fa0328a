"""A sysctl.d file (sysctl.d(5))."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes.export.parts import SYSCTL_D, expressed, heading, left_out, one_line, purpose

if TYPE_CHECKING:
    from hwtune.changes.plan import Plan, PlannedChange


def render(plan: Plan) -> str:
    done, left = expressed(plan, {"sysctl": _setting})
    lines = [*heading("A sysctl.d file"), f"# Named to come last: {SYSCTL_D}", ""]
    for change, setting in done:
        lines += [f"# {purpose(change)}", setting]
    return "\n".join([*lines, *left_out(left)]) + "\n"


def _setting(change: PlannedChange) -> str:
    return one_line(f"{change.change.key} = {change.change.value}")
