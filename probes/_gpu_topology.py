"""What pasted matrices and link lists say of GPUs: ``topo -m``, ``topo -p2p``, ``nvlink -s``, ``-L``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import absent, known
from hwtune.model.gpu import Gpu, GpuHost, GpuPair, NvLink
from hwtune.text import nvidia_topo, nvlink_status
from hwtune.text.cpulist import parse_list

if TYPE_CHECKING:
    from hwtune.host.base import Host
    from hwtune.text.nvlink_status import LinkedGpu


def read(host: Host, gpu_host: GpuHost) -> list[list[Gpu]]:
    """The GPUs of each document; the ways between them go to ``gpu_host``."""
    found = []
    for document in host.documents("nvidia-smi topo -m"):
        try:
            matrix = nvidia_topo.parse_matrix(document.text)
        except ValueError:
            continue
        found.append(_matrix(matrix, document.path, gpu_host))
    for document in host.documents("nvidia-smi topo -p2p"):
        try:
            access = nvidia_topo.parse_peer_access(document.text)
        except ValueError:
            continue
        found.append(_peer_access(access, document.path, gpu_host))
    # The list of GPUs (-L) is the same list without the links.
    for kind in ("nvidia-smi nvlink -s", "nvidia-smi -L"):
        for document in host.documents(kind):
            found.append([_linked(gpu, document.path) for gpu in nvlink_status.parse(document.text)])
    return found


def _matrix(matrix: nvidia_topo.Topology, source: str, gpu_host: GpuHost) -> list[Gpu]:
    gpu_host.pairs.extend(
        GpuPair(first, second, way, source)
        for (first, second), way in matrix.ways.items()
        if not _find(gpu_host, first, second)
    )
    gpu_host.matrix = source
    gpu_host.nic_names.update(matrix.nic_names)
    gpu_host.affinity.update(matrix.affinity)
    gpu_host.rows_missing.update(dict.fromkeys(matrix.incomplete, source))
    gpus = []
    for name in matrix.columns:
        if not name.startswith("GPU"):
            continue
        gpu = Gpu(index=int(name[3:]), address=None, source=source)
        if name in matrix.affinity:
            gpu.cpu_affinity = known(parse_list(matrix.affinity[name]), source)
        if name in matrix.numa_node:
            gpu.numa_node = known(matrix.numa_node[name], source)
        gpus.append(gpu)
    # The heading of the matrix has a column for each GPU of the machine.
    if not gpu_host.listed.known:
        gpu_host.listed = known(True, source)
    return gpus


def _peer_access(access: dict[tuple[str, str], str], source: str, gpu_host: GpuHost) -> list[Gpu]:
    names: dict[str, None] = {}
    for (first, second), state in access.items():
        names.update({first: None, second: None})
        pair = _find(gpu_host, first, second)
        if pair is None:
            pair = GpuPair(first, second, "", source)
            gpu_host.pairs.append(pair)
        if pair.p2p in (None, "OK"):
            pair.p2p, pair.p2p_source = state, source
    return [Gpu(index=int(name[3:]), address=None, source=source) for name in names if name[3:].isdecimal()]


def _find(gpu_host: GpuHost, first: str, second: str) -> GpuPair | None:
    for pair in gpu_host.pairs:
        if {pair.first, pair.second} == {first, second}:
            return pair
    return None


def _linked(found: LinkedGpu, source: str) -> Gpu:
    gpu = Gpu(index=found.number, address=None, source=source, labelled=found.number is not None)
    if found.name:
        gpu.name = known(found.name, source)
    if found.uuid:
        gpu.uuid = known(found.uuid, source)
    if found.note == "none":
        gpu.nvlinks = absent(source)
    elif found.note == "mig":
        gpu.mig = known(True, source)
    elif found.note == "all inactive":
        gpu.nvlinks_all_inactive = known(True, source)
    elif found.links:
        gpu.nvlinks = known([_link(number, speed, source) for number, speed in found.links], source)
    return gpu


def _link(number: int, speed: int | None, source: str) -> NvLink:
    link = NvLink(link=number, active=known(speed is not None, source))
    if speed is not None:
        link.speed_mbps = known(speed, source)
    return link
