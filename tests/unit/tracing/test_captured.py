"""What a Linux 6.1 recorded on one CPU: its binary pages, and the same events as the kernel prints them.

Captured in the QEMU machine of tests/machine: a busy task beside the one that read a drive, page faults,
ticks. ``trace`` has the kernel's own text of the events in ``pages``.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from hwtune.tracing import kinds
from hwtune.tracing.events import read_formats, untold
from hwtune.tracing.formats import parse_header_page
from hwtune.tracing.ringbuffer import decode
from hwtune.tracing.spans import Context, Names, build
from hwtune.tracing.symbols import functions
from hwtune.tracing.tracefs import Tracefs

DATA = Path(__file__).parents[2] / "data" / "tracefs-6.1"
LINE = re.compile(
    r"^\s*(?P<comm>.*)-(?P<pid>\d+)\s+\[(?P<cpu>\d+)\]\s+\S+\s+"
    r"(?P<time>\d+): (?P<event>\w+): (?P<text>.*)$"
)


@pytest.fixture(scope="module")
def text():
    """The kernel's own lines."""
    lines = gzip.decompress((DATA / "trace.gz").read_bytes()).decode().splitlines()
    return [match.groupdict() for line in lines if (match := LINE.match(line)) and not line.startswith("#")]


@pytest.fixture(scope="module")
def formats():
    found, strange = read_formats(Tracefs(str(DATA)))
    assert strange == []
    return found


@pytest.fixture(scope="module")
def events():
    layout = parse_header_page((DATA / "events/header_page").read_text())
    return decode(gzip.decompress((DATA / "pages.gz").read_bytes()), 4096, layout)


@pytest.fixture(scope="module")
def trace(events, formats):
    names = Names()
    context = Context(
        formats, lambda found: functions(found, str(DATA / "kallsyms")), {}, lambda t: t, lambda ns: ns, 3000
    )
    built = build(2, events, int(events.time[0]), int(events.time[-1]), 0, context, names)
    return built, names.all


def test_every_event_with_its_time_and_task_as_the_kernel_prints_it(text, events, formats):
    names = {form.id: event.partition(":")[2] for event, form in formats.items()}
    every = np.arange(len(events.at))
    pid = formats["sched:sched_switch"].fields["common_pid"]
    ours = list(
        zip(
            events.time.tolist(),
            [names[t] for t in events.type.tolist()],
            events.column(pid, every).tolist(),
            strict=True,
        )
    )
    theirs = [(int(line["time"]), line["event"], int(line["pid"])) for line in text]
    assert ours == theirs
    assert events.garbled == 0


def test_fields_as_the_kernel_prints_them(text, events, formats):
    def column(event, field):
        form = formats[event]
        chosen = np.nonzero(events.type == form.id)[0]
        return events.column(form.fields[field], chosen).tolist()

    def printed(event, pattern):
        return [int(re.search(pattern, line["text"])[1]) for line in text if line["event"] == event]

    assert column("sched:sched_switch", "next_pid") == printed("sched_switch", r"next_pid=(\d+)")
    assert column("irq:softirq_entry", "vec") == printed("softirq_entry", r"vec=(\d+)")
    assert column("irq:irq_handler_entry", "irq") == printed("irq_handler_entry", r"irq=(\d+)")


def test_names_as_the_kernel_prints_them(text, trace):
    built, names = trace
    found = Counter(
        (kinds.KINDS[k], names[n]) for k, n in zip(built.spans.kind, built.spans.name, strict=True)
    )
    irqs = Counter(
        f"IRQ {number} {name}"
        for line in text
        if line["event"] == "irq_handler_entry"
        for number, name in re.findall(r"irq=(\d+) name=(.*)", line["text"])
    )
    assert irqs
    assert {name: count for (kind, name), count in found.items() if kind == "irq"} == dict(irqs)
    softirqs = Counter(
        re.search(r"action=(\w+)", line["text"])[1] for line in text if line["event"] == "softirq_entry"
    )
    told = Counter()
    for (kind, name), count in found.items():
        if kind == "softirq":
            told[name.split()[0]] += count
    assert told == softirqs
    tasks = {
        re.search(r"next_comm=(.*) next_pid", line["text"])[1]
        for line in text
        if line["event"] == "sched_switch"
    }
    seen = {name.split(" (")[0] for (kind, name) in found if kind == "switch"}
    assert {task for task in tasks if not task.startswith("swapper")} <= seen


def test_ticks_are_known_by_their_function(text, trace):
    built, names = trace
    ticks = sum(1 for n in built.spans.name if names[n].startswith("tick"))
    told = " ".join(f"{line['event']}/{line['text']}" for line in text)
    # an interrupt that came late may have several ticks to do
    within = re.findall(r"local_timer_entry/.*?local_timer_exit/", told)
    assert ticks == sum("function=tick_sched_timer" in interrupt for interrupt in within)
    assert ticks > 10


def test_almost_nothing_is_left_out(trace):
    built, _ = trace
    assert built.left_out <= 4  # what had begun before, or not ended yet
    assert built.lost.tolist() == []


def test_what_this_kernel_tells(formats):
    assert untold(formats) == []
