"""What our own captures say beside their files: the reasons for what they lack.

``manifest.json`` at a tree's root::

    {"tool": "hwtune", "format": 1, "version", "captured_at", "hostname", "kernel",
     "complete": false,                       # true: what the tree lacks does not exist
     "gaps": {PATH: [KIND, DETAIL]},          # what reading PATH gave; its file is a placeholder
     "listings": {DIRECTORY: [NAME, ...]},    # whole listings; other directories were not listed
     "listing_gaps": {PATH: [KIND, DETAIL]},
     "link_gaps": {PATH: [KIND, DETAIL]}}

Paths are real ones (no link among the parents). ``commands/*.json`` hold ``{"argv", "status",
"stdout", "stderr"}`` or ``{"argv", "gap": [KIND, DETAIL]}``, ``libraries/*.json`` ``{"library",
"arguments", "value"}`` or the same with ``gap``.
"""

from __future__ import annotations

from typing import Any

from hwtune.fact import ABSENT, DENIED, GAPS, NOT_CAPTURED
from hwtune.text import strict_json

NAME = "/manifest.json"
FORMAT = 1

Gaps = dict[str, tuple[str, str]]


class Manifest:
    """A manifest as read; an empty one stands for a snapshot that somebody else made."""

    def __init__(self, said: dict[str, Any] | None = None) -> None:
        said = said or {}
        self.ours = said.get("tool") == "hwtune"
        self.format = said.get("format")
        at = said.get("captured_at")
        # what is no date (NaN too) is not taken for one: the last is in the year 5138
        self.captured_at = float(at) if isinstance(at, (int, float)) and 0 <= at < 1e11 else None
        self.complete = said.get("complete") is True
        self.gaps = _gaps(said.get("gaps"))
        self.listing_gaps = _gaps(said.get("listing_gaps"))
        self.link_gaps = _gaps(said.get("link_gaps"))
        listings = said.get("listings")
        self.listings: dict[str, list[str]] | None = None
        if isinstance(listings, dict):
            self.listings = {path: _names(names) for path, names in listings.items()}
        self._sets: dict[str, frozenset[str]] = {}

    def missing(self, path: str) -> tuple[str, str]:
        """Why a real path is not in the tree: as it was recorded, or as it follows from a parent
        that was absent or denied, or from a listing that does not have it."""
        at = path
        while at:
            gap = self.gaps.get(at)
            if gap is not None and (at == path or gap[0] in (ABSENT, DENIED)):
                return gap
            parent, _, name = at.rpartition("/")
            if self._unlisted(parent or "/", name):
                return ABSENT, ""
            at = parent
        return (ABSENT, "") if self.complete else (NOT_CAPTURED, "")

    def _unlisted(self, parent: str, name: str) -> bool:
        """Whether the whole listing of ``parent`` is known, and ``name`` is not in it."""
        # Threads have folders in /proc that its listing does not show.
        if self.listings is None or (parent == "/proc" and name.isdigit()):
            return False
        names = self._sets.get(parent)
        if names is None:
            listed = self.listings.get(parent)
            if listed is None:
                return False
            names = self._sets[parent] = frozenset(listed)
        return name not in names


def parse(content: bytes) -> Manifest:
    """Raises ``ValueError`` where it is not JSON; what is not ours is an empty manifest."""
    said = strict_json.loads(content)
    if not isinstance(said, dict) or said.get("tool") != "hwtune":
        return Manifest()
    return Manifest(said)


def read_gap(said: Any) -> tuple[str, str] | None:
    """(kind, detail) where ``said`` is a gap as written by us."""
    if isinstance(said, list) and len(said) == 2 and said[0] in GAPS and isinstance(said[1], str):
        return said[0], said[1]
    return None


def _gaps(said: Any) -> Gaps:
    if not isinstance(said, dict):
        return {}
    found = {path: read_gap(gap) for path, gap in said.items()}
    return {path: gap for path, gap in found.items() if gap is not None}


def _names(said: Any) -> list[str]:
    return [name for name in said if isinstance(name, str)] if isinstance(said, list) else []
