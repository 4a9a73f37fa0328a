"""Latency figures as cyclictest (rt-tests) and rtla (Linux tools/tracing/rtla) print them."""

from __future__ import annotations

import re
from typing import NamedTuple

from hwtune.text.number import finite

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_THREAD = re.compile(r"^T: *(\d+) .*\bAvg: *(-?\d+)\b.*\bMax: *(-?\d+)")
_SUMMARY = re.compile(r"^# (Avg|Max) Latencies: ([\d ]+)$", re.MULTILINE)
_COLUMN = re.compile(r"(IRQ|Thr|Usr)-(\d+)")
_ROW = re.compile(r"^ *(\d+) +#\d+ +(.*)$")

_KINDS = {"IRQ": "irq", "Thread": "thread", "User": "user", "Thr": "thread", "Usr": "user"}


class Latency(NamedTuple):
    """One CPU's (rtla) or one thread's (cyclictest) figures, in microseconds."""

    number: int
    kind: str  # "irq", "thread", "user" (timerlat), "single", "total" (osnoise), "" (cyclictest)
    average_us: float | None
    max_us: float


def parse_cyclictest(text: str) -> list[Latency]:
    """A line a thread ("T: 0 ( 4556) ... Avg: 4 Max: 36"), or the summary of a histogram run.

    With -N cyclictest prints nanoseconds in the same words; such output cannot be told apart.
    """
    found: dict[int, Latency] = {}
    for line in _ANSI.sub("", text).splitlines():
        match = _THREAD.match(line)
        if match is not None:  # a run that was not told to be quiet prints each thread again and again
            found[int(match[1])] = Latency(int(match[1]), "", float(match[2]), float(match[3]))
    if found:
        return [found[number] for number in sorted(found)]
    figures = {m[1]: [finite(word) for word in m[2].split()] for m in _SUMMARY.finditer(_ANSI.sub("", text))}
    averages = figures.get("Avg", [])
    return [
        Latency(number, "", averages[number] if number < len(averages) else None, most)
        for number, most in enumerate(figures.get("Max", []))
    ]


def parse_rtla(text: str) -> tuple[str, list[Latency]]:
    """("timerlat" or "osnoise", the last figures of each CPU); ("", []) where it is neither."""
    lines = _ANSI.sub("", text).splitlines()
    for at, line in enumerate(lines):
        if "Timer Latency" in line and "CPU" not in line:
            return "timerlat", _timerlat_top(lines[at:])
        if line.startswith("Index") and _COLUMN.search(line):
            return "timerlat", _timerlat_hist(line, lines[at:])
        if "Max Noise" in line and "CPU" in line:
            return "osnoise", _osnoise_top(line, lines[at:])
    return "", []


def _timerlat_top(lines: list[str]) -> list[Latency]:
    """Groups of cur, min, avg, max, one a latency, under titles "IRQ Timer Latency (us)" ..."""
    kinds: list[str] = []
    found: dict[tuple[int, str], Latency] = {}
    for line in lines:
        if "Latency (" in line:
            words = [part.split()[0] for part in line.split("|") if "Latency (" in part]
            kinds = [_KINDS.get(word, word.lower()) for word in words]
            continue
        first, *groups = line.split("|")
        cpu = first.split()[:1]
        if not groups or not cpu or not cpu[0].isdigit():
            continue
        for kind, group in zip(kinds, groups, strict=False):
            figures = _numbers(group)
            if len(figures) == 4:
                found[int(cpu[0]), kind] = Latency(int(cpu[0]), kind, figures[2], figures[3])
    return list(found.values())


def _timerlat_hist(header: str, lines: list[str]) -> list[Latency]:
    """The columns IRQ-000 Thr-000 ... of a histogram, whose last lines are titled avg: and max:"""
    columns = [(_KINDS[kind], int(cpu)) for kind, cpu in _COLUMN.findall(header)]
    rows = {}
    for line in lines:
        name, colon, rest = line.partition(":")
        if colon and name in ("avg", "max"):
            rows[name] = _numbers(rest)
    most, average = rows.get("max", []), rows.get("avg", [])
    if len(most) != len(columns):
        return []
    return [
        Latency(cpu, kind, average[at] if len(average) == len(columns) else None, most[at])
        for at, (kind, cpu) in enumerate(columns)
    ]


def _osnoise_top(header: str, lines: list[str]) -> list[Latency]:
    """CPU, period, runtime, noise, share of the CPU, and the longest noise: in sum of one period
    (Max Noise) and of one interference (Max Single)."""
    found: dict[tuple[int, str], Latency] = {}
    for line in lines:
        match = _ROW.match(line)
        figures = _numbers(match[2]) if match is not None else []
        if match is not None and len(figures) >= 5 and "Max Single" in header:
            cpu = int(match[1])
            found[cpu, "total"] = Latency(cpu, "total", None, figures[3])
            found[cpu, "single"] = Latency(cpu, "single", None, figures[4])
    return list(found.values())


def _numbers(text: str) -> list[float]:
    """The numbers at the beginning of a text; [] where something else is among them."""
    found = []
    for word in text.split():
        try:
            found.append(finite(word))
        except ValueError:
            return [] if word != "-" else found
    return found
