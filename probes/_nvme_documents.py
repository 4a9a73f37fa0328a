"""Drives in pasted texts: nvme id-ctrl, nvme smart-log, smartctl, and the database of udev."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hwtune.fact import ABSENT, UNREADABLE, Fact, gap, known
from hwtune.probes._nvme_admin import better, blank, controller_facts, smart_facts
from hwtune.probes._nvme_sysfs import number
from hwtune.text import (
    nvme_id_ctrl,
    nvme_identify,
    nvme_log,
    smart_log,
    smartctl,
    smartctl_json,
    udev_storage,
)
from hwtune.text.nvme_dmesg import controller_of
from hwtune.text.pci_sysfs import is_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwtune.host.base import Document, Host
    from hwtune.model.storage import NvmeController
    from hwtune.text.smartctl import Report


def add(host: Host, controllers: list[NvmeController]) -> None:
    """Fill what the live tree lacks, and add the drives that only texts tell of."""
    drives = _Drives(controllers)
    for document in host.documents("udevadm info --export-db"):
        _udev(drives, document)
    readers: tuple[tuple[str, Callable[[str], Report]], ...] = (
        ("nvme id-ctrl", _of_identify),
        ("nvme smart-log", _of_smart_log),
        ("smartctl -a", smartctl.parse),
        ("smartctl --json", smartctl_json.parse),
    )
    for kind, parse in readers:
        for document in host.documents(kind):
            try:
                report = parse(document.text)
            except ValueError:
                continue  # of a drive that is no NVMe, or cut off: it tells nothing
            drives.take(document, report)
    controllers.sort(key=lambda controller: number(controller.name))


def _of_identify(text: str) -> Report:
    return smartctl.Report(nvme_id_ctrl.parse(text), nvme_log.SmartLog())


def _of_smart_log(text: str) -> Report:
    return smartctl.Report(nvme_identify.Controller(), smart_log.parse(text), smart_log.device(text))


class _Drives:
    """The controllers so far, found by the name or the serial number that a text gives."""

    def __init__(self, controllers: list[NvmeController]) -> None:
        self.controllers = controllers
        self._named = {controller.name: controller for controller in controllers}
        # Which texts have told of which part of a drive.
        self._told: set[tuple[str, str]] = set()

    def named(self, name: str) -> NvmeController:
        controller = self._named.get(name)
        if controller is None:
            controller = self._named[name] = blank(name)
            self.controllers.append(controller)
        return controller

    def take(self, document: Document, report: Report) -> None:
        part = "smart" if report.smart != nvme_log.SmartLog() or report.failed is not None else "identify"
        controller = self._find(document, report, part)
        self._told.add((controller.name, part))
        source = document.path
        if report.controller != nvme_identify.Controller():
            controller_facts(controller, known(report.controller, source))
        if part == "smart":
            _take_smart(controller, report, source)

    def _find(self, document: Document, report: Report, part: str) -> NvmeController:
        """The drive that a text is about. Two texts of one kind are not of one drive, unless the
        serial number says so; a drive without a name is called by its text's file."""
        serial = report.controller.serial
        name = _name(document, report)
        same = self._named.get(name) if name else None
        if same is not None and (name, part) not in self._told and not _differs(same, serial):
            return same
        if serial and not name:
            for controller in self.controllers:
                if controller.serial.value == serial and (controller.name, part) not in self._told:
                    return controller
        return self.named(self._free(name if name and same is None else _stem(document.path)))

    def _free(self, name: str) -> str:
        if name not in self._named:
            return name
        more = 2
        while f"{name}-{more}" in self._named:
            more += 1
        return f"{name}-{more}"


def _differs(controller: NvmeController, serial: str | None) -> bool:
    return bool(serial) and controller.serial.known and controller.serial.get() != serial


_ARGUMENT = re.compile(r"(?:/dev/)?(nvme\d{1,5}(?:n\d{1,6})?)")
_IN_FILE = re.compile(r"nvme\d{1,5}(?:n\d{1,6})?(?![a-z0-9])")


def _name(document: Document, report: Report) -> str | None:
    """The controller's name by the text itself, by the command above it, or by the file's name."""
    candidates = [report.device or "", *document.command.split()]
    for candidate in candidates:
        match = _ARGUMENT.fullmatch(candidate)
        if match is not None:
            return controller_of(match[1])
    match = _IN_FILE.search(document.path.rpartition("/")[2].partition(":")[0])
    return controller_of(match[0]) if match is not None else None


def _stem(path: str) -> str:
    """ "smartctl-a" of "logs/smartctl-a.txt", "all:40" of "all.txt:40"."""
    name, sign, line = path.rpartition("/")[2].partition(":")
    stem = name.rpartition(".")[0] or name
    return stem + sign + line


def _take_smart(controller: NvmeController, report: Report, source: str) -> None:
    if report.smart == nvme_log.SmartLog():
        status = nvme_log.status_code(report.failed or 0)
        said: Fact[nvme_log.SmartLog] = gap(UNREADABLE, source, nvme_log.status_name(status))
        if not controller.smart.critical_warning.known:
            controller.smart.failed_status = status
    else:
        said = known(report.smart, source)
    told = smart_facts(said)
    for field in nvme_log.SmartLog._fields:
        current: Fact[Any] = getattr(controller.smart, field)
        setattr(controller.smart, field, better(current, getattr(told, field)))


# -- udev ---------------------------------------------------------------------------------


def _udev(drives: _Drives, document: Document) -> None:
    """Controllers with their PCI functions, and the model, serial number and firmware of their disks."""
    disks: list[tuple[str, dict[str, str]]] = []
    for path, said in udev_storage.records(document.text):
        name = path.rpartition("/")[2]
        if said["SUBSYSTEM"] == "nvme" and controller_of(name) == name:
            controller = drives.named(name)
            _fill(controller, "pci_address", _function(path, document.path))
            if "NVME_TRTYPE" in said:
                _fill(controller, "transport", known(said["NVME_TRTYPE"], document.path))
        elif name.startswith("nvme"):
            disks.append((path, said))
    for path, said in disks:
        _udev_disk(drives, path, said, document.path)


def _udev_disk(drives: _Drives, path: str, said: dict[str, str], source: str) -> None:
    folder, _, disk = path.rpartition("/")
    name = controller_of(disk)
    if name is None:
        return
    controller = drives.named(name)
    head = re.sub(r"c\d+", "", disk)
    if head not in controller.namespaces:
        controller.namespaces.append(head)
    if head != disk and disk not in controller.paths:
        controller.paths.append(disk)
    if folder.endswith("/block"):  # kernels before 4.4 have no controller above the disk
        _fill(controller, "pci_address", _function(path, source))
    for field, key in (("model", "ID_MODEL"), ("serial", "ID_SERIAL_SHORT"), ("firmware", "ID_REVISION")):
        if said.get(key, "").strip():
            _fill(controller, field, known(said[key].strip(), source))


def _function(path: str, source: str) -> Fact[str]:
    found = [part for part in path.split("/") if is_address(part)]
    return known(found[-1], source) if found else gap(ABSENT, source, "no PCI function above it")


def _fill(controller: NvmeController, field: str, fact: Fact[str]) -> None:
    setattr(controller, field, better(getattr(controller, field), fact))
