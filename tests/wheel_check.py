"""Run by scripts/wheel-test in a fresh environment: is everything there, and does it load?

Argument: a file with the paths that the package is made of, as in the repository.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

import hwtune


def installed_path(path: str) -> Path:
    """Where a file of the repository lies in the installed package."""
    top, _, rest = path.partition("/")
    root = Path(hwtune.__file__).parent
    return root / rest if top == "hwtune" else root / top / rest


def main(listing: str) -> int:
    missing = [p for p in Path(listing).read_text().splitlines() if not installed_path(p).is_file()]
    for path in missing:
        print(f"not in the wheel: {path}", file=sys.stderr)
    modules = [
        m.name for m in pkgutil.walk_packages(hwtune.__path__, "hwtune.") if not m.name.endswith("__main__")
    ]
    for needed in ("hwtune.probes", "hwtune.remediations", "hwtune._native"):
        if needed not in modules:
            missing.append(needed)
            print(f"not in the wheel: {needed}", file=sys.stderr)
    for name in modules:
        importlib.import_module(name)
    print(f"wheel: {len(modules)} modules import")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
