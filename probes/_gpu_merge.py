"""One list of GPUs out of what several sources say of them."""

from __future__ import annotations

from hwtune.fact import Fact
from hwtune.model.gpu import Gpu
from hwtune.model.pci import Link


def merge(lists: list[list[Gpu]]) -> list[Gpu]:
    """The first source that knows a field wins. GPUs are the same by address, else by index."""
    merged: list[Gpu] = []
    for gpus in lists:
        _place(merged, gpus)
        by_address: dict[str, Gpu] = {}
        by_index: dict[int, Gpu] = {}
        for gpu in merged:
            _note(gpu, by_address, by_index)
        for gpu in gpus:
            match = _match(gpu, by_address, by_index)
            if match is None:
                merged.append(gpu)
            else:
                _fill(match, gpu)
            _note(match or gpu, by_address, by_index)
    _adopt(merged)
    return sorted(merged, key=_order)


def _note(gpu: Gpu, by_address: dict[str, Gpu], by_index: dict[int, Gpu]) -> None:
    if gpu.address is not None:
        by_address.setdefault(gpu.address, gpu)
    if gpu.index is not None:
        by_index.setdefault(gpu.index, gpu)


def _match(gpu: Gpu, by_address: dict[str, Gpu], by_index: dict[int, Gpu]) -> Gpu | None:
    found = None if gpu.address is None else by_address.get(gpu.address)
    if found is None and gpu.index is not None:
        found = by_index.get(gpu.index)
        if found is not None and found.address is not None and gpu.address is not None:
            return None  # two addresses are two GPUs
    return found


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
    for field in target.__struct_fields__:
        mine, other = getattr(target, field), getattr(source, field)
        if isinstance(mine, Fact) and isinstance(other, Fact):
            setattr(target, field, mine.or_else(other))
        elif isinstance(mine, Link) and isinstance(other, Link):
            _fill(mine, other)
        elif mine is None and other is not None:
            setattr(target, field, other)


def _order(gpu: Gpu) -> tuple[bool, int, bool, str]:
    return gpu.index is None, gpu.index or 0, gpu.address is None, gpu.address or ""
