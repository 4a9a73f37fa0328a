"""``nvidia-smi nvlink -s``: the links of each GPU and their speed, or that they are inactive."""

from __future__ import annotations

import re
from typing import NamedTuple

from hwtune.text.number import finite

_GPU = re.compile(r"\s*GPU (\d{1,3}): (.{1,100}?)(?: \(UUID: ([\w-]{1,64})\))?\s*$")
_LINK = re.compile(r"\s*Link (\d{1,2}): (.{1,60}?)\s*$")
_SPEED = re.compile(r"([\d.]{1,12}) GB/s")


class LinkedGpu(NamedTuple):
    """``links``: (number, MB/s or None where inactive). ``number`` is None where the text does not
    name the GPU. ``note``: "" or one of "all inactive", "none" (the GPU has no NVLink), "mig"."""

    number: int | None
    name: str
    uuid: str
    links: list[tuple[int, int | None]]
    note: str


def parse(text: str) -> list[LinkedGpu]:
    found: list[LinkedGpu] = []
    for line in text.splitlines():
        if len(line) > 300:
            continue
        gpu = _GPU.match(line)
        if gpu is not None:
            found.append(LinkedGpu(int(gpu[1]), gpu[2].strip(), gpu[3] or "", [], ""))
            continue
        link = _LINK.match(line)
        note = _note(line)
        if link is None and not note:
            continue
        if not found:
            found.append(LinkedGpu(None, "", "", [], ""))
        if note:
            found[-1] = found[-1]._replace(note=note)
        elif link is not None:
            speed = _SPEED.match(link[2])
            if speed is not None:
                found[-1].links.append((int(link[1]), _megabytes(speed[1])))
            elif "inactive" in link[2].lower():
                found[-1].links.append((int(link[1]), None))
    return found


def _note(line: str) -> str:
    lower = line.lower()
    if "all links are inactive" in lower:
        return "all inactive"
    if "does not have or support nvlink" in lower:
        return "none"
    if "not supported for devices in mig mode" in lower:
        return "mig"
    return ""


def _megabytes(text: str) -> int | None:
    try:
        return round(finite(text) * 1000)
    except ValueError:
        return None
