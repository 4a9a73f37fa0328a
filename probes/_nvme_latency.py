"""How evenly drives answer: measured where the user asked for it (``host.active``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hwtune.fact import UNREADABLE, Fact, gap, known
from hwtune.model.storage import DriveLatency

if TYPE_CHECKING:
    from hwtune.host.base import Host
    from hwtune.model.storage import NvmeController


def measure(host: Host, controllers: list[NvmeController]) -> None:
    """All of this machine's own drives, side by side where there are CPUs enough."""
    disks = {c.name: c.namespaces[0] for c in controllers if c.namespaces and c.transport.value == "pcie"}
    if not disks:
        return
    said = host.ask("drive_latency", *disks.values())
    for controller in controllers:
        if controller.name in disks:
            controller.latency = _of(said, disks[controller.name])


def _of(said: Fact[Any], disk: str) -> Fact[DriveLatency]:
    source = f"reads of /dev/{disk}"
    if said.gap is not None:
        return Fact(None, source, said.gap, said.detail)
    answer = said.value.get(disk) if isinstance(said.value, dict) else None
    if not isinstance(answer, dict):
        return gap(UNREADABLE, source, "no answer")
    if "error" in answer:
        return gap(str(answer.get("gap", UNREADABLE)), source, str(answer["error"]).rstrip("."))
    try:
        return known(msgspec.convert(answer, DriveLatency), source)
    except msgspec.ValidationError as error:
        return gap(UNREADABLE, source, str(error))
