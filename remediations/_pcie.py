"""What the rows about PCIe share: endpoints, their way up to the processor, and its bandwidth."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hwtune.fact import NOT_PROBED
from hwtune.model.pci import Link

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hwtune.diagnosis import Verdict
    from hwtune.fact import Fact
    from hwtune.model import Machine
    from hwtune.model.gpu import Gpu
    from hwtune.model.pci import PciDevice

NOUNS = {
    "gpu": "GPU",
    "accelerator": "accelerator",
    "nvme": "NVMe drive",
    "nic": "NIC",
    "infiniband": "InfiniBand card",
}
# What trains its link down while it has nothing to do (nvidia-smi(1), pcie.link.gen.current).
RESTING = ("gpu", "accelerator")

RESEAT = "Reseat the card, then check riser, cable and lanes, and how BIOS setup splits the slot."
ASK = "Ask the provider for an instance type with the whole link: a guest cannot change it."
RELOAD = "run hwtune doctor again while the GPU works"
NO_PORT = "the port above it is not known, and so what the link could be"

# Share of the bandwidth below which a limit is grave, whatever its reason.
GRAVE = 0.25

# Encoding of a lane, data bits over bits (PCIE_SPEED2MBS_ENC, drivers/pci/pci.h).
_OLD_ENCODING = 8 / 10
_ENCODING = 128 / 130


def bandwidth(gts: float, width: int) -> float:
    """Gb/s in one direction, before packet headers, as the kernel reckons."""
    if gts <= 5:
        return gts * width * _OLD_ENCODING
    return gts * width * (_ENCODING if gts <= 32 else 1)


class Endpoint(NamedTuple):
    """A device on whose link a hot path may wait. ``device`` is None where only the GPU's driver
    told of it, ``port`` where the port above it is not known."""

    address: str
    role: str
    link: Link
    device: PciDevice | None
    gpu: Gpu | None
    port: PciDevice | None

    @property
    def subject(self) -> str:
        if self.address:
            return f"pci:{self.address}"
        index = self.gpu.index if self.gpu is not None else None
        return f"gpu:{index}" if index is not None else "gpu:?"

    @property
    def noun(self) -> str:
        """What it is, with its name where that is known."""
        name = self.device.name.value if self.device is not None else None
        name = name or (self.gpu.name.value if self.gpu is not None else None)
        return f"{NOUNS[self.role]} ({name})" if name else NOUNS[self.role]

    @property
    def idle(self) -> bool | None:
        """Whether it may have trained its link down for want of work; None: not known."""
        if self.role not in RESTING:
            return False
        return self.gpu.idle if self.gpu is not None else None

    @property
    def alone(self) -> bool:
        """Its place in the tree is not known, as where somebody pasted it without the rest."""
        return self.device is None or self.device.root is None

    @property
    def linkless(self) -> bool:
        """It sits in the processor or on a conventional bus."""
        return self.link.max_gts.absent or self.link.current_width.absent


def endpoints(machine: Machine) -> list[Endpoint]:
    """GPUs, drives and network cards, one a slot: virtual functions and the further functions of a
    card have the link of its first."""
    by_address = machine.pci.by_address()
    gpus = {gpu.address: gpu for gpu in machine.gpu.gpus if gpu.address}
    found = []
    for device in machine.pci.devices:
        if device.role not in NOUNS or device.physical_function is not None:
            continue
        first = by_address.get(f"{device.address[:-1]}0")
        if first is not None and first is not device and first.role in NOUNS:
            continue
        gpu = gpus.get(device.address)
        link = device.link if gpu is None else _either(device.link, gpu.link)
        port = by_address.get(device.parent or "")
        found.append(Endpoint(device.address, device.role, link, device, gpu, port))
    for gpu in machine.gpu.gpus:
        if gpu.address is None or gpu.address not in by_address:
            found.append(Endpoint(gpu.address or "", "gpu", gpu.link, None, gpu, None))
    return found


def _either(link: Link, other: Link) -> Link:
    names = (
        "current_gts",
        "current_width",
        "max_gts",
        "max_width",
        "expected_gts",
        "expected_width",
    )
    return msgspec.structs.replace(
        link, **{name: getattr(link, name).or_else(getattr(other, name)) for name in names}
    )


def in_guest(machine: Machine, end: Endpoint | None = None) -> bool:
    """Whether the hypervisor decides what the device's link looks like."""
    if machine.virtualization.is_guest:
        return True
    said = end.gpu.virtualization.value if end is not None and end.gpu is not None else None
    return said is not None and said.lower().replace("_", "-") in ("pass-through", "passthrough", "vgpu")


def way_up(address: str, by_address: dict[str, PciDevice]) -> list[PciDevice]:
    """The bridges above a device, the nearest first."""
    found: list[PciDevice] = []
    seen = {address}
    device = by_address.get(address)
    while device is not None and device.parent is not None and device.parent not in seen:
        seen.add(device.parent)
        device = by_address.get(device.parent)
        if device is not None:
            found.append(device)
    return found


def uplinks(bridges: Iterable[PciDevice]) -> list[PciDevice]:
    """Of the bridges on a way up, those whose own link leads up: each switch's upstream port.

    Root ports and downstream ports are the far ends of links that the device below them tells of.
    """
    found = []
    chain = list(bridges)
    for place, bridge in enumerate(reversed(chain)):
        # ports that face down and up take turns from the root port on
        up = bridge.port_type.get() == "upstream" if bridge.port_type.known else place % 2 == 1
        if up:
            found.append(bridge)
    return list(reversed(found))


def current(link: Link) -> float | None:
    """Gb/s of a link as it runs."""
    return _product(link.current_gts, link.current_width)


def capable(link: Link) -> float | None:
    """Gb/s of what the device alone could do."""
    return _product(link.max_gts, link.max_width)


def expected(link: Link) -> float | None:
    """Gb/s of what both ends could do."""
    return _product(link.expected_gts, link.expected_width)


def _product(gts: Fact[float], width: Fact[int]) -> float | None:
    return bandwidth(gts.get(), width.get()) if gts.known and width.known else None


def show(gts: float | None, width: int | None) -> str:
    """ "16 GT/s x4", as far as it is known."""
    parts = (f"{gts:g} GT/s" if gts is not None else "", f"x{width}" if width is not None else "")
    return " ".join(part for part in parts if part)


def show_link(link: Link) -> str:
    return show(link.current_gts.value, link.current_width.value)


def listed(names: list[str]) -> str:
    """ "a", "a and b", "a, b and 3 more"."""
    if len(names) <= 2:
        return " and ".join(names)
    return f"{names[0]}, {names[1]} and {len(names) - 2} more"


def gts(speed: float) -> str:
    return f"{speed:g} GT/s"


def no_devices(verdict: Verdict, machine: Machine) -> Verdict:
    """The verdict of a row that found no device to judge."""
    listed = machine.pci.listed
    unread = [device.class_code for device in machine.pci.devices if device.class_code.unknown]
    if listed.known and unread:
        return verdict.unknown("kernel", *unread[:1])
    if listed.known:
        return verdict.not_applicable("there is no GPU, NVMe drive or network card on PCI Express")
    if listed.absent:
        return verdict.not_applicable("this machine has no PCI")
    return verdict.unknown("kernel", listed)


def first_gap(*facts: Fact[float] | Fact[int]) -> Fact[float] | Fact[int] | str:
    """The first fact that is unknown for a reason that a reader can act on."""
    for fact in facts:
        if fact.gap is not None and fact.gap != NOT_PROBED:
            return fact
    return NO_PORT
