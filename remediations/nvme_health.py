"""Rows: what drives say of their own health, and what the kernel's log says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.remediations._common import plural
from hwtune.remediations._nvme import NONE, SPEC, each, subject, unknown
from hwtune.text.nvme_log import INTERNAL_ERROR, warnings

if TYPE_CHECKING:
    from hwtune.diagnosis.verdict import Evidence
    from hwtune.fact import Fact
    from hwtune.model import Machine
    from hwtune.model.storage import NvmeController, NvmeEvent
    from hwtune.profile import Profile

_SMART = f"{SPEC}, SMART / Health Information (log 02h)"
_PCI_DRIVER = "Linux drivers/nvme/host/pci.c, nvme_timeout() and nvme_warn_reset()"
_REPLACE = "Copy its data to another drive and replace it."


# -- SMART --------------------------------------------------------------------------------


@row(
    "nvme.smart-critical",
    title="Critical warnings of drives",
    symptom="A drive gets slow or read-only, or loses data.",
    cause="The drive itself says that it is failing.",
    severity="error",
    scope="hands",
    risk="None for reading.",
    cost="A drive.",
    sources=(_SMART,),
)
def smart_critical(machine: Machine, profile: Profile) -> Verdict:
    return each(_judge_critical, machine, Verdict())


def _judge_critical(verdict: Verdict, controller: NvmeController) -> None:
    smart = controller.smart
    warning = smart.critical_warning
    if not warning.known:
        if smart.failed_status == INTERNAL_ERROR:
            verdict.finding(
                subject(controller),
                f"{controller.name} cannot read its own health log: it answers with an internal error.",
                evidence(warning.source, warning.detail, "the log"),
                advice=_REPLACE,
            )
        else:
            unknown(verdict, controller, warning)
        return
    before = len(verdict.findings)
    bits = warnings(warning.get())
    if bits:
        verdict.finding(
            subject(controller),
            f"{controller.name} warns: {'; '.join(bits)}.",
            evidence(warning.source, f"critical warning 0x{warning.get():02x}", "0x00"),
            advice="Cool the drive, and look at its temperature again." if warning.get() == 2 else _REPLACE,
        )
    _judge_spare(verdict, controller, told=bool(warning.get() & 1))
    _judge_media(verdict, controller)
    _judge_counters(verdict, controller)
    if len(verdict.findings) == before:
        entries, media = smart.error_log_entries, smart.media_errors
        reason = ""
        if entries.known and entries.get() and media.known:
            # Each command that the drive refuses is an entry, that for an unknown log page as well.
            reason = "entries in a drive's error log are no fault by themselves; no media error is among them"
        verdict.ok(
            evidence(warning.source, f"{controller.name}: critical warning 0x{warning.get():02x}", "0x00"),
            reason=reason,
        )


def _judge_spare(verdict: Verdict, controller: NvmeController, told: bool) -> None:
    spare, threshold = controller.smart.available_spare, controller.smart.spare_threshold
    if told or not spare.known or not threshold.known:
        return
    # A threshold of 0 is that of virtual drives and of memory that needs no spare blocks.
    if threshold.get() and spare.get() <= threshold.get():
        verdict.finding(
            subject(controller),
            f"{controller.name} has {spare.get()} % of its spare blocks left; at {threshold.get()} % it"
            " counts as failing.",
            evidence(spare.source, f"available spare {spare.get()} %", f"more than {threshold.get()} %"),
            advice=_REPLACE,
            severity="error" if spare.get() < threshold.get() else "warning",
        )


def _judge_media(verdict: Verdict, controller: NvmeController) -> None:
    errors = controller.smart.media_errors
    if errors.known and errors.get():
        count = errors.get()
        verdict.finding(
            subject(controller),
            f"{controller.name} could not recover data {plural(count, 'time')}.",
            evidence(errors.source, f"media errors {count}", "0"),
            advice="Compare the count again in a day; if it has risen, replace the drive.",
            severity="warning",
        )


# A drive that was never used has been in operation for a while, too, but not for so long.
_UNUSED_HOURS = 1000


def _judge_counters(verdict: Verdict, controller: NvmeController) -> None:
    """Counters that a drive lost: it has been in operation, and yet was never switched on or used."""
    smart = controller.smart
    zeros = (smart.power_cycles, smart.data_units_read, smart.data_units_written)
    hours = smart.power_on_hours
    if not hours.known or hours.get() < _UNUSED_HOURS:
        return
    if all(counter.known and counter.get() == 0 for counter in zeros):
        verdict.finding(
            subject(controller),
            f"The counters of {controller.name} contradict each other: {hours.get():,} h in operation, no"
            " power cycle, nothing read or written.",
            evidence(
                hours.source, f"{hours.get()} h, 0 power cycles, 0 data units", "counts that fit together"
            ),
            advice="Check the drive with the maker's tool, and replace it if it has lost its records.",
            severity="warning",
        )


@row(
    "nvme.endurance",
    title="Wear of drives",
    symptom="A drive gets slower at writing, and fails in the end.",
    cause="Flash wears out by writing; the maker rates how much it can take.",
    severity="warning",
    scope="hands",
    risk="None for reading.",
    cost="A drive.",
    sources=(f"{_SMART}, Percentage Used",),
)
def endurance(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    limit = profile.nvme.percentage_used_warning

    def judge(verdict: Verdict, controller: NvmeController) -> None:
        used = controller.smart.percentage_used
        if not used.known:
            unknown(verdict, controller, used)
        elif used.get() < limit:
            verdict.ok(
                evidence(used.source, f"{controller.name}: {used.get()} % used", f"less than {limit} %")
            )
        else:
            spent = used.get() >= 100
            what = (
                "has used up the endurance that its maker rates it for"
                if spent
                else "is near the end of its life"
            )
            # 255 stands for that and all that is more.
            more = " or more" if used.get() == 255 else ""
            verdict.finding(
                subject(controller),
                f"{controller.name} {what}: {used.get()} %{more} used.",
                evidence(used.source, f"{used.get()} % used", f"less than {limit} %"),
                *_written(controller),
                advice="Plan its replacement.",
                severity="error" if spent else None,
            )

    return each(judge, machine, verdict)


def _written(controller: NvmeController) -> list[Evidence]:
    units, hours = controller.smart.data_units_written, controller.smart.power_on_hours
    if not units.known:
        return []
    during = f" in {hours.get():,} h of operation" if hours.known else ""
    return [evidence(units.source, f"{units.get() * 512_000 / 1e12:,.1f} TB written{during}")]


@row(
    "nvme.thermal",
    title="Heat of drives",
    symptom="Writes get several times slower after a while of load, then recover.",
    cause="A drive that is too hot slows itself down.",
    severity="warning",
    scope="hands",
    risk="None for reading.",
    cost="Air flow, or a heat sink.",
    sources=(
        f"{_SMART}, Composite Temperature and Thermal Management counters",
        f"{SPEC}, Identify Controller, WCTEMP and CCTEMP",
        "Linux drivers/nvme/host/hwmon.c",
    ),
)
def thermal(machine: Machine, profile: Profile) -> Verdict:
    share = profile.nvme.hot_share_max

    def judge(verdict: Verdict, controller: NvmeController) -> None:
        before = len(verdict.findings), len(verdict.unknowns)
        _judge_temperature(verdict, controller)
        _judge_hot_times(verdict, controller, share)
        temperature = controller.smart.temperature_c
        if (len(verdict.findings), len(verdict.unknowns)) == before and temperature.known:
            limit = controller.warning_temp_c
            expected = f"below {limit.get()} C" if limit.known else ""
            verdict.ok(evidence(temperature.source, f"{controller.name}: {temperature.get()} C", expected))

    return each(judge, machine, Verdict())


def _judge_temperature(verdict: Verdict, controller: NvmeController) -> None:
    temperature, warning = controller.smart.temperature_c, controller.smart.critical_warning
    high, critical = controller.warning_temp_c, controller.critical_temp_c
    if temperature.absent:
        verdict.not_applicable(f"{controller.name} reports no temperature")
        return
    if not temperature.known:
        unknown(verdict, controller, temperature)
        return
    now = temperature.get()
    for limit, name, severity in ((critical, "critical", "error"), (high, "warning", "warning")):
        if limit.known and now >= limit.get():
            verdict.finding(
                subject(controller),
                f"{controller.name} is at {now} C, and its {name} temperature is {limit.get()} C.",
                fact_evidence(temperature, f"below {limit.get()} C"),
                fact_evidence(limit),
                advice="Give the drive more air, or a heat sink, or another slot.",
                severity=severity,
            )
            return
    if warning.known and warning.get() & 2:
        verdict.finding(
            subject(controller),
            f"{controller.name} is at {now} C, and warns that this is beyond a threshold of its own.",
            fact_evidence(temperature),
            evidence(warning.source, f"critical warning 0x{warning.get():02x}", "bit 1 clear"),
            advice="Give the drive more air, or a heat sink, or another slot.",
        )
    elif not high.known and not high.absent and not warning.known:
        unknown(verdict, controller, high, warning)


def _judge_hot_times(verdict: Verdict, controller: NvmeController, share: float) -> None:
    """Counters of the drive's whole life, so that only a share of it means anything."""
    smart = controller.smart
    spans: list[tuple[str, Fact[int] | Fact[list[int]], float, float]] = []
    for what, minutes in (("above its warning temperature", smart.warning_temp_minutes),):
        if minutes.known and minutes.get():
            spans.append((what, minutes, minutes.get() / 60, share))
    critical = smart.critical_temp_minutes
    if critical.known and critical.get():
        spans.append(("above its critical temperature", critical, critical.get() / 60, 0.0))
    throttled = smart.thermal_seconds
    if throttled.known and any(throttled.get()):
        spans.append(("slowed down by heat", throttled, sum(throttled.get()) / 3600, share))
    if not spans:
        return
    hours = smart.power_on_hours
    for what, fact, duration, limit in spans:
        if not hours.known:
            unknown(verdict, controller, hours)
            return
        part = min(1.0, duration / hours.get()) if hours.get() else 1.0
        shown = f"{duration:.1f} h of {hours.get():,} h in operation"
        if part <= limit:
            verdict.ok(
                evidence(fact.source, f"{controller.name}: {shown} {what}", f"at most {limit:.1%}"),
                reason=f"{controller.name} was {what} for {shown}",
            )
            continue
        items = [evidence(fact.source, f"{what} for {shown}", f"at most {limit:.1%}" if limit else "never")]
        counts = smart.thermal_transitions
        if what == "slowed down by heat" and counts.known:
            light, heavy = counts.get()
            items.append(evidence(counts.source, f"slowed down lightly {light} times, heavily {heavy} times"))
        verdict.finding(
            subject(controller),
            f"{controller.name} was {what} for {_percent(part)} of its time in operation.",
            *items,
            advice="Give the drive more air, or a heat sink, or another slot.",
        )


def _percent(part: float) -> str:
    return f"{part * 100:.0f} %" if part >= 0.1 else f"{part * 100:.2g} %"


@row(
    "nvme.unsafe-shutdowns",
    title="Power cuts of drives",
    symptom="After a start, a drive is slow to get ready; without power-loss protection it loses writes.",
    cause="Power goes away before the kernel has told the drive, at nearly every shutdown.",
    severity="warning",
    scope="hands",
    risk="None for reading.",
    cost="None.",
    sources=(f"{_SMART}, Unsafe Shutdowns",),
)
def unsafe_shutdowns(machine: Machine, profile: Profile) -> Verdict:
    targets = profile.nvme

    def judge(verdict: Verdict, controller: NvmeController) -> None:
        smart = controller.smart
        unsafe, cycles, hours = smart.unsafe_shutdowns, smart.power_cycles, smart.power_on_hours
        if not unsafe.known:
            unknown(verdict, controller, unsafe)
            return
        count = unsafe.get()
        if count < targets.unsafe_shutdowns_min:
            verdict.ok(evidence(unsafe.source, f"{controller.name}: {plural(count, 'unsafe shutdown')}"))
            return
        if not cycles.known or not hours.known:
            unknown(verdict, controller, cycles, hours)
            return
        share = count / cycles.get() if cycles.get() else 1.0
        per_day = count * 24 / hours.get() if hours.get() else float("inf")
        shown = f"{count:,} unsafe shutdowns of {cycles.get():,} power cycles in {hours.get():,} h"
        if share <= targets.unsafe_shutdown_share_max or per_day <= targets.unsafe_shutdowns_per_day_max:
            verdict.ok(
                evidence(unsafe.source, f"{controller.name}: {shown}"),
                reason=f"{controller.name} has seen power cuts, none of them often",
            )
            return
        verdict.finding(
            subject(controller),
            f"Power was cut before {controller.name} was shut down in {_of(share)} of its power cycles"
            f" ({count:,} of {cycles.get():,}).",
            evidence(
                unsafe.source, shown, f"at most {targets.unsafe_shutdown_share_max:.0%} of the power cycles"
            ),
            advice="Shut the machine down before its power is switched off, and check its power supply.",
        )

    return each(judge, machine, Verdict())


def _of(share: float) -> str:
    """Not rounded up to all."""
    return f"{min(share, 1.0):.1%}"


# -- the kernel's log ---------------------------------------------------------------------

_LOST = ("removed", "controller-down", "not-ready", "reset")
_FAILED = ("media-error", "io-error", "timeout", "interrupt-lost")


@row(
    "nvme.controller-lost",
    title="Drives that dropped out",
    symptom="I/O hangs for half a minute or more, then fails; a drive disappears.",
    cause="The controller stopped answering: power, contact, firmware, or a sleep that it did not wake from.",
    severity="error",
    scope="hands",
    risk="Settings that keep the drive awake make it warmer.",
    cost="None.",
    sources=(_PCI_DRIVER, "Linux drivers/nvme/host/pci.c, nvme_reset_work()"),
)
def controller_lost(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    for name, events in _by_controller(machine, _LOST).items():
        _judge_lost(verdict, name, events, _by_controller(machine, _FAILED).get(name, []))
    return verdict if verdict.findings else _without_events(verdict, machine, "no drive dropped out")


def _by_controller(machine: Machine, kinds: tuple[str, ...]) -> dict[str, list[NvmeEvent]]:
    found: dict[str, list[NvmeEvent]] = {}
    for event in machine.nvme.events:
        if event.kind in kinds:
            found.setdefault(event.controller or "", []).append(event)
    return found


def _without_events(verdict: Verdict, machine: Machine, good: str) -> Verdict:
    nvme = machine.nvme
    if not nvme.controllers and not nvme.listed.unknown:
        return verdict.not_applicable(NONE)
    if not nvme.log_known.known:
        return verdict.unknown("kernel", nvme.log_known)
    if not nvme.log_known.get():
        return verdict.unknown("kernel", f"{nvme.log_known.source} is a part of the kernel's log only")
    return verdict.ok(evidence(nvme.log_known.source, good), reason="as far back as the kernel's log goes")


def _judge_lost(verdict: Verdict, name: str, events: list[NvmeEvent], others: list[NvmeEvent]) -> None:
    by_kind = {event.kind: event for event in events}
    down, removed = by_kind.get("controller-down"), by_kind.get("removed")
    silent = down is not None and down.detail.endswith("=0xffffffff")
    if silent:
        advice = (
            "Boot once with nvme_core.default_ps_max_latency_us=0 pcie_aspm=off as a trial, and check the"
            " drive's power and seat."
        )
    else:
        advice = "Check the drive's power and seat and update its firmware; replace it if it happens again."
    verdict.finding(
        _subject(name),
        " ".join([_what_happened(name, by_kind), *map(_consequence, others)]),
        *_event_evidence([*others, *events] if removed is not None else [*events, *others]),
        advice=advice,
        severity="warning" if set(by_kind) == {"reset"} else None,
    )


def _what_happened(name: str, events: dict[str, NvmeEvent]) -> str:
    parts = []
    if "controller-down" in events:
        down = events["controller-down"]
        how = "did not answer on the bus" if down.detail.endswith("=0xffffffff") else "reported a fatal error"
        parts.append(f"{how} {_times(down.count)} ({down.detail})")
    if "not-ready" in events:
        parts.append(f"did not get ready {_times(events['not-ready'].count)}")
    if "reset" in events:
        parts.append(f"was reset {_times(events['reset'].count)} after an error")
    if "removed" not in events:
        return f"{name} {' and '.join(parts)}."
    before = f"it {' and '.join(parts)}, and " if parts else ""
    return f"{name} is gone: {before}the driver gave it up ({events['removed'].detail})."


def _consequence(event: NvmeEvent) -> str:
    if event.kind == "timeout":
        return f"{plural(event.count, 'command')} timed out ({event.detail})."
    if event.kind == "interrupt-lost":
        return f"{plural(event.count, 'interrupt')} did not come."
    return f"{plural(event.count, 'command')} failed ({event.detail})."


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _subject(name: str) -> str:
    return f"pci:{name}" if ":" in name else f"nvme:{name}"


def _event_evidence(events: list[NvmeEvent]) -> list[Evidence]:
    return [evidence(event.source, f"{event.line}{_when(event)}") for event in events[:8]]


def _when(event: NvmeEvent) -> str:
    """ " (twice, from 11483 s to 11509 s after boot)"."""
    words = [_times(event.count)] if event.count > 1 else []
    first, last = event.first_seconds, event.last_seconds
    if first is not None and last is not None and event.count > 1:
        words.append(f"from {first:.0f} s to {last:.0f} s after boot")
    elif first is not None:
        words.append(f"at {first:.0f} s after boot")
    return f" ({', '.join(words)})" if words else ""


@row(
    "nvme.io-timeouts",
    title="I/O that timed out or failed",
    symptom="A read or write takes 30 s, or returns an error.",
    cause="The drive was too slow with a command, its interrupt was lost, or it could not read its media.",
    severity="warning",
    scope="hands",
    risk="None for reading.",
    cost="A drive, if it is the cause.",
    sources=(_PCI_DRIVER, "Linux drivers/nvme/host/core.c, nvme_log_error()"),
)
def io_timeouts(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    for name, events in _by_controller(machine, _FAILED).items():
        for event in events:
            _judge_failed(verdict, machine, name, event)
    return (
        verdict
        if verdict.findings
        else _without_events(verdict, machine, "no I/O of a drive timed out or failed")
    )


def _judge_failed(verdict: Verdict, machine: Machine, name: str, event: NvmeEvent) -> None:
    waited = machine.nvme.io_timeout_s
    after = f" after {waited.get()} s" if waited.known else ""
    count = plural(event.count, "command")
    if event.kind == "timeout":
        admin = event.detail == "QID 0"
        count = plural(event.count, "admin command" if admin else "command")
        message, severity = f"{count} to {name} timed out{'' if admin else after}", "warning"
        advice = "Update the drive's firmware and check its slot; replace it if timeouts go on."
    elif event.kind == "interrupt-lost":
        message = (
            f"{count} to {name} had ended, but {'its' if event.count == 1 else 'their'} interrupt never came"
        )
        message, severity = f"{message}: the driver found out{after}", "warning"
        advice = "Update kernel and firmware (interrupt remapping), and watch whether it comes again."
    elif event.kind == "media-error":
        message, severity = (
            f"{name} could not read or write its media: {count} failed ({event.detail})",
            "error",
        )
        advice = _REPLACE
    else:
        message, severity = f"{count} to {name} failed ({event.detail})", "error"
        advice = "Look at what happened to the drive before it in the kernel's log, and check its data."
    verdict.finding(
        _subject(name), f"{message}.", *_event_evidence([event]), advice=advice, severity=severity
    )
