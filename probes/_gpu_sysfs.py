"""GPUs as the kernel lists them: PCI functions, and what the NVIDIA module tells in /proc."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hwtune.fact import DENIED, INVALID, TOO_LARGE, UNREADABLE, known
from hwtune.model.gpu import Gpu, GpuHost
from hwtune.text.cpulist import parse_list
from hwtune.text.number import hexadecimal
from hwtune.text.pci_address import normal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hwtune.host.base import Host
    from hwtune.text.lspci import Function

_DEVICES = "/sys/bus/pci/devices"
_NVIDIA = "/proc/driver/nvidia"
_VENDORS = {"0x10de": "nvidia", "0x1002": "amd"}
# class codes without the programming interface
_DISPLAY = ("0x0300", "0x0302", "0x0380")
_NVSWITCH = "0x0680"
_DISPLAY_CLASSES = tuple(int(kind, 16) for kind in _DISPLAY)
_NVSWITCH_CLASS = int(_NVSWITCH, 16)
# What keeps the vendor of a function from being known, though it is there.
_BAD = (DENIED, UNREADABLE, INVALID, TOO_LARGE)
_VERSION = r"Kernel Module(?: for \S+)?\s+(\d{3}(?:\.\d+){1,2})"


def read(host: Host, gpu_host: GpuHost) -> list[Gpu]:
    """The display controllers of NVIDIA and AMD, by address."""
    if not _plausible(host):
        gpu_host.listed = known(True, "/proc/bus/pci/devices")
        gpu_host.nvswitches = known(0, "/proc/bus/pci/devices")
        return []
    addresses = host.names(_DEVICES)
    # A machine without a PCI bus has nothing on it.
    gpu_host.listed = known(True, _DEVICES) if addresses.absent else addresses.map(lambda _: True)
    gpus: list[Gpu] = []
    switches = 0
    for name in addresses.value or []:
        folder = f"{_DEVICES}/{name}"
        told = host.text(f"{folder}/vendor")
        vendor = _VENDORS.get(told.value or "")
        if told.known and not vendor:
            continue
        function = host.text(f"{folder}/class")
        kind = (function.value or "")[:6]
        unread = next((fact for fact in (told, function) if fact.gap in _BAD), None)
        if unread is not None and kind in ("", *_DISPLAY, _NVSWITCH):
            # it may be a GPU: then the list is not whole
            gpu_host.listed = unread.map(lambda _: True)
        elif vendor and kind in _DISPLAY:
            gpus.append(_gpu(host, folder, normal(name) or name, vendor))
        switches += kind == _NVSWITCH and vendor == "nvidia"
    gpu_host.nvswitches = gpu_host.listed.map(lambda _: switches)
    return gpus


def read_documents(host: Host, gpu_host: GpuHost) -> list[Gpu]:
    """The same in pasted lists of PCI functions. Only what such a list says counts: somebody may
    have cut out a few lines of it."""
    found: dict[str, Gpu] = {}
    switches: dict[str, str] = {}
    for source, function in _functions(host):
        vendor = _vendor(function)
        kind = (function.class_code or 0) >> 8
        if kind == _NVSWITCH_CLASS and vendor == "nvidia":
            switches[function.address] = source
        if kind not in _DISPLAY_CLASSES or not vendor or function.address in found:
            continue
        gpu = found[function.address] = Gpu(
            index=None, address=function.address, source=source, vendor=vendor
        )
        if function.name:
            gpu.name = known(function.name, source)
        if function.driver:
            gpu.driver = known(function.driver, source)
        if function.numa_node is not None:
            gpu.numa_node = known(function.numa_node, source)
    if switches and not gpu_host.nvswitches.known:
        gpu_host.nvswitches = known(len(switches), next(iter(switches.values())))
    return list(found.values())


def _functions(host: Host) -> Iterator[tuple[str, Function]]:
    from hwtune.text import lspci, udev_pci

    for kind in ("lspci -v", "lspci"):
        for document in host.documents(kind):
            yield from ((document.path, function) for function in lspci.parse(document.text).functions)
    for document in host.documents("lspci -mm"):
        yield from ((document.path, function) for function in lspci.parse_records(document.text))
    for document in host.documents("udevadm info --export-db"):
        for path, said in udev_pci.records(document.text):
            address = normal(path.rpartition("/")[2])
            if address is not None:
                yield document.path, _by_udev(address, said)


def _by_udev(address: str, said: dict[str, str]) -> Function:
    from hwtune.text.lspci import Function

    vendor, _, _ = said.get("PCI_ID", "").partition(":")
    numbers = []
    for digits in (said.get("PCI_CLASS", ""), vendor):
        try:
            numbers.append(hexadecimal(digits))
        except ValueError:
            numbers.append(0)
    return Function(address=address, class_code=numbers[0], vendor=numbers[1], driver=said.get("DRIVER"))


def _vendor(function: Function) -> str:
    if function.vendor is not None:
        return _VENDORS.get(f"0x{function.vendor:04x}", "")
    name = function.name or ""
    return (
        "nvidia" if name.startswith("NVIDIA") else "amd" if name.startswith("Advanced Micro Devices") else ""
    )


def _plausible(host: Host) -> bool:
    """Whether any function is of these vendors. One small file says so, where it exists; without
    it every function has to be asked."""
    listed = host.text("/proc/bus/pci/devices")
    if not listed.known:
        return True
    return any(
        line.split()[1:2] and line.split()[1][:4] in ("10de", "1002") for line in listed.get().splitlines()
    )


def _gpu(host: Host, folder: str, address: str, vendor: str) -> Gpu:
    return Gpu(
        index=None,
        address=address,
        source=folder,
        vendor=vendor,
        driver=host.link_name(f"{folder}/driver"),
        numa_node=host.integer(f"{folder}/numa_node"),
        cpu_affinity=host.parse(f"{folder}/local_cpulist", parse_list),
    )


def read_driver(host: Host, gpu_host: GpuHost, gpus: list[Gpu]) -> None:
    """What the loaded module says of itself and of each GPU that it drives."""
    version = host.parse(f"{_NVIDIA}/version", _version)
    gpu_host.driver_version = gpu_host.driver_version.or_else(version)
    gpu_host.driver_parameters = host.parse(f"{_NVIDIA}/params", _parameters)
    by_address = {gpu.address: gpu for gpu in gpus}
    for name in host.names(f"{_NVIDIA}/gpus").value or []:
        gpu = by_address.get(normal(name))
        if gpu is None:
            gpu = Gpu(index=None, address=normal(name), source=f"{_NVIDIA}/gpus/{name}")
            gpus.append(gpu)
        _information(host, f"{_NVIDIA}/gpus/{name}/information", gpu)


def _information(host: Host, path: str, gpu: Gpu) -> None:
    told = host.parse(path, _parameters)
    if not told.known:
        return
    if told.get().get("Model"):
        gpu.name = known(told.get()["Model"], path)
    if "?" not in told.get().get("GPU UUID", "?"):
        gpu.uuid = known(told.get()["GPU UUID"], path)


def _version(text: str) -> str:
    match = re.search(_VERSION, text)
    if match is None:
        raise ValueError(text)
    return match[1]


def _parameters(text: str) -> dict[str, str]:
    """ "Name: value" lines; values of text have quotes."""
    found = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found[name.strip()] = value.strip().strip('"')
    if text.strip() and not found:
        raise ValueError(text)
    return found
