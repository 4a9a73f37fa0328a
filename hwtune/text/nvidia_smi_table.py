"""``nvidia-smi`` without options: the table with three lines a GPU.

A GPU's first line: index, name (cut to its column), persistence | bus id, display | uncorrected
ECC errors. Its second: fan, temperature, P-state, power and limit | memory | utilization, compute
mode. Its third, where there is one: MIG mode. A field that could not be read says ERR! or N/A.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# The second words since driver 610.
_HEAD = re.compile(r"(?:Driver|KMD) Version: (\S{1,20})\s+CUDA (?:UMD )?Version: (\S{1,20})")
_FIRST = re.compile(r"\s*(\d{1,3})\s+(\S.{0,60}?)\s+(On|Off|N/A|ERR!)\s*$")
_BUS = re.compile(r"\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s")
_SECOND = re.compile(r"\s*(\S+)\s+(\S+)\s+P?(\S+)\s+(\S+)\s*/\s*(\S+)\s*$")
_MEMORY = re.compile(r"\s*(\d+)MiB\s*/\s*(\d+)MiB\s*$")
_PROCESS = re.compile(
    r"\|\s*(\d{1,3})\s+(?:\S+\s+\S+\s+)?(\d{1,10})\s+([CGM+]{1,5})\s+(\S.*?)\s+(\d+MiB|N/A)\s*\|\s*$"
)


class TableGpu(NamedTuple):
    """Texts as printed; "" where the table does not show them."""

    number: int
    address: str
    name: str
    persistence: str = ""
    uncorrected_ecc: str = ""
    temperature: str = ""
    performance_state: str = ""
    power: str = ""
    power_limit: str = ""
    memory_used_mib: str = ""
    memory_total_mib: str = ""
    utilization: str = ""
    compute_mode: str = ""
    mig: str = ""


class TableProcess(NamedTuple):
    gpu: int
    pid: int
    kind: str
    name: str
    memory: str


class Table(NamedTuple):
    driver_version: str
    cuda_version: str
    gpus: list[TableGpu]
    processes: list[TableProcess]


def parse(text: str) -> Table:
    """Never raises; what does not look like a line of the table is passed over."""
    driver = cuda = ""
    gpus: list[TableGpu] = []
    processes: list[TableProcess] = []
    lines_left = 0
    for line in text.splitlines():
        if len(line) > 400 or not line.startswith("|"):
            continue
        head = _HEAD.search(line)
        process = _PROCESS.match(line)
        cells = line.strip("|").split("|")
        if head is not None:
            driver, cuda = head[1], head[2]
        elif process is not None:
            processes.append(
                TableProcess(int(process[1]), int(process[2]), process[3], process[4], process[5])
            )
        elif len(cells) == 3:
            gpu = _first(cells)
            if gpu is not None:
                gpus.append(gpu)
                lines_left = 2
            elif lines_left:
                gpus[-1] = _second(gpus[-1], cells) if lines_left == 2 else _third(gpus[-1], cells)
                lines_left -= 1
    return Table(driver, cuda, gpus, processes)


def _first(cells: list[str]) -> TableGpu | None:
    name, bus = _FIRST.match(cells[0]), _BUS.match(cells[1])
    if name is None or bus is None:
        return None
    return TableGpu(int(name[1]), bus[1], name[2], name[3], cells[2].strip())


def _second(gpu: TableGpu, cells: list[str]) -> TableGpu:
    state, memory, use = _SECOND.match(cells[0]), _MEMORY.match(cells[1]), cells[2].split()
    if state is not None:
        gpu = gpu._replace(
            temperature=state[2].removesuffix("C"),
            performance_state=state[3],
            power=state[4].removesuffix("W"),
            power_limit=state[5].removesuffix("W"),
        )
    if memory is not None:
        gpu = gpu._replace(memory_used_mib=memory[1], memory_total_mib=memory[2])
    if len(use) == 2:
        gpu = gpu._replace(utilization=use[0].removesuffix("%"), compute_mode=use[1])
    return gpu


def _third(gpu: TableGpu, cells: list[str]) -> TableGpu:
    return gpu._replace(mig=cells[2].strip())
