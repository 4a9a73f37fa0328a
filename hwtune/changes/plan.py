"""What apply would do: the same plan for --check, --diff, the run itself and the exports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hwtune.changes import naming, upkeep
from hwtune.changes.compile import compile_change
from hwtune.changes.stores import Item, merged, stores
from hwtune.changes.system import ChangeError
from hwtune.changes.targets import Target

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from hwtune.changes.ledger import Ledger
    from hwtune.changes.system import System
    from hwtune.diagnosis.engine import RowResult

TO_DO = "to-do"
IN_FORCE = "in-force"  # nothing to do
NOT_ALLOWED = "not-allowed"  # disruptive, and not named by --allow
IMPOSSIBLE = "impossible"

# a change's disruption -> the word that --allow takes
ALLOW = {"reboot": "boot", "service-restart": "service", "link-reset": "link"}
# what hwtune makes where there is nothing
_MADE = ("file", "link", "directory")


class PlannedTarget(msgspec.Struct):
    """One target of a planned change, with its value now and the one it is to have."""

    target: Target
    before: Any
    after: Any

    @property
    def differs(self) -> bool:
        return not self.target.same(self.before, self.after)


class PlannedChange(msgspec.Struct):
    """One change and what came of looking at it. ``target``, ``before`` and ``after`` for a person."""

    id: str
    kind: str
    rows: list[str]
    change: Any
    target: str
    description: str
    disruption: str
    status: str
    reason: str = ""
    before: str = ""
    after: str = ""
    targets: list[PlannedTarget] = []
    items: list[Item] = []


class Plan(msgspec.Struct):
    """``stores``: those whose files are not as the settings in force want them, whatever the changes;
    ``problems``: those that cannot be written, and why."""

    changes: list[PlannedChange]
    stores: list[str] = []
    problems: dict[str, str] = {}

    def to_do(self) -> list[PlannedChange]:
        return [c for c in self.changes if c.status == TO_DO]

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.stores and not self.to_do()


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
    look = _Look(system, ledger, allow, runtime_only)
    plan = Plan([look.at(f"c{n}", change, rows) for n, (change, rows) in enumerate(wanted.items(), 1)])
    if not runtime_only:
        plan.stores, plan.problems = upkeep.unfinished(look.read, ledger, system)
        look.can_be_kept(plan.to_do(), plan.problems)
    return plan


class _Look:
    """Looks at changes one after the other, and remembers what those before want."""

    def __init__(self, system: System, ledger: Ledger, allow: Collection[str], runtime_only: bool) -> None:
        self.system = system
        self.ledger = ledger
        self.allow = allow
        self.runtime_only = runtime_only
        self.kept = {(i.store, i.key): i.value for i in ledger.items()}
        self.claims: dict[Any, tuple[Any, str]] = {}

    def read(self, target: Target) -> Any:
        return target.read(self.system)

    def at(self, id: str, change: Any, rows: list[str]) -> PlannedChange:
        planned = PlannedChange(
            id,
            str(change.__struct_config__.tag),
            rows,
            change,
            naming.of_change(change),
            change.describe(),
            change.disruption,
            TO_DO,
        )
        try:
            compiled = compile_change(change, self.system)
            planned.targets = [PlannedTarget(t, self.read(t), value) for t, value in compiled.targets]
        except ChangeError as error:
            planned.status, planned.reason = IMPOSSIBLE, str(error)
            return planned
        planned.items = compiled.items
        self._show(planned)
        planned.status, planned.reason = self._judge(planned)
        if self.runtime_only:
            planned.items = []
        if planned.status == TO_DO:
            self._claim(planned)
        return planned

    def _show(self, planned: PlannedChange) -> None:
        if planned.targets:
            planned.before = "; ".join(t.target.show(t.before) for t in planned.targets)
            planned.after = "; ".join(t.target.show(t.after) for t in planned.targets)
            return
        known = stores()
        before = []
        for item in planned.items:
            running = known[item.store].running(self.system, item) if item.store in known else None
            before.append(self.kept.get((item.store, item.key), "") if running is None else running)
        planned.before = "; ".join(value or "not set" for value in before)
        planned.after = "; ".join(item.value or "not set" for item in planned.items)

    def _judge(self, planned: PlannedChange) -> tuple[str, str]:
        gone = [
            naming.of_key(t.target.key)
            for t in planned.targets
            if t.before is None and t.target.kind not in _MADE
        ]
        if gone:
            return IMPOSSIBLE, f"{', '.join(gone)} does not exist here"
        differs = any(t.differs for t in planned.targets)
        kept = all(self.kept.get((i.store, i.key)) == i.value for i in planned.items)
        if not differs and (kept or (self.runtime_only and planned.targets)):
            return IN_FORCE, "it is so already"
        if self.runtime_only and (planned.change.scope == "boot" or not planned.targets):
            return NOT_ALLOWED, "it takes files that last, and --runtime-only was given"
        if planned.disruption and ALLOW[planned.disruption] not in self.allow:
            word = ALLOW[planned.disruption]
            return NOT_ALLOWED, f"it takes a {planned.disruption}; --allow {word} permits it"
        return self._contradicted(planned) or (TO_DO, "")

    def _contradicted(self, planned: PlannedChange) -> tuple[str, str] | None:
        """Two rows may want different values of one thing: the first has its way, once."""
        for key, value in self._wants(planned):
            other = self.claims.get(key)
            if other is not None and other[0] != value:
                return IMPOSSIBLE, f"{other[1]} sets it to another value; see what doctor says after that"
        return None

    def _claim(self, planned: PlannedChange) -> None:
        for key, value in self._wants(planned):
            self.claims.setdefault(key, (value, planned.rows[0]))

    def _wants(self, planned: PlannedChange) -> list[tuple[Any, Any]]:
        found: list[tuple[Any, Any]] = [(t.target.key, t.after) for t in planned.targets]
        return found + [((i.store, i.key), i.value) for i in planned.items]

    def can_be_kept(self, changes: Sequence[PlannedChange], problems: dict[str, str]) -> None:
        """Find out before anything is touched which changes their stores cannot take."""
        in_force = self.ledger.items()
        for name in upkeep.in_order({i.store for c in changes for i in c.items}):
            mine = [c for c in changes if c.status == TO_DO and any(i.store == name for i in c.items)]
            if self._error(name, merged(in_force, *(c.items for c in mine))) is None:
                continue
            problems.pop(name, None)  # told by the changes
            good: list[PlannedChange] = []
            for change in mine:
                error = self._error(name, merged(in_force, *(c.items for c in (*good, change))))
                if error is None:
                    good.append(change)
                else:
                    change.status, change.reason = IMPOSSIBLE, error

    def _error(self, name: str, items: Sequence[Item]) -> str | None:
        store = stores().get(name)
        if store is None:
            return f"this version cannot keep it across boots: there is no {name} store"
        try:
            upkeep.steps(store, items, self.read, self.ledger, self.system)
        except ChangeError as error:
            return str(error)
        return None
