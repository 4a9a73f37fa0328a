"""The kernel: release, command line, sysctls, boot loader, and what its log says of its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import ABSENT, Fact, gap
from hwtune.model.kernel import Kernel, KernelArgument
from hwtune.probes import _sysctl
from hwtune.text import cmdline

if TYPE_CHECKING:
    from hwtune.host.base import Host

PART = "kernel"


def read(host: Host) -> Kernel:
    found = Kernel()
    _identity(host, found)
    found.cmdline = host.text("/proc/cmdline")
    found.arguments = found.cmdline.map(arguments)
    found.sysctl = _sysctl.read(host)
    found.tainted = host.integer("/proc/sys/kernel/tainted")
    found.lockdown = host.parse("/sys/kernel/security/lockdown", _bracketed)
    found.modules = host.parse("/proc/modules", _modules)
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
    return float(words[0])


def _bracketed(text: str) -> str:
    """The chosen one of "none [integrity] confidentiality"."""
    for word in text.split():
        if word.startswith("[") and word.endswith("]"):
            return word[1:-1]
    raise ValueError("nothing in brackets")


def _modules(text: str) -> list[str]:
    """Names of the loaded modules, sorted."""
    return sorted(line.split(" ", 1)[0] for line in text.splitlines() if line)
