"""Looking at a machine without hwtune, and at what hwtune says of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.machine.install import HWTUNE

if TYPE_CHECKING:
    from tests.machine.machine import Machine

Report = dict[str, Any]

# Rows whose word may change from one minute to the next, more so where time itself is emulated.
FICKLE = frozenset(
    {
        "clock.source",
        "clock.timer-stall",
        "clock.tsc",
        "irq.numa-distance",
        "irq.on-isolated",
        "irq.one-cpu",
        "kernel.tainted",
        "memory.pressure",
        "numa.misses",
    }
)


def doctor(machine: Machine, *arguments: str, user: str = "root") -> Report:
    """What ``doctor --format json`` says; it must end with 0 or 1, and with nothing on stderr."""
    result = machine.run([HWTUNE, "doctor", "--format", "json", *arguments], user=user)
    assert result.status in (0, 1), result
    assert result.stderr == "", result.stderr
    report: Report = json.loads(result.stdout)
    assert report["defects"] == []
    return report


def row(report: Report, id: str) -> dict[str, Any]:
    (found,) = (row for row in report["rows"] if row["id"] == id)
    return dict(found)


def subjects(report: Report, id: str) -> list[str]:
    """The subjects of a row's findings; the row must be a finding."""
    found = row(report, id)
    assert found["outcome"] == "finding", found
    return [finding["subject"] for finding in found["findings"]]


def words(report: Report) -> dict[str, tuple[Any, ...]]:
    """Of each row that holds still: outcome, severity, and what each finding is about and would change."""
    return {
        row["id"]: (
            row["outcome"],
            row["severity"],
            [(found["subject"], found["severity"], found["changes"]) for found in row["findings"]],
            [(gap["subject"], gap["remedy"]) for gap in row["unknowns"]],
        )
        for row in report["rows"]
        if row["id"] not in FICKLE
    }


def holding_still(report: Report) -> dict[str, Any]:
    """The Machine without what counts, measures or passes."""
    machine = json.loads(json.dumps(report["machine"]))
    kept = {
        part: machine[part] for part in ("pci", "block", "nvme", "nics", "cpus", "services", "virtualization")
    }
    for controller in kept["nvme"]["controllers"]:
        controller["smart"] = {
            key: value for key, value in controller["smart"].items() if not key.startswith("data_units")
        }
    for mount in kept["block"]["mounts"]:
        del mount["options"]
    for nic in kept["nics"]:
        del nic["statistics"], nic["driver_statistics"]
    for cpu in kept["cpus"]["cpus"]:
        del cpu["mhz"]
    kernel = machine["kernel"]
    kept["kernel"] = {
        key: kernel[key] for key in ("release", "cmdline", "boot_id", "config", "lockdown", "modules")
    }
    kept["numa"] = [
        {key: node[key] for key in ("id", "cpus", "distances", "memory_bytes")}
        for node in machine["numa"]["nodes"]
    ]
    kept["irqs"] = [
        {key: irq[key] for key in ("number", "actions", "chip", "pci_address", "managed")}
        for irq in machine["irqs"]
    ]
    return kept


def differences(one: Any, other: Any, place: str = "") -> dict[str, tuple[Any, Any]]:
    """Where two pieces of JSON differ, and the two values there."""
    if isinstance(one, dict) and isinstance(other, dict):
        pairs = [(key, one.get(key), other.get(key)) for key in {*one, *other}]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = [(str(index), *pair) for index, pair in enumerate(zip(one, other, strict=True))]
    else:
        return {} if one == other else {place: (one, other)}
    found: dict[str, tuple[Any, Any]] = {}
    for key, mine, theirs in pairs:
        found |= differences(mine, theirs, f"{place}/{key}")
    return found


def drive(machine: Machine, serial: str) -> str:
    """The disk (nvme0n1) of a drive: numbers are given in the order in which drives answer."""
    link = f"/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_{serial}"
    return machine.check(["readlink", "-f", link]).strip().removeprefix("/dev/")


def settings(machine: Machine) -> dict[str, str]:
    """Every sysctl but those that count, measure or are random."""
    lines = machine.check("sysctl -a 2>/dev/null").splitlines()
    pairs = (line.partition(" = ") for line in lines)
    return {key: value for key, _, value in pairs if not key.startswith(_PASSING)}


def nic_settings(machine: Machine) -> dict[str, str]:
    """What ethtool tells of each interface, by option."""
    names = machine.check("ls /sys/class/net").split()
    return {
        f"{name} {option}": machine.run(["ethtool", option, name]).stdout
        for name in names
        for option in ("-g", "-c", "-k", "-a", "-l", "--show-priv-flags", "--show-eee", "-i")
    }


_PASSING = (
    "fs.dentry-state",
    "fs.file-nr",
    "fs.inode-nr",
    "fs.inode-state",
    "kernel.ns_last_pid",
    "kernel.pty.nr",
    "kernel.random.",
    "kernel.tainted",
    "net.netfilter.nf_conntrack_count",
)
