"""A profile of TuneD: /etc/tuned/NAME/tuned.conf (tuned.conf(5), and the plug-ins of TuneD 2.28).

``[sysfs]`` takes paths below /sys alone and reads them as patterns; ``[irq]`` is there since TuneD
2.22; ``[bootloader]`` only adds arguments; ``[irqbalance]`` writes /etc/sysconfig/irqbalance, which
Debian's irqbalance does not read; a network interface belongs to one section of ``[net]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes.export.parts import (
    LeftOutError,
    attributes,
    expressed,
    heading,
    left_out,
    one_line,
    purpose,
)
from hwtune.text.cpulist import format_list

if TYPE_CHECKING:
    from hwtune.changes.plan import Plan, PlannedChange

_PLACE = "# Its place: latency/tuned.conf in TuneD's folder of profiles; then: tuned-adm profile latency"
_GROUPS = {"rings": "ring"}  # as TuneD calls them, where it has a name of its own


def render(plan: Plan) -> str:
    done, left = expressed(plan, _MAKERS)
    sections: dict[str, dict[str, list[str]]] = {}
    for change, parts in done:
        for number, (section, option, value) in enumerate(parts, 1):
            options = sections.setdefault(section, {})
            comment = [f"# {purpose(change)}"] if number == len(parts) else []
            if section in _LISTS and option in options:
                *comments, line = options[option]
                options[option] = [*comments, *comment, f"{line} {value.removeprefix('+')}"]
            else:
                options[option] = [*comment, f"{option}={value}"]
    lines = [
        *heading("A profile of TuneD"),
        _PLACE,
    ]
    lines += left_out(left)
    lines += ["", "[main]", "summary=What hwtune found to be set on this machine"]
    for section, options in sections.items():
        lines += ["", f"[{section}]"]
        for option in options.values():
            lines += option
    return "\n".join(lines) + "\n"


# sections whose options take several values
_LISTS = ("bootloader", "modules")
Parts = list[tuple[str, str, str]]


def _value(text: str) -> str:
    """What the file can hold: "#" begins a comment anywhere, and "$" a variable."""
    if "#" in text or "$" in text:
        raise LeftOutError("it has characters that mean something else in a profile")
    return one_line(text)


def _sysctl(change: PlannedChange) -> Parts:
    if "/" in change.change.key:
        raise LeftOutError("TuneD cannot name this sysctl")
    return [("sysctl", change.change.key, _value(change.change.value))]


def _sysfs(change: PlannedChange) -> Parts:
    parts = []
    for path, value in attributes(change):
        if not path.startswith("/sys/") or any(c in path for c in "*?[=#$"):
            raise LeftOutError("[sysfs] takes plain paths below /sys alone")
        parts.append(("sysfs", path, _value(value)))
    return parts


def _irq(change: PlannedChange) -> Parts:
    number, cpus = change.change.irq, format_list(change.change.cpus)
    section = f"irq_{number}"
    # the number is that of this boot
    return [(section, "type", "irq"), (section, "devices", f"irq{number}"), (section, "affinity", cpus)]


def _default_irq(change: PlannedChange) -> Parts:
    section, cpus = "irq_default", format_list(change.change.cpus)
    return [(section, "type", "irq"), (section, "devices", "DEFAULT"), (section, "affinity", cpus)]


def _irqbalance(change: PlannedChange) -> Parts:
    return [("irqbalance", "banned_cpus", format_list(change.change.cpus))]


def _kargs(change: PlannedChange) -> Parts:
    if change.change.remove:
        raise LeftOutError("TuneD adds kernel arguments, and takes none out")
    return [("bootloader", "cmdline_latency", _value("+" + " ".join(change.change.set)))]


def _module(change: PlannedChange) -> Parts:
    return [("modules", change.change.module, _value(f"{change.change.option}={change.change.value}"))]


def _unit(change: PlannedChange) -> Parts:
    unit = change.change.unit.removesuffix(".service")
    words = {"started": "start,enable", "stopped": "stop,disable"}.get(change.change.state)
    if words is None or "." in unit:
        raise LeftOutError("TuneD starts, stops, enables and disables services alone")
    if unit == "tuned":
        raise LeftOutError("TuneD would stop itself")
    return [("service", f"service.{unit}", words)]


def _latency(change: PlannedChange) -> Parts:
    return [("cpu", "force_latency", str(change.change.microseconds))]


def _nic(change: PlannedChange) -> Parts:
    interface, group = change.change.interface, change.change.group
    if group not in ("coalesce", "features", "rings", "channels", "pause"):
        raise LeftOutError(f"TuneD has no {group} of network interfaces")
    section = f"net_{interface}"
    values = " ".join(f"{name} {value}" for name, value in change.change.values)
    return [
        (section, "type", "net"),
        (section, "devices", _value(interface)),
        (section, "dynamic", "0"),
        (section, _GROUPS.get(group, group), _value(values)),
    ]


def _gpu(change: PlannedChange) -> Parts:
    raise LeftOutError("TuneD has no plug-in for GPUs")


_MAKERS = {
    "sysctl": _sysctl,
    "sysfs": _sysfs,
    "nvme-latency-tolerance": _sysfs,
    "irq-affinity": _irq,
    "irq-default-affinity": _default_irq,
    "irqbalance-ban": _irqbalance,
    "kernel-arguments": _kargs,
    "module-option": _module,
    "unit": _unit,
    "cpu-latency": _latency,
    "nic": _nic,
    "gpu": _gpu,
}
