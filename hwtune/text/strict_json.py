"""JSON that somebody else wrote: numbers that a machine can mean, nesting within reason."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

# NVMe's counters have 128 bits, which is 39 digits.
_MOST_DIGITS = 40


def loads(text: str | bytes) -> Any:
    """Raises ``ValueError`` for what is no JSON, is nested too deep, or holds a number beyond all bounds
    (Python's own reader takes NaN, Infinity, 1e999 and integers of any length)."""
    try:
        return json.loads(text, parse_float=_float, parse_int=_int, parse_constant=_constant)
    except RecursionError:
        raise ValueError("JSON nested too deep") from None


def _float(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError("a number beyond all bounds")
    return value


def _int(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError("a number beyond all bounds")
    return int(text)


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
