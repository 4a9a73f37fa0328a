"""What apply would do: the same plan for --check, --diff, the run itself and the exports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hwtune.changes.compile import compile_change
from hwtune.changes.stores import Item
from hwtune.changes.system import ChangeError
from hwtune.changes.targets import Target

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from hwtune.changes.ledger import Ledger
    from hwtune.changes.system import System
    from hwtune.diagnosis.engine import RowResult

TO_DO = "to-do"
IN_FORCE = "in-force"  # nothing to do
NOT_ALLOWED = "not-allowed"  # disruptive, and not named by --allow
IMPOSSIBLE = "impossible"

# a change's disruption -> the word that --allow takes
ALLOW = {"reboot": "boot", "service-restart": "service", "link-reset": "link"}


class PlannedTarget(msgspec.Struct):
    """One target of a planned change, with its value now and the one it is to have."""

    target: Target
    before: Any
    after: Any

    @property
    def differs(self) -> bool:
        return not self.target.same(self.before, self.after)


class PlannedChange(msgspec.Struct):
    """One change and what came of looking at it."""

    id: str
    kind: str
    rows: list[str]
    change: Any
    description: str
    disruption: str
    status: str
    reason: str = ""
    targets: list[PlannedTarget] = []
    items: list[Item] = []


class Plan(msgspec.Struct):
    changes: list[PlannedChange]

    def to_do(self) -> list[PlannedChange]:
        return [c for c in self.changes if c.status == TO_DO]


def make_plan(
    results: Iterable[RowResult],
    system: System,
    ledger: Ledger,
    allow: Collection[str] = (),
    runtime_only: bool = False,
) -> Plan:
    """The changes that the findings carry, each once, looked at on the system."""
    wanted: dict[Any, list[str]] = {}
    for result in results:
        for finding in result.findings:
            for change in finding.changes:
                rows = wanted.setdefault(change, [])
                if result.id not in rows:
                    rows.append(result.id)
    kept = set(ledger.items())
    planned = []
    for number, (change, rows) in enumerate(wanted.items(), 1):
        planned.append(_look(f"c{number}", change, rows, system, kept, allow, runtime_only))
    return Plan(planned)


def _look(
    id: str,
    change: Any,
    rows: list[str],
    system: System,
    kept: set[Item],
    allow: Collection[str],
    runtime_only: bool,
) -> PlannedChange:
    kind = str(change.__struct_config__.tag)
    planned = PlannedChange(id, kind, rows, change, change.describe(), change.disruption, TO_DO)
    try:
        compiled = compile_change(change, system)
        planned.targets = [PlannedTarget(t, t.read(system), value) for t, value in compiled.targets]
    except ChangeError as error:
        planned.status, planned.reason = IMPOSSIBLE, str(error)
        return planned
    planned.items = [] if runtime_only else compiled.items
    gone = [
        t.target.key.rpartition(" ")[2]
        for t in planned.targets
        if t.before is None and t.target.kind == "attribute"
    ]
    if gone:
        planned.status, planned.reason = IMPOSSIBLE, f"{', '.join(gone)} does not exist here"
    elif not any(t.differs for t in planned.targets) and all(i in kept for i in planned.items):
        planned.status, planned.reason = IN_FORCE, "it is so already"
    elif runtime_only and change.scope == "boot":
        planned.status, planned.reason = NOT_ALLOWED, "it takes a boot, and --runtime-only was given"
    elif change.disruption and ALLOW[change.disruption] not in allow:
        word = ALLOW[change.disruption]
        planned.status, planned.reason = (
            NOT_ALLOWED,
            f"it takes a {change.disruption}; --allow {word} permits it",
        )
    return planned
