"""Sysctls that are set in files and not in force: contradicted, unread, overwritten or without effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.changes import places
from hwtune.diagnosis import Verdict, evidence, fact_evidence
from hwtune.diagnosis.row import row
from hwtune.text.sysctl_d import is_pattern, same_value

if TYPE_CHECKING:
    from hwtune.diagnosis import Evidence
    from hwtune.model import Machine
    from hwtune.model.kernel import SysctlSetting
    from hwtune.profile import Profile

_CONTAINER = "a container's sysctl.d is not applied: look at its host"
_SYSCTL_D = "sysctl.d(5)"
# Files that Debian and Ubuntu ship in /etc: a later file that says otherwise is an administrator's
# choice, not a contradiction.
_SHIPPED_IN_ETC = frozenset(
    f"/etc/sysctl.d/10-{name}.conf"
    for name in (
        "bufferbloat", "console-messages", "ipv6-privacy", "kernel-hardening", "lxd-inotify", "magic-sysrq",
        "map-count", "network-security", "ptrace", "zeropage",
    )
)  # fmt: skip
# Setting one of a pair sets the other to 0 (Documentation/admin-guide/sysctl/vm.rst).
_PAIRS = (
    ("vm.dirty_bytes", "vm.dirty_ratio"),
    ("vm.dirty_background_bytes", "vm.dirty_background_ratio"),
    ("vm.overcommit_kbytes", "vm.overcommit_ratio"),
)
_PARTNER = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
# Of the hundreds of sysctls those that bear on latency; of others nobody need hear that a service
# set them after the boot (a crash handler kernel.core_pattern, a container engine ip_forward).
_TELLING = (
    "vm.", "net.core.", "net.ipv4.tcp_", "net.ipv4.udp_", "kernel.sched_", "kernel.numa_balancing",
    "kernel.nmi_watchdog", "kernel.watchdog", "kernel.soft_watchdog", "kernel.timer_migration",
    "kernel.hung_task", "kernel.perf_cpu", "kernel.softlockup",
)  # fmt: skip
# Writing these does something and leaves no value to compare.
_ACTIONS = frozenset(("vm.drop_caches", "vm.compact_memory", "vm.stat_refresh", "net.ipv4.route.flush"))
_MOST = 8


def _place(setting: SysctlSetting) -> str:
    through = f" (read as {setting.through})" if setting.through else ""
    return f"{setting.file}:{setting.line}{through}"


def _show(setting: SysctlSetting, note: str = "", expected: str = "") -> Evidence:
    value = f"{setting.key} = {setting.value}"
    return evidence(_place(setting), f"{value}   {note}" if note else value, expected)


def _shipped(setting: SysctlSetting) -> bool:
    """Whether a distribution or a package set it, not the machine's administrator."""
    return setting.file in _SHIPPED_IN_ETC or not setting.file.startswith(("/etc/", "/run/", "/usr/local/"))


def _by_key(machine: Machine) -> dict[str, list[SysctlSetting]]:
    """Settings of each key in the order in which they are applied, without patterns and exclusions."""
    found: dict[str, list[SysctlSetting]] = {}
    for setting in machine.kernel.sysctl.settings:
        if setting.value is not None and not is_pattern(setting.key):
            found.setdefault(setting.key, []).append(setting)
    return found


def _differ(a: SysctlSetting, b: SysctlSetting) -> bool:
    return not same_value(a.value or "", b.value or "") and not same_value(b.value or "", a.value or "")


# -- sysctl-conflict ------------------------------------------------------------------------------------


@row(
    "kernel.sysctl-conflict",
    title="No two files set one sysctl to different values",
    symptom="A value set in one file is not in force after a boot, whatever was tried by hand.",
    cause=(
        "systemd-sysctl applies all files sorted by their names, whatever their directory: the last one to "
        "name a key wins, and 99-hwtune.conf comes before 99-sysctl.conf."
    ),
    severity="warning",
    scope="runtime",
    risk="The file that loses may be the one that was meant.",
    cost="None.",
    sources=(_SYSCTL_D, "Documentation/admin-guide/sysctl/vm.rst (dirty_bytes, dirty_background_bytes)"),
)
def sysctl_conflict(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    if machine.virtualization.is_container:
        return verdict.not_applicable(_CONTAINER)
    groups = _by_key(machine)
    for settings in groups.values():
        _contradicted(verdict, machine, settings)
    for pair in _PAIRS:
        _excluded(verdict, machine, groups, pair)
    files = machine.kernel.sysctl.files
    if not files.known:
        verdict.unknown("kernel", files)
    elif not verdict.findings:
        verdict.ok(
            evidence(f"{len(files.get())} files of sysctl.d", f"{len(groups)} keys, none set to two values")
        )
    return verdict


def _contradicted(verdict: Verdict, machine: Machine, settings: list[SysctlSetting]) -> None:
    winner = settings[-1]
    losers = [s for s in settings[:-1] if _differ(s, winner) and not _shipped(s)]
    if not losers:
        return
    if winner.file == places.SYSCTL:  # it is there to win, and reverted the others hold again
        verdict.ok(*(_show(s, "overridden by hwtune") for s in losers[-_MOST:]), _show(winner))
        return
    live = machine.kernel.sysctl.values.get(winner.key)
    shown = [evidence(live.source, live.get())] if live is not None and live.known else []
    if _shipped(winner):
        message = "A file of the distribution is read after yours and wins."
    elif any(s.file == winner.file for s in losers) and len({s.file for s in settings}) == 1:
        message = "One file sets it twice; the last line wins."
    else:
        message = "Two files set it to different values; the one whose name sorts last wins."
    verdict.finding(
        f"sysctl:{winner.key}",
        message,
        *(_show(s, "loses") for s in losers[-_MOST:]),
        _show(winner, "wins"),
        *shown,
        advice=f"Keep one line for {winner.key}, in a file whose name sorts last.",
    )


def _excluded(
    verdict: Verdict, machine: Machine, groups: dict[str, list[SysctlSetting]], pair: tuple[str, str]
) -> None:
    a, b = (groups.get(key, []) for key in pair)
    if not a or not b or "0" in (a[-1].value, b[-1].value):
        return
    order = machine.kernel.sysctl.settings
    first, last = sorted((a[-1], b[-1]), key=order.index)
    if _shipped(first) or (last.file == places.SYSCTL and first.file != places.SYSCTL):
        return
    verdict.finding(
        f"sysctl:{first.key}",
        f"It is set to 0 when {last.key} is set, which comes after it: of the two only one can be in force.",
        _show(first, "loses"),
        _show(last, "wins"),
        advice=f"Keep either {first.key} or {last.key}.",
    )


# -- sysctl-unread --------------------------------------------------------------------------------------


@row(
    "kernel.sysctl-unread",
    title="What /etc/sysctl.conf holds is applied at boot",
    symptom="Settings are in force after `sysctl -p` and gone after a reboot.",
    cause=(
        "systemd-sysctl reads sysctl.d and not /etc/sysctl.conf. Distributions used to link it there as "
        "99-sysctl.conf; newer ones do not (Debian 13)."
    ),
    severity="warning",
    scope="runtime",
    risk="Settings long forgotten come into force.",
    cost="None.",
    sources=(_SYSCTL_D, "systemd-sysctl.service(8)", "Debian 13 release notes (sysctl.conf)"),
)
def sysctl_unread(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    sysctl = machine.kernel.sysctl
    if machine.virtualization.is_container:
        return verdict.not_applicable(_CONTAINER)
    if not sysctl.unread:
        if not sysctl.files.known or sysctl.traditional.unknown:
            return verdict.unknown("kernel", *(f for f in (sysctl.traditional, sysctl.files) if f.unknown))
        return verdict.ok(evidence("/etc/sysctl.conf", "read, or without settings"))
    if not sysctl.by_systemd.known or not sysctl.files.known:
        return verdict.unknown("kernel", *(f for f in (sysctl.by_systemd, sysctl.files) if not f.known))
    if not sysctl.by_systemd.get():
        return verdict.not_applicable("without systemd-sysctl, /etc/sysctl.conf is read by sysctl(8) itself")
    set_again = {s.key: s.value for s in sysctl.settings}
    lost = [s for s in sysctl.unread if set_again.get(s.key) != s.value]
    if not lost:
        return verdict.ok(evidence("/etc/sysctl.conf", "all of it is in sysctl.d as well"))
    in_force = [s for s in lost if _live_is(machine, s)]
    return verdict.finding(
        f"sysctl:{lost[0].key}" if len(lost) == 1 else "kernel",
        "Nothing reads /etc/sysctl.conf at boot"
        + (
            ": what it sets now came by hand and will be gone."
            if in_force
            else ", so what it sets is not in force."
        ),
        *(_show(s) for s in lost[:_MOST]),
        *([evidence("/etc/sysctl.conf", f"and {len(lost) - _MOST} more")] if len(lost) > _MOST else []),
        advice="Move the lines to a file of your own in /etc/sysctl.d.",
    )


def _live_is(machine: Machine, setting: SysctlSetting) -> bool:
    live = machine.kernel.sysctl.values.get(setting.key)
    return live is not None and live.known and same_value(setting.value or "", live.get())


# -- sysctl-not-live ------------------------------------------------------------------------------------


@row(
    "kernel.sysctl-not-live",
    title="Sysctls have the values that files give them",
    symptom="The configuration looks right and the machine behaves as if it were not there.",
    cause=(
        "Files are applied once, early in the boot. A tuner, a service or a person may write another value "
        "later, a module may bring its defaults when it is loaded, and an edited file waits to be applied."
    ),
    severity="warning",
    scope="runtime",
    risk="Whoever set the present value may have had a reason.",
    cost="None.",
    sources=(_SYSCTL_D, "systemd-sysctl.service(8)", "tuned-main.conf(5) (reapply_sysctl)"),
)
def sysctl_not_live(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    if machine.virtualization.is_container:
        return verdict.not_applicable(_CONTAINER)
    groups = _by_key(machine)
    judged = 0
    unread = None
    for key, settings in groups.items():
        if not key.startswith(_TELLING) or key in _ACTIONS or _PARTNER.get(key) in groups:
            continue
        live = machine.kernel.sysctl.values.get(key)
        if live is None or live.absent:
            continue  # kernel.sysctl-noop speaks of those
        if not live.known:
            unread = unread or live
            continue
        judged += 1
        if not same_value(settings[-1].value or "", live.get()):
            verdict.finding(
                f"sysctl:{key}",
                f"{key} is not what its file says: something set it after the boot, or the file was "
                f"changed and not applied.{_suspects(machine)}",
                _show(settings[-1]),
                fact_evidence(live, settings[-1].value),
                advice="Find who sets it, or apply the files with: systemctl restart systemd-sysctl",
            )
    files = machine.kernel.sysctl.files
    if unread is not None:
        verdict.unknown("kernel", unread)
    if not files.known:
        verdict.unknown("kernel", files)
    elif judged and not verdict.findings:
        verdict.ok(evidence("sysctl.d", f"{judged} values as their files say"))
    elif not judged and unread is None:
        verdict.ok(evidence("sysctl.d", "sets nothing that bears on latency"))
    return verdict


def _suspects(machine: Machine) -> str:
    """Active services that are known to write sysctls."""
    names = []
    for name in ("tuned", "saptune", "sapconf", "kubelet", "tlp"):
        active = machine.service.active(name)
        service = machine.service.find(name)
        if service is not None and active.known and active.get():
            names.append(f"{name} ({service.detail})" if service.detail else name)
    return f" Active here and known to set sysctls: {', '.join(names)}." if names else ""


# -- sysctl-noop ----------------------------------------------------------------------------------------

# Keys that are still there and do nothing: what says so
_WITHOUT_EFFECT = {
    "net.ipv4.tcp_low_latency": ((4, 14), "Documentation/networking/ip-sysctl.rst"),
    "net.ipv4.tcp_fack": ((4, 15), "Documentation/networking/ip-sysctl.rst"),
    "net.ipv4.tcp_adv_win_scale": ((6, 6), "Documentation/networking/ip-sysctl.rst"),
}
_MOVED = {
    "kernel.sched_latency_ns": "since 5.13 in /sys/kernel/debug/sched, since 6.6 gone",
    "kernel.sched_min_granularity_ns": "since 5.13 in /sys/kernel/debug/sched, as base_slice_ns since 6.6",
    "kernel.sched_wakeup_granularity_ns": "since 5.13 in /sys/kernel/debug/sched, since 6.6 gone",
    "kernel.sched_migration_cost_ns": "since 5.13 in /sys/kernel/debug/sched",
    "kernel.sched_nr_migrate": "since 5.13 in /sys/kernel/debug/sched",
    "kernel.sched_tunable_scaling": "since 5.13 in /sys/kernel/debug/sched",
    "net.ipv4.tcp_tw_recycle": "removed in 4.12",
}
# Keys that come with a module, a namespace or an interface: that they are missing now says little.
_ON_DEMAND = ("net.bridge.", "net.netfilter.", "net.nf_conntrack", "net.ipv4.conf.", "net.ipv6.",
              "net.ipv4.neigh.", "net.ipv4.vs.", "net.mptcp.", "net.sctp.", "net.mpls.", "fs.", "sunrpc.",
              "dev.", "crypto.", "user.", "debug.", "abi.")  # fmt: skip


@row(
    "kernel.sysctl-noop",
    title="Sysctls that files set exist and do something",
    symptom="A tuning from an old recipe is set and nothing changes.",
    cause="Kernels drop and move sysctls; a file that still names them sets nothing, or what nobody reads.",
    severity="info",
    scope="runtime",
    risk="None: what is dropped had no effect.",
    cost="None.",
    sources=(
        "Documentation/networking/ip-sysctl.rst (tcp_low_latency, tcp_fack, tcp_adv_win_scale)",
        "kernel/sched/debug.c (sched_init_debug)",
        _SYSCTL_D,
    ),
)
def sysctl_noop(machine: Machine, profile: Profile) -> Verdict:
    verdict = Verdict()
    if machine.virtualization.is_container:
        return verdict.not_applicable(_CONTAINER)
    groups = _by_key(machine)
    for key, settings in groups.items():
        _without_effect(verdict, machine, key, settings[-1])
    files = machine.kernel.sysctl.files
    if not files.known:
        verdict.unknown("kernel", files)
    elif not verdict.findings:
        verdict.ok(evidence("sysctl.d", f"{len(groups)} keys, none known to be without effect"))
    return verdict


def _without_effect(verdict: Verdict, machine: Machine, key: str, setting: SysctlSetting) -> None:
    if _shipped(setting):
        return
    remove = f"Remove the line from {setting.file}."
    if key in _WITHOUT_EFFECT:
        since, source = _WITHOUT_EFFECT[key]
        version = machine.kernel.release.map(_version)
        if version.known and version.get() >= since:
            verdict.finding(
                f"sysctl:{key}",
                f"{key} has no effect since Linux {since[0]}.{since[1]}.",
                _show(setting, expected="no such line"),
                evidence(source, "no effect"),
                advice=remove,
            )
        return
    live = machine.kernel.sysctl.values.get(key)
    if live is None or not live.absent:
        return
    if key in _MOVED:
        verdict.finding(
            f"sysctl:{key}",
            f"This kernel has no {key} ({_MOVED[key]}): the tuning is not in force.",
            _show(setting),
            fact_evidence(live),
            advice=remove,
            severity="warning",
        )
    elif not setting.optional and not key.startswith(_ON_DEMAND):
        verdict.finding(
            f"sysctl:{key}",
            f"This kernel has no {key}, so that the line does nothing.",
            _show(setting),
            fact_evidence(live),
            advice=remove,
        )


def _version(release: str) -> tuple[int, int]:
    major, _, rest = release.partition(".")
    return int(major), int(rest.partition(".")[0].partition("-")[0])
