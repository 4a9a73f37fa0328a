"""Registers of PCI functions: from config space, or from what somebody pasted, into the model.

Config space beyond the first 64 bytes needs CAP_SYS_ADMIN, each four bytes are a question to the
device, and a question wakes a suspended one: only functions whose registers are judged are asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from hwtune.fact import ABSENT, DENIED, UNREADABLE, Fact, gap, known
from hwtune.model.pci import Acs, PciDevice
from hwtune.probes._pci_sysfs import asleep, asleep_gap
from hwtune.text.pci_config import decode, dwords
from hwtune.text.pci_registers import LINKLESS, Registers

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwtune.host.base import Host

T = TypeVar("T")

_ASKED = ("bridge", "gpu", "nvme", "nic", "infiniband", "accelerator")


def read(host: Host, devices: list[PciDevice]) -> None:
    """Ask the functions in question, until it shows that the privilege to do so is missing."""
    denied = False
    for device in devices:
        if device.role not in _ASKED or device.physical_function is not None or device.link.max_gts.absent:
            continue
        path = f"{device.source}/config"
        if asleep(device):
            _fill_gaps(device, asleep_gap(device))
        elif denied:
            _fill_gaps(device, _denied(path))
        else:
            denied = _read(host, device, path) and host.kind == "live"


def _read(host: Host, device: PciDevice, path: str) -> bool:
    """Whether the capabilities were denied."""
    live = host.kind == "live"
    first = host.part(path, 0, 4) if live else host.read_bytes(path)
    if not first.known:
        _fill_gaps(device, first)
        return False
    found = decode(_asking(host, path) if live else dwords(first.get()))
    apply(found, device, path)
    return found.denied


def _asking(host: Host, path: str) -> Callable[[int], int | None]:
    """Reads four bytes of a live file at a time."""

    def ask(offset: int) -> int | None:
        piece = host.part(path, offset, 4).value
        return int.from_bytes(piece, "little") if piece is not None and len(piece) == 4 else None

    return ask


def apply(found: Registers, device: PciDevice, source: str) -> None:
    """Fill what the device's facts lack from registers that were read from ``source``."""
    if found.lost:
        _fill_gaps(device, gap(UNREADABLE, source, "all ones: the device does not answer"))
        return
    link, aer = device.link, device.aer
    device.port_type = _fill(device.port_type, found.port_type, source)
    if found.port_type in LINKLESS:
        none = gap(ABSENT, source, f"{found.port_type}: it has no link of its own")
        for name in ("max_gts", "max_width", "current_gts", "current_width"):
            if not getattr(link, name).known:
                setattr(link, name, none)
    link.max_gts = _fill(link.max_gts, found.max_gts, source)
    link.max_width = _fill(link.max_width, found.max_width, source)
    link.current_gts = _fill(link.current_gts, found.current_gts, source)
    link.current_width = _fill(link.current_width, found.current_width, source)
    link.target_gts = _fill(link.target_gts, found.target_gts, source)
    link.aspm = _fill(link.aspm, found.aspm, source)
    device.max_payload = _fill(device.max_payload, found.max_payload, source)
    device.max_payload_supported = _fill(device.max_payload_supported, found.max_payload_supported, source)
    device.max_read_request = _fill(device.max_read_request, found.max_read_request, source)
    aer.sticky_correctable = _fill(aer.sticky_correctable, found.sticky_correctable, source)
    aer.sticky_uncorrectable = _fill(aer.sticky_uncorrectable, found.sticky_uncorrectable, source)
    if found.acs_enabled is not None and not device.acs.known:
        device.acs = known(Acs(found.acs_capable or [], found.acs_enabled), source)
    if found.denied:
        _fill_gaps(device, _denied(source))
    elif found.port_type == "conventional":
        _fill_gaps(device, gap(ABSENT, source, "no PCI Express capability"))
    elif found.extended:
        none = gap(ABSENT, source, "no such capability")
        device.acs = device.acs.or_else(none)
        aer.sticky_correctable = aer.sticky_correctable.or_else(none)
        aer.sticky_uncorrectable = aer.sticky_uncorrectable.or_else(none)


def _fill(fact: Fact[T], value: T | None, source: str) -> Fact[T]:
    return fact if fact.known or value is None else known(value, source)


def _denied(source: str) -> Fact[Any]:
    return gap(DENIED, source, "beyond its first 64 bytes")


def _fill_gaps(device: PciDevice, why: Fact[Any]) -> None:
    """Say why what only registers tell is not known."""
    why = Fact(None, why.source, why.gap, why.detail)
    for name in ("port_type", "max_payload", "max_payload_supported", "max_read_request", "acs"):
        if not getattr(device, name).known:
            setattr(device, name, why)
    if not device.link.target_gts.known:
        device.link.target_gts = why
    if not device.link.aspm.known and why.gap != ABSENT:
        # that the kernel has no switch for it does not say that the firmware left it off
        device.link.aspm = why
    for name in ("sticky_correctable", "sticky_uncorrectable"):
        if not getattr(device.aer, name).known:
            setattr(device.aer, name, why)
