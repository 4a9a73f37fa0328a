"""A drive's temperature as the kernel's sensor interface has it, which needs no privilege.

Each read is an admin command of the driver's (drivers/nvme/host/hwmon.c): a drive that hangs holds
the reader for a minute, so the files are read in a child with a time limit.

``query(device)`` returns {"path": folder, FILE: degrees Celsius, "hung": null or FILE} with those of
``temp1_input``, ``temp1_max`` (the threshold above which it warns) and ``temp1_crit`` that it has.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from hwtune.fact import ABSENT, INVALID
from hwtune.host.libraries import LibraryGap, _child

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = ("temp1_input", "temp1_max", "temp1_crit")
WAIT_S = 2.0

_CLASS = "/sys/class/nvme"
_DEVICE = re.compile(r"nvme\d{1,5}")


def query(device: str) -> dict[str, Any]:
    """Raises ``LibraryGap``: ABSENT where the driver has no sensor (CONFIG_NVME_HWMON, before 5.5)."""
    if not _DEVICE.fullmatch(device):
        raise LibraryGap(INVALID, f"{device!r} is no NVMe controller")
    folder = find(f"{_CLASS}/{device}")
    if folder is None:
        raise LibraryGap(ABSENT, f"{device} has no sensor of the kernel's")
    answers, ended = _child.collect(lambda: _read(folder), WAIT_S)
    begun = answers.pop("begun", None)
    return {"path": folder, **answers, "hung": None if ended else begun}


def find(controller: str) -> str | None:
    """The folder of its sensor: below the controller, or below its PCI function in older kernels."""
    for parent in (controller, f"{controller}/device/hwmon"):
        try:
            names = sorted(os.listdir(parent))
        except OSError:  # there is no such folder; the other one may be there
            continue
        for name in names:
            if name.startswith("hwmon") and name[5:].isdecimal():
                return f"{parent}/{name}"
    return None


def _read(folder: str) -> Iterator[tuple[str, Any]]:
    for name in FILES:
        yield "begun", name
        try:
            with open(f"{folder}/{name}", "rb") as file:
                thousandths = int(file.read(32))
        except (OSError, ValueError):  # a drive without this threshold has no such file, or EINVAL
            continue
        yield name, round(thousandths / 1000)
