"""A third party's plug-in for hwtune, as docs/extending.md has it: a probe and rows of a site.

They want what no built-in row finds fault with in an emulated machine, so that those kinds of change are
tried on a real system too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.changes import CpuLatencyRequest, FileContent, ModuleOption, UnitState
from hwtune.diagnosis import Verdict, evidence
from hwtune.diagnosis.row import row

if TYPE_CHECKING:
    from hwtune.host.base import Host
    from hwtune.model import Machine
    from hwtune.profile import Profile

PART = "site"
COPYBREAK = "/sys/module/e1000e/parameters/copybreak"
NOTE = "/etc/site/hot/notes.conf"
CONTENT = "hot CPUs are kept by hwtune\n"
LATENCY_US = 20
TIMER = "site.timer"
ENABLED = f"/etc/systemd/system/timers.target.wants/{TIMER}"


def read(host: Host) -> dict[str, Any]:
    return {
        "latency_us": host.ask("cpu_latency"),
        "copybreak": host.integer(COPYBREAK),
        "note": host.text(NOTE),
        "timer": host.exists(ENABLED),
    }


def _row(id: str, scope: str) -> Any:
    return row(
        id,
        title="A wish of this site",
        symptom="None.",
        cause="None.",
        severity="warning",
        scope=scope,
        risk="None.",
        cost="None.",
        sources=("the site",),
    )


@_row("site.latency", "service")
def latency(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    fact = machine.extra[PART]["latency_us"]
    if not fact.known:
        return verdict.unknown("cpu-latency", fact)
    if fact.get() <= LATENCY_US:
        return verdict.ok()
    item = evidence(fact.source, fact.get(), LATENCY_US)
    return verdict.finding("cpu-latency", "CPUs may sleep.", item, changes=[CpuLatencyRequest(LATENCY_US)])


@_row("site.copybreak", "boot")
def copybreak(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    fact = machine.extra[PART]["copybreak"]
    if not fact.known:
        return verdict.unknown("module:e1000e", fact)
    if fact.get() == 0:
        return verdict.ok()
    item = evidence(fact.source, fact.get(), 0)
    change = ModuleOption("e1000e", "copybreak", "0")
    return verdict.finding("module:e1000e", "Small packets are copied.", item, changes=[change])


@_row("site.note", "runtime")
def note(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    fact = machine.extra[PART]["note"]
    if fact.known and f"{fact.get()}\n" == CONTENT:
        return verdict.ok()
    item = evidence(NOTE, "absent" if fact.absent else fact.value, CONTENT.strip())
    return verdict.finding("file", "There is no note.", item, changes=[FileContent(NOTE, CONTENT)])


@_row("site.timer", "service")
def timer(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    fact = machine.extra[PART]["timer"]
    if not fact.known:
        return verdict.unknown(f"service:{TIMER}", fact)
    if not fact.get():
        return verdict.ok()
    item = evidence(ENABLED, "enabled", "disabled")
    return verdict.finding(f"service:{TIMER}", "It ticks.", item, changes=[UnitState(TIMER, "stopped")])
