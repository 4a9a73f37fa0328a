"""Tasks for Ansible: `ansible.builtin.include_tasks` takes the file. Of its collections, ansible.posix
is needed for sysctls."""

from __future__ import annotations

import json
from shlex import quote
from typing import TYPE_CHECKING, Any

from hwtune.changes.export import parts
from hwtune.changes.export.parts import LeftOutError, attributes, expressed, heading, left_out, purpose
from hwtune.text.cpulist import format_list

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hwtune.changes.plan import Plan, PlannedChange
    from hwtune.changes.stores import Item

Task = dict[str, Any]
# Writes a value unless it is there, and says so; a choice shows itself in brackets.
_PUT = 'case $(cat "$0") in "$1" | *"[$1]"*) ;; *) printf "%s\\n" "$1" >"$0" && echo changed ;; esac'


class _Lasting:
    """What is kept across boots, by file."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}
        self.kargs: list[Item] = []
        self.purposes: dict[str, list[str]] = {}

    def add(self, path: str, line: str, change: PlannedChange) -> None:
        self.lines.setdefault(path, []).append(parts.one_line(line))
        self.why(path, change)

    def why(self, path: str, change: PlannedChange) -> None:
        comments = self.purposes.setdefault(path, [])
        if f"# {purpose(change)}" not in comments:
            comments.append(f"# {purpose(change)}")


def render(plan: Plan) -> str:
    lasting = _Lasting()
    done, left = expressed(plan, _makers(lasting))
    tasks: list[tuple[list[str], Task]] = []
    for change, made in done:
        for number, task in enumerate(made, 1):
            name = purpose(change) + (f" ({number})" if len(made) > 1 else "")
            tasks.append(([], {"name": name, **{k: v for k, v in task.items() if k != "name"}}))
    for path, lines in lasting.lines.items():
        name = f"Keep {_HOLDS[path][0].lower()}{_HOLDS[path][1:]}"
        tasks += _explained(lasting.purposes[path], _file(name, path, lines, _AFTER.get(path)))
    if lasting.kargs:
        lines = parts.grub_drop_in(lasting.kargs).split("\n")
        made = _file("Keep the kernel arguments", parts.GRUB_D, lines, ["update-grub"], headed=True)
        tasks += _explained(lasting.purposes[parts.GRUB_D], made)
    text = ["---", *heading("Tasks for Ansible"), *left_out(left)]
    for comments, task in tasks:
        text += ["", *comments, *_item(task)]
    return "\n".join(text if tasks else [*text, "", "[]"]) + "\n"


def _explained(comments: list[str], tasks: list[Task]) -> list[tuple[list[str], Task]]:
    return [(comments if n == 0 else [], task) for n, task in enumerate(tasks)]


_HOLDS = {
    parts.TMPFILES_D: "Attributes that are set at boot",
    parts.UDEV: "Attributes that are set when their device appears",
    parts.MODPROBE_D: "Options of modules",
}
_AFTER = {parts.UDEV: ["udevadm", "control", "--reload"]}


def _file(
    name: str,
    path: str,
    lines: list[str],
    after: list[str] | None = None,
    headed: bool = False,
    mode: str = "0644",
) -> list[Task]:
    """A file, and a command that is run when it changed."""
    content = "\n".join([*([] if headed else heading(_HOLDS.get(path, "A file"))), *lines]) + "\n"
    variable = "hwtune_" + "".join(c if c.isalnum() else "_" for c in path.rpartition("/")[2])
    folder: Task = {
        "name": f"{name} (its folder)",
        "ansible.builtin.file": {"path": path.rpartition("/")[0], "state": "directory", "mode": "0755"},
    }
    copy: Task = {
        "name": name,
        "ansible.builtin.copy": {"dest": path, "content": _literal(content), "mode": mode},
        "register": variable,
    }
    if after is None:
        return [folder, copy]
    notice: Task = {
        "name": f"{name} (let the system take notice)",
        "ansible.builtin.command": {"argv": after},
        "changed_when": True,
        "when": f"{variable} is changed",
    }
    return [folder, copy, notice]


def _shell(script: str, *arguments: str) -> Task:
    return {
        "ansible.builtin.command": {"argv": ["/bin/sh", "-c", script, *map(_literal, arguments)]},
        "register": "hwtune_said",
        "changed_when": "'changed' in hwtune_said.stdout",
    }


def _put(path: str, value: str) -> Task:
    return _shell(_PUT, path, value)


def _literal(text: str) -> str:
    """Ansible reads every text as a template."""
    if "{{" in text or "{%" in text or "{#" in text:
        if "endraw" in text:
            raise LeftOutError("Ansible would take it for a template")
        return "{% raw %}" + text + "{% endraw %}"
    return text


def _makers(lasting: _Lasting) -> Mapping[str, Callable[[PlannedChange], list[Task]]]:
    def sysctl(change: PlannedChange) -> list[Task]:
        settings = {
            "name": change.change.key,
            "value": _literal(change.change.value),
            "sysctl_file": parts.SYSCTL_D,
            "sysctl_set": True,
            "reload": False,
        }
        return [{"ansible.posix.sysctl": settings}]

    def attribute(change: PlannedChange) -> list[Task]:
        udev = [i for i in change.items if i.store == "udev"]
        for item in udev:
            lasting.add(parts.UDEV, f'ACTION=="add|change", {item.key}="{item.value}"', change)
        if not udev:
            for path, value in attributes(change):
                lasting.add(parts.TMPFILES_D, parts.tmpfile(path, value), change)
        return [_put(path, value) for path, value in attributes(change)]

    def irq(change: PlannedChange) -> list[Task]:
        return [_put(parts.irq_path(change), format_list(change.change.cpus))]

    def irqbalance(change: PlannedChange) -> list[Task]:
        tasks: list[Task] = []
        for path, content in parts.irqbalance_files(change):
            tasks += _file("ban", path, content.split("\n"), headed=True)
        changed = [t["register"] for t in tasks if "register" in t]
        settings = {"name": "irqbalance.service", "state": "restarted", "daemon_reload": True}
        when = " or ".join(f"{name} is changed" for name in changed)
        return [*tasks, {"ansible.builtin.systemd_service": settings, "when": when}]

    def kargs(change: PlannedChange) -> list[Task]:
        items = [i for i in change.items if i.store == "kargs"]
        if items:
            lasting.kargs += items
            lasting.why(parts.GRUB_D, change)
            return []
        tasks = []
        for backend, names, texts in parts.loader_arguments(change):
            if backend != "grubby":
                raise LeftOutError(f"a task had better not edit the entries of {backend}")
            wanted, gone = " ".join(texts), " ".join(names)
            script = (
                "before=$(grubby --info=ALL) && "
                f"grubby --update-kernel=ALL --remove-args={quote(gone)} && "
                + (f"grubby --update-kernel=ALL --args={quote(wanted)} && " if wanted else "")
                + '{ [ "$before" = "$(grubby --info=ALL)" ] || echo changed; }'
            )
            tasks.append(_shell(script))
        return tasks

    def module(change: PlannedChange) -> list[Task]:
        c = change.change
        lasting.add(parts.MODPROBE_D, f"options {c.module} {c.option}={c.value}", change)
        return []

    def unit(change: PlannedChange) -> list[Task]:
        state = change.change.state
        settings: Task = {"name": change.change.unit, "state": "started" if state == "started" else "stopped"}
        if state == "masked":
            settings["masked"] = True
        else:
            settings["enabled"] = state == "started"
        return [{"ansible.builtin.systemd_service": settings}]

    def nic(change: PlannedChange) -> list[Task]:
        group, interface = change.change.group, change.change.interface
        show, letter = {
            "coalesce": ("-c", "-C"), "rings": ("-g", "-G"), "channels": ("-l", "-L"),
            "features": ("-k", "-K"), "pause": ("-a", "-A"),
        }[group]  # fmt: skip
        words = " ".join(quote(word) for pair in change.change.values for word in pair)
        name = quote(interface)
        # 80: older versions say so when there is nothing to change
        script = (
            f"before=$(ethtool {show} {name}) && {{ ethtool {letter} {name} {words} || [ $? = 80 ]; }} && "
            f'{{ [ "$before" = "$(ethtool {show} {name})" ] || echo changed; }}'
        )
        return [_shell(script)]

    def file(change: PlannedChange) -> list[Task]:
        content = change.change.content
        if not content.endswith("\n"):
            raise LeftOutError("its last line has no end")
        return _file(
            "file", change.change.path, content[:-1].split("\n"), None, True, f"{change.change.mode:04o}"
        )

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
        "nic": nic,
        "file": file,
    }


# -- YAML --------------------------------------------------------------------------------------


def _item(task: Task) -> list[str]:
    lines = _mapping(task)
    return [("- " if n == 0 else "  ") + line if line else "" for n, line in enumerate(lines)]


def _mapping(values: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for key, value in values.items():
        if isinstance(value, dict):
            lines += [f"{key}:", *(f"  {line}" if line else "" for line in _mapping(value))]
        elif isinstance(value, list):
            lines += [f"{key}:", *(f"  - {_scalar(v)}" for v in value)]
        elif isinstance(value, str) and "\n" in value and _fits_block(value):
            lines += [f"{key}: |", *(f"  {line}" if line else "" for line in value[:-1].split("\n"))]
        else:
            lines.append(f"{key}: {_scalar(value)}")
    return lines


def _fits_block(value: str) -> bool:
    """Whether a literal block gives the text back: it ends with one newline, and its first line tells
    the indentation."""
    plain = all(c.isprintable() or c in "\n\t" for c in value)
    return (
        plain
        and value.endswith("\n")
        and not value.endswith("\n\n")
        and not value.startswith((" ", "\n", "\t"))
    )


def _scalar(value: Any) -> str:
    """JSON's scalars are YAML's."""
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, bool) else str(value).lower()
