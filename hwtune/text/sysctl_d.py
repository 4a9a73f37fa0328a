"""Files of sysctl.d, and the names of sysctls (sysctl.d(5), sysctl(8)).

A name has two forms: with dots between its parts ("net.ipv4.conf.eth0/100.rp_filter", where a
slash stands for a dot inside a part), and the path below /proc/sys, where it is the other way
round. hwtune keeps the dotted form, as ``sysctl -a`` prints it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_SWAP = str.maketrans("./", "/.")
_GLOB = frozenset("*?[")
# Secrets of the machine: their values must not go into a report.
_SECRETS = ("stable_secret", "tcp_fastopen_key")


class Assignment(NamedTuple):
    """One line. ``key`` in the dotted form. ``value`` is None for "-key", which only keeps the key
    out of the patterns of other lines; ``optional``: a failure to set it is ignored ("-key=...")."""

    key: str
    value: str | None
    optional: bool
    line: int


def parse(text: str) -> tuple[list[Assignment], list[int]]:
    """The assignments of a file, and the numbers of the lines that are none (systemd-sysctl
    refuses those and goes on)."""
    found: list[Assignment] = []
    bad: list[int] = []
    # Only a newline ends a line: str.splitlines would also split at form feeds and the like.
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        name, equals, value = line.partition("=")
        optional = name.startswith("-")
        key = normalize(name.removeprefix("-").strip())
        if not key or not (equals or optional):
            bad.append(number)
            continue
        found.append(Assignment(key, value.strip() if equals else None, optional, number))
    return found, bad


def normalize(name: str) -> str:
    """The dotted form. What the first separator of a name is, decides in which form it is written."""
    for character in name:
        if character == "/":
            return name.translate(_SWAP)
        if character == ".":
            break
    return name


def path(key: str) -> str:
    """The file of a key in its dotted form. Raises ``ValueError`` for a key that would lead out
    of /proc/sys."""
    parts = key.translate(_SWAP).split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError(f"not a sysctl's name: {key[:60]!r}")
    return "/proc/sys/" + "/".join(parts)


def is_pattern(key: str) -> bool:
    return not _GLOB.isdisjoint(key)


def is_secret(key: str) -> bool:
    return key.endswith(_SECRETS)


def matches(pattern: str, key: str) -> bool:
    """Whether a pattern names the key; as in the shell, a wildcard stays within one part."""
    from fnmatch import fnmatchcase

    parts, wanted = key.translate(_SWAP).split("/"), pattern.translate(_SWAP).split("/")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def same_value(configured: str, live: str) -> bool:
    """Whether what /proc/sys shows is what was written there: numbers in any base and with any
    white space between them, and a vector of which only the first numbers were given."""
    if configured == live:
        return True
    wanted, present = configured.split(), live.split()
    if not wanted or len(wanted) > len(present):
        return False
    return all(_number(a) == _number(b) for a, b in zip(wanted, present, strict=False)) and (
        len(wanted) == len(present) or all(isinstance(_number(b), int) for b in present)
    )


def _number(word: str) -> int | str:
    """The number that the kernel's strtoul(..., 0) makes of a word, or the word."""
    try:
        # Python refuses leading zeros, which are octal in the kernel.
        digits = word.lstrip("+-")
        if len(digits) > 1 and digits.isdigit() and digits[0] == "0":
            return int(word, 8)
        return int(word, 0) if "_" not in word else word
    except ValueError:
        return word


def applied_order(paths: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """The files that systemd-sysctl reads, in its order (by name, whatever the directory), and the
    files that are masked: hidden by one of the same name in a directory before theirs.

    ``paths``: all files, those of directories of higher priority first.
    """
    first: dict[str, str] = {}
    masked: dict[str, str] = {}
    for path_ in paths:
        name = path_.rsplit("/", 1)[-1]
        if name in first:
            masked[path_] = first[name]
        else:
            first[name] = path_
    return [first[name] for name in sorted(first)], masked
