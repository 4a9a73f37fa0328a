"""Entries of the Boot Loader Specification (uapi-group.org/specifications/specs/boot_loader_specification),
as GRUB's blscfg and systemd-boot read them."""

from __future__ import annotations

import re
from typing import NamedTuple


class Entry(NamedTuple):
    """``id``: the file's name without ".conf". ``options``: all options lines, with variables left in."""

    id: str
    title: str
    version: str
    sort_key: str
    linux: str
    options: str


def parse(id: str, text: str) -> Entry:
    """One file. Keys that are not known are passed over, as the specification asks."""
    single: dict[str, str] = {}
    options: list[str] = []
    for raw in text.split("\n"):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        key, _, value = line.replace("\t", " ", 1).partition(" ")
        if key == "options":
            options.append(value.strip())
        else:
            single.setdefault(key, value.strip())
    return Entry(
        id,
        single.get("title", ""),
        single.get("version", ""),
        single.get("sort-key", ""),
        single.get("linux", single.get("efi", "")),
        " ".join(o for o in options if o),
    )


def newest_first(entries: list[Entry]) -> list[Entry]:
    """By the versions in their ids, the highest first: the menu's order in GRUB."""
    return sorted(entries, key=lambda e: version_key(e.id), reverse=True)


def version_key(text: str) -> list[tuple[int, int, str]]:
    """For comparison as rpmvercmp does: runs of digits by value, above runs of letters."""
    return [
        (1, int(part), "") if part.isdecimal() and part.isascii() else (0, 0, part)
        for part in re.findall(r"[0-9]{1,300}|[A-Za-z]+", text)
    ]


def loader_default(text: str) -> str | None:
    """The pattern after "default" in loader.conf (loader.conf(5)); None without one."""
    for line in text.split("\n"):
        words = line.split()
        if len(words) == 2 and words[0] == "default":
            return words[1]
    return None
