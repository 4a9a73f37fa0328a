"""The shape of ``doctor --format json``: what scripts rely on (design: "JSON of doctor").

``schema_version`` changes when a name or a meaning here does; new names alone do not change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hwtune import __version__
from hwtune.diagnosis.engine import Defect
from hwtune.diagnosis.verdict import Evidence, Finding, Unknown
from hwtune.fact import json_form
from hwtune.model.cpus import Cpus
from hwtune.model.gpu import Gpu, GpuHost
from hwtune.model.irqs import Irq, Irqs
from hwtune.model.kernel import Clock, Kernel, Service, Virtualization
from hwtune.model.memory import Memory
from hwtune.model.network import IbPort, Network, Nic
from hwtune.model.numa import Numa
from hwtune.model.pci import Pci
from hwtune.model.storage import Block, Nvme
from hwtune.report.digest import moment

if TYPE_CHECKING:
    from hwtune.diagnosis.engine import Diagnosis
    from hwtune.host.base import Host
    from hwtune.profile import Profile

SCHEMA_VERSION = "1"


class Tool(msgspec.Struct):
    name: str
    version: str


class HostInfo(msgspec.Struct):
    """``source`` is "live" or "snapshot"; ``captured_at`` in ISO 8601, UTC, where known."""

    source: str
    origin: str
    hostname: str | None
    kernel: str | None
    captured_at: str | None
    warnings: list[str]


class Summary(msgspec.Struct, rename={"not_applicable": "not-applicable"}):
    """Counts of rows by outcome, and of findings by severity."""

    ok: int
    finding: int
    not_applicable: int
    unknown: int
    by_severity: dict[str, int]


class PublishedMachine(msgspec.Struct):
    """The Machine; null stands for what is not known."""

    kernel: Kernel
    virtualization: Virtualization
    cpus: Cpus
    numa: Numa
    memory: Memory
    pci: Pci
    block: Block
    nvme: Nvme
    gpus: list[Gpu]
    gpu_host: GpuHost
    nics: list[Nic]
    ib_ports: list[IbPort]
    network: Network
    irqs: list[Irq]
    irq_settings: Irqs
    clock: Clock
    services: list[Service]
    extra: dict[str, Any]


class PublishedRow(msgspec.Struct):
    """One row. ``severity`` is that of its worst finding; null without one."""

    id: str
    outcome: str
    severity: str | None
    scope: str
    title: str
    reason: str
    findings: list[Finding]
    unknowns: list[Unknown]
    evidence: list[Evidence]


class DoctorReport(msgspec.Struct):
    """What ``hwtune doctor --format json`` prints."""

    schema_version: str
    tool: Tool
    host: HostInfo
    profile: dict[str, Any]
    machine: PublishedMachine
    summary: Summary
    rows: list[PublishedRow]
    defects: list[Defect]


def publish(diagnosis: Diagnosis, host: Host, profile: Profile) -> DoctorReport:
    machine = diagnosis.machine
    summary = diagnosis.summary()
    return DoctorReport(
        schema_version=SCHEMA_VERSION,
        tool=Tool("hwtune", __version__),
        host=HostInfo(
            host.kind,
            host.origin,
            machine.kernel.hostname.value,
            machine.kernel.release.value,
            moment(host.captured_at),
            list(getattr(host, "warnings", [])),
        ),
        profile=msgspec.to_builtins(profile),
        machine=_machine(machine),
        summary=Summary(
            summary["ok"],
            summary["finding"],
            summary["not-applicable"],
            summary["unknown"],
            summary["by_severity"],
        ),
        rows=[PublishedRow(*msgspec.structs.astuple(result)) for result in diagnosis.results],
        defects=diagnosis.defects,
    )


def _machine(machine: Any) -> PublishedMachine:
    # the lists that have a name of their own at the top are not told twice
    network, irqs = machine.network, machine.irq
    return PublishedMachine(
        kernel=machine.kernel,
        virtualization=machine.virtualization,
        cpus=machine.cpus,
        numa=machine.numa,
        memory=machine.memory,
        pci=machine.pci,
        block=machine.block,
        nvme=machine.nvme,
        gpus=machine.gpu.gpus,
        gpu_host=machine.gpu.host,
        nics=network.nics,
        ib_ports=network.ib_ports,
        network=msgspec.structs.replace(network, nics=[], ib_ports=[]),
        irqs=irqs.irqs,
        irq_settings=msgspec.structs.replace(irqs, irqs=[]),
        clock=machine.clock,
        services=machine.service.services,
        extra=machine.extra,
    )


def encode(value: Any) -> bytes:
    """JSON, indented, with a newline at its end; an unknown fact is null."""
    try:
        encoded = msgspec.json.encode(value, enc_hook=json_form)
    except UnicodeEncodeError:  # a name of the machine's that is not UTF-8
        encoded = msgspec.json.encode(_as_unicode(msgspec.to_builtins(value, enc_hook=json_form)))
    return msgspec.json.format(encoded, indent=2) + b"\n"


def _as_unicode(value: Any) -> Any:
    """Names of bytes that are not UTF-8 (surrogates, to Python) with these bytes as escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_as_unicode(key): _as_unicode(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_unicode(item) for item in value]
    return value
