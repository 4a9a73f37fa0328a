"""``nvme smart-log`` (nvme-cli): the text of old and new releases, and its JSON."""

from __future__ import annotations

import re
from typing import Any

from hwtune.text.nvme_id_ctrl import integer
from hwtune.text.nvme_identify import KELVIN
from hwtune.text.nvme_log import SmartLog, celsius

# The labels of nvme-cli 1 and 2, lower case, with underscores for blanks; and those of its JSON.
_COUNTERS = {
    "critical_warning": "critical_warning",
    "available_spare": "available_spare",
    "avail_spare": "available_spare",
    "available_spare_threshold": "spare_threshold",
    "spare_thresh": "spare_threshold",
    "percentage_used": "percentage_used",
    "percent_used": "percentage_used",
    "data_units_read": "data_units_read",
    "data_units_written": "data_units_written",
    "power_cycles": "power_cycles",
    "power_on_hours": "power_on_hours",
    "unsafe_shutdowns": "unsafe_shutdowns",
    "media_errors": "media_errors",
    "num_err_log_entries": "error_log_entries",
    "warning_temperature_time": "warning_temp_minutes",
    "warning_temp_time": "warning_temp_minutes",
    "critical_composite_temperature_time": "critical_temp_minutes",
    "critical_comp_time": "critical_temp_minutes",
}
_TRANSITIONS = (
    ("thermal_management_t1_trans_count", "thm_temp1_trans_count"),
    ("thermal_management_t2_trans_count", "thm_temp2_trans_count"),
)
_SECONDS = (
    ("thermal_management_t1_total_time", "thm_temp1_total_time"),
    ("thermal_management_t2_total_time", "thm_temp2_total_time"),
)

_DEVICE = re.compile(r"Smart Log for NVME device:\s?(?:/dev/)?([\w.-]{1,64})", re.IGNORECASE | re.ASCII)


def device(text: str) -> str | None:
    """The device that the heading names: "nvme0", "nvme0n1"."""
    match = _DEVICE.match(text.lstrip())
    return match[1] if match is not None else None


def parse(text: str) -> SmartLog:
    """The log in what ``nvme smart-log`` printed. Raises ``ValueError`` where no line is of it."""
    values = _json_values(text) if text.lstrip().startswith("{") else _text_values(text)
    fields: dict[str, Any] = {}
    for label, field in _COUNTERS.items():
        value = counter(values.get(label))
        if value is not None:
            fields[field] = value
    temperature = values.get("temperature")
    if isinstance(temperature, str):
        fields["temperature_c"] = degrees(temperature)
    elif isinstance(temperature, int):
        fields["temperature_c"] = celsius(temperature)
    fields["thermal_transitions"] = _pair(values, _TRANSITIONS)
    fields["thermal_seconds"] = _pair(values, _SECONDS)
    log = SmartLog(**fields)
    if log == SmartLog():
        raise ValueError("not the output of nvme smart-log")
    return log


def _text_values(text: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for line in text.splitlines():
        label, sign, value = line.partition(":")
        # With -H the bits of the warning follow it, indented.
        if sign and label[:1] not in (" ", "\t"):
            values.setdefault("_".join(label.lower().split()), value.strip())
    return values


def _json_values(text: str) -> dict[str, Any]:
    from hwtune.text import strict_json

    said = strict_json.loads(text)
    if not isinstance(said, dict):
        raise ValueError("not the output of nvme smart-log")
    warning = said.get("critical_warning")
    if isinstance(warning, dict):  # nvme-cli 2 with -v
        said["critical_warning"] = warning.get("value")
    return said


def _pair(values: dict[str, Any], labels: tuple[tuple[str, str], ...]) -> list[int] | None:
    found = [next((n for n in map(counter, map(values.get, pair)) if n is not None), None) for pair in labels]
    return None if None in found else [n for n in found if n is not None]


# Groups of digits as locales separate them: comma, dot, apostrophes, blanks of any kind (of a plain
# one only groups of three, as a word may follow a number).
_SEPARATORS = ".,'\u2019\u00a0\u202f"
_GROUPED = re.compile(
    rf"\d{{1,3}}(?:[{_SEPARATORS}]\d{{2,3}}(?!\d)| \d{{3}}(?!\d)){{1,15}}(?![{_SEPARATORS}]\d)"
    rf"|\d{{1,40}}(?!\d|[{_SEPARATORS}]\d)",
    re.ASCII,
)
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]{1,16}\b", re.ASCII)


def counter(value: Any) -> int | None:
    """A count as tools print it: "201,526,305", "10%", "0x04", "1189327430 (608.94 TB)"; None where
    it begins with no number."""
    if not isinstance(value, str):
        found = integer(value)
        return found if found is None or found >= 0 else None
    if _HEXADECIMAL.match(value):
        return integer(value)
    match = _GROUPED.match(value)
    return int("".join(c for c in match[0] if c.isdecimal())) if match is not None else None


_KELVIN = re.compile(r"\((\d{1,5}) ?K", re.ASCII)
_DEGREES = re.compile(r"(-?\d{1,5}) ?\u00b0? ?(C|F)", re.ASCII)


def degrees(text: str) -> int | None:
    """Degrees Celsius of "42 C (315 Kelvin)", "33 \u00b0C (306 K, 91 \u00b0F)", "108 \u00b0F (315 K)" or
    "30 Celsius"; None for 0 K, and where there is no temperature."""
    kelvin = _KELVIN.search(text)
    if kelvin is not None:
        return celsius(int(kelvin[1]))
    match = _DEGREES.match(text)
    if match is None:
        return None
    value = int(match[1]) if match[2] == "C" else round((int(match[1]) - 32) / 1.8)
    return value if value > -KELVIN else None
