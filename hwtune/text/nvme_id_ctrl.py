"""Identify Controller as ``nvme id-ctrl`` (nvme-cli) prints it, as text or as JSON."""

from __future__ import annotations

import re
from typing import Any

from hwtune.text.nvme_identify import KELVIN, MAX_STATES, Controller, State, power, version_text

_LINE = re.compile(r"([a-z][a-z0-9_]{0,31})\s*: ?(.*)")
_STATE = re.compile(
    r"ps\s{1,12}(\d{1,2})\s{0,4}: ?mp:([\d.]{1,12})W (non-)?operational enlat:(\d{1,10}) exlat:(\d{1,10})",
    re.ASCII,
)


def parse(text: str) -> Controller:
    """What ``nvme id-ctrl`` printed, as text or as JSON (``-o json``). Raises ``ValueError``."""
    if text.lstrip().startswith("{"):
        return _from_json(text)
    values: dict[str, str] = {}
    states: list[State] = []
    for line in text.splitlines():
        state = _STATE.match(line)
        if state is not None:
            states.append(_state_line(state))
            continue
        match = _LINE.match(line)
        if match is not None:
            values.setdefault(match[1], match[2].strip())
    if "mn" not in values and "vid" not in values:
        raise ValueError("not the output of nvme id-ctrl")
    return _controller(values, states or None)


def _state_line(match: re.Match[str]) -> State:
    milliwatts = round(float(match[2]) * 1000)
    return State(int(match[1]), milliwatts or None, bool(match[3]), int(match[4]), int(match[5]))


def _from_json(text: str) -> Controller:
    from hwtune.text import strict_json

    said = strict_json.loads(text)
    if not isinstance(said, dict) or "vid" not in said:
        raise ValueError("not the output of nvme id-ctrl")
    listed = said.get("psds")
    states = None
    if isinstance(listed, list):
        states = [_state_json(index, entry) for index, entry in enumerate(listed[:MAX_STATES])]
    return _controller(said, states)


def _state_json(index: int, entry: Any) -> State:
    if not isinstance(entry, dict):
        raise ValueError("a power state that is no object")
    flags = integer(entry.get("flags")) or 0
    # nvme-cli 2 has the two flags apart, as well
    flags |= (1 if entry.get("max_power_scale") else 0) | (2 if entry.get("non-operational_state") else 0)
    return State(
        index,
        power(integer(entry.get("max_power")) or 0, flags),
        bool(flags & 2),
        integer(entry.get("entry_lat")) or 0,
        integer(entry.get("exit_lat")) or 0,
    )


def _controller(values: dict[str, Any], states: list[State] | None) -> Controller:
    def number(key: str) -> int | None:
        return integer(values.get(key))

    def flag(key: str) -> bool | None:
        value = number(key)
        return None if value is None else bool(value & 1)

    def celsius(key: str) -> int | None:
        value = number(key)
        return None if value is None else value - KELVIN

    version, pages = number("ver"), number("hmpre")
    return Controller(
        model=_string(values.get("mn")),
        serial=_string(values.get("sn")),
        firmware=_string(values.get("fr")),
        version=None if version is None else version_text(version),
        apst=flag("apsta"),
        warning_temp_c=celsius("wctemp"),
        critical_temp_c=celsius("cctemp"),
        host_memory_kib=None if pages is None else pages * 4,
        thermal_management=flag("hctma"),
        write_cache=flag("vwc"),
        states=states,
    )


def _string(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


_INTEGER = re.compile(r"(?:0x([0-9a-f]{1,32})|(\d{1,40}))(?:\s|$)", re.ASCII | re.IGNORECASE)


def integer(value: Any) -> int | None:
    """A number of a tool's output: an int, or the first word "0x1" or "17" of a text; None where it
    is neither."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value
    match = _INTEGER.match(value) if isinstance(value, str) else None
    if match is None:
        return None
    return int(match[1], 16) if match[1] else int(match[2])
