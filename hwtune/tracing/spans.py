"""Events of one CPU become spans: who had it, from when to when."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hwtune.tracing import events as catalogue
from hwtune.tracing import kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from hwtune.tracing.events import Formats, Pair
    from hwtune.tracing.ringbuffer import Events

    Ints = NDArray[np.int64]
    _Texts = tuple[Ints, list[tuple[int, str]]]

# A task's name has 16 bytes (TASK_COMM_LEN); of interrupts' names the first 32 are looked at.
_COMM_WORDS, _NAME_WORDS = 4, 8
# The lower bits of prev_state are the state; a task that was preempted has none of them (sched_switch).
_STATE = 0xFF
_IDLE = "idle"
#: the task was ready to run, and the CPU stood idle: its runtime was used up (RT throttling, cgroup quota)
THROTTLED = "throttled"
# Functions that are the tick itself, by their names through the years (kernel/time/tick-sched.c).
TICKS = frozenset(("tick_sched_timer", "tick_nohz_handler", "tick_nohz_highres_handler", "tick_nohz_highres"))
TICK = "tick"
# Interrupts that are a CPU's own timer, where it has no vector of its own.
_TIMER_IRQS = frozenset(("arch_timer", "riscv-timer"))
_FUNCTIONS = 3  # that a name tells of


class Names:
    """Texts by number. One of these serves all CPUs of a recording."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self.all)
            self.all.append(name)
        return found


class Spans(NamedTuple):
    """Arrays of shape (spans,), by start. Times are ticks of the run's clock.

    Spans nest: an interrupt lies within the task or the softirq that it stopped. A page fault is a point
    (end = start), as the kernel tells only its begin.
    """

    start: Ints
    end: Ints
    kind: NDArray[np.uint8]  # the place in kinds.KINDS
    name: NDArray[np.int32]  # the number in Names
    pid: NDArray[np.int32]  # of a switch: the task that ran; else of the task that was stopped
    #: the span that brought this one: of a softirq the interrupt before it, else the span itself
    origin: NDArray[np.int32]


class CpuTrace(NamedTuple):
    """What was recorded on one CPU between ``begin`` and ``end`` (ticks of the run's clock)."""

    cpu: int
    begin: int
    end: int
    spans: Spans
    #: shape (n, 2): from when to when events were lost
    lost: Ints
    events: int
    events_lost: int
    #: ends without a begin, begins without an end, pages whose rest made no sense
    left_out: int


class Context(NamedTuple):
    """What turning events into spans takes besides them."""

    formats: Formats
    functions: Callable[[Sequence[int]], Mapping[int, str]]  # names of kernel functions by address
    strings: Mapping[int, str]  # the kernel's texts by address
    ticks: Callable[[Ints], Ints]  # trace clock -> ticks of the run's clock
    nanoseconds: Callable[[Ints], Ints]  # a span of nanoseconds -> of ticks
    #: the softirq may be no longer behind its interrupt (or the softirq before) to be brought by it
    follows: int


def build(
    cpu: int, events: Events, begin: int, end: int, lost: int, context: Context, names: Names
) -> CpuTrace:
    """Spans of one CPU that was watched from ``begin`` to ``end``; ``lost`` events are said to be missing."""
    return _Builder(cpu, events, begin, end, context, names).build(lost)


class _Part(NamedTuple):
    """Spans of one kind before they are put together."""

    start: Ints
    end: Ints
    kind: str
    name: NDArray[np.int32]
    pid: Ints

    def chosen(self, which: NDArray[np.bool_]) -> _Part:
        return _Part(self.start[which], self.end[which], self.kind, self.name[which], self.pid[which])


class _Builder:
    def __init__(
        self, cpu: int, events: Events, begin: int, end: int, context: Context, names: Names
    ) -> None:
        self.cpu = cpu
        self.events = events
        self.context = context
        self.names = names
        self.begin, self.end = begin, end
        self.time = np.clip(context.ticks(events.time), begin, end)
        self.left_out = events.garbled
        self._untold: list[tuple[int, int]] = []  # from when to when the task is not known
        self._order = np.argsort(events.type, kind="stable")
        self._sorted = events.type[self._order]

    def build(self, lost: int) -> CpuTrace:
        parts = [self._pair(pair) for pair in catalogue.PAIRS if self._has(pair)]
        parts = [piece for part in parts for piece in self._timers_apart(part)]
        parts.append(self._hrtimers(parts))
        tasks = self._tasks()
        parts = [self._within_tasks(part, tasks) for part in parts]
        parts += [tasks, *self._faults(), self._nmis()]
        parts = [part for part in parts if len(part.start)]
        parts = [self._noted(part) for part in parts]
        return CpuTrace(
            cpu=self.cpu,
            begin=self.begin,
            end=self.end,
            spans=self._together(parts),
            lost=self._lost(lost),
            events=len(self.events.at),
            events_lost=lost,
            left_out=self.left_out,
        )

    # -- events of one type

    def _of(self, event: str) -> Ints:
        """Places of an event's records, in their order."""
        form = self.context.formats.get(event)
        if form is None:
            return np.zeros(0, np.int64)
        first, last = np.searchsorted(self._sorted, [form.id, form.id + 1])
        return self._order[first:last]

    def _column(self, event: str, field: str, chosen: Ints) -> Ints:
        form = self.context.formats[event]
        if field not in form.fields:
            return np.zeros(len(chosen), np.int64)
        return self.events.column(form.fields[field], chosen)

    def _texts(self, event: str, field: str, numbers: Ints, chosen: Ints, words: int) -> _Texts:
        """(which, all): of each record the place of its (number, text) in the list of all different ones."""
        form = self.context.formats[event]
        raw = self.events.text(form.fields[field], chosen, words)
        # Different rows get different sums but for one in 2^64, so that only one number is to be sorted.
        mixed = numbers.astype(np.uint64)
        for i in range(words):
            mixed = (mixed ^ raw[:, i]) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        _, first, which = np.unique(mixed, return_index=True, return_inverse=True)
        found = []
        for i in first:
            text, _, _ = raw[i].tobytes().partition(b"\0")
            found.append((int(numbers[i]), text.decode(errors="replace")))
        return which, found

    # -- spans of one kind

    def _has(self, pair: Pair) -> bool:
        return pair.entry in self.context.formats and pair.exit in self.context.formats

    def _pair(self, pair: Pair) -> _Part:
        entries, exits = self._of(pair.entry), self._of(pair.exit)
        keys, marks = self._marks(pair, pair.entry, entries)
        start, end = self._match(entries, exits, marks, self._marks(pair, pair.exit, exits)[1])
        chosen = entries[start]
        return _Part(
            start=self.time[chosen],
            end=self.time[exits[end]],
            kind=pair.kind,
            name=self._pair_names(pair, chosen, keys[start]),
            pid=self._column(pair.entry, "common_pid", chosen),
        )

    def _timers_apart(self, part: _Part) -> list[_Part]:
        """Where a CPU's own timer is an interrupt among others it is told by its name."""
        if part.kind != kinds.IRQ:
            return [part]
        own = [n for n in np.unique(part.name) if self.names.all[n].split(" ", 2)[-1] in _TIMER_IRQS]
        timer = np.isin(part.name, own)
        return [part.chosen(~timer), part.chosen(timer)._replace(kind=kinds.TIMER)] if own else [part]

    def _hrtimers(self, parts: Sequence[_Part]) -> _Part:
        """Expirations of timers that no recorded interrupt or softirq holds."""
        if not self._has(catalogue.HRTIMER):
            return _nothing(kinds.TIMER)
        found = self._pair(catalogue.HRTIMER)
        for part in parts:
            if part.kind in (kinds.TIMER, kinds.SOFTIRQ) and len(part.start):
                order = np.argsort(part.start, kind="stable")
                place = np.searchsorted(part.start[order], found.start, "right") - 1
                held = (place >= 0) & (part.end[order][np.maximum(place, 0)] >= found.end)
                found = found.chosen(~held)
        return found

    def _marks(self, pair: Pair, event: str, chosen: Ints) -> tuple[Ints, Ints]:
        """The key field, and what begin and end of one pair have in common."""
        if not pair.key:
            nothing = np.zeros(len(chosen), np.int64)
            return nothing, nothing
        keys = self._column(event, pair.key, chosen)
        if pair is not catalogue.SOFTIRQ:
            return keys, keys
        # Where softirqs are preempted (PREEMPT_RT), several tasks may be in the same one at a time.
        return keys, keys << 23 | self._column(event, "common_pid", chosen)

    def _match(self, entries: Ints, exits: Ints, opens: Ints, closes: Ints) -> tuple[Ints, Ints]:
        """Places of entries and of the exits that belong to them: of the same mark the next one, with no
        events lost between."""
        place = np.concatenate((entries, exits))
        mark = np.concatenate((opens, closes))
        order = np.lexsort((place, mark, self.events.epoch[place]))
        is_entry = order < len(entries)
        sorted_mark, epoch = mark[order], self.events.epoch[place][order]
        joined = is_entry[:-1] & ~is_entry[1:]
        joined &= (sorted_mark[:-1] == sorted_mark[1:]) & (epoch[:-1] == epoch[1:])
        first = np.nonzero(joined)[0]
        self.left_out += len(entries) + len(exits) - 2 * len(first)
        return order[first], order[first + 1] - len(entries)

    def _pair_names(self, pair: Pair, chosen: Ints, keys: Ints) -> NDArray[np.int32]:
        if pair is catalogue.IRQ_HANDLER:
            which, found = self._texts(pair.entry, "name", keys, chosen, _NAME_WORDS)
            labels = [f"IRQ {number} {text}".rstrip() for number, text in found]
        elif pair is catalogue.SOFTIRQ:
            different, which = np.unique(keys, return_inverse=True)
            symbols = self.context.formats[pair.entry].symbols
            labels = [symbols.get(int(vector), f"softirq {vector}") for vector in different]
        elif pair is catalogue.ARM_IPI:
            addresses = self._column(pair.entry, "reason", chosen)
            different, which = np.unique(addresses, return_inverse=True)
            labels = [self.context.strings.get(int(a) & (1 << 64) - 1, pair.name) for a in different]
        else:
            labels, which = [pair.name], np.zeros(len(chosen), np.int64)
        return self._numbers(labels)[which]

    def _numbers(self, labels: Sequence[str]) -> NDArray[np.int32]:
        return np.array([self.names.number(label) for label in labels], np.int32)

    def _tasks(self) -> _Part:
        """Which task had the CPU. Before the first switch of a stretch without losses it was its prev.

        Kernels have been seen to leave a switch out (6.18, one in some thousands): each event tells which
        task it stopped, and where that is another one than the last switch brought, the task before is known
        to have been there up to the event before, and nothing is known of the time in between."""
        chosen = self._of(catalogue.SWITCH)
        if not len(chosen):
            return _nothing(kinds.SWITCH)
        next_pid = self._column(catalogue.SWITCH, "next_pid", chosen)
        current, missed = self._unannounced(chosen, next_pid)
        alone = np.setdiff1d(missed, chosen)
        places = np.concatenate((chosen, alone))
        order = np.argsort(places, kind="stable")
        places = places[order]
        pid = np.concatenate((next_pid, current[alone]))[order]
        name = np.concatenate((self._switch_names(chosen, next_pid), self._names_of(alone, chosen, current)))[
            order
        ]
        epoch = self.events.epoch[places]
        opens = np.concatenate(([True], epoch[1:] != epoch[:-1]))
        first, last = self._bounds()
        # where the one before it was last seen
        left = self.time[np.where(np.isin(places, missed), places - 1, places)]
        until = np.where(np.append(opens[1:], True), last[epoch], np.append(left[1:], 0))
        # the one that was there before
        begun = np.nonzero(opens)[0]
        earlier = np.where(np.isin(places[begun], missed), places[begun] - 1, places[begun])
        return _Part(
            np.concatenate((first[epoch[begun]], self.time[places])),
            np.concatenate((left[begun], until)),
            kinds.SWITCH,
            np.concatenate((self._names_of(earlier, chosen, current), name)),
            np.concatenate((current[earlier], pid)),
        )

    def _switch_names(self, chosen: Ints, pid: Ints) -> NDArray[np.int32]:
        previous = self._column(catalogue.SWITCH, "prev_pid", chosen)
        state = self._column(catalogue.SWITCH, "prev_state", chosen)
        name = self._task_names("next_comm", pid, chosen)
        name[(pid == 0) & (previous != 0) & (state & _STATE == 0)] = self.names.number(THROTTLED)
        return name

    def _unannounced(self, chosen: Ints, next_pid: Ints) -> tuple[Ints, Ints]:
        """Of each event the task that it stopped (a switch's prev), and the places of those that stopped
        another one than had the CPU after the event before."""
        count = len(self.events.at)
        words = self.events.words[np.where(self.events.size > 1, self.events.at + 1, self.events.at)]
        current = words.astype(np.int32).astype(np.int64)
        after = current.copy()
        after[chosen] = next_pid
        # in an interrupt in the middle of a switch (an NMI) the task before is still the current one
        late = chosen[chosen < count - 1] + 1
        together = self.events.epoch[late] == self.events.epoch[late - 1]
        late = late[together & ~np.isin(late, chosen) & (current[late] == current[late - 1])]
        after[late] = current[late] = after[late - 1]
        missed = (
            np.nonzero((after[:-1] != current[1:]) & (self.events.epoch[:-1] == self.events.epoch[1:]))[0] + 1
        )
        self._untold = [(int(self.time[place - 1]), int(self.time[place])) for place in missed]
        return current, missed

    def _names_of(self, places: Ints, chosen: Ints, current: Ints) -> NDArray[np.int32]:
        """The names of the tasks that these events stopped: the next switch away from one tells its own."""
        if not len(places):
            return np.zeros(0, np.int32)
        away = np.searchsorted(chosen, places)
        known = away < len(chosen)
        known[known] = current[chosen[away[known]]] == current[places[known]]
        name = np.empty(len(places), np.int32)
        name[known] = self._task_names("prev_comm", current[places[known]], chosen[away[known]])
        others = current[places[~known]]
        name[~known] = self._numbers([f"PID {pid}" if pid else _IDLE for pid in others])
        return name

    def _bounds(self) -> tuple[Ints, Ints]:
        """When each stretch without losses begins and ends, by its number (epochs may begin at 1)."""
        epoch = self.events.epoch
        count = int(epoch[-1]) + 1
        first = np.searchsorted(epoch, np.arange(count), "left")
        last = np.searchsorted(epoch, np.arange(count), "right") - 1
        first_time, last_time = self.time[np.minimum(first, len(epoch) - 1)], self.time[last]
        if int(epoch[0]) == 0:
            first_time[0] = self.begin
        last_time[-1] = self.end
        return first_time, last_time

    def _task_names(self, field: str, pid: Ints, chosen: Ints) -> NDArray[np.int32]:
        which, found = self._texts(catalogue.SWITCH, field, pid, chosen, _COMM_WORDS)
        numbers = self._numbers([text if number else _IDLE for number, text in found])
        return numbers[which]

    def _within_tasks(self, part: _Part, tasks: _Part) -> _Part:
        """A softirq that was preempted (PREEMPT_RT) had the CPU only while its task had it."""
        if part.kind != kinds.SOFTIRQ or not len(tasks.start):
            return part
        order = np.argsort(tasks.start, kind="stable")
        starts, ends, pids = tasks.start[order], tasks.end[order], tasks.pid[order]
        first = np.searchsorted(starts, part.start, "right") - 1
        last = np.searchsorted(starts, part.end, "left") - 1
        torn = np.nonzero(last > np.maximum(first, 0))[0]
        if not len(torn):
            return part
        pieces: list[tuple[int, int, int]] = []
        for i in torn:
            for j in range(max(int(first[i]), 0), int(last[i]) + 1):
                begin, end = max(part.start[i], starts[j]), min(part.end[i], ends[j])
                if pids[j] == part.pid[i] and begin < end:
                    pieces.append((int(i), int(begin), int(end)))
        whole = np.ones(len(part.start), bool)
        whole[torn] = False
        table = np.array(pieces, np.int64).reshape(-1, 3)
        source = np.concatenate((np.nonzero(whole)[0], table[:, 0]))
        return _Part(
            np.concatenate((part.start[whole], table[:, 1])),
            np.concatenate((part.end[whole], table[:, 2])),
            part.kind,
            part.name[source],
            part.pid[source],
        )

    def _faults(self) -> list[_Part]:
        parts = []
        for event, name in catalogue.FAULTS.items():
            chosen = self._of(event)
            if len(chosen):
                label = np.full(len(chosen), self.names.number(name), np.int32)
                time, pid = self.time[chosen], self._column(event, "common_pid", chosen)
                parts.append(_Part(time, time.copy(), kinds.PAGE_FAULT, label, pid))
        return parts

    def _nmis(self) -> _Part:
        """The event comes when a handler has ended, and says how long that took."""
        chosen = self._of(catalogue.NMI)
        if not len(chosen):
            return _nothing(kinds.NMI)
        handlers, which = np.unique(self._column(catalogue.NMI, "handler", chosen), return_inverse=True)
        known = self.context.functions([int(h) for h in handlers])
        labels = [f"NMI {known.get(int(h), '')}".rstrip() for h in handlers]
        took = self.context.nanoseconds(np.maximum(self._column(catalogue.NMI, "delta_ns", chosen), 0))
        end = self.time[chosen]
        start = np.maximum(end - took, self.begin)
        pid = self._column(catalogue.NMI, "common_pid", chosen)
        return _Part(start, end, kinds.NMI, self._numbers(labels)[which], pid)

    # -- names from within

    def _noted(self, part: _Part) -> _Part:
        """With the kernel functions that were told of while each span lasted, as part of its name."""
        for note in catalogue.NOTES:
            if note.on == part.kind and note.event in self.context.formats:
                part = part._replace(name=self._annotate(part, note))
        return part

    def _annotate(self, part: _Part, note: catalogue.Note) -> NDArray[np.int32]:
        chosen = self._of(note.event)
        if not len(chosen):
            return part.name
        addresses, which = np.unique(self._column(note.event, note.function, chosen), return_inverse=True)
        known = self.context.functions([int(a) for a in addresses])
        order = np.argsort(part.start, kind="stable")
        time = self.time[chosen]
        slot = np.searchsorted(part.start[order], time, "right") - 1
        inside = slot >= 0
        inside &= part.end[order][np.maximum(slot, 0)] >= time
        if note.only:
            wanted = self.names.number(note.only)
            inside &= part.name[order][np.maximum(slot, 0)] == wanted
        spans, notes = order[slot[inside]], which[inside]
        told = {i: known[int(a)] for i, a in enumerate(addresses) if int(a) in known}
        return self._renamed(part, spans, notes, told)

    def _renamed(self, part: _Part, spans: Ints, notes: Ints, told: Mapping[int, str]) -> NDArray[np.int32]:
        name: NDArray[np.int32] = part.name.copy()
        groups, first, count = np.unique(spans, return_index=True, return_counts=True)
        single = groups[count == 1]
        code = name[single].astype(np.int64) * (1 << 31) + notes[first[count == 1]]
        different, which = np.unique(code, return_inverse=True)
        labels = [
            self._with(self.names.all[c >> 31], [told.get(c & (1 << 31) - 1, "")]) for c in different.tolist()
        ]
        if len(single):
            name[single] = self._numbers(labels)[which]
        for begin, length in zip(first[count > 1], count[count > 1], strict=True):
            functions = [told.get(int(n), "") for n in notes[begin : begin + length]]
            span = spans[begin]
            name[span] = self.names.number(self._with(self.names.all[name[span]], functions))
        return name

    def _with(self, name: str, functions: Sequence[str]) -> str:
        different = list(dict.fromkeys(f for f in functions if f))
        ticks = [f for f in different if f in TICKS]
        others = [f for f in different if f not in TICKS]
        more = [*others[:_FUNCTIONS], "..."] if len(others) > _FUNCTIONS else others
        if ticks:
            return " + ".join((TICK, *more))
        return f"{name} ({', '.join(more)})" if more else name

    # -- all of them

    def _together(self, parts: Sequence[_Part]) -> Spans:
        if not parts:
            none = np.zeros(0, np.int64)
            small = np.zeros(0, np.int32)
            return Spans(none, none, np.zeros(0, np.uint8), small, small, small)
        start = np.concatenate([p.start for p in parts])
        end = np.concatenate([p.end for p in parts])
        kind = np.concatenate([np.full(len(p.start), kinds.KINDS.index(p.kind), np.uint8) for p in parts])
        name = np.concatenate([p.name for p in parts]).astype(np.int32)
        pid = np.concatenate([p.pid for p in parts]).astype(np.int32)
        # of two that begin at once the longer one is outside
        order = np.lexsort((-end, start))
        spans = Spans(start[order], end[order], kind[order], name[order], pid[order], np.zeros(0, np.int32))
        return spans._replace(origin=origins(spans, self.context.follows))

    def _lost(self, said: int) -> Ints:
        """Stretches without events where some are missing. At the begin when nothing marks the place:
        what is overwritten is the oldest."""
        epoch, time = self.events.epoch, self.time
        if not len(epoch):
            return np.array([[self.begin, self.end]] if said else np.zeros((0, 2)), np.int64).reshape(-1, 2)
        found = []
        if int(epoch[0]) > 0 or (said and int(epoch[-1]) == 0):
            found.append((self.begin, int(time[0])))
        for i in np.nonzero(np.diff(epoch))[0]:
            found.append((int(time[i]), int(time[i + 1])))
        found = sorted(found + [hole for hole in self._untold if hole[0] < hole[1]])
        return np.array(found, np.int64).reshape(-1, 2)


def origins(spans: Spans, follows: int) -> NDArray[np.int32]:
    """Which span brought each one. Softirqs run at the end of the interrupt that raised them
    (irq_exit_rcu), so one that comes right behind an interrupt, or behind another softirq that did, is
    that interrupt's."""
    origin = np.arange(len(spans.start), dtype=np.int32)
    hard = np.isin(spans.kind, [kinds.KINDS.index(k) for k in kinds.HARD])
    soft = spans.kind == kinds.KINDS.index(kinds.SOFTIRQ)
    # interrupts that stopped a softirq are not what brought the next one
    soft_start, soft_end = spans.start[soft], spans.end[soft]
    inside = np.searchsorted(soft_start, spans.start, "right") - 1
    nested = (inside >= 0) & (len(soft_start) > 0)
    if len(soft_start):
        nested &= spans.end <= soft_end[np.maximum(inside, 0)]
    chain = np.nonzero((hard & ~nested) | soft)[0]
    if len(chain) < 2:
        return origin
    close = spans.start[chain][1:] - spans.end[chain][:-1] <= follows
    joins = np.concatenate(([False], close)) & soft[chain]
    heads = np.where(joins, 0, np.arange(len(chain)))
    origin[chain] = chain[np.maximum.accumulate(heads)]
    return origin


def _nothing(kind: str) -> _Part:
    none = np.zeros(0, np.int64)
    return _Part(none, none, kind, np.zeros(0, np.int32), none)
