"""Output of lspci: plain, verbose (-v to -vvv), with numbers (-n, -nn), with dumps (-x to -xxxx), and
in records (-mm, -vmm). The forms are those of pciutils 3.1 to 3.13 (ls-caps.c, ls-ecaps.c, lspci.c).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from hwtune.text import aer
from hwtune.text.pci_config import decode, dwords
from hwtune.text.pci_names import CLASSES, vendor_of
from hwtune.text.pci_registers import Registers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# "19:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2330] (rev a1)"
_HEAD = re.compile(
    r"((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ([^:\[\"]{1,80}?)(?: \[([0-9a-f]{4})\])?: (.*)",
    re.ASCII,
)
_NUMBERS = re.compile(r"(?:\[|^(?:Device )?)([0-9a-f]{4}):([0-9a-f]{4})\]?", re.ASCII)
_TAIL = re.compile(r" \((?:rev [0-9a-f]{2}|prog-if [0-9a-f]{2}(?: \[[^\]]*\])?)\)", re.ASCII)
_INTERFACE = re.compile(r" \(prog-if ([0-9a-f]{2})", re.ASCII)
_UNNAMED = re.compile(r"Device ([0-9a-f]{4})\b", re.ASCII)
_HEX = re.compile(r"([0-9a-f]{2,3}):((?: [0-9a-f]{2}){1,16})\s*", re.ASCII)
_SPEED = re.compile(r"Speed:? ([\d.]{1,5}) ?GT/s", re.ASCII)
_WIDTH = re.compile(r"Width x(\d{1,2})\b", re.ASCII)
_PAYLOAD = re.compile(r"MaxPayload (\d{1,5}) bytes(?:, MaxReadReq (\d{1,5}) bytes)?", re.ASCII)
_BUSES = re.compile(r"secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})", re.ASCII)
_COUNT = re.compile(r"Number of VFs: (\d{1,5})", re.ASCII)
_STRIDE = re.compile(r"VF offset: (\d{1,5}), stride: (\d{1,5})", re.ASCII)
_FLAG = re.compile(r"([A-Za-z0-9_.]{2,24})([+-])(?=[\s,(]|$)", re.ASCII)

# "Express (v2) Root Port (Slot+), MSI 00": the longest names first
_PORTS = (
    ("Root Complex Integrated Endpoint", "rc-endpoint"),
    ("Root Complex Event Collector", "rc-event-collector"),
    ("Root Port", "root-port"),
    ("Upstream Port", "upstream"),
    ("Downstream Port", "downstream"),
    ("PCI-Express to PCI", "pcie-to-pci-bridge"),
    ("PCI/PCI-X to PCI-Express", "pci-to-pcie-bridge"),
    ("Legacy Endpoint", "legacy-endpoint"),
    ("Endpoint", "endpoint"),
)


class Function(msgspec.Struct):
    """What lspci says of one function; None where it says nothing."""

    address: str
    name: str | None = None
    class_code: int | None = None  # 24 bits
    vendor: int | None = None
    device: int | None = None
    driver: str | None = None
    verbose: bool = False  # -v at least: a missing driver line means that there is none
    numa_node: int | None = None
    iommu_group: int | None = None
    power_state: str | None = None
    virtual_functions: list[str] = []
    registers: Registers = msgspec.field(default_factory=Registers)


class Listing(msgspec.Struct):
    """``loose_acs``: what is enabled in ACS control lines that stand without their function."""

    functions: list[Function] = []
    loose_acs: list[list[str]] = []


def parse(text: str) -> Listing:
    """What can be understood of ``text``; lines that mean nothing here are passed over."""
    listing = Listing()
    for head, lines in _blocks(text):
        if head is None:
            listing.loose_acs += [_set_flags(line[7:]) for line in lines if line.startswith("ACSCtl:")]
            continue
        listing.functions.append(_function(head, lines))
    return listing


def full_address(text: str) -> str:
    """DDDD:BB:DD.F in lower case; the domain is 0000 where lspci leaves it out."""
    address = text.lower()
    return address if address.count(":") == 2 else f"0000:{address}"


def _blocks(text: str) -> Iterator[tuple[re.Match[str] | None, list[str]]]:
    """The head line and the other lines (stripped) of each function; None for what comes before."""
    head: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.splitlines():
        match = _HEAD.match(line) if line[:1] in "0123456789abcdef" else None
        if match is None:
            lines.append(line.strip())
            continue
        if head is not None or lines:
            yield head, lines
        head, lines = match, []
    if head is not None or lines:
        yield head, lines


def _function(head: re.Match[str], lines: list[str]) -> Function:
    found = Function(full_address(head[1]))
    _identify(found, head)
    reader = _Reader(found)
    for line in lines:
        reader.take(line)
    reader.end()
    return found


def _identify(found: Function, head: re.Match[str]) -> None:
    kind, code, rest = head[2], head[3], head[4]
    if code is None and (numeric := re.fullmatch(r"(?:Class )?([0-9a-f]{4})", kind, re.ASCII)):
        code = numeric[1]
    number = int(code, 16) if code else CLASSES.get(kind)
    interface = _INTERFACE.search(rest)
    if number is not None:
        found.class_code = number << 8 | (int(interface[1], 16) if interface else 0)
    name = _TAIL.sub("", rest).strip()
    numbers = _NUMBERS.search(name)
    if numbers is not None:
        found.vendor, found.device = int(numbers[1], 16), int(numbers[2], 16)
        name = (name[: numbers.start()] + name[numbers.end() :]).strip()
    else:
        found.vendor = vendor_of(name)
        unnamed = _UNNAMED.search(name)
        found.device = int(unnamed[1], 16) if unnamed else None
    found.name = None if name.startswith("(") else name or None
    if "(rev ff)" in rest and (interface is None or interface[1] == "ff"):
        found.registers.lost = True


class _Reader:
    """Takes the lines of one function."""

    def __init__(self, found: Function) -> None:
        self.found = found
        self.registers = found.registers
        self.flags: tuple[str, list[str]] | None = None  # a line of flags that may go on in the next
        self.dump = bytearray()
        self.virtual_count = 0

    def take(self, line: str) -> None:
        label, sign, rest = line.partition(":")
        if not sign:
            if self.flags is not None:
                self.flags[1].append(line)
            payload = _PAYLOAD.search(line)
            if payload is not None and payload[2]:
                self._control(payload)
            elif line.startswith("!!!"):
                self.registers.lost = True
            return
        self._end_flags()
        take = _LINES.get(label)
        if take is not None:
            take(self, rest.strip())
        elif len(label) <= 3 and (dump := _HEX.fullmatch(line)):
            if int(dump[1], 16) == len(self.dump):
                self.dump += bytes.fromhex(dump[2])
        elif label.startswith("Initial VFs"):
            count = _COUNT.search(line)
            self.virtual_count = int(count[1]) if count else 0
        elif label == "VF offset":
            self._virtual(line)

    def end(self) -> None:
        self._end_flags()
        if not self.dump:
            return
        dumped = decode(dwords(bytes(self.dump)))
        for name in Registers.__struct_fields__:
            if getattr(self.registers, name) in (None, False):
                setattr(self.registers, name, getattr(dumped, name))
        # a dump of the header alone is what -x prints, with or without privilege
        self.registers.denied = self.registers.denied and len(self.dump) <= 64
        found = self.found
        if found.class_code is None:
            found.class_code = dumped.class_code
        if dumped.vendor is not None:
            found.vendor, found.device = dumped.vendor, dumped.device

    # -- lines by their label ----------------------------------------------------------

    def driver(self, rest: str) -> None:
        self.found.driver = rest

    def verbose(self, _: str) -> None:
        self.found.verbose = True

    def node(self, rest: str) -> None:
        if rest.lstrip("-").isdigit():
            self.found.numa_node = int(rest)

    def group(self, rest: str) -> None:
        if rest.isdigit():
            self.found.iommu_group = int(rest)

    def status(self, rest: str) -> None:
        """Of the header ("Cap+ ..."), or of the power management capability ("D0 NoSoftRst+ ...")."""
        state = rest.split(" ", 1)[0]
        if state in ("D0", "D1", "D2", "D3"):
            self.found.power_state = state

    def buses(self, rest: str) -> None:
        match = _BUSES.search(rest)
        if match is not None:
            self.registers.buses = (int(match[1], 16), int(match[2], 16))

    def capability(self, rest: str) -> None:
        if rest.startswith("<access denied>"):
            self.registers.denied = True
        body = rest.partition("] ")[2]
        if body.startswith("Express "):
            self.registers.port_type = next((t for name, t in _PORTS if name in body), None)
        if rest.startswith("[") and len(rest.split(" ", 1)[0].strip("[]")) >= 3:
            self.registers.extended = True

    def device_capable(self, rest: str) -> None:
        payload = _PAYLOAD.search(rest)
        if payload is not None:
            self.registers.max_payload_supported = int(payload[1])

    def _control(self, payload: re.Match[str]) -> None:
        self.registers.max_payload = int(payload[1])
        self.registers.max_read_request = int(payload[2])

    def link_capable(self, rest: str) -> None:
        self.registers.max_gts, self.registers.max_width = _speed(rest), _width(rest)

    def link_state(self, rest: str) -> None:
        self.registers.current_gts, self.registers.current_width = _speed(rest), _width(rest)

    def link_control(self, rest: str) -> None:
        """ "ASPM Disabled; RCB 64 bytes" or "ASPM L0s L1 Enabled; ..."."""
        words = rest.partition(";")[0].split()
        if words[:1] == ["ASPM"]:
            substates = [n for n in self.registers.aspm or () if n.startswith("L1.")]
            self.registers.aspm = [w for w in words if w in ("L0s", "L1")]
            self.registers.aspm += substates if "L1" in self.registers.aspm else []

    def second_link_control(self, rest: str) -> None:
        if rest.startswith("Target Link"):
            self.registers.target_gts = _speed(rest)

    def substates(self, rest: str) -> None:
        if "L1" in (self.registers.aspm or ()):
            enabled = [n for n in ("L1.1", "L1.2") if f"ASPM_{n}+" in rest]
            self.registers.aspm = [*(self.registers.aspm or ()), *enabled]

    def _end_flags(self) -> None:
        if self.flags is None:
            return
        label, lines = self.flags
        self.flags = None
        text = " ".join(lines)
        registers = self.registers
        if label == "UESta":
            registers.sticky_uncorrectable = [aer.name(f) for f in _set_flags(text)]
        elif label == "CESta":
            registers.sticky_correctable = [aer.name(f) for f in _set_flags(text)]
        elif label == "ACSCap":
            registers.acs_capable = _set_flags(text)
        else:
            registers.acs_enabled = _set_flags(text)
        registers.extended = True

    def _virtual(self, line: str) -> None:
        """Where the virtual functions are: routing IDs at a stride (SR-IOV specification 1.1, 2.1.2)."""
        match = _STRIDE.search(line)
        if match is None or not self.virtual_count:
            return
        offset, stride = int(match[1]), int(match[2])
        domain, bus, rest = self.found.address.split(":")
        first = int(bus, 16) << 8 | int(rest[:2], 16) << 3 | int(rest[3])
        for index in range(min(self.virtual_count, 1 << 16)):
            number = first + offset + index * stride
            if number > 0xFFFF:
                break
            address = f"{domain}:{number >> 8:02x}:{number >> 3 & 0x1F:02x}.{number & 7}"
            self.found.virtual_functions.append(address)


def _flags(label: str) -> Callable[[_Reader, str], None]:
    def take(reader: _Reader, rest: str) -> None:
        reader.flags = (label, [rest])

    return take


_LINES: dict[str, Callable[[_Reader, str], None]] = {
    "Kernel driver in use": _Reader.driver,
    "Control": _Reader.verbose,
    "Flags": _Reader.verbose,
    "NUMA node": _Reader.node,
    "IOMMU group": _Reader.group,
    "Status": _Reader.status,
    "Bus": _Reader.buses,
    "Capabilities": _Reader.capability,
    "DevCap": _Reader.device_capable,
    "LnkCap": _Reader.link_capable,
    "LnkSta": _Reader.link_state,
    "LnkCtl": _Reader.link_control,
    "LnkCtl2": _Reader.second_link_control,
    "L1SubCtl1": _Reader.substates,
    "UESta": _flags("UESta"),
    "CESta": _flags("CESta"),
    "ACSCap": _flags("ACSCap"),
    "ACSCtl": _flags("ACSCtl"),
}


def _set_flags(text: str) -> list[str]:
    return [name for name, sign in _FLAG.findall(text) if sign == "+"]


def _speed(text: str) -> float | None:
    match = _SPEED.search(text)
    try:
        return float(match[1]) if match else None
    except ValueError:
        return None


def _width(text: str) -> int | None:
    match = _WIDTH.search(text)
    return int(match[1]) or None if match else None


# -- records ------------------------------------------------------------------------------

_QUOTED = re.compile(r'"([^"]*)"|(\S+)')
_KEYS = {"Class": 0, "Vendor": 1, "Device": 2}


def parse_records(text: str) -> list[Function]:
    """-mm (one line a function, in quotes) and -vmm ("Slot: ..." and so on, one a line)."""
    found: list[Function] = []
    current: Function | None = None
    for line in text.splitlines():
        label, sign, rest = line.partition(":")
        rest = rest.strip()
        if label == "Slot" and sign:
            current = Function(full_address(rest))
            found.append(current)
        elif current is not None and label in _KEYS and sign:
            _name(current, _KEYS[label], rest)
        elif current is not None and label == "Driver" and sign:
            current.driver = rest
        elif current is not None and label == "NUMANode" and rest.lstrip("-").isdigit():
            current.numa_node = int(rest)
        elif current is not None and label == "IOMMUGroup" and rest.isdigit():
            current.iommu_group = int(rest)
        elif '"' in line and re.match(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] ", line, re.ASCII):
            words = [a or b for a, b in _QUOTED.findall(line)]
            current = None
            function = Function(full_address(words[0]))
            for place, word in enumerate(words[1:4]):
                _name(function, place, word)
            found.append(function)
    return found


def _name(function: Function, place: int, text: str) -> None:
    """The class (0), vendor (1) or device (2), as a name, a number, or "name [number]"."""
    match = re.fullmatch(r"(?:(.*) )?\[?([0-9a-f]{4})\]?", text, re.ASCII)
    number = int(match[2], 16) if match else None
    name = match[1] if match else text
    if place == 0:
        number = number if number is not None else CLASSES.get(text)
        function.class_code = number << 8 if number is not None else None
    elif place == 1:
        function.vendor = number if number is not None else vendor_of(text)
        function.name = name or None
    else:
        function.device = number
        function.name = " ".join(p for p in (function.name, name) if p and p != "Device") or None
