"""What all targets have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hwtune.changes.system import System

Value = Any


class Target(ABC):
    """One place. ``key`` is "KIND REST" and is all that ``from_key`` needs to make it again."""

    kind: str
    #: whether what is written there survives a boot by itself
    lasting = False
    #: whether it takes effect at the next boot only
    at_boot = False
    #: whether a write is one step, so that no crash shows a half of it
    atomic = True

    @property
    @abstractmethod
    def key(self) -> str: ...

    @abstractmethod
    def read(self, system: System) -> Value:
        """The value now. Raises ``ChangeError`` when it cannot be read."""

    @abstractmethod
    def write(self, system: System, value: Value) -> None:
        """Make it so. Raises ``ChangeError`` when it cannot be written."""

    def same(self, one: Value, other: Value) -> bool:
        return bool(one == other)

    def between(self, now: Value, one: Value, other: Value) -> bool:
        """Whether a write from ``one`` to ``other`` that was interrupted may have left ``now``: of a
        value of several words, each is that of the one or that of the other."""
        if self.atomic or not all(isinstance(value, str) for value in (now, one, other)):
            return False
        words = [value.split() for value in (now, one, other)]
        return len({len(w) for w in words}) == 1 and all(w in (o, t) for w, o, t in zip(*words, strict=True))

    def running(self, system: System, value: Value) -> Value:
        """Of what takes effect at boot, what this boot has instead; ``value`` itself where it has
        that, None where it cannot be told."""
        return None

    def tidy(self, system: System) -> None:
        """Remove what a crash in the middle of a write left beside the place."""
        return None

    def told(self, before: Value, after: Value) -> str:
        """What a write did, for a log."""
        return f"{self.show(before)} -> {self.show(after)}"

    def show(self, value: Value) -> str:
        """The value for a person, in one line."""
        return "absent" if value is None else str(value)
