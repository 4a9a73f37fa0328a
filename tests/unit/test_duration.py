"""Times as people type them, the same for every command."""

from __future__ import annotations

import pytest

from hwtune.cli.duration import WEEK_S, seconds, told
from hwtune.errors import UsageError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10", 10), ("10s", 10), ("1.5m", 90), ("2h", 7200), ("5min", 300), ("250ms", 0.25), ("5us", 5e-6),
        (" 3s ", 3), ("2000ms", 2),
    ],
)  # fmt: skip
def test_times(text: str, value: float) -> None:
    assert seconds(text, "--duration") == pytest.approx(value)


@pytest.mark.parametrize(
    "text", ["", "s", "1d", "1e3x", "--", "1 s s", "inf", "1S", "soon", "10 parsecs", "-5s", "nan", "1e9"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="--duration takes a time"):
        seconds(text, "--duration")


def test_limits_are_told() -> None:
    for text in ("1s", "2h"):
        with pytest.raises(
            UsageError, match=f"--duration takes a time from 2 s of up to an hour, not '{text}'"
        ):
            seconds(text, "--duration", 2, 3600)
    assert seconds("2s", "--duration", 2, 3600) == 2
    assert seconds("60m", "--duration", 2, 3600) == 3600
    with pytest.raises(UsageError, match="of up to a week"):
        seconds("8000h", "--duration")


def test_how_times_are_told() -> None:
    values = (0.1, 2, 90, 600, 3600, 86_400, WEEK_S)
    assert [told(v) for v in values] == [
        "100 ms",
        "2 s",
        "90 s",
        "10 minutes",
        "an hour",
        "24 hours",
        "a week",
    ]
