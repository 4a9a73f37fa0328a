"""How far a measurement is, on a terminal (stderr, so that reports can be piped)."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    #: is given the seconds that have gone by
    Shown = Callable[[float], None]


@contextmanager
def progress(total_s: float) -> Iterator[Shown | None]:
    """A bar that is drawn from the first call on (rich is imported then, so that nothing waits for it); None
    where stderr is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    bar = _Bar(total_s)
    try:
        yield bar.show
    finally:
        bar.close()


class _Bar:
    def __init__(self, total_s: float) -> None:
        from typing import Any

        self._total = total_s
        self._drawn: Any = None
        self._task: Any = None

    def show(self, elapsed_s: float) -> None:
        if self._drawn is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            # drawn when it is told to be: a thread of its own would run beside what is measured
            self._drawn = Progress(
                TextColumn("measuring"),
                BarColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
                auto_refresh=False,
            )
            self._drawn.start()
            self._task = self._drawn.add_task("", total=self._total)
        self._drawn.update(self._task, completed=min(elapsed_s, self._total), refresh=True)

    def close(self) -> None:
        if self._drawn is not None:
            self._drawn.stop()
