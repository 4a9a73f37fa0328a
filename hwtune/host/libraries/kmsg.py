"""The kernel's log, from /dev/kmsg (Documentation/ABI/testing/dev-kmsg).

Opening it needs CAP_SYSLOG where kernel.dmesg_restrict is 1.
"""

from __future__ import annotations

import errno
import os
import re
import time

# A record is at most PRINTK_MESSAGE_MAX (2,048, before escaping: four bytes a character) and its
# dictionary; a read with less room fails with EINVAL.
_RECORD = 16_384
# A log of 16 MiB (log_buf_len) with short records. It grows while it is read: both are bounds.
_RECORDS = 200_000
_SECONDS = 1.0

# What the kernel escapes in a record: "\n" (it ends a record), "\\", and bytes from 127 on.
_ESCAPE = re.compile(rb"\\x(0a|09|5c|[89a-f][0-9a-f])")


def query() -> list[list[int | float | str]]:
    """Lines of the log, oldest first: [priority with facility (8 * facility + level), seconds
    since boot, text]. A message of several lines gives several, as ``dmesg`` prints them.

    Raises ``OSError``.
    """
    descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return _lines(descriptor)
    finally:
        os.close(descriptor)


def _lines(descriptor: int) -> list[list[int | float | str]]:
    lines: list[list[int | float | str]] = []
    deadline = time.monotonic() + _SECONDS
    for number in range(_RECORDS):
        try:
            record = os.read(descriptor, _RECORD)
        except BlockingIOError:
            break  # the end of what there is
        except OSError as error:
            if error.errno == errno.EPIPE:
                continue  # overwritten before it was read; the next read goes on with the oldest
            raise
        lines += parse_record(record)
        if not number % 1024 and time.monotonic() > deadline:
            break
    return lines


def parse_record(record: bytes) -> list[list[int | float | str]]:
    """ "PRIORITY,SEQUENCE,MICROSECONDS,FLAGS[,...];TEXT\\n KEY=VALUE\\n..." as lines; none where
    it is not of this form."""
    head, found, rest = record.partition(b";")
    fields = head.split(b",")
    if not found or len(fields) < 3 or not fields[0].isdigit() or not fields[2].isdigit():
        return []
    text = rest.partition(b"\n")[0]
    if b"\\x" in text:
        text = _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode("ascii")), text)
    priority, seconds = int(fields[0]), int(fields[2]) / 1e6
    return [[priority, seconds, line] for line in text.decode("utf-8", "replace").split("\n")]
