"""``smartctl --json`` of an NVMe drive."""

from __future__ import annotations

from typing import Any

from hwtune.text.nvme_identify import Controller
from hwtune.text.nvme_log import SmartLog
from hwtune.text.smart_log import counter
from hwtune.text.smartctl import Report, failure

_FIELDS = {
    "critical_warning": "critical_warning",
    "temperature": "temperature_c",
    "available_spare": "available_spare",
    "available_spare_threshold": "spare_threshold",
    "percentage_used": "percentage_used",
    "data_units_read": "data_units_read",
    "data_units_written": "data_units_written",
    "power_cycles": "power_cycles",
    "power_on_hours": "power_on_hours",
    "unsafe_shutdowns": "unsafe_shutdowns",
    "media_errors": "media_errors",
    "num_err_log_entries": "error_log_entries",
    "warning_temp_time": "warning_temp_minutes",
    "critical_comp_time": "critical_temp_minutes",
}


def parse(text: str) -> Report:
    """Raises ``ValueError`` for what is not of an NVMe drive."""
    from hwtune.text import strict_json

    said = strict_json.loads(text)
    device = _object(said, "device")
    log = _object(said, "nvme_smart_health_information_log")
    if device.get("protocol") != "NVMe" and not log:
        raise ValueError("not the output of smartctl --json for an NVMe drive")
    thresholds = _object(said, "nvme_composite_temperature_threshold")
    return Report(
        Controller(
            model=_string(said.get("model_name")),
            serial=_string(said.get("serial_number")),
            firmware=_string(said.get("firmware_version")),
            version=_string(_object(said, "nvme_version").get("string")),
            warning_temp_c=counter(thresholds.get("warning")),
            critical_temp_c=counter(thresholds.get("critical")),
        ),
        _smart(log),
        _string(device.get("name")),
        _failure(said),
    )


def _smart(log: dict[str, Any]) -> SmartLog:
    numbers = {field: counter(log.get(name)) for name, field in _FIELDS.items() if name in log}
    return SmartLog(**numbers)  # type: ignore[arg-type]


def _failure(said: dict[str, Any]) -> int | None:
    messages = _object(said, "smartctl").get("messages")
    for message in messages if isinstance(messages, list) else ():
        text = message.get("string") if isinstance(message, dict) else None
        status = failure(text) if isinstance(text, str) else None
        if status is not None:
            return status
    return None


def _object(said: Any, name: str) -> dict[str, Any]:
    value = said.get(name) if isinstance(said, dict) else None
    return value if isinstance(value, dict) else {}


def _string(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None
