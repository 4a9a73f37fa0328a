"""The grammar of isolcpus=: housekeeping_isolcpus_setup() of kernel/sched/isolation.c."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.text.cpulist import format_list
from hwtune.text.isolcpus import FLAGS, format_isolcpus, parse_isolcpus


@pytest.mark.parametrize(
    ("value", "flags", "unknown", "cpus", "domain"),
    [
        ("2-3", [], [], [2, 3], True),
        ("domain,2-3", ["domain"], [], [2, 3], True),
        ("managed_irq,2-3", ["managed_irq"], [], [2, 3], False),
        ("managed_irq,domain,4-N", ["managed_irq", "domain"], [], [4, 5, 6, 7], True),
        ("nohz,domain,managed_irq,1", ["nohz", "domain", "managed_irq"], [], [1], True),
        # a word that the kernel does not know is skipped and is no flag: domain is still implied
        ("managedirq,2-3", [], ["managedirq"], [2, 3], True),
        ("N,2", [], ["N"], [2], True),
        ("all,2", [], ["all"], [2], True),
        ("", [], [], [], True),
    ],
)
def test_flags_then_cpus(
    value: str, flags: list[str], unknown: list[str], cpus: list[int], domain: bool
) -> None:
    assert parse_isolcpus(value, last=7) == (flags, unknown, cpus, domain)


@pytest.mark.parametrize(
    "value", ["managed_irq", "domain", "N", "all", "irq0,2-3", "a-b,2", "2-3,domain", "3-1", "2-"]
)
def test_what_the_kernel_drops_as_a_whole(value: str) -> None:
    with pytest.raises(ValueError):
        parse_isolcpus(value, last=7)


def test_the_last_cpu_must_be_known_for_n() -> None:
    with pytest.raises(ValueError):
        parse_isolcpus("4-N")


@given(st.lists(st.sampled_from(FLAGS), unique=True), st.sets(st.integers(0, 300), min_size=1))
def test_what_is_written_is_what_is_read(flags: list[str], cpus: set[int]) -> None:
    read = parse_isolcpus(format_isolcpus(sorted(cpus), tuple(flags)))
    assert read == (flags, [], sorted(cpus), not flags or "domain" in flags)
    assert format_isolcpus(sorted(cpus), ()) == format_list(cpus)


@given(st.text(max_size=40))
def test_any_text_is_a_set_or_a_value_error(value: str) -> None:
    try:
        read = parse_isolcpus(value, last=63)
    except ValueError:
        return
    assert read.cpus == sorted(set(read.cpus))
    assert set(read.flags) <= set(FLAGS)
