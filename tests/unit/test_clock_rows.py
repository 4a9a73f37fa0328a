"""Rows of the clock: source, TSC, synchronisation, timer stalls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hwtune.changes import KernelArguments, SysfsAttribute
from tests.support import Gap, host
from tests.support.rows import diagnose_one

if TYPE_CHECKING:
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult

FOLDER = "/sys/devices/system/clocksource/clocksource0"
CURRENT = f"{FOLDER}/current_clocksource"
UNSTABLE = (
    "[335323.734091] clocksource: timekeeping watchdog on CPU5: Marking clocksource 'tsc' as unstable "
    "because the skew is too large:\n"
    "[335323.808733] tsc: Marking TSC unstable due to clocksource watchdog\n"
)
BOOT = "[    0.000000] Linux version 6.1.0 (gcc)\n[    0.000001] Command line: quiet\n"


def _sources(current: str, available: str) -> dict[str, Any]:
    return {CURRENT: f"{current}\n", f"{FOLDER}/available_clocksource": f"{available} \n"}


def _cpu(*flags: str) -> dict[str, Any]:
    text = f"processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu {' '.join(flags)} lm\n\n"
    return {"/proc/cpuinfo": text + text.replace(": 0", ": 1").replace("nonstop_tsc", "")}


def _row(tmp_path: Path, id: str, files: dict[str, Any], log: str = "", **more: Any) -> RowResult:
    profile_settings = more.pop("settings", ())
    documents = {"dmesg.txt": log} if log else None
    return diagnose_one(host(tmp_path, files, documents=documents, **more), id, settings=profile_settings)


# -- clock.source ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "timebase"]
)
def test_counters_of_the_cpu_are_good(tmp_path: Path, name: str) -> None:
    assert _row(tmp_path, "clock.source", _sources(name, name)).outcome == "ok"


def test_hpet_while_the_tsc_is_there(tmp_path: Path) -> None:
    result = _row(tmp_path, "clock.source", _sources("hpet", "hpet tsc acpi_pm"))
    (finding,) = result.findings
    assert (result.severity, finding.subject) == ("error", "clock")
    assert finding.changes == [SysfsAttribute(CURRENT, "tsc")]
    assert (finding.evidence[0].value, finding.evidence[0].expected) == ("hpet", "tsc")


def test_a_clock_that_the_command_line_asks_for(tmp_path: Path) -> None:
    files = {**_sources("hpet", "hpet tsc"), "/proc/cmdline": "root=/dev/sda1 clocksource=hpet notsc\n"}
    (finding,) = _row(tmp_path, "clock.source", files).findings
    assert finding.changes == [
        SysfsAttribute(CURRENT, "tsc"),
        KernelArguments(remove=("clocksource", "notsc")),
    ]


def test_an_unstable_tsc_is_not_proposed(tmp_path: Path) -> None:
    (finding,) = _row(tmp_path, "clock.source", _sources("hpet", "hpet tsc acpi_pm"), UNSTABLE).findings
    assert finding.changes == [] and "reboot" in finding.advice
    assert "TSC on CPU 5 at 335323 s (clocksource watchdog)" in finding.message


def test_a_source_that_is_neither_good_nor_slow(tmp_path: Path) -> None:
    result = _row(tmp_path, "clock.source", _sources("xen", "xen tsc"))
    assert (result.severity, result.findings[0].changes) == ("warning", [SysfsAttribute(CURRENT, "tsc")])
    accepted = _row(tmp_path, "clock.source", _sources("xen", "xen tsc"), settings=["clock.sources=xen,tsc"])
    assert accepted.outcome == "ok"


def test_boards_with_hpet_are_to_have_a_tsc(tmp_path: Path) -> None:
    (finding,) = _row(tmp_path / "a", "clock.source", _sources("acpi_pm", "acpi_pm")).findings
    assert finding.evidence[0].expected == "tsc"
    (finding,) = _row(tmp_path / "b", "clock.source", _sources("jiffies", "jiffies")).findings
    assert "arch_sys_counter" in finding.evidence[0].expected
    assert "moves with the tick alone" in finding.message


def test_a_source_not_told(tmp_path: Path) -> None:
    assert _row(tmp_path, "clock.source", {"/proc/version": "x"}).outcome == "unknown"
    assert _row(tmp_path, "clock.source", {"/proc/version": "x"}, complete=True).outcome == "not-applicable"


# -- clock.tsc -------------------------------------------------------------------------------


def test_a_tsc_that_is_the_clock_was_not_given_up(tmp_path: Path) -> None:
    files = {**_cpu("tsc", "constant_tsc", "nonstop_tsc"), **_sources("tsc", "tsc hpet")}
    assert _row(tmp_path, "clock.tsc", files).outcome == "ok"


def test_a_tsc_that_is_not_the_clock_needs_the_whole_log(tmp_path: Path) -> None:
    files = {**_cpu("tsc", "constant_tsc", "nonstop_tsc"), **_sources("kvm-clock", "kvm-clock tsc")}
    assert _row(tmp_path, "clock.tsc", files).outcome == "unknown"
    assert _row(tmp_path, "clock.tsc", files, "[  900.0] usb 1-1: new device\n").outcome == "unknown"
    assert _row(tmp_path, "clock.tsc", files, BOOT).outcome == "ok"


def test_a_tsc_that_was_given_up(tmp_path: Path) -> None:
    result = _row(tmp_path, "clock.tsc", _sources("hpet", "hpet acpi_pm"), UNSTABLE)
    assert result.severity == "error"
    assert result.findings[0].message.startswith("The kernel gave up the TSC on CPU 5 at 335323 s")


def test_a_tsc_that_may_stop(tmp_path: Path) -> None:
    files = {
        **_cpu("tsc", "constant_tsc"),
        "/sys/class/dmi/id/sys_vendor": "Dell Inc.",
        "/sys/class/dmi/id/product_name": "R740",
    }
    result = _row(tmp_path, "clock.tsc", files, complete=True)
    assert (result.outcome, result.severity) == ("finding", "warning")
    assert "lacks nonstop_tsc" in result.findings[0].message
    guest = _row(tmp_path, "clock.tsc", _cpu("tsc", "constant_tsc", "hypervisor"), complete=True)
    assert guest.outcome == "not-applicable"


def test_a_cpu_without_tsc_and_one_not_told(tmp_path: Path) -> None:
    arm = {"/proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n"}
    assert _row(tmp_path, "clock.tsc", arm).outcome == "not-applicable"
    assert _row(tmp_path, "clock.tsc", {"/proc/version": "x"}).outcome == "unknown"
    for damaged in (b"0-3,8-11\n", bytes(range(256)), b": \n\n"):
        assert _row(tmp_path, "clock.tsc", {"/proc/cpuinfo": damaged}).outcome == "unknown"


# -- clock.sync ------------------------------------------------------------------------------


def _kept(synchronized: bool, bound: int = 16_000_000) -> dict[Any, Any]:
    answer = {"synchronized": synchronized, "estimated_error_us": min(bound, 40), "max_error_us": bound}
    return {("adjtimex",): answer}


def test_a_clock_that_is_kept(tmp_path: Path) -> None:
    files = {"/run/chrony/chronyd.pid": "412\n", "/proc/412/comm": "chronyd\n"}
    result = _row(tmp_path, "clock.sync", files, libraries=_kept(True, 900))
    assert (result.outcome, result.reason) == ("ok", "chronyd runs")


def test_a_clock_that_nobody_keeps(tmp_path: Path) -> None:
    stale = {"/run/chrony/chronyd.pid": "412\n", "/proc/412/comm": "bash\n"}
    result = _row(tmp_path, "clock.sync", stale, libraries=_kept(False))
    assert (result.outcome, result.severity) == ("finding", "warning")
    assert result.findings[0].message == "No daemon vouches for the clock: it is unsynchronised."
    accepted = _row(
        tmp_path, "clock.sync", stale, libraries=_kept(False), settings=["clock.synchronized=false"]
    )
    assert accepted.outcome == "ok"


def test_chronyd_without_rtcsync_leaves_the_flag(tmp_path: Path) -> None:
    result = _row(tmp_path, "clock.sync", {"/proc/version": "x"}, libraries=_kept(False, 17_288))
    assert result.outcome == "unknown"
    assert "rtcsync" in result.unknowns[0].remedy


def test_two_daemons_fight(tmp_path: Path) -> None:
    files = {
        "/run/chrony/chronyd.pid": "412",
        "/proc/412/comm": "chronyd",
        "/run/ntpd.pid": "500",
        "/proc/500/comm": "ntpd",
    }
    (finding,) = _row(tmp_path, "clock.sync", files, libraries=_kept(True, 900)).findings
    assert finding.message.startswith("chronyd and ntpd steer the clock")


@pytest.mark.parametrize(("status", "outcome"), [("Normal", "ok"), ("Not synchronised", "finding")])
def test_chronyc_that_somebody_pasted(tmp_path: Path, status: str, outcome: str) -> None:
    text = f"Reference ID    : C0000201 (ntp1)\nStratum         : 3\nLeap status     : {status}\n"
    result = diagnose_one(host(tmp_path, {}, documents={"chrony.txt": text}), "clock.sync")
    assert result.outcome == outcome


def test_a_clock_not_told(tmp_path: Path) -> None:
    assert _row(tmp_path, "clock.sync", {"/proc/version": "x"}).outcome == "unknown"
    denied = _row(tmp_path, "clock.sync", {"/proc/version": "x"}, libraries={("adjtimex",): Gap("denied")})
    assert denied.outcome == "unknown"
    nonsense = _row(tmp_path, "clock.sync", {"/proc/version": "x"}, libraries={("adjtimex",): [1, 2]})
    assert nonsense.outcome == "unknown"
    absent = _row(tmp_path, "clock.sync", {"/proc/version": "x"}, libraries={("adjtimex",): Gap("absent")})
    assert absent.outcome == "not-applicable"


def test_this_kernel_answers_adjtimex() -> None:
    from hwtune.host.live import LiveHost

    answer = LiveHost().ask("adjtimex")
    if not answer.known:
        pytest.skip(answer.why())
    assert set(answer.get()) == {"synchronized", "estimated_error_us", "max_error_us"}
    assert 0 <= answer.get()["max_error_us"] <= 16_000_000


# -- clock.timer-stall -----------------------------------------------------------------------


def test_a_timer_interrupt_that_took_too_long(tmp_path: Path) -> None:
    result = _row(tmp_path, "clock.timer-stall", {}, "[335538.326632] hrtimer: interrupt took 6663395 ns\n")
    assert (result.outcome, result.severity) == ("finding", "warning")
    assert "6.7 ms at 335538 s" in result.findings[0].message


def test_a_short_one_is_good_and_a_part_of_a_log_says_nothing(tmp_path: Path) -> None:
    assert (
        _row(tmp_path, "clock.timer-stall", {}, "[    1.0] hrtimer: interrupt took 15451 ns\n").outcome
        == "ok"
    )
    assert _row(tmp_path, "clock.timer-stall", {}, BOOT).outcome == "ok"
    assert _row(tmp_path, "clock.timer-stall", {}, "[  900.0] usb 1-1: new device\n").outcome == "unknown"
    assert _row(tmp_path, "clock.timer-stall", {"/proc/version": "x"}).outcome == "unknown"
    without = _row(
        tmp_path, "clock.timer-stall", {"/proc/version": "x"}, libraries={("kmsg",): Gap("absent")}
    )
    assert without.outcome == "not-applicable"
