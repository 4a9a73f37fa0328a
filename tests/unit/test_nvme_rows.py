"""Rows on how the kernel drives NVMe drives: files and answers in, verdicts out."""

from __future__ import annotations

import pytest

from hwtune.changes import KernelArguments, NvmeLatencyTolerance, SysfsAttribute
from tests.support import Gap, Link, fake_nvme, host
from tests.support.nvme_box import box, controller, files
from tests.support.rows import diagnose_one

ROWS = (
    "nvme.apst",
    "nvme.scheduler",
    "nvme.write-cache-view",
    "nvme.discard-mount",
    "nvme.state",
    "nvme.queues",
    "nvme.host-memory-buffer",
    "nvme.firmware-mismatch",
    "nvme.smart-critical",
    "nvme.endurance",
    "nvme.thermal",
    "nvme.unsafe-shutdowns",
    "nvme.controller-lost",
    "nvme.io-timeouts",
)


@pytest.mark.parametrize("id", ROWS)
def test_a_machine_without_nvme(tmp_path, id):
    result = diagnose_one(
        host(tmp_path, {"/proc/self/mountinfo": "", "/sys/block/sda/size": "8\n"}, complete=True), id
    )
    assert result.outcome == "not-applicable"


@pytest.mark.parametrize("id", ROWS)
def test_nothing_captured(tmp_path, id):
    result = diagnose_one(host(tmp_path, {"/proc/version": "Linux version 6.1.0\n"}), id)
    assert result.outcome == "unknown"
    assert "not in the snapshot" in result.reason


@pytest.mark.parametrize("id", ROWS)
def test_drives_of_a_fabric_are_no_drives_of_this_machine(tmp_path, id):
    folder = "/sys/devices/virtual/nvme-fabrics/ctl/nvme0"
    result = diagnose_one(
        host(
            tmp_path,
            {
                "/sys/class/nvme/nvme0": Link("../../devices/virtual/nvme-fabrics/ctl/nvme0"),
                f"{folder}/transport": "tcp\n",
                f"{folder}/address": "traddr=10.0.0.1,trsvcid=4420\n",
                f"{folder}/state": "connecting\n",
                "/sys/block/sda/size": "8\n",
                "/proc/self/mountinfo": "",
            },
            complete=True,
            libraries={("kmsg",): [[6, 0.0, "Linux version 6.1.0"]]},
        ),
        id,
    )
    assert result.outcome in ("not-applicable", "ok")
    assert result.outcome == "not-applicable" or id in ("nvme.controller-lost", "nvme.io-timeouts")


# -- nvme.apst ----------------------------------------------------------------------------


def test_a_drive_that_sleeps(tmp_path):
    result = diagnose_one(box(tmp_path, files(), controller()), "nvme.apst")
    (finding,) = result.findings
    assert (finding.subject, finding.severity) == ("nvme:nvme0", "warning")
    assert finding.message == (
        "After 100 ms without I/O nvme0 goes to sleep; the next I/O waits up to 45,000 us until it is awake."
    )
    assert [(e.value, e.expected) for e in finding.evidence] == [
        ("yes", "no"),
        ("100000", "0"),
        ("power state 2: 5000 us to enter, 4000 us to leave", ""),
        ("power state 3: 10000 us to enter, 45000 us to leave", ""),
    ]
    assert finding.changes == [
        NvmeLatencyTolerance("nvme0", "0"),
        KernelArguments(set=("nvme_core.default_ps_max_latency_us=0",)),
    ]


def test_a_drive_whose_feature_is_off(tmp_path):
    tree = files(pm_qos_latency_tolerance_us="0\n")
    drive = controller(features={0x0C: (0, fake_nvme.apst())})
    assert diagnose_one(box(tmp_path, tree, drive), "nvme.apst").outcome == "ok"


def test_a_feature_that_is_on_with_an_empty_table(tmp_path):
    drive = controller(features={0x0C: (1, fake_nvme.apst())})
    assert diagnose_one(box(tmp_path, files(), drive), "nvme.apst").outcome == "ok"


def test_a_drive_that_sleeps_though_the_kernel_does_not_ask_for_it(tmp_path):
    tree = files(pm_qos_latency_tolerance_us="0\n")
    (finding,) = diagnose_one(box(tmp_path, tree, controller()), "nvme.apst").findings
    # The same value again would change nothing.
    assert finding.changes == [] and "reset the controller" in finding.advice


def test_without_privilege_what_the_kernel_asks_for_is_known(tmp_path):
    """With 0 the driver turns the feature off; with more, it depends on states that only root sees."""
    denied = {("nvme_admin", "nvme0"): Gap("denied", "/dev/nvme0: Permission denied")}
    awake = host(tmp_path, files(pm_qos_latency_tolerance_us="0\n"), complete=True, libraries=denied)
    assert diagnose_one(awake, "nvme.apst").outcome == "ok"
    asleep = host(tmp_path, files(), complete=True, libraries=denied)
    result = diagnose_one(asleep, "nvme.apst")
    assert result.outcome == "unknown"
    assert result.unknowns[0].remedy == "run as root"


def test_a_kernel_that_uses_no_apst(tmp_path):
    denied = {("nvme_admin", "nvme0"): Gap("denied", "")}
    tree = files(pm_qos_latency_tolerance_us=None)
    result = diagnose_one(host(tmp_path, tree, complete=True, libraries=denied), "nvme.apst")
    assert result.outcome == "not-applicable"


def test_a_drive_without_apst(tmp_path):
    tree = files(pm_qos_latency_tolerance_us=None)
    result = diagnose_one(box(tmp_path, tree, controller(apsta=0)), "nvme.apst")
    assert result.outcome == "not-applicable"


def test_the_kernels_choice_where_only_the_feature_cannot_be_read(tmp_path):
    """nvme_configure_apst() takes non-operational states with an exit latency up to the tolerance."""
    fails = {(0x0A, 0x0C): 0x02}
    asks = box(tmp_path, files(pm_qos_latency_tolerance_us="4000\n"), controller(fails=fails))
    (finding,) = diagnose_one(asks, "nvme.apst").findings
    assert "The kernel lets nvme0 go to sleep; the next I/O waits up to 4,000 us" in finding.message
    quick = box(tmp_path, files(pm_qos_latency_tolerance_us="3999\n"), controller(fails=fails))
    assert diagnose_one(quick, "nvme.apst").outcome == "ok"
    any_ = box(tmp_path, files(pm_qos_latency_tolerance_us="auto\n"), controller(fails=fails))
    assert "45,000 us" in diagnose_one(any_, "nvme.apst").findings[0].message


def test_a_drive_that_does_not_say_how_long_it_takes(tmp_path):
    drive = controller(
        states=((900, 0, 0, 0), (4, 2, 0, 0)), features={0x0C: (1, fake_nvme.apst((0, 1, 50)))}
    )
    (finding,) = diagnose_one(box(tmp_path, files(), drive), "nvme.apst").findings
    assert finding.message.endswith("the next I/O has to wait until it is awake.")


def test_profiles_that_let_drives_sleep(tmp_path):
    result = diagnose_one(box(tmp_path, files(), controller()), "nvme.apst", profile="gpu-training")
    assert result.outcome == "ok"


def test_a_container_cannot_change_its_hosts_drive(tmp_path):
    tree = files() | {"/run/systemd/container": "podman\n"}
    (finding,) = diagnose_one(box(tmp_path, tree, controller()), "nvme.apst").findings
    assert finding.changes == [] and "on the host" in finding.advice


def test_a_container_has_no_device(tmp_path):
    gone = {("nvme_admin", "nvme0"): Gap("unreadable", "there is no /dev/nvme0 here")}
    result = diagnose_one(host(tmp_path, files(), complete=True, libraries=gone), "nvme.smart-critical")
    assert result.outcome == "unknown"
    assert "outside the container" in result.unknowns[0].remedy


# -- nvme.scheduler -----------------------------------------------------------------------


@pytest.mark.parametrize("text", ["[none] mq-deadline\n", "none\n"])
def test_no_scheduler(tmp_path, text):
    assert diagnose_one(box(tmp_path, files(scheduler=text)), "nvme.scheduler").outcome == "ok"


@pytest.mark.parametrize(("name", "severity"), [("bfq", "warning"), ("mq-deadline", "info")])
def test_a_scheduler(tmp_path, name, severity):
    result = diagnose_one(box(tmp_path, files(scheduler=f"none [{name}] kyber\n")), "nvme.scheduler")
    (finding,) = result.findings
    assert (finding.subject, finding.severity) == ("block:nvme0n1", severity)
    assert finding.changes == [SysfsAttribute("/sys/block/nvme0n1/queue/scheduler", "none", "udev")]
    assert result.severity == severity


def test_a_scheduler_that_cannot_be_read(tmp_path):
    tree = files(scheduler=Gap("unreadable", "Input/output error"))
    assert diagnose_one(box(tmp_path, tree), "nvme.scheduler").outcome == "unknown"
    assert (
        diagnose_one(box(tmp_path, files(scheduler="mq-deadline kyber\n")), "nvme.scheduler").outcome
        == "unknown"
    )


def test_a_drive_without_a_disk_is_no_absent_drive(tmp_path):
    tree = {
        "/sys/class/nvme/nvme0/transport": "pcie\n",
        "/sys/class/nvme/nvme0/state": "live\n",
        "/sys/block/sda/queue/rotational": "1\n",
    }
    for row in ("nvme.scheduler", "nvme.write-cache-view"):
        result = diagnose_one(host(tmp_path / row, tree), row)
        assert result.outcome == "unknown"
        assert result.reason == "no disk of nvme0 is in /sys/block"


def test_a_disk_above_several_paths_has_none(tmp_path):
    assert diagnose_one(box(tmp_path, files(scheduler=None)), "nvme.scheduler").outcome == "not-applicable"


# -- nvme.write-cache-view ----------------------------------------------------------------


def view(tmp_path, text, **drive):
    return diagnose_one(box(tmp_path, files(write_cache=text), controller(**drive)), "nvme.write-cache-view")


def test_write_back_is_safe_whatever_the_drive_has(tmp_path):
    assert view(tmp_path, "write back\n").outcome == "ok"
    denied = {("nvme_admin", "nvme0"): Gap("denied", "")}
    assert (
        diagnose_one(
            host(tmp_path, files(), complete=True, libraries=denied), "nvme.write-cache-view"
        ).outcome
        == "ok"
    )


def test_write_through_above_a_cache_that_is_on(tmp_path):
    result = view(tmp_path, "write through\n")
    (finding,) = result.findings
    assert (finding.subject, finding.severity) == ("block:nvme0n1", "error")
    # Never a change of that file: told to take its maker away, and to boot.
    assert finding.changes == []


def test_write_through_is_right_without_a_cache_or_with_it_off(tmp_path):
    assert view(tmp_path, "write through\n", vwc=0).outcome == "ok"
    assert view(tmp_path, "write through\n", features={0x06: (0, b"")}).outcome == "ok"


def test_write_through_above_a_drive_that_nobody_may_ask(tmp_path):
    denied = {("nvme_admin", "nvme0"): Gap("denied", "")}
    tree = files(write_cache="write through\n")
    result = diagnose_one(host(tmp_path, tree, complete=True, libraries=denied), "nvme.write-cache-view")
    assert (result.outcome, result.unknowns[0].remedy) == ("unknown", "run as root")
    assert view(tmp_path, "write through\n", fails={(0x0A, 0x06): 0x06}).outcome == "unknown"
    assert view(tmp_path, "write sideways\n").outcome == "unknown"


def test_a_kernel_without_the_file(tmp_path):
    assert (
        diagnose_one(box(tmp_path, files(write_cache=None)), "nvme.write-cache-view").outcome
        == "not-applicable"
    )


# -- nvme.discard-mount -------------------------------------------------------------------


def mounted(tmp_path, line, more=None, settings=(), **changes):
    tree = files(mountinfo=line, **changes) | (more or {})
    return diagnose_one(box(tmp_path, tree), "nvme.discard-mount", settings=settings)


PARTITION = {
    "/sys/dev/block/259:2": Link(
        "../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p2"
    ),
    "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p2/partition": "2\n",
}
DISCARD = "27 1 259:2 / /data rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,discard\n"


def test_a_file_system_that_discards(tmp_path):
    more = PARTITION | {"/etc/fstab": "# x\nUUID=1 /data ext4 rw,discard 0 2\nUUID=2 none swap discard 0 0\n"}
    (finding,) = mounted(tmp_path, DISCARD, more).findings
    assert (finding.subject, finding.severity) == ("block:nvme0n1", "warning")
    assert [(e.source, e.value) for e in finding.evidence] == [
        ("/proc/self/mountinfo", "/dev/nvme0n1p2 on /data: ext4, discard"),
        ("/etc/fstab", "/data: discard"),
    ]
    assert "fstrim.timer" in finding.advice


@pytest.mark.parametrize(
    "line",
    [
        DISCARD.replace(",discard", ""),
        DISCARD.replace("ext4", "btrfs").replace("rw,discard", "rw,discard=async"),
        DISCARD.replace("ext4", "f2fs"),
        DISCARD.replace("rw,discard", "rw,nodiscard"),
    ],
)
def test_file_systems_that_do_not_discard_at_once(tmp_path, line):
    assert mounted(tmp_path, line, PARTITION).outcome == "ok"


def test_discard_of_a_drive_that_takes_none_means_nothing(tmp_path):
    assert mounted(tmp_path, DISCARD, PARTITION, discard_max_bytes="0\n").outcome == "ok"


def test_discard_that_the_profile_accepts(tmp_path):
    assert mounted(tmp_path, DISCARD, PARTITION, settings=["nvme.discard_mounts=true"]).outcome == "ok"


def test_discard_on_other_disks_is_not_of_nvme(tmp_path):
    line = "27 1 8:1 / / rw - ext4 /dev/sda1 rw,discard\n"
    more = {
        "/sys/block/sda": Link("../devices/pci0000:00/0000:00:1f.2/ata1/block/sda"),
        "/sys/devices/pci0000:00/0000:00:1f.2/ata1/block/sda/sda1/partition": "1\n",
        "/sys/dev/block/8:1": Link("../../devices/pci0000:00/0000:00:1f.2/ata1/block/sda/sda1"),
    }
    assert mounted(tmp_path, line, more).outcome == "not-applicable"


def test_discard_through_a_mapping(tmp_path):
    """LVM on a partition of the drive: the mapping's slaves lead to it."""
    nvme = "../../../../pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p2"
    more = PARTITION | {
        "/sys/block/dm-0": Link("../devices/virtual/block/dm-0"),
        "/sys/devices/virtual/block/dm-0/slaves/nvme0n1p2": Link("../" + nvme),
        "/sys/dev/block/253:0": Link("../../devices/virtual/block/dm-0"),
    }
    line = "27 1 253:0 / /data rw - xfs /dev/mapper/vg-data rw,discard\n"
    (finding,) = mounted(tmp_path, line, more).findings
    assert finding.subject == "block:nvme0n1"


def test_discard_on_what_nobody_knows_the_drive_of(tmp_path):
    line = "27 1 0:45 / /data rw - btrfs /dev/mapper/secret rw,discard\n"
    result = mounted(tmp_path, line)
    assert result.outcome == "unknown"
    assert "/dev/mapper/secret" in result.reason


def test_btrfs_shows_no_device_number(tmp_path):
    line = "27 1 0:45 / /data rw - btrfs /dev/nvme0n1p2 rw,discard\n"
    (finding,) = mounted(tmp_path, line, PARTITION).findings
    assert "discard=async" in finding.advice


def test_a_mount_table_that_makes_no_sense(tmp_path):
    assert mounted(tmp_path, "nonsense\n").outcome == "unknown"


# -- nvme.state, nvme.queues --------------------------------------------------------------


def test_a_controller_that_is_live(tmp_path):
    assert diagnose_one(box(tmp_path, files(), controller()), "nvme.state").outcome == "ok"


@pytest.mark.parametrize(
    ("state", "severity"), [("dead", "error"), ("resetting", "warning"), ("connecting", "warning")]
)
def test_a_controller_that_is_not(tmp_path, state, severity):
    tree = files(state=f"{state}\n")
    (finding,) = diagnose_one(box(tmp_path, tree), "nvme.state").findings
    assert (finding.subject, finding.severity) == ("nvme:nvme0", severity)
    # and nobody asks it anything
    assert "its state is" in diagnose_one(box(tmp_path, tree), "nvme.smart-critical").reason


def test_a_controller_that_hangs(tmp_path):
    said = fake_nvme.said(controller()) | {"hung": "smart"}
    del said["smart"]
    (finding,) = diagnose_one(box(tmp_path, files(), said), "nvme.state").findings
    assert finding.severity == "error"
    assert finding.evidence[0].source == "/dev/nvme0 smart"
    assert "no answer in time" in diagnose_one(box(tmp_path, files(), said), "nvme.smart-critical").reason


def test_a_state_that_is_not_known(tmp_path):
    assert diagnose_one(box(tmp_path, files(state=Gap("denied", ""))), "nvme.state").outcome == "unknown"
    assert diagnose_one(box(tmp_path, files(state=None)), "nvme.state").outcome == "not-applicable"


@pytest.mark.parametrize(
    ("count", "outcome", "reason"),
    [
        ("9", "ok", ""),
        ("65", "ok", ""),
        ("5", "ok", "4 I/O queues of nvme0 for 8 CPUs, so that CPUs share one"),
    ],
)
def test_queues(tmp_path, count, outcome, reason):
    result = diagnose_one(box(tmp_path, files(queue_count=f"{count}\n")), "nvme.queues")
    assert (result.outcome, result.reason) == (outcome, reason)


@pytest.mark.parametrize(("count", "severity"), [("2", "warning"), ("1", "error")])
def test_one_queue_for_all(tmp_path, count, severity):
    (finding,) = diagnose_one(box(tmp_path, files(queue_count=f"{count}\n")), "nvme.queues").findings
    assert finding.severity == severity


def test_one_queue_in_a_virtual_machine_is_what_the_hypervisor_gives(tmp_path):
    tree = files(queue_count="2\n") | {"/sys/class/dmi/id/sys_vendor": "QEMU\n"}
    assert diagnose_one(box(tmp_path, tree), "nvme.queues").outcome == "ok"


def test_queues_that_are_not_known(tmp_path):
    assert diagnose_one(box(tmp_path, files(queue_count="many\n")), "nvme.queues").outcome == "unknown"
    assert diagnose_one(box(tmp_path, files(queue_count=None)), "nvme.queues").outcome == "not-applicable"


# -- nvme.host-memory-buffer, nvme.firmware-mismatch --------------------------------------


def test_a_drive_that_wants_host_memory(tmp_path):
    (finding,) = diagnose_one(
        box(tmp_path, files(), controller(hmpre=16384)), "nvme.host-memory-buffer"
    ).findings
    assert "64 MiB" in finding.message and "likely" in finding.message
    assert finding.severity == "info"


def test_a_drive_that_wants_none(tmp_path):
    assert diagnose_one(box(tmp_path, files(), controller()), "nvme.host-memory-buffer").outcome == "ok"


def two(first, second, model="ACME Fast 960"):
    return files(firmware_rev=f"{first}\n") | files(
        "nvme1", "0000:02:00.0", firmware_rev=f"{second}\n", model=f"{model}\n"
    )


def test_alike_drives_with_one_firmware(tmp_path):
    assert diagnose_one(box(tmp_path, two("FW1", "FW1")), "nvme.firmware-mismatch").outcome == "ok"


def test_alike_drives_with_two(tmp_path):
    (finding,) = diagnose_one(box(tmp_path, two("FW1", "FW2")), "nvme.firmware-mismatch").findings
    assert finding.message == (
        "2 drives of the model ACME Fast 960 run 2 revisions of firmware: FW1 on nvme0; FW2 on nvme1."
    )


def test_drives_that_are_not_alike(tmp_path):
    result = diagnose_one(box(tmp_path, two("FW1", "FW2", "Other")), "nvme.firmware-mismatch")
    assert result.outcome == "not-applicable"


def test_firmware_that_is_not_known(tmp_path):
    tree = files(firmware_rev=Gap("unreadable", "Input/output error"))
    assert diagnose_one(box(tmp_path, tree), "nvme.firmware-mismatch").outcome == "unknown"
