"""What the numbers mean: findings, each with what it rests on and what would mend it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from hwtune.drive import results
from hwtune.drive.results import DRIVE, HOST, DriveReport, Finding

if TYPE_CHECKING:
    from hwtune.drive.device import Device
    from hwtune.drive.results import Periodic, Phase, Waking

# What takes longer to wake up is no link: ASPM's exit takes up to some 100 us (PCIe Base Specification, L1 PM
# Substates), an idle state of a drive's from a fraction of a millisecond on.
LINK_MAX_US = 200.0
# Stalls that make a drive unsteady without a period: so long, and so often.
STALL_US = 500.0
STALLS_A_MINUTE = 6.0
# With writes: so many more stalls, surer than this.
_MORE, _SURE = 3.0, 0.001


def with_findings(report: DriveReport, device: Device) -> DriveReport:
    found = [
        *_errors(report),
        *_periodic(report),
        *_stalls(report),
        *_waking(report, device),
        *_writes(report),
        *_thermal(device),
    ]
    return msgspec.structs.replace(report, findings=found)


def duration(us: float) -> str:
    """ "85 us", "0.82 ms", "1.4 s"."""
    for bound, unit in ((1e3, "us"), (1e6, "ms")):
        if abs(us) < bound * 0.9995 or (unit == "ms" and abs(us) < bound):
            return f"{us / (bound / 1e3):.3g} {unit}"
    return f"{us / 1e6:.3g} s"


def _errors(report: DriveReport) -> list[Finding]:
    failed = sum(phase.failed for phase in report.phases)
    if not failed:
        return []
    return [
        Finding(
            results.ERRORS,
            "warning",
            f"{failed:,} reads failed.",
            ["the kernel's answers to these reads"],
            "The kernel log says more: dmesg | grep -i nvme.",
        )
    ]


def _periodic(report: DriveReport) -> list[Finding]:
    period = report.periodic
    if period is None:
        return []
    head = f"stalls of about {duration(period.stall_us)} every {period.period_s:.3g} s"
    says, advice = {
        DRIVE: (f"The drive stands still in a rhythm: {head}.", _ADVICE_DRIVE),
        HOST: (f"Something on this host keeps time: {head}; it is not the drive.", _ADVICE_HOST),
    }.get(period.blame, (f"Reads stall in a rhythm: {head}; whose fault it is cannot be told.", _ADVICE_HOST))
    severity = "warning" if period.blame != HOST else "info"
    return [Finding(results.PERIODIC, severity, says, _rests_on(period), advice)]


_ADVICE_DRIVE = (
    "Its firmware's housekeeping does so: ask the vendor for newer firmware, leave a part of the"
    " drive unwritten, trim it"
    " (fstrim) off-hours, and keep what must not wait off it."
)
_ADVICE_HOST = "`hwtune jitter` names what takes a CPU; iotop or blktrace names whose I/O it is."


def _rests_on(period: Periodic) -> list[str]:
    return [
        f"{period.hit} of {period.cycles} periods had a stall, and {period.in_step:.0%} of all stalls"
        " kept time",
        f"the chance of that among stalls at random times is at most {period.chance:.1g}, all periods"
        " tried included",
        *period.because,
    ]


def _stalls(report: DriveReport) -> list[Finding]:
    if report.periodic is not None or report.untold or not report.phases:
        return []
    quiet = report.phases[0]
    long = [s.us for s in report.stalls if s.us >= STALL_US]
    a_minute = 60 * len(long) / quiet.seconds if quiet.seconds else 0.0
    if len(long) < 5 or a_minute < STALLS_A_MINUTE:
        return []
    return [
        Finding(
            results.STALLS,
            "warning",
            f"Reads stall {a_minute:.0f} times a minute for {duration(STALL_US)} or longer, up to"
            f" {duration(max(long))}.",
            [
                f"{len(long):,} stalls in {quiet.seconds:.0f} s beside a usual read of"
                f" {duration(report.usual_us)}",
                f"the host's own share is taken out ({quiet.host_stalls:,} more stalls are left out"
                " as the CPU was away)",
                f"they keep no time: {report.not_periodic}",
            ],
            "See what else uses the drive (iostat -x 1); --writes tells whether its garbage"
            " collection does it.",
        )
    ]


def _waking(report: DriveReport, device: Device) -> list[Finding]:
    waking = report.waking
    if waking is None:
        return []
    rests_on = [
        f"first reads after rests of {waking.from_ms:g} ms and longer take {duration(waking.cost_us)}"
        " more than those after"
        f" rests of up to {waking.to_ms:g} ms",
        f"the chance of that if rests made no difference is at most {waking.chance:.1g}",
    ]
    if waking.cost_us < LINK_MAX_US:
        return [_link(waking, device, rests_on)]
    return [_sleep(waking, device, rests_on)]


def _link(waking: Waking, device: Device, rests_on: list[str]) -> Finding:
    on = sorted(name for name, value in device.aspm.items() if value)
    if on:
        says = (
            f"The first read after a rest takes {duration(waking.cost_us)} more, as with a PCIe link that"
            " sleeps (ASPM)."
        )
        rests_on = [*rests_on, f"the link may sleep: {', '.join(on)} is on"]
        advice = "`hwtune doctor --only pcie.aspm` says how to keep the link awake."
    else:
        known = "ASPM is off for its link" if device.aspm else "nothing is known of ASPM here"
        says = f"The first read after a rest takes {duration(waking.cost_us)} more."
        rests_on = [
            *rests_on,
            f"{known}: caches that went cold, or a CPU that slept and took the interrupt, do so too",
        ]
        advice = ""
    return Finding(results.LINK, "info", says, rests_on, advice)


def _sleep(waking: Waking, device: Device, rests_on: list[str]) -> Finding:
    says = (
        f"The drive sleeps: the first read after a rest of {waking.from_ms:g} ms takes"
        f" {duration(waking.cost_us)} more."
    )
    advice = "`hwtune doctor --only nvme.apst` says how to keep the drive awake."
    controller = device.before
    if controller is None:
        return Finding(
            results.SLEEPS, "warning", says, [*rests_on, "it is no NVMe drive: APST it is not"], ""
        )
    if controller.apst_enabled.value is False or controller.apst_enabled.absent:
        clause = f"APST is not on ({controller.apst_enabled.source}), so that it is not that"
        return Finding(results.SLEEPS, "warning", says, [*rests_on, clause], "")
    if not controller.apst_enabled.known:
        clause = f"as APST does; whether it is on is not known: {controller.apst_enabled.why()}"
        return Finding(results.SLEEPS, "warning", says, [*rests_on, clause], advice)
    states = {state.index: state for state in controller.power_states.value or []}
    named = []
    for line in controller.apst_transitions.value or []:
        state = states.get(line.target)
        if waking.to_ms <= line.idle_ms <= waking.from_ms and state is not None:
            named.append(
                f"its APST table sends it to state {line.target} after {line.idle_ms} ms, from which it needs"
                f" {state.exit_us:,} us"
            )
    rests_on = [*rests_on, *(list(dict.fromkeys(named)) or ["APST is on, with no line at that time of rest"])]
    return Finding(results.SLEEPS, "warning", says, rests_on, advice)


def _writes(report: DriveReport) -> list[Finding]:
    by_name = {phase.name: phase for phase in report.phases}
    quiet, writes, after = (by_name.get(name) for name in ("quiet", "writes", "after"))
    if quiet is None or writes is None or report.untold:
        return []
    found = []
    if _more(writes, quiet):
        found.append(
            Finding(
                results.BEHIND_WRITES,
                "warning",
                f"Reads stall behind writes: {_rate(writes)} stalls a minute, {_rate(quiet)} without.",
                [f"{writes.stalls:,} stalls in {writes.seconds:.0f} s beside writes, {quiet.stalls:,} in"
                 f" {quiet.seconds:.0f} s before them"],
                "Keep writers off this drive, or hold their rate (io.max of their control group).",
            )
        )  # fmt: skip
    if after is not None and _more(after, quiet):
        found.append(
            Finding(
                results.AFTER_WRITES,
                "warning",
                f"Reads go on stalling after the writes have ended: {_rate(after)} stalls a minute,"
                f" {_rate(quiet)} before"
                " them. The drive tidies up (garbage collection, or its cache is moved).",
                [f"{after.stalls:,} stalls in {after.seconds:.0f} s after the writes, {quiet.stalls:,} in"
                 f" {quiet.seconds:.0f} s before them"],
                "Leave a part of the drive unwritten, and trim it (fstrim) off-hours.",
            )
        )  # fmt: skip
    return found


def _rate(phase: Phase) -> str:
    return f"{60 * phase.stalls / phase.seconds:,.0f}" if phase.seconds else "0"


def _more(one: Phase, other: Phase) -> bool:
    """Whether stalls come more often: of all stalls of both, as many or more fall into the one phase by
    chance with less than 0.1 % (exact, of Poisson's law), and they are three times as many."""
    if one.seconds <= 0 or other.seconds <= 0 or one.stalls < 5:
        return False
    share = one.seconds / (one.seconds + other.seconds)
    if one.stalls / one.seconds < _MORE * other.stalls / other.seconds:
        return False
    return at_least(one.stalls, one.stalls + other.stalls, share) < _SURE


def at_least(hits: int, count: int, share: float) -> float:
    """Chance of ``hits`` or more of ``count``, each with the chance ``share`` (0 < share < 1)."""
    return min(
        1.0,
        sum(
            math.exp(
                math.lgamma(count + 1)
                - math.lgamma(k + 1)
                - math.lgamma(count - k + 1)
                + k * math.log(share)
                + (count - k) * math.log1p(-share)
            )
            for k in range(hits, count + 1)
        ),
    )


def _thermal(device: Device) -> list[Finding]:
    if not device.throttled:
        return []
    return [
        Finding(
            results.THERMAL,
            "warning",
            "The drive became too hot meanwhile and slowed down.",
            [device.throttled],
            "Give it a heat sink or more air; `hwtune doctor --only 'nvme.thermal'` says how hot it is.",
        )
    ]
