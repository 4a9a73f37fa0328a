"""Times as people type them: "10", "10s", "200ms", "30m", "1.5h"."""

from __future__ import annotations

from hwtune.errors import UsageError

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
WEEK_S = 7 * 86_400.0


def seconds(text: str, option: str, least_s: float = 0.0, most_s: float = WEEK_S) -> float:
    """Raises ``UsageError``, in the name of the option, for what is no time or is out of these limits."""
    number = text.strip().rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text.strip()[len(number) :] or "s"
    try:
        value = float(number) * _UNITS[unit]
    except (KeyError, ValueError):
        raise UsageError(f"{option} takes a time like 10s, 30m or 1h, not {text[:40]!r}") from None
    if not least_s <= value <= most_s:
        least = f"from {told(least_s)} " if least_s else ""
        raise UsageError(f"{option} takes a time {least}of up to {told(most_s)}, not {text[:40]!r}")
    return value


def told(value_s: float) -> str:
    """ "100 ms", "20 s", "10 minutes", "a week" """
    if value_s == WEEK_S:
        return "a week"
    if value_s >= 3600:
        hours = value_s / 3600
        return "an hour" if hours == 1 else f"{hours:g} hours"
    if value_s >= 120:
        return f"{value_s / 60:g} minutes"
    return f"{value_s:g} s" if value_s >= 1 else f"{value_s * 1000:g} ms"
