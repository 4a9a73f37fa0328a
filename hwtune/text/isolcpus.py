"""The isolcpus= argument, as kernel/sched/isolation.c of Linux 6.12 reads it (facts E1)."""

from __future__ import annotations

from typing import NamedTuple

from hwtune.text.cpulist import parse_list

FLAGS = ("nohz", "domain", "managed_irq")


class Isolcpus(NamedTuple):
    """``domain``: whether the scheduler's balancing is kept off these CPUs."""

    flags: list[str]
    unknown_flags: list[str]
    cpus: list[int]
    domain: bool


def parse_isolcpus(value: str, last: int | None = None) -> Isolcpus:
    """Flags first, each with its comma; without any flag, ``domain`` is meant. An alphabetic
    flag that the kernel does not know is skipped by it. Raises ``ValueError`` on what is left
    not being a CPU list, on which the kernel ignores the whole argument."""
    flags: list[str] = []
    unknown: list[str] = []
    rest = value
    while rest[:1].isalpha() and not rest.startswith(("all", "N")):
        word, comma, rest = rest.partition(",")
        if not comma:
            raise ValueError(f"isolcpus={value[:60]} names no CPU")
        if not word.replace("_", "").isalpha():
            raise ValueError(f"isolcpus={value[:60]} has an unknown flag {word[:20]}")
        (flags if word in FLAGS else unknown).append(word)
    return Isolcpus(flags, unknown, parse_list(rest, last), not flags or "domain" in flags)
