"""The guest's side of a comparison: what could be another after hwtune, as JSON on stdout.

Files of /etc and /boot (content by hash, mode, owner, where a link leads), sysctls that can be read, what
sysfs lets be set, affinities, units, what ethtool tells. Names that change from boot to boot (drives,
interrupts) are replaced by what they belong to. Only what Debian's python3 brings.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import stat
import struct
import subprocess

ATTRIBUTES = """
    /sys/kernel/mm/transparent_hugepage/*
    /sys/kernel/mm/transparent_hugepage/khugepaged/*
    /sys/kernel/mm/ksm/run
    /sys/block/*/queue/*
    /sys/block/*/device/power/control
    /sys/class/nvme/*/power/*
    /sys/class/net/*/queues/*/*
    /sys/class/net/*/napi_defer_hard_irqs
    /sys/class/net/*/gro_flush_timeout
    /sys/class/net/*/flags
    /sys/class/net/*/mtu
    /sys/bus/pci/devices/*/power/control
    /sys/bus/pci/devices/*/link/*
    /sys/bus/workqueue/devices/*/cpumask
    /sys/devices/virtual/workqueue/cpumask
    /sys/devices/system/clocksource/clocksource0/current_clocksource
    /sys/devices/system/cpu/online
    /sys/devices/system/cpu/isolated
    /sys/devices/system/cpu/nohz_full
    /sys/devices/system/cpu/smt/control
    /sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us
    /sys/devices/system/cpu/cpu*/power/energy_perf_bias
    /sys/module/*/parameters/*
    /sys/fs/cgroup/cgroup.subtree_control
    /sys/fs/cgroup/*.slice/cpuset.cpus*
    /proc/irq/default_smp_affinity
    /proc/cmdline
""".split()  # noqa: SIM905
# Their contents count, measure or pass.
PASSING = ("full_scans", "pages_collapsed", "pm_qos_latency_tolerance_us")

IRQ_FILES = (
    "affinity_hint effective_affinity effective_affinity_list node smp_affinity smp_affinity_list spurious"
)


def text(path):
    """The content of a small file; None for what cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(1 << 16).decode(errors="replace").strip()
    except OSError:
        return None


def files(*tops):
    found = {}
    for top in tops:
        for folder, folders, names in os.walk(top):
            for name in (*folders, *names):
                path = f"{folder}/{name}"
                found[path] = file_state(path)
    return found


def file_state(path):
    status = os.lstat(path)
    who = f"{stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid}"
    if stat.S_ISLNK(status.st_mode):
        return f"{who} -> {os.readlink(path)}"
    if not stat.S_ISREG(status.st_mode):
        return who
    with open(path, "rb") as file:
        return f"{who} {hashlib.sha256(file.read()).hexdigest()}"


def sysctls():
    found = {}
    for folder, _, names in os.walk("/proc/sys"):
        for name in names:
            path = f"{folder}/{name}"
            if os.lstat(path).st_mode & 0o444:
                found[path] = text(path)
    return {path: value for path, value in found.items() if value is not None}


def drives():
    """The kernel's names for drives -> their serial numbers."""
    found = {}
    for folder in glob.glob("/sys/class/nvme/*"):
        serial = text(f"{folder}/serial")
        found[os.path.basename(folder)] = serial
        for disk in glob.glob(f"{folder}/nvme*n*"):
            found[os.path.basename(disk)] = f"{serial}-disk"
    return found


def attributes(names):
    found = {}
    for pattern in ATTRIBUTES:
        for path in glob.glob(pattern):
            if os.path.isfile(path) and not path.endswith(PASSING):
                value = text(path)
                if value is not None:
                    found["/".join(names.get(part, part) for part in path.split("/"))] = value
    return found


def owners():
    found = {}
    for folder in glob.glob("/sys/bus/pci/devices/*/msi_irqs"):
        for name in os.listdir(folder):
            found[name] = folder.split("/")[5]
    return found


def irqs(names):
    """By owner and action: the CPUs that were asked for, and those in force."""
    found = {}
    owner = owners()
    for number in os.listdir("/proc/irq"):
        folder = f"/proc/irq/{number}"
        if not os.path.isdir(folder):
            continue
        actions = [entry for entry in os.listdir(folder) if entry not in IRQ_FILES.split()]
        if actions:
            said = ",".join(sorted(renamed(action, names) for action in actions))
            asked, served = (text(f"{folder}/{kind}_list") for kind in ("smp_affinity", "effective_affinity"))
            found[f"{owner.get(number, number)} {said}"] = [asked, served]
    return found


def renamed(action, names):
    """nvme0q3 as HWT0 q3."""
    controller, _, queue = action.rpartition("q")
    return f"{names[controller]} q{queue}" if controller in names else action


def units():
    found = {}
    for line in said("systemctl", "list-unit-files", "--no-legend", "--plain", "--no-pager"):
        name, state = line.split()[:2]
        found[name] = state
    for line in said("systemctl", "list-units", "--all", "--no-legend", "--plain", "--no-pager"):
        name, load, active = line.split()[:3]
        if name.endswith((".service", ".timer", ".socket", ".slice", ".path")):
            found[f"{name} is"] = f"{load} {active}"
    return found


def said(*argv, check=True):
    # emulated, systemd may need longer for an answer than its clients wait
    environment = {**os.environ, "SYSTEMD_BUS_TIMEOUT": "300"}
    done = subprocess.run(argv, capture_output=True, check=check, text=True, env=environment)
    return done.stdout.splitlines()


def nics():
    return {
        f"{name} {option}": "\n".join(said("ethtool", option, name, check=False))
        for name in os.listdir("/sys/class/net")
        if name != "lo"
        for option in ("-g", "-c", "-k", "-a", "-l", "--show-priv-flags", "--show-eee")
    }


def others():
    with open("/dev/cpu_dma_latency", "rb") as file:
        found = {"cpu latency": struct.unpack("=i", file.read(4))[0]}
    for process in said("pgrep", "-x", "irqbalance", check=False):
        variables = (text(f"/proc/{process}/environ") or "").split("\0")
        found["irqbalance"] = sorted(v for v in variables if v.startswith("IRQBALANCE"))
    found["tuned"] = said("tuned-adm", "active")
    return found


def main():
    names = drives()
    state = {
        "files": files("/etc", "/boot"),
        "sysctls": sysctls(),
        "attributes": attributes(names),
        "irqs": irqs(names),
        "units": units(),
        "nics": nics(),
        "others": others(),
    }
    print(json.dumps(state))


if __name__ == "__main__":
    main()
