"""Services that turn the same knobs, and timers that wake the firmware."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from hwtune.changes import UnitState
from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row

if TYPE_CHECKING:
    from hwtune.diagnosis import Evidence
    from hwtune.model import Machine
    from hwtune.model.kernel import Service
    from hwtune.profile import Profile

_CONTAINER = "a container sees no services of its host"
# Each sets governors, energy preferences or sysctls, at its start and some again later. tuned-ppd is
# left out: it speaks power-profiles-daemon's language for tuned.
_TUNERS = (
    "tuned",
    "power-profiles-daemon",
    "tlp",
    "auto-cpufreq",
    "cpupower",
    "cpufrequtils",
    "cpuspeed",
    "laptop-mode",
    "saptune",
    "sapconf",
    "system76-power",
)


def _works(service: Service) -> bool:
    """Whether it is in force: it runs, or it has done its work at boot and left."""
    if service.active.known:
        return service.active.get()
    return service.enabled.known and service.enabled.get()


def _show(service: Service) -> Evidence:
    state = "active" if service.active.known and service.active.get() else "started at boot"
    return evidence(
        service.source or service.name,
        f"{service.name} {state}" + (f", {service.detail}" if service.detail else ""),
    )


@row(
    "service.tuner-conflict",
    title="One service at most tunes this machine",
    symptom="Governor, energy preference or sysctls change back some time after they were set.",
    cause="Two tuners write the same files, each at its own time; the one that wrote last wins.",
    severity="warning",
    scope="service",
    risk="What the stopped tuner set besides is left as it is until the next boot.",
    cost="None.",
    sources=(
        "tuned.conf(5), power-profiles-daemon(8), tlp(8), cpupower.service",
        "tuned.service (Conflicts=power-profiles-daemon.service tlp.service cpupower.service)",
    ),
)
def tuner_conflict(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    if machine.virtualization.is_container:
        return verdict.not_applicable(_CONTAINER)
    services = [s for name in _TUNERS if (s := machine.service.find(name)) is not None]
    working = [s for s in services if _works(s)]
    if len(working) > 1:
        kept = working[0]
        for other in working[1:]:
            verdict.finding(
                f"service:{other.name}",
                f"{other.name} and {kept.name} both tune this machine and undo each other's work.",
                _show(kept),
                _show(other),
                changes=[UnitState(f"{other.name}.service", "stopped")],
            )
        return verdict
    if not machine.service.listed.known:
        return verdict.unknown("kernel", machine.service.listed)
    undecided = [s for s in services if not s.active.known and not s.enabled.known]
    for service in undecided:
        verdict.unknown(f"service:{service.name}", service.active)
    if working:
        return verdict.ok(_show(working[0]), reason=f"{working[0].name} alone tunes this machine")
    return verdict.ok(evidence(machine.service.listed.source, "no tuner"))


# The profiles that tuned ships and that are made for something else (profiles/*/tuned.conf).
_STOCK = frozenset(
    (
        "accelerator-performance", "atomic-guest", "atomic-host", "aws", "balanced", "balanced-battery",
        "cpu-partitioning", "cpu-partitioning-powersave", "default", "desktop", "desktop-powersave",
        "enterprise-storage", "hpc-compute", "intel-sst", "laptop-ac-powersave",
        "laptop-battery-powersave", "latency-performance", "mssql", "network-latency",
        "network-throughput", "oracle", "postgresql", "powersave", "realtime", "realtime-virtual-guest",
        "realtime-virtual-host", "sap-hana", "sap-netweaver", "server-powersave",
        "spindown-disk", "throughput-performance", "virtual-guest", "virtual-host",
    )
)  # fmt: skip
_SAVING = ("powersave", "balanced", "battery", "laptop", "desktop", "spindown")


@row(
    "service.tuned-profile",
    title="tuned's active profile is made for this kind of machine",
    symptom="CPUs clock down or sleep deeply though governor and idle states were set.",
    cause="tuned applies its profile at every boot and change of profile, over what was set by hand.",
    severity="info",
    scope="service",
    risk="A profile sets dozens of values at once.",
    cost="Power, with the profiles for latency.",
    sources=("tuned profiles/*/tuned.conf", "tuned-adm(8)"),
)
def tuned_profile(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    if machine.virtualization.is_container:
        return verdict.not_applicable(_CONTAINER)
    service = machine.service.find("tuned")
    active = machine.service.active("tuned")
    if not active.known:
        return verdict.unknown("service:tuned", active)
    if service is None or not active.get():
        return verdict.not_applicable("tuned does not run")
    name = service.detail.removeprefix("profile ") if service.detail.startswith("profile ") else ""
    if not name:
        return verdict.unknown(
            "service:tuned", "its active profile could not be read (/etc/tuned/active_profile)"
        )
    wanted = profile.service.tuned_profiles
    # A user's own profile may build on any; of several, each is applied over the ones before.
    unfit = [n for n in name.split() if n in _STOCK and not any(fnmatchcase(n, w) for w in wanted)]
    if not unfit or any(fnmatchcase(n, w) for n in name.split() for w in wanted):
        return verdict.ok(
            _show(service), reason="" if not unfit else "the profile for latency is applied with others"
        )
    return verdict.finding(
        "service:tuned",
        f"tuned keeps the machine in its profile {name}, which is made for something else than this.",
        evidence("/etc/tuned/active_profile", name, " or ".join(wanted[:4])),
        advice=f"Choose a profile with: tuned-adm profile {wanted[0]}",
        severity="warning" if any(word in n for n in unfit for word in _SAVING) else "info",
    )


# What they start makes calls into the firmware, each a system management interrupt that stops all
# CPUs at once.
_SMI_TIMERS = {"fwupd-refresh.timer": "fwupd, which asks all devices and the firmware for their versions"}


@row(
    "service.smi-timers",
    title="No timer wakes the firmware",
    symptom="Every CPU stops at once for 0.1 ms or more, some times a day, without a trace in any log.",
    cause="Services that ask the firmware raise system management interrupts, which no kernel can hold off.",
    severity="info",
    scope="service",
    risk="Firmware updates are no longer offered.",
    cost="News of firmware updates, of security fixes too, must be looked for by hand.",
    sources=(
        "OpenShift Node Tuning Operator, performance profile (stops fwupd-refresh.timer for its SMIs)",
        "fwupd.service(8)",
    ),
)
def smi_timers(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    if machine.virtualization.is_container:
        return verdict.not_applicable(_CONTAINER)
    if machine.virtualization.is_guest:
        return verdict.not_applicable("a virtual machine does not reach the firmware of its host")
    for name, what in _SMI_TIMERS.items():
        timer = machine.service.find(name)
        if timer is None:
            continue
        if not timer.enabled.known:
            verdict.unknown(f"service:{name}", timer.enabled)
        elif timer.enabled.get():
            verdict.finding(
                f"service:{name}",
                f"{name} starts {what}, again and again.",
                fact_evidence(timer.enabled, "disabled"),
                changes=[UnitState(name, "stopped")],
            )
        else:
            verdict.ok(fact_evidence(timer.enabled))
    if not (verdict.findings or verdict.unknowns or verdict.good):
        listed = machine.service.listed
        if listed.known:
            verdict.ok(evidence(listed.source, "no such timer"))
        else:
            verdict.unknown("kernel", listed)
    return verdict
