"""What drives, nvme-cli and smartctl say, taken apart."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.text import nvme_id_ctrl, nvme_identify, nvme_log, smart_log, smartctl, smartctl_json
from hwtune.text.nvme_identify import State
from hwtune.text.smart_log import counter, degrees
from tests.support import fake_nvme

# -- Identify Controller ------------------------------------------------------------------


def test_identify_from_the_drive():
    data = fake_nvme.identify(
        wctemp=343,
        cctemp=353,
        hmpre=16384,
        states=((900, 0, 0, 0), (450, 1, 10, 20), (4, 3, 2000, 35000)),
    )
    found = nvme_identify.decode(data)
    assert (found.model, found.serial, found.firmware) == ("ACME Fast 960", "SN0001", "FW1")
    assert found.version == "1.4"
    assert (found.warning_temp_c, found.critical_temp_c) == (70, 80)
    assert found.host_memory_kib == 65536  # 16,384 pages of 4 KiB
    assert (found.apst, found.thermal_management, found.write_cache) == (True, True, True)
    assert found.states == [
        State(0, 9000, False, 0, 0),  # 900 * 0.01 W
        State(1, 45, False, 10, 20),  # 450 * 0.0001 W
        State(2, None, True, 2000, 35000),  # 4 * 0.0001 W is less than a milliwatt
    ]


def test_identify_of_an_old_drive_and_a_third_version_number():
    assert nvme_identify.decode(fake_nvme.identify(version=0)).version is None
    assert nvme_identify.decode(fake_nvme.identify(version=0x10201)).version == "1.2.1"


def test_identify_padded_with_zeros():
    data = bytearray(fake_nvme.identify())
    data[24:64] = b"ACME\0\0garbage".ljust(40, b"\0")
    assert nvme_identify.decode(bytes(data)).model == "ACME"


def test_a_number_of_states_that_cannot_be_is_cut():
    data = bytearray(fake_nvme.identify())
    data[263] = 200
    states = nvme_identify.decode(bytes(data)).states
    assert states is not None and len(states) == 32


@pytest.mark.parametrize("data", [b"", b"\x01" * 3071, bytes(4096)])
def test_what_is_no_identify(data):
    with pytest.raises(ValueError):
        nvme_identify.decode(data)


ID_CTRL = """NVME Identify Controller:
vid       : 0x144d
ssvid     : 0x144d
sn        : S4EVNX0R123456
mn        : Some Drive 1TB
fr        : 2B2QEXM7
ver       : 0x10300
npss      : 4
apsta     : 0x1
wctemp    : 358
cctemp    : 0
hmpre     : 0
hctma     : 0x1
vwc       : 0x7
ps      0 : mp:7.80W operational enlat:0 exlat:0 rrt:0 rrl:0
            rwt:0 rwl:0 idle_power:- active_power:-
ps      3 : mp:0.0490W non-operational enlat:210 exlat:1200 rrt:3 rrl:3
            rwt:3 rwl:3 idle_power:- active_power:-
"""


def test_id_ctrl_as_text():
    found = nvme_id_ctrl.parse(ID_CTRL)
    assert (found.model, found.serial, found.firmware) == ("Some Drive 1TB", "S4EVNX0R123456", "2B2QEXM7")
    assert (found.version, found.apst, found.write_cache) == ("1.3", True, True)
    assert (found.warning_temp_c, found.critical_temp_c) == (85, -273)
    assert found.states == [State(0, 7800, False, 0, 0), State(3, 49, True, 210, 1200)]


def test_id_ctrl_with_explained_bits():
    text = ID_CTRL.replace("apsta     : 0x1\n", "apsta     : 0x1\n  [0:0] : 0x1\tAPST Supported\n\n")
    assert nvme_id_ctrl.parse(text) == nvme_id_ctrl.parse(ID_CTRL)


@pytest.mark.parametrize(
    "sleeping", [{"flags": 2, "max_power": 400}, {"non-operational_state": 1, "max_power": 400}]
)
def test_id_ctrl_as_json_of_both_releases(sleeping):
    said = {
        "vid": 1,
        "mn": "Drive ",
        "apsta": 0,
        "vwc": 1,
        "hmpre": 100,
        "psds": [{"max_power": 900, "flags": 0}, {**sleeping, "entry_lat": 5, "exit_lat": 7}],
    }
    found = nvme_id_ctrl.parse(json.dumps(said))
    assert (found.model, found.apst, found.write_cache, found.host_memory_kib) == ("Drive", False, True, 400)
    assert found.states == [State(0, 9000, False, 0, 0), State(1, 4000, True, 5, 7)]
    assert found.version is None


@pytest.mark.parametrize("text", ["", "Usage: nvme id-ctrl", "{}", "[" * 100_000, '{"vid": 1, "psds": [3]}'])
def test_what_is_no_id_ctrl(text):
    with pytest.raises(ValueError):
        nvme_id_ctrl.parse(text)


# -- SMART --------------------------------------------------------------------------------


def test_smart_log_from_the_drive():
    data = fake_nvme.smart(
        warning=0x11,
        kelvin=323,
        spare=9,
        threshold=10,
        used=255,
        written=1 << 70,
        unsafe=3682,
        media=7,
        warning_minutes=60,
        critical_minutes=2,
        transitions=(718, 2),
        seconds=(1476, 3),
    )
    log = nvme_log.decode(data)
    assert log.critical_warning == 0x11
    assert log.temperature_c == 50
    assert (log.available_spare, log.spare_threshold, log.percentage_used) == (9, 10, 255)
    assert log.data_units_written == 1 << 70  # counters have 128 bits
    assert (log.power_cycles, log.power_on_hours, log.unsafe_shutdowns) == (20, 1000, 3682)
    assert (log.media_errors, log.warning_temp_minutes, log.critical_temp_minutes) == (7, 60, 2)
    assert (log.thermal_transitions, log.thermal_seconds) == ([718, 2], [1476, 3])
    assert nvme_log.warnings(0x11) == [
        "available spare is below its threshold",
        "the backup of volatile memory has failed",
    ]
    assert nvme_log.warnings(0x80) == ["bit 7"]
    assert nvme_log.warnings(0) == []


def test_a_virtual_drive_measures_nothing():
    assert nvme_log.decode(fake_nvme.smart(kelvin=0)).temperature_c is None


NEW = """Smart Log for NVME device:nvme0n1 namespace-id:ffffffff
critical_warning                        : 0x4
temperature                             : 33 \u00b0C (306 K, 91 \u00b0F)
available_spare                         : 100%
available_spare_threshold               : 50%
percentage_used                         : 0%
endurance group critical warning summary: 0
Data Units Read                         : 462760 (236.93 GB)
Data Units Written                      : 580601 (297.27 GB)
host_read_commands                      : 1806550
power_cycles                            : 108
power_on_hours                          : 6
unsafe_shutdowns                        : 69
media_errors                            : 0
num_err_log_entries                     : 0
Warning Temperature Time                : 5
Critical Composite Temperature Time     : 0
Temperature Sensor 1                    : 44 \u00b0C (317 K, 111 \u00b0F)
Thermal Management T1 Trans Count       : 718
Thermal Management T2 Trans Count       : 2
Thermal Management T1 Total Time        : 1476
Thermal Management T2 Total Time        : 0
"""

OLD = """Smart Log for NVME device:nvme1 namespace-id:ffffffff
critical_warning\t\t\t: 0
temperature\t\t\t\t: 34 C
available_spare\t\t\t\t: 100%
available_spare_threshold\t\t: 10%
percentage_used\t\t\t\t: 3%
data_units_read\t\t\t\t: 201,526,305
data_units_written\t\t\t: 188.048.213
power_cycles\t\t\t\t: 1\u202f719
power_on_hours\t\t\t\t: 241
unsafe_shutdowns\t\t\t: 0
media_errors\t\t\t\t: 0
num_err_log_entries\t\t\t: 1
"""


def test_smart_log_text_of_new_releases():
    assert smart_log.device(NEW) == "nvme0n1"
    log = smart_log.parse(NEW)
    assert (log.critical_warning, log.temperature_c, log.spare_threshold) == (4, 33, 50)
    assert (log.data_units_read, log.data_units_written) == (462760, 580601)
    assert (log.power_cycles, log.power_on_hours, log.unsafe_shutdowns) == (108, 6, 69)
    assert (log.warning_temp_minutes, log.critical_temp_minutes) == (5, 0)
    assert (log.thermal_transitions, log.thermal_seconds) == ([718, 2], [1476, 0])


def test_smart_log_text_of_old_releases():
    log = smart_log.parse(OLD)
    assert (log.temperature_c, log.percentage_used) == (34, 3)
    assert (log.data_units_read, log.data_units_written, log.power_cycles) == (201526305, 188048213, 1719)
    assert log.error_log_entries == 1
    assert log.warning_temp_minutes is None
    assert log.thermal_transitions is None


@pytest.mark.parametrize("warning", [4, {"value": 4, "available_spare": 0}])
def test_smart_log_as_json(warning):
    said = {
        "critical_warning": warning,
        "temperature": 313,  # Kelvin
        "avail_spare": 100,
        "spare_thresh": 10,
        "percent_used": 7,
        "power_cycles": 20,
        "thm_temp1_trans_count": 1,
        "thm_temp2_trans_count": 0,
    }
    log = smart_log.parse(json.dumps(said))
    assert (log.critical_warning, log.temperature_c, log.percentage_used) == (4, 40, 7)
    assert (log.spare_threshold, log.power_cycles, log.thermal_transitions) == (10, 20, [1, 0])


@pytest.mark.parametrize("text", ["", "nvme: not found", "[1]", "{}", "{" * 5000])
def test_what_is_no_smart_log(text):
    with pytest.raises(ValueError):
        smart_log.parse(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("100%", 100),
        ("0x1F", 31),
        ("201,526,305", 201526305),
        ("12,34,567", 1234567),  # as in India
        ("1\u00a0234 [630 MB]", 1234),
        ("1 234 567", 1234567),
        ("1'234", 1234),
        ("19,683,018 [10.0 TB]", 19683018),
        ("5 of 7", 5),
        ("1.5", None),
        ("1,2", None),
        ("-", None),
        ("", None),
        (17, 17),
        (-3, None),
        (True, 1),
        (None, None),
        ([1], None),
        ("9" * 200, None),
    ],
)
def test_counters(text, value):
    assert counter(text) == value


@pytest.mark.parametrize(
    ("text", "celsius"),
    [
        ("42 C (315 Kelvin)", 42),
        ("34 C", 34),
        ("108 \u00b0F (315 K)", 42),
        ("108 \u00b0F", 42),
        ("30 Celsius", 30),
        ("-5 C", -5),
        ("-273 C", None),
        ("-273 C (0 Kelvin)", None),
        ("-", None),
    ],
)
def test_degrees(text, celsius):
    assert degrees(text) == celsius


# -- features and statuses ----------------------------------------------------------------


def test_table_of_transitions():
    table = fake_nvme.apst((0, 3, 100), (1, 3, 100), (3, 4, 2000))
    assert nvme_log.decode_transitions(table) == [(0, 3, 100), (1, 3, 100), (3, 4, 2000)]
    assert nvme_log.decode_transitions(struct.pack("<32Q", *(3 << 3 for _ in range(32)))) == []
    with pytest.raises(ValueError):
        nvme_log.decode_transitions(bytes(255))


def test_thermal_management_is_in_kelvin():
    assert nvme_log.decode_thermal_management(353 << 16 | 363) == [80, 90]
    assert nvme_log.decode_thermal_management(0) == [0, 0]


def test_statuses_have_names():
    assert nvme_log.status_name(0x4006) == "NVMe status 0x006, Internal Error"  # with Do Not Retry
    assert nvme_log.status_name(0x1C0) == "NVMe status 0x1c0"


# -- smartctl -----------------------------------------------------------------------------

SMARTCTL = """smartctl 7.4 2023-08-01 r5530 [x86_64-linux-6.1.0] (local build)

=== START OF INFORMATION SECTION ===
Model Number:                       Some Drive 1TB
Serial Number:                      S4EVNX0R123456
Firmware Version:                   2B2QEXM7
NVMe Version:                       1.3
Warning  Comp. Temp. Threshold:     85 Celsius
Critical Comp. Temp. Threshold:     87 Celsius

Supported Power States
St Op     Max   Active     Idle   RL RT WL WT  Ent_Lat  Ex_Lat
 0 +     7.80W       -        -    0  0  0  0        0       0
 3 -   0.0490W       -        -    3  3  3  3      210    1200
 4 -         -       -        -    4  4  4  4     2000    8000

=== START OF SMART DATA SECTION ===
SMART overall-health self-assessment test result: PASSED

SMART/Health Information (NVMe Log 0x02)
Critical Warning:                   0x00
Temperature:                        30 Celsius
Available Spare:                    100%
Available Spare Threshold:          10%
Percentage Used:                    1%
Data Units Read:                    19,683,018 [10.0 TB]
Data Units Written:                 64,768,925 [33.1 TB]
Power Cycles:                       3,693
Power On Hours:                     6,726
Unsafe Shutdowns:                   3,682
Media and Data Integrity Errors:    0
Error Information Log Entries:      4,804
Warning  Comp. Temperature Time:    12
Critical Comp. Temperature Time:    1
Thermal Temp. 1 Transition Count:   7
Thermal Temp. 1 Total Time:         250
"""


def test_smartctl_text():
    report = smartctl.parse(SMARTCTL)
    assert report.controller.serial == "S4EVNX0R123456"
    assert (report.controller.warning_temp_c, report.controller.critical_temp_c) == (85, 87)
    assert report.controller.states == [
        State(0, 7800, False, 0, 0),
        State(3, 49, True, 210, 1200),
        State(4, None, True, 2000, 8000),
    ]
    log = report.smart
    assert (log.temperature_c, log.power_cycles, log.unsafe_shutdowns) == (30, 3693, 3682)
    assert (log.warning_temp_minutes, log.critical_temp_minutes) == (12, 1)
    # lines that are zero are left out
    assert (log.thermal_transitions, log.thermal_seconds) == ([7, 0], [250, 0])
    assert report.failed is None


def test_smartctl_of_another_kind_of_disk():
    with pytest.raises(ValueError):
        smartctl.parse("smartctl 7.4\nDevice Model: SOMETHING\nSerial Number: 1\nPower_On_Hours 9 0x32\n")


@pytest.mark.parametrize(
    "complaint",
    [
        "Read NVMe SMART/Health Information failed: NVMe Status 0x06",
        "Read NVMe SMART/Health Information (NVMe Log 0x02) failed: GetLogPage failed: NVMe Status 0x06",
        "Read NVMe SMART/Health Information failed: NVME_IOCTL_ADMIN_CMD: Internal Error (0x006)",
    ],
)
def test_smartctl_that_could_not_read_the_log(complaint):
    assert smartctl.parse(f"NVMe Version: 1.3\n{complaint}\n").failed == 6
    said = {
        "smartctl": {"messages": [{"string": complaint, "severity": "error"}]},
        "device": {"protocol": "NVMe", "name": "/dev/nvme7"},
    }
    report = smartctl_json.parse(json.dumps(said))
    assert (report.failed, report.device) == (6, "/dev/nvme7")


def test_smartctl_json():
    said = {
        "device": {"name": "/dev/nvme3", "protocol": "NVMe"},
        "model_name": "Some Drive",
        "firmware_version": "1",
        "nvme_version": {"string": "1.4"},
        "nvme_composite_temperature_threshold": {"warning": 77, "critical": 80},
        "nvme_smart_health_information_log": {
            "critical_warning": 16,
            "temperature": 40,
            "available_spare": 100,
            "available_spare_threshold": 10,
            "power_on_hours": 18376,
            "num_err_log_entries": 0,
        },
    }
    report = smartctl_json.parse(json.dumps(said))
    assert report.device == "/dev/nvme3"
    assert (report.controller.model, report.controller.warning_temp_c) == ("Some Drive", 77)
    assert (report.smart.critical_warning, report.smart.temperature_c) == (16, 40)
    assert report.smart.unsafe_shutdowns is None


@pytest.mark.parametrize("text", ["", "[]", "3", '{"device": {"protocol": "ATA"}}', "[" * 100_000])
def test_what_is_no_smartctl_json_of_nvme(text):
    with pytest.raises(ValueError):
        smartctl_json.parse(text)


# -- anything at all ----------------------------------------------------------------------


@given(st.binary(min_size=3072, max_size=4096))
def test_any_bytes_decode_as_identify(data):
    try:
        found = nvme_identify.decode(data)
    except ValueError:
        return
    assert found.states and len(found.states) <= 32
    assert found.warning_temp_c is not None and -273 <= found.warning_temp_c <= 65535 - 273


@given(st.binary(min_size=512, max_size=512))
def test_any_bytes_decode_as_smart_log(data):
    log = nvme_log.decode(data)
    assert log.critical_warning == data[0]
    assert log.unsafe_shutdowns == int.from_bytes(data[144:160], "little")


@given(st.binary(min_size=256, max_size=256))
def test_any_bytes_decode_as_transitions(data):
    assert all(target < 32 and 0 < idle < 1 << 24 for _, target, idle in nvme_log.decode_transitions(data))


LINES = st.lists(
    st.one_of(
        st.text(max_size=60),
        st.sampled_from([*NEW.splitlines(), *SMARTCTL.splitlines(), *ID_CTRL.splitlines()]),
        st.builds(
            "{} : {}".format,
            st.sampled_from(["temperature", "critical_warning", "power_cycles", "vid", "ps      0"]),
            st.text(max_size=30),
        ),
    ),
    max_size=30,
)


@given(LINES)
def test_parsers_raise_nothing_but_value_errors(lines):
    for parse in (nvme_id_ctrl.parse, smart_log.parse, smartctl.parse, smartctl_json.parse):
        try:
            parse("\n".join(lines))
        except ValueError:
            continue


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["device", "protocol", "nvme_smart_health_information_log", "temperature", "critical_warning",
                 "vid", "psds", "flags", "smartctl", "messages", "string", "wctemp", "nvme_version"]
            ),
            children,
            max_size=5,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(JSON)
def test_json_parsers_raise_nothing_but_value_errors(said):
    for parse in (nvme_id_ctrl.parse, smart_log.parse, smartctl_json.parse):
        try:
            parse(json.dumps(said))
        except ValueError:
            continue
