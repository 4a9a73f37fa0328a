"""The services and timers that turn the same knobs as hwtune, or that make noise of their own.

systemd is not asked: it keeps a link for each active unit in /run/systemd/units (systemd's
src/core/unit.c, unit_export_invocation_id), a cgroup for each that has processes, and a link for
each that is started at boot. All of that can be read without root. Where there is no systemd, the
names of the processes tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import ABSENT, NOT_CAPTURED, NOT_PROBED, Fact, gap, known
from hwtune.model.kernel import Service
from hwtune.model.machine import Services

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hwtune.host.base import Host

PART = "service"

# Unit -> the name of its process (at most 15 bytes, TASK_COMM_LEN); "" where none stays.
UNITS = {
    "auto-cpufreq.service": "auto-cpufreq",
    "chrony.service": "chronyd",
    "chronyd.service": "chronyd",
    "cpufrequtils.service": "",
    "cpupower.service": "",
    "cpuspeed.service": "cpuspeed",
    "fstrim.timer": "",
    "fwupd.service": "fwupd",
    "fwupd-refresh.timer": "",
    "irqbalance.service": "irqbalance",
    "ksm.service": "",
    "ksmtuned.service": "ksmtuned",
    "kubelet.service": "kubelet",
    "laptop-mode.service": "",
    "ntp.service": "ntpd",
    "ntpd.service": "ntpd",
    "ntpsec.service": "ntpd",
    "numad.service": "numad",
    "nvidia-fabricmanager.service": "nv-fabricmanage",
    "nvidia-persistenced.service": "nvidia-persiste",
    "openntpd.service": "ntpd",
    "phc2sys.service": "phc2sys",
    "power-profiles-daemon.service": "power-profiles-",
    "ptp4l.service": "ptp4l",
    "rasdaemon.service": "rasdaemon",
    "sapconf.service": "",
    "saptune.service": "",
    "stalld.service": "stalld",
    "system76-power.service": "system76-power",
    "systemd-timesyncd.service": "systemd-timesyn",
    "thermald.service": "thermald",
    "tlp.service": "",
    "timemaster.service": "timemaster",
    "tuned.service": "tuned",
    "tuned-ppd.service": "tuned-ppd",
}
# Units of which there is one for each interface: name@instance.service
TEMPLATES = ("ptp4l", "phc2sys")
_INVOCATION = "invocation:"
_UNIT_FILES = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_CGROUPS = ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice")
# Where sosreport keeps what systemctl printed
_SOS = "/sos_commands/systemd"


class _State:
    """What is known of all units: sets of names, each with where it is from."""

    __slots__ = ("active", "daemons_only", "enabled", "enabled_by", "installed", "masked")

    def __init__(self) -> None:
        self.active: Fact[set[str]] = gap(NOT_CAPTURED, "/run/systemd/units")
        self.daemons_only = False  # ``active`` lacks units without a process
        self.enabled: Fact[bool] = gap(NOT_CAPTURED, _UNIT_FILES[0])  # whether that can be told
        self.enabled_by: dict[str, str] = {}  # unit -> the link that starts it at boot
        self.masked: set[str] = set()
        self.installed: set[str] = set()


def read(host: Host) -> Services:
    state = _State()
    _boot_state(host, state)
    _run_state(host, state)
    found = Services(listed=state.active.map(lambda _: True))
    seen = sorted({*_present(UNITS, state), *_instances(state)})
    for unit in seen:
        found.services.append(_service(host, unit, state))
    if found.find("tuned") is None:
        found.services.extend(_pasted_tuned(host))
    return found


def _pasted_tuned(host: Host) -> list[Service]:
    """tuned by what somebody pasted of tuned-adm, which answers only where it runs."""
    for document in host.documents("tuned-adm active"):
        detail = _detail(host, "tuned")
        if detail:
            return [Service("tuned", known(True, document.path), detail=detail, source=document.path)]
    return []


def _present(units: Iterable[str], state: _State) -> list[str]:
    active = state.active.get() if state.active.known else set()
    return [
        u for u in units if u in active or u in state.enabled_by or u in state.installed or u in state.masked
    ]


def _instances(state: _State) -> list[str]:
    active = state.active.get() if state.active.known else set()
    starts = tuple(f"{name}@" for name in TEMPLATES)
    return [u for u in {*active, *state.enabled_by} if u.startswith(starts) and u.endswith(".service")]


def _service(host: Host, unit: str, state: _State) -> Service:
    name = unit.removesuffix(".service")
    enabled: Fact[bool] = Fact(None, state.enabled.source, state.enabled.gap, state.enabled.detail)
    if unit in state.masked:
        enabled = known(False, f"{_UNIT_FILES[0]}/{unit}")
    elif unit in state.enabled_by:
        enabled = known(True, state.enabled_by[unit])
    elif state.enabled.known:
        enabled = known(False, state.enabled.source)
    active = _active(unit, state)
    detail = "masked" if unit in state.masked else _detail(host, name)
    return Service(name, active, enabled, detail, active.source if active.known else enabled.source)


def _active(unit: str, state: _State) -> Fact[bool]:
    if not state.active.known:
        return Fact(None, state.active.source, state.active.gap, state.active.detail)
    if unit in state.active.get():
        return known(True, state.active.source)
    if unit.endswith(".timer"):
        return gap(NOT_PROBED, unit, "only systemctl tells whether a timer runs")
    if state.daemons_only and not UNITS.get(unit, "daemon"):
        return gap(NOT_PROBED, unit, "it leaves no process behind by which it could be known")
    return known(False, state.active.source)


# -- what starts at boot ------------------------------------------------------------------------


def _boot_state(host: Host, state: _State) -> None:
    listing = host.text(f"{_SOS}/systemctl_list-unit-files") if host.kind == "snapshot" else None
    names = host.names(_UNIT_FILES[0])
    if not names.known and listing is not None and listing.known:
        _unit_files(listing, state)
        return
    state.enabled = names.map(lambda _: True)
    for name in names.get() if names.known else ():
        place = f"{_UNIT_FILES[0]}/{name}"
        if name.endswith((".wants", ".requires")):
            wanted = host.names(place)
            for unit in wanted.get() if wanted.known else ():
                state.enabled_by.setdefault(unit, f"{place}/{unit}")
        elif name in UNITS:
            target = host.resolve(place)
            if target.known and target.get() == "/dev/null":
                state.masked.add(name)
            else:
                state.installed.add(name)
    for directory in _UNIT_FILES[1:]:
        files = host.names(directory)
        state.installed.update(n for n in (files.get() if files.known else ()) if n in UNITS)


def _unit_files(listing: Fact[str], state: _State) -> None:
    """``systemctl list-unit-files``: unit, state."""
    for line in listing.get().splitlines():
        words = line.split()
        if len(words) < 2 or words[0] not in UNITS:
            continue
        if words[1] == "masked":
            state.masked.add(words[0])
        else:
            state.installed.add(words[0])
        if words[1].startswith("enabled"):
            state.enabled_by[words[0]] = listing.source
    state.enabled = known(True, listing.source)


# -- what runs now -------------------------------------------------------------------------------


def _run_state(host: Host, state: _State) -> None:
    links = host.names("/run/systemd/units")
    if links.known:
        starts = len(_INVOCATION)
        state.active = known({n[starts:] for n in links.get() if n.startswith(_INVOCATION)}, links.source)
        return
    if host.kind == "snapshot":
        listing = host.parse(f"{_SOS}/systemctl_list-units", _list_units)
        if listing.known:
            state.active = listing
            return
    for path in _CGROUPS:
        groups = host.names(path)
        if groups.known:
            state.active, state.daemons_only = groups.map(set), True
            return
    managed = host.exists("/run/systemd/system")
    if managed.known and not managed.get():
        state.active, state.daemons_only = _processes(host), True
    else:
        state.active = Fact(None, links.source, links.gap, links.detail)


def _list_units(text: str) -> set[str]:
    """``systemctl list-units``: unit, load state, active state; failed ones have a dot before them."""
    found: set[str] = set()
    rows = 0
    for line in text.splitlines():
        words = line.split()
        if words and len(words[0]) == 1:
            del words[0]
        if len(words) >= 3 and "." in words[0] and words[1] in ("loaded", "not-found", "masked", "error"):
            rows += 1
            if words[2] in ("active", "reloading"):
                found.add(words[0])
    if not rows:
        raise ValueError("no units in it")
    return found


def _processes(host: Host) -> Fact[set[str]]:
    """Units by the names of the processes that run (/proc/PID/comm)."""
    numbers = host.names("/proc")
    if not numbers.known:
        return Fact(None, numbers.source, numbers.gap, numbers.detail)
    running: set[str] = set()
    for number in numbers.get():
        if number.isdecimal():
            name = host.text(f"/proc/{number}/comm")
            if name.known and name.get():  # a process may call itself nothing, as some units have none
                running.add(name.get())
    if not running:
        return gap(ABSENT, "/proc/*/comm")
    return known({unit for unit, name in UNITS.items() if name in running}, "/proc/*/comm")


# -- details --------------------------------------------------------------------------------------


def _detail(host: Host, name: str) -> str:
    if name == "tuned":
        profile = host.text("/etc/tuned/active_profile")
        if profile.known and profile.get():
            return f"profile {profile.get()[:200]}"
        for document in host.documents("tuned-adm active"):
            _, colon, told = document.text.partition("Current active profile:")
            if colon and told.split():
                return f"profile {told.splitlines()[0].strip()[:200]}"
    if name == "kubelet":
        policy = host.parse("/var/lib/kubelet/cpu_manager_state", _policy)
        if policy.known:
            return f"CPU manager policy {policy.get()}"
    return ""


def _policy(text: str) -> str:
    """The policy in the JSON that kubelet keeps of its CPU manager."""
    _, found, rest = text.partition('"policyName":"')
    policy, quote, _ = rest.partition('"')
    if not found or not quote or len(policy) > 60:
        raise ValueError("not the state of kubelet's CPU manager")
    return policy
