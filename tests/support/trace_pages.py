"""Pages of the kernel's ring buffer, written by the kernel's rules (include/linux/ring_buffer.h), and formats
of events as x86-64 has them."""

from __future__ import annotations

import struct
from typing import NamedTuple

from hwtune.tracing.formats import Format, PageLayout, parse_format, parse_header_page

PAGE = 4096
DATA = 16
HEADER_PAGE = (
    "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
    "\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n"
    "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n"
    "\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n"
)
LAYOUT: PageLayout = parse_header_page(HEADER_PAGE)
MISSED = 1 << 31
_COMMON = (
    ("unsigned short common_type", 0, 2, 0),
    ("unsigned char common_flags", 2, 1, 0),
    ("unsigned char common_preempt_count", 3, 1, 0),
    ("int common_pid", 4, 4, 1),
)
# The fields of each event behind the common ones: declaration, size, signed.
_FIELDS = {
    "irq:irq_handler_entry": (("int irq", 4, 1), ("__data_loc char[] name", 4, 0)),
    "irq:irq_handler_exit": (("int irq", 4, 1), ("int ret", 4, 1)),
    "irq:softirq_entry": (("unsigned int vec", 4, 0),),
    "irq:softirq_exit": (("unsigned int vec", 4, 0),),
    "irq_vectors:local_timer_entry": (("int vector", 4, 1),),
    "irq_vectors:local_timer_exit": (("int vector", 4, 1),),
    "irq_vectors:call_function_single_entry": (("int vector", 4, 1),),
    "irq_vectors:call_function_single_exit": (("int vector", 4, 1),),
    "ipi:ipi_entry": (("const char * reason", 8, 0),),
    "ipi:ipi_exit": (("const char * reason", 8, 0),),
    "sched:sched_switch": (
        ("char prev_comm[16]", 16, 0),
        ("pid_t prev_pid", 4, 1),
        ("int prev_prio", 4, 1),
        ("long prev_state", 8, 1),
        ("char next_comm[16]", 16, 0),
        ("pid_t next_pid", 4, 1),
        ("int next_prio", 4, 1),
    ),
    "exceptions:page_fault_user": (("unsigned long address", 8, 0), ("unsigned long ip", 8, 0)),
    "nmi:nmi_handler": (("void * handler", 8, 0), ("s64 delta_ns", 8, 1), ("int handled", 4, 1)),
    "timer:hrtimer_expire_entry": (("void * hrtimer", 8, 0), ("s64 now", 8, 1), ("void * function", 8, 0)),
    "timer:hrtimer_expire_exit": (("void * hrtimer", 8, 0),),
    "timer:timer_expire_entry": (
        ("void * timer", 8, 0),
        ("unsigned long now", 8, 0),
        ("void * function", 8, 0),
    ),
    "csd:csd_function_entry": (("void * func", 8, 0), ("void * csd", 8, 0)),
    "workqueue:workqueue_execute_start": (("void * work", 8, 0), ("void * function", 8, 0)),
}
_IDS = {event: 100 + i for i, event in enumerate(_FIELDS)}
SOFTIRQS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")


class Record(NamedTuple):
    """One event. ``values`` are those of its own fields; a text for a field of text."""

    time: int
    event: str
    pid: int
    values: tuple[int | str, ...] = ()


def format_text(event: str) -> str:
    lines = [f"name: {event.partition(':')[2]}", f"ID: {_IDS[event]}", "format:"]
    lines += [f"\tfield:{d};\toffset:{o};\tsize:{s};\tsigned:{n};" for d, o, s, n in _COMMON]
    lines.append("")
    offset = 8
    for declared, size, signed in _FIELDS[event]:
        offset = -(-offset // min(size, 8)) * min(size, 8) if "[16]" not in declared else offset
        lines.append(f"\tfield:{declared};\toffset:{offset};\tsize:{size};\tsigned:{signed};")
        offset += size
    symbols = ", ".join(f'{{ {i}, "{name}" }}' for i, name in enumerate(SOFTIRQS))
    printed = f'"vec=%u [action=%s]", REC->vec, __print_symbolic(REC->vec, {symbols})'
    lines += ["", f"print fmt: {printed if 'softirq' in event else chr(34) * 2}", ""]
    return "\n".join(lines)


def formats(*events: str) -> dict[str, Format]:
    """Formats of these events, or of all."""
    return {event: parse_format(format_text(event)) for event in events or _FIELDS}


def body(record: Record) -> bytes:
    """The record as it lies in the buffer, a multiple of four bytes."""
    form = parse_format(format_text(record.event))
    own = [name for name in form.fields if not name.startswith("common_")]
    size = max(f.offset + f.size for f in form.fields.values())
    data = bytearray(-(-size // 4) * 4)
    struct.pack_into("<HBBi", data, 0, form.id, 0, 0, record.pid)
    for name, value in zip(own, record.values, strict=False):
        field = form.fields[name]
        if field.is_string:
            text = str(value).encode() + b"\0"
            struct.pack_into("<I", data, field.offset, len(text) << 16 | len(data))
            data += text + bytes(-len(text) % 4)
        elif isinstance(value, str):
            data[field.offset : field.offset + field.size] = value.encode().ljust(field.size, b"\0")
        else:
            code = {4: "i" if field.signed else "I", 8: "q" if field.signed else "Q"}[field.size]
            struct.pack_into(f"<{code}", data, field.offset, value)
    return bytes(data)


def event_header(delta: int, data: bytes) -> bytes:
    """A data event: its length is in the type where that holds it, else in a word of its own."""
    if len(data) <= 28 * 4:
        return struct.pack("<I", delta << 5 | len(data) // 4) + data
    return struct.pack("<II", delta << 5, len(data) + 4) + data


def time_extend(delta: int) -> bytes:
    return struct.pack("<II", (delta & (1 << 27) - 1) << 5 | 30, delta >> 27)


def time_stamp(absolute: int) -> bytes:
    low = absolute & (1 << 59) - 1
    return struct.pack("<II", (low & (1 << 27) - 1) << 5 | 31, low >> 27)


def discarded(delta: int, size: int) -> bytes:
    """An event that the kernel took back: its place stays, as padding."""
    return struct.pack("<II", delta << 5 | 29, size - 4) + bytes(size - 8)


def page(begin: int, content: bytes, *, missed: bool = False) -> bytes:
    flags = MISSED if missed else 0
    return (struct.pack("<QQ", begin, len(content) | flags) + content).ljust(PAGE, b"\xa5")


def pages(records: list[Record], per_page: int = 20, missed: frozenset[int] = frozenset()) -> bytes:
    """Records in pages of at most ``per_page``; before the pages of these numbers events are missing."""
    found = []
    for number, first in enumerate(range(0, len(records), per_page)):
        chosen = records[first : first + per_page]
        content, last = b"", chosen[0].time
        for record in chosen:
            delta, last = record.time - last, record.time
            if delta >= 1 << 27:
                content += time_extend(delta)
                delta = 0
            content += event_header(delta, body(record))
        assert len(content) <= PAGE - DATA
        found.append(page(chosen[0].time, content, missed=number in missed))
    return b"".join(found)
