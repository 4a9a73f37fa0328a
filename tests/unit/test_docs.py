from pathlib import Path

import pytest

from hwtune.docs import PAGES, page

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_fresh(name: str) -> None:
    assert (DOCS / name).read_text() == page(name), "run make docs"


def test_links_between_pages_lead_somewhere() -> None:
    import re

    for path in (*DOCS.glob("*.md"), DOCS.parent / "README.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
