"""Disks, mounts, and the texts about drives that are not of one command."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwtune.fact import ABSENT, INVALID, NOT_CAPTURED, UNREADABLE
from hwtune.probes import block, nvme
from hwtune.text import mounts, nvme_dmesg, udev_storage
from tests.support import Directory, Gap, Link, fake_nvme, host
from tests.support.nvme_box import box, controller, files
from tests.support.rows import diagnose_one

PCI = "/sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0"
SATA = {
    "/sys/block/sda": Link("../devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sda"),
    "/sys/block/loop0": Link("../devices/virtual/block/loop0"),
    "/sys/block/dm-0": Link("../devices/virtual/block/dm-0"),
    "/sys/block/md127": Link("../devices/virtual/block/md127"),
    f"{PCI}/model": "SOME DISK       \n",
    f"{PCI}/block/sda/device": Link("../.."),
    f"{PCI}/block/sda/size": "1000215216\n",
    f"{PCI}/block/sda/queue/rotational": "1\n",
    f"{PCI}/block/sda/queue/scheduler": "none [mq-deadline]\n",
    "/sys/devices/virtual/block/loop0/size": "0\n",
    "/sys/devices/virtual/block/dm-0/size": "8\n",
    "/sys/devices/virtual/block/md127/size": "8\n",
}


def test_disks_and_what_is_none(tmp_path):
    found = block.read(host(tmp_path, SATA, complete=True))
    assert found.listed.known
    (disk,) = found.devices
    assert (disk.name, disk.model.get(), disk.size_bytes.get()) == ("sda", "SOME DISK", 512110190592)
    assert (disk.rotational.get(), disk.scheduler.get()) == (True, "mq-deadline")
    assert disk.schedulers.get() == ["none", "mq-deadline"]
    assert (disk.pci_address.get(), disk.nvme) == ("0000:00:1f.2", None)
    assert found.others == ["dm-0", "loop0", "md127"]


def test_an_nvme_disk(tmp_path):
    folder = "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0/nvme0n1"
    tree = files() | {
        f"{folder}/queue/nomerges": "2\n",
        f"{folder}/queue/rq_affinity": "1\n",
        f"{folder}/queue/wbt_lat_usec": Gap("unreadable", "Invalid argument"),
        f"{folder}/queue/read_ahead_kb": "128\n",
        f"{folder}/queue/io_timeout": "30000\n",
        f"{folder}/queue/nr_requests": "1023\n",
        "/sys/block/nvme0c0n1": Link("../devices/pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0/nvme0c0n1"),
        "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0/nvme0c0n1/hidden": "1\n",
    }
    found = block.read(host(tmp_path, tree, complete=True))
    (disk,) = found.devices
    assert (disk.nvme, disk.pci_address.get(), disk.write_cache.get()) == (
        "nvme0",
        "0000:01:00.0",
        "write back",
    )
    assert (disk.nomerges.get(), disk.rq_affinity.get(), disk.nr_requests.get()) == (2, 1, 1023)
    assert (disk.read_ahead_kb.get(), disk.io_timeout_ms.get()) == (128, 30000)
    assert disk.wbt_lat_us.gap == UNREADABLE
    assert found.others == ["nvme0c0n1"]


def test_disks_come_in_the_order_of_their_numbers(tmp_path):
    tree = {f"/sys/block/{name}/size": "8\n" for name in ("nvme10n1", "sdb", "nvme2n1", "sda", "nvme2n2")}
    names = [disk.name for disk in block.read(host(tmp_path, tree)).devices]
    assert names == ["nvme2n1", "nvme2n2", "nvme10n1", "sda", "sdb"]


def test_partitions_of_the_class_are_no_disks(tmp_path):
    tree = {
        "/sys/class/block/sda": Link("../../devices/pci0000:00/0000:00:1f.2/block/sda"),
        "/sys/class/block/sda1": Link("../../devices/pci0000:00/0000:00:1f.2/block/sda/sda1"),
        "/sys/devices/pci0000:00/0000:00:1f.2/block/sda/sda1/partition": "1\n",
    }
    found = block.read(host(tmp_path, tree))
    assert [disk.name for disk in found.devices] == ["sda"]
    assert found.listed.known


def test_nothing_captured(tmp_path):
    found = block.read(host(tmp_path, {"/proc/version": "Linux\n"}))
    assert (found.devices, found.listed.gap, found.mounts.gap) == ([], NOT_CAPTURED, NOT_CAPTURED)


def test_a_kernel_without_block_devices(tmp_path):
    found = block.read(host(tmp_path, {"/proc/version": "Linux\n"}, complete=True))
    assert (found.devices, found.listed.gap) == ([], ABSENT)


# -- mounts -------------------------------------------------------------------------------


def test_mounts_and_their_disks(tmp_path):
    tree = SATA | {
        f"{PCI}/block/sda/sda1/partition": "1\n",
        "/sys/dev/block/8:1": Link(f"../..{PCI.removeprefix('/sys')}/block/sda/sda1"),
        "/sys/devices/virtual/block/dm-0/slaves/sda1": Link(
            f"../../../../..{PCI.removeprefix('/sys/devices')}/block/sda/sda1"
        ),
        "/sys/devices/virtual/block/dm-0/dm/name": "vg-root\n",
        "/proc/self/mounts": "/dev/mapper/vg-root / ext4 rw,relatime 0 0\n"
        "/dev/sda1 /boot\\040old vfat rw,discard 0 0\n"
        "/dev/sda1 /bind vfat rw,discard 0 0\n"
        "tmpfs /run tmpfs rw 0 0\n"
        "//server/share /mnt cifs rw 0 0\n",
    }
    found = block.read(host(tmp_path, tree, complete=True)).mounts.get()
    assert [(m.device, m.target, m.disks) for m in found] == [
        ("/dev/mapper/vg-root", "/", ["sda"]),
        ("/dev/sda1", "/boot old", ["sda"]),
    ]
    assert found[1].options == ["rw", "discard"]


def test_mappings_that_lead_in_a_circle_end(tmp_path):
    tree = {
        "/sys/block/dm-0/slaves/dm-1": Link("../../dm-1"),
        "/sys/block/dm-1/slaves/dm-0": Link("../../dm-0"),
        "/sys/block/dm-0/dm/name": "a\n",
        "/proc/self/mounts": "/dev/mapper/a / ext4 rw 0 0\n",
    }
    (mount,) = block.read(host(tmp_path, tree)).mounts.get()
    assert set(mount.disks) <= {"dm-0", "dm-1"}


def test_mountinfo():
    line = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n"
    (entry,) = mounts.parse_mountinfo(line)
    assert (entry.device, entry.target, entry.fstype, entry.number) == ("/dev/root", "/mnt 2", "ext3", "98:0")
    assert entry.options == ["rw", "noatime", "errors=continue"]


def test_mountinfo_of_a_device_without_a_name():
    (entry,) = mounts.parse_mountinfo("1 2 0:40 / /x rw - tmpfs  rw,size=4k\n")
    assert (entry.device, entry.options) == ("", ["rw", "size=4k"])


@pytest.mark.parametrize("line", ["1 2 3", "1 2 3 4 5 6 7 8", "1 2 0:1 / /x rw - tmpfs"])
def test_what_is_no_mountinfo(line):
    with pytest.raises(ValueError):
        mounts.parse_mountinfo(line)


def test_fstab_leaves_out_comments_and_halves():
    found = mounts.parse_fstab("# /dev/a / ext4 discard 0 0\n\n/dev/b\nUUID=1 / ext4 rw,discard 0 1\n")
    assert [(e.target, e.options) for e in found] == [("/", ["rw", "discard"])]


@given(st.text())
def test_mount_tables_raise_nothing_but_value_errors(text):
    for parse in (mounts.parse_mountinfo, mounts.parse_mounts, mounts.parse_fstab):
        try:
            parse(text)
        except ValueError:
            continue


# -- controllers where sysfs is not whole -------------------------------------------------


def test_controllers_by_their_disks(tmp_path):
    folder = "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0"
    tree = {
        "/sys/block/nvme0n1": Link("../devices/pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0/nvme0n1"),
        f"{folder}/model": "ACME\n",
        f"{folder}/nvme0n1/size": "8\n",
        f"{folder}/nvme0n1/mq/0/cpu_list": "0\n",
        f"{folder}/nvme0n1/mq/1/cpu_list": "1\n",
    }
    found = nvme.read(host(tmp_path, tree))
    (drive,) = found.controllers
    assert (drive.name, drive.model.get(), drive.pci_address.get()) == ("nvme0", "ACME", "0000:01:00.0")
    assert drive.queue_count.get() == 3  # two, and the admin queue
    assert found.listed.gap == NOT_CAPTURED


def test_controllers_by_their_pci_functions(tmp_path):
    tree = {"/sys/bus/pci/devices/0214:90:00.0/nvme/nvme4": Directory()}
    (drive,) = nvme.read(host(tmp_path, tree)).controllers
    assert (drive.name, drive.pci_address.get()) == ("nvme4", "0214:90:00.0")


def test_paths_of_one_namespace(tmp_path):
    tree = files() | {
        "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0/nvme3c0n7/size": "8\n",
    }
    (drive,) = nvme.read(host(tmp_path, tree, complete=True)).controllers
    assert (drive.namespaces, drive.paths) == (["nvme0n1", "nvme3n7"], ["nvme3c0n7"])


def test_module_parameters(tmp_path):
    core = "/sys/module/nvme_core/parameters"
    tree = {
        f"{core}/default_ps_max_latency_us": "100000\n",
        f"{core}/io_timeout": "30\n",
        "/sys/module/nvme/parameters/poll_queues": "0\n",
    }
    found = nvme.read(host(tmp_path, tree, complete=True))
    assert (found.default_max_latency_us.get(), found.io_timeout_s.get(), found.poll_queues.get()) == (
        100000,
        30,
        0,
    )


def test_what_the_drive_says_of_itself(tmp_path):
    (drive,) = nvme.read(
        box(tmp_path, files(), controller(features={0x10: (353 << 16 | 363, b"")}))
    ).controllers
    assert drive.version.get() == "1.4"
    assert drive.thermal_management.get() == [80, 90]
    assert [(t.state, t.target, t.idle_ms) for t in drive.apst_transitions.get()] == [
        (0, 2, 100), (1, 2, 100), (2, 3, 2000),
    ]  # fmt: skip
    assert drive.volatile_write_cache_enabled.get() is True
    assert drive.answers.get() is True
    assert drive.model.source.endswith("/nvme0/model")  # sysfs comes first


def test_closed_gates_are_absences(tmp_path):
    drive = controller(apsta=0, vwc=0, hctma=0)
    (drive,) = nvme.read(box(tmp_path, files(), drive)).controllers
    assert (drive.apst_enabled.gap, drive.thermal_management.gap) == (ABSENT, ABSENT)
    assert drive.volatile_write_cache_enabled.gap == ABSENT


@pytest.mark.parametrize(
    "said",
    [
        [],
        {"identify": 3},
        {"identify": {"data": "????"}},
        {"identify": {"data": ""}},
        {"identify": {"gap": ["denied"]}},
        {"hung": 7},
        {**fake_nvme.said(controller()), "apst": {"result": "x", "data": None}, "smart": {"data": "AA=="}},
    ],
)
def test_a_capture_that_makes_no_sense(tmp_path, said):
    (drive,) = nvme.read(box(tmp_path, files(), said)).controllers
    assert drive.smart.critical_warning.gap in (UNREADABLE, INVALID)
    assert not drive.apst_enabled.known


# -- udev ---------------------------------------------------------------------------------

UDEV = """P: /devices/pci0000:6f/0000:6f:00.5/pci10001:80/10001:80:07.0/10001:84:00.0/nvme/nvme0
N: nvme0
E: SUBSYSTEM=nvme
E: NVME_TRTYPE=pcie

P: /devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1
E: SUBSYSTEM=block
E: DEVTYPE=disk
E: ID_MODEL=Some Drive
E: ID_SERIAL_SHORT=   S1
E: ID_REVISION=F1

P: /devices/pci0000:6f/0000:6f:00.5/pci10001:80/10001:80:07.0/10001:84:00.0/nvme/nvme0/nvme0c0n1
E: SUBSYSTEM=block
E: DEVTYPE=disk

P: /devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/nvme0n1p1
E: SUBSYSTEM=block
E: DEVTYPE=partition
"""


def test_the_database_of_udev(tmp_path):
    found = nvme.read(host(tmp_path, {}, documents={"udev.txt": UDEV}))
    (drive,) = found.controllers
    assert (drive.pci_address.get(), drive.transport.get()) == ("10001:84:00.0", "pcie")
    assert (drive.model.get(), drive.serial.get(), drive.firmware.get()) == ("Some Drive", "S1", "F1")
    assert (drive.namespaces, drive.paths) == (["nvme0n1"], ["nvme0c0n1"])
    assert drive.smart.critical_warning.gap == NOT_CAPTURED


def test_the_database_of_an_old_kernel(tmp_path):
    path = "/devices/pci0000:40/0000:40:03.0/0000:46:00.0/block/nvme0n1"
    text = f"P: {path}\nE: SUBSYSTEM=block\nE: DEVTYPE=disk\n"
    (drive,) = nvme.read(host(tmp_path, {}, documents={"udev.txt": text})).controllers
    assert (drive.name, drive.pci_address.get()) == ("nvme0", "0000:46:00.0")


@given(st.lists(st.one_of(st.text(max_size=40), st.sampled_from(UDEV.splitlines())), max_size=20))
def test_any_database(lines):
    assert all(properties["SUBSYSTEM"] for _, properties in udev_storage.records("\n".join(lines)))


# -- the kernel's log ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("disk", "name"),
    [
        ("nvme0", "nvme0"),
        ("nvme12n1", "nvme12"),
        ("nvme1c2n1", "nvme2"),
        ("nvme0n1p3", "nvme0"),
        ("sda", None),
    ],
)
def test_the_controller_of_a_disk(disk, name):
    assert nvme_dmesg.controller_of(disk) == name


PIECES = [
    "nvme nvme0: ", "nvme 0000:01:00.0: ", "I/O ", "tag 1 ", "QID 3 timeout", ", aborting", "nvme0n1: ",
    "Cmd(0x2) @ LBA ", "8, 8 blocks, ", "Error (sct 0x2 / sc 0x81)", "I/O error, dev nvme0n1, sector ",
    "5 op 0x0:(READ)", "timeout", "controller is down; will reset: CSTS=0x", "ffffffff",
    "Removing after probe failure", "queue ",
]  # fmt: skip


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=10)), max_size=12).map("".join))
def test_any_line(line):
    events = list(nvme_dmesg.find([line]))
    assert len(events) <= 1
    assert all("nvme" in line and event.kind and event.device for event in events)


def test_a_long_line_takes_no_longer():
    line = "nvme nvme0: I/O " + "QID 1 timeout " * 100_000
    assert len(list(nvme_dmesg.find([line] * 50))) == 0


# -- anything in any file -----------------------------------------------------------------

JUNK = st.one_of(
    st.just(b""),
    st.binary(max_size=40),
    st.just(b"\xff" * 5000),
    st.sampled_from([b"-1\n", b"9" * 40, b"0x10\n"]),
)
ALL = [
    "nvme.apst", "nvme.scheduler", "nvme.write-cache-view", "nvme.state", "nvme.queues", "nvme.thermal",
    "nvme.firmware-mismatch", "nvme.discard-mount",
]  # fmt: skip


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_file_may_hold_anything(tmp_path, data):
    tree = files()
    path = data.draw(st.sampled_from(sorted(path for path in tree if not isinstance(tree[path], Link))))
    tree[path] = data.draw(st.one_of(JUNK, st.just(Directory())))
    id = data.draw(st.sampled_from(ALL))
    assert diagnose_one(host(tmp_path, tree), id).outcome in ("ok", "finding", "not-applicable", "unknown")
