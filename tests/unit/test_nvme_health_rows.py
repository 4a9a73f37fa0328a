"""Rows on the health of NVMe drives: SMART logs, pasted texts and the kernel's log."""

from __future__ import annotations

import errno

import pytest

from tests.support import Gap, fake_nvme, host
from tests.support.nvme_box import box, controller, files
from tests.support.rows import diagnose, diagnose_one

DENIED = {("nvme_admin", "nvme0"): Gap("denied", "/dev/nvme0: Permission denied")}


def of_smart(tmp_path, id, settings=(), identify=None, **smart):
    drive = controller(smart=fake_nvme.smart(**smart), **(identify or {}))
    return diagnose_one(box(tmp_path, files(), drive), id, settings=settings)


@pytest.mark.parametrize(
    "id", ["nvme.smart-critical", "nvme.endurance", "nvme.thermal", "nvme.unsafe-shutdowns"]
)
def test_without_privilege(tmp_path, id):
    result = diagnose_one(host(tmp_path, files(), complete=True, libraries=DENIED), id)
    assert result.outcome == "unknown"
    assert (result.unknowns[0].subject, result.unknowns[0].remedy) == ("nvme:nvme0", "run as root")


def test_a_device_that_others_may_open_and_not_command(tmp_path):
    """Linux 6.1 denies all admin commands to those without CAP_SYS_ADMIN."""
    drive = controller(fails={(0x06, 1): OSError(errno.EACCES, "Permission denied")})
    result = diagnose_one(box(tmp_path, files(), drive), "nvme.smart-critical")
    assert (result.outcome, result.unknowns[0].remedy) == ("unknown", "run as root")


@pytest.mark.parametrize(
    "id", ["nvme.smart-critical", "nvme.endurance", "nvme.thermal", "nvme.unsafe-shutdowns"]
)
def test_a_healthy_drive(tmp_path, id):
    result = of_smart(tmp_path, id)
    assert result.outcome == "ok"
    assert result.evidence[0].source == "/dev/nvme0 SMART log"


# -- nvme.smart-critical ------------------------------------------------------------------


def test_each_warning_has_its_name(tmp_path):
    (finding,) = of_smart(tmp_path, "nvme.smart-critical", warning=0x14).findings
    assert finding.severity == "error"
    assert finding.message == (
        "nvme0 warns: reliability is degraded by media or internal errors;"
        " the backup of volatile memory has failed."
    )
    assert finding.evidence[0].value == "critical warning 0x14"


def test_spare_blocks_that_run_out(tmp_path):
    (below,) = of_smart(tmp_path, "nvme.smart-critical", spare=9).findings
    assert below.severity == "error" and "9 % of its spare blocks" in below.message
    (at,) = of_smart(tmp_path, "nvme.smart-critical", spare=10).findings
    assert at.severity == "warning"
    # told by the warning already
    assert len(of_smart(tmp_path, "nvme.smart-critical", spare=9, warning=1).findings) == 1


def test_virtual_drives_have_no_spare_and_no_threshold(tmp_path):
    result = of_smart(
        tmp_path, "nvme.smart-critical", spare=0, threshold=0, kelvin=0, cycles=0, hours=0, unsafe=0
    )
    assert result.outcome == "ok"


def test_media_errors(tmp_path):
    (finding,) = of_smart(tmp_path, "nvme.smart-critical", media=3).findings
    assert finding.severity == "warning" and "3 times" in finding.message


@pytest.mark.parametrize("entries", [1, 4804, 156_609])
def test_entries_of_the_error_log_are_no_fault(tmp_path, entries):
    result = of_smart(tmp_path, "nvme.smart-critical", errors=entries)
    assert result.outcome == "ok"
    assert "no fault by themselves" in result.reason


def test_counters_that_contradict_each_other(tmp_path):
    lost = {"cycles": 0, "unsafe": 0, "read": 0, "written": 0}
    (finding,) = of_smart(tmp_path, "nvme.smart-critical", hours=6331, **lost).findings
    assert "contradict each other" in finding.message
    assert of_smart(tmp_path, "nvme.smart-critical", hours=20, **lost).outcome == "ok"
    assert of_smart(tmp_path, "nvme.smart-critical", hours=6331, **(lost | {"written": 1})).outcome == "ok"


def test_a_drive_that_cannot_read_its_own_log(tmp_path):
    failing = box(tmp_path, files(), controller(fails={(0x02, 0x02): 0x4006}))
    (finding,) = diagnose_one(failing, "nvme.smart-critical").findings
    assert "internal error" in finding.message
    other = box(tmp_path, files(), controller(fails={(0x02, 0x02): 0x0C}))
    assert diagnose_one(other, "nvme.smart-critical").outcome == "unknown"


# -- nvme.endurance -----------------------------------------------------------------------


@pytest.mark.parametrize(("used", "outcome"), [(79, "ok"), (80, "warning"), (100, "error"), (255, "error")])
def test_wear(tmp_path, used, outcome):
    result = of_smart(tmp_path, "nvme.endurance", used=used, written=2_000_000)
    assert (result.severity or result.outcome) == outcome
    if result.findings:
        # 2,000,000 units of 512,000 bytes
        assert result.findings[0].evidence[1].value == "1.0 TB written in 1,000 h of operation"
    assert of_smart(tmp_path, "nvme.endurance", ["nvme.percentage_used_warning=90"], used=85).outcome == "ok"


# -- nvme.thermal -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kelvin", "outcome"), [(342, "ok"), (343, "warning"), (352, "warning"), (353, "error")]
)
def test_temperature(tmp_path, kelvin, outcome):
    """Warning at 343 K, critical at 353 K."""
    result = of_smart(tmp_path, "nvme.thermal", kelvin=kelvin)
    assert (result.severity or result.outcome) == outcome


def test_a_drive_without_thresholds_tells_by_its_warning(tmp_path):
    none = {"wctemp": 0, "cctemp": 0}
    assert of_smart(tmp_path, "nvme.thermal", identify=none, kelvin=350).outcome == "ok"
    assert of_smart(tmp_path, "nvme.thermal", identify=none, kelvin=350, warning=2).outcome == "finding"


def test_a_drive_that_measures_nothing(tmp_path):
    assert of_smart(tmp_path, "nvme.thermal", kelvin=0).outcome == "not-applicable"


def test_minutes_count_by_their_share_of_the_time_in_operation(tmp_path):
    # 0.1 % of 1,000 h is 60 minutes
    assert of_smart(tmp_path, "nvme.thermal", hours=1000, warning_minutes=60).outcome == "ok"
    (finding,) = of_smart(tmp_path, "nvme.thermal", hours=1000, warning_minutes=90).findings
    assert finding.message == "nvme0 was above its warning temperature for 0.15 % of its time in operation."
    (critical,) = of_smart(tmp_path, "nvme.thermal", hours=10_000, critical_minutes=1).findings
    assert "above its critical temperature" in critical.message


def test_throttling(tmp_path):
    hot = {"hours": 6, "transitions": (718, 2), "seconds": (1476, 0)}
    (finding,) = of_smart(tmp_path, "nvme.thermal", **hot).findings
    assert "slowed down by heat for 6.8 %" in finding.message  # 1,476 s of 21,600
    assert finding.evidence[1].value == "slowed down lightly 718 times, heavily 2 times"
    result = of_smart(tmp_path, "nvme.thermal", hours=100_000, transitions=(3, 0), seconds=(9, 0))
    assert result.outcome == "ok" and "slowed down by heat" in result.reason


def test_heat_of_a_drive_that_counts_no_hours(tmp_path):
    assert of_smart(tmp_path, "nvme.thermal", hours=0, warning_minutes=1).outcome == "finding"


def test_without_privilege_the_kernels_sensor_tells(tmp_path):
    said = {
        "path": "/sys/class/nvme/nvme0/hwmon3",
        "temp1_input": 85,
        "temp1_max": 70,
        "temp1_crit": 90,
        "hung": None,
    }
    libraries = DENIED | {("nvme_hwmon", "nvme0"): said}
    (finding,) = diagnose_one(
        host(tmp_path, files(), complete=True, libraries=libraries), "nvme.thermal"
    ).findings
    assert finding.evidence[0].source == "/sys/class/nvme/nvme0/hwmon3/temp1_input"
    assert finding.message == "nvme0 is at 85 C, and its warning temperature is 70 C."


def test_the_sensors_files_of_a_snapshot(tmp_path):
    folder = "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0/hwmon3"
    tree = files() | {f"{folder}/temp1_input": "30850\n", f"{folder}/temp1_max": "69850\n"}
    result = diagnose_one(host(tmp_path, tree), "nvme.thermal")
    assert result.outcome == "ok"
    assert (result.evidence[0].value, result.evidence[0].expected) == ("nvme0: 31 C", "below 70 C")


def test_a_temperature_without_anything_to_compare_it_with(tmp_path):
    said = {"path": "/sys/class/nvme/nvme0/hwmon3", "temp1_input": 41, "hung": None}
    libraries = DENIED | {("nvme_hwmon", "nvme0"): said}
    result = diagnose_one(host(tmp_path, files(), complete=True, libraries=libraries), "nvme.thermal")
    assert result.outcome == "unknown"


# -- nvme.unsafe-shutdowns ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("unsafe", "cycles", "hours", "outcome"),
    [
        (3682, 3693, 6726, "finding"),
        (106, 121, 49441, "ok"),  # once in three weeks
        (173, 194, 41159, "ok"),
        (29, 53, 482, "ok"),  # burn-in
        (22, 28, 11873, "ok"),
        (200, 1000, 1000, "ok"),  # most were clean
        (0, 0, 0, "ok"),
        (100, 0, 0, "finding"),
    ],
)
def test_power_cuts(tmp_path, unsafe, cycles, hours, outcome):
    result = of_smart(tmp_path, "nvme.unsafe-shutdowns", unsafe=unsafe, cycles=cycles, hours=hours)
    assert result.outcome == outcome


# -- pasted texts -------------------------------------------------------------------------

SMART_LOG = """Smart Log for NVME device:nvme0 namespace-id:ffffffff
critical_warning                        : 0
temperature                             : 42 C (315 Kelvin)
available_spare                         : 100%
available_spare_threshold               : 10%
percentage_used                         : 3%
power_cycles                            : 6
power_on_hours                          : 241
unsafe_shutdowns                        : 0
media_errors                            : 0
num_err_log_entries                     : 1
"""
HEALTH = ("nvme.smart-critical", "nvme.endurance", "nvme.thermal", "nvme.unsafe-shutdowns")


def test_a_pasted_smart_log(tmp_path):
    results = diagnose(host(tmp_path, {}, documents={"drive.txt": SMART_LOG}), *HEALTH)
    assert {result.outcome for result in results.values()} == {"ok"}
    assert results["nvme.endurance"].evidence[0].source == "documents/drive.txt"
    assert results["nvme.endurance"].evidence[0].value == "nvme0: 3 % used"


SMARTCTL = """=== START OF SMART DATA SECTION ===
SMART/Health Information (NVMe Log 0x02)
Critical Warning:                   0x00
Temperature:                        30 Celsius
Available Spare:                    100%
Available Spare Threshold:          10%
Percentage Used:                    99%
Power Cycles:                       6
Power On Hours:                     241
Unsafe Shutdowns:                   0
Media and Data Integrity Errors:    0
"""


@pytest.mark.parametrize(
    ("file", "content", "subject"),
    [
        ("health.txt", SMARTCTL, "nvme:health"),
        ("nvme7.txt", SMARTCTL, "nvme:nvme7"),
        ("nvme7n1_smart.log", SMARTCTL, "nvme:nvme7"),
        ("all.txt", "$ smartctl -a /dev/nvme3n1\n" + SMARTCTL, "nvme:nvme3"),
    ],
)
def test_a_drive_is_named_by_its_text_its_command_or_its_file(tmp_path, file, content, subject):
    (finding,) = diagnose_one(host(tmp_path, {}, documents={file: content}), "nvme.endurance").findings
    assert finding.subject == subject


def test_two_texts_of_unnamed_drives_are_two_drives(tmp_path):
    texts = {"a.txt": SMARTCTL, "b.txt": SMARTCTL.replace("99%", "98%")}
    result = diagnose_one(host(tmp_path, {}, documents=texts), "nvme.endurance")
    assert [f.subject for f in result.findings] == ["nvme:a", "nvme:b"]


def test_a_text_fills_what_the_tree_lacks(tmp_path):
    texts = {"nvme0.txt": SMARTCTL}
    (finding,) = diagnose_one(host(tmp_path, files(), documents=texts), "nvme.endurance").findings
    assert finding.subject == "nvme:nvme0"
    assert finding.evidence[0].source == "documents/nvme0.txt"


def test_a_text_finds_its_drive_by_the_serial_number(tmp_path):
    texts = {"health.txt": SMARTCTL.replace("SMART/Health", "Serial Number:   SN-nvme0\nSMART/Health")}
    (finding,) = diagnose_one(host(tmp_path, files(), documents=texts), "nvme.endurance").findings
    assert finding.subject == "nvme:nvme0"


def test_the_live_answer_is_preferred(tmp_path):
    tree = box(tmp_path, files(), controller(), documents={"nvme0.txt": SMARTCTL})
    assert diagnose_one(tree, "nvme.endurance").outcome == "ok"


def test_identify_and_smart_log_of_one_drive_belong_together(tmp_path):
    texts = {
        "id.txt": "$ nvme id-ctrl /dev/nvme0\nNVME Identify Controller:\nvid       : 0x144d\n"
        "ssvid     : 0x144d\nsn        : S1\nmn        : D\nwctemp    : 310\ncctemp    : 400\n",
        "smart.txt": SMART_LOG,
    }
    (finding,) = diagnose_one(host(tmp_path, {}, documents=texts), "nvme.thermal").findings
    assert finding.message == "nvme0 is at 42 C, and its warning temperature is 37 C."


# -- the kernel's log ---------------------------------------------------------------------

LOG = ("nvme.controller-lost", "nvme.io-timeouts")


def log(tmp_path, *lines, tree=None):
    records = [[4, 100.0 + 10 * number, text] for number, text in enumerate(lines)]
    return diagnose(box(tmp_path, tree or files(), libraries={("kmsg",): records}), *LOG)


@pytest.mark.parametrize(
    "line",
    [
        "nvme nvme0: pci function 0000:01:00.0",
        "nvme nvme0: 8/0/0 default/read/poll queues",
        "nvme nvme0: Shutdown timeout set to 8 seconds",
        "nvme nvme0: missing or invalid SUBNQN field.",
        "nvme nvme0: Ignoring bogus Namespace Identifiers",
        "nvme0n1: p1 p2 p3",
        "nvme0: Identify(0x6), Invalid Field in Command (sct 0x0 / sc 0x2) MORE DNR",
        "nvme0n1: Dataset Management(0x9) @ LBA 0, 1 blocks, Invalid Field in Command (sct 0x0 / sc 0x2)",
        "critical target error, dev nvme0n1, sector 8 op 0x9:(WRITE_ZEROES) flags 0x800",
        "nvme0n1: detected capacity change from 0 to 1953525168",
        "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode",
    ],
)
def test_lines_that_complain_of_nothing(tmp_path, line):
    assert {result.outcome for result in log(tmp_path, line).values()} == {"ok"}


@pytest.mark.parametrize(
    "line",
    [
        "nvme nvme0: I/O 832 QID 5 timeout, aborting",
        "nvme nvme0: I/O 832 (I/O Cmd) QID 5 timeout, aborting",
        "nvme nvme0: I/O tag 832 (a340) opcode 0x2 (I/O Cmd) QID 5 timeout, aborting req_op:READ(0)",
        "nvme nvme0: I/O 832 QID 5 timeout, reset controller",
        "nvme nvme0: I/O tag 832 (a340) QID 5 timeout, disable controller",
        "nvme 0000:01:00.0: Timeout I/O 832 QID 5",
    ],
)
def test_timeouts_of_all_releases(tmp_path, line):
    results = log(tmp_path, line, line)
    (finding,) = results["nvme.io-timeouts"].findings
    assert (finding.subject, finding.severity) == ("nvme:nvme0", "warning")
    assert finding.message == "2 commands to nvme0 timed out."
    assert finding.evidence[0].value.endswith("(twice, from 100 s to 110 s after boot)")
    assert results["nvme.controller-lost"].outcome == "ok"


@pytest.mark.parametrize(
    "name", ["I/O {} QID 5", "I/O tag {} (a340) opcode 0x2 (I/O Cmd) QID 5"], ids=["old", "new"]
)
def test_a_command_that_was_to_be_aborted_is_counted_once(tmp_path, name):
    first, other = (f"nvme nvme0: {name.format(tag)} timeout, " for tag in (832, 833))
    results = log(tmp_path, f"{first}aborting", f"{first}reset controller")
    assert results["nvme.io-timeouts"].findings[0].message == "1 command to nvme0 timed out."
    lines = (f"{first}aborting", f"{first}reset controller", f"{first}aborting", f"{other}reset controller")
    results = log(tmp_path / "b", *lines)
    assert results["nvme.io-timeouts"].findings[0].message == "3 commands to nvme0 timed out."


def test_how_long_a_command_was_waited_for(tmp_path):
    tree = files() | {"/sys/module/nvme_core/parameters/io_timeout": "30\n"}
    results = log(tmp_path, "nvme nvme0: I/O 1 QID 2 timeout, aborting", tree=tree)
    assert results["nvme.io-timeouts"].findings[0].message == "1 command to nvme0 timed out after 30 s."


def test_a_lost_interrupt(tmp_path):
    results = log(tmp_path, "nvme nvme0: I/O tag 1 (1001) QID 2 timeout, completion polled")
    (finding,) = results["nvme.io-timeouts"].findings
    assert "its interrupt never came" in finding.message


def test_a_failed_read_told_twice_is_one(tmp_path):
    results = log(
        tmp_path,
        "nvme0n1: I/O Cmd(0x2) @ LBA 4096, 8 blocks, I/O Error (sct 0x3 / sc 0x71)",
        "I/O error, dev nvme0n1, sector 32768 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
    )
    (finding,) = results["nvme.io-timeouts"].findings
    assert finding.severity == "error"
    assert finding.message == "1 command to nvme0 failed (read, LBA 4096: I/O Error)."


@pytest.mark.parametrize(
    "line",
    [
        "nvme0n1: Read(0x2) @ LBA 4096, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR",
        "blk_update_request: critical medium error, dev nvme0n1, sector 32768 op 0x0:(READ) flags 0x0",
        "print_req_error: critical medium error, dev nvme0n1, sector 32768",
    ],
)
def test_media_that_cannot_be_read(tmp_path, line):
    (finding,) = log(tmp_path, line)["nvme.io-timeouts"].findings
    assert finding.severity == "error" and "media" in finding.message


def test_a_controller_that_reports_a_fatal_error(tmp_path):
    results = log(tmp_path, "nvme nvme0: controller is down; will reset: CSTS=0x3, PCI_STATUS=0x10")
    (finding,) = results["nvme.controller-lost"].findings
    assert finding.message == "nvme0 reported a fatal error once (CSTS=0x3)."
    assert "pcie_aspm" not in finding.advice


def test_a_controller_that_is_silent(tmp_path):
    results = log(
        tmp_path, "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS read failed (134)"
    )
    (finding,) = results["nvme.controller-lost"].findings
    assert finding.message == "nvme0 did not answer on the bus once (CSTS=0xffffffff)."
    assert "nvme_core.default_ps_max_latency_us=0 pcie_aspm=off as a trial" in finding.advice


@pytest.mark.parametrize(
    "line",
    [
        "nvme nvme0: Removing after probe failure status: -19",
        "nvme nvme0: Disabling device after reset failure: -19",
    ],
)
def test_a_controller_that_is_gone_though_nothing_lists_it_any_more(tmp_path, line):
    gone = {"/sys/block/sda/size": "8\n"}
    (finding,) = log(tmp_path, line, tree=gone)["nvme.controller-lost"].findings
    assert (finding.subject, finding.severity) == ("nvme:nvme0", "error")
    assert finding.message.startswith("nvme0 is gone: the driver gave it up")


def test_a_reset_after_a_bus_error(tmp_path):
    (finding,) = log(tmp_path, "nvme nvme0: frozen state error detected, reset controller")[
        "nvme.controller-lost"
    ].findings
    assert finding.severity == "warning"


def test_lines_name_a_pci_function_that_nobody_knows(tmp_path):
    (finding,) = log(tmp_path, "nvme 0000:77:00.0: Device not ready; aborting initialisation")[
        "nvme.controller-lost"
    ].findings
    assert finding.subject == "pci:0000:77:00.0"


def test_a_path_is_its_controllers(tmp_path):
    results = log(tmp_path, "nvme1c2n1: Read(0x2) @ LBA 1, 8 blocks, Internal Error (sct 0x0 / sc 0x6)")
    assert results["nvme.io-timeouts"].findings[0].subject == "nvme:nvme2"


@pytest.mark.parametrize("id", LOG)
def test_a_log_that_may_not_be_read(tmp_path, id):
    denied = {("kmsg",): Gap("denied", "Operation not permitted")}
    result = diagnose_one(host(tmp_path, files(), complete=True, libraries=denied), id)
    assert (result.outcome, result.unknowns[0].remedy) == ("unknown", "run as root")


@pytest.mark.parametrize("id", LOG)
def test_of_a_part_of_a_log_nothing_follows(tmp_path, id):
    part = {"dmesg.txt": "[    5.000000] EDAC MC0: Giving out device\n[    6.000000] e1000e: eth0 up\n"}
    assert diagnose_one(host(tmp_path, {}, documents=part), id).outcome == "unknown"
    whole = {"dmesg.txt": "[    0.000000] Linux version 6.1.0\n[    6.000000] e1000e: eth0 up\n"}
    assert diagnose_one(host(tmp_path, {}, documents=whole), id).outcome == "ok"
