"""The CPU latency that all processes together ask for (Documentation/power/pm_qos_interface.rst).

Opened for reading only: an open for writing would itself be a request, and writing one. The device
belongs to root (mode 0600).
"""

from __future__ import annotations

import os
import struct

from hwtune.fact import INVALID
from hwtune.host.libraries import LibraryGap

_DEVICE = "/dev/cpu_dma_latency"


def query() -> int:
    """Microseconds; 2,000,000,000 (PM_QOS_CPU_LATENCY_DEFAULT_VALUE) where nobody asks.

    Raises ``OSError``, and ``LibraryGap`` where the answer is not the four bytes of an integer.
    """
    descriptor = os.open(_DEVICE, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        answer = os.read(descriptor, 4)
    finally:
        os.close(descriptor)
    if len(answer) != 4:
        raise LibraryGap(INVALID, f"{len(answer)} bytes")
    microseconds: int = struct.unpack("=i", answer)[0]
    return microseconds
