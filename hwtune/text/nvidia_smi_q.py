"""``nvidia-smi -q``: the log of all that the driver knows, in its indented text form.

The layout is a tree by indentation, "Key : Value" or a heading alone. Its words changed over the
years (Clocks Throttle Reasons became Clocks Event Reasons with driver 535), its form did not.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class SmiProcess(NamedTuple):
    pid: int
    kind: str  # C, G, C+G, M+C ...
    name: str
    memory: str


class SmiGpu(NamedTuple):
    """``address`` as printed, "" where the text does not name the GPU. ``values``: leaves by
    their path; of things that come several times (MIG devices) the first is kept."""

    address: str
    values: dict[str, str]
    processes: list[SmiProcess]


class SmiLog(NamedTuple):
    driver_version: str
    cuda_version: str
    attached: int | None
    gpus: list[SmiGpu]


# A person may paste a log of any length; a GPU's is some 300 lines.
_LONGEST = 400
_GPU = re.compile(r"GPU\s+([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
# Sections of which a GPU has several, and which say nothing of the GPU as a whole.
_REPEATED = ("mig device",)
_TOP = ("timestamp", "driver version", "kmd version", "cuda version", "attached gpus")


def parse(text: str) -> SmiLog:
    """Paths are in lower case, joined by "/": "remapped rows/pending". Never raises; a text with
    nothing in it gives no GPU."""
    reader = _Reader()
    for line in text.splitlines():
        if len(line) <= _LONGEST:
            reader.line(line.expandtabs(4))
    return SmiLog(
        reader.top.get("driver version", ""),
        reader.top.get("cuda version", ""),
        _count(reader.top.get("attached gpus", "")),
        [gpu for gpu in reader.gpus if gpu.values],
    )


class _Reader:
    def __init__(self) -> None:
        self.top: dict[str, str] = {}
        self.gpus: list[SmiGpu] = []
        self.path: list[tuple[int, str]] = []

    def line(self, line: str) -> None:
        body = line.strip()
        if not body or body.startswith("="):
            return
        gpu = _GPU.match(body)
        if gpu is not None:
            self.gpus.append(SmiGpu(gpu[1], {}, []))
            self.path = []
            return
        indent = len(line) - len(line.lstrip())
        key, colon, value = body.partition(":")
        if not colon and not body.replace(" ", "").replace(".", "").isalnum():
            return  # neither a heading nor a value
        while self.path and self.path[-1][0] >= indent:
            self.path.pop()
        self.path.append((indent, " ".join(key.split()).lower()))
        if colon:
            self._value(value.strip())

    def _value(self, value: str) -> None:
        names = [name for _, name in self.path]
        if len(names) == 1 and names[0] in _TOP:
            # A newer driver puts a note after the number.
            self.top.setdefault(names[0], value.partition(" ")[0])
            return
        if any(name in _REPEATED for name in names):
            return
        if not self.gpus:
            # A fragment without the line that names the GPU.
            self.gpus.append(SmiGpu("", {}, []))
        if names[-1] == "process id" or "process id" in names[:-1]:
            self._process(names[-1], value)
            return
        self.gpus[-1].values.setdefault("/".join(names), value)

    def _process(self, key: str, value: str) -> None:
        processes = self.gpus[-1].processes
        if key == "process id":
            if value.isdecimal():
                processes.append(SmiProcess(int(value), "", "", ""))
        elif processes:
            processes[-1] = described(processes[-1], key, value)


def described(process: SmiProcess, key: str, value: str) -> SmiProcess:
    """A process with one more of its properties, named as in the text or in the XML."""
    if key == "type":
        return process._replace(kind=value)
    if key in ("name", "process_name"):
        return process._replace(name=value)
    if key in ("used gpu memory", "used_memory"):
        return process._replace(memory=value)
    return process


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
