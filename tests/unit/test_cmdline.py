"""Splitting the command line as next_arg() and parse_args() of the kernel do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.text.cmdline import Argument, canonical, parse, quote, split


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  \n", []),
        ("quiet", [("quiet", None, "quiet")]),
        ("a=1  b", [("a", "1", "a=1"), ("b", None, "b")]),
        # only the first "=" parts name and value
        ("root=UUID=abc", [("root", "UUID=abc", "root=UUID=abc")]),
        ("empty=", [("empty", "", "empty=")]),
        # the kernel takes a "=" at the very beginning for a part of the name
        ("=x", [("=x", None, "=x")]),
        ("==x", [("=", "x", "==x")]),
        # quotes: around the value, around the whole, in the middle
        ('dyndbg="file a.c +p" b', [("dyndbg", "file a.c +p", 'dyndbg="file a.c +p"'), ("b", None, "b")]),
        ('"dyndbg=file a.c +p" b', [("dyndbg", "file a.c +p", '"dyndbg=file a.c +p"'), ("b", None, "b")]),
        ('a=b"c d"e', [("a", 'b"c d"e', 'a=b"c d"e')]),
        ('a="b c', [("a", "b c", 'a="b c')]),
        ('"', [("", None, '"')]),
        # dashes and underscores of the name are one, those of the value are not
        ("nohz-full=2-3 x_y=a-b_c", [("nohz_full", "2-3", "nohz-full=2-3"), ("x_y", "a-b_c", "x_y=a-b_c")]),
        ("intel-idle.max-cstate=1", [("intel_idle.max_cstate", "1", "intel-idle.max-cstate=1")]),
        ("a\tb\nc", [("a", None, "a"), ("b", None, "b"), ("c", None, "c")]),
    ],
)
def test_arguments(text: str, expected: list[tuple[str, str | None, str]]) -> None:
    assert [tuple(a) for a in parse(text)] == expected


def test_what_follows_two_dashes_is_for_init() -> None:
    arguments, rest = split("quiet isolcpus=1-3 -- isolcpus=0 --addr x")
    assert [a.text for a in arguments] == ["quiet", "isolcpus=1-3"]
    assert rest == "isolcpus=0 --addr x"


def test_two_dashes_with_a_value_or_more_dashes_end_nothing() -> None:
    assert [a.text for a in parse("--=1 --- __ b")] == ["--=1", "---", "__", "b"]


@given(st.text())
def test_any_text_is_split(text: str) -> None:
    arguments, rest = split(text)
    assert sum(len(a.text) for a in arguments) + len(rest) <= len(text)
    assert all("-" not in a.name for a in arguments)


_names = st.from_regex(r"[a-z][a-z0-9_.]{0,12}", fullmatch=True)
_values = st.none() | st.text(st.characters(codec="ascii", exclude_categories=["Cc"], exclude_characters='"'))


@given(st.lists(st.tuples(_names, _values), max_size=8))
def test_quoted_arguments_come_back(wanted: list[tuple[str, str | None]]) -> None:
    text = " ".join(quote(name, value) for name, value in wanted)
    assert [(a.name, a.value) for a in parse(text)] == wanted


@pytest.mark.parametrize(
    ("name", "value"), [("", None), ("a b", None), ("a", 'b"c'), ("a=b", "c"), ("--", None)]
)
def test_what_no_command_line_can_hold(name: str, value: str | None) -> None:
    with pytest.raises(ValueError, match="kernel argument"):
        quote(name, value)


def test_canonical_name() -> None:
    assert canonical("rcu-nocbs") == canonical("rcu_nocbs") == "rcu_nocbs"
    assert Argument("a", None, "a").value is None
