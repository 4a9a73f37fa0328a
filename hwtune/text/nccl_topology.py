"""The network ports of a topology that NCCL or RCCL wrote (NCCL_TOPO_DUMP_FILE)."""

from __future__ import annotations

from typing import NamedTuple

from hwtune.text.number import finite
from hwtune.text.pci_address import normal

_DEEPEST = 64


class Port(NamedTuple):
    name: str  # of the RDMA device, or of the interface where NCCL uses sockets
    port: int
    speed_mbps: int
    address: str | None  # of the PCI function, the first one of its card
    gts: float | None  # of the card's link
    width: int | None
    node: int | None


def parse(text: str) -> list[Port]:
    """Raises ``ValueError`` for what is no such XML, or carries declarations of its own. What was
    cut off tells what it holds."""
    from xml.parsers import expat

    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = reader.doctype
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    try:
        # a fragment may have several roots
        parser.Parse(
            b"<topology>" + _without_declaration(text).encode("utf-8", "replace") + b"</topology>", True
        )
    except expat.ExpatError as error:
        if not reader.ports:
            raise ValueError(f"not a topology of NCCL ({error})") from None
    return reader.ports


def _without_declaration(text: str) -> str:
    text = text.lstrip()
    return text.partition("?>")[2] if text.startswith("<?xml") else text


class _Reader:
    def __init__(self) -> None:
        self.ports: list[Port] = []
        self._path: list[tuple[str, dict[str, str]]] = []

    def doctype(self, *details: object) -> None:
        raise ValueError("it declares things of its own")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._path) >= _DEEPEST:
            raise ValueError("nested too deep")
        self._path.append((name, attributes))
        if name == "net":
            self._net(attributes)

    def end(self, name: str) -> None:
        self._path.pop()

    def _net(self, values: dict[str, str]) -> None:
        speed, port = values.get("speed", ""), values.get("port", "1")
        if not (speed.isdecimal() and port.isdecimal() and len(speed) < 10 and len(port) < 4):
            return
        card = next((a for n, a in reversed(self._path) if n == "pci"), {})
        node = next((a.get("numaid", "") for n, a in self._path if n == "cpu"), "")
        self.ports.append(
            Port(
                values.get("name", "")[:64],
                int(port),
                int(speed),
                normal(card.get("busid", "")),
                _gts(card.get("link_speed", "")),
                int(width) if (width := card.get("link_width", "")).isdecimal() and len(width) < 3 else None,
                int(node) if node.isdecimal() and len(node) < 5 else None,
            )
        )


def _gts(text: str) -> float | None:
    try:
        return finite(text.partition(" ")[0])
    except ValueError:
        return None
