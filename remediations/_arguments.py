"""What rows know of boot arguments: which may be repeated, which belong to user space, which tune."""

from __future__ import annotations

# Each is a list, an action or a pair with its neighbour: to give it again is to add to it.
REPEATABLE = frozenset(
    (
        "acpi_osi", "acpi_mask_gpe", "blacklist", "bond", "bonding", "bootdev", "bridge", "cgroup_disable",
        "cgroup_enable", "cgroup_no_v1", "clearcpuid", "console", "crashkernel", "dyndbg", "earlycon",
        "efi", "efi_fake_mem", "hugepages", "hugepagesz", "ifname", "initcall_blacklist", "initrd",
        "intel_iommu", "amd_iommu", "iommu", "iommu_dma", "ip", "isolcpus", "memmap", "module_blacklist",
        "nameserver", "netdev", "netroot", "nfsroot", "nohz_full", "pci", "pnp", "reserve", "security",
        "setcpuid", "team", "usb_storage.quirks", "usbcore.quirks", "video", "vlan", "vt.handoff",
    )
)  # fmt: skip
# Flags of the root file system and of the splash: distributions give them twice themselves, and the
# later one of ro and rw is meant.
HARMLESS = frozenset(("ro", "rw", "quiet", "splash", "rhgb", "debug", "nomodeset", "BOOT_IMAGE", "root"))
# Read by the initramfs, by init and by installers, each with rules of its own.
USER_SPACE = (
    "rd.", "systemd.", "ignition.", "coreos.", "inst.", "luks.", "luks_", "cloud_", "ds", "tuned.",
    "udev.", "plymouth.", "fsck.", "fips", "boot", "ostree", "resume", "zfs", "modprobe.", "dracut",
    "SYSTEMD_", "locale.", "vconsole.", "live", "vyos", "casper", "netcfg/", "preseed", "auto",
)  # fmt: skip
# The loader's own words, and what its scripts add: no setting of anybody.
OF_THE_LOADER = frozenset(("BOOT_IMAGE", "initrd", "ostree", "vt.handoff", "systemd.machine_id"))

# Arguments of the kernel itself by which machines are tuned. Each is taken by __setup() or
# early_param(), so that a kernel that has it never calls it unknown (some others, such as pti= and
# nokaslr, are looked up on the command line and are called unknown though they work).
TUNING = frozenset(
    (
        "amd_iommu", "amd_pstate", "audit", "cgroup_disable", "clocksource", "cpuidle.off",
        "default_hugepagesz", "highres", "hugepages", "hugepagesz", "idle", "intel_iommu",
        "intel_pstate", "iommu", "irqaffinity", "isolcpus", "kthread_cpus", "lockdown", "maxcpus", "mce",
        "mitigations", "nmi_watchdog", "no_timer_check", "nohz", "nohz_full", "nosmt",
        "nosoftlockup", "nowatchdog", "nr_cpus", "numa_balancing", "pci", "pcie_aspm", "pcie_port_pm",
        "preempt", "psi", "rcu_nocb_poll", "rcu_nocbs", "skew_tick", "swapaccount",
        "transparent_hugepage", "tsc",
    )
)  # fmt: skip
# Those of them that only turn something off: where the kernel was built without it, they are met.
_NEGATIONS = frozenset(("cgroup_disable", "no_timer_check", "nosmt", "nosoftlockup", "nowatchdog"))
_OFF = ("0", "off", "n", "no", "none", "disable", "never", "false")
_TUNING_MODULES = (
    "intel_idle.", "processor.", "rcupdate.", "rcutree.", "nvme.", "nvme_core.", "pcie_aspm.", "workqueue.",
    "cpufreq.", "cpuidle.", "intel_pstate.", "acpi_cpufreq.", "kvm.", "nvidia.", "mlx5_core.", "igb.",
    "systemd.cpu_affinity", "threadirqs", "tuned.non_isolcpus", "sched_",
)  # fmt: skip


def of_user_space(name: str) -> bool:
    return name.startswith(USER_SPACE) or name.isupper()


def may_repeat(name: str) -> bool:
    """Whether to give it again is no contradiction."""
    return name in REPEATABLE or name in HARMLESS or of_user_space(name)


def misses(name: str, value: str | None) -> bool:
    """Whether it matters that a kernel does not know this argument."""
    return name in TUNING and name not in _NEGATIONS and value not in _OFF


def tunes(name: str) -> bool:
    """Whether the argument bears on latency, so that its coming or going is more than a remark."""
    return name in TUNING or name.startswith(_TUNING_MODULES)
