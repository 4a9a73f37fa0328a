"""Libraries that know more than a file does, asked through ``Host.ask``.

Each module has ``query(*arguments)``, which returns JSON-able data (lists, not tuples; keys of
dictionaries are strings), so that a capture can record what was said. ``LibraryGap`` and
``OSError`` say why there is no answer.
"""

from __future__ import annotations


class LibraryGap(Exception):
    """There is no answer: ``kind`` is one of ``hwtune.fact.GAPS``."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail
