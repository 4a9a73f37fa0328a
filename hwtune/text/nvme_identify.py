"""Identify Controller: the structure itself, and as ``nvme id-ctrl`` prints it.

Offsets and units: NVM Express Base Specification 2.0, "Identify Controller data structure" and
"Power State Descriptor data structure".
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

LENGTH = 4096
_STATES = 2048  # where the 32 power state descriptors begin
_STATE_LENGTH = 32
_MAX_STATES = 32

KELVIN = 273  # as the kernel and nvme-cli reckon


class State(NamedTuple):
    """A power state; latencies in microseconds, 0 where none is reported."""

    number: int
    max_power_mw: int | None
    non_operational: bool
    entry_us: int
    exit_us: int


class Controller(NamedTuple):
    """What concerns us of Identify Controller; None where a text does not have it.

    Temperatures in degrees Celsius, 0 K (none reported) as -273.
    """

    model: str | None = None
    serial: str | None = None
    firmware: str | None = None
    version: str | None = None
    apst: bool | None = None
    warning_temp_c: int | None = None
    critical_temp_c: int | None = None
    host_memory_kib: int | None = None  # preferred size of the host memory buffer
    thermal_management: bool | None = None
    write_cache: bool | None = None
    states: list[State] | None = None


def decode(data: bytes) -> Controller:
    """The structure as the drive gives it, at least its first 3,072 bytes. Raises ``ValueError``."""
    if len(data) < _STATES + _MAX_STATES * _STATE_LENGTH:
        raise ValueError(f"Identify Controller of {len(data)} bytes")
    if not any(data[:_STATES]):
        raise ValueError("Identify Controller is all zeros")
    count = min(data[263] + 1, _MAX_STATES)
    places = (_STATES + index * _STATE_LENGTH for index in range(count))
    return Controller(
        model=_text(data[24:64]),
        serial=_text(data[4:24]),
        firmware=_text(data[64:72]),
        version=_version(_number(data, 80, 4)),
        apst=bool(data[265] & 1),
        warning_temp_c=_number(data, 266, 2) - KELVIN,
        critical_temp_c=_number(data, 268, 2) - KELVIN,
        host_memory_kib=_number(data, 272, 4) * 4,
        thermal_management=bool(data[322] & 1),
        write_cache=bool(data[525] & 1),
        states=[_state(index, data[at : at + _STATE_LENGTH]) for index, at in enumerate(places)],
    )


def _state(index: int, data: bytes) -> State:
    return State(
        index,
        _power(_number(data, 0, 2), data[3]),
        bool(data[3] & 2),
        _number(data, 4, 4),
        _number(data, 8, 4),
    )


def _power(units: int, flags: int) -> int | None:
    """Milliwatts: units of 0.01 W, or of 0.0001 W with bit 0 of the flags; 0 is not reported."""
    return (round(units / 10) if flags & 1 else units * 10) or None


def _number(data: bytes, at: int, length: int) -> int:
    return int.from_bytes(data[at : at + length], "little")


def _text(data: bytes) -> str:
    """ASCII, padded with blanks (some drives pad with zeros)."""
    return data.partition(b"\0")[0].decode("ascii", "replace").strip()


def _version(number: int) -> str | None:
    """ "1.4" or "1.2.1"; None of drives before 1.2, which leave the field empty."""
    if not number:
        return None
    major, minor, tertiary = number >> 16, number >> 8 & 0xFF, number & 0xFF
    return f"{major}.{minor}" + (f".{tertiary}" if tertiary else "")


# -- nvme id-ctrl ---------------------------------------------------------------------------

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
    try:
        said = json.loads(text)
    except RecursionError:
        raise ValueError("JSON nested too deep") from None
    if not isinstance(said, dict) or "vid" not in said:
        raise ValueError("not the output of nvme id-ctrl")
    listed = said.get("psds")
    states = None
    if isinstance(listed, list):
        states = [_state_json(index, entry) for index, entry in enumerate(listed[:_MAX_STATES])]
    return _controller(said, states)


def _state_json(index: int, entry: Any) -> State:
    if not isinstance(entry, dict):
        raise ValueError("a power state that is no object")
    flags = integer(entry.get("flags")) or 0
    # nvme-cli 2 has the two flags apart, as well
    flags |= (1 if entry.get("max_power_scale") else 0) | (2 if entry.get("non-operational_state") else 0)
    return State(
        index,
        _power(integer(entry.get("max_power")) or 0, flags),
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
        version=None if version is None else _version(version),
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
