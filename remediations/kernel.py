"""Boot arguments that contradict each other, do nothing or wait for a boot; lockdown and taint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes import KernelArguments
from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.model.kernel import KernelArgument
from hwtune.remediations import _arguments
from hwtune.remediations._common import fix, plural
from hwtune.text.cmdline import LENGTH_LIMITS, canonical, parse

if TYPE_CHECKING:
    from hwtune.diagnosis import Evidence
    from hwtune.fact import Fact
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
        if not _may_repeat(argument.name):
            groups.setdefault(argument.name, []).append(argument)
    repeated = [group for group in groups.values() if len(group) > 1]
    for group in repeated:
        _duplicate(verdict, machine, group)
    if not repeated:
        verdict.ok(evidence(arguments.source, f"{len(arguments.get())} arguments, none of them twice"))
    return verdict


def _may_repeat(name: str) -> bool:
    return name in _arguments.REPEATABLE or name in _arguments.HARMLESS or _arguments.of_user_space(name)


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


# -- args-ignored -----------------------------------------------------------------------------------


@row(
    "kernel.args-ignored",
    title="Boot arguments do what they are there for",
    symptom="The command line looks tuned and the machine behaves as if it were not.",
    cause=(
        "The kernel passes over what it does not know or was not built for without stopping; and some "
        "arguments of old recipes have lost their effect, or never had the one that is ascribed to them."
    ),
    severity="warning",
    scope="boot",
    risk="None: what is dropped had no effect.",
    cost="None.",
    sources=(
        "init/main.c (print_unknown_bootoptions)",
        f"{PARAMETERS} (pcie_aspm, processor.max_cstate, intel_idle.max_cstate, idle)",
        "block/elevator.c (elevator_setup)",
        "Documentation/admin-guide/pm/cpuidle.rst",
    ),
)
def args_ignored(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    arguments = machine.kernel.arguments
    if not arguments.known:
        return verdict.unknown("kernel", arguments)
    _unknown_to_kernel(verdict, machine)
    _refused(verdict, machine)
    _moot_idle(verdict, machine)
    _aspm_off(verdict, machine)
    _elevator(verdict, machine)
    _no_hugepages(verdict, machine)
    if not verdict.findings:
        unknown = machine.kernel.unknown_parameters
        if unknown.known or unknown.absent:
            verdict.ok(evidence(arguments.source, "no argument known to be without effect"))
        else:
            verdict.unknown("kernel", unknown)
    return verdict


def _unknown_to_kernel(verdict: Verdict, machine: Machine) -> None:
    """Tuning that the kernel said it does not know. Most of what it lists is meant for others
    (init, the initramfs, the loader), so only names of the kernel's own count, and near misses."""
    kernel = machine.kernel
    unknown = kernel.unknown_parameters
    # A line of the log is 1 KiB at most; a pasted one may be anything.
    given = parse(" ".join(unknown.get()[:200])) if unknown.known else []
    ignored = [a for a in given if _arguments.misses(a.name, a.value)]
    if ignored:
        names = list(dict.fromkeys(a.name for a in ignored))
        verdict.finding(
            f"karg:{names[0]}" if len(names) == 1 else "kernel",
            f"The kernel ignores {' and '.join(n + '=' for n in names)}: it was built without "
            f"{'it' if len(names) == 1 else 'them'}, or cannot read the value.",
            evidence(unknown.source, f"unknown: {' '.join(a.text for a in ignored)}", "not unknown"),
            *_reasons(machine, names),
            advice=_needs(names),
        )
    for argument in given:
        meant = _misspelt(argument.name)
        if meant:
            verdict.finding(
                f"karg:{argument.name}",
                f"The kernel knows no {argument.name}; {meant} may be meant.",
                evidence(unknown.source, argument.text, meant),
                advice=f"Correct {argument.name} in the boot loader's configuration.",
            )


def _reasons(machine: Machine, names: list[str]) -> list[Evidence]:
    found = [
        evidence(line.source, line.text)
        for line in machine.kernel.log
        if line.text.startswith(("Housekeeping: ", "NO_HZ: "))
    ]
    config = machine.kernel.config
    for name, option in _OPTIONS.items():
        if name in names and config.known and config.get().get(option) == "n":
            found.append(evidence(config.source, f"{option} is not set", f"{option}=y"))
    return found[:_MOST]


_OPTIONS = {
    "nohz_full": "CONFIG_NO_HZ_FULL",
    "rcu_nocbs": "CONFIG_RCU_NOCB_CPU",
    "isolcpus": "CONFIG_CPU_ISOLATION",
}


def _needs(names: list[str]) -> str:
    options = [f"{_OPTIONS[n]}=y" for n in names if n in _OPTIONS]
    if options:
        return f"Boot a kernel built with {' and '.join(options)}, or drop the arguments."
    return "Drop the argument, or boot a kernel that has it."


def _misspelt(name: str) -> str:
    """The tuning argument that a name is a slip of: one letter missing, added, wrong or in the
    wrong place. Short names are too near to others to tell."""
    if len(name) < 5 or name in _arguments.TUNING or _may_repeat(name):
        return ""
    from difflib import get_close_matches

    long_names = [n for n in sorted(_arguments.TUNING) if len(n) >= 5]
    near = get_close_matches(name, long_names, n=1, cutoff=0.85)
    return near[0] if near and abs(len(near[0]) - len(name)) <= 2 else ""


def _refused(verdict: Verdict, machine: Machine) -> None:
    """Values that the kernel's log says it could not read."""
    for line in machine.kernel.log:
        text = line.text
        if text.startswith("Malformed early option '"):
            name = canonical(text.partition("'")[2].partition("'")[0])
            if not name:
                continue
            given = [a.text for a in machine.kernel.arguments.get() if a.name == name]
            verdict.finding(
                f"karg:{name}",
                f"The kernel could not read the value of {name}= and passed over it.",
                evidence(line.source, text),
                *(evidence(machine.kernel.arguments.source, t) for t in given),
                advice=f"Correct the value of {name}= in the boot loader's configuration.",
            )
        elif text.startswith("Booting kernel: ") and "invalid for parameter" in text:
            name = canonical(text.partition("parameter `")[2].rstrip("'"))
            verdict.finding(
                f"karg:{name}" if name else "kernel",
                f"The kernel refused a value of {name or 'an argument'}.",
                evidence(line.source, text),
                advice="Correct the value in the boot loader's configuration.",
            )


def _last(machine: Machine, name: str) -> KernelArgument | None:
    found = [a for a in machine.kernel.arguments.get() if a.name == name]
    return found[-1] if found else None


def _moot_idle(verdict: Verdict, machine: Machine) -> None:
    """Limits of idle states on a machine that never enters one; and the limit that is none."""
    source = machine.kernel.arguments.source
    idle = _last(machine, "idle")
    both = (_last(machine, "intel_idle.max_cstate"), _last(machine, "processor.max_cstate"))
    limits = [a for a in both if a is not None]
    if idle is not None and idle.value == "poll":
        if limits:
            verdict.finding(
                f"karg:{limits[0].name}" if len(limits) == 1 else "karg:idle",
                f"{' and '.join(a.text for a in limits)}: nothing is left to limit. Under idle=poll no CPU "
                "enters an idle state.",
                evidence(source, " ".join(a.text for a in (idle, *limits)), "one of the two"),
                severity="info",
                **fix(machine, KernelArguments(remove=tuple(a.name for a in limits))),
            )
        return
    intel, acpi = both
    driver = machine.cpus.idle_driver
    taken_over = driver.known and driver.get() == "acpi_idle"
    if intel is not None and intel.value == "0" and acpi is None and taken_over:
        verdict.finding(
            "karg:intel_idle.max_cstate",
            "intel_idle.max_cstate=0 does not keep CPUs in C0: it turns the driver off, and acpi_idle took "
            "over with the states that the firmware offers.",
            evidence(source, intel.text, "intel_idle.max_cstate=1"),
            fact_evidence(driver, "intel_idle"),
            severity="info",
            **fix(machine, KernelArguments(set=("intel_idle.max_cstate=1",))),
        )


def _aspm_off(verdict: Verdict, machine: Machine) -> None:
    aspm = _last(machine, "pcie_aspm")
    if aspm is not None and aspm.value == "off":
        verdict.finding(
            "karg:pcie_aspm",
            "pcie_aspm=off does not turn ASPM off: it forbids Linux to touch it, so the links keep what the "
            "firmware set, and cannot be changed at run time.",
            evidence(machine.kernel.arguments.source, aspm.text, "pcie_aspm.policy=performance"),
            severity="info",
            **fix(machine, KernelArguments(set=("pcie_aspm.policy=performance",), remove=("pcie_aspm",))),
        )


def _elevator(verdict: Verdict, machine: Machine) -> None:
    given = _last(machine, "elevator")
    if given is None:
        return
    told = [line for line in machine.kernel.log if line.text.startswith("Kernel parameter elevator=")]
    version = machine.kernel.release.map(_version)
    if told or (version.known and version.get() >= (5, 0)):
        verdict.finding(
            "karg:elevator",
            "elevator= has had no effect since Linux 5.0: I/O schedulers are set for each drive.",
            evidence(machine.kernel.arguments.source, given.text, "no elevator="),
            *([evidence(told[0].source, told[0].text)] if told else [fact_evidence(machine.kernel.release)]),
            severity="info",
            **fix(machine, KernelArguments(remove=("elevator",))),
        )


def _version(release: str) -> tuple[int, int]:
    major, _, rest = release.partition(".")
    return int(major), int(rest.partition(".")[0].partition("-")[0])


def _no_hugepages(verdict: Verdict, machine: Machine) -> None:
    """hugepages=0, and sizes that no count follows."""
    names = ("default_hugepagesz", "hugepagesz", "hugepages")
    sizes = [a for a in machine.kernel.arguments.get() if a.name in names]
    counts = [a for a in sizes if a.name == "hugepages"]
    if counts and all(a.value == "0" for a in counts):
        verdict.finding(
            "karg:hugepages",
            "The arguments for huge pages reserve none.",
            evidence(machine.kernel.arguments.source, " ".join(a.text for a in sizes), "hugepages=<count>"),
            advice="Give the count that the application needs, or drop the arguments.",
            severity="info",
        )


# -- args-debug ------------------------------------------------------------------------------------

_DEBUGGING = {
    "slub_debug": "every allocation of kernel memory is checked",
    "slab_debug": "every allocation of kernel memory is checked",
    "debug_pagealloc": "each freed page is unmapped",
    "page_poison": "each freed page is overwritten",
    "page_owner": "each allocation of a page records its stack",
    "kmemleak": "each allocation is tracked and scanned",
    "init_on_free": "freed memory is overwritten with zeros",
    "kasan": "every access to kernel memory is checked",
    "ftrace": "a tracer runs from the boot on",
    "debug_objects": "the life of kernel objects is tracked",
}
_OFF = ("0", "off", "n", "N", "-", "no")


@row(
    "kernel.args-debug",
    title="No debugging of the kernel runs in production",
    symptom="System calls and packets take longer than on a machine of the same kind.",
    cause="Debugging options put checks, or writes of whole pages, into the kernel's most used paths.",
    severity="warning",
    scope="boot",
    risk="The fault that it was meant to find goes unseen.",
    cost="None; init_on_free= also keeps secrets from lingering in freed memory.",
    sources=(
        f"{PARAMETERS} (slab_debug, debug_pagealloc, page_owner, kmemleak, init_on_free)",
        "Documentation/mm/slab.rst",
    ),
)
def args_debug(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    arguments = machine.kernel.arguments
    if not arguments.known:
        return verdict.unknown("kernel", arguments)
    for name, effect in _DEBUGGING.items():
        given = _last(machine, name)
        if given is None or (given.value or "on").startswith(_OFF) or _unknown_here(machine, name):
            continue
        if name == "ftrace" and not given.value:
            continue
        verdict.finding(
            f"karg:{name}",
            f"{given.text}: {effect}.",
            evidence(arguments.source, given.text, f"no {name}="),
            severity="info" if name == "init_on_free" else None,
            **fix(machine, KernelArguments(remove=(name,))),
        )
    if not verdict.findings:
        verdict.ok(evidence(arguments.source, "no debugging option"))
    return verdict


def _unknown_here(machine: Machine, name: str) -> bool:
    unknown = machine.kernel.unknown_parameters
    return unknown.known and any(canonical(t.partition("=")[0]) == name for t in unknown.get())


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


# -- lockdown, taint ---------------------------------------------------------------------------------


@row(
    "kernel.lockdown",
    title="Kernel lockdown leaves room to measure and to tune",
    symptom="Tracing, perf and debugfs answer with EPERM, to root as well.",
    cause=(
        "Under lockdown (Secure Boot turns it on in many distributions) even root may not write MSRs, PCI "
        "configuration and debugfs; the level confidentiality closes tracing and perf too."
    ),
    severity="info",
    scope="boot",
    risk="Less protection of the kernel against root.",
    cost="Security, where it is turned down.",
    sources=("kernel_lockdown(7)", "security/lockdown/lockdown.c, security/security.c (lockdown_reasons)"),
)
def lockdown(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    level = machine.kernel.lockdown
    if level.absent:
        return verdict.not_applicable("this kernel shows no lockdown")
    if not level.known:
        return verdict.unknown("kernel", level)
    if level.get() == "on":
        return verdict.unknown(
            "kernel",
            "the log says that the kernel is locked down, and not to which level",
            remedy="mount securityfs on /sys/kernel/security",
        )
    if level.get() == "none":
        return verdict.ok(fact_evidence(level))
    if level.get() == "integrity":
        return verdict.ok(
            fact_evidence(level),
            reason="integrity: writes to debugfs, MSRs and PCI configuration are refused, tracing is open",
        )
    return verdict.finding(
        "kernel",
        "Lockdown is at confidentiality: perf, tracing and kprobes are closed, so no tool can say what "
        "disturbed a CPU.",
        fact_evidence(level, "integrity or none"),
        *(evidence(o.source, o.text) for o in machine.kernel.log if o.text.startswith("Kernel is locked")),
        advice="Boot with lockdown=integrity if the site's policy allows it.",
    )


# Documentation/admin-guide/tainted-kernels.rst: the bits that tell of a fault, not of a licence
_FAULTS = (
    (4, "M", "error", "the processor reported a machine check: hardware is failing"),
    (5, "B", "error", "a page's state was wrong: bad memory, or a driver that writes where it must not"),
    (7, "D", "error", "the kernel died in an oops or BUG and went on without the task"),
    (14, "L", "warning", "a CPU did not schedule for over 20 s (soft lockup)"),
)


@row(
    "kernel.tainted",
    title="The kernel has met no fault since the boot",
    symptom="Stalls without a cause in sight, tasks that hang for good.",
    cause="After an oops, a bad page or a machine check the kernel goes on, with locks held and memory lost.",
    severity="error",
    scope="hands",
    risk="A reboot.",
    cost="None.",
    sources=("Documentation/admin-guide/tainted-kernels.rst",),
)
def tainted(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    taint = machine.kernel.tainted
    if taint.absent:
        return verdict.not_applicable("this kernel keeps no taint")
    if not taint.known:
        return verdict.unknown("kernel", taint)
    for bit, letter, severity, meaning in _FAULTS:
        if taint.get() >> bit & 1:
            verdict.finding(
                "kernel",
                f"Since the boot {meaning}.",
                evidence(taint.source, f"{taint.get()} (bit {bit}, {letter})", f"bit {bit} clear"),
                advice="Look for it in the kernel's log, mend the cause and reboot.",
                severity=severity,
            )
    if not verdict.findings:
        verdict.ok(fact_evidence(taint), reason=_harmless_taint(taint))
    return verdict


def _harmless_taint(taint: Fact[int]) -> str:
    marks = ((0, "P"), (9, "W"), (12, "O"), (13, "E"), (15, "K"))
    letters = "".join(letter for bit, letter in marks if taint.get() >> bit & 1)
    return f"tainted {letters}: by modules from elsewhere or a warning, not by a fault" if letters else ""
