"""Which CPUs are measured, and what is said of it beforehand."""

from __future__ import annotations

import pytest

from hwtune.errors import ToolError, UsageError
from hwtune.jitter.plan import Plan, announcement, plan

ALL = frozenset(range(8))


def chosen(cpus=None, hot=(), allowed=ALL):
    return plan(cpus, 10, None, False, hot, allowed)


def test_the_hot_cpus_where_there_are_any():
    assert chosen(hot=[6, 7]).cpus == [6, 7]
    assert "hot threads" in chosen(hot=[6, 7]).why


def test_all_where_none_is_kept_apart():
    assert chosen().cpus == list(range(8))
    assert chosen(hot=[30]).cpus == list(range(8))


def test_named_ones_are_obeyed():
    assert chosen("2,4-5", hot=[6]).cpus == [2, 4, 5]
    assert chosen("all").cpus == list(range(8))
    assert chosen("6-N").cpus == [6, 7]


@pytest.mark.parametrize(
    ("text", "words"), [("x", "list of CPUs"), ("", "no CPU"), ("3,9", "CPU 9 cannot"), ("5-2", "list")]
)
def test_or_refused_with_a_reason(text, words):
    with pytest.raises(UsageError, match=words):
        chosen(text)


def test_no_cpu_at_all():
    with pytest.raises(ToolError):
        chosen(allowed=frozenset())


def test_memory_for_gaps_is_bounded():
    wide = Plan(list(range(256)), 3600, None, False, "")
    assert wide.capacity * 256 <= 1 << 22
    assert Plan([1], 0.1, None, False, "").capacity == 10_000
    assert Plan([1], 0.01, None, False, "").capacity == 4096
    assert Plan([1, 2], 3600, None, True, "").capacity == 1 << 22


def test_one_by_one_takes_longer():
    assert Plan([1, 2, 3], 5, None, True, "").total_s == 15
    assert Plan([1, 2, 3], 5, None, False, "").total_s == 5


def test_it_says_beforehand_what_it_does_and_how_long():
    text = announcement(Plan([2, 3], 5, None, False, "as you named them"), "", 33_000)
    for words in (
        "CPU 2-3",
        "as you named them",
        "5 s, side by side",
        "33 MiB",
        "fully busy",
        "Nothing is changed",
    ):
        assert words in text
    untraced = announcement(Plan([2], 5, None, True, "all"), "tracing is for root", 0)
    assert "No trace, so gaps get no cause of their own: tracing is for root." in untraced
    assert "MiB" not in untraced
