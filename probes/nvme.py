"""NVMe controllers: what sysfs, the drives themselves, pasted texts and the kernel's log say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.model.storage import Nvme, NvmeController, NvmeEvent
from hwtune.probes import _kernel_log, _nvme_admin, _nvme_sysfs
from hwtune.text import nvme_dmesg

if TYPE_CHECKING:
    from hwtune.host.base import Host
    from hwtune.model.kernel import LogLine

PART = "nvme"

_CORE = "/sys/module/nvme_core/parameters"


def read(host: Host) -> Nvme:
    controllers, listed = _nvme_sysfs.read(host)
    for controller in controllers:
        _nvme_admin.ask(host, controller)
    if host.kind != "live":
        # Its parsers are not for the way that every run goes.
        from hwtune.probes import _nvme_documents

        _nvme_documents.add(host, controllers)
    if host.measures("nvme.latency-jitter"):
        from hwtune.probes import _nvme_latency

        _nvme_latency.measure(host, controllers)
    lines, log_known = _kernel_log.lines(host)
    return Nvme(
        controllers=controllers,
        listed=listed,
        default_max_latency_us=host.integer(f"{_CORE}/default_ps_max_latency_us"),
        io_timeout_s=host.integer(f"{_CORE}/io_timeout"),
        poll_queues=host.integer("/sys/module/nvme/parameters/poll_queues"),
        events=_events(lines, controllers),
        log_known=log_known.map(lambda _: _reaches_back(lines)),
    )


def _reaches_back(lines: list[LogLine]) -> bool:
    """Whether it is the machine's own log, or one that begins with the boot; of a pasted part one
    cannot say what it left out."""
    return any(line.source == "/dev/kmsg" or line.text.startswith("Linux version ") for line in lines)


def _events(lines: list[LogLine], controllers: list[NvmeController]) -> list[NvmeEvent]:
    """Faults that the log tells of, equal ones counted, in the order of their first lines."""
    by_disk = _owners(controllers)
    found: dict[tuple[str, str], NvmeEvent] = {}
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for event in nvme_dmesg.find(line.text for line in lines):
        line = lines[event.line]
        name = by_disk.get(event.device) or nvme_dmesg.controller_of(event.device) or event.device
        key = (name, event.kind)
        entry = found.get(key)
        if entry is None:
            entry = found[key] = NvmeEvent(
                line.source,
                line.text[:300].strip(),
                event.kind,
                name,
                detail=event.detail,
                first_seconds=line.seconds,
            )
        if line.seconds is not None:
            entry.last_seconds = line.seconds
        # One fault may be told twice, by the driver and by the block layer: each tells all of them.
        sort = event.place.partition(" ")[0]
        count = counts.setdefault(key, {})
        if sort not in count and event.kind == "removed" and event.detail not in entry.detail:
            entry.detail += f"; {event.detail}"
        count[sort] = count.get(sort, 0) + 1
        entry.count = max(count.values())
    return list(found.values())


def _owners(controllers: list[NvmeController]) -> dict[str, str]:
    """The controller of a disk, a path or a PCI function, where the machine itself tells."""
    owners: dict[str, str] = {}
    for controller in controllers:
        for disk in (*controller.paths, *controller.namespaces):
            owners.setdefault(disk, controller.name)
        if controller.pci_address.known:
            owners.setdefault(controller.pci_address.get(), controller.name)
    return owners
