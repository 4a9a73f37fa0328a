"""What uname(2) says, for kernels that have no /proc/sys/kernel/arch (before 6.1)."""

from __future__ import annotations

import os


def query() -> dict[str, str]:
    told = os.uname()
    return {"machine": told.machine, "release": told.release, "version": told.version}
