"""What every kind of host can do. Probes see this class and nothing else of the machine.

A subclass implements six primitives (``read_bytes``, ``names``, ``resolve``, ``command``,
``ask`` and ``documents``), none of which raises for anything that a machine can do: what could
not be read comes back as a gap (``hwtune.fact``). The rest is built on them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hwtune.fact import INVALID, Fact
from hwtune.text.number import is_endless

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

# Files of sysfs are a page at most; the few large ones (interrupts, config of a large box)
# name their own limit.
READ_LIMIT = 1 << 20
COMMAND_TIMEOUT_S = 5.0
# Some kernels (about 5.16, where cpumaps became binary attributes) end lists and masks in a NUL.
_BLANK = " \t\r\n\v\f\0"
# Where the kernel prints one value a file (Documentation/filesystems/sysfs.rst), or one line: control
# characters there, white space and NUL aside, are damage and no value.
_VALUES = ("/sys/", "/proc/sys/", "/proc/cmdline")
_CONTROLS = bytes((*range(1, 9), *range(14, 32), 127))
# An unsigned number of 64 bits has 20 digits, and there may be a sign.
_MOST_DIGITS = 21


class CommandResult(NamedTuple):
    status: int
    stdout: str
    stderr: str


class Document(NamedTuple):
    """Text that somebody pasted into a snapshot, known by its content."""

    kind: str  # what printed it, as in hwtune.host.recognise: "nvidia-smi topo -m", "lspci -v" ...
    path: str  # where it lies in the snapshot: the source in evidence
    text: str
    command: str = ""  # the command line shown above it ("$ ethtool -S eth0"), where there is one


class Host(ABC):
    """The machine as probes see it. Paths are absolute and textual ("/sys/devices/...")."""

    #: "live" or "snapshot"
    kind: str
    #: where this host was found: "/" or the snapshot's path
    origin: str
    #: seconds since the epoch at which the state was recorded, where known
    captured_at: float | None
    #: whether a question that takes seconds is worth its time: its answer is recorded for others
    patient = False
    #: whether the user asked for measurements, which take a CPU and up to a minute
    active = False
    #: the rows that they are for; empty: all
    asked: frozenset[str] = frozenset()

    def measures(self, row: str) -> bool:
        """Whether the user asked for what this row needs measured."""
        return self.active and (not self.asked or row in self.asked)

    # -- primitives ---------------------------------------------------------------------

    @abstractmethod
    def read_bytes(self, path: str, limit: int = READ_LIMIT) -> Fact[bytes]:
        """The whole content of a file, or a gap: ABSENT on a live host (and in our own captures)
        where it does not exist, NOT_CAPTURED in a snapshot that has no word of it, DENIED,
        UNREADABLE, or TOO_LARGE beyond ``limit`` bytes."""

    @abstractmethod
    def names(self, path: str) -> Fact[list[str]]:
        """The names in a directory, sorted; gaps as in ``read_bytes``."""

    @abstractmethod
    def resolve(self, path: str) -> Fact[str]:
        """The absolute path that ``path`` leads to once every symbolic link is followed
        (inside the root), whether or not its last component could be read."""

    @abstractmethod
    def command(self, argv: Sequence[str], timeout_s: float = COMMAND_TIMEOUT_S) -> Fact[CommandResult]:
        """Run a program that reads only (absolute or well-known name, never a shell)."""

    @abstractmethod
    def ask(self, library: str, *arguments: Any) -> Fact[Any]:
        """What a library says (``hwtune.host.libraries.<library>``), as JSON-able data. The
        source of the fact is ``library(arguments)``. Recorded by ``capture``."""

    def documents(self, kind: str) -> list[Document]:
        """Pasted texts of one kind, in the order of their paths; none on a live host."""
        return []

    def part(self, path: str, offset: int, count: int) -> Fact[bytes]:
        """At most ``count`` bytes from ``offset`` on, for files that cost by the byte: each four
        of a PCI function's ``config`` are a question to the device."""
        found = self.read_bytes(path)
        return found.map(lambda content: content[offset : offset + count])

    # -- conveniences -------------------------------------------------------------------

    def text(self, path: str, limit: int = READ_LIMIT) -> Fact[str]:
        """The content as text without the white space and NULs around it; bytes that are not UTF-8
        are kept as replacement characters. INVALID where a file of one value holds control
        characters, and where there are digits without end."""
        found = self.read_bytes(path, limit)
        if found.gap is not None:
            return Fact(None, found.source, found.gap, found.detail)
        content: bytes = found.value  # type: ignore[assignment]
        if path.startswith(_VALUES) and len(content.translate(None, _CONTROLS)) != len(content):
            return Fact(None, found.source, INVALID, "control characters")
        text = content.decode("utf-8", "replace").strip(_BLANK)
        if is_endless(text):
            return Fact(None, found.source, INVALID, "digits without end")
        return Fact(text, found.source, None)

    def parse(self, path: str, parser: Callable[[str], T], limit: int = READ_LIMIT) -> Fact[T]:
        """``parser`` applied to the text; its ``ValueError`` becomes an INVALID gap that
        quotes the beginning of the content."""
        found = self.text(path, limit)
        if found.gap is not None:
            return Fact(None, found.source, found.gap, found.detail)
        content: str = found.value  # type: ignore[assignment]
        try:
            return Fact(parser(content), found.source, None)
        except ValueError:
            return Fact(None, found.source, INVALID, repr(content[:60]))

    def integer(self, path: str) -> Fact[int]:
        """A decimal integer, as sysfs and procfs print them."""
        return self.parse(path, _decimal)

    def exists(self, path: str) -> Fact[bool]:
        """Whether there is anything at ``path``: True, False (live hosts and our own captures
        only), or a gap."""
        found = self.resolve(path)
        if found.gap is None:
            return Fact(True, path, None)
        if found.absent:
            return Fact(False, path, None)
        return Fact(None, path, found.gap, found.detail)

    def link_name(self, path: str) -> Fact[str]:
        """The last component of what a link leads to: the driver of ``.../driver``, say."""
        return self.resolve(path).map(_last)


def _decimal(text: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if len(text) > _MOST_DIGITS or not (digits.isascii() and digits.isdecimal()):
        raise ValueError("not a decimal number of 64 bits")
    return int(text, 10)


def _last(path: str) -> str:
    return path.rsplit("/", 1)[-1]
