"""The kernel: release, command line, sysctls, boot loader, and what its log says of its arguments.

Of the log only the lines that say something of arguments and of lockdown are kept: the parts of
other subsystems keep theirs, and a report is no place for ten thousand lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import ABSENT, INVALID, UNREADABLE, Fact, gap, known
from hwtune.model.kernel import Kernel, KernelArgument
from hwtune.probes import _boot, _kconfig, _kernel_log, _sysctl
from hwtune.text import cmdline
from hwtune.text.number import finite

if TYPE_CHECKING:
    from hwtune.host.base import Host

PART = "kernel"

# init/main.c, since Linux 5.14
_UNKNOWN = 'Unknown kernel command line parameters "'
# Lines of init/main.c, kernel/params.c, kernel/sched/isolation.c, block/elevator.c and
# security/lockdown/lockdown.c that tell of arguments refused, or of what lockdown denies.
_TELLING = (
    _UNKNOWN,
    "Malformed early option '",
    "Booting kernel: ",
    "Housekeeping: ",
    "isolcpus: ",
    "NO_HZ: ",
    "Kernel parameter elevator=",
    "Kernel is locked down",
    "Lockdown: ",
)
_MOST_LINES = 50
# Arguments that a kernel without the option passes over.
_OPTIONAL = frozenset(("nohz_full", "rcu_nocbs", "isolcpus", "rcu_nocb_poll"))


def read(host: Host) -> Kernel:
    found = Kernel()
    _identity(host, found)
    found.cmdline = host.text("/proc/cmdline")
    found.arguments = found.cmdline.map(arguments)
    if not found.release.known:
        _take_release(found, found.arguments.map(_booted))
    found.sysctl = _sysctl.read(host)
    found.tainted = host.integer("/proc/sys/kernel/tainted")
    found.modules = host.parse("/proc/modules", _modules)
    whole_log = _log(host, found)
    found.lockdown = _lockdown(host, found, whole_log)
    names = {a.name for a in found.arguments.get()} if found.arguments.known else set()
    found.config = _kconfig.read(host, found.release, unpack=not names.isdisjoint(_OPTIONAL))
    found.preemption = _preemption(host, found)
    boot = _boot.read(host)
    found.boot_loader, found.next_cmdline = boot.loader, boot.next
    found.configured_arguments = boot.configured.map(arguments)
    return found


def arguments(text: str) -> list[KernelArgument]:
    return [KernelArgument(a.name, a.value, a.text) for a in cmdline.parse(text)]


def _identity(host: Host, found: Kernel) -> None:
    banner = host.parse("/proc/version", _banner)
    names = host.parse("/proc/hwloc-nofile-info", _pairs)  # where hwloc-gather-topology keeps uname's words
    found.release = _first(
        host.text("/proc/sys/kernel/osrelease"), banner.map(lambda b: b[0]), _entry(names, "OSRelease")
    )
    found.version = _first(
        host.text("/proc/sys/kernel/version"), banner.map(lambda b: b[1]), _entry(names, "OSVersion")
    )
    found.hostname = _first(
        host.parse("/proc/sys/kernel/hostname", _word),
        host.parse("/etc/hostname", _word),
        _entry(names, "HostName"),
    )
    found.architecture = _first(host.text("/proc/sys/kernel/arch"), _entry(names, "Architecture"))
    if not found.architecture.known:
        found.architecture = host.ask("uname").map(_machine).or_else(found.release.map(_architecture))
    os_release = host.parse("/etc/os-release", _os_release)
    if not os_release.known:
        os_release = os_release.or_else(host.parse("/usr/lib/os-release", _os_release))
    found.distribution = _entry(os_release, "ID")
    found.distribution_name = _entry(os_release, "PRETTY_NAME")
    found.boot_id = host.text("/proc/sys/kernel/random/boot_id")
    found.uptime_s = host.parse("/proc/uptime", _first_number)


def _log(host: Host, found: Kernel) -> bool:
    """Fills what the log says; whether it reaches back to the boot."""
    lines, found.log_known = _kernel_log.lines(host)
    found.log = [line for line in lines if line.text.startswith(_TELLING)][:_MOST_LINES]
    source = found.log_known.source
    banner = next((line for line in lines if line.text.startswith("Linux version ")), None)
    whole = banner is not None
    if banner is not None and not found.release.known:
        names = known(banner.text, banner.source).map(_banner)
        _take_release(found, names.map(lambda b: b[0]))
        found.version = _first(found.version, names.map(lambda b: b[1]))
    told = next((line for line in found.log if line.text.startswith(_UNKNOWN)), None)
    if told is not None:
        found.unknown_parameters = known(_unknown(told.text), told.source)
    elif not found.log_known.known:
        found.unknown_parameters = Fact(None, source, found.log_known.gap, found.log_known.detail)
    elif not whole:
        found.unknown_parameters = _kernel_log.beginning_lost(host, source)
    elif _says_unknown(found.release):
        found.unknown_parameters = known([], source)
    else:
        found.unknown_parameters = gap(ABSENT, source, "kernels before 5.14 do not say")
    return whole


def _lockdown(host: Host, found: Kernel, whole_log: bool) -> Fact[str]:
    """none, integrity or confidentiality; "on" where only the log tells (securityfs is not mounted)."""
    told = host.parse("/sys/kernel/security/lockdown", _bracketed)
    if told.known:
        return told
    line = next((one for one in found.log if one.text.startswith("Kernel is locked down")), None)
    if line is not None:
        asked = found.argument_values("lockdown")
        level = asked[-1] if asked and asked[-1] in ("integrity", "confidentiality") else "on"
        return known(level, line.source)
    if not told.absent:
        return told
    if whole_log:
        return known("none", found.log_known.source)
    securityfs = host.names("/sys/kernel/security")
    if securityfs.value == []:
        return gap(UNREADABLE, told.source, "securityfs is not mounted")
    return told


def _unknown(text: str) -> list[str]:
    """The arguments between the quotes, as they were written."""
    inside = text[len(_UNKNOWN) :].rpartition('"')[0] or text[len(_UNKNOWN) :]
    return [a.text for a in cmdline.parse(inside)]


def _says_unknown(release: Fact[str]) -> bool:
    """Whether this kernel logs the parameters that it does not know. Not so before 5.14."""
    version = release.map(_major_minor)
    return version.known and version.get() >= (5, 14)


def _major_minor(release: str) -> tuple[int, int]:
    major, _, rest = release.partition(".")
    return int(major), int(rest.partition(".")[0].partition("-")[0])


def _preemption(host: Host, found: Kernel) -> Fact[str]:
    """rt, full, lazy, voluntary, none; "dynamic" where the kernel can change and does not say to what."""
    if not found.version.known:
        real_time = host.integer("/sys/kernel/realtime")
        if real_time.known and real_time.get() == 1:
            return known("rt", real_time.source)
        return Fact(None, found.version.source, found.version.gap, found.version.detail)
    source = found.version.source
    words = found.version.get().split()
    if "PREEMPT_RT" in words or ("PREEMPT" in words and "RT" in words):
        return known("rt", source)
    if "PREEMPT_DYNAMIC" in words:
        return _dynamic(host, found)
    if "PREEMPT_LAZY" in words:
        return known("lazy", source)
    if "PREEMPT" in words:
        return known("full", source)
    built = found.config.map(_built_preemption)
    return (
        built if built.known else gap(INVALID, source, "it tells voluntary preemption from none in no word")
    )


def _dynamic(host: Host, found: Kernel) -> Fact[str]:
    now = host.parse("/sys/kernel/debug/sched/preempt", _parenthesised)
    if now.known:
        return now
    asked = found.argument_values("preempt")
    if asked and asked[-1] in ("none", "voluntary", "full", "lazy"):
        return known(asked[-1], found.cmdline.source)
    built = found.config.map(_built_preemption)
    return built if built.known else known("dynamic", found.version.source)


def _built_preemption(config: dict[str, str]) -> str:
    for option, name in (
        ("CONFIG_PREEMPT_RT", "rt"),
        ("CONFIG_PREEMPT_NONE", "none"),
        ("CONFIG_PREEMPT_VOLUNTARY", "voluntary"),
        ("CONFIG_PREEMPT_LAZY", "lazy"),
        ("CONFIG_PREEMPT", "full"),
    ):
        if config.get(option) == "y":
            return name
    raise ValueError("no preemption model in it")


def _parenthesised(text: str) -> str:
    """The chosen one of "none (voluntary) full"."""
    for word in text.split():
        if word.startswith("(") and word.endswith(")"):
            return word[1:-1]
    raise ValueError("nothing in parentheses")


def _take_release(found: Kernel, release: Fact[str]) -> None:
    """The release from a place that is not its own, and the architecture that it names."""
    if release.known:
        found.release = release
        if not found.architecture.known:
            found.architecture = release.map(_architecture)


def _booted(given: list[KernelArgument]) -> str:
    """The release in the name of the file that GRUB booted (BOOT_IMAGE=...vmlinuz-RELEASE)."""
    for argument in given:
        if argument.name == "BOOT_IMAGE":
            _, found, release = (argument.value or "").rpartition("/vmlinuz-")
            if found and release[:1].isdigit():
                return release
    raise ValueError("names no kernel's file")


def _first(*facts: Fact[str]) -> Fact[str]:
    """The first that is known, else the first."""
    return next((fact for fact in facts if fact.known), facts[0])


def _entry(facts: Fact[dict[str, str]], name: str) -> Fact[str]:
    if facts.known and name not in facts.get():
        return gap(ABSENT, f"{facts.source} {name}")
    return facts.map(lambda found: found[name])


def _banner(text: str) -> tuple[str, str]:
    """Release and version of "Linux version 6.1.0 (builder) (compiler) #1 SMP ..."."""
    words = text.split(" ", 3)
    if words[:2] != ["Linux", "version"] or len(words) < 3:
        raise ValueError("not a kernel's banner")
    at = text.find(" #")
    return words[2], text[at + 1 :] if at >= 0 else ""


def _pairs(text: str) -> dict[str, str]:
    """Lines "Name: value"."""
    found = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and value.strip():
            found[name.strip()] = value.strip()
    return found


def _os_release(text: str) -> dict[str, str]:
    """Assignments as in a shell; os-release(5) allows quotes and no expansion."""
    found = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            found[name] = value.strip().strip("\"'")
    return found


def _word(text: str) -> str:
    """A host's name; the file may begin with comments (hostname(5))."""
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            return line.strip()[:255]
    raise ValueError("no name in it")


def _machine(told: dict[str, str]) -> str:
    return str(told["machine"])


def _architecture(release: str) -> str:
    """The architecture that distributions write at the end of the release."""
    names = {"amd64": "x86_64", "arm64": "aarch64"}
    for ending in ("x86_64", "amd64", "aarch64", "arm64", "ppc64le", "s390x", "riscv64"):
        if release.endswith((ending, f"{ending}+rt", f"{ending}+debug")):
            return names.get(ending, ending)
    raise ValueError("names no architecture")


def _first_number(text: str) -> float:
    words = text.split()
    if not words:
        raise ValueError("empty")
    return finite(words[0])


def _bracketed(text: str) -> str:
    """The chosen one of "none [integrity] confidentiality"."""
    for word in text.split():
        if word.startswith("[") and word.endswith("]"):
            return word[1:-1]
    raise ValueError("nothing in brackets")


def _modules(text: str) -> list[str]:
    """Names of the loaded modules, sorted."""
    return sorted(line.split(" ", 1)[0] for line in text.splitlines() if line)
