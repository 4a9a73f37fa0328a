"""A fact: a value with the place it was read from, or the reason why it is not known.

Every field of the Machine that comes from the host is a ``Fact``, so that no default can
stand in for a value that was never read, and every finding can say where its value is from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
U = TypeVar("U")

# The reasons for which a value is not known. ABSENT is knowledge: the host was asked and has
# no such thing (a live kernel without the file). All others mean that nothing can be concluded.
ABSENT = "absent"
NOT_CAPTURED = "not-captured"  # a snapshot that holds no such file
DENIED = "denied"  # EACCES, EPERM: more privilege would make it known
UNREADABLE = "unreadable"  # EIO, EINVAL, a directory in a file's place, a timeout
INVALID = "invalid"  # it was read, and its content makes no sense
TOO_LARGE = "too-large"
NOT_PROBED = "not-probed"  # no probe has reported this field

GAPS = (ABSENT, NOT_CAPTURED, DENIED, UNREADABLE, INVALID, TOO_LARGE, NOT_PROBED)


class Fact(Generic[T]):
    """A value of type ``T`` from ``source``, or a ``gap`` (one of ``GAPS``) with ``detail``.

    ``value`` is ``None`` exactly when ``gap`` is set.
    """

    __slots__ = ("detail", "gap", "source", "value")

    value: T | None
    source: str
    gap: str | None
    detail: str

    def __init__(self, value: T | None, source: str, gap: str | None, detail: str = "") -> None:
        self.value = value
        self.source = source
        self.gap = gap
        self.detail = detail

    @property
    def known(self) -> bool:
        return self.gap is None

    @property
    def absent(self) -> bool:
        """The host was asked and has no such thing; this is knowledge, unlike any other gap."""
        return self.gap == ABSENT

    @property
    def unknown(self) -> bool:
        """Nothing can be concluded: neither a value nor a known absence."""
        return self.gap is not None and self.gap != ABSENT

    def get(self) -> T:
        """The value of a known fact. Raises ``ValueError`` on a gap: check ``known`` first."""
        if self.gap is not None:
            raise ValueError(f"{self.source} is not known ({self.gap})")
        return self.value  # type: ignore[return-value]

    def map(self, parse: Callable[[T], U]) -> Fact[U]:
        """The fact of ``parse(value)``; a ``ValueError`` of ``parse`` makes it INVALID."""
        if self.gap is not None:
            return Fact(None, self.source, self.gap, self.detail)
        try:
            return Fact(parse(self.value), self.source, None)  # type: ignore[arg-type]
        except ValueError as error:
            return Fact(None, self.source, INVALID, str(error))

    def or_else(self, other: Fact[T]) -> Fact[T]:
        """This fact when known, else ``other`` when that says more, else this one."""
        if self.gap is None:
            return self
        if other.gap is None or (other.gap == ABSENT and self.gap != ABSENT):
            return other
        return self

    def why(self) -> str:
        """For a gap: one clause that says why the value is not known."""
        if self.gap == NOT_PROBED and not self.detail:
            return "nothing that could be read tells it"
        text = {
            None: "known",
            ABSENT: "does not exist here",
            NOT_CAPTURED: "is not in the snapshot",
            DENIED: "may not be read without more privilege",
            UNREADABLE: "could not be read",
            INVALID: "has unexpected content",
            TOO_LARGE: "is too large to be true",
            NOT_PROBED: "was not asked",
        }[self.gap]
        return f"{self.source} {text}" + (f" ({self.detail})" if self.detail else "")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fact):
            return NotImplemented
        return (self.value, self.source, self.gap) == (other.value, other.source, other.gap)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if self.gap is None:
            return f"Fact({self.value!r} from {self.source})"
        return f"Fact({self.gap}: {self.source} {self.detail})"


def known(value: T, source: str) -> Fact[T]:
    return Fact(value, source, None)


def gap(kind: str, source: str, detail: str = "") -> Fact[Any]:
    return Fact(None, source, kind, detail)


def absent(source: str) -> Fact[Any]:
    return Fact(None, source, ABSENT)


def json_form(thing: object) -> Any:
    """For msgspec's ``enc_hook``: a fact is its value, or null."""
    if isinstance(thing, Fact):
        return thing.value
    raise TypeError(f"{type(thing).__name__} has no JSON form")


_NOT_PROBED: Fact[Any] = Fact(None, "this value", NOT_PROBED)


def not_probed() -> Any:
    """The default of a Machine field: unknown, as no probe has reported it."""
    return _NOT_PROBED
