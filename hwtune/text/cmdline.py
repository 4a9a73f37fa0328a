"""The kernel's command line, split as lib/cmdline.c (next_arg) and kernel/params.c (parse_args) split it.

Quotes keep white space inside an argument and stay out of its value; ``--`` ends the kernel's own
arguments (what follows is init's); in names a dash and an underscore are the same (parameq).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

# What isspace() of lib/ctype.c takes for white space, the no-break space of Latin-1 aside: a
# command line in UTF-8 has that byte inside of letters.
_SPACE = " \t\n\v\f\r"
_DASHES = str.maketrans("-", "_")

# COMMAND_LINE_SIZE of arch/*/include/{uapi/,}asm/setup.h (Linux 6.12): the longest command line
# with its closing NUL; what is beyond is cut off. Elsewhere it is configured or differs by version.
LENGTH_LIMITS = {"x86_64": 2048, "i686": 2048, "aarch64": 2048, "ppc64le": 2048}


class Argument(NamedTuple):
    """``name`` with underscores for dashes; ``value`` is None without "="; ``text`` as written."""

    name: str
    value: str | None
    text: str


def canonical(name: str) -> str:
    """The name in the one form in which names are compared."""
    return name.translate(_DASHES)


def split(text: str) -> tuple[list[Argument], str]:
    """The kernel's arguments in their order, and what follows ``--`` (init's, untouched)."""
    found: list[Argument] = []
    rest = text.lstrip(_SPACE)
    position, length = 0, len(rest)
    while position < length:
        end = _end(rest, position)
        argument = _argument(rest[position:end])
        position = end
        while position < length and rest[position] in _SPACE:
            position += 1
        if argument.value is None and argument.name == "__" and argument.text.strip('"') == "--":
            return found, rest[position:]
        found.append(argument)
    return found, ""


def parse(text: str) -> list[Argument]:
    return split(text)[0]


def name(word: str) -> str:
    """The canonical name of one argument as it is written."""
    return _argument(word).name


def words(text: str) -> list[str]:
    """The arguments as they are written, ``--`` and what follows it among them."""
    found = []
    position = 0
    while position < len(text):
        end = _end(text, position)
        if end > position:
            found.append(text[position:end])
        position = end + 1
    return found


def without(text: str, names: Collection[str]) -> str:
    """The command line without the kernel's arguments of these (canonical) names, each gone with the
    white space before it; all else stays byte for byte, and so does what follows ``--``."""
    kept: list[str] = []
    position = 0
    while position < len(text):
        start = position
        while start < len(text) and text[start] in _SPACE:
            start += 1
        end = _end(text, start)
        word = text[start:end]
        if word.strip('"') == "--":
            break
        if start == end or _argument(word).name not in names:
            kept.append(text[position:end])
        position = end
    found = "".join(kept) + text[position:]
    # what was first had no white space before it
    return found if text[:1] in _SPACE else found.lstrip(_SPACE)


def _end(text: str, start: int) -> int:
    """Where the argument that begins at ``start`` ends: white space outside of quotes."""
    quoted = False
    for position in range(start, len(text)):
        character = text[position]
        if character == '"':
            quoted = not quoted
        elif not quoted and character in _SPACE:
            return position
    return len(text)


def _argument(text: str) -> Argument:
    body = text
    if body.startswith('"'):
        body = body[1:]
        if body.endswith('"'):
            body = body[:-1]
    # The kernel notes the place of the first "=", and takes the place 0 for none found.
    equals = body.find("=", 1)
    if equals < 0:
        return Argument(canonical(body), None, text)
    value = body[equals + 1 :]
    if value.startswith('"'):
        value = value[1:]
        if value.endswith('"'):
            value = value[:-1]
    return Argument(canonical(body[:equals]), value, text)


def quote(name: str, value: str | None) -> str:
    """The text of one argument; quotes where white space in the value needs them.

    Raises ``ValueError`` for a name or value that no command line can hold (a quote inside, white
    space in the name).
    """
    if not name or any(c in _SPACE or c in '"=' for c in name) or name == "--":
        raise ValueError(f"not a kernel argument's name: {name[:40]!r}")
    if value is None:
        return name
    if '"' in value:
        raise ValueError(f"a kernel argument's value cannot hold a quote: {value[:40]!r}")
    return f'{name}="{value}"' if any(c in _SPACE for c in value) else f"{name}={value}"
