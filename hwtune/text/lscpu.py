"""The summary that lscpu (util-linux) prints, also where a terminal or lscpu itself broke its lines."""

from __future__ import annotations

import re

from hwtune.text.cpulist import parse_list, parse_mask

_FIELD = re.compile(r"( *)([A-Za-z][^:=]*?) *:( *)(.*)")
# util-linux writes steps as "first-last:step" (lib/cpuset.c), the kernel as "first-last:used/group"
_STEP = re.compile(r"(\d+)-(\d+):(\d+)(?!/|\d)")
_VULNERABILITY = "Vulnerability "


def fields(text: str) -> dict[str, str]:
    """Field name -> value. Newer versions indent fields below section titles ("Caches (sum of
    all):"), whose own value is "". A line that begins no field goes on with the one before: cut
    at the value's column where lscpu wrapped it, anywhere where a terminal did.
    """
    found: dict[str, str] = {}
    name, column = "", 0
    for line in text.splitlines():
        blank = len(line) - len(line.lstrip(" "))
        match = _FIELD.match(line)
        if name and line.strip() and blank >= max(column, 8):
            found[name] += line[column:] if blank <= column + 1 else line.strip()
        elif match is not None:
            name, column = match[2], match.start(4)
            found.setdefault(name, "")
            found[name] = found[name] or match[4].rstrip()
        else:
            name = ""
    return {key: value.rstrip() for key, value in found.items()}


def cpus(text: str) -> list[int]:
    """CPU numbers of a list or a mask ("0xff", as lscpu -x prints it). Raises ``ValueError``."""
    if text.startswith("0x"):
        return parse_mask(text)
    return parse_list(_STEP.sub(lambda m: f"{m[1]}-{m[2]}:1/{m[3]}", text))


def node_cpus(found: dict[str, str]) -> dict[int, list[int]]:
    """NUMA node -> CPUs, of the lines "NUMA nodeN CPU(s)"; lines that make no sense are left out."""
    nodes = {}
    for name, value in found.items():
        if name.startswith("NUMA node") and name.endswith(" CPU(s)"):
            try:
                nodes[int(name[len("NUMA node") : -len(" CPU(s)")])] = cpus(value)
            except ValueError:
                continue
    return nodes


def vulnerabilities(found: dict[str, str]) -> dict[str, str]:
    """Kernel's file name -> the words it would print, of both layouts: "Vulnerability L1tf" in the
    old one, "L1tf" below "Vulnerabilities" in the new one."""
    names = [n for n in found if n.startswith(_VULNERABILITY)]
    if not names and "Vulnerabilities" in found:
        ordered = list(found)
        names = ordered[ordered.index("Vulnerabilities") + 1 :]
    # lscpu prints the kernel's "a: b" as "a; b", and its first letter large
    return {
        name.removeprefix(_VULNERABILITY).lower().replace(" ", "_"): found[name].replace("; ", ": ", 1)
        for name in names
    }
