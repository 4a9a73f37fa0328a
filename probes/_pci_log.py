"""What the kernel's log says of PCI functions.

A log has thousands of lines, and on a good day none of them tells of an error: the patterns that
understand these are only made when there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwtune.model.kernel import LogLine
    from hwtune.model.pci import BandwidthLimit, PciEvent

# One of these is in every line that matters, but for the lines that list the bits of an error.
_WORDS = (
    "Bus Error: severity",
    "error status/mask",
    "error received",
    "error message received",
    "can't recover (",
    "device recovery failed",
    "Hardware Error]",
    "fallen off the bus",
    "NVRM: The NVIDIA GPU",
    "limited by",
    "retraining",
    "device inaccessible",
    "pciehp: Slot(",
    "insufficient power",
)


def read(lines: list[LogLine]) -> tuple[list[PciEvent], list[BandwidthLimit]]:
    """Events, like ones counted together, and the limits of bandwidth, the last of each device."""
    first = next((n for n, line in enumerate(lines) if _matters(line.text)), None)
    if first is None:
        return [], []
    from hwtune.probes._pci_log_lines import Log, together

    log = Log()
    for line in lines[first:]:
        if _matters(line.text) or (log.pending and "] " in line.text):
            log.take(line, line.text)
        log.near -= 1
    for event in log.events:
        event.partner = log.partners.get(event.address or "")
    return together(log.events), list(log.limits.values())


def _matters(text: str) -> bool:
    return any(word in text for word in _WORDS)
