"""Symbolic links followed by hand, so that no path leads out of a root.

The same walk serves the live host (``resolve``), the recorder (which notes each link that it
meets) and snapshots, so that all three agree on where a path leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# What is at a place. Those from MISSING on lead nowhere.
DIR = 0
FILE = 1
LINK = 2
OTHER = 3  # a device node, a FIFO, a socket
NODE = 4  # there is something that is not a link
MISSING = 5
DENIED = 6
BROKEN = 7  # a loop of links, an error of the disk, a path too long

# As the kernel: MAXSYMLINKS (include/linux/namei.h) and PATH_MAX.
_MAX_LINKS = 40
_MAX_PATH = 4096
# Steps of one walk, links and all; real ones have below a hundred. It bounds the time that links
# which lead on and on can take.
_MAX_STEPS = 600


class Walk:
    """Paths of one root, with what was learned about its directories remembered.

    ``look(directory, name)`` tells what is at ``directory + "/" + name``: one of the numbers
    above, or the target of a symbolic link. Directories are real paths below the root; the root
    itself is "". Nothing here raises unless ``look`` does.
    """

    __slots__ = ("_directories", "_look")

    def __init__(self, look: Callable[[str, str], int | str]) -> None:
        self._look = look
        self._directories: dict[str, tuple[str, int]] = {"": ("", DIR)}

    def directory(self, path: str) -> tuple[str, int]:
        """Where a directory's path leads, and what is there (remembered)."""
        found = self._directories.get(path)
        if found is None:
            place, state = self._follow("", path, _MAX_LINKS)
            if state in (FILE, OTHER) and path.endswith("/"):
                place, state = f"{place}/", MISSING  # as the kernel: only a directory has a slash
            found = self._directories[path] = (place, state)
        return found

    def locate(self, path: str) -> tuple[str, int]:
        """The real path that ``path`` leads to, every link followed, and what is there.

        Where something is missing on the way, the rest of the path is kept as it is written.
        """
        parent, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            return self.directory(path)
        place, state = self.directory(parent)
        if state not in (DIR, NODE):
            return f"{place}/{name}", MISSING if state < MISSING else state
        found = self._look(place, name)
        if isinstance(found, str):
            return self._follow(place, found, _MAX_LINKS - 1)
        return f"{place}/{name}", found

    def resolve(self, path: str) -> tuple[str, int]:
        """As ``locate``, but a link that is there and leads to nothing is a LINK to that place."""
        parent, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            return self.directory(path)
        place, state = self.directory(parent)
        if state not in (DIR, NODE):
            return f"{place}/{name}", MISSING if state < MISSING else state
        found = self._look(place, name)
        if not isinstance(found, str):
            return f"{place}/{name}", found
        place, state = self._follow(place, found, _MAX_LINKS - 1)
        return place, LINK if state == MISSING else state

    def _follow(self, start: str, path: str, links_left: int) -> tuple[str, int]:
        if len(path) > _MAX_PATH:
            return "/", BROKEN
        place, state = ("", DIR) if path.startswith("/") else (start, DIR)
        ahead = path.split("/")
        ahead.reverse()
        steps = 0
        while ahead:
            name = ahead.pop()
            steps += 1
            if steps > _MAX_STEPS:
                return "/", BROKEN
            if name in ("", "."):
                continue
            if state not in (DIR, NODE):
                # As the kernel: nothing lies below a file or below what is missing, not even "..".
                place = f"{place}/{name}"
                state = MISSING if state < MISSING else state
                continue
            if name == "..":
                # On a real path the parent is what the text says; above the root is the root.
                place, state = place.rpartition("/")[0], DIR
                continue
            found = self._look(place, name)
            if not isinstance(found, str):
                place, state = f"{place}/{name}", found
                continue
            links_left -= 1
            if links_left < 0 or len(found) > _MAX_PATH:
                return f"{place}/{name}", BROKEN
            if found.startswith("/"):
                place, state = "", DIR
            parts = found.split("/")
            parts.reverse()
            ahead.extend(parts)
        return place, state
