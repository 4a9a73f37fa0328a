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

    def show(self, value: Value) -> str:
        """The value for a person, in one line."""
        return "absent" if value is None else str(value)
