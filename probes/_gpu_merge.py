"""One list of GPUs out of what several sources say of them."""

from __future__ import annotations

import msgspec

from hwtune.fact import Fact
from hwtune.model.gpu import Gpu
from hwtune.model.pci import Link


def merge(lists: list[list[Gpu]]) -> list[Gpu]:
    """The first source that knows a field wins. GPUs are the same by address, else by index."""
    merged: list[Gpu] = []
    for gpus in lists:
        _place(merged, gpus)
        for gpu in gpus:
            match = _match(merged, gpu)
            if match is None:
                merged.append(gpu)
            else:
                _fill(match, gpu)
    _adopt(merged)
    return sorted(merged, key=_order)


def _match(merged: list[Gpu], gpu: Gpu) -> Gpu | None:
    for other in merged:
        if other.address is not None and gpu.address is not None:
            if other.address == gpu.address:
                return other
        elif other.index is not None and other.index == gpu.index:
            return other
    return None


def _place(merged: list[Gpu], gpus: list[Gpu]) -> None:
    """Where one source has only indices and the other only addresses, and both have as many: an
    index is the place in the order of the addresses (nvidia-smi counts in the order of the bus)."""
    nvidia = [gpu for gpu in gpus if gpu.vendor == "nvidia"]
    both = (merged, nvidia)
    for indexed, addressed in (both, both[::-1]):
        if (
            indexed
            and len(indexed) == len(addressed)
            and all(gpu.index is not None and gpu.address is None for gpu in indexed)
            and all(gpu.index is None and gpu.address is not None for gpu in addressed)
        ):
            for index, gpu in enumerate(sorted(addressed, key=lambda gpu: gpu.address or "")):
                gpu.index = index
            return


def _adopt(merged: list[Gpu]) -> None:
    """A text that names no GPU tells of the only one there is."""
    stray = [gpu for gpu in merged if not gpu.labelled]
    named = [gpu for gpu in merged if gpu.labelled and gpu.vendor == "nvidia"]
    if len(named) == 1:
        for gpu in stray:
            _fill(named[0], gpu)
            merged[:] = [other for other in merged if other is not gpu]
    elif not named and len(stray) > 1:
        for gpu in stray[1:]:
            _fill(stray[0], gpu)
        merged[:] = stray[:1]


def _fill(target: Gpu | Link, source: Gpu | Link) -> None:
    for field in msgspec.structs.fields(type(target)):
        mine, other = getattr(target, field.name), getattr(source, field.name)
        if isinstance(mine, Fact) and isinstance(other, Fact):
            setattr(target, field.name, mine.or_else(other))
        elif isinstance(mine, Link) and isinstance(other, Link):
            _fill(mine, other)
        elif mine is None and other is not None:
            setattr(target, field.name, other)


def _order(gpu: Gpu) -> tuple[bool, int, bool, str]:
    return gpu.index is None, gpu.index or 0, gpu.address is None, gpu.address or ""
