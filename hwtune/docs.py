"""Write the generated pages of docs/: ``make docs``."""

from __future__ import annotations

import os
import sys

PAGES = ("diagnosis-table.md",)


def page(name: str) -> str:
    """The content of one generated page."""
    from hwtune.diagnosis.table import table
    from hwtune.report.rows import markdown

    if name != "diagnosis-table.md":
        raise ValueError(f"no page is called {name}")
    return markdown(table())


def main(folder: str = "docs") -> int:
    for name in PAGES:
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(page(name))
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
