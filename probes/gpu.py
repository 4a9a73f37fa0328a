"""GPUs and the links between them.

Sources, the most telling first: NVML (live, or recorded), pasted outputs of nvidia-smi, the PCI
tree and /proc/driver/nvidia. The kernel's log and NCCL's environment are read where a GPU may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.model.gpu import GpuHost
from hwtune.model.machine import Gpus
from hwtune.probes import _gpu_sysfs

if TYPE_CHECKING:
    from hwtune.fact import Fact
    from hwtune.host.base import Host
    from hwtune.model.gpu import Gpu

PART = "gpu"


def read(host: Host) -> Gpus:
    gpu_host = GpuHost()
    on_bus = _gpu_sysfs.read(host, gpu_host)
    answer = host.ask("nvml")
    if not on_bus and answer.absent and host.kind == "live":
        # The usual machine: no GPU, no driver, and nothing more to ask.
        gpu_host.nvml = answer
        return Gpus([], gpu_host)
    return _read(host, answer, on_bus, gpu_host)


def _read(host: Host, answer: Fact[Any], on_bus: list[Gpu], gpu_host: GpuHost) -> Gpus:
    # Here, because most machines have no GPU, and doctor's start is not to pay for one.
    from hwtune.probes import _gpu_environment, _gpu_log, _gpu_merge, _gpu_nvml, _gpu_smi, _gpu_topology

    lists = [_gpu_nvml.read(answer, gpu_host)]
    lists += _gpu_smi.read(host, gpu_host)
    lists += _gpu_topology.read(host, gpu_host)
    _gpu_sysfs.read_driver(host, gpu_host, on_bus)
    lists += [on_bus, _gpu_sysfs.read_documents(host, gpu_host)]
    _gpu_log.read(host, gpu_host)
    _gpu_environment.read(host, gpu_host)
    return Gpus(_gpu_merge.merge(lists), gpu_host)


def read_bus(host: Host) -> Gpus:
    """The GPUs that the kernel lists, without a word to their driver: which there are, and on which node."""
    gpu_host = GpuHost()
    return Gpus(_gpu_sysfs.read(host, gpu_host), gpu_host)
