"""The NVIDIA driver's complaints in the kernel log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.model.gpu import GpuEvent, GpuHost
from hwtune.probes import _kernel_log
from hwtune.text import xid

if TYPE_CHECKING:
    from hwtune.host.base import Host


def read(host: Host, gpu_host: GpuHost) -> None:
    """Like events are counted; each keeps its first line and its place in the order."""
    lines, gpu_host.log_known = _kernel_log.lines(host)
    sources: dict[str, list[str]] = {}
    for line in lines:
        sources.setdefault(line.source, []).append(line.text)
    events: dict[tuple[object, ...], GpuEvent] = {}
    for source, texts in sources.items():
        for found in xid.parse(texts):
            key = (found.kind, found.address, found.number, found.caused_by, source)
            event = events.get(key)
            if event is not None:
                event.count += 1
                continue
            events[key] = GpuEvent(
                source=source,
                line=found.line,
                kind=found.kind,
                xid=found.number,
                address=found.address or None,
                caused_by=found.caused_by,
                process=found.process,
                detail=found.detail,
            )
    gpu_host.events = list(events.values())
