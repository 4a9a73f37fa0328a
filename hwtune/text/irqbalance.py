"""irqbalance's environment: what it bans, and where a systemd unit takes it from.

The bans are setup_banned_cpus() of irqbalance's cputree.c; the files are those of systemd.exec(5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hwtune.text.cpulist import parse_list, parse_mask

if TYPE_CHECKING:
    from collections.abc import Callable

MASK = "IRQBALANCE_BANNED_CPUS"
LIST = "IRQBALANCE_BANNED_CPULIST"


class Ban(NamedTuple):
    """What the environment bans. ``cpus`` is None where irqbalance chooses by itself (all CPUs of
    /sys/devices/system/cpu/isolated and nohz_full); ``variable`` is the one that counts, or "".

    ``empty``: the list is set and empty. Releases since pull request 358 (2026) then ban nothing,
    those before choose by themselves. ``invalid``: the value cannot be read, which bans nothing.
    """

    cpus: list[int] | None
    variable: str
    value: str
    empty: bool = False
    invalid: bool = False


def effective_ban(environment: dict[str, str]) -> Ban:
    """The mask, where set, hides the list (an empty mask counts as unset)."""
    mask = environment.get(MASK, "")
    if mask:
        return _ban(MASK, mask, _mask)
    value = environment.get(LIST)
    if value is None:
        return Ban(None, "", "")
    if not value:
        return Ban(None, LIST, "", empty=True)
    return _ban(LIST, value, parse_list)


def _mask(text: str) -> list[int]:
    if text[:2].lower() == "0x":
        raise ValueError("irqbalance reads masks without 0x")
    return parse_mask(text)


def _ban(variable: str, value: str, parse: Callable[[str], list[int]]) -> Ban:
    try:
        return Ban(parse(value), variable, value)
    except ValueError:
        return Ban([], variable, value, invalid=True)


class Unit(NamedTuple):
    """What a unit file adds to the environment: files in their order, a leading "-" (may be
    missing) taken off; a reset (an empty EnvironmentFile=) is an empty string among them."""

    files: list[str]
    assignments: list[str]


def parse_unit(text: str) -> Unit:
    """The [Service] section's EnvironmentFile= and Environment= lines."""
    files: list[str] = []
    assignments: list[str] = []
    section = ""
    for line in _joined(text):
        if line.startswith("["):
            section = line
            continue
        if section != "[Service]":
            continue
        key, equals, value = line.partition("=")
        key, value = key.strip(), value.strip()
        if not equals:
            continue
        if key == "EnvironmentFile":
            files.append(value.removeprefix("-"))
        elif key == "Environment":
            assignments.extend(_words(value) if value else [""])
    return Unit(files, assignments)


def parse_environment(text: str) -> dict[str, str]:
    """Assignments of an EnvironmentFile: comments begin with # or ;, quotes are taken off, the
    last assignment of a name counts."""
    found: dict[str, str] = {}
    for line in _joined(text):
        # Init scripts source the same file, so that some write "export".
        name, equals, value = line.removeprefix("export ").partition("=")
        if equals and name.strip().isidentifier():
            found[name.strip()] = "".join(_words(value.strip(), separate=False))
    return found


def _joined(text: str) -> list[str]:
    """Lines without comments and empty ones, those that end in a backslash joined to the next."""
    found: list[str] = []
    pending = ""
    for line in text.splitlines():
        line = pending + line.strip()
        if line.endswith("\\"):
            pending = line[:-1]
            continue
        pending = ""
        if line and line[0] not in "#;":
            found.append(line)
    if pending:
        found.append(pending)
    return found


def _words(text: str, separate: bool = True) -> list[str]:
    """Words of a line, quotes taken off; all one word unless ``separate``."""
    words = [""]
    quote = ""
    for character in text:
        if quote:
            if character == quote:
                quote = ""
            else:
                words[-1] += character
        elif character in "\"'":
            quote = character
        elif separate and character.isspace():
            if words[-1]:
                words.append("")
        else:
            words[-1] += character
    return [word for word in words if word]
