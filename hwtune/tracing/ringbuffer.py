"""The kernel's trace pages, decoded.

A page (per_cpu/cpuN/trace_pipe_raw gives one at a read) is its first event's time (u64), how much of it is
used, and the events one behind the other, each with the time since the one before. include/linux/
ring_buffer.h and events/header_event have the layout, events/header_page the offsets. Bytes are in the order
of x86-64 and AArch64, lowest first.

All pages are walked at once, the n-th event of each in one step, so that a step costs the same for one page
as for thousands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hwtune.tracing.formats import Field, PageLayout

    Ints = NDArray[np.int64]
    Times = NDArray[np.uint64]

# kernel/trace/ring_buffer.c: in the word that tells how much of a page is used
_USED = (1 << 27) - 1
_MISSED = 1 << 31
# include/linux/ring_buffer.h, enum ring_buffer_type
_PADDING, _EXTEND, _STAMP = 29, 30, 31
_DELTA_BITS = 27
# An absolute time has 59 bits (TS_MASK); those above are the page's.
_STAMP_BITS = 59


class Events(NamedTuple):
    """One CPU's events in the order in which they were written; arrays of shape (events,)."""

    words: NDArray[np.uint32]  # all pages
    at: Ints  # where each record begins in them
    size: Ints  # of the record, in words
    time: Ints  # in the trace clock's units
    type: NDArray[np.uint16]  # the format's id
    epoch: Ints  # counts up where events were lost
    garbled: int  # pages whose rest made no sense and was left out

    def column(self, field: Field, chosen: Ints) -> Ints:
        """A field of the chosen events as integers; 0 where a record is too short for it."""
        first, rest = divmod(field.offset, 4)
        value = self._word(first, chosen).astype(np.uint64)
        if field.size == 8 and not rest:
            value |= self._word(first + 1, chosen).astype(np.uint64) << np.uint64(32)
            whole: Ints = value.astype(np.int64)
            return whole
        if field.size not in (1, 2, 4) or rest + field.size > 4:
            raise ValueError("a field of a kind that hwtune does not know")
        bits = 8 * field.size
        narrow = (value >> np.uint64(8 * rest)) & np.uint64((1 << bits) - 1)
        number: Ints = narrow.astype(np.int64)
        if field.signed:
            number = np.where(number >> (bits - 1), number - (1 << bits), number)
        return number

    def text(self, field: Field, chosen: Ints, words: int) -> NDArray[np.uint32]:
        """The first words of a text of the chosen events: shape (chosen, words). What stands behind the
        text's end is still in it."""
        if field.is_string:
            where = self.column(field._replace(signed=False), chosen)
            begin, length = where & 0xFFFF, where >> 16 & 0xFFFF
        else:
            begin = np.full(len(chosen), field.offset, np.int64)
            length = np.full(len(chosen), field.size, np.int64)
        if (begin % 4).any():
            raise ValueError("a text at a place that hwtune does not know")
        columns = []
        for i in range(words):
            column = self._word(begin // 4 + i, chosen)
            columns.append(np.where(4 * i < length, column, np.uint32(0)))
        return np.stack(columns, axis=1)

    def _word(self, offset: int | Ints, chosen: Ints) -> NDArray[np.uint32]:
        inside = offset < self.size[chosen]
        return np.where(inside, self.words[np.where(inside, self.at[chosen] + offset, 0)], np.uint32(0))


def decode(data: bytes, page_size: int, layout: PageLayout) -> Events:
    """The events of one CPU's pages, in the order in which they were read. ``data`` holds whole pages of
    ``page_size`` bytes; a rest at its end is left out."""
    pages = len(data) // page_size
    words = np.frombuffer(data, "<u4", pages * page_size // 4)
    first = np.arange(pages, dtype=np.int64) * (page_size // 4)
    commit = words[first + layout.commit.offset // 4].astype(np.int64)
    used = (commit & _USED) // 4
    fits = used <= (page_size - layout.data.offset) // 4
    begun = words[first].astype(np.uint64) | words[first + 1].astype(np.uint64) << np.uint64(32)
    walk = _Walk(words, first + layout.data.offset // 4, np.where(fits, used, 0), begun)
    walk.run()
    page, at, size, time = walk.result()
    epochs = np.cumsum((commit & _MISSED) != 0)
    return Events(
        words=words,
        at=at,
        size=size,
        time=time.astype(np.int64),
        type=(words[at] & 0xFFFF).astype(np.uint16),
        epoch=epochs[page].astype(np.int64),
        garbled=walk.garbled + int(np.count_nonzero(~fits)),
    )


class _Walk:
    """Steps through all pages side by side. Positions count words of four bytes."""

    def __init__(
        self,
        words: NDArray[np.uint32],
        begin: Ints,
        used: Ints,
        time: Times,
    ) -> None:
        self.words = words
        self.begin = begin
        self.used = used
        self.position = np.zeros_like(used)
        self.time = time
        self.garbled = 0
        self.found: list[tuple[Ints, Ints, Ints, Times]] = []

    def run(self) -> None:
        pages = np.nonzero(self.used > 0)[0]
        while len(pages):
            pages = self._step(pages)

    def _step(self, pages: Ints) -> Ints:
        """One event of each page; gives the pages that have another."""
        place = self.begin[pages] + self.position[pages]
        left = self.used[pages] - self.position[pages]
        head = self.words[place]
        kind = (head & 31).astype(np.int64)
        delta = (head >> 5).astype(np.uint64)
        # the word behind: the size of what follows the first word, itself included; or a time's upper part
        more = self.words[np.minimum(place + 1, len(self.words) - 1)].astype(np.int64)
        sized = (kind == 0) | (kind == _PADDING)
        timed = kind >= _EXTEND
        ended = (kind == _PADDING) & (delta == 0)
        length = np.where(sized, 1 + (more + 3) // 4, np.where(timed, 2, 1 + kind))
        sane = ended | ((length >= 2) & (length <= left))
        self.garbled += int(np.count_nonzero(~sane))
        self._advance(pages, kind, delta, more.astype(np.uint64))
        behind = np.where(kind == 0, 2, 1)
        record = sane & (kind < _PADDING) & (length > behind)
        if record.any():
            self.found.append(
                (
                    pages[record],
                    (place + behind)[record],
                    (length - behind)[record],
                    self.time[pages[record]],
                )
            )
        self.position[pages] += length
        onward: Ints = pages[sane & ~ended & (self.position[pages] < self.used[pages])]
        return onward

    def _advance(
        self,
        pages: Ints,
        kind: Ints,
        delta: Times,
        more: Times,
    ) -> None:
        before = self.time[pages]
        wide = (more << np.uint64(_DELTA_BITS)) + delta
        time = before + np.where(kind == _EXTEND, wide, delta)
        stamp = kind == _STAMP
        if stamp.any():
            # the bits above are those of the time before, and one more where the lower ones began anew
            absolute = wide | before & ~np.uint64((1 << _STAMP_BITS) - 1)
            absolute += np.where(absolute < before, np.uint64(1 << _STAMP_BITS), np.uint64(0))
            time = np.where(stamp, absolute, time)
        self.time[pages] = time

    def result(
        self,
    ) -> tuple[Ints, Ints, Ints, Times]:
        """Page, place and size (in words) and time of each record, in the pages' order."""
        if not self.found:
            none = np.zeros(0, np.int64)
            return none, none, none, np.zeros(0, np.uint64)
        page, place, size, time = (np.concatenate(part) for part in zip(*self.found, strict=True))
        order = np.argsort(place, kind="stable")
        return page[order], place[order], size[order], time[order]
