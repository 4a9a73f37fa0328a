"""Boot arguments that do nothing, or not what they seem to do, or too much."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes import KernelArguments
from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.remediations import _arguments
from hwtune.remediations._common import fix
from hwtune.text.cmdline import canonical, parse

if TYPE_CHECKING:
    from hwtune.diagnosis import Evidence
    from hwtune.model import Machine
    from hwtune.model.kernel import KernelArgument
    from hwtune.profile import Profile

PARAMETERS = "Documentation/admin-guide/kernel-parameters.txt"
_MOST = 8


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
    _no_limit(verdict, machine)
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
    if len(name) < 5 or name in _arguments.TUNING or _arguments.may_repeat(name):
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


def _no_limit(verdict: Verdict, machine: Machine) -> None:
    """A limit of idle states that is none."""
    source = machine.kernel.arguments.source
    idle = _last(machine, "idle")
    intel, acpi = _last(machine, "intel_idle.max_cstate"), _last(machine, "processor.max_cstate")
    if idle is not None and idle.value == "poll":
        return  # no CPU enters an idle state, so nothing is left to limit: cpu.idle-poll tells it
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
