"""A script for a POSIX shell. It may be run again: what is so already is not written."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from hwtune.changes.export import parts
from hwtune.changes.export.parts import LeftOutError, attributes, expressed, heading, left_out, purpose
from hwtune.text.cpulist import format_list

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwtune.changes.plan import Plan, PlannedChange
    from hwtune.changes.stores import Item

_FUNCTIONS = r"""
# shellcheck disable=SC2317  # not every plan needs every function
set -eu
status=0

failed() {
    printf '%s: %s\n' "$0" "$*" >&2
    status=1
}

# put PATH VALUE: write an attribute of the kernel, unless it has the value
put() {
    if [ ! -e "$1" ]; then
        failed "$1 does not exist here"
        return 0
    fi
    case $(cat "$1") in
        "$2" | *"[$2]"*) return 0 ;;
    esac
    printf '%s\n' "$2" >"$1" || failed "$1 does not take $2"
}

# keep PATH: make standard input the content of a file; true where it was not
keep() {
    mkdir -p "$(dirname "$1")"
    (umask 077 && cat >"$1.new")
    if cmp -s "$1.new" "$1"; then
        rm "$1.new"
        return 1
    fi
    mv "$1.new" "$1"
}

# run COMMAND...: go on where it fails, and end with status 1
run() {
    "$@" || failed "$* failed"
}

if [ "$(id -u)" != 0 ]; then
    failed 'only root may do this'
    exit 1
fi
"""


class _Lasting:
    """What is kept across boots, by file: lines in the order of the changes."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}
        self.kargs: list[Item] = []

    def add(self, path: str, line: str) -> None:
        self.lines.setdefault(path, []).append(parts.one_line(line))


def render(plan: Plan) -> str:
    lasting = _Lasting()
    done, left = expressed(plan, _makers(lasting))
    body: list[str] = []
    for change, lines in done:
        body += ["", f"# {purpose(change)}", *lines]
    lines = ["#!/bin/sh", *heading("A script"), *left_out(left), _FUNCTIONS.strip("\n"), *body]
    for path, content in lasting.lines.items():
        lines += ["", *_keep(path, "\n".join([*heading(_HOLDS[path]), *content]), _AFTER.get(path, []))]
    if lasting.kargs:
        lines += ["", *_keep(parts.GRUB_D, parts.grub_drop_in(lasting.kargs), ["run update-grub"])]
    return "\n".join([*lines, "", 'exit "$status"']) + "\n"


_HOLDS = {
    parts.SYSCTL_D: "Sysctls",
    parts.TMPFILES_D: "Attributes that are set at boot",
    parts.UDEV: "Attributes that are set when their device appears",
    parts.MODPROBE_D: "Options of modules",
}
_AFTER = {parts.UDEV: ["run udevadm control --reload"]}


def _keep(path: str, content: str, after: list[str], mode: int = 0o644) -> list[str]:
    mark = "END"
    while mark in content.split("\n"):
        mark += "_"
    lines = [f"if keep {quote(path)} <<'{mark}'", content, mark, "then", f"    chmod {mode:o} {quote(path)}"]
    return [*lines, *(f"    {line}" for line in after), "fi"]


def _makers(lasting: _Lasting) -> dict[str, Callable[[PlannedChange], list[str]]]:
    def sysctl(change: PlannedChange) -> list[str]:
        from hwtune.changes.targets import sysctl_path

        key, value = change.change.key, change.change.value
        lasting.add(parts.SYSCTL_D, f"{key} = {value}")
        return [f"put {quote(sysctl_path(key))} {quote(value)}"]

    def attribute(change: PlannedChange) -> list[str]:
        lines = [f"put {quote(path)} {quote(value)}" for path, value in attributes(change)]
        udev = [i for i in change.items if i.store == "udev"]
        for item in udev:
            lasting.add(parts.UDEV, f'ACTION=="add|change", {item.key}="{item.value}"')
        if not udev:
            for path, value in attributes(change):
                lasting.add(parts.TMPFILES_D, parts.tmpfile(path, value))
        return lines

    def irq(change: PlannedChange) -> list[str]:
        # numbers of interrupts change from boot to boot, so that it is for this one alone
        return [f"put {quote(parts.irq_path(change))} {format_list(change.change.cpus)}"]

    def irqbalance(change: PlannedChange) -> list[str]:
        after = ["run systemctl daemon-reload", "run systemctl try-restart irqbalance.service"]
        return [
            line for path, content in parts.irqbalance_files(change) for line in _keep(path, content, after)
        ]

    def kargs(change: PlannedChange) -> list[str]:
        items = [i for i in change.items if i.store == "kargs"]
        if items:
            lasting.kargs += items
            return [f"# in {parts.GRUB_D}, from the next boot on"]
        lines = []
        for backend, names, texts in parts.loader_arguments(change):
            if backend != "grubby":
                raise LeftOutError(f"a script had better not edit the entries of {backend}")
            # an argument of the name goes whatever it says: grubby only replaces equal ones
            lines.append(f"run grubby --update-kernel=ALL --remove-args={quote(' '.join(names))}")
            if texts:
                lines.append(f"run grubby --update-kernel=ALL --args={quote(' '.join(texts))}")
        return lines

    def module(change: PlannedChange) -> list[str]:
        c = change.change
        lasting.add(parts.MODPROBE_D, f"options {c.module} {c.option}={c.value}")
        return ["# from the next boot on; where the initramfs loads the module, it has to be built anew"]

    def unit(change: PlannedChange) -> list[str]:
        verb = {"started": "enable --now", "stopped": "disable --now", "masked": "mask --now"}
        return [f"run systemctl {verb[change.change.state]} {quote(change.change.unit)}"]

    def partition(change: PlannedChange) -> list[str]:
        name = change.change.name.removesuffix(".slice").replace("-", "_") + ".slice"
        cpus = format_list(change.change.cpus)
        return [
            f"run systemctl start {quote(name)}",
            f"run systemctl set-property --runtime {quote(name)} AllowedCPUs={cpus}",
            f"put {quote(f'/sys/fs/cgroup/{name}/cpuset.cpus.partition')} isolated",
        ]

    def nic(change: PlannedChange) -> list[str]:
        letter = {"coalesce": "-C", "rings": "-G", "channels": "-L", "features": "-K", "pause": "-A"}
        words = [quote(word) for pair in change.change.values for word in pair]
        command = ["ethtool", letter[change.change.group], quote(change.change.interface), *words]
        # 80: older versions say so when there is nothing to change
        return [f"{' '.join(command)} || [ $? = 80 ] || failed {quote(change.target)}"]

    def gpu(change: PlannedChange) -> list[str]:
        option = {
            "persistence": "-pm {}",
            "locked-clocks": "-lgc {}",
            "compute-mode": "-c {}",
        }.get(change.change.setting)
        value = change.change.value
        if change.change.setting == "power-limit":
            option, value = "-pl {}", f"{int(value) / 1000:g}"
        if option is None:
            raise LeftOutError(f"nvidia-smi has no {change.change.setting}")
        value = value.upper() if change.change.setting == "compute-mode" else value
        return [f"run nvidia-smi -i {quote(change.change.gpu)} {option.format(quote(value))}"]

    def file(change: PlannedChange) -> list[str]:
        content = change.change.content
        if not content.endswith("\n") or "\0" in content:
            raise LeftOutError("a here-document cannot hold its end")
        return _keep(change.change.path, content[:-1], [], change.change.mode)

    def latency(change: PlannedChange) -> list[str]:
        raise LeftOutError("the request lives as long as a process holds it, which a script does not")

    return {
        "sysctl": sysctl,
        "sysfs": attribute,
        "nvme-latency-tolerance": attribute,
        "irq-affinity": irq,
        "irq-default-affinity": attribute,
        "irqbalance-ban": irqbalance,
        "kernel-arguments": kargs,
        "module-option": module,
        "unit": unit,
        "cpuset-partition": partition,
        "cpu-latency": latency,
        "nic": nic,
        "gpu": gpu,
        "file": file,
    }
