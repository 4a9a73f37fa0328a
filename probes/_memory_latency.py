"""How far each node's memory is: measured where the user asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hwtune.fact import UNREADABLE, Fact, gap, known
from hwtune.model.numa import MemoryMeasured

if TYPE_CHECKING:
    from hwtune.host.base import Host


def measure(host: Host) -> Fact[MemoryMeasured]:
    said = host.ask("memory_latency")
    if said.gap is not None:
        return Fact(None, said.source, said.gap, said.detail)
    source = "loads of each node's memory"
    try:
        return known(msgspec.convert(said.value, MemoryMeasured), source)
    except msgspec.ValidationError as error:
        return gap(UNREADABLE, source, str(error))
