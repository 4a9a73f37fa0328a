"""The members of a tar archive in one pass, with a bound on everything that it may claim.

Written here, as the standard library's module reads headers of any claimed size into memory and
keeps every member. Formats: POSIX.1-2017 pax (pax utility, "ustar Interchange Format" and "pax
Header Block"), and GNU's (its manual, "Basic Tar Format", "Storing Sparse Files").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hwtune.host.streams import Damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOCK = 512
FILE = 0
DIR = 1
LINK = 2
HARD_LINK = 3
SPECIAL = 4

_ZERO = bytes(BLOCK)
# What is taken from extended headers; all else that they may hold is left out (and kept by nobody).
_FIELDS = frozenset(
    (
        *("path", "linkpath", "size", "GNU.sparse.name", "GNU.sparse.major", "GNU.sparse.minor"),
        *("GNU.sparse.size", "GNU.sparse.realsize", "GNU.sparse.map"),
    )
)
# Extended headers carry names and times; GNU tar writes some hundred bytes.
_MAX_HEADER = 1 << 20
_MAX_SPARSE = 10_000

_TYPES = {
    b"0": FILE,
    b"\0": FILE,
    b"7": FILE,
    b"1": HARD_LINK,
    b"2": LINK,
    b"3": SPECIAL,
    b"4": SPECIAL,
    b"5": DIR,
    b"6": SPECIAL,
    b"D": DIR,
    b"S": FILE,
}


class Member(NamedTuple):
    name: str
    type: int
    #: what a link leads to
    target: str
    size: int
    #: None where it is larger than the limit, or where this is no file
    content: bytes | None


class Source:
    """A reader of exact lengths over pieces of any length."""

    def __init__(self, piece: Callable[[], bytes]) -> None:
        self._piece = piece
        self._buffer = b""
        self._at = 0

    def take(self, length: int) -> bytes:
        """The next ``length`` bytes; fewer only at the end."""
        end = self._at + length
        if end > len(self._buffer):
            self._fill(length)
            end = min(length, len(self._buffer))
        taken = self._buffer[self._at : end]
        self._at = end
        return taken

    def peek(self, length: int) -> bytes:
        taken = self.take(length)
        self._at -= len(taken)
        return taken

    def _fill(self, length: int) -> None:
        """Bring at least ``length`` bytes into the buffer, if there are that many."""
        pieces = [self._buffer[self._at :]]
        held = len(pieces[0])
        while held < length:
            piece = self._piece()
            if not piece:
                break
            pieces.append(piece)
            held += len(piece)
        self._buffer, self._at = b"".join(pieces), 0

    def skip(self, length: int) -> None:
        """Raises ``Damaged`` at the end."""
        left = length - (len(self._buffer) - self._at)
        if left <= 0:
            self._at += length
            return
        self._buffer, self._at = b"", 0
        while left > 0:
            piece = self._piece()
            if not piece:
                raise Damaged("it ends inside a file")
            left -= len(piece)
            if left < 0:
                self._buffer, self._at = piece, len(piece) + left

    def exactly(self, length: int) -> bytes:
        taken = self.take(length)
        if len(taken) < length:
            raise Damaged("it ends inside a file")
        return taken


def is_header(block: bytes) -> bool:
    """Whether this is the header of a member, by its checksum, or the end mark."""
    if len(block) < BLOCK:
        return False
    return block == _ZERO or _checksum(block) == _octal(block[148:156])


def members(source: Source, file_limit: int) -> Iterator[Member]:
    """Each member in turn; the content of files up to ``file_limit`` bytes with it.

    Raises ``Damaged``, also where the end mark is missing: then nobody knows what else is.
    """
    extended: dict[str, str] = {}
    for_all: dict[str, str] = {}
    while True:
        block = source.take(BLOCK)
        if block == _ZERO:
            return
        if not block:
            raise Damaged("it has no end mark")
        if len(block) < BLOCK or _checksum(block) != _octal(block[148:156]):
            raise Damaged("a header is not valid")
        size = _number(block[124:136])
        kind = block[156:157]
        if kind in b"xgLK":
            _extend(extended, for_all, kind, _header_data(source, size))
            continue
        fields = {**for_all, **extended} if extended or for_all else extended
        extended = {}
        if "size" in fields:
            size = _decimal(fields["size"])
        type_ = _TYPES.get(kind, FILE)
        # Only these have data, whatever a size says (POSIX: links and special files have none).
        padded = -(-size // BLOCK) * BLOCK if type_ == FILE or kind == b"D" else 0
        name = fields.get("GNU.sparse.name") or fields.get("path") or _name(block)
        target = fields.get("linkpath") or _text(block[157:257])
        if type_ == FILE and name.endswith("/"):
            type_ = DIR  # the oldest archives have no other sign
        if type_ != FILE or kind in b"VMNI":  # V, M, N: GNU's labels, volumes and old names
            source.skip(padded)
            if kind not in b"VMN":
                yield Member(name, type_, target, 0, None)
            continue
        if kind == b"S" or any(key.startswith("GNU.sparse.") for key in fields):
            yield _sparse(source, block, fields, name, size, file_limit)
            continue
        if size > file_limit:
            source.skip(padded)
            yield Member(name, FILE, "", size, None)
            continue
        content = source.exactly(padded)
        yield Member(name, FILE, "", size, content[:size] if padded != size else content)


def _checksum(block: bytes) -> int:
    return sum(block) - sum(block[148:156]) + 256


def _octal(field: bytes) -> int:
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        return -1


def _number(field: bytes) -> int:
    """A size: octal digits, or GNU's base 256 with the top bit set."""
    number = int.from_bytes(field[1:], "big") if field[0] == 0x80 else _octal(field)
    if not 0 <= number < 1 << 62:
        raise Damaged("a size is not valid")
    return number


def _decimal(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Damaged("a size is not valid")
    return int(text)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _name(block: bytes) -> str:
    name = _text(block[:100])
    if block[257:263] == b"ustar\0":  # GNU's "ustar  " uses the prefix field for other things
        prefix = _text(block[345:500])
        if prefix:
            return f"{prefix}/{name}"
    return name


def _header_data(source: Source, size: int) -> bytes:
    if size > _MAX_HEADER:
        raise Damaged("an extended header is too large")
    return source.exactly(-(-size // BLOCK) * BLOCK)[:size]


def _extend(extended: dict[str, str], for_all: dict[str, str], kind: bytes, data: bytes) -> None:
    if kind == b"L":
        extended["path"] = _text(data)
    elif kind == b"K":
        extended["linkpath"] = _text(data)
    else:
        _pax(for_all if kind == b"g" else extended, data)


def _pax(fields: dict[str, str], data: bytes) -> None:
    """Records of the form "LENGTH KEY=VALUE\\n", LENGTH counting all of it."""
    at = 0
    offsets: list[str] = []
    while at < len(data) and data[at]:
        digits = data[at : at + 8].partition(b" ")[0]
        if not digits.isdigit():
            raise Damaged("an extended header is not valid")
        end = at + int(digits)
        key, equals, value = data[at + len(digits) + 1 : end].partition(b"=")
        if not equals or end > len(data) or value[-1:] != b"\n":
            raise Damaged("an extended header is not valid")
        at = end
        name = key.decode("utf-8", "replace")
        if name in ("GNU.sparse.offset", "GNU.sparse.numbytes"):
            # format 0.0 repeats these two, once for each stretch
            offsets.append(value[:-1].decode("utf-8", "surrogateescape"))
        elif name in _FIELDS:
            fields[name] = value[:-1].decode("utf-8", "surrogateescape")
    if offsets:
        fields["GNU.sparse.map"] = ",".join(offsets)


def _sparse(
    source: Source, block: bytes, fields: dict[str, str], name: str, size: int, file_limit: int
) -> Member:
    """A file whose stretches of zeros are left out of the archive."""
    padded = -(-size // BLOCK) * BLOCK
    if block[156:157] == b"S":
        full = _number(block[483:495])
        stretches = _old_map(source, block)
    else:
        full = _decimal(fields.get("GNU.sparse.realsize") or fields.get("GNU.sparse.size") or str(size))
        stretches = None
        if "GNU.sparse.map" in fields:
            stretches = _pairs(fields["GNU.sparse.map"].split(","))
    if full > file_limit or size > file_limit:
        source.skip(padded)
        return Member(name, FILE, "", max(full, size), None)
    data = source.exactly(padded)[:size]
    if stretches is None:  # format 1.0: the map is in front of the data
        stretches, data = _map_in_front(data)
    content = bytearray(full)
    taken = 0
    for offset, length in stretches:
        if offset + length > full or taken + length > len(data):
            raise Damaged("a sparse file is not valid")
        content[offset : offset + length] = data[taken : taken + length]
        taken += length
    return Member(name, FILE, "", full, bytes(content))


def _old_map(source: Source, block: bytes) -> list[tuple[int, int]]:
    stretches: list[tuple[int, int]] = []
    fields, more = block[386:482], block[482]
    while True:
        for at in range(0, len(fields), 24):
            if fields[at : at + 1] == b"\0":
                break
            stretches.append((_number(fields[at : at + 12]), _number(fields[at + 12 : at + 24])))
        if not more:
            return stretches
        if len(stretches) > _MAX_SPARSE:
            raise Damaged("a sparse file has too many parts")
        extension = source.exactly(BLOCK)
        fields, more = extension[:504], extension[504]


def _pairs(numbers: list[str]) -> list[tuple[int, int]]:
    if len(numbers) % 2 or len(numbers) > 2 * _MAX_SPARSE:
        raise Damaged("a sparse file is not valid")
    values = [_decimal(number) for number in numbers]
    return list(zip(values[::2], values[1::2], strict=True))


def _map_in_front(data: bytes) -> tuple[list[tuple[int, int]], bytes]:
    """Decimal numbers, one a line: how many stretches, then offset and length of each; padded
    to whole blocks."""
    count, _, _ = data[:20].partition(b"\n")
    wanted = 1 + 2 * min(_decimal(count.decode("ascii", "replace")), _MAX_SPARSE + 1)
    lines = data.split(b"\n", wanted)
    if len(lines) <= wanted:
        raise Damaged("a sparse file is not valid")
    length = sum(len(line) + 1 for line in lines[:wanted])
    stretches = _pairs([line.decode("ascii", "replace") for line in lines[1:wanted]])
    return stretches, data[-(-length // BLOCK) * BLOCK :]
