"""What can be read, set and put back: the places where a change takes hold.

A target has a ``key`` (its name in the journal), reads its present value, writes one, and knows
when two values mean the same. Values are what JSON can hold; ``None`` is the value of a place
that does not exist (a file that hwtune is to make, a device that is gone).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes.system import ChangeError
from hwtune.changes.targets.attribute import Attribute, ExclusiveSysctls, sysctl_path
from hwtune.changes.targets.base import Target, Value
from hwtune.changes.targets.cpuset import Partition
from hwtune.changes.targets.files import Directory, OwnedFile, OwnedLink
from hwtune.changes.targets.gpu import GpuAttribute
from hwtune.changes.targets.irq import IrqsAway, IrqSetting
from hwtune.changes.targets.loader import LoaderArgument
from hwtune.changes.targets.nic import NicGroup
from hwtune.changes.targets.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Attribute",
    "Directory",
    "ExclusiveSysctls",
    "GpuAttribute",
    "IrqSetting",
    "IrqsAway",
    "LoaderArgument",
    "NicGroup",
    "OwnedFile",
    "OwnedLink",
    "Partition",
    "Target",
    "Unit",
    "Value",
    "from_key",
    "sysctl_path",
]


def from_key(key: str) -> Target:
    """The target that a journal's key names. Raises ``ChangeError`` for an unknown kind."""
    kind, _, rest = key.partition(" ")
    maker = _MAKERS.get(kind)
    if maker is None:
        raise ChangeError(f"this version knows no {kind} targets; use the one that wrote the journal")
    return maker(rest)


def _attribute(rest: str) -> Target:
    form, _, path = rest.partition(" ")
    return Attribute(path, form)


def _exclusive(rest: str) -> Target:
    one, _, other = rest.partition(" ")
    return ExclusiveSysctls((one, other))


def _loader(rest: str) -> Target:
    backend, _, names = rest.partition(" ")
    return LoaderArgument(backend, names)


_MAKERS: dict[str, Callable[[str], Target]] = {
    "attribute": _attribute,
    "exclusive": _exclusive,
    "file": OwnedFile,
    "link": OwnedLink,
    "directory": Directory,
    "unit": Unit,
    "kernel-argument": _loader,
    "irq": IrqSetting.from_rest,
    "irqs-away": IrqsAway,
    "cpuset": Partition,
    "nic": NicGroup.from_rest,
    "gpu": GpuAttribute.from_rest,
}
