"""Stable names of what a change is about, in the manner of a finding's subject ("sysctl:KEY")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.text import cmdline

if TYPE_CHECKING:
    from collections.abc import Callable

_PROC_SYS = "/proc/sys/"


def of_change(change: Any) -> str:
    """What a change sets, whether or not it can be carried out here."""
    kind = str(change.__struct_config__.tag)
    maker = _OF_CHANGE.get(kind)
    return maker(change) if maker is not None else kind


def of_key(key: str) -> str:
    """The name of a target, from its key in the journal."""
    kind, _, rest = key.partition(" ")
    if kind == "attribute":
        path = rest.partition(" ")[2]
        if path.startswith(_PROC_SYS):
            return "sysctl:" + path.removeprefix(_PROC_SYS).translate(str.maketrans("./", "/."))
        return "irq:default" if path == "/proc/irq/default_smp_affinity" else f"sysfs:{path}"
    if kind == "exclusive":
        return "sysctl:" + ",".join(rest.split())
    if kind == "irq":
        return "irq:" + rest.partition(" ")[0]
    if kind == "unit":
        return "service:" + rest.removesuffix(".service")
    if kind == "kernel-argument":
        return "karg:" + ",".join(rest.split()[1:])
    if kind in ("nic", "gpu"):
        device, _, what = rest.partition(" ")
        return f"{kind}:{device}/{what.partition(' ')[0]}"
    return f"{kind}:{rest}"


def of_item(store: str, key: str) -> str:
    """The name of something that a store keeps."""
    if store == "kargs":
        return "karg:" + ",".join(key.split())
    if store == "modprobe":
        return "module:" + "/".join(key.split())
    if store == "boot":
        return of_key(key)
    return f"{store}:{key}"


def _kargs(change: Any) -> str:
    names = [cmdline.canonical(text.partition("=")[0]) for text in (*change.set, *change.remove)]
    return "karg:" + ",".join(dict.fromkeys(names))


_OF_CHANGE: dict[str, Callable[[Any], str]] = {
    "sysctl": lambda c: f"sysctl:{c.key}",
    "sysfs": lambda c: f"sysfs:{c.path}",
    "irq-affinity": lambda c: f"irq:{c.irq}",
    "irq-default-affinity": lambda c: "irq:default",
    "irqbalance-ban": lambda c: "service:irqbalance",
    "kernel-arguments": _kargs,
    "module-option": lambda c: f"module:{c.module}/{c.option}",
    "unit": lambda c: "service:" + c.unit.removesuffix(".service"),
    "cpuset-partition": lambda c: f"cpuset:{c.name}",
    "cpu-latency": lambda c: "cpu-latency",
    "nvme-latency-tolerance": lambda c: f"nvme:{c.controller}/latency-tolerance",
    "nic": lambda c: f"nic:{c.interface}/{c.group}",
    "gpu": lambda c: f"gpu:{c.gpu}/{c.setting}",
    "file": lambda c: f"file:{c.path}",
}
