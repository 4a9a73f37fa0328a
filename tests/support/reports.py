"""A small diagnosis to report on: each outcome once, and names that a hostile machine could give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes import KernelArguments, SysctlChange
from hwtune.diagnosis import Verdict, evidence
from hwtune.diagnosis.engine import Defect, Diagnosis, judge
from hwtune.diagnosis.row import Row
from hwtune.fact import known
from hwtune.model import Machine
from hwtune.model.numa import NumaNode
from hwtune.profile import load

if TYPE_CHECKING:
    from hwtune.model import Machine as MachineType
    from hwtune.profile import Profile

HOSTILE = "</td><script>alert(1)</script>\"'&\\\x1b]0;x\x07\ufffe\n\u202e\udcff"

# how reports show it, before they escape what their format takes for its own
SHOWN = "</td><script>alert(1)</script>\"'&\\\\x1b]0;x\\x07\\ufffe\\n\\u202e\\udcff"


class SnapshotHost:
    """What reports ask of a host."""

    kind = "snapshot"
    origin = "box7.tar.gz"
    captured_at = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC, a time that many know by heart
    warnings = ("the archive ends early",)


def row(id: str, verdict: Verdict, severity: str = "warning") -> Row:
    return Row(
        lambda machine, profile: verdict,
        id,
        f"title of {id}",
        "symptom",
        "cause",
        severity,
        "runtime",
        "risk",
        "cost",
        ["source"],
        False,
    )


def machine() -> MachineType:
    found = Machine()
    found.kernel.hostname = known("box7", "t")
    found.kernel.release = known("6.1.0", "t")
    found.cpus.online = known([0, 1, 2, 3], "t")
    found.cpus.isolated = known([2, 3], "t")
    found.numa.nodes = [NumaNode(id=0, cpus=known([0, 1, 2, 3], "t"), memory_bytes=known(62 << 30, "t"))]
    return found


def rows(name: str = "nvme:nvme0") -> list[Row]:
    """``name``: the subject, message, source, value, target and advice of one finding, and the
    reasons of one unknown and one that does not apply."""

    def broken(machine: MachineType, profile: Profile) -> Verdict:
        raise ZeroDivisionError("by zero")

    swappiness = SysctlChange("vm.swappiness", "10")
    failing = row("zz.broken", Verdict())
    failing.check = broken
    boot = KernelArguments(set=("nohz_full=2-3",))
    return [
        row(
            "cpu.tick",
            Verdict()
            .finding(
                "cpu:2-3",
                "The tick runs.",
                evidence("/proc/cmdline", "quiet", "nohz_full=2-3"),
                evidence("/proc/interrupts", "LOC 99"),
                changes=[boot],
                advice="Reboot then.",
            )
            .finding("karg:nohz", "nohz=off is moot.", severity="info")
            .unknown("cpu:1", "CPU 1 is offline", remedy="take it online"),
            "error",
        ),
        row("memory.fine", Verdict().ok(evidence("/proc/swaps", "no swap area"), reason="it has none")),
        row("memory.none", Verdict().not_applicable(f"no swap for {name}")),
        row(
            "memory.swappiness",
            Verdict().finding(name, name, evidence(name, name, name), changes=[swappiness], advice=name),
        ),
        row("nvme.apst", Verdict().unknown(name, f"{name} needs root", remedy="run as root")),
        row("nvme.silent", Verdict()),
        failing,
    ]


def diagnosis(name: str = "nvme:nvme0") -> Diagnosis:
    return judge(machine(), rows(name), load(), [Defect("probe pci", "ValueError: odd")])
