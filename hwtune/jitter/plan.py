"""What a run will do: on which CPUs, for how long, and what that means for the machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from hwtune.errors import ToolError, UsageError
from hwtune.text.cpulist import parse_list, show_list

if TYPE_CHECKING:
    from collections.abc import Iterable

# Gaps that are kept with their time, of all CPUs together; 32 bytes each with what is made of them.
_GAPS_ALL, _GAPS_LEAST, _GAPS_A_SECOND = 1 << 22, 1 << 12, 100_000


class Plan(msgspec.Struct, frozen=True):
    """``duration_s``: of each CPU's loop. ``why``: how the CPUs were chosen, as a clause."""

    cpus: list[int]
    duration_s: float
    threshold_ns: int | None
    one_by_one: bool
    why: str

    @property
    def total_s(self) -> float:
        return self.duration_s * (len(self.cpus) if self.one_by_one else 1)

    @property
    def capacity(self) -> int:
        """Gaps that each CPU's loop keeps."""
        share = _GAPS_ALL if self.one_by_one else _GAPS_ALL // len(self.cpus)
        return max(min(share, int(self.duration_s * _GAPS_A_SECOND)), _GAPS_LEAST)


def plan(
    cpus: str | None,
    duration_s: float,
    threshold_ns: int | None,
    one_by_one: bool,
    hot: Iterable[int],
    allowed: frozenset[int],
) -> Plan:
    """``hot``: the CPUs that are meant for hot threads, which are the ones to measure where the user names
    none; else all that this process may have (``allowed``). Raises ``UsageError`` and ``ToolError``."""
    if cpus is not None:
        chosen, why = _named(cpus, allowed), "as you named them"
    else:
        chosen, why = sorted(allowed.intersection(hot)), "those meant for hot threads"
        if not chosen:
            chosen, why = sorted(allowed), "all, as none is kept apart"
    if not chosen:
        raise ToolError("this process may run on no CPU that is online")
    return Plan(chosen, duration_s, threshold_ns, one_by_one, why)


def _named(text: str, allowed: frozenset[int]) -> list[int]:
    try:
        chosen = parse_list(text, max(allowed, default=None))
    except ValueError:
        raise UsageError(f"--cpus takes a list of CPUs such as 2,4-6, not {text!r}") from None
    if not chosen:
        raise UsageError("--cpus names no CPU")
    refused = [cpu for cpu in chosen if cpu not in allowed]
    if refused:
        raise UsageError(
            f"CPU {show_list(refused)} cannot be measured: offline, absent or outside of this process's "
            f"cpuset; CPU {show_list(allowed)} can"
        )
    return chosen


def announcement(planned: Plan, hindrance: str, buffer_kb: int) -> str:
    """What is about to happen. ``hindrance``: why there will be no trace, or "" where it takes so much
    memory."""
    many = len(planned.cpus) > 1
    order = (", one after the other" if planned.one_by_one else ", side by side") if many else ""
    text = f"Measuring CPU {show_list(planned.cpus)} ({planned.why}) for {planned.total_s:g} s{order}: "
    text += f"a loop keeps {'each of them' if many else 'it'} fully busy, at normal priority. "
    if hindrance:
        text += f"No trace, so gaps get no cause of their own: {hindrance}. "
    else:
        text += (
            f"A trace instance of hwtune's own ({-(-buffer_kb // 1024)} MiB) records what takes the CPU "
            "away; its begin and end stop every CPU of the machine for some microseconds, and while it "
            "records each interruption takes a little longer. "
        )
    return text + "Nothing is changed. Ctrl-C ends it and reports what was measured."


def aside(planned: Plan) -> frozenset[int]:
    """Where the rest of this process should stay meanwhile; all of its CPUs where they are all measured."""
    own = frozenset(os.sched_getaffinity(0))
    return own.difference(planned.cpus) or own
