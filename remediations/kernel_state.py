"""The kernel's state since the boot: where its messages go, what lockdown denies, what it has met."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes import SysctlChange
from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.remediations._common import fix, sysctl

if TYPE_CHECKING:
    from hwtune.fact import Fact
    from hwtune.model import Machine
    from hwtune.profile import Profile


# -- serial-console ----------------------------------------------------------------------------------

_SERIAL = ("ttyS", "ttyAMA", "uart")
# Messages of this level and below (KERN_ERR) are few and worth the wait; those above tell of links,
# drives and drivers as they come and go.
_QUIET = 4


@row(
    "kernel.serial-console",
    title="Kernel messages do not wait for a serial line",
    symptom="A CPU stops for milliseconds when a link flaps or a driver has something to tell.",
    cause=(
        "Whoever prints a kernel message may have to send it down the serial console itself, with "
        "interrupts off for each line: 80 characters take 7 ms at 115200 baud."
    ),
    severity="info",
    scope="runtime",
    risk="Warnings and notices no longer show on the serial console; the log still has them.",
    cost="None.",
    sources=(
        "kernel/printk/printk.c (console_emit_next_record)",
        "Documentation/admin-guide/sysctl/kernel.rst (printk)",
        "Documentation/admin-guide/serial-console.rst",
    ),
)
def serial_console(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    arguments = machine.kernel.arguments
    if machine.virtualization.is_guest or machine.virtualization.is_container:
        return verdict.not_applicable("the serial line of a virtual machine or container is no wire")
    if not arguments.known:
        return verdict.unknown("kernel", arguments)
    lines = [a for a in arguments.get() if a.name == "console" and (a.value or "").startswith(_SERIAL)]
    if not lines:
        return verdict.not_applicable("no serial line is a console (console=)")
    if machine.kernel.preemption.value == "rt":
        return verdict.ok(
            fact_evidence(machine.kernel.preemption), reason="a thread prints on a PREEMPT_RT kernel"
        )
    printk = sysctl(machine, "kernel.printk")
    level = printk.map(_first_number)
    if not level.known:
        return verdict.unknown("kernel", level)
    if level.get() <= _QUIET:
        return verdict.ok(fact_evidence(printk))
    slowest = max(lines, key=lambda a: _milliseconds(a.value or ""))
    return verdict.finding(
        "sysctl:kernel.printk",
        f"Messages below level {level.get()} go down a serial line, which takes "
        f"{_milliseconds(slowest.value or ''):.0f} ms for 80 characters, with interrupts off.",
        evidence(arguments.source, slowest.text),
        fact_evidence(printk, f"{_QUIET} {' '.join(printk.get().split()[1:])}".strip()),
        **fix(machine, SysctlChange("kernel.printk", str(_QUIET))),
    )


def _first_number(text: str) -> int:
    return int(text.split()[0]) if text.split() else int(text)


def _milliseconds(value: str) -> float:
    """For 80 characters of ten bits at the speed in "ttyS0,115200n8"; 9600 baud where none is given."""
    digits = ""
    for character in value.partition(",")[2]:
        if not ("0" <= character <= "9"):
            break
        digits += character
    speed = int(digits[:9] or 0) or 9600
    return 80 * 10 * 1000 / speed


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
