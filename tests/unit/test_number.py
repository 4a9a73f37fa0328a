"""Numbers as machines print them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hwtune.fact import INVALID
from hwtune.host.recognise import clean
from hwtune.text.number import finite, hexadecimal, is_endless
from tests.support import host

if TYPE_CHECKING:
    from pathlib import Path


def test_hexadecimal() -> None:
    assert [hexadecimal(text) for text in ("0x10de", "ff", "FF\n", "0x" + "f" * 16)] == [
        0x10DE,
        255,
        255,
        2**64 - 1,
    ]


@pytest.mark.parametrize(
    "text", ["", "0x", "f" * 19, "0x" + "f" * 17, "1_0", "\N{ARABIC-INDIC DIGIT THREE}", "g"]
)
def test_what_is_no_hexadecimal_number(text: str) -> None:
    with pytest.raises(ValueError):
        hexadecimal(text)


def test_finite() -> None:
    assert [finite(text) for text in ("1", "-2.5", "1e3")] == [1.0, -2.5, 1000.0]


@pytest.mark.parametrize("text", ["", "inf", "-Infinity", "nan", "1e999", "9" * 400, "1_0.5", "x"])
def test_what_is_no_finite_number(text: str) -> None:
    with pytest.raises(ValueError):
        finite(text)


@pytest.mark.parametrize(
    ("text", "value"), [("60", 60), ("-1\n", -1), ("+5", 5), ("18446744073709551615", 2**64 - 1)]
)
def test_a_decimal_file(tmp_path: Path, text: str, value: int) -> None:
    assert host(tmp_path, {"/sys/x": text}).integer("/sys/x").value == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "1_000",
        "\N{ARABIC-INDIC DIGIT THREE}",
        "\N{SUPERSCRIPT TWO}",
        "0x1",
        "1.0",
        "9" * 22,
        "+-1",
        "1 2",
    ],
)
def test_what_is_no_decimal_file(tmp_path: Path, text: str) -> None:
    assert host(tmp_path, {"/proc/sys/vm/x": text + "\n"}).integer("/proc/sys/vm/x").gap == INVALID


def test_digits_without_end_are_damage(tmp_path: Path) -> None:
    """virtio prints its features as 64 digits; nothing prints hundreds."""
    bits = "1" * 64
    box = host(tmp_path, {"/sys/features": bits, "/proc/meminfo": f"MemTotal: {'9' * 400} kB\n"})
    assert box.text("/sys/features").value == bits
    found = box.text("/proc/meminfo")
    assert (found.gap, found.detail) == (INVALID, "digits without end")
    assert not is_endless("9" * 128)
    assert clean(b"a: " + b"1" * 500 + b" kB\nb: 2\n") == "a: \N{HORIZONTAL ELLIPSIS} kB\nb: 2\n"
