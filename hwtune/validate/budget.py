"""The budget: microseconds that each stage may take at P99, and the SLA of the whole."""

from __future__ import annotations

import math
import os
import stat
from typing import Any

import msgspec

from hwtune.errors import UsageError
from hwtune.validate.run import END_TO_END, STAGES

SLA_US = 3200.0
_LIMIT = 1 << 16  # bytes of a budget file
_MOST_US = 1e8  # 100 s: what the histograms promise to tell

# Of 3,200 us. Inference has the most, and what waits for a batch that is under way waits about as long as
# one takes.
_DEFAULT = {
    "generate": 50.0,
    "tick-queue": 1000.0,
    "features": 50.0,
    "inference": 1800.0,
    "order-queue": 150.0,
    "order": 150.0,
}


class Budget(msgspec.Struct, frozen=True):
    """``stages``: microseconds at P99 by stage; a stage that is not there has no budget of its own."""

    stages: dict[str, float]
    sla_us: float
    source: str

    @property
    def planned_us(self) -> float:
        return sum(self.stages.values())


def load(path: str | None, sla_us: float | None) -> Budget:
    """``sla_us`` (the user's word) is above the file's end-to-end, that above the usual 3,200. Without a file
    the stages share the SLA as they share 3,200. Raises ``UsageError``."""
    if sla_us is not None and not 0 < sla_us <= _MOST_US:
        raise UsageError(f"--sla-us is a number of microseconds up to {_MOST_US:,.0f}, not {sla_us:g}")
    if path is None:
        sla = SLA_US if sla_us is None else sla_us
        return Budget({stage: us * sla / SLA_US for stage, us in _DEFAULT.items()}, sla, "built in")
    values = _read(path)
    told = values.pop(END_TO_END, None)
    sla = sla_us if sla_us is not None else told if told is not None else SLA_US
    return Budget({stage: values[stage] for stage in STAGES if stage in values}, sla, path)


def _read(path: str) -> dict[str, float]:
    try:
        content = read_regular(path, _LIMIT)
        values = msgspec.toml.decode(content)
    except OSError as error:
        raise UsageError(f"the budget {path} cannot be read: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the budget {path} is not valid TOML: {error}") from None
    if not values:
        raise UsageError(f"the budget {path} names no stage; the stages are {', '.join(_KEYS)}")
    return {key: _microseconds(path, key, value) for key, value in values.items()}


_KEYS = (*STAGES, END_TO_END)


def _microseconds(path: str, key: str, value: Any) -> float:
    if key not in _KEYS:
        from difflib import get_close_matches

        near = get_close_matches(key, _KEYS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else f"the stages are {', '.join(_KEYS)}"
        raise UsageError(f"the budget {path} has a key {key!r} that is no stage; {hint}")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"the budget {path}: {key} is a number of microseconds, not {value!r}"[:300])
    if not math.isfinite(value) or not 0 < value <= _MOST_US:
        raise UsageError(f"the budget {path}: {key} must be above 0 and at most {_MOST_US:,.0f} microseconds")
    return float(value)


def read_regular(path: str, limit: int) -> bytes:
    """The content of a regular file of at most ``limit`` bytes. Raises ``OSError``; a pipe or a device, which
    may never end, is refused."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is not a regular file")
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(0, f"it is larger than {limit:,} bytes")
    return content
