"""The kernel: release, command line, sysctls, boot loader, log; virtualisation; clock; services."""

from __future__ import annotations

import msgspec

from hwtune.fact import Fact, not_probed


class KernelArgument(msgspec.Struct):
    """One argument of the command line. ``name`` with underscores for dashes (the kernel takes them
    for the same); ``value`` is None where there is no "="; ``text`` as written."""

    name: str
    value: str | None
    text: str


class SysctlSetting(msgspec.Struct):
    """One line of a sysctl.d file. ``key`` with dots, as sysctl prints it; it may be a pattern.
    ``value`` None ("-key"): the key is only kept out of the patterns. Secrets are left out."""

    key: str
    value: str | None
    file: str
    line: int
    optional: bool = False  # "-key=value": a failure to set it is ignored
    through: str = ""  # the name under which the file is read, where it is a link of another name


class Sysctls(msgspec.Struct):
    """Live values (of the keys that rows ask about and that files set), and every setting of every
    file, in the order in which systemd-sysctl applies them: the last one of a key wins, and a
    pattern yields to the key itself (sysctl.d(5))."""

    values: dict[str, Fact[str]] = {}
    settings: list[SysctlSetting] = []
    masked: list[str] = []  # files that a file of the same name in a directory before hides
    files: Fact[list[str]] = not_probed()  # that are read, in their order; a gap where some are not known
    unread: list[SysctlSetting] = []  # of /etc/sysctl.conf, where nothing in sysctl.d leads to it
    traditional: Fact[bool] = not_probed()  # /etc/sysctl.conf was read or is not there; else the gap
    by_systemd: Fact[bool] = not_probed()  # whether systemd-sysctl is here, which reads only sysctl.d


class LogLine(msgspec.Struct):
    """A line of the kernel log; ``seconds`` since boot where it says so."""

    text: str
    source: str
    seconds: float | None = None
    level: int | None = None


class Kernel(msgspec.Struct):
    release: Fact[str] = not_probed()
    version: Fact[str] = not_probed()
    architecture: Fact[str] = not_probed()
    hostname: Fact[str] = not_probed()
    distribution: Fact[str] = not_probed()  # ID of os-release
    distribution_name: Fact[str] = not_probed()  # PRETTY_NAME
    boot_id: Fact[str] = not_probed()
    uptime_s: Fact[float] = not_probed()
    cmdline: Fact[str] = not_probed()
    arguments: Fact[list[KernelArgument]] = not_probed()
    config: Fact[dict[str, str]] = not_probed()  # CONFIG_X -> y, m, value; only what rows ask about
    preemption: Fact[str] = not_probed()  # rt, full, lazy, voluntary, none; dynamic: which is not known
    lockdown: Fact[str] = not_probed()  # none, integrity, confidentiality; "on": which is not known
    tainted: Fact[int] = not_probed()
    modules: Fact[list[str]] = not_probed()
    sysctl: Sysctls = msgspec.field(default_factory=Sysctls)
    # boot loader: which, where its arguments are kept, and what the next boot will have
    boot_loader: Fact[str] = not_probed()  # grub, grub-bls, systemd-boot, rpm-ostree, uki
    next_cmdline: Fact[str] = not_probed()  # of the default entry, in its last generated form
    configured_arguments: Fact[list[KernelArgument]] = not_probed()  # from the loader's source files
    unknown_parameters: Fact[list[str]] = not_probed()  # that the kernel's log said it ignored
    log: list[LogLine] = []  # only the lines that tell of arguments and of lockdown
    log_known: Fact[bool] = not_probed()

    def argument_values(self, name: str) -> list[str]:
        """All values of one argument in their order; [] where it is not given or not known."""
        if not self.arguments.known:
            return []
        name = name.replace("-", "_")
        return [a.value or "" for a in self.arguments.get() if a.name == name]

    def has_argument(self, name: str) -> bool:
        return bool(self.argument_values(name))


class Virtualization(msgspec.Struct):
    hypervisor: Fact[str] = not_probed()  # "none" on bare metal; kvm, microsoft, vmware ... or "other"
    container: Fact[str] = not_probed()  # "none", docker, podman, lxc, kubepods ... or "other"
    product: Fact[str] = not_probed()
    vendor: Fact[str] = not_probed()
    bios_version: Fact[str] = not_probed()

    @property
    def is_guest(self) -> bool | None:
        """True in a virtual machine, False on bare metal, None where it is not known."""
        return self.hypervisor.get() != "none" if self.hypervisor.known else None

    @property
    def is_container(self) -> bool | None:
        return self.container.get() != "none" if self.container.known else None


class UnstableTsc(msgspec.Struct):
    """The kernel log's word that the kernel gave the TSC up as a clock."""

    source: str
    line: str
    cpu: int | None = None  # whose watchdog saw it
    reason: str = ""
    seconds: float | None = None  # since boot


class TimerStall(msgspec.Struct):
    """A timer interrupt that could not catch up; the kernel tells of the first one of a boot only."""

    source: str
    line: str
    nanoseconds: int
    seconds: float | None = None


class Clock(msgspec.Struct):
    """Time. ``synchronized`` is adjtimex's word (STA_UNSYNC clear), which on a live host is the kernel's."""

    source: Fact[str] = not_probed()
    available: Fact[list[str]] = not_probed()
    tsc_flags: Fact[list[str]] = not_probed()  # those of constant_tsc, nonstop_tsc ... that /proc/cpuinfo has
    tsc_unstable: Fact[UnstableTsc] = not_probed()  # ABSENT where a log that reaches back to boot has none
    stalls: Fact[list[TimerStall]] = not_probed()
    synchronized: Fact[bool] = not_probed()
    estimated_error_us: Fact[int] = not_probed()
    max_error_us: Fact[int] = not_probed()  # 16 s where nobody keeps the clock
    sync_services: list[str] = []  # daemons that steer the clock: chronyd, ntpd, systemd-timesyncd ...
    ptp_clocks: list[str] = []  # "ptp0 KVM virtual PTP"


class Service(msgspec.Struct):
    """A systemd unit, or a process, that turns the same knobs as hwtune. ``name`` without
    ".service"; timers keep ".timer"."""

    name: str
    active: Fact[bool] = not_probed()
    enabled: Fact[bool] = not_probed()  # started at boot
    detail: str = ""  # tuned's active profile, saptune's solution ...
    source: str = ""
