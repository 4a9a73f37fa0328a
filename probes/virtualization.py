"""Whether this is a virtual machine, and whether it is a container; the product and its firmware.

Guests say so in several places, and none of them is everywhere: CPUID (the ``hypervisor`` flag of
/proc/cpuinfo, x86 only), SMBIOS, /sys/hypervisor, the device tree, /proc/sysinfo of s390. "none" is
only said where something rules a hypervisor out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwtune.fact import ABSENT, NOT_CAPTURED, Fact, gap, known
from hwtune.model.kernel import Virtualization

if TYPE_CHECKING:
    from hwtune.host.base import Host

PART = "virtualization"

_DMI = ("/sys/class/dmi/id", "/sys/devices/virtual/dmi/id")
# The number of flags makes a CPU's block some 1.5 KiB; 1,024 CPUs have been seen.
_CPUINFO_LIMIT = 16 << 20
# Text in system vendor, product or firmware vendor that only a virtual machine has, as their
# makers set it (systemd's virt.c lists the same machines).
_VIRTUAL_DMI = (
    ("kvm", "kvm"),
    ("openstack", "kvm"),
    ("kubevirt", "kvm"),
    ("rhev hypervisor", "kvm"),
    ("nutanix ahv", "kvm"),
    ("amazon ec2", "amazon"),
    ("google compute engine", "google"),
    ("alibaba cloud", "kvm"),
    ("tencent cloud", "kvm"),
    ("digitalocean", "kvm"),
    ("qemu", "qemu"),
    ("vmware", "vmware"),
    ("virtualbox", "virtualbox"),
    ("innotek", "virtualbox"),
    ("hvm domu", "xen"),
    ("bochs", "bochs"),
    ("parallels", "parallels"),
    ("bhyve", "bhyve"),
    ("apple virtualization", "apple"),
)
# What the kernel's log, clock sources and lscpu call them
_NAMES = {
    "kvm": "kvm",
    "microsoft": "microsoft",
    "microsoft hyper-v": "microsoft",
    "hyper-v": "microsoft",
    "vmware": "vmware",
    "xen": "xen",
    "xen hvm": "xen",
    "xen pv": "xen",
    "oracle": "virtualbox",
    "phyp": "powervm",
    "kvm/linux": "kvm",
    "ibm": "pr/sm",
    "acrn": "acrn",
    "jailhouse": "jailhouse",
    "bhyve": "bhyve",
    "parallels": "parallels",
}
# The numbers of the first namespaces: PROC_PID_INIT_INO (include/linux/proc_ns.h), and that of the
# first mount namespace, where the kernel fixes it (include/uapi/linux/nsfs.h).
_INITIAL_PID = "pid:[4026531836]"
_INITIAL_MOUNT = "mnt:[4026531832]"


def read(host: Host) -> Virtualization:
    found = Virtualization(
        product=_dmi(host, "product_name"),
        vendor=_dmi(host, "sys_vendor"),
        bios_version=_dmi(host, "bios_version"),
    )
    found.hypervisor = _hypervisor(host, found)
    found.container = _container(host)
    return found


def _dmi(host: Host, name: str) -> Fact[str]:
    first = host.text(f"{_DMI[0]}/{name}")
    return first if first.known else first.or_else(host.text(f"{_DMI[1]}/{name}"))


def _hypervisor(host: Host, dmi: Virtualization) -> Fact[str]:
    named = _named(host, dmi)
    if named.known:
        return named
    flag = host.parse("/proc/cpuinfo", _cpuinfo, _CPUINFO_LIMIT)
    if flag.known and flag.get() == "guest":
        return _named_by_clock(host).or_else(known("other", flag.source))
    if flag.known and flag.get() == "none":
        # Old hypervisors set no flag; on a machine with firmware tables those have told already.
        return known("none", flag.source) if dmi.vendor.known else _named_by_device(host, flag.source)
    for document in host.documents("lscpu"):
        said = _lscpu(document.text)
        if said:
            return known(said, document.path)
    if not flag.known:
        smt = _smt_of_host(host)
        if smt.known:
            return smt
    # Elsewhere than on x86 the firmware's word is all there is.
    if dmi.vendor.known and dmi.vendor.get() and dmi.product.known and dmi.product.get():
        return known("none", dmi.vendor.source)
    if flag.known:
        return gap(ABSENT if named.absent else NOT_CAPTURED, f"{flag.source}, {dmi.vendor.source}")
    return Fact(None, flag.source, flag.gap, flag.detail)


def _smt_of_host(host: Host) -> Fact[str]:
    """The kernel says in a guest alone that it does not know of the host's SMT
    (arch/x86/kernel/cpu/bugs.c, mds_show_state)."""
    for name in ("mds", "mmio_stale_data", "tsx_async_abort"):
        state = host.text(f"/sys/devices/system/cpu/vulnerabilities/{name}")
        if state.known and "SMT Host state unknown" in state.get():
            return known("other", state.source)
    return gap(NOT_CAPTURED, "/sys/devices/system/cpu/vulnerabilities")


def _named(host: Host, dmi: Virtualization) -> Fact[str]:
    """A hypervisor that gives its name."""
    xen = host.text("/sys/hypervisor/type")
    if xen.known and xen.get():
        # Dom0 sees the real devices, but Xen schedules its CPUs.
        control = host.text("/proc/xen/capabilities")
        dom0 = control.known and "control_d" in control.get()
        return known("xen-dom0" if dom0 else xen.get(), xen.source)
    sysinfo = host.parse("/proc/sysinfo", _sysinfo)
    if sysinfo.known:
        return sysinfo
    tree = _device_tree(host)
    if tree.known:
        return tree
    return _dmi_name(dmi)


def _dmi_name(dmi: Virtualization) -> Fact[str]:
    texts = [fact for fact in (dmi.vendor, dmi.product, dmi.bios_version) if fact.known]
    whole = " | ".join(fact.get() for fact in texts).lower()
    if ".metal" in whole:  # Amazon's bare-metal instances bear the vendor of its virtual ones
        return known("none", dmi.product.source)
    for text, name in _VIRTUAL_DMI:
        if text in whole:
            source = next(fact.source for fact in texts if text in fact.get().lower())
            return known(name, source)
    if dmi.vendor.known and dmi.vendor.get().lower() == "xen":
        return known("xen", dmi.vendor.source)
    if "microsoft corporation" in whole and "virtual machine" in whole:
        return known("microsoft", dmi.product.source)
    return gap(dmi.vendor.gap or ABSENT, dmi.vendor.source)


def _cpuinfo(text: str) -> str:
    """ "guest", "none" or "silent" (no CPUID: another architecture)."""
    for start in ("\nflags", "\nplatform", "\nmachine"):
        at = text.find(start)
        if at < 0:
            continue
        line = text[at + 1 : text.find("\n", at + 1) if "\n" in text[at + 1 :] else len(text)]
        words = line.partition(":")[2].split()
        if start == "\nflags" and words:
            return "guest" if "hypervisor" in words else "none"
        if "PowerNV" in words:
            return "none"
        if "pSeries" in words:
            return "guest"
    return "silent"


def _named_by_clock(host: Host) -> Fact[str]:
    path = "/sys/devices/system/clocksource/clocksource0/available_clocksource"
    return host.parse(path, _clock_name)


# Vendor and device of what only these hypervisors put on the bus, as in /proc/bus/pci/devices
_DEVICES = {"80eebeef": "virtualbox", "80eecafe": "virtualbox", "58530001": "xen", "15ad0405": "vmware"}


def _named_by_device(host: Host, otherwise: str) -> Fact[str]:
    devices = host.text("/proc/bus/pci/devices")
    if devices.known:
        for line in devices.get().splitlines():
            words = line.split(None, 2)
            if len(words) > 1 and words[1] in _DEVICES:
                return known(_DEVICES[words[1]], devices.source)
    if devices.gap not in (None, ABSENT, NOT_CAPTURED):
        return Fact(None, devices.source, devices.gap, devices.detail)
    return known("none", otherwise)


def _clock_name(text: str) -> str:
    for word, name in (("kvm-clock", "kvm"), ("hyperv", "microsoft"), ("xen", "xen")):
        if word in text:
            return name
    raise ValueError("no clock of a hypervisor")


def _sysinfo(text: str) -> str:
    """s390: the innermost control program; without one, a logical partition (PR/SM)."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "VM00 Control Program":
            return "kvm" if value.strip().upper().startswith("KVM") else "z/vm"
    if "LPAR Number" in text:
        return "pr/sm"
    raise ValueError("not the system information of s390")


def _device_tree(host: Host) -> Fact[str]:
    compatible = host.text("/proc/device-tree/hypervisor/compatible")
    if compatible.known:
        words = compatible.get()
        return known(next((n for n in ("xen", "vmware", "kvm") if n in words), "other"), compatible.source)
    partition = host.exists("/proc/device-tree/ibm,partition-name")
    if partition.known and partition.get():
        emulated = host.parse("/proc/cpuinfo", _emulated, _CPUINFO_LIMIT)
        return known("kvm" if emulated.known and emulated.get() else "powervm", partition.source)
    return Fact(None, compatible.source, compatible.gap or ABSENT, compatible.detail)


def _emulated(text: str) -> bool:
    return "emulated by qemu" in text


def _lscpu(text: str) -> str:
    vendor = ""
    flags = None
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "Hypervisor vendor":
            vendor = value.strip().lower()
        elif name.strip() == "Flags":
            flags = value.split()
    if vendor:
        return _NAMES.get(vendor, vendor)
    if flags:
        return "other" if "hypervisor" in flags else "none"
    return ""


def _container(host: Host) -> Fact[str]:
    space = host.link_name("/proc/self/ns/pid")
    if space.known and space.get() == _INITIAL_PID and _in_the_first_root(host):
        return known("none", space.source)
    marked = _marked(host)
    if marked.known:
        return marked
    if space.known and space.get().startswith("pid:["):
        return known("none" if space.get() == _INITIAL_PID else "other", space.source)
    if marked.absent:
        return known("none", marked.source)
    return marked


def _in_the_first_root(host: Host) -> bool:
    """Whether our mount namespace is that of the machine's first process. A file such as
    /.dockerenv in it is then only a trace of how the root was made."""
    own = host.link_name("/proc/self/ns/mnt")
    if not own.known:
        return False
    if own.get() == _INITIAL_MOUNT:
        return True
    first = host.link_name("/proc/1/ns/mnt")
    return first.known and first.get() == own.get()


def _marked(host: Host) -> Fact[str]:
    """What says in plain words that this is a container; ABSENT where all of it is absent."""
    told = host.text("/run/systemd/container")
    if told.known and told.get():
        return known(told.get(), told.source)
    environment = host.parse("/proc/1/environ", _container_variable)
    if environment.known:
        return environment
    asked: list[Fact[bool]] = []
    for path, name in (
        ("/run/.containerenv", "podman"),
        ("/.dockerenv", "docker"),
        ("/run/secrets/kubernetes.io", "kubepods"),
        ("/var/run/secrets/kubernetes.io", "kubepods"),
    ):
        fact = host.exists(path)
        if fact.known and fact.get():
            return known(name, path)
        asked.append(fact)
    for path in ("/proc/1/cgroup", "/proc/self/cgroup"):
        group = host.parse(path, _cgroup_name)
        if group.known:
            return group
    if _openvz(host):
        return known("openvz", "/proc/vz")
    missing = next((fact for fact in asked if not fact.known), None)
    if missing is None:
        return gap(ABSENT, "/.dockerenv")
    return Fact(None, missing.source, missing.gap, missing.detail)


def _container_variable(text: str) -> str:
    for word in text.split("\0"):
        if word.startswith("container=") and len(word) > len("container="):
            return word[len("container=") :]
    raise ValueError("no variable called container")


def _cgroup_name(text: str) -> str:
    for word, name in (
        ("kubepods", "kubepods"),
        ("/docker/", "docker"),
        ("/docker-", "docker"),
        ("libpod-", "podman"),
        ("/lxc/", "lxc"),
        ("/lxc.payload", "lxc"),
    ):
        if word in text:
            return name
    raise ValueError("no cgroup of a container")


def _openvz(host: Host) -> bool:
    guest, owner = host.exists("/proc/vz"), host.exists("/proc/bc")
    return guest.known and guest.get() and owner.known and not owner.get()
