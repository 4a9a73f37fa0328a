"""Trace pages: what was written is read, and what makes no sense costs its page only."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.tracing.formats import parse_format, parse_header_page
from hwtune.tracing.ringbuffer import decode
from tests.support import trace_pages as tp
from tests.support.trace_pages import LAYOUT, PAGE, Record

VEC = tp.formats("irq:softirq_entry")["irq:softirq_entry"]
IRQ = tp.formats("irq:irq_handler_entry")["irq:irq_handler_entry"]
SWITCH = tp.formats("sched:sched_switch")["sched:sched_switch"]


def every(events):
    return np.arange(len(events.at))


def test_records_of_two_pages_in_their_order():
    records = [Record(100 + 10 * i, "irq:softirq_entry", 7, (i,)) for i in range(5)]
    events = decode(tp.pages(records, per_page=3), PAGE, LAYOUT)
    assert events.time.tolist() == [100, 110, 120, 130, 140]
    assert events.column(VEC.fields["vec"], every(events)).tolist() == [0, 1, 2, 3, 4]
    assert set(events.type.tolist()) == {VEC.id}
    assert events.epoch.tolist() == [0] * 5
    assert events.garbled == 0


def test_a_long_pause_is_in_an_event_of_its_own():
    far = 5_000_000_000_123
    records = [Record(1, "irq:softirq_entry", 0, (1,)), Record(far, "irq:softirq_exit", 0, (1,))]
    assert decode(tp.pages(records), PAGE, LAYOUT).time.tolist() == [1, far]


@pytest.mark.parametrize(
    ("begin", "absolute"),
    [
        (1000, 5000),
        # the upper five bits of a time are the page's
        ((3 << 59) + 10, (3 << 59) + 500),
        # and one more where the lower 59 began anew
        ((1 << 59) - 10, (1 << 59) + 20),
    ],
)
def test_an_absolute_time(begin, absolute):
    data = tp.body(Record(0, "irq:softirq_entry", 0, (1,)))
    content = tp.time_stamp(absolute) + tp.event_header(0, data) + tp.event_header(4, data)
    assert decode(tp.page(begin, content), PAGE, LAYOUT).time.tolist() == [absolute, absolute + 4]


def test_an_event_that_was_taken_back_counts_its_time():
    data = tp.body(Record(0, "irq:softirq_entry", 0, (1,)))
    content = tp.event_header(0, data) + tp.discarded(30, 24) + tp.event_header(12, data)
    assert decode(tp.page(200, content), PAGE, LAYOUT).time.tolist() == [200, 242]


def test_padding_ends_a_page():
    data = tp.body(Record(0, "irq:softirq_entry", 0, (1,)))
    content = tp.event_header(0, data) + struct.pack("<I", 29) + tp.event_header(12, data)
    events = decode(tp.page(200, content), PAGE, LAYOUT)
    assert events.time.tolist() == [200]
    assert events.garbled == 0


def test_a_record_longer_than_its_type_can_tell():
    name = "x" * 200
    events = decode(tp.pages([Record(5, "irq:irq_handler_entry", 3, (36, name))]), PAGE, LAYOUT)
    assert events.column(IRQ.fields["irq"], every(events)).tolist() == [36]
    assert events.text(IRQ.fields["name"], every(events), 8).tobytes() == b"x" * 32


def test_texts_end_where_their_record_ends():
    records = [
        Record(5, "irq:irq_handler_entry", 3, (36, "virtio1-req.0")),
        Record(6, "irq:irq_handler_entry", 3, (9, "acpi")),
    ]
    events = decode(tp.pages(records), PAGE, LAYOUT)
    texts = [row.tobytes().split(b"\0")[0] for row in events.text(IRQ.fields["name"], every(events), 8)]
    assert texts == [b"virtio1-req.0", b"acpi"]


def test_negative_and_wide_numbers():
    values = ("a", -1, -3, 1 << 40, "b", 5, 120)
    events = decode(tp.pages([Record(5, "sched:sched_switch", 3, values)]), PAGE, LAYOUT)
    found = [
        int(events.column(SWITCH.fields[name], every(events))[0])
        for name in ("prev_pid", "prev_prio", "prev_state", "next_pid")
    ]
    assert found == [-1, -3, 1 << 40, 5]
    assert events.column(SWITCH.fields["common_type"], every(events)).tolist() == [SWITCH.id]


def test_missed_events_begin_a_new_epoch():
    records = [Record(10 * i, "irq:softirq_entry", 0, (1,)) for i in range(6)]
    events = decode(tp.pages(records, per_page=2, missed=frozenset((1, 2))), PAGE, LAYOUT)
    assert events.epoch.tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    "content",
    [
        struct.pack("<II", 0, 8000),  # longer than its page
        struct.pack("<II", 0, 0),  # shorter than its own length
        struct.pack("<I", 20),  # ends outside
        struct.pack("<I", 30),  # half a pause
    ],
)
def test_nonsense_costs_the_rest_of_its_page(content):
    data = tp.body(Record(0, "irq:softirq_entry", 0, (1,)))
    bad = tp.page(100, tp.event_header(0, data) + content)
    events = decode(bad + tp.page(500, tp.event_header(0, data)), PAGE, LAYOUT)
    assert events.time.tolist() == [100, 500]
    assert events.garbled == 1


def test_a_page_that_claims_to_be_longer_than_it_is():
    data = tp.body(Record(0, "irq:softirq_entry", 0, (1,)))
    bad = struct.pack("<QQ", 7, 5000).ljust(PAGE, b"\1")
    events = decode(bad + tp.page(500, tp.event_header(0, data)), PAGE, LAYOUT)
    assert events.time.tolist() == [500]
    assert events.garbled == 1


def test_nothing_and_half_a_page():
    assert len(decode(b"", PAGE, LAYOUT).at) == 0
    assert len(decode(b"\0" * 100, PAGE, LAYOUT).at) == 0


@given(st.binary(max_size=2 * PAGE).map(lambda b: b.ljust(2 * PAGE, b"\x11")))
def test_any_bytes_are_survived(data):
    events = decode(data, PAGE, LAYOUT)
    assert (events.at + events.size <= 2 * PAGE // 4).all()
    events.text(IRQ.fields["name"]._replace(is_string=False), every(events), 8)


@given(
    st.lists(
        st.tuples(st.integers(0, 1 << 40), st.integers(0, 9), st.integers(0, 1 << 22)),
        min_size=1,
        max_size=60,
    ),
    st.integers(1, 30),
)
def test_what_is_written_is_read(steps, per_page):
    time, records = 1 << 50, []
    for delta, vector, pid in steps:
        time += delta
        records.append(Record(time, "irq:softirq_entry", pid, (vector,)))
    events = decode(tp.pages(records, per_page), PAGE, LAYOUT)
    assert events.time.tolist() == [r.time for r in records]
    assert events.column(VEC.fields["vec"], every(events)).tolist() == [r.values[0] for r in records]
    assert events.column(VEC.fields["common_pid"], every(events)).tolist() == [r.pid for r in records]


def test_formats():
    form = parse_format(tp.format_text("irq:irq_handler_entry"))
    assert form.fields["name"].is_string
    assert form.fields["irq"].offset == 8
    assert VEC.symbols[3] == "NET_RX"
    assert SWITCH.fields["next_comm"].size == 16
    ipi = tp.formats("ipi:ipi_entry")["ipi:ipi_entry"]
    assert ipi.fields["reason"].size == 8


@pytest.mark.parametrize("text", ["", "ID: 5\n", "name: x\nID: no\n", "field:int a; offset:0; size:4;"])
def test_not_a_format(text):
    with pytest.raises(ValueError):
        parse_format(text)


@pytest.mark.parametrize(
    "text", ["", "field: u64 timestamp; offset:0; size:8;", tp.HEADER_PAGE.replace("size:4080", "size:8")]
)
def test_not_a_page(text):
    with pytest.raises(ValueError):
        parse_header_page(text)
