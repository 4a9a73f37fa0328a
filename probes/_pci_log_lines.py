"""The lines of the kernel's log that tell of PCI functions, understood.

Forms of the messages: drivers/pci/pcie/aer.c and err.c (of 4.x to 6.x, which spell the severities
differently), drivers/pci/pci.c (__pcie_print_link_status), drivers/pci/hotplug/pciehp_ctrl.c,
drivers/pci/quirks.c (pcie_failed_link_retrain), drivers/acpi/apei/ghes.c with
drivers/firmware/efi/cper.c, drivers/net/ethernet/mellanox/mlx5/core/events.c.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hwtune.model.pci import BandwidthLimit, PciEvent
from hwtune.text import aer

if TYPE_CHECKING:
    from hwtune.model.kernel import LogLine

_ADDRESS = r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
_PREFIX = rf"(?:^|\s)([\w-]{{1,40}}) {_ADDRESS}: +(?:AER: +)?"

_BUS_ERROR = re.compile(
    _PREFIX + r"PCIe Bus Error: severity=(Correct|Uncorrect)\w+(?: \((Non-Fatal|Fatal)\))?, type=", re.ASCII
)
_STATUS = re.compile(
    _PREFIX + r"device \[([0-9a-f:]{9})\] error status/mask=([0-9a-f]{8})/([0-9a-f]{8})", re.ASCII
)
_BIT = re.compile(_PREFIX + r"\[ ?(\d{1,2})\] \S", re.ASCII)
_RECEIVED = re.compile(
    _PREFIX + r"(?:Multiple )?(?:Correct|Uncorrect)\w+ (?:\((?:Non-Fatal|Fatal)\) )?error"
    rf" (?:message )?received(?: from|:) {_ADDRESS}",
    re.ASCII,
)
_RECOVERY = re.compile(_PREFIX + r"(can't recover \([^)]{1,60}\)|device recovery failed)", re.ASCII)
_LIMIT = re.compile(
    _PREFIX
    + r"([\d.]{1,9}) Gb/s available (?:PCIe )?bandwidth, limited by (?:([\d.]{1,5}) GT/s|Unknown)(?: speed)?"
    rf"(?: PCIe)? x(\d{{1,2}}) link at {_ADDRESS} \(capable of ([\d.]{{1,9}}) Gb/s with"
    r" (?:([\d.]{1,5}) GT/s|Unknown)(?: speed)?(?: PCIe)? x(\d{1,2}) link\)",
    re.ASCII,
)
_FIRMWARE = re.compile(r"\{(\d{1,10})\}\[Hardware Error\]: +(.*)", re.ASCII)
_GPU = re.compile(r"NVRM: .{0,60}?\b([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(\.[0-7])?\b", re.ASCII)

# (kind, pattern); all of one function
_OTHERS = (
    (
        "link-down",
        re.compile(_PREFIX + r"pciehp: Slot\([^)]{1,40}\): (?:Link Down|Card not present)", re.ASCII),
    ),
    (
        "retrained",
        re.compile(_PREFIX + r"(?:broken device, )?retraining (?:non-functional|failed)", re.ASCII),
    ),
    (
        "inaccessible",
        re.compile(_PREFIX + r"Unable to change power state from \w+ to \w+, device inaccessible", re.ASCII),
    ),
    ("slot-power", re.compile(_PREFIX + r".{0,60}?Detected insufficient power on the PCIe slot", re.ASCII)),
)

_FIRMWARE_KINDS = {"corrected": "aer-correctable", "recoverable": "aer-nonfatal", "fatal": "aer-fatal"}
# How many lines after its address the driver may say that a GPU is gone.
_NEAR = 3


class Log:
    """Takes lines in their order, and remembers what belongs together."""

    def __init__(self) -> None:
        self.events: list[PciEvent] = []
        self.limits: dict[str, BandwidthLimit] = {}
        self.pending: dict[str, PciEvent] = {}  # by address: the error whose details follow
        self.partners: dict[str, str] = {}  # function -> the one at the other end of its link
        self.firmware: dict[str, dict[str, str]] = {}  # record -> what it said so far
        self.reported: dict[str, PciEvent] = {}  # record -> its event
        self.gpu: str | None = None
        self.near = 0

    def take(self, line: LogLine, text: str) -> None:
        if (match := _BUS_ERROR.search(text)) is not None:
            kind = "aer-correctable" if match[3] == "Correct" else f"aer-{(match[4] or 'nonfatal').lower()}"
            event = self._event(line, kind.replace("non-fatal", "nonfatal"), match[2])
            event.driver = match[1]
            self.pending[match[2]] = event
        elif (match := _STATUS.search(text)) is not None:
            status, mask = int(match[4], 16), int(match[5], 16)
            self._detail(match[2], status & ~mask, match[3])
        elif (match := _BIT.search(text)) is not None:
            self._detail(match[2], 1 << int(match[3]) if int(match[3]) < 32 else 0)
        elif (match := _RECEIVED.search(text)) is not None:
            if match[2] != match[3]:
                # a port that speaks for the function below it
                self.partners.setdefault(match[2], match[3])
                self.partners.setdefault(match[3], match[2])
        elif (match := _RECOVERY.search(text)) is not None:
            self._event(line, "recovery-failed", match[2], match[3])
        elif (match := _LIMIT.search(text)) is not None:
            self._limit(line, match)
        elif (match := _FIRMWARE.search(text)) is not None:
            self._firmware(line, match[1], match[2])
        elif "NVRM: " in text:
            self._gpu(line, text)
        else:
            for kind, pattern in _OTHERS:
                if (match := pattern.search(text)) is not None:
                    self._event(line, kind, match[2], text[match.end(2) + 1 :].strip())

    def _event(self, line: LogLine, kind: str, address: str, detail: str = "") -> PciEvent:
        event = PciEvent(
            source=line.source,
            line=line.text.strip(),
            kind=kind,
            address=address,
            detail=detail,
            first_s=line.seconds,
            last_s=line.seconds,
        )
        self.events.append(event)
        return event

    def _detail(self, address: str, status: int, ids: str = "") -> None:
        event = self.pending.get(address)
        if event is None:
            return
        event.ids = event.ids or ids
        names = aer.CORRECTABLE if event.kind == "aer-correctable" else aer.UNCORRECTABLE
        said = event.detail.split(", ") if event.detail else []
        event.detail = ", ".join(dict.fromkeys([*said, *aer.bits(status, names)]))

    def _limit(self, line: LogLine, match: re.Match[str]) -> None:
        try:
            limit = BandwidthLimit(
                source=line.source,
                line=line.text.strip(),
                driver=match[1],
                address=match[2],
                available_gbps=float(match[3]),
                limit_gts=float(match[4]) if match[4] else None,
                limit_width=int(match[5]),
                limit_address=match[6],
                capable_gbps=float(match[7]),
                capable_gts=float(match[8]) if match[8] else None,
                capable_width=int(match[9]),
            )
        except ValueError:
            return  # digits and dots in an order that is no number
        self.limits[limit.address] = limit

    def _firmware(self, line: LogLine, record: str, text: str) -> None:
        """A record of APEI: severity, then the section's type, then the function."""
        key, _, value = text.partition(": ")
        said = self.firmware.setdefault(record, {})
        if key == "event severity":
            said["severity"] = value
        elif key == "section_type":
            said["section"] = value
        elif key == "device_id" and said.get("section") == "PCIe error":
            kind = _FIRMWARE_KINDS.get(said.get("severity", ""))
            found = re.match(_ADDRESS, value, re.ASCII)
            if kind is not None and found is not None:
                event = self._event(line, kind, found[1])
                event.line = f"firmware-reported PCIe error, {said['severity']}, at {found[1]}"
                self.pending[found[1]] = self.reported[record] = event
        elif key in ("slot", "vendor_id") and record in self.reported:
            self.reported[record].line += f", {text}"

    def _gpu(self, line: LogLine, text: str) -> None:
        """The driver says which GPU in one line, and that it is gone in the same or a later one."""
        found = _GPU.search(text)
        if found is not None:
            self.gpu = f"{found[1]}{found[2] or '.0'}"
            self.near = _NEAR + 1
        if "fallen off the bus" in text and self.gpu is not None and self.near > 0:
            self._event(line, "off-the-bus", self.gpu)
            self.gpu = None


def together(events: list[PciEvent]) -> list[PciEvent]:
    """Like events as one, with their number and the times of the first and the last."""
    found: dict[tuple[str, str | None, str], PciEvent] = {}
    for event in events:
        same = found.setdefault((event.kind, event.address, event.detail), event)
        if same is event:
            continue
        same.count += 1
        same.last_s = event.last_s if event.last_s is not None else same.last_s
    return list(found.values())
