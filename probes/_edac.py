"""Memory errors: the counts of EDAC drivers, and what the kernel log tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import Fact, known
from hwtune.model.memory import EdacController, MemoryFault
from hwtune.probes import _kernel_log
from hwtune.text import memory_errors

if TYPE_CHECKING:
    from hwtune.host.base import Host
    from hwtune.model.kernel import LogLine
    from hwtune.text import edac_util

_ROOT = "/sys/devices/system/edac/mc"


def controllers(host: Host) -> tuple[list[EdacController], Fact[bool]]:
    """Memory controllers by name (Documentation/ABI/testing/sysfs-devices-edac), and whether there
    is EDAC at all. [] with True: the core is there, and no driver of a memory controller."""
    names = host.names(_ROOT)
    if not names.known:
        pasted = _pasted(host)
        if pasted is not None:
            return pasted
        return [], names.map(lambda _: True)
    numbers = sorted(int(name[2:]) for name in names.get() if name.startswith("mc") and name[2:].isdecimal())
    return [_controller(host, f"mc{number}") for number in numbers], Fact(True, _ROOT, None)


def _pasted(host: Host) -> tuple[list[EdacController], Fact[bool]] | None:
    """Controllers as ``edac-util -v`` shows them."""
    for document in host.documents("edac-util"):
        from hwtune.text import edac_util

        try:
            counts = edac_util.parse(document.text)
        except ValueError:
            continue
        of: dict[str, list[edac_util.Count]] = {}
        for count in counts:
            of.setdefault(count.controller, []).append(count)
        found = [_of_counts(name, own, document.path) for name, own in of.items()]
        return found, known(True, document.path)
    return None


def _of_counts(name: str, counts: list[edac_util.Count], source: str) -> EdacController:
    controller = EdacController(
        name,
        corrected=known(sum(c.errors for c in counts if c.corrected), source),
        uncorrected=known(sum(c.errors for c in counts if not c.corrected), source),
    )
    for count in counts:
        if count.where:
            _add(
                controller.dimms, count.where, *((count.errors, 0) if count.corrected else (0, count.errors))
            )
    return controller


def _controller(host: Host, name: str) -> EdacController:
    path = f"{_ROOT}/{name}"
    controller = EdacController(
        name,
        corrected=host.integer(f"{path}/ce_count"),
        uncorrected=host.integer(f"{path}/ue_count"),
        seconds=host.integer(f"{path}/seconds_since_reset"),
    )
    # Which DIMM matters once there is an error to be blamed on one.
    if any(fact.known and fact.get() > 0 for fact in (controller.corrected, controller.uncorrected)):
        controller.dimms = _dimms(host, path)
    return controller


def _dimms(host: Host, path: str) -> dict[str, tuple[int, int]]:
    """Label (or place) -> counts. New kernels keep them per DIMM or rank; the old interface per
    chip-select row and channel, uncorrected ones per row."""
    names = host.names(path)
    if not names.known:
        return {}
    found: dict[str, tuple[int, int]] = {}
    for name in names.get():
        if name.startswith(("dimm", "rank")):
            label = _label(host, f"{path}/{name}/dimm_label") or name
            corrected = _count(host, f"{path}/{name}/dimm_ce_count")
            uncorrected = _count(host, f"{path}/{name}/dimm_ue_count")
            _add(found, label, corrected, uncorrected)
    if found:
        return found
    for row in names.get():
        if row.startswith("csrow"):
            _add_row(host, found, path, row)
    return found


def _add_row(host: Host, found: dict[str, tuple[int, int]], path: str, row: str) -> None:
    files = host.names(f"{path}/{row}")
    names = files.get() if files.known else []
    for channel in (
        n.removesuffix("_ce_count") for n in names if n.startswith("ch") and n.endswith("_ce_count")
    ):
        label = _label(host, f"{path}/{row}/{channel}_dimm_label") or f"{row} {channel}"
        _add(found, label, _count(host, f"{path}/{row}/{channel}_ce_count"), 0)
    _add(found, row, 0, _count(host, f"{path}/{row}/ue_count"))


def _add(found: dict[str, tuple[int, int]], label: str, corrected: int, uncorrected: int) -> None:
    if corrected or uncorrected:
        before = found.get(label, (0, 0))
        found[label] = (before[0] + corrected, before[1] + uncorrected)


def _count(host: Host, path: str) -> int:
    # A DIMM's count that cannot be read says nothing; the controller's own is judged anyway.
    fact = host.integer(path)
    return fact.get() if fact.known else 0


def _label(host: Host, path: str) -> str:
    fact = host.text(path)
    return fact.get()[:80] if fact.known else ""


def logged(host: Host) -> tuple[list[MemoryFault], Fact[bool]]:
    """The log's memory errors, one entry a place, and whether there was a log to search."""
    lines, readable = _kernel_log.lines(host)
    faults: dict[tuple[str, str, bool], MemoryFault] = {}
    for fault in memory_errors.find([line.text for line in lines]):
        key = (fault.controller, fault.where, fault.corrected)
        entry = faults.get(key)
        if entry is None:
            entry = faults[key] = _entry(lines[fault.line], fault)
        entry.count += fault.errors
        entry.overflow = entry.overflow or fault.overflow
        if fault.page:
            entry.pages[fault.page] = entry.pages.get(fault.page, 0) + fault.errors
    return list(faults.values()), readable


def _entry(line: LogLine, fault: memory_errors.Fault) -> MemoryFault:
    return MemoryFault(
        line.source,
        line.text[:300],
        fault.corrected,
        fault.where,
        count=0,
        what=fault.what,
        controller=fault.controller.lower(),
        seconds=line.seconds,
    )
