"""What the CPUs are: model, vendor, flags, kinds of core, known vulnerabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import ABSENT, Fact, gap, known
from hwtune.probes._cpu_topology import BASE
from hwtune.text.cpulist import parse_list

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwtune.host.base import Host
    from hwtune.model.cpus import Cpus
    from hwtune.text.proc_cpuinfo import CpuInfo

# Cores of one kind differ by their clocks alone; kinds differ by more (of three kinds the middle
# one reaches nine tenths of the big one's capacity, small ones a half or less).
_SMALL = 0.75

_X86 = ("x86_64", "i386")


def read(host: Host, cpus: Cpus, cpuinfo: Fact[CpuInfo]) -> None:
    _identify(cpus, cpuinfo)
    if not cpus.model_name.known and not cpus.flags.known:
        _ask_library(host, cpus)
    read_kinds(host, cpus)
    folder = f"{BASE}/vulnerabilities"
    names = host.names(folder)
    cpus.vulnerabilities = {name: host.text(f"{folder}/{name}") for name in names.value or []}
    cpus.vulnerabilities_listed = names.map(lambda _: True)


def _identify(cpus: Cpus, cpuinfo: Fact[CpuInfo]) -> None:
    def told(value: Callable[[CpuInfo], str | None], field: str) -> Fact[str]:
        if not cpuinfo.known:
            return Fact(None, cpuinfo.source, cpuinfo.gap, cpuinfo.detail)
        text = value(cpuinfo.get())
        return gap(ABSENT, f"{cpuinfo.source} {field}") if text is None else known(text, cpuinfo.source)

    cpus.model_name = told(lambda info: info.model_name, "model name")
    cpus.vendor = told(lambda info: info.vendor, "vendor_id")
    cpus.architecture = told(lambda info: info.architecture, "architecture")
    cpus.microcode = told(lambda info: ", ".join(info.microcodes) or None, "microcode")
    cpus.family = told(lambda info: _decimal(info, "cpu family", "family"), "cpu family").map(int)
    cpus.model = told(lambda info: _decimal(info, "model"), "model").map(int)
    cpus.flags = told(lambda info: "\n".join(info.flags or []) or None, "flags").map(str.splitlines)


def _decimal(info: CpuInfo, *fields: str) -> str | None:
    """The first of the fields that is a number (powerpc and loongarch have words there)."""
    words = (info.first.get(field, "") for field in fields)
    return next((word for word in words if word.isdecimal() and len(word) < 10), None)


def _ask_library(host: Host, cpus: Cpus) -> None:
    """What py-cpuinfo says, in a capture and while one is made. doctor doesn't ask a live machine:
    the answer takes over a second and starts programs, for a name that no verdict hangs on."""
    if host.kind == "live" and not host.patient:
        return
    answer = host.ask("cpuinfo")
    if not answer.known or not isinstance(answer.get(), dict):
        return
    said = answer.get()
    for field, name in (("model_name", "brand"), ("vendor", "vendor")):
        if isinstance(said.get(name), str) and said[name]:
            setattr(cpus, field, known(said[name], answer.source))
    if isinstance(said.get("flags"), list) and said["flags"]:
        cpus.flags = known([str(flag) for flag in said["flags"]], answer.source)


def read_kinds(host: Host, cpus: Cpus) -> None:
    """Core kinds: by the PMUs of hybrid x86 (tools/perf/Documentation/intel-hybrid.txt), or by
    cpu_capacity elsewhere. On x86 the capacities of favoured cores differ too, so that there they
    tell nothing of kinds."""
    first = next((cpu.id for cpu in cpus.cpus), None)
    if first is not None and host.integer(f"{BASE}/cpu{first}/cpu_capacity").known:
        for cpu in cpus.cpus:
            cpu.capacity = host.integer(f"{BASE}/cpu{cpu.id}/cpu_capacity").value
    architecture = cpus.architecture.value
    if architecture is not None and architecture not in _X86:
        _by_capacity(cpus)
        return
    core, atom, low = (_pmu_cpus(host, name) for name in ("cpu_core", "cpu_atom", "cpu_lowpower"))
    if core.known or atom.known:
        by_id = {cpu.id: cpu for cpu in cpus.cpus}
        for members, kind in ((core, "performance"), (atom, "efficient"), (low, "efficient")):
            for member in members.value or []:
                if member in by_id:
                    by_id[member].core_type = kind
        cpus.hybrid = known(bool(core.value and atom.value), (core if core.known else atom).source)
    elif architecture is not None and host.exists("/sys/devices/cpu").value is True:
        cpus.hybrid = known(False, "/sys/devices/cpu")  # the one PMU of an x86 with one kind of core
    else:
        cpus.hybrid = known(False, core.source) if core.absent else core.map(bool)


def _pmu_cpus(host: Host, name: str) -> Fact[list[int]]:
    direct = host.parse(f"/sys/devices/{name}/cpus", parse_list)
    return (
        direct
        if direct.known
        else direct.or_else(host.parse(f"/sys/bus/event_source/devices/{name}/cpus", parse_list))
    )


def _by_capacity(cpus: Cpus) -> None:
    source = f"{BASE}/cpu*/cpu_capacity"
    capacities = [cpu.capacity for cpu in cpus.cpus if cpu.capacity]
    if not capacities:
        cpus.hybrid = gap(ABSENT, source)
        return
    least = _SMALL * max(capacities)
    cpus.hybrid = known(min(capacities) < least, source)
    if cpus.hybrid.get():
        for cpu in cpus.cpus:
            if cpu.capacity:
                cpu.core_type = "performance" if cpu.capacity >= least else "efficient"
