"""Boot arguments that wait for a boot, contradict each other or do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes import KernelArguments
from hwtune.diagnosis import Verdict, evidence
from hwtune.diagnosis.row import row
from hwtune.model.kernel import KernelArgument
from hwtune.remediations import _arguments
from hwtune.remediations._common import fix, plural
from hwtune.text.cmdline import LENGTH_LIMITS, parse

if TYPE_CHECKING:
    from hwtune.diagnosis import Evidence
    from hwtune.model import Machine
    from hwtune.profile import Profile

PARAMETERS = "Documentation/admin-guide/kernel-parameters.txt"
_CONTAINER = "a container boots no kernel: look at its host"
_MOST = 8


def _texts(arguments: list[KernelArgument]) -> str:
    shown = " ".join(a.text for a in arguments[:_MOST])
    return f"{shown} ... ({len(arguments)})" if len(arguments) > _MOST else shown


def _subject(arguments: list[KernelArgument]) -> str:
    names = {a.name for a in arguments}
    return f"karg:{arguments[0].name}" if len(names) == 1 else "kernel"


# -- args-pending ----------------------------------------------------------------------------------


@row(
    "kernel.args-pending",
    title="The running kernel has the arguments that are configured",
    symptom="A boot argument that was set does nothing, or one that works is gone after the next boot.",
    cause=(
        "Boot arguments are in force from a boot on, and most loaders take them from a generated file: what "
        "was configured and not generated, or generated and not booted, has no effect yet."
    ),
    severity="warning",
    scope="boot",
    risk="A reboot.",
    cost="None.",
    sources=(
        "GRUB manual (Simple configuration; GRUB_CMDLINE_LINUX)",
        "grub-mkconfig and its 10_linux",
        "uapi-group.org Boot Loader Specification",
        "kernel-install(8)",
    ),
)
def args_pending(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    kernel = machine.kernel
    if machine.virtualization.is_container:
        return verdict.not_applicable(_CONTAINER)
    loader = kernel.boot_loader
    if loader.absent:
        return verdict.not_applicable("no boot loader is configured here: the kernel is started from outside")
    if not loader.known or not kernel.arguments.known:
        return verdict.unknown("kernel", *(f for f in (loader, kernel.arguments) if not f.known))
    if loader.get().startswith("grub") and not kernel.has_argument("BOOT_IMAGE"):
        return verdict.not_applicable(
            "the running kernel was not started by GRUB, which would have given it BOOT_IMAGE="
        )
    _next_boot(verdict, machine)
    _not_generated(verdict, machine)
    return verdict


def _next_boot(verdict: Verdict, machine: Machine) -> None:
    kernel = machine.kernel
    planned = kernel.next_cmdline.map(parse)
    if not planned.known:
        verdict.unknown("kernel", planned)
        return
    running = [a for a in kernel.arguments.get() if a.name not in _arguments.OF_THE_LOADER]
    open_ends = [a for a in planned.get() if "$" in a.text and a.text != "$vt_handoff"]
    coming = [
        KernelArgument(*a)
        for a in planned.get()
        if a.name not in _arguments.OF_THE_LOADER and "$" not in a.text
    ]
    here, there = {(a.name, a.value) for a in running}, {(a.name, a.value) for a in coming}
    new = [a for a in coming if (a.name, a.value) not in here]
    gone = [a for a in running if (a.name, a.value) not in there]
    changed = {a.name for a in new} & {a.name for a in gone}
    if new:
        verdict.finding(
            _subject(new),
            f"The next boot will have {plural(len(new), 'argument')} that the running kernel has not.",
            evidence(planned.source, _texts(new)),
            *_opposite(machine, [a for a in gone if a.name in changed], new),
            advice="Reboot to bring them into force.",
            severity=_severity(new),
        )
    lost = [a for a in gone if a.name not in changed]
    if lost and not open_ends:
        tuning = [a.text for a in lost if _arguments.tunes(a.name)]
        verdict.finding(
            _subject(lost),
            f"The next boot will not have {plural(len(lost), 'argument')} of the running kernel.",
            evidence(kernel.arguments.source, _texts(lost)),
            evidence(planned.source, "not in it", _texts(lost)),
            changes=[KernelArguments(set=tuple(tuning))] if tuning else (),
            advice="" if tuning else "Configure them in the boot loader, or let them go.",
            severity=_severity(lost),
        )
    if not new and not (lost and not open_ends):
        verdict.ok(evidence(planned.source, "as running"))


def _opposite(machine: Machine, gone: list[KernelArgument], new: list[KernelArgument]) -> list[Evidence]:
    source = machine.kernel.arguments.source
    if gone:
        return [evidence(source, _texts(gone), _texts(new))]
    return [evidence(source, "not in it", _texts(new))]


def _severity(arguments: list[KernelArgument]) -> str:
    return "warning" if any(_arguments.tunes(a.name) for a in arguments) else "info"


def _not_generated(verdict: Verdict, machine: Machine) -> None:
    """What the loader's source files hold and its generated files do not."""
    kernel = machine.kernel
    configured, planned = kernel.configured_arguments, kernel.next_cmdline
    if configured.absent:
        return
    if not configured.known:
        verdict.unknown("kernel", configured)
        return
    if not planned.known:
        return
    generated = {(a.name, a.value) for a in parse(planned.get())}
    missing = [a for a in configured.get() if "$" not in a.text and (a.name, a.value) not in generated]
    if not missing:
        verdict.ok(evidence(configured.source, "all generated"))
        return
    verdict.finding(
        _subject(missing),
        f"The configuration holds {plural(len(missing), 'argument')} that the generated entry has not: the "
        "next boot will go without.",
        evidence(configured.source, _texts(missing)),
        evidence(planned.source, "not in it", _texts(missing)),
        advice=_regenerate(machine),
        severity=_severity(missing),
    )


def _regenerate(machine: Machine) -> str:
    kernel = machine.kernel
    if kernel.boot_loader.value == "grub":
        where = kernel.next_cmdline.source.partition(",")[0]
        if where == "/boot/grub/grub.cfg":
            return "Run update-grub (or grub-mkconfig -o /boot/grub/grub.cfg)."
        return f"Run grub2-mkconfig -o {where}."
    return "Run kernel-install add for the kernel, which writes its entry anew."


# -- args-duplicate ----------------------------------------------------------------------------------


@row(
    "kernel.args-duplicate",
    title="No boot argument is given twice",
    symptom="A boot argument was changed and the old value is still in force, or the new one only by luck.",
    cause="For most arguments the last one wins; two tools that each add their own hide each other's.",
    severity="warning",
    scope="boot",
    risk="As the argument that is dropped.",
    cost="None.",
    sources=("kernel/params.c (parse_args calls each argument in its order)", PARAMETERS),
)
def args_duplicate(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    arguments = machine.kernel.arguments
    if not arguments.known:
        return verdict.unknown("kernel", arguments)
    groups: dict[str, list[KernelArgument]] = {}
    for argument in arguments.get():
        if not _arguments.may_repeat(argument.name):
            groups.setdefault(argument.name, []).append(argument)
    repeated = [group for group in groups.values() if len(group) > 1]
    for group in repeated:
        _duplicate(verdict, machine, group)
    if not repeated:
        verdict.ok(evidence(arguments.source, f"{len(arguments.get())} arguments, none of them twice"))
    return verdict


def _duplicate(verdict: Verdict, machine: Machine, group: list[KernelArgument]) -> None:
    last = group[-1]
    given = evidence(machine.kernel.arguments.source, " ... ".join(a.text for a in group[-_MOST:]), last.text)
    mend = fix(machine, KernelArguments(set=(last.text,)))
    if len({a.value for a in group}) == 1:
        verdict.finding(
            f"karg:{last.name}",
            f"{last.text} is given {_times(len(group))}, each time alike: two tools or files add it.",
            given,
            severity="info",
            **mend,
        )
        return
    verdict.finding(
        f"karg:{last.name}",
        f"{last.name} is given {_times(len(group))} with different values; {last.text} is in force.",
        given,
        **mend,
    )


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


# -- cmdline-length ----------------------------------------------------------------------------------


@row(
    "kernel.cmdline-length",
    title="The command line is not cut off",
    symptom="The last boot arguments are missing or end in the middle.",
    cause="The kernel keeps COMMAND_LINE_SIZE bytes of its command line and drops the rest without a word.",
    severity="error",
    scope="boot",
    risk="None.",
    cost="None.",
    sources=("arch/x86/include/asm/setup.h, arch/arm64/include/uapi/asm/setup.h (COMMAND_LINE_SIZE)",),
)
def cmdline_length(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    cmdline, architecture = machine.kernel.cmdline, machine.kernel.architecture
    if not cmdline.known:
        return verdict.unknown("kernel", cmdline)
    if not architecture.known:
        return verdict.unknown("kernel", architecture)
    limit = LENGTH_LIMITS.get(architecture.get())
    if limit is None:
        return verdict.not_applicable(
            f"how long a command line may be is set when a kernel for {architecture.get()} is built"
        )
    length = len(cmdline.get().encode("utf-8", "replace"))
    # What /proc/cmdline ends with may have been white space, which does not count here.
    if length >= limit - 2:
        return verdict.finding(
            "kernel",
            f"The command line has {length} bytes, all that this kernel keeps: what followed is lost.",
            evidence(cmdline.source, f"{length} bytes", f"less than {limit - 2}"),
            advice="Shorten CPU lists to ranges and drop arguments that do nothing.",
        )
    following = machine.kernel.next_cmdline
    if following.known and len(following.get().encode("utf-8", "replace")) >= limit - 1:
        return verdict.finding(
            "kernel",
            "The command line of the next boot is longer than the kernel keeps: its end will be lost.",
            evidence(following.source, f"{len(following.get())} bytes", f"less than {limit - 1}"),
            advice="Shorten CPU lists to ranges and drop arguments that do nothing.",
        )
    return verdict.ok(evidence(cmdline.source, f"{length} bytes", f"less than {limit}"))
