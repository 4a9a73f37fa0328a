"""The kernel's log: from /dev/kmsg on a live host, from captures and pasted text otherwise."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec

from hwtune.fact import NOT_CAPTURED, UNREADABLE, Fact, gap, known
from hwtune.model.kernel import LogLine

if TYPE_CHECKING:
    from hwtune.host.base import Host

# "[  12.345678] text", with or without what dmesg -x, journalctl or syslog print before it
_STAMP = r"^(?:.{0,80}?\bkernel: ?)?(?:<\d+>)?\[\s*(\d+\.\d+)\](?:\[\s*[TC]\d+\])? ?(.*)$"
_JOURNAL = r"^.{10,80}?\bkernel: (.*)$"


# Half of the probes search the log, which has thousands of lines: each host's is read once.
_read: WeakKeyDictionary[Host, tuple[list[LogLine], Fact[bool]]] = WeakKeyDictionary()


def lines(host: Host) -> tuple[list[LogLine], Fact[bool]]:
    """All lines in their order, and whether a log could be read at all. The list is shared: it is
    not to be changed."""
    known_lines = _read.get(host)
    if known_lines is None:
        known_lines = _read[host] = _lines(host)
    return known_lines


def _lines(host: Host) -> tuple[list[LogLine], Fact[bool]]:
    # a snapshot may hold the answer in any shape
    answer = host.ask("kmsg").map(lambda said: msgspec.convert(said, list[tuple[int, float, str]]))
    found: list[LogLine] = []
    if answer.known:
        found = [
            LogLine(text=text, source="/dev/kmsg", seconds=seconds, level=priority & 7)
            for priority, seconds, text in answer.get()
        ]
    documents = host.documents("dmesg")
    for document in documents:
        found.extend(_parse(line, document.path) for line in document.text.splitlines() if line.strip())
    if documents:
        return found, known(True, documents[0].path)
    return found, answer.map(lambda _: True)


def _parse(line: str, source: str) -> LogLine:
    match = re.match(_STAMP, line)
    if match is not None:
        return LogLine(text=match[2], source=source, seconds=float(match[1]))
    match = re.match(_JOURNAL, line)
    return LogLine(text=match[1] if match is not None else line.strip(), source=source)


def beginning_lost(host: Host, source: str) -> Fact[Any]:
    """What the log's beginning would tell, where it is gone: a live kernel has overwritten it, and a capture
    made earlier, or a longer one, may have it."""
    reason = UNREADABLE if host.kind == "live" else NOT_CAPTURED
    return gap(reason, source, "the log no longer reaches back to the boot")
