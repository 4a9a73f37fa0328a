"""Drives of real machines: structure as their own files and the peers' outputs have it, and what is
wrong with them, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hwtune.diagnosis.engine import judge
from hwtune.diagnosis.table import find, table
from hwtune.errors import UsageError
from hwtune.host.snapshot import open_snapshot
from hwtune.model import Machine
from hwtune.probes import block, cpus, nvme, virtualization
from hwtune.profile import load

DATA = os.environ.get("HWTUNE_REALDATA")
pytestmark = pytest.mark.skipif(not DATA, reason="HWTUNE_REALDATA names no folder of captured machines")
ROOT = Path(DATA or "/nonexistent")

IDS = (
    "nvme.apst nvme.scheduler nvme.write-cache-view nvme.discard-mount nvme.state nvme.queues"
    " nvme.host-memory-buffer nvme.firmware-mismatch nvme.smart-critical nvme.endurance nvme.thermal"
    " nvme.unsafe-shutdowns nvme.controller-lost nvme.io-timeouts"
)


def machine(path):
    host = open_snapshot(str(path))
    return Machine(
        block=block.read(host),
        nvme=nvme.read(host),
        cpus=cpus.read(host),
        virtualization=virtualization.read(host),
    )


def results(path):
    diagnosis = judge(machine(path), [find(table(), id) for id in IDS.split()], load())
    assert not diagnosis.defects
    return {result.id: result for result in diagnosis.results}


def findings(path):
    return [(id, f.severity, f.subject) for id, r in results(path).items() for f in r.findings]


def archives():
    return [p for p in sorted(ROOT.rglob("*")) if p.name.endswith((".tar.gz", ".tar.bz2", ".tar.xz", ".tgz"))]


def test_every_archive_is_judged():
    """No drive of a captured tree has a fault that can be told from what was captured."""
    opened = 0
    for path in archives():
        try:
            found = findings(path)
        except UsageError:
            continue  # no machine's tree: bare CPUID leaves
        opened += 1
        assert found == [], path.name
    assert opened > 50


# -- structure ----------------------------------------------------------------------------


def test_libnvme_tree():
    """Controllers, addresses and paths as libnvme prints them for the same tree."""
    folder = ROOT / "libnvme/test/sysfs/data"
    expected = json.loads((folder / "tree-pcie.out").read_text())
    controllers, heads, paths = {}, {}, {}
    for host in expected["hosts"]:
        for subsystem in host["subsystems"]:
            for namespace in subsystem["namespaces"]:
                direct = [(c, None) for c in namespace.get("controller", [])]
                routed = [(c, p["path"]) for p in namespace.get("paths", []) for c in p["controller"]]
                for controller, path in direct + routed:
                    name = controller["name"]
                    controllers[name] = (controller["traddr"], controller["transport"])
                    heads.setdefault(name, set()).add(namespace["name"])
                    paths.setdefault(name, set()).update({path} - {None})
    found = machine(folder / "tree-pcie.tar.xz").nvme
    assert {c.name: (c.pci_address.get(), c.transport.get()) for c in found.controllers} == controllers
    assert {c.name: set(c.namespaces) for c in found.controllers} == heads
    assert {c.name: set(c.paths) for c in found.controllers} == paths
    assert {c.name: c.numa_node.get() for c in found.controllers} == {"nvme0": 1, "nvme1": 0, "nvme2": 2}
    assert {c.queue_count.get() for c in found.controllers} == {65}
    assert found.listed.known


def test_lsblk_tree(tmp_path):
    """The disks that lsblk shows for the same tree."""
    archive = ROOT / "util-linux/tests/ts/lsblk/dumps/simple-nvme.tar.xz"
    found = machine(archive)
    assert [d.name for d in found.block.devices] == ["nvme0n1", "sda", "sdb"]
    nvme0n1 = found.block.by_name()["nvme0n1"]
    assert (nvme0n1.scheduler.get(), nvme0n1.wbt_lat_us.get()) == ("none", 2000)
    mounted = {mount.device: mount.disks for mount in found.block.mounts.get()}
    assert mounted["/dev/nvme0n1p2"] == ["nvme0n1"]
    assert mounted["/dev/sda4"] == ["sda"]
    assert found.nvme.controllers[0].model.get() == "KINGSTON SKC1000240G"


@pytest.mark.parametrize("form", ["derived/udev-dgx-a100.tar.gz", "checkbox"])
def test_dgx_a100(form):
    """Six drives, of which four are reached through a path each; VMD domains have five digits."""
    udev = "checkbox/checkbox-ng/checkbox_ng/support/parsers/tests/udevadm_data/NVIDIA_DGXA100.txt"
    found = machine(ROOT / (udev if form == "checkbox" else form)).nvme
    assert [c.name for c in found.controllers] == [f"nvme{n}" for n in range(6)]
    addresses = {c.name: c.pci_address.get() for c in found.controllers}
    assert (addresses["nvme2"], addresses["nvme3"]) == ("0000:52:00.0", "0000:8a:00.0")
    paths = {c.name: (c.namespaces, c.paths) for c in found.controllers}
    assert paths["nvme2"] == (["nvme2n1"], ["nvme2c2n1"])
    assert paths["nvme1"] == (["nvme1n1"], [])


def test_drives_behind_vmd():
    udev = "checkbox/checkbox-ng/checkbox_ng/support/parsers/tests/udevadm_data/With_VRAID.txt"
    found = machine(ROOT / udev).nvme.controllers
    assert {c.name: c.pci_address.get() for c in found} == {
        "nvme0": "10001:84:00.0", "nvme1": "10002:01:00.0", "nvme2": "10002:02:00.0",
    }  # fmt: skip


def test_drives_known_by_their_pci_functions_only():
    found = machine(ROOT / "derived/gcm-learn_good.tar.gz").nvme.controllers
    assert [c.name for c in found] == [f"nvme{n}" for n in range(10)]


# -- smartctl -----------------------------------------------------------------------------

# The one drive of this collection that warns: bit 4, its power-loss protection has failed.
FAILED_BACKUP = "nvme-null-SAMSUNG_MZWLL3T2HAJQ-00005-nvme0.json"


def test_data_centre_drives():
    judged = 0
    for path in sorted((ROOT / "smartctl_exporter/testdata").glob("*.json")):
        said = json.loads(path.read_text())
        found = results(path)
        faults = [(id, f.severity) for id, r in found.items() for f in r.findings]
        assert faults == ([("nvme.smart-critical", "error")] if path.name == FAILED_BACKUP else []), path.name
        if said["device"]["protocol"] != "NVMe":
            assert found["nvme.endurance"].outcome == "unknown"
            continue
        judged += 1
        assert found["nvme.endurance"].outcome == "ok"
        (controller,) = machine(path).nvme.controllers
        log = said["nvme_smart_health_information_log"]
        assert controller.smart.unsafe_shutdowns.get() == log["unsafe_shutdowns"]
        assert controller.smart.temperature_c.get() == log["temperature"]
        assert controller.name == said["device"]["name"].removeprefix("/dev/")
    assert judged == 55


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("cache_good", []),
        ("learn_good", []),
        ("learn_bad_nvme9", [("nvme.smart-critical", "error", "nvme:nvme9")]),
        ("learn_missing_smartdata", [("nvme.smart-critical", "error", "nvme:nvme7")]),
        ("cache_slot2_bad_smartdata", [("nvme.smart-critical", "warning", "nvme:nvme3")]),
    ],
)
def test_fleets(folder, expected):
    assert findings(ROOT / "gcm/gcm/tests/data/health_checks/smartctl_dumps" / folder) == expected


# -- report cases -------------------------------------------------------------------------


def test_one_entry_in_the_error_log_is_no_fault():
    found = results(ROOT / "reports/38-nvme-new-drive-1-errlog-entry")
    for id in ("nvme.smart-critical", "nvme.endurance", "nvme.thermal", "nvme.unsafe-shutdowns"):
        assert found[id].outcome == "ok"


def test_power_that_is_cut_each_time():
    found = results(ROOT / "reports/40-nvme-4804-errlog-3682-unsafe")
    (finding,) = found["nvme.unsafe-shutdowns"].findings
    assert "99.7%" in finding.message and "3,682 of 3,693" in finding.message
    for id in ("nvme.smart-critical", "nvme.endurance", "nvme.thermal"):
        assert found[id].outcome == "ok"


def test_a_controller_lost_twice():
    path = ROOT / "reports/41-nvme-controller-down-csts-ffffffff"
    found = results(path)
    (lost,) = found["nvme.controller-lost"].findings
    assert (lost.subject, lost.severity) == ("nvme:nvme0", "error")
    assert "twice" in lost.message and "LBA 32545872" in lost.message
    assert "nvme_core.default_ps_max_latency_us=0 pcie_aspm=off as a trial" in lost.advice
    (failed,) = found["nvme.io-timeouts"].findings
    assert failed.message.startswith("1 command to nvme0 failed (read, LBA 32545872")


def test_two_controllers_that_are_gone():
    found = results(ROOT / "reports/43-nvme-two-controllers-removed")
    lost = found["nvme.controller-lost"].findings
    assert [f.subject for f in lost] == ["nvme:nvme2", "nvme:nvme3"]
    for finding in lost:
        assert "is gone: it did not get ready twice" in finding.message
        assert "-19" in finding.message and "800166076416 -> 0" in finding.message
        assert "QID 0" in finding.message
