"""What the Linux kernel's log says of NVMe drives.

The lines are those of drivers/nvme/host/pci.c (nvme_timeout, nvme_warn_reset, nvme_reset_work),
core.c (nvme_log_error, nvme_wait_ready), and block/blk-core.c (blk_print_req_error), as releases
from 4.x on print them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Event(NamedTuple):
    """``line``: its place among the lines; ``device`` as the line has it: a controller (nvme0), a disk
    (nvme0n1) or a PCI address; ``kind`` as in ``hwtune.model.storage.NvmeEvent``; ``place``: what two
    lines on the same fault share, "" where there is no such thing."""

    line: int
    device: str
    kind: str
    detail: str
    place: str = ""


_DISK = r"(nvme\d{1,5}(?:c\d{1,5})?n\d{1,6})"


class _Patterns:
    """Compiled once there is a line to look at."""

    def __init__(self) -> None:
        self.controller = re.compile(r"nvme (nvme\d{1,5}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (.*)")
        self.messages = [(kind, re.compile(pattern)) for kind, pattern in _MESSAGES]
        # "nvme0n1: I/O Cmd(0x2) @ LBA 32545872, 8 blocks, I/O Error (sct 0x3 / sc 0x71)"
        self.command = re.compile(
            _DISK + r": .{1,40}?\(0x([0-9a-f]{1,2})\) @ LBA (\d+), \d+ blocks, "
            r"(.{1,60}?) \(sct 0x(\d) / sc 0x([0-9a-f]+)\)"
        )
        # "I/O error, dev nvme0n1, sector 32545872 op 0x0:(READ)": the operation since 4.19
        self.block = re.compile(
            r"([a-z/ ]{3,40}) error, dev " + _DISK + r", sector (\d+)(?: op 0x[0-9a-f]+:\(([A-Z_]+)\))?",
            re.IGNORECASE,
        )
        # "I/O 12 QID 5 timeout, aborting", "I/O tag 12 (100c) opcode 0x2 (I/O Cmd) QID 5 timeout, ..."
        self.tag = re.compile(r"I/O (?:tag )?(\d+) .{0,60}?(QID \d+) timeout, (abort)?")
        self.capacity = re.compile(_DISK + r": detected capacity change from (\d+) to 0$")


_MESSAGES = (
    ("interrupt-lost", r"I/O .{0,80}?\b(QID \d+) timeout, completion polled"),
    ("timeout", r"I/O .{0,80}?\b(QID \d+) timeout(?:$|, (?:aborting|reset|disable))"),
    # as 4.0 and before, and as the drivers of fabrics
    ("timeout", r"Timeout I/O \d+ (QID \d+)"),
    ("timeout", r"(?:queue|I/O tag) .{0,60}?\btimeout\b"),
    ("controller-down", r"controller is down; will reset: (CSTS=0x[0-9a-f]+)"),
    ("not-ready", r"(Device not ready; aborting (?:reset|initiali[sz]ation|shutdown))"),
    ("removed", r"(?:Removing after probe failure|Disabling device after reset failure)(.{0,20})"),
    ("reset", r"(resetting controller due to .{1,60}|.{0,40}error detected, reset controller)"),
)

# Flush, write and read of the NVM command set; a trim that is refused loses nothing.
_COMMANDS = {"0": "flush", "1": "write", "2": "read"}
_OPERATIONS = (None, "READ", "WRITE", "FLUSH")
_MEDIA_TYPE = "2"  # status code type: media and data integrity errors


def find(lines: Iterable[str]) -> Iterator[Event]:
    """The faults in lines of the log (without their time stamps), in one pass."""
    patterns: _Patterns | None = None
    waiting: set[tuple[str, ...]] = set()
    for number, line in enumerate(lines):
        if "nvme" in line:
            patterns = patterns or _Patterns()
            event = _event(patterns, number, line[:1000])
            if event is None or (event.kind == "timeout" and _again(patterns, event, line[:1000], waiting)):
                continue
            yield event


def _again(patterns: _Patterns, event: Event, line: str, waiting: set[tuple[str, ...]]) -> bool:
    """Whether it is the command that the driver tried to abort, and waited for once more before it
    resets the controller (drivers/nvme/host/pci.c, nvme_timeout)."""
    match = patterns.tag.search(line)
    if match is None:
        return False
    command = (event.device, match[1], match[2])
    if match[3]:
        waiting.add(command)
        return False
    if command in waiting:
        waiting.discard(command)
        return True
    return False


def _event(patterns: _Patterns, number: int, line: str) -> Event | None:
    match = patterns.controller.search(line)
    if match is not None:
        for kind, pattern in patterns.messages:
            found = pattern.match(match[2])
            if found is not None:
                return Event(number, match[1], kind, (found[1] if found.lastindex else match[2]).strip(" :"))
        return None
    match = patterns.command.search(line)
    if match is not None:
        what = _COMMANDS.get(match[2])
        if what is None:
            return None
        kind = "media-error" if match[5] == _MEDIA_TYPE else "io-error"
        return Event(number, match[1], kind, f"{what}, LBA {match[3]}: {match[4]}", f"command {match[3]}")
    match = patterns.block.search(line)
    if match is not None and match[4] in _OPERATIONS:
        medium = match[1].endswith("critical medium")
        what = f"{match[4].lower()}, " if match[4] else ""
        kind = "media-error" if medium else "io-error"
        return Event(number, match[2], kind, f"{what}sector {match[3]}", f"sector {match[3]}")
    match = patterns.capacity.search(line)
    if match is not None:
        return Event(number, match[1], "removed", f"capacity {match[2]} -> 0", "capacity")
    return None


_NAME = re.compile(r"nvme(\d{1,5})(?:c(\d{1,5}))?(?:n\d{1,6})?(?:p\d{1,5})?$")


def controller_of(disk: str) -> str | None:
    """nvme0 of "nvme0", "nvme0n1", "nvme0n1p2"; nvme2 of the path "nvme1c2n1". None for other names.

    Of a disk above several paths it is the number of the subsystem, which is that of its first
    controller (drivers/nvme/host/multipath.c, nvme_mpath_set_disk_name).
    """
    match = _NAME.match(disk)
    return f"nvme{match[2] or match[1]}" if match is not None else None
