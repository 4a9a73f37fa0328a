import pytest

from hwtune.fact import ABSENT, DENIED, INVALID, NOT_CAPTURED, absent, gap, known, not_probed


def test_a_known_fact_gives_its_value_and_its_source() -> None:
    fact = known(10, "/proc/sys/vm/swappiness")
    assert (fact.known, fact.absent, fact.unknown) == (True, False, False)
    assert fact.get() == 10
    assert fact.source == "/proc/sys/vm/swappiness"


def test_an_absence_is_knowledge_and_no_value() -> None:
    fact = absent("/sys/kernel/mm/ksm/run")
    assert (fact.known, fact.absent, fact.unknown) == (False, True, False)
    with pytest.raises(ValueError, match="ksm/run"):
        fact.get()


@pytest.mark.parametrize("kind", [DENIED, NOT_CAPTURED, INVALID])
def test_every_other_gap_is_unknown(kind: str) -> None:
    fact = gap(kind, "/x", "why")
    assert (fact.known, fact.absent, fact.unknown) == (False, False, True)
    assert fact.why().startswith("/x ") and fact.why().endswith("(why)")


def test_a_field_that_no_probe_set_is_unknown() -> None:
    assert not_probed().unknown


def test_zero_and_false_are_values() -> None:
    assert known(0, "x").get() == 0
    assert known(False, "x").known


def test_map_keeps_gaps_and_turns_a_value_error_into_one() -> None:
    assert known("7", "x").map(int) == known(7, "x")
    assert known("seven", "x").map(int).gap == INVALID
    assert gap(DENIED, "x").map(int) == gap(DENIED, "x")


def test_or_else_prefers_what_says_more() -> None:
    unknown, nothing, value = gap(NOT_CAPTURED, "a"), absent("b"), known(1, "c")
    assert value.or_else(nothing) is value
    assert unknown.or_else(value) is value
    assert unknown.or_else(nothing) is nothing
    assert nothing.or_else(unknown) is nothing
    assert nothing.gap == ABSENT
