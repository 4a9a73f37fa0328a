"""Mount tables: /proc/self/mountinfo, /proc/self/mounts (proc(5)) and /etc/fstab (fstab(5))."""

from __future__ import annotations

import re
from typing import NamedTuple

_OCTAL = re.compile(r"\\([0-7]{3})")


class Entry(NamedTuple):
    """``number``: the "major:minor" of the device, "" where the table does not have it; ``options``
    of the mount and of the file system itself."""

    device: str
    target: str
    fstype: str
    options: list[str]
    number: str = ""


def parse_mountinfo(text: str) -> list[Entry]:
    """Raises ``ValueError`` when a line is not of mountinfo."""
    found = []
    for line in text.splitlines():
        fields = line.split()
        # ID parent major:minor root target options [optional fields] - type device options
        if "-" not in fields[6:]:
            raise ValueError(f"not a line of mountinfo: {line[:60]!r}")
        end = fields.index("-", 6)
        if len(fields) < end + 3:
            raise ValueError(f"not a line of mountinfo: {line[:60]!r}")
        # the device of some file systems is empty
        device, options = (
            (fields[end + 2], fields[end + 3]) if len(fields) > end + 3 else ("", fields[end + 2])
        )
        both = dict.fromkeys([*fields[5].split(","), *options.split(",")])
        found.append(Entry(unescape(device), unescape(fields[4]), fields[end + 1], list(both), fields[2]))
    return found


def parse_mounts(text: str) -> list[Entry]:
    """Raises ``ValueError`` when a line is not of a mount table."""
    found = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 4:
            raise ValueError(f"not a line of a mount table: {line[:60]!r}")
        found.append(Entry(unescape(fields[0]), unescape(fields[1]), fields[2], fields[3].split(",")))
    return found


def parse_fstab(text: str) -> list[Entry]:
    """Lines of fstab without comments; those that lack a field are left out, as mount(8) does."""
    found = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 4 and not fields[0].startswith("#"):
            found.append(Entry(unescape(fields[0]), unescape(fields[1]), fields[2], fields[3].split(",")))
    return found


def unescape(text: str) -> str:
    r"""The blanks, tabs and backslashes that these files write as \040 and so on."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
