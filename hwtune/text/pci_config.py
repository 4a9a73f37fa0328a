"""PCI configuration space: capabilities and the registers in them.

Offsets and bits: PCI Local Bus Specification 3.0, ch. 6; PCI Express Base Specification, ch. 7
(as named in the kernel's include/uapi/linux/pci_regs.h). Chains of capabilities come from the
device and may be broken: they are walked with bounds, and end where they make no sense.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.text import aer
from hwtune.text.pci_registers import ACS_BITS, LINKLESS, PORT_TYPES, Registers

if TYPE_CHECKING:
    from collections.abc import Callable

    # The 32-bit little-endian value at an offset, or None where nothing could be read.
    Dword = Callable[[int], "int | None"]

_ONES = 0xFFFFFFFF
_EXPRESS = 0x10
_AER = 0x0001
_ACS = 0x000D
_L1_SUBSTATES = 0x001E
_SPEEDS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0, 7: 128.0}
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)
# The first 64 bytes are all that the kernel shows without CAP_SYS_ADMIN (pci_read_config).
_OPEN = 0x40


def dwords(content: bytes) -> Dword:
    """A reader of config space that is in memory."""

    def read(offset: int) -> int | None:
        piece = content[offset : offset + 4]
        return int.from_bytes(piece, "little") if len(piece) == 4 else None

    return read


def decode(read: Dword) -> Registers:
    """What the config space says, with as few reads as that takes."""
    found = Registers()
    identity = read(0x00)
    if identity is None:
        return found
    if identity == _ONES:
        found.lost = True
        return found
    found.vendor, found.device = identity & 0xFFFF, identity >> 16
    revision = read(0x08)
    found.class_code = None if revision is None else revision >> 8
    kind = (read(0x0C) or 0) >> 16 & 0x7F
    if kind == 1:
        buses = read(0x18)
        if buses is not None:
            found.buses = (buses >> 8 & 0xFF, buses >> 16 & 0xFF)
    express = _find(read, 0x14 if kind == 2 else 0x34, found)
    if express is not None:
        _express(read, express, found)
        if read(0x100) is not None:
            found.extended = True
            _extended(read, found)
    return found


def _find(read: Dword, pointer: int, found: Registers) -> int | None:
    """The offset of the PCI Express capability."""
    status = read(0x04)
    if status is None:
        return None
    if not status >> 20 & 1:
        found.port_type = "conventional"
        return None
    offset = (read(pointer) or 0) & 0xFC
    seen: set[int] = set()
    while offset >= _OPEN and offset not in seen:
        seen.add(offset)
        head = read(offset)
        if head is None:
            found.denied = True
            return None
        if head == _ONES:
            return None
        if head & 0xFF == _EXPRESS:
            return offset
        offset = head >> 8 & 0xFC
    if offset == 0:
        found.port_type = "conventional"
    return None


def _express(read: Dword, at: int, found: Registers) -> None:
    flags = (read(at) or 0) >> 16
    found.port_type = PORT_TYPES.get(flags >> 4 & 0xF, f"type {flags >> 4 & 0xF}")
    capable, control = read(at + 0x04), read(at + 0x08)
    if capable is not None:
        found.max_payload_supported = _size(capable & 7)
    if control is not None:
        found.max_payload = _size(control >> 5 & 7)
        found.max_read_request = _size(control >> 12 & 7)
    if found.port_type in LINKLESS:
        return
    link = read(at + 0x0C)
    if link is not None and link != _ONES:
        found.max_gts = _SPEEDS.get(link & 0xF)
        found.max_width = _width(link >> 4 & 0x3F)
    state = read(at + 0x10)
    if state is not None and state != _ONES:
        found.aspm = [name for bit, name in ((1, "L0s"), (2, "L1")) if state & bit]
        found.current_gts = _SPEEDS.get(state >> 16 & 0xF)
        found.current_width = _width(state >> 20 & 0x3F)
    if flags & 0xF >= 2:
        second = read(at + 0x30)
        if second is not None:
            found.target_gts = _SPEEDS.get(second & 0xF)


def _extended(read: Dword, found: Registers) -> None:
    offset = 0x100
    seen: set[int] = set()
    while offset >= 0x100 and offset not in seen:
        seen.add(offset)
        head = read(offset)
        if head is None or head in (0, _ONES):
            return
        kind = head & 0xFFFF
        if kind == _AER and found.sticky_correctable is None:
            _errors(read, offset, found)
        elif kind == _ACS and found.acs_enabled is None:
            _access_control(read(offset + 4), found)
        elif kind == _L1_SUBSTATES and "L1" in (found.aspm or ()):
            control = read(offset + 8) or 0
            if control != _ONES:
                # bits 2 and 3 are those of ASPM, 0 and 1 those of software's power management
                substates = [name for bit, name in ((8, "L1.1"), (4, "L1.2")) if control & bit]
                found.aspm = [*(found.aspm or ()), *substates]
        offset = head >> 20 & 0xFFC


def _errors(read: Dword, at: int, found: Registers) -> None:
    severe, mild = read(at + 0x04), read(at + 0x10)
    if severe is not None and severe != _ONES:
        found.sticky_uncorrectable = aer.bits(severe, aer.UNCORRECTABLE)
    if mild is not None and mild != _ONES:
        found.sticky_correctable = aer.bits(mild, aer.CORRECTABLE)


def _access_control(value: int | None, found: Registers) -> None:
    if value is None or value == _ONES:
        return
    found.acs_capable = [name for bit, name in enumerate(ACS_BITS) if value >> bit & 1]
    found.acs_enabled = [name for bit, name in enumerate(ACS_BITS) if value >> 16 + bit & 1]


def _size(code: int) -> int | None:
    """128 bytes doubled ``code`` times; codes 6 and 7 are reserved."""
    return 128 << code if code <= 5 else None


def _width(lanes: int) -> int | None:
    return lanes if lanes in _WIDTHS else None
