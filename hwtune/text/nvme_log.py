"""The SMART / Health log (02h), the features that we read, and NVMe status codes.

Offsets, units and codes: NVM Express Base Specification 2.0, "SMART / Health Information", "Get
Features", "Status Code".
"""

from __future__ import annotations

from typing import NamedTuple

from hwtune.text.nvme_identify import KELVIN

LENGTH = 512
APST_LENGTH = 256
_APST_ENTRIES = 32

WARNINGS = (
    "available spare is below its threshold",
    "temperature is beyond a threshold",
    "reliability is degraded by media or internal errors",
    "media is read-only",
    "the backup of volatile memory has failed",
    "the persistent memory region is read-only or unreliable",
)


class SmartLog(NamedTuple):
    """The log; None where a text does not have the field. Temperatures in degrees Celsius, None for
    0 K; counters as the drive has them."""

    critical_warning: int | None = None
    temperature_c: int | None = None
    available_spare: int | None = None
    spare_threshold: int | None = None
    percentage_used: int | None = None
    data_units_read: int | None = None
    data_units_written: int | None = None
    power_cycles: int | None = None
    power_on_hours: int | None = None
    unsafe_shutdowns: int | None = None
    media_errors: int | None = None
    error_log_entries: int | None = None
    warning_temp_minutes: int | None = None
    critical_temp_minutes: int | None = None
    thermal_transitions: list[int] | None = None
    thermal_seconds: list[int] | None = None


def decode(data: bytes) -> SmartLog:
    """The log page as the drive gives it. Raises ``ValueError``."""
    if len(data) < LENGTH:
        raise ValueError(f"SMART log of {len(data)} bytes")

    def number(at: int, length: int) -> int:
        return int.from_bytes(data[at : at + length], "little")

    return SmartLog(
        critical_warning=data[0],
        temperature_c=celsius(number(1, 2)),
        available_spare=data[3],
        spare_threshold=data[4],
        percentage_used=data[5],
        data_units_read=number(32, 16),
        data_units_written=number(48, 16),
        power_cycles=number(112, 16),
        power_on_hours=number(128, 16),
        unsafe_shutdowns=number(144, 16),
        media_errors=number(160, 16),
        error_log_entries=number(176, 16),
        warning_temp_minutes=number(192, 4),
        critical_temp_minutes=number(196, 4),
        thermal_transitions=[number(216, 4), number(220, 4)],
        thermal_seconds=[number(224, 4), number(228, 4)],
    )


def celsius(kelvin: int) -> int | None:
    """None for 0 K, with which virtual drives say that they measure nothing."""
    return kelvin - KELVIN if kelvin else None


def warnings(critical_warning: int) -> list[str]:
    """What the bits of Critical Warning say; bits without a meaning by their number."""
    names = []
    for bit in range(critical_warning.bit_length()):
        if critical_warning >> bit & 1:
            names.append(WARNINGS[bit] if bit < len(WARNINGS) else f"bit {bit}")
    return names


def decode_transitions(data: bytes) -> list[tuple[int, int, int]]:
    """(state, target, idle milliseconds) of each line of the APST table (feature 0Ch) that is in
    use. Raises ``ValueError``."""
    if len(data) < APST_LENGTH:
        raise ValueError(f"APST table of {len(data)} bytes")
    found = []
    for state in range(_APST_ENTRIES):
        entry = int.from_bytes(data[8 * state : 8 * state + 8], "little")
        if entry >> 8 & 0xFFFFFF:  # a time of 0 turns the line off
            found.append((state, entry >> 3 & 0x1F, entry >> 8 & 0xFFFFFF))
    return found


def decode_thermal_management(value: int) -> list[int]:
    """[TMT1, TMT2] in degrees Celsius of feature 10h; 0 where one is off."""
    return [kelvin - KELVIN if kelvin else 0 for kelvin in (value >> 16 & 0xFFFF, value & 0xFFFF)]


INTERNAL_ERROR = 0x06

# Status code type << 8 | status code: those that a read is likely to meet.
_STATUS = {
    0x001: "Invalid Command Opcode",
    0x002: "Invalid Field in Command",
    0x004: "Data Transfer Error",
    0x005: "Commands Aborted due to Power Loss Notification",
    0x006: "Internal Error",
    0x007: "Command Abort Requested",
    0x00B: "Invalid Namespace or Format",
    0x00C: "Command Sequence Error",
    0x015: "Operation Denied",
    0x01C: "Sanitize Failed",
    0x01D: "Sanitize In Progress",
    0x021: "Command Interrupted",
    0x022: "Transient Transport Error",
    0x024: "Admin Command Media Not Ready",
    0x082: "Namespace Not Ready",
    0x084: "Format In Progress",
    0x109: "Invalid Log Page",
    0x302: "Asymmetric Access Inaccessible",
    0x370: "Host Pathing Error",
    0x371: "Command Aborted By Host",
}


def status_code(status: int) -> int:
    """Type and code of a status, without the bits More and Do Not Retry."""
    return status & 0x7FF


def status_name(status: int) -> str:
    """ "NVMe status 0x006, Internal Error"."""
    code = status_code(status)
    name = _STATUS.get(code)
    return f"NVMe status 0x{code:03x}" + (f", {name}" if name else "")
