"""``smartctl`` (smartmontools) of an NVMe drive: its text, and its JSON (``--json``)."""

from __future__ import annotations

import re
from typing import NamedTuple

from hwtune.text.nvme_identify import Controller, State
from hwtune.text.nvme_log import SmartLog
from hwtune.text.smart_log import counter, degrees


class Report(NamedTuple):
    """What it says of one drive. ``failed``: the NVMe status with which the drive refused its SMART
    log; ``device`` as it was called, "/dev/nvme0", where the output says so."""

    controller: Controller
    smart: SmartLog
    device: str | None = None
    failed: int | None = None


_LABELS = {
    "Critical Warning": "critical_warning",
    "Available Spare": "available_spare",
    "Available Spare Threshold": "spare_threshold",
    "Percentage Used": "percentage_used",
    "Data Units Read": "data_units_read",
    "Data Units Written": "data_units_written",
    "Power Cycles": "power_cycles",
    "Power On Hours": "power_on_hours",
    "Unsafe Shutdowns": "unsafe_shutdowns",
    "Media and Data Integrity Errors": "media_errors",
    "Error Information Log Entries": "error_log_entries",
    "Warning Comp. Temperature Time": "warning_temp_minutes",
    "Critical Comp. Temperature Time": "critical_temp_minutes",
}
_TRANSITIONS = ("Thermal Temp. 1 Transition Count", "Thermal Temp. 2 Transition Count")
_SECONDS = ("Thermal Temp. 1 Total Time", "Thermal Temp. 2 Total Time")

# " 3 -   0.0450W       -        -    3  3  3  3     2000    2000"; "+" is operational.
_STATE = re.compile(
    r"\s{0,4}(\d{1,2}) ([+-])\s{1,12}(?:([\d.]{1,12})W|-)(?:\s{1,12}\S{1,12}){2}"
    r"(?:\s{1,12}\d{1,3}){4}\s{1,12}(\d{1,10})\s{1,12}(\d{1,10})\s*$",
    re.ASCII,
)
_FAILED = re.compile(
    r"Read NVMe SMART/Health Information.{0,40}? failed: .{0,120}?(?:NVMe Status 0x|\(0x)([0-9a-f]{1,4})\b"
)
_NVME = (
    "(NVMe Log 0x02",
    "NVMe Version",
    "NVMe SMART/Health",
    "Number of Namespaces",
    "Supported Power States",
)


def parse(text: str) -> Report:
    """The text of ``smartctl -a`` or ``-x`` of an NVMe drive. Raises ``ValueError`` for any other."""
    if not any(sign in text for sign in _NVME) and "Media and Data Integrity Errors:" not in text:
        raise ValueError("not the output of smartctl for an NVMe drive")
    values: dict[str, str] = {}
    states: list[State] = []
    for line in text.splitlines():
        label, sign, value = line.partition(":")
        if sign:
            values.setdefault(" ".join(label.split()), value.strip())
        elif (match := _STATE.match(line)) is not None:
            states.append(_state(match))
    failed = failure(text)
    report = Report(_controller(values, states), _smart(values), failed=failed)
    if report[:2] == (Controller(), SmartLog()) and failed is None:
        raise ValueError("smartctl says nothing of the drive")
    return report


def failure(text: str) -> int | None:
    """The NVMe status in the complaint that the SMART log could not be read."""
    match = _FAILED.search(text)
    return int(match[1], 16) if match is not None else None


def _state(match: re.Match[str]) -> State:
    power = round(float(match[3]) * 1000) if match[3] else 0
    return State(int(match[1]), power or None, match[2] == "-", int(match[4]), int(match[5]))


def _controller(values: dict[str, str], states: list[State]) -> Controller:
    return Controller(
        model=values.get("Model Number") or None,
        serial=values.get("Serial Number") or None,
        firmware=values.get("Firmware Version") or None,
        version=values.get("NVMe Version") or None,
        warning_temp_c=_degrees(values, "Warning Comp. Temp. Threshold"),
        critical_temp_c=_degrees(values, "Critical Comp. Temp. Threshold"),
        states=states or None,
    )


def _degrees(values: dict[str, str], label: str) -> int | None:
    return degrees(values[label]) if label in values else None


def _smart(values: dict[str, str]) -> SmartLog:
    numbers = {field: counter(values[label]) for label, field in _LABELS.items() if label in values}
    return SmartLog(
        **numbers,
        temperature_c=_degrees(values, "Temperature"),
        thermal_transitions=_pair(values, _TRANSITIONS),
        thermal_seconds=_pair(values, _SECONDS),
    )


def _pair(values: dict[str, str], labels: tuple[str, str]) -> list[int] | None:
    """Both numbers; one that smartctl leaves out is 0: it prints these lines only where they are not."""
    found = [counter(values[label]) for label in labels if label in values]
    if not found or None in found:
        return None
    return [counter(values[label]) or 0 if label in values else 0 for label in labels]
