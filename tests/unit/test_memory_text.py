"""Parsers of meminfo, vmstat, swaps, pressure, brackets, huge page arguments and memory errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.text import clock_log, edac_util, hugepages, memory_errors, numactl
from hwtune.text.meminfo import parse_counters, parse_meminfo, parse_pressure, parse_swaps, selected


def test_meminfo_is_in_bytes_but_counts_are_counts() -> None:
    text = "MemTotal:       16384 kB\nHugePages_Total:       7\nActive(anon):      2 kB\nnonsense\n"
    assert parse_meminfo(text) == {"MemTotal": 16384 * 1024, "HugePages_Total": 7, "Active(anon)": 2048}


def test_a_nodes_meminfo_has_the_node_before_each_name() -> None:
    assert parse_meminfo("Node 12 MemTotal:       8 kB\nNode 12 HugePages_Free:     3\n") == {
        "MemTotal": 8192,
        "HugePages_Free": 3,
    }


def test_swaps_has_a_heading_escapes_and_negative_priorities() -> None:
    text = (
        "Filename\t\t\t\tType\t\tSize\tUsed\tPriority\n"
        "/mnt/a\\040file                         file            2048    4       -3\n"
        "/dev/zram0                              partition       1024    0       100\n"
    )
    first, second = parse_swaps(text)
    assert first == ("/mnt/a file", "file", 2048 * 1024, 4096, -3)
    assert (second.path, second.used_bytes, second.priority) == ("/dev/zram0", 0, 100)
    assert parse_swaps("Filename  Type  Size  Used  Priority") == []


def test_pressure_of_the_cpu_of_old_kernels_has_no_line_for_full() -> None:
    assert parse_pressure("some avg10=0.25 avg60=1.00 avg300=2.50 total=77") == {
        "some_avg10": 0.25,
        "some_avg60": 1.0,
        "some_avg300": 2.5,
        "some_total": 77.0,
    }


def test_what_stands_in_brackets_is_chosen() -> None:
    assert selected("always [madvise] never") == "madvise"
    assert selected("always defer [defer+madvise] madvise never") == "defer+madvise"


@pytest.mark.parametrize("parse", [parse_meminfo, parse_counters, parse_swaps, parse_pressure, selected])
@given(text=st.text())
def test_parsers_refuse_with_a_value_error_and_nothing_else(parse, text: str) -> None:  # type: ignore[no-untyped-def]
    try:
        parse(text)
    except ValueError:
        return


# -- huge pages ------------------------------------------------------------------------------


def _requests(cmdline: str) -> list[tuple[int | None, int, dict[int, int]]]:
    arguments = [word.partition("=") for word in cmdline.split()]
    found = hugepages.requests((name, value if sign else None) for name, sign, value in arguments)
    return [(request.size_kb, request.pages, request.nodes) for request in found]


@pytest.mark.parametrize(
    ("cmdline", "expected"),
    [
        ("hugepages=512", [(None, 512, {})]),
        ("hugepagesz=1G hugepages=16", [(1 << 20, 16, {})]),
        ("default_hugepagesz=1G hugepages=4", [(1 << 20, 4, {})]),
        (
            "hugepages=9 hugepagesz=2M hugepages=0 hugepagesz=1G hugepages=2",
            [(None, 9, {}), (2048, 0, {}), (1 << 20, 2, {})],
        ),
        ("hugepagesz=2M hugepages=0:512,1:256", [(2048, 768, {0: 512, 1: 256})]),
        ("hugepagesz=2M hugepages=1 hugepages=3", [(2048, 3, {})]),  # the last one is in force
        ("hugepagesz=tiny hugepages=5", []),
        ("hugepages=lots", []),
        ("hugepages", []),
        ("default_hugepagesz=1G", []),
    ],
)
def test_hugepages_belong_to_the_size_before_them(cmdline: str, expected: object) -> None:
    assert _requests(cmdline) == expected


@pytest.mark.parametrize(("text", "kib"), [("2M", 2048), ("1G", 1 << 20), ("64k", 64), ("16777216", 16384)])
def test_sizes_have_the_kernels_suffixes(text: str, kib: int) -> None:
    assert hugepages.parse_size_kb(text) == kib


# -- memory errors ---------------------------------------------------------------------------

UE = (
    "EDAC MC3: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#2_DIMM#0 (channel:2 slot:0 page:0x1234 "
    "offset:0x140 grain:32 -  OVERFLOW err_code:0101:0092 socket:1 imc:1 rank:0)"
)
CE = "EDAC MC0: 2 CE on mc#0csrow#1channel#0 (csrow:1 channel:0 page:0xab offset:0x0 grain:8 syndrome:0x0)"


def test_edac_lines_tell_controller_count_place_and_page() -> None:
    ue, ce = memory_errors.find([UE, "something else", CE])
    assert (ue.line, ue.corrected, ue.errors, ue.controller) == (0, False, 1, "MC3")
    assert (ue.where, ue.what, ue.page, ue.overflow) == (
        "CPU_SrcID#1_MC#1_Chan#2_DIMM#0",
        "memory read error",
        "0x1234",
        True,
    )
    assert (ce.line, ce.corrected, ce.errors, ce.where, ce.page, ce.overflow) == (
        2,
        True,
        2,
        "mc#0csrow#1channel#0",
        "0xab",
        False,
    )


def test_firmware_reports_count_only_their_memory_sections() -> None:
    log = [
        "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 1",
        "{1}[Hardware Error]: event severity: recoverable",
        "{2}[Hardware Error]: event severity: corrected",
        "{1}[Hardware Error]:  Error 0, type: recoverable",
        "{1}[Hardware Error]:   section_type: PCIe error",
        "{2}[Hardware Error]:  Error 0, type: corrected",
        "{2}[Hardware Error]:   section_type: memory error",
    ]
    (fault,) = memory_errors.find(log)
    assert (fault.line, fault.corrected, fault.errors) == (6, True, 1)


def test_one_fault_told_twice_is_one() -> None:
    """The machine check, firmware and the driver that decodes it speak of the same event."""
    log = [
        "mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 11: 8c00004f000800c2",
        "{1}[Hardware Error]: event severity: corrected",
        "{1}[Hardware Error]:   section_type: memory error",
        CE,
        UE,
        "Memory failure: 0x1234: recovery action for dirty LRU page: Recovered",
    ]
    assert [(fault.corrected, fault.errors) for fault in memory_errors.find(log)] == [(True, 2), (False, 1)]


@pytest.mark.parametrize(
    ("status", "corrected"),
    [
        ("8c00004000010092", True),  # memory controller, read, channel 2
        ("be00000000010092", False),  # the same with UC (bit 61)
        ("9c20004000011092", True),  # with the filter bit (12)
        ("be00000000800400", None),  # an internal timer: no memory error
        ("8800004000880151", None),  # a cache
    ],
)
def test_raw_machine_checks_are_memory_errors_by_their_code(status: str, corrected: bool | None) -> None:
    found = memory_errors.find([f"mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 7: {status}"])
    assert [fault.corrected for fault in found] == ([] if corrected is None else [corrected])


def test_a_poisoned_page_is_one_however_many_processes_had_it() -> None:
    log = [
        "Memory failure: 0x99: Sending SIGBUS to app:12 due to hardware memory corruption",
        "Memory failure: 0x99: recovery action for clean LRU page: Recovered",
        "Memory failure: 0x77: unhandlable page.",
        "soft_offline: 0x55: page migrated",
    ]
    (fault,) = memory_errors.find(log)
    assert (fault.corrected, fault.page) == (False, "0x99")


@given(st.lists(st.text(max_size=200), max_size=20))
def test_any_log_can_be_searched(lines: list[str]) -> None:
    memory_errors.find(lines)
    clock_log.unstable(lines)
    clock_log.stalls(lines)


def test_edac_util_counts() -> None:
    text = (
        "mc0: 0 Uncorrected Errors with no DIMM info\n"
        "mc0: csrow0: 0 Uncorrected Errors\n"
        "mc0: csrow0: CPU_SrcID#0_Channel#0_DIMM#0: 3 Corrected Errors\n"
        "edac-util: No errors to report.\n"
    )
    assert edac_util.parse(text) == [
        ("mc0", "", False, 0),
        ("mc0", "csrow0", False, 0),
        ("mc0", "CPU_SrcID#0_Channel#0_DIMM#0", True, 3),
    ]
    with pytest.raises(ValueError):
        edac_util.parse("edac-util: Fatal: Unable to get EDAC data")


# -- clocks ----------------------------------------------------------------------------------


WATCHDOG = "clocksource: timekeeping watchdog"


@pytest.mark.parametrize(
    ("line", "cpu", "reason"),
    [
        (
            f"{WATCHDOG} on CPU17: Marking clocksource 'tsc' as unstable because the skew is too large:",
            17,
            "",
        ),
        (f"{WATCHDOG}: Marking clocksource 'tsc' as unstable, because the skew is too large:", None, ""),
        ("tsc: Marking TSC unstable due to clocksource watchdog", None, "clocksource watchdog"),
        ("Clocksource tsc unstable (delta = 2500000000 ns)", None, ""),
        ("Measured 312 cycles TSC warp between CPUs, turning off TSC clock.", None, ""),
        (
            f"{WATCHDOG} on CPU3: wd-tsc-wd excessive read-back delay of 500000ns vs. limit of 100000ns, "
            "wd-wd read-back delay only 900ns, attempt 3, marking tsc unstable",
            3,
            "",
        ),
    ],
)
def test_the_tsc_was_given_up(line: str, cpu: int | None, reason: str) -> None:
    assert clock_log.unstable(["something else", line]) == (1, cpu, reason)


def test_several_lines_are_one_story() -> None:
    log = [
        f"{WATCHDOG} on CPU5: Marking clocksource 'tsc' as unstable because the skew is too large:",
        "tsc: Marking TSC unstable due to clocksource watchdog",
    ]
    assert clock_log.unstable(log) == (0, 5, "clocksource watchdog")


@pytest.mark.parametrize(
    "line",
    [
        f"{WATCHDOG} on CPU2: Marking clocksource 'hpet' as unstable because the skew is too large:",
        'Unstable clock detected, switching default tracing clock to "global"',
        "clocksource: wd-tsc-wd read-back delay of 120000ns, clock-skew test skipped!",
        "tsc: Refined TSC clocksource calibration: 2095.076 MHz",
    ],
)
def test_other_words_of_clocks_are_no_word_against_the_tsc(line: str) -> None:
    assert clock_log.unstable([line]) is None


def test_timer_interrupts_that_took_too_long() -> None:
    assert clock_log.stalls(["a", "hrtimer: interrupt took 6663395 ns", "hrtimer: x"]) == [(1, 6663395)]


# -- numactl ---------------------------------------------------------------------------------

NUMACTL = """available: 3 nodes (0,8,255)
node 0 cpus: 0 1 2 3
4 5
node 0 size: 100 MB
node 0 free: 40 MB
node 8 cpus: 6 7
node 8 size: 0 MB
node 8 free: 0 MB
node 255 cpus:
node 255 size: 16 MB
node 255 free: 16 MB
node distances:
node   0   8 255
    0:  10  40  80
    8:  40  10  80
  255:  80  80  10
"""


def test_numactl_with_gaps_in_its_numbers_and_a_broken_line() -> None:
    first, second, third = numactl.parse_hardware(NUMACTL)
    assert (first.id, first.cpus, first.size_bytes, first.free_bytes) == (
        0,
        [0, 1, 2, 3, 4, 5],
        100 << 20,
        40 << 20,
    )
    assert (second.id, second.cpus, second.size_bytes) == (8, [6, 7], 0)
    assert (third.id, third.cpus, third.distances) == (255, [], {0: 80, 8: 80, 255: 10})


def test_numactl_that_was_cut_off_tells_what_it_still_has() -> None:
    (node,) = numactl.parse_hardware("available: 2 nodes (0-1)\nnode 0 cpus: 0 1")
    assert (node.cpus, node.size_bytes, node.distances) == ([0, 1], None, None)
    with pytest.raises(ValueError):
        numactl.parse_hardware("No NUMA available on this system")


@given(st.text(alphabet="node cpus:size0123456789 MB\n", max_size=300))
def test_numactl_takes_any_text(text: str) -> None:
    try:
        numactl.parse_hardware(text)
    except ValueError:
        return
