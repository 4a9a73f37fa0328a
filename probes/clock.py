"""Time: the clocksource, the TSC, what the log says of them, and who keeps the clock right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from hwtune.fact import ABSENT, INVALID, NOT_CAPTURED, Fact, gap, known
from hwtune.model.kernel import Clock, TimerStall, UnstableTsc
from hwtune.probes import _kernel_log
from hwtune.text import clock_log

if TYPE_CHECKING:
    from hwtune.host.base import Host
    from hwtune.model.kernel import LogLine

PART = "clock"

T = TypeVar("T")

_SOURCE = "/sys/devices/system/clocksource/clocksource0"
# arch/x86/include/asm/cpufeatures.h; tsc_reliable is what hypervisors and SoCs vouch for
_FLAGS = (
    "tsc",
    "constant_tsc",
    "nonstop_tsc",
    "nonstop_tsc_s3",
    "tsc_known_freq",
    "tsc_reliable",
    "tsc_adjust",
    "rdtscp",
)
# Where daemons that steer the clock leave their process number while they run.
_PID_FILES = (
    ("chronyd", "/run/chrony/chronyd.pid"),
    ("chronyd", "/run/chronyd.pid"),
    ("ntpd", "/run/ntpd.pid"),
    ("ntpd", "/run/ntpsec/ntpd.pid"),
    ("openntpd", "/run/openntpd.pid"),
)
# systemd-timesyncd touches it once it has set the clock (systemd-timesyncd.service(8)); /run is
# empty after a boot.
_TIMESYNCD = "/run/systemd/timesync/synchronized"


def read(host: Host) -> Clock:
    clock = Clock()
    clock.source = host.parse(f"{_SOURCE}/current_clocksource", _word)
    clock.available = host.text(f"{_SOURCE}/available_clocksource").map(str.split)
    clock.tsc_flags = _tsc_flags(host)
    _read_log(host, clock)
    _read_synchronization(host, clock)
    clock.ptp_clocks = _ptp_clocks(host)
    return clock


def _word(text: str) -> str:
    (word,) = text.split()
    return word


def _tsc_flags(host: Host) -> Fact[list[str]]:
    """The TSC's flags of the first CPU; ABSENT where /proc/cpuinfo has no x86 flags."""
    cpuinfo = host.text("/proc/cpuinfo", 64 << 20)
    if not cpuinfo.known:
        return cpuinfo.map(lambda _: [])
    text = cpuinfo.get()
    end = text.find("\n\n")
    fields = {}
    for line in (text if end < 0 else text[:end]).splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() and line.expandtabs().isprintable():
            fields[name.strip()] = value
    if not fields:
        return gap(INVALID, cpuinfo.source, "no field in it")
    if "flags" not in fields:
        return gap(ABSENT, f"{cpuinfo.source} flags")
    flags = set(fields["flags"].split())
    return known([flag for flag in _FLAGS if flag in flags], cpuinfo.source)


def _read_log(host: Host, clock: Clock) -> None:
    lines, readable = _kernel_log.lines(host)
    texts = [line.text for line in lines]
    stalls = [
        TimerStall(lines[index].source, lines[index].text, nanoseconds, lines[index].seconds)
        for index, nanoseconds in clock_log.stalls(texts)
    ]
    unstable = clock_log.unstable(texts)
    missing: Fact[Any] | None = None
    if not readable.known:
        missing = Fact(None, readable.source, readable.gap, readable.detail)
    elif not _from_boot(lines):
        # Both are told of once a boot: a log that lost its beginning, or a part that somebody pasted,
        # may have had the line.
        missing = _kernel_log.beginning_lost(host, readable.source)
    clock.stalls = known(stalls, stalls[0].source) if stalls else (missing or known([], readable.source))
    if unstable is None:
        clock.tsc_unstable = missing or gap(ABSENT, readable.source)
        return
    line = lines[unstable.line]
    clock.tsc_unstable = known(
        UnstableTsc(line.source, line.text, unstable.cpu, unstable.reason, line.seconds), line.source
    )


def _from_boot(lines: list[LogLine]) -> bool:
    """Whether the log has its first lines still: the banner is among them (init/main.c)."""
    return any(line.text.startswith("Linux version ") for line in lines[:50])


def _read_synchronization(host: Host, clock: Clock) -> None:
    answer = host.ask("adjtimex")
    clock.synchronized = answer.map(lambda said: _field(said, "synchronized", bool))
    clock.estimated_error_us = answer.map(lambda said: _field(said, "estimated_error_us", int))
    clock.max_error_us = answer.map(lambda said: _field(said, "max_error_us", int))
    for document in host.documents("chronyc tracking"):
        if clock.synchronized.unknown:
            clock.synchronized = clock.synchronized.or_else(_leap_status(document.text, document.path))
    found = [name for name, path in _PID_FILES if _runs(host, name, path)]
    timesyncd = host.exists(_TIMESYNCD)
    if timesyncd.known and timesyncd.get():
        found.append("systemd-timesyncd")
    clock.sync_services = list(dict.fromkeys(found))


def _field(said: Any, name: str, kind: type[T]) -> T:
    """One field of an answer, which a snapshot may hold in any shape."""
    if not isinstance(said, dict) or not isinstance(said.get(name), kind):
        raise ValueError(f"no {name} in it")
    value: T = said[name]
    return value


def _leap_status(text: str, source: str) -> Fact[bool]:
    """What ``chronyc tracking`` says: any leap status but "Not synchronised" is that of a kept clock."""
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() == "Leap status":
            return known(value.strip() != "Not synchronised", source)
    return gap(NOT_CAPTURED, source)


def _runs(host: Host, name: str, path: str) -> bool:
    """Whether the process of a pid file is there and is still that daemon."""
    pid = host.integer(path)
    if not pid.known or pid.get() <= 0:
        return False
    comm = host.text(f"/proc/{pid.get()}/comm")
    return comm.known and comm.get() in (name, "ntpd")


def _ptp_clocks(host: Host) -> list[str]:
    names = host.names("/sys/class/ptp")
    if not names.known:
        return []
    found = []
    for name in sorted(names.get(), key=lambda n: (len(n), n)):
        label = host.text(f"/sys/class/ptp/{name}/clock_name")
        found.append(f"{name} {label.get()}" if label.known and label.get() else name)
    return found
