"""Which port is at the other end of a link, and so what the link should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from hwtune.fact import Fact, known

if TYPE_CHECKING:
    from hwtune.model.pci import PciDevice

N = TypeVar("N", int, float)

_FACING_DOWN = ("root-port", "downstream")


def expect(devices: list[PciDevice]) -> None:
    """Set ``link.expected_*``: the lesser of what both ends of the link can do.

    A device's link leads to the port above it, but that of a root port or of a switch's
    downstream port leads to the device below. Where the other end is not known (not captured, or
    an empty slot), what the device itself can do is no promise, and nothing is expected.
    """
    by_address = {device.address: device for device in devices}
    below: dict[str, PciDevice] = {}
    for device in devices:
        if device.parent is not None:
            below.setdefault(device.parent, device)
    facing: dict[str, bool] = {}
    for device in devices:
        if faces_down(device, by_address, facing):
            other = below.get(device.address)
        else:
            other = by_address.get(device.parent or "")
        if other is None:
            continue
        link, end = device.link, other.link
        link.expected_gts = _lesser(link.max_gts, end.max_gts)
        link.expected_width = _lesser(link.max_width, end.max_width)


def faces_down(device: PciDevice, by_address: dict[str, PciDevice], facing: dict[str, bool]) -> bool:
    """Whether a bridge's own link is the one below it: by its port type, or else by its place, as
    ports that face down and up take turns from the root port on. ``facing`` remembers."""
    chain = []
    current: PciDevice | None = device
    while current is not None and current.address not in facing:
        chain.append(current)
        facing[current.address] = False  # ends a loop of parents that a bad capture may hold
        current = by_address.get(current.parent or "")
    for bridge in reversed(chain):
        above = by_address.get(bridge.parent or "")
        if not bridge.is_bridge:
            down = False
        elif bridge.port_type.known:
            down = bridge.port_type.get() in _FACING_DOWN
        else:
            down = above is None or not facing[above.address]
        facing[bridge.address] = down
    return facing[device.address]


def _lesser(own: Fact[N], other: Fact[N]) -> Fact[N]:
    if not own.known:
        return own
    if not other.known:
        return other
    source = own.source if own.source == other.source else f"{own.source}, {other.source}"
    return known(min(own.get(), other.get()), source)
