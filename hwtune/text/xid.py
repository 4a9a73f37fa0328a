"""What the NVIDIA driver writes into the kernel log when something goes wrong, and what it means.

The meanings and the next steps are those of NVIDIA's Xid catalog (docs.nvidia.com, "Analyzing Xid
Errors with the Xid Catalog"; for the words of the lines see nvidia's open-gpu-kernel-modules).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

# Who has to act: a program's own fault, the driver's software, memory, a link, the whole GPU.
PROGRAM = "program"
SOFTWARE = "software"
MEMORY = "memory"
NVLINK = "nvlink"
HARDWARE = "hardware"


class XidMeaning(NamedTuple):
    """``step``: what NVIDIA says to do at once, one imperative sentence."""

    name: str
    area: str
    severity: str
    step: str


_RESET = "Stop the work on this GPU and reset it (nvidia-smi --gpu-reset), or reboot"
_PROGRAM = "Look at the program first: run it under compute-sanitizer or cuda-gdb"
_RESTART = "Restart the program; if it comes again with another program, ask the vendor"
_LINK = f"{_RESET}; if the link fails again, have the link, the board and the switch looked at"

_MEANINGS = {
    8: ("GPU stopped processing", SOFTWARE, "warning", _RESTART),
    11: ("invalid or corrupted push buffer stream", PROGRAM, "warning", _PROGRAM),
    13: (
        "graphics engine exception, such as an illegal instruction or address",
        PROGRAM,
        "warning",
        _PROGRAM,
    ),
    25: ("invalid or illegal push buffer stream", PROGRAM, "warning", _PROGRAM),
    31: ("GPU memory page fault, such as an illegal address", PROGRAM, "warning", _PROGRAM),
    32: (
        "corrupted push buffer stream",
        HARDWARE,
        "warning",
        "Restart the program, and check the PCIe link of this GPU for errors",
    ),
    37: ("driver firmware error", SOFTWARE, "info", _PROGRAM),
    38: ("driver firmware watchdog", SOFTWARE, "warning", "Update the driver, or report it to the vendor"),
    43: ("a program was stopped by its own fault", PROGRAM, "info", _PROGRAM),
    45: (
        "clean-up after an earlier error or a killed program",
        PROGRAM,
        "info",
        "Look at the Xid that came before it",
    ),
    44: ("fault during a context switch", SOFTWARE, "warning", _RESTART),
    46: ("GPU stopped processing", HARDWARE, "error", _RESET),
    48: ("double-bit ECC error", MEMORY, "error", _RESET),
    54: ("auxiliary power is not connected", HARDWARE, "error", "Check the power cables of this GPU"),
    61: (
        "internal microcontroller breakpoint",
        SOFTWARE,
        "warning",
        "Update the driver, or report it to the vendor",
    ),
    62: ("internal microcontroller halt", HARDWARE, "error", _RESET),
    63: (
        "memory row remapped or page retired",
        MEMORY,
        "info",
        "Reset the GPU at the next chance, so that the remapping takes effect",
    ),
    64: (
        "memory row remapping or page retirement failed",
        MEMORY,
        "error",
        f"{_RESET}; if it comes again, return it",
    ),
    66: (
        "illegal access by the driver",
        SOFTWARE,
        "warning",
        "Update the driver, or report it to the vendor",
    ),
    67: (
        "illegal access by the driver",
        SOFTWARE,
        "warning",
        "Update the driver, or report it to the vendor",
    ),
    69: ("graphics engine class error", PROGRAM, "warning", _PROGRAM),
    74: ("NVLink error", NVLINK, "error", _LINK),
    79: (
        "GPU has fallen off the bus",
        HARDWARE,
        "error",
        "Power the machine off and on; if it comes again, reseat the GPU, then return it",
    ),
    80: ("corrupted data sent to the GPU", PROGRAM, "warning", _RESTART),
    92: (
        "high rate of single-bit ECC errors",
        MEMORY,
        "info",
        "Watch the ECC counters, and run the vendor's field diagnostic",
    ),
    94: (
        "contained memory error, one program was stopped",
        MEMORY,
        "warning",
        "Restart the program that was stopped, and reset the GPU when convenient",
    ),
    95: ("uncontained memory error, all programs are affected", MEMORY, "error", _RESET),
    109: (
        "context switch timed out",
        SOFTWARE,
        "warning",
        "Look at the program first; reset the GPU if it does not recover",
    ),
    110: (
        "security fault",
        HARDWARE,
        "error",
        "Undo recent hardware changes and power the machine off and on",
    ),
    119: (
        "GSP firmware did not answer in time",
        HARDWARE,
        "error",
        f"{_RESET}; if it persists, power the machine off and on",
    ),
    120: ("GSP firmware error", HARDWARE, "error", f"{_RESET}; if it persists, power the machine off and on"),
    121: (
        "corrected errors on the link to the CPU",
        HARDWARE,
        "info",
        "Reset the GPU at the next chance, so that the link retrains",
    ),
    136: ("NVLink training failed", NVLINK, "error", _LINK),
    137: ("illegal access over NVLink", PROGRAM, "warning", _PROGRAM),
    140: ("unrecovered ECC error", MEMORY, "error", _RESET),
    143: ("GPU initialization failed", HARDWARE, "error", _RESET),
    144: ("NVLink error in SAW", NVLINK, "error", _LINK),
    145: ("NVLink error in RLW", NVLINK, "error", _LINK),
    146: ("NVLink error in TLW", NVLINK, "error", _LINK),
    147: ("NVLink error in TREX", NVLINK, "error", _LINK),
    148: ("NVLink error in NVLPW_CTRL", NVLINK, "error", _LINK),
    149: ("NVLink error in NETIR", NVLINK, "error", _LINK),
    150: ("NVLink error in MSE", NVLINK, "error", _LINK),
    151: ("key rotation error", SOFTWARE, "error", "Restart the virtual machine"),
    154: ("recovery action changed", HARDWARE, "warning", "Do what the line names"),
    155: ("NVLink was taken down on purpose", NVLINK, "warning", _RESET),
    156: ("a faulty part of the GPU was retired", HARDWARE, "warning", _RESET),
    157: (
        "a faulty part of the GPU could not be retired",
        HARDWARE,
        "warning",
        "Ask the vendor; work may go on until it comes again",
    ),
    158: ("GPU timed out for good", HARDWARE, "error", _RESET),
    160: ("a memory channel was retired", MEMORY, "info", "Report it to the vendor"),
    161: ("a memory channel could not be retired", MEMORY, "warning", "Report it to the vendor"),
    167: (
        "PCIe timed out for good",
        HARDWARE,
        "error",
        "Check the PCIe link of this GPU, and ask the vendor",
    ),
    169: ("internal microcontroller halt", HARDWARE, "error", "Ask the vendor"),
    171: ("uncorrectable error in DRAM, beside Xid 48", MEMORY, "error", _RESET),
    172: ("uncorrectable error in SRAM, beside Xid 48", MEMORY, "error", _RESET),
}
# Copy engines, video engines, JPEG engines: each has its own number, and all mean the same.
_ENGINES = frozenset(
    (
        39,
        40,
        41,
        60,
        68,
        70,
        71,
        72,
        75,
        76,
        77,
        82,
        83,
        84,
        85,
        86,
        88,
        89,
        *range(96, 106),
        *range(126, 136),
        139,
    )
)

# These follow from another Xid, and say nothing by themselves.
CONSEQUENCES = (45, 154)
# Injected by a test, or a test message of the management controller.
TESTS = (14, 106, 107)


def meaning(xid: int) -> XidMeaning:
    known = _MEANINGS.get(xid)
    if known is not None:
        return XidMeaning(*known)
    if xid in _ENGINES:
        return XidMeaning("exception in a copy, video or JPEG engine", SOFTWARE, "warning", _RESTART)
    return XidMeaning("not described here", SOFTWARE, "warning", "Look it up in NVIDIA's Xid catalog")


class DriverLine(NamedTuple):
    """One complaint. ``address`` is DDDD:BB:DD.F in lower case, or "" where the line names none."""

    kind: str  # xid, sxid, lost, mismatch, init-failed, probe-failed
    address: str
    line: str
    number: int | None = None
    caused_by: int | None = None
    process: str = ""
    detail: str = ""


# Not compiled here: most machines have no such line, and re keeps what it compiled.
_ADDRESS = r"(?:PCI:)?((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.([0-7]))?"
_XID = r"NVRM: Xid \(" + _ADDRESS + r"(?: [^)]{0,40})?\): (\d{1,4}),? ?(.{0,400})"
_SXID = r"nvidia-nvswitch\d{1,3}: SXid \(" + _ADDRESS + r"\): (\d{1,6}), ?(.{0,400})"
_CAUSE = r"caused by previous Xid (\d{1,4})"
_PROCESS = r"pid='?([^',]{1,20})'?, name=([^,]{1,64}), ?"
_NAMED = r"NVRM: (?:The NVIDIA )?GPU (?:at )?" + _ADDRESS
_FAILED = r"RmInitAdapter failed|rm_init_adapter failed"
# A message of the driver has this many lines at most.
_LINES = 3
_LONGEST = 2000


def parse(lines: Iterable[str]) -> list[DriverLine]:
    """The complaints in a kernel log, in their order. One pass; a message of the driver over
    several lines (the loss of a GPU is told in three) is taken together."""
    found: list[DriverLine] = []
    named, message, client = "", [""], ""
    for line in lines:
        if "NVRM" not in line and "nvswitch" not in line and "fallen off the bus" not in line:
            continue
        line = line[:_LONGEST]
        match = re.search(_NAMED, line)
        if match is not None:
            named, message = _bdf(match[1], match[2]), [line.strip()]
        elif len(message) < _LINES:
            message.append(line.strip())
        else:
            named, message = "", [line.strip()]
        event = _event(line, named, " ".join(message))
        if event is not None:
            found.append(event)
        elif "API mismatch: the client has" in line:
            client = line
        elif client and "kernel module has the version" in line:
            found.append(DriverLine("mismatch", "", f"{client.strip()} {line.strip()}"))
            client = ""
    return found


def _event(line: str, named: str, message: str) -> DriverLine | None:
    match = re.search(_XID, line)
    if match is not None:
        return _xid(line, match)
    match = re.search(_SXID, line)
    if match is not None:
        fatal = "non-fatal" if "Non-fatal" in match[4] else "fatal" if "Fatal" in match[4] else ""
        return DriverLine("sxid", _bdf(match[1], match[2]), line.strip(), int(match[3]), detail=fatal)
    if "fallen off the bus" in line:
        return DriverLine("lost", named, message)
    if re.search(_FAILED, line):
        return DriverLine("init-failed", named, line.strip())
    if "probe routine failed" in line:
        return DriverLine("probe-failed", "", line.strip())
    return None


def _xid(line: str, match: re.Match[str]) -> DriverLine:
    rest = match[4]
    cause = re.search(_CAUSE, rest)
    process = re.match(_PROCESS, rest)
    name = process[2] if process is not None and process[2] != "<unknown>" else ""
    detail = rest[process.end() :] if process is not None else rest
    return DriverLine(
        "xid",
        _bdf(match[1], match[2]),
        line.strip(),
        int(match[3]),
        int(cause[1]) if cause is not None else None,
        name,
        detail.strip(),
    )


def _bdf(address: str, function: str | None) -> str:
    """DDDD:BB:DD.F of what the driver prints: no function, and a domain of four or eight digits."""
    from hwtune.text.pci_address import normal

    return normal(f"{address}.{function or '0'}") or ""
