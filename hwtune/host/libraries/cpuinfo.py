"""py-cpuinfo, for machines whose /proc/cpuinfo tells neither a name nor flags.

It takes over a second: it starts programs (lscpu, sysctl, dmesg) and runs the CPUID instruction
in a child. So only ``capture`` asks.
"""

from __future__ import annotations

from typing import Any

from hwtune.fact import ABSENT
from hwtune.host.libraries import LibraryGap


def query() -> dict[str, Any]:
    """``brand``, ``vendor`` and ``flags`` as far as it knows them; ``LibraryGap`` where it knows
    none of them."""
    import cpuinfo

    said = cpuinfo.get_cpu_info() or {}
    found = {
        name: said[key]
        for name, key in (("brand", "brand_raw"), ("vendor", "vendor_id_raw"), ("flags", "flags"))
        if said.get(key)
    }
    if not found:
        raise LibraryGap(ABSENT, "py-cpuinfo knows neither name nor flags")
    return found
