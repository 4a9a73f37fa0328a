"""The isolcpus= argument, as housekeeping_isolcpus_setup() of kernel/sched/isolation.c reads it."""

from __future__ import annotations

from typing import NamedTuple

from hwtune.text.cpulist import format_list, parse_list

FLAGS = ("nohz", "domain", "managed_irq")


class Isolcpus(NamedTuple):
    """``domain``: whether the scheduler's balancing is kept off these CPUs."""

    flags: list[str]
    unknown_flags: list[str]
    cpus: list[int]
    domain: bool


def parse_isolcpus(value: str, last: int | None = None) -> Isolcpus:
    """Flags first, each with its comma; without any flag, ``domain`` is meant.

    A word of letters that the kernel does not know is skipped by it, so that ``N`` and ``all``,
    which cpulists know, are no CPUs at the beginning of this argument. Raises ``ValueError`` on
    what makes the kernel drop the whole argument: a flag with other characters in it, or a rest
    that is no CPU list.
    """
    flags: list[str] = []
    unknown: list[str] = []
    rest = value
    while _is_letter(rest[:1]):
        word, comma, rest = rest.partition(",")
        if not all(_is_letter(c) or c == "_" for c in word):
            raise ValueError(f"isolcpus={value[:60]} has the invalid flag {word[:20]}")
        if not comma:
            raise ValueError(f"isolcpus={value[:60]} names no CPU")
        (flags if word in FLAGS else unknown).append(word)
    return Isolcpus(flags, unknown, parse_list(rest, last), not flags or "domain" in flags)


def format_isolcpus(cpus: list[int], flags: tuple[str, ...] = ("domain", "managed_irq")) -> str:
    """The argument's value that isolates ``cpus`` in all of these senses."""
    return ",".join((*flags, format_list(cpus)))


def _is_letter(character: str) -> bool:
    """isalpha() of the C locale."""
    return character.isascii() and character.isalpha()
