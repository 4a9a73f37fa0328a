"""Which captured machines there are below HWTUNE_REALDATA."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

_SUFFIXES = (".tar.gz", ".tar.bz2", ".tar.xz", ".tgz")
# raw CPUID leaves, and archives of links only: neither holds a sys or proc tree
_NO_TREE = ("hwloc/tests/hwloc/x86/", "linux-amd64-amd-ryzen-1600", "linux-amd64-intel-")


def folders() -> list[Path]:
    """The folder of captured machines, or none."""
    place = os.environ.get("HWTUNE_REALDATA")
    return [Path(place)] if place and Path(place).is_dir() else []


@lru_cache(maxsize=1)
def machines() -> list[str]:
    """Paths, below the folder, that ``open_snapshot`` takes: archives with a sys or proc tree (of
    those that hold several machines each of them), and the report cases with a sysroot."""
    found: list[str] = []
    for root in folders():
        for path in root.rglob("*"):
            name = str(path.relative_to(root))
            if name.endswith(_SUFFIXES) and path.is_file() and not any(part in name for part in _NO_TREE):
                found += [f"{name}/{inner}" for inner in _SEVERAL.get(name, ())] or [name]
        found += [str(p.parent.relative_to(root)) for p in root.glob("reports/*/sysroot")]
    return sorted(found)


_SEVERAL = {
    "nri-plugins/cmd/plugins/topology-aware/policy/testdata/sysfs.tar.bz2": (
        "sysfs/desktop", "sysfs/server", "sysfs/4-socket-server-nosnc",
    ),
}  # fmt: skip
