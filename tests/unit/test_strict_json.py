"""JSON of others."""

from __future__ import annotations

import pytest

from hwtune.text.strict_json import loads


def test_what_it_takes() -> None:
    text = '{"a": [1, -2.5, 1e3, true, null, "x"], "units": 340282366920938463463374607431768211455}'
    assert loads(text) == {"a": [1, -2.5, 1000.0, True, None, "x"], "units": (1 << 128) - 1}
    assert loads(text.encode()) == loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "NaN",
        "[-Infinity]",
        "1e999",
        "-1e999",
        "9" * 41,
        "[" * 100_000,
        '{"a":' * 100_000,
        b"\xff\xfe",
    ],
)
def test_what_it_refuses(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        loads(text)
