"""A box of a site's that nobody has tuned yet: what its administrators have configured, and how it looks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.machine.hardware import MAC
from tests.machine.install import ENVIRONMENT

if TYPE_CHECKING:
    from tests.machine.machine import Machine

State = dict[str, dict[str, Any]]

GUEST = Path(__file__).parent / "guest"
PROFILE = "/etc/site.toml"
HOT = [2, 3]
# By the slot that hardware.py gives it.
NIC = "ens11"
# Its file comes after hwtune's, and its profile of tuned sets what hwtune sets: for the drift.
LATE = "/etc/sysctl.d/zz-late.conf"
TUNED_PROFILE = "/etc/tuned/site-thp/tuned.conf"

FILES = {
    PROFILE: f"""
extends = "low-latency"
[isolation]
cpus = "{HOT[0]}-{HOT[1]}"
""",
    "/etc/udev/rules.d/60-site.rules": f"""
ACTION=="add|change", SUBSYSTEM=="block", KERNEL=="nvme*n1", ATTR{{queue/scheduler}}="mq-deadline"
ACTION=="add|change", SUBSYSTEM=="net", ATTR{{address}}=="{MAC}", ATTR{{queues/rx-0/rps_cpus}}="ff"
""",
    "/etc/sysctl.d/70-site.conf": "vm.zone_reclaim_mode = 1\nkernel.sched_rt_runtime_us = 500000\n",
    "/etc/default/irqbalance": "# CPU 5 is ours\nIRQBALANCE_BANNED_CPULIST=5\n",
    "/etc/systemd/system/site-link.service": f"""
[Unit]
Before=network.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'until ip link set up dev {NIC}; do sleep 1; done'
TimeoutStartSec=300
[Install]
WantedBy=multi-user.target
""",
    "/etc/systemd/system/site.timer": "[Timer]\nOnBootSec=7d\n[Install]\nWantedBy=timers.target\n",
    "/etc/systemd/system/site.service": "[Service]\nType=oneshot\nExecStart=/bin/true\n",
    TUNED_PROFILE: "[main]\ninclude=virtual-guest\n[vm]\ntransparent_hugepages=always\n",
}
_COMMANDS = (
    "systemctl daemon-reload",
    "udevadm control --reload",
    # it runs when the machine has been up for a quarter of an hour
    "systemctl stop systemd-tmpfiles-clean.timer",
    "systemctl --quiet mask systemd-tmpfiles-clean.timer",
    "systemctl --quiet enable --now site-link.service site.timer",
    "systemctl restart systemd-sysctl.service irqbalance.service",
    "udevadm trigger",
    "udevadm settle --timeout=60",
)
_PLUG_IN = {
    "METADATA": "Metadata-Version: 2.1\nName: site-rows\nVersion: 1\n",
    "entry_points.txt": "[hwtune.probes]\nsite = site_rows\n[hwtune.remediations]\nsite = site_rows\n",
}


def configure(machine: Machine) -> None:
    """Make it so, now and for each boot; and install the site's plug-in for hwtune."""
    machine.check(f"mkdir -p {TUNED_PROFILE.rpartition('/')[0]}")
    for path, content in FILES.items():
        machine.put(path, content.lstrip("\n"))
    packages = machine.check(f"echo {ENVIRONMENT}/lib/python*/site-packages").strip()
    machine.check(f"mkdir {packages}/site_rows-1.dist-info")
    for name, content in _PLUG_IN.items():
        machine.put(f"{packages}/site_rows-1.dist-info/{name}", content)
    machine.put(f"{packages}/site_rows.py", (GUEST / "site_rows.py").read_text())
    for command in _COMMANDS:
        machine.check(command)


def state(machine: Machine) -> State:
    """What guest/state.py tells, without what counts, measures or is random."""
    machine.put("/run/state.py", (GUEST / "state.py").read_text())
    found: State = json.loads(machine.check(["python3", "/run/state.py"], 300))
    for key in _PASSING:
        found["sysctls"].pop(f"/proc/sys/{key}", None)
    for key in [k for k in found["attributes"] if k.startswith(_OF_THE_SHARE)]:
        del found["attributes"][key]
    # tuned asks for another one as the load changes
    del found["others"]["cpu latency"]
    # what serves an interrupt that can be moved is irqbalance's to say, from one moment to the next
    for said in found["irqs"].values():
        del said[1]
    for name in found["irqs"]:
        if not name.endswith(_MANAGED):
            found["irqs"][name] = ["as irqbalance has it"]
    # a unit that is named nowhere any more is forgotten when systemd likes
    found["units"] = {k: v for k, v in found["units"].items() if not v.startswith("not-found")}
    return found


# Modules that installing hwtune took.
_OF_THE_SHARE = tuple(f"/sys/module/{name}/" for name in ("9p", "9pnet", "9pnet_virtio", "fscache", "netfs"))
_MANAGED = tuple(f" q{number}" for number in range(1, 9))
_PASSING = (
    "fs/dentry-state",
    "fs/file-nr",
    "fs/inode-nr",
    "fs/inode-state",
    "fs/quota/syncs",
    "kernel/ns_last_pid",
    "kernel/pty/nr",
    "kernel/random/boot_id",
    "kernel/random/entropy_avail",
    "kernel/random/uuid",
    "kernel/tainted",
    "net/core/netdev_rss_key",
    # the kernel works these out from the memory that is free as it boots
    "net/ipv4/tcp_mem",
    "net/ipv4/udp_mem",
    "vm/admin_reserve_kbytes",
    "vm/user_reserve_kbytes",
)
