"""PCI functions as pasted texts tell them: lspci in its forms, and the database of udev."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import ABSENT, NOT_CAPTURED, NOT_PROBED, Fact, gap, known
from hwtune.model.pci import Acs, PciDevice
from hwtune.probes import _pci_config
from hwtune.text import udev_pci
from hwtune.text.number import hexadecimal
from hwtune.text.pci_registers import ACS_BITS, LINKLESS, Registers
from hwtune.text.pci_sysfs import is_address, place

if TYPE_CHECKING:
    from hwtune.host.base import Document, Host
    from hwtune.text import lspci

_HOST_BRIDGE = 0x0600


def read(host: Host, devices: list[PciDevice], listed: Fact[bool]) -> tuple[Fact[bool], list[Fact[Acs]]]:
    """Fill what ``devices`` lack and add those that only a text has. Returns whether the list is
    whole, and the ACS controls that somebody pasted without their functions."""
    by_address = {device.address: device for device in devices}
    loose: list[Fact[Acs]] = []
    texts = (*host.documents("lspci -v"), *host.documents("lspci"), *host.documents("lspci -mm"))
    for document in texts:
        functions, enabled = _listing(document)
        _add(document.path, functions, by_address)
        loose += [known(Acs(list(ACS_BITS), names), document.path) for names in enabled]
        listed = _whole(listed, document, functions)
    for document in host.documents("udevadm info --export-db"):
        for path, said in udev_pci.records(document.text):
            _udev(path, said, document.path, by_address)
            listed = listed if listed.known else known(True, document.path)
    for device in list(by_address.values())[len(devices) :]:
        _unsaid(device)
    devices[:] = by_address.values()
    return listed, loose


def _listing(document: Document) -> tuple[list[lspci.Function], list[list[str]]]:
    from hwtune.text import lspci  # its patterns are not for a live machine

    if document.kind == "lspci -mm":
        return lspci.parse_records(document.text), []
    listing = lspci.parse(document.text)
    return listing.functions, listing.loose_acs


def _unsaid(device: PciDevice) -> None:
    """What a function that only a text tells of leaves open."""
    silent = gap(NOT_CAPTURED, f"a line on it in {device.source}")
    for struct in (device, device.link, device.aer):
        for name in struct.__struct_fields__:
            fact = getattr(struct, name)
            if isinstance(fact, Fact) and fact.gap == NOT_PROBED and not name.startswith("expected_"):
                setattr(struct, name, silent)


def _whole(listed: Fact[bool], document: Document, functions: list[lspci.Function]) -> Fact[bool]:
    """A listing that names the host bridge was not cut down to a few functions."""
    if not listed.known and any((f.class_code or 0) >> 8 == _HOST_BRIDGE for f in functions):
        return known(True, document.path)
    return listed


# -- lspci --------------------------------------------------------------------------------


def _add(source: str, functions: list[lspci.Function], by_address: dict[str, PciDevice]) -> None:
    added = []
    for function in functions:
        device = by_address.get(function.address)
        if device is None:
            device = by_address[function.address] = PciDevice(address=function.address, source=source)
            added.append((device, function))
        _fill(device, function, source)
    for function in functions:
        for address in function.virtual_functions:
            if address in by_address:
                by_address[address].physical_function = function.address
    _hang(added, functions)


def _fill(device: PciDevice, function: lspci.Function, source: str) -> None:
    facts = (
        ("class_code", function.class_code),
        ("vendor", function.vendor),
        ("device", function.device),
        ("name", function.name),
        ("driver", function.driver),
        ("numa_node", function.numa_node),
        ("iommu_group", function.iommu_group),
        ("power_state", function.power_state),
    )
    for field, value in facts:
        fact = getattr(device, field)
        if value is not None and not fact.known:
            setattr(device, field, known(value, source))
    if function.verbose and not device.driver.known:
        device.driver = gap(ABSENT, source, "no driver in use")
    _pci_config.apply(function.registers, device, source)


def _hang(added: list[tuple[PciDevice, lspci.Function]], functions: list[lspci.Function]) -> None:
    """Find the parents of functions that only the text has, by the bus numbers of its bridges.

    A function on a bus that no bridge leads to is on a root bus, if it is of a kind that can be
    there; else its bridge was left out of the text, and its place is not known.
    """
    bridges: dict[tuple[str, int], str] = {}
    for function in functions:
        if function.registers.buses is not None:
            domain, _ = _bus(function.address)
            bridges.setdefault((domain, function.registers.buses[0]), function.address)
    if not bridges:
        return
    roots: dict[str, str | None] = {}
    registers = {function.address: function.registers for function in functions}
    for device, _ in added:
        parent = bridges.get(_bus(device.address))
        device.parent = parent if parent != device.address else None
    for device, _ in added:
        device.root = _root(device.address, bridges, registers, roots)


def _bus(address: str) -> tuple[str, int]:
    domain, bus, _ = address.split(":")
    return domain, int(bus, 16)


def _root(
    address: str,
    bridges: dict[tuple[str, int], str],
    registers: dict[str, Registers],
    roots: dict[str, str | None],
) -> str | None:
    """The root bus above a function; None where the way up breaks off or leads in a circle."""
    way: list[str] = []
    current = address
    while current not in roots:
        if current in way:
            roots[current] = None
            break
        way.append(current)
        parent = bridges.get(_bus(current))
        if parent is None:
            kind = registers[current].port_type
            at_root = kind is None or kind in LINKLESS or kind == "root-port"
            domain, bus = _bus(current)
            roots[current] = f"pci{domain}:{bus:02x}" if at_root else None
            break
        current = parent
    found = roots[current]
    for passed in way:
        roots[passed] = found
    return found


# -- udev ---------------------------------------------------------------------------------


def _udev(path: str, said: dict[str, str], source: str, by_address: dict[str, PciDevice]) -> None:
    address = path.rsplit("/", 1)[-1]
    if not is_address(address):
        return
    device = by_address.get(address)
    if device is None:
        device = by_address[address] = PciDevice(address=address, source=source)
        device.parent, device.root = place(path)
    vendor, _, product = said.get("PCI_ID", "").partition(":")
    for field, digits in (("class_code", said.get("PCI_CLASS")), ("vendor", vendor), ("device", product)):
        if not getattr(device, field).known:
            setattr(device, field, _number(digits, source, getattr(device, field)))
    name = udev_pci.name(said)
    if name is not None and not device.name.known:
        device.name = known(name, source)
    if not device.driver.known:
        driver = said.get("DRIVER")
        device.driver = known(driver, source) if driver else gap(ABSENT, source, "no DRIVER= line")


def _number(digits: str | None, source: str, otherwise: Fact[int]) -> Fact[int]:
    try:
        return known(hexadecimal(digits), source) if digits else otherwise
    except ValueError:
        return otherwise
