"""Identify Controller, as the drive gives it.

Offsets and units: NVM Express Base Specification 2.0, "Identify Controller data structure" and
"Power State Descriptor data structure".
"""

from __future__ import annotations

from typing import NamedTuple

LENGTH = 4096
_STATES = 2048  # where the 32 power state descriptors begin
_STATE_LENGTH = 32
MAX_STATES = 32

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
    if len(data) < _STATES + MAX_STATES * _STATE_LENGTH:
        raise ValueError(f"Identify Controller of {len(data)} bytes")
    if not any(data[:_STATES]):
        raise ValueError("Identify Controller is all zeros")
    count = min(data[263] + 1, MAX_STATES)
    places = (_STATES + index * _STATE_LENGTH for index in range(count))
    return Controller(
        model=_text(data[24:64]),
        serial=_text(data[4:24]),
        firmware=_text(data[64:72]),
        version=version_text(_number(data, 80, 4)),
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
        power(_number(data, 0, 2), data[3]),
        bool(data[3] & 2),
        _number(data, 4, 4),
        _number(data, 8, 4),
    )


def power(units: int, flags: int) -> int | None:
    """A maximum power in milliwatts, of units of 0.01 W, or of 0.0001 W with bit 0 of the flags; None
    for 0, which is not reported."""
    return (round(units / 10) if flags & 1 else units * 10) or None


def _number(data: bytes, at: int, length: int) -> int:
    return int.from_bytes(data[at : at + length], "little")


def _text(data: bytes) -> str:
    """ASCII, padded with blanks (some drives pad with zeros)."""
    return data.partition(b"\0")[0].decode("ascii", "replace").strip()


def version_text(number: int) -> str | None:
    """ "1.4" or "1.2.1"; None of drives before 1.2, which leave the field empty."""
    if not number:
        return None
    major, minor, tertiary = number >> 16, number >> 8 & 0xFF, number & 0xFF
    return f"{major}.{minor}" + (f".{tertiary}" if tertiary else "")
