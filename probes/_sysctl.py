"""Sysctls: live values, and every setting of sysctl.d in the order in which it is applied (sysctl.d(5))."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwtune.fact import INVALID, TOO_LARGE, Fact, gap, known
from hwtune.model.kernel import Sysctls, SysctlSetting
from hwtune.probes._sysctl_keys import KEYS
from hwtune.text import sysctl_d

if TYPE_CHECKING:
    from hwtune.host.base import Host

# In the order of their priority. Where /lib is a link to /usr/lib, the last is the one before it.
DIRECTORIES = (
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
)
TRADITIONAL = "/etc/sysctl.conf"
# A distribution ships some 20 files; what has more settings than this is no configuration.
_MOST_FILES = 1000
_MOST_SETTINGS = 20_000
_MOST_KEYS = 2000


def read(host: Host) -> Sysctls:
    found = Sysctls()
    _read_files(host, found)
    found.by_systemd = _by_systemd(host)
    wanted = dict.fromkeys(KEYS)
    for setting in found.settings + found.unread:
        if not sysctl_d.is_pattern(setting.key) and len(wanted) < _MOST_KEYS:
            wanted[setting.key] = None
    pasted = _pasted(host)
    for key in wanted:
        fact = value(host, key)
        if fact.unknown and key in pasted:
            fact = pasted[key]
        found.values[key] = fact
    return found


def value(host: Host, key: str) -> Fact[str]:
    """One live value: white space between the numbers of a vector is one blank."""
    try:
        path = sysctl_d.path(key)
    except ValueError as error:
        return gap(INVALID, f"sysctl {key[:60]}", str(error))
    return host.text(path).map(_blanks)


def _blanks(text: str) -> str:
    return " ".join(text.split()) if "\t" in text else text


def _by_systemd(host: Host) -> Fact[bool]:
    here = host.exists("/usr/lib/systemd/systemd-sysctl")
    if here.known and not here.get():
        here = host.exists("/lib/systemd/systemd-sysctl")
    return here


def _pasted(host: Host) -> dict[str, Fact[str]]:
    """Values that somebody pasted from ``sysctl -a``."""
    found: dict[str, Fact[str]] = {}
    for document in host.documents("sysctl -a"):
        for line in document.text.splitlines():
            key, equals, text = line.partition("=")
            if equals:
                found[sysctl_d.normalize(key.strip())] = known(_blanks(text.strip()), document.path)
    return found


def _read_files(host: Host, found: Sysctls) -> None:
    listed, missing = _list(host)
    order, masked = sysctl_d.applied_order(listed)
    found.masked = sorted(masked)
    read_as: set[str] = set()
    for path in order:
        real = host.resolve(path)
        place = real.get() if real.known else path
        if place == "/dev/null":
            continue
        same_name = place.rsplit("/", 1)[-1] == path.rsplit("/", 1)[-1]
        read_as.add(place)
        problem = _read_file(
            host, path, path if same_name else place, "" if same_name else path, found.settings
        )
        if problem is not None:
            missing.append(problem)
    found.files = _first_gap(missing) if missing else known(order, ", ".join(DIRECTORIES))
    found.traditional = known(True, TRADITIONAL)
    if TRADITIONAL not in read_as:
        problem = _read_file(host, TRADITIONAL, TRADITIONAL, "", found.unread)
        if problem is not None:
            found.traditional = problem.map(lambda _: True)


def _first_gap(missing: list[Fact[Any]]) -> Fact[Any]:
    """Why the files are not all known: the gap of the first, and the names of the others."""
    first = missing[0]
    others = ", ".join(fact.source for fact in missing[1:])
    return Fact(None, first.source, first.gap, f"as are {others}" if others else first.detail)


def _list(host: Host) -> tuple[list[str], list[Fact[Any]]]:
    """All files by the priority of their directories, and the directories that could not be listed."""
    listed: list[str] = []
    missing: list[Fact[Any]] = []
    seen: set[str] = set()
    for directory in DIRECTORIES:
        real = host.resolve(directory)
        if real.known:
            if real.get() in seen:
                continue
            seen.add(real.get())
        names = host.names(directory)
        if names.known:
            listed.extend(f"{directory}/{n}" for n in names.get() if n.endswith(".conf"))
        elif not names.absent:
            missing.append(names)
    return listed[:_MOST_FILES], missing


def _read_file(
    host: Host, path: str, place: str, through: str, into: list[SysctlSetting]
) -> Fact[bytes] | None:
    """Append a file's settings; the gap of one that could not be read, though it may be there."""
    content = host.read_bytes(path)
    if not content.known:
        # A link that leads to nothing is passed over by systemd-sysctl as well.
        return None if content.absent else content
    if len(into) > _MOST_SETTINGS:
        return Fact(None, path, TOO_LARGE, f"over {_MOST_SETTINGS} settings before it")
    assignments, _ = sysctl_d.parse(content.get().decode("utf-8", "replace"))
    into.extend(
        SysctlSetting(a.key, a.value, place, a.line, a.optional, through)
        for a in assignments
        if not sysctl_d.is_secret(a.key)
    )
    return None
