"""PCI addresses in one form: DDDD:BB:DD.F, lower case, the domain with four digits or more."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")


def normal(text: str) -> str | None:
    """NVML and nvidia-smi print the domain with eight digits, lspci may leave it out, Linux has
    four (or more where it must: VMD's begin at 10000). None for what is no address."""
    match = _ADDRESS.fullmatch(text.strip().lower())
    if match is None:
        return None
    return f"{int(match[1] or '0', 16):04x}:{match[2]}:{match[3]}.{match[4]}"
