"""The whole machine, in the shape of the JSON report."""

from __future__ import annotations

from typing import Any

import msgspec

from hwtune.fact import Fact, not_probed
from hwtune.model.cpus import Cpus
from hwtune.model.gpu import Gpu, GpuHost
from hwtune.model.irqs import Irqs
from hwtune.model.kernel import Clock, Kernel, Service, Virtualization
from hwtune.model.memory import Memory
from hwtune.model.network import Network
from hwtune.model.numa import Numa
from hwtune.model.pci import Pci
from hwtune.model.storage import Block, Nvme


def _part(kind: type) -> Any:
    return msgspec.field(default_factory=kind)


class Services(msgspec.Struct):
    services: list[Service] = []  # those that are installed, started at boot or active
    listed: Fact[bool] = not_probed()  # whether it is known which run: one that is missing then does not

    def find(self, name: str) -> Service | None:
        return next((s for s in self.services if s.name == name), None)

    def active(self, name: str) -> Fact[bool]:
        """Whether a service of the list in ``hwtune.probes.services`` runs now."""
        service = self.find(name)
        if service is not None:
            return service.active
        return self.listed.map(lambda _: False)


class Gpus(msgspec.Struct):
    """What the GPU probe fills."""

    gpus: list[Gpu] = []
    host: GpuHost = _part(GpuHost)


class Machine(msgspec.Struct):
    """All parts. A part whose probe has not run holds only unknown facts."""

    kernel: Kernel = _part(Kernel)
    virtualization: Virtualization = _part(Virtualization)
    cpus: Cpus = _part(Cpus)
    numa: Numa = _part(Numa)
    memory: Memory = _part(Memory)
    pci: Pci = _part(Pci)
    block: Block = _part(Block)
    nvme: Nvme = _part(Nvme)
    gpu: Gpus = _part(Gpus)
    network: Network = _part(Network)
    irq: Irqs = _part(Irqs)
    clock: Clock = _part(Clock)
    service: Services = _part(Services)
    # parts of third-party probes, by the probe's name
    extra: dict[str, Any] = {}
