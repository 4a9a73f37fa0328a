"""Where changes are kept across boots: the system's own places.

A store turns the items that all change sets in force want to last into whole files. It never
edits a file that is not hwtune's own (two exceptions, told where they are: the environment of
irqbalance and the kernel arguments of loaders without drop-ins). Files carry a header that says
what wrote them and how to remove them, and names under which they really win.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import jinja2

    from hwtune.changes.system import System


class Item(NamedTuple):
    """Something that a change wants to last: in ``store``, under ``key``, this ``value``."""

    store: str
    key: str
    value: str


# Of these the later in a file has its way, as setting one clears the other.
EXCLUSIVE = (
    ("vm.dirty_bytes", "vm.dirty_ratio"),
    ("vm.dirty_background_bytes", "vm.dirty_background_ratio"),
)
_EXCLUDED = {("sysctl", a): ("sysctl", b) for pair in EXCLUSIVE for a, b in (pair, pair[::-1])}


def merged(*several: Iterable[Item]) -> list[Item]:
    """Items in their order; of two with one store and key the later, behind the others. One that is wanted
    once more keeps its place, so that no file is written anew for it, unless what excludes it came in
    between."""
    chosen: dict[tuple[str, str], Item] = {}
    for items in several:
        for item in items:
            key = (item.store, item.key)
            if chosen.get(key) == item and _EXCLUDED.get(key) not in chosen:
                continue
            chosen.pop(key, None)
            chosen[key] = item
    return list(chosen.values())


class Render(NamedTuple):
    """A file that a store wants: its path and content, None to have none. With ``link`` it is a
    symbolic link, and the content is where it leads."""

    path: str
    content: str | None
    mode: int = 0o644
    link: bool = False


def _nothing_to_check(system: System, items: Sequence[Item]) -> None:
    return None


def _not_told(system: System, item: Item) -> str | None:
    return None


class Store(NamedTuple):
    """``render``: all items of the store -> the files that hold them (the same paths with None for
    no items). ``refresh``: commands that make the system take notice, run after files changed.
    ``check``: raises ``ChangeError`` where the system, asked, does not do what the items say.
    ``at_boot``: what it keeps takes effect at the next boot only; ``running``: what this boot has for
    an item instead, as the item's value would say it, None where it cannot be told."""

    name: str
    render: Callable[[System, Sequence[Item]], list[Render]]
    refresh: Callable[[System, Sequence[Item]], list[list[str]]]
    check: Callable[[System, Sequence[Item]], None] = _nothing_to_check
    at_boot: bool = False
    running: Callable[[System, Item], str | None] = _not_told


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("hwtune", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # configuration files, not markup
    )


def render_template(name: str, **values: object) -> str:
    """A configuration file from ``hwtune/templates``, with the common header."""
    return _environment().get_template(name).render(**values)


def stores() -> dict[str, Store]:
    """All stores by name. Imported here, since each brings its own knowledge."""
    from hwtune.changes import persist

    return {store.name: store for store in persist.STORES}
