"""What the forms have in common: the order of a plan, its heading, and what is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune import __version__
from hwtune.changes.plan import TO_DO
from hwtune.changes.targets import Attribute, LoaderArgument
from hwtune.report.clean import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hwtune.changes.plan import Plan, PlannedChange
    from hwtune.changes.stores import Item

# Where the other tool keeps things: names that come last among their like, and are not hwtune's own,
# so that both may be used one after the other.
SYSCTL_D = "/etc/sysctl.d/99-zz-latency.conf"
TMPFILES_D = "/etc/tmpfiles.d/zz-latency.conf"
UDEV = "/etc/udev/rules.d/99-zz-latency.rules"
MODPROBE_D = "/etc/modprobe.d/zz-latency.conf"
GRUB_D = "/etc/default/grub.d/zz-latency.cfg"


class LeftOutError(Exception):
    """This form cannot express a change; the message says why."""


def expressed(
    plan: Plan, makers: Mapping[str, Callable[[PlannedChange], Any]]
) -> tuple[list[tuple[PlannedChange, Any]], list[str]]:
    """What the makers (by kind) make of the changes, and a line for each change that is left out."""
    done: list[tuple[PlannedChange, Any]] = []
    left: list[str] = []
    for change in plan.changes:
        if change.status != TO_DO:
            if change.reason and change.status != "in-force":
                left.append(f"{change.description}: {change.reason}")
            continue
        maker = makers.get(change.kind)
        try:
            if maker is None:
                raise LeftOutError("this form has no way to say it")
            done.append((change, maker(change)))
        except LeftOutError as error:
            left.append(f"{change.description}: {error}")
    return done, left


def heading(form: str) -> list[str]:
    return [
        f"# {form}, written by hwtune {__version__} (`hwtune apply --export`) for the machine it ran on.",
        "# What is set by it is not in hwtune's journal: `hwtune revert` does not put it back.",
    ]


def left_out(lines: list[str]) -> list[str]:
    """Comments that name what is not in the file."""
    if not lines:
        return []
    return ["# Left out:", *(f"#   {clean(line)}" for line in lines)]


def purpose(change: PlannedChange) -> str:
    """The rows that ask for a change, and the change in words."""
    return clean(f"{', '.join(change.rows)}: {change.description}")


def attributes(change: PlannedChange) -> Iterator[tuple[str, str]]:
    """The paths below /sys and /proc that a change writes, with their values."""
    for planned in change.targets:
        if not isinstance(planned.target, Attribute):
            raise LeftOutError("it is more than a value in a file")
        value = one_line(planned.after)
        if planned.target.form == "mask":
            value = _as_shown(value, str(planned.before))
        yield planned.target.path, value


def _as_shown(mask: str, before: str) -> str:
    """A mask with the leading zeros and commas with which the kernel shows it, so that a comparison of
    texts finds it equal."""
    digits = f"{int(mask.replace(',', ''), 16):x}".rjust(len(before.replace(",", "")), "0")
    groups = [digits[max(0, end - 8) : end] for end in range(len(digits), 0, -8)]
    return ",".join(reversed(groups)) if "," in before else digits


def irq_path(change: PlannedChange) -> str:
    return f"/proc/irq/{change.change.irq}/smp_affinity_list"


def grub_drop_in(items: Sequence[Item]) -> str:
    """The drop-in for GRUB as Debian configures it, under a heading of this export's."""
    from hwtune.changes.persist import grub_d
    from hwtune.changes.stores import render_template

    text = grub_d.content(items).removeprefix(render_template("header.j2"))
    return "\n".join([*heading("A drop-in for GRUB"), text.strip("\n")])


def loader_arguments(change: PlannedChange) -> list[tuple[str, list[str], list[str]]]:
    """Of a loader that is told by a tool: (tool, names, arguments)."""
    found = []
    for planned in change.targets:
        if isinstance(planned.target, LoaderArgument):
            found.append((planned.target.backend, planned.target.names, planned.after["all"]))
    if not found:
        raise LeftOutError("no boot loader is known that would take it")
    return found


# A drop-in names one more environment file of irqbalance's unit; of a variable in two, the later counts.
IRQBALANCE_ENV = "/etc/default/irqbalance-latency"
IRQBALANCE_UNIT = "/etc/systemd/system/irqbalance.service.d/zz-latency.conf"


def irqbalance_files(change: PlannedChange) -> list[tuple[str, str]]:
    from hwtune.text.cpulist import format_list

    environment = f"IRQBALANCE_BANNED_CPUS=\nIRQBALANCE_BANNED_CPULIST={format_list(change.change.cpus)}"
    files = ((IRQBALANCE_ENV, environment), (IRQBALANCE_UNIT, f"[Service]\nEnvironmentFile={IRQBALANCE_ENV}"))
    return [(path, "\n".join([*heading("CPUs that irqbalance leaves alone"), text])) for path, text in files]


def tmpfile(path: str, value: str) -> str:
    """A line of tmpfiles.d(5) that writes an attribute at boot, if it is there."""
    if any(c.isspace() for c in path):
        raise LeftOutError("a path with white space")
    return f"w {path.replace('%', '%%')} - - - - {value.replace('%', '%%')}"


def one_line(text: str) -> str:
    if "\n" in text or not text.isprintable():
        raise LeftOutError("it has characters that the form cannot hold")
    return text
