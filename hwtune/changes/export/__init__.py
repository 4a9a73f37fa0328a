"""A plan for another tool to carry out: for those who let it own the settings.

What a form cannot express is left out and named in a comment. Nothing here is in the journal:
``hwtune revert`` knows nothing of what such a tool does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwtune.changes.plan import Plan


def export(form: str, plan: Plan) -> str:
    """The plan as ``script``, ``sysctl``, ``tuned`` or ``ansible``."""
    from importlib import import_module

    text: str = import_module(f"hwtune.changes.export.{form}").render(plan)
    return text
