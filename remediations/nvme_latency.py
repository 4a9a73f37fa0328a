"""Row: how evenly drives answer, as ``hwtune doctor --active`` has measured it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.diagnosis import Verdict, evidence
from hwtune.diagnosis.row import row
from hwtune.fact import NOT_PROBED
from hwtune.remediations._nvme import SPEC, each, subject

if TYPE_CHECKING:
    from hwtune.model import Machine
    from hwtune.model.storage import DriveLatency, LatencyFinding, NvmeController
    from hwtune.profile import Profile

# Whatever the length of its stalls, no profile has these.
_ALWAYS = ("errors", "thermal")


@row(
    "nvme.latency-jitter",
    title="How evenly drives answer",
    symptom="Now and then a read takes ten times as long as usual, perhaps in a rhythm.",
    cause="Its firmware tidies up, sleeps or throttles while reads wait; or somebody asks it for something.",
    severity="warning",
    scope="hands",
    risk="None for measuring: it reads only, one block at a time.",
    cost="A minute and a CPU for measuring; perhaps other firmware or another drive for mending.",
    sources=(
        f"{SPEC}, Autonomous Power State Transition, SMART / Health Information",
        "OCP Datacenter NVMe SSD Specification 2.0, Latency Monitor",
        "Mardia and Jupp, Directional Statistics, the Rayleigh test",
    ),
    active=True,
)
def latency_jitter(machine: Machine, profile: Profile) -> Verdict:
    return each(lambda v, c: _judge(v, c, profile.nvme.stall_max_us), machine, Verdict())


def _judge(verdict: Verdict, controller: NvmeController, stall_max_us: float) -> None:
    latency = controller.latency
    if latency.gap == NOT_PROBED:
        verdict.not_applicable(
            "not measured: `hwtune doctor --active --only nvme.latency-jitter`, as root, reads each drive for"
            " some 26 s"
        )
        return
    if not latency.known:
        verdict.unknown(subject(controller), latency)
        return
    found = latency.get()
    if found.untold:
        remedy = f"hwtune nvme-latency {found.disk} --cpu N, on a quiet CPU"
        verdict.unknown(subject(controller), found.untold, remedy=remedy)
        return
    matters = [f for f in found.findings if f.kind in _ALWAYS or (f.kind != "link" and f.us > stall_max_us)]
    for one in matters:
        verdict.finding(
            subject(controller),
            one.says,
            evidence(
                latency.source, _figure(one, found), f"at most {stall_max_us:g} us" if one.us else "none"
            ),
            *(evidence(latency.source, clause) for clause in one.rests_on),
            advice=one.advice,
            severity=one.severity,
        )
    if not matters:
        verdict.ok(evidence(latency.source, _numbers(found)), reason=_small(controller, found, stall_max_us))


def _figure(one: LatencyFinding, found: DriveLatency) -> str:
    if one.kind == "periodic" and found.period_s is not None:
        return f"{one.us:.0f} us every {found.period_s:.3g} s"
    return f"{one.us:.0f} us" if one.us else one.kind


def _numbers(found: DriveLatency) -> str:
    cells = (("P50", found.p50_us), ("P99", found.p99_us), ("P99.9", found.p999_us), ("max", found.max_us))
    told = ", ".join(f"{name} {us:.0f} us" for name, us in cells if us is not None)
    return f"{found.reads:,} reads in {found.seconds:.0f} s: {told}"


def _small(controller: NvmeController, found: DriveLatency, stall_max_us: float) -> str:
    """What was found and does not matter to this profile."""
    if not any(f.us and f.kind != "link" for f in found.findings):
        return ""
    return f"what holds reads of {controller.name} up is below {stall_max_us:g} us (nvme.stall_max_us)"
