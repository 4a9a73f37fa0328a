"""Rows of CPUs, each on machines made of files: ok, finding, not applicable, unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hwtune.changes import CpuLatencyRequest, KernelArguments, SysfsAttribute
from hwtune.remediations._common import HOST_ONLY
from tests.support import Gap, host
from tests.support.cpus import CMDLINE, CPU, cpuinfo, frequency, healthy, idle, throttle, topology
from tests.support.rows import diagnose, diagnose_one

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hwtune.diagnosis.engine import RowResult
    from hwtune.diagnosis.verdict import Finding

NO_REQUEST = 2_000_000_000
ROWS = (
    "cpu.governor", "cpu.frequency-limits", "cpu.turbo", "cpu.energy-preference", "cpu.energy-bias",
    "cpu.driver-mode", "cpu.idle-states", "cpu.idle-poll", "cpu.latency-outliers", "cpu.throttled",
    "cpu.prochot", "cpu.offline", "cpu.microcode-mitigations", "cpu.hybrid-mix",
)  # fmt: skip
GUEST = {"/sys/hypervisor/type": "xen\n", "/sys/class/dmi/id/sys_vendor": "QEMU\n"}
CONTAINER = {"/run/systemd/container": "docker\n"}


def row(
    tmp_path: Path,
    id: str,
    files: dict[str, Any],
    settings: Sequence[str] = (),
    request: int | Gap = NO_REQUEST,
    without: Sequence[str] = (),
    profile: str = "low-latency",
    **more: Any,
) -> RowResult:
    kept = {path: text for path, text in files.items() if not path.startswith(tuple(without) or ("\0",))}
    libraries = {("cpu_latency",): request}
    return diagnose_one(host(tmp_path, kept, libraries=libraries, **more), id, profile, settings)


def only(result: RowResult) -> Finding:
    assert result.outcome == "finding", result
    (finding,) = result.findings
    return finding


def test_a_healthy_box_has_no_finding(tmp_path: Path) -> None:
    results = diagnose(host(tmp_path, healthy(), complete=True), *ROWS)
    outcomes = {id: result.outcome for id, result in results.items()}
    assert "finding" not in outcomes.values() and "unknown" not in outcomes.values(), outcomes


@pytest.mark.parametrize("id", ROWS)
def test_an_empty_capture_is_unknown_or_says_why_not(tmp_path: Path, id: str) -> None:
    result = diagnose_one(host(tmp_path, {"/proc/version": "Linux version 6.1\n"}), id)
    assert result.outcome in ("unknown", "not-applicable")
    assert result.reason


# -- cpu.governor ----------------------------------------------------------------------------


def test_governor(tmp_path: Path) -> None:
    good = row(tmp_path / "1", "cpu.governor", healthy())
    assert good.outcome == "ok"
    assert good.evidence[0].source == f"{CPU}/cpufreq/policy0/scaling_governor"

    files = {**healthy(), **frequency("acpi-cpufreq", scaling_governor="ondemand")}
    finding = only(row(tmp_path / "2", "cpu.governor", files))
    assert (finding.subject, finding.severity) == ("cpu:0-7", "warning")
    assert (finding.evidence[0].value, finding.evidence[0].expected) == ("ondemand", "performance")
    assert finding.changes[3] == SysfsAttribute(f"{CPU}/cpufreq/policy3/scaling_governor", "performance")
    assert len(finding.changes) == 8


def test_a_governor_that_is_not_on_offer_is_never_recommended(tmp_path: Path) -> None:
    files = {
        **healthy(),
        **frequency(scaling_governor="schedutil", scaling_available_governors="schedutil userspace"),
    }
    finding = only(row(tmp_path, "cpu.governor", files))
    assert finding.changes == []
    assert finding.advice.startswith("Load the module cpufreq_performance")


def test_governors_by_policy(tmp_path: Path) -> None:
    files = {**healthy(), f"{CPU}/cpufreq/policy2/scaling_governor": "powersave\n"}
    finding = only(row(tmp_path, "cpu.governor", files))
    assert (finding.subject, len(finding.changes)) == ("cpu:2", 1)


def test_governor_without_cpufreq(tmp_path: Path) -> None:
    result = row(tmp_path / "1", "cpu.governor", healthy(), without=[f"{CPU}/cpufreq"], complete=True)
    assert (result.outcome, result.reason) == (
        "not-applicable", "no cpufreq driver runs here: firmware or the hypervisor sets the clock",
    )  # fmt: skip
    result = row(tmp_path / "2", "cpu.governor", healthy(), without=[f"{CPU}/cpufreq"])
    assert result.outcome == "unknown"


def test_governor_of_which_nothing_is_known(tmp_path: Path) -> None:
    files = {**healthy(), **{f"{CPU}/cpufreq/policy{n}/scaling_governor": Gap("denied") for n in range(8)}}
    result = row(tmp_path, "cpu.governor", files)
    assert result.outcome == "unknown"
    (unknown,) = result.unknowns  # one note for all eight
    assert (unknown.subject, unknown.remedy) == ("cpu:0-7", "run as root")


def test_a_container_cannot_set_a_governor(tmp_path: Path) -> None:
    files = {**healthy(), **frequency(scaling_governor="powersave"), **CONTAINER}
    finding = only(row(tmp_path, "cpu.governor", files))
    assert (finding.changes, finding.advice) == ([], HOST_ONLY)


def test_a_training_profile_takes_what_the_driver_likes(tmp_path: Path) -> None:
    files = {**healthy(), **frequency(scaling_governor="powersave")}
    assert row(tmp_path, "cpu.governor", files, profile="gpu-training").outcome == "ok"


# -- cpu.frequency-limits --------------------------------------------------------------------


def test_frequency_limits(tmp_path: Path) -> None:
    assert row(tmp_path / "1", "cpu.frequency-limits", healthy()).outcome == "ok"
    finding = only(
        row(tmp_path / "2", "cpu.frequency-limits", {**healthy(), **frequency(scaling_max_freq="2100000")})
    )
    assert finding.message == "The clock is capped at 2.1 GHz of 3.9 GHz."
    assert finding.changes[0] == SysfsAttribute(f"{CPU}/cpufreq/policy0/scaling_max_freq", "3900000")


def test_boost_above_the_table_of_acpi_cpufreq_is_no_cap(tmp_path: Path) -> None:
    # the driver tells the boost clock as cpuinfo_max_freq; scaling_max_freq ends at the table's highest
    table = {"scaling_available_frequencies": "2250000 1800000 1500000", "cpuinfo_max_freq": "3400000"}
    files = {**healthy(), **frequency("acpi-cpufreq", scaling_max_freq="2250000", **table)}
    assert row(tmp_path / "1", "cpu.frequency-limits", files).outcome == "ok"
    files = {**healthy(), **frequency("acpi-cpufreq", scaling_max_freq="1800000", **table)}
    finding = only(row(tmp_path / "2", "cpu.frequency-limits", files))
    assert finding.message == "The clock is capped at 1.8 GHz of 2.25 GHz."


def test_a_cap_at_the_base_clock_is_no_cap_without_turbo(tmp_path: Path) -> None:
    files = {**healthy(), **frequency(scaling_max_freq="2100000", base_frequency="2100000")}
    assert row(tmp_path / "1", "cpu.frequency-limits", files).outcome == "finding"
    files[f"{CPU}/intel_pstate/no_turbo"] = "1\n"
    assert row(tmp_path / "2", "cpu.frequency-limits", files).outcome == "ok"


def test_the_firmware_s_limit(tmp_path: Path) -> None:
    files = {**healthy(), **frequency("acpi-cpufreq", bios_limit="1200000")}
    finding = only(row(tmp_path, "cpu.frequency-limits", files))
    assert (finding.message, finding.changes) == ("The firmware allows 1.2 GHz of 3.9 GHz.", [])


def test_a_floor_that_the_profile_asks_for(tmp_path: Path) -> None:
    floor = ["cpu.min_frequency_pct=50", "cpu.governor=powersave"]
    files = {**healthy(), **frequency(scaling_governor="powersave")}
    finding = only(row(tmp_path / "1", "cpu.frequency-limits", files, settings=floor))
    assert finding.changes[0] == SysfsAttribute(f"{CPU}/cpufreq/policy0/scaling_min_freq", "1950000")
    # under the governor performance the floor has no say
    assert row(tmp_path / "2", "cpu.frequency-limits", healthy(), settings=floor).outcome == "ok"


def test_limits_of_intel_pstate(tmp_path: Path) -> None:
    files = {
        **healthy(),
        f"{CPU}/intel_pstate/max_perf_pct": "60\n",
        f"{CPU}/intel_pstate/min_perf_pct": "20\n",
    }
    finding = only(row(tmp_path / "1", "cpu.frequency-limits", files))
    assert finding.changes == [SysfsAttribute(f"{CPU}/intel_pstate/max_perf_pct", "100")]
    result = row(tmp_path / "2", "cpu.frequency-limits", files, settings=["cpu.min_frequency_pct=100"])
    assert [f.changes for f in result.findings] == [
        [SysfsAttribute(f"{CPU}/intel_pstate/max_perf_pct", "100")],
        [SysfsAttribute(f"{CPU}/intel_pstate/min_perf_pct", "100")],
    ]


def test_limits_that_were_not_captured(tmp_path: Path) -> None:
    files = healthy()
    for cpu in range(8):
        del files[f"{CPU}/cpufreq/policy{cpu}/cpuinfo_max_freq"]
    result = row(tmp_path, "cpu.frequency-limits", files)
    assert (result.outcome, len(result.unknowns)) == ("unknown", 1)


# -- cpu.turbo -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "wanted", "outcome"),
    [
        ("0", "any", "ok"), ("1", "any", "ok"), ("0", "on", "ok"), ("1", "off", "ok"),
        ("1", "on", "finding"), ("0", "off", "finding"),
    ],
)  # fmt: skip
def test_turbo(tmp_path: Path, content: str, wanted: str, outcome: str) -> None:
    files = {**healthy(), f"{CPU}/intel_pstate/no_turbo": f"{content}\n"}
    result = row(tmp_path, "cpu.turbo", files, settings=[f"cpu.turbo={wanted}"])
    assert result.outcome == outcome
    if outcome == "finding":
        # no_turbo is the inverse of what is wanted
        assert only(result).changes == [
            SysfsAttribute(f"{CPU}/intel_pstate/no_turbo", "0" if wanted == "on" else "1")
        ]


def test_boost_is_no_inverse(tmp_path: Path) -> None:
    files = {**healthy(), f"{CPU}/cpufreq/boost": "0\n"}
    finding = only(row(tmp_path, "cpu.turbo", files, settings=["cpu.turbo=on"]))
    assert finding.changes == [SysfsAttribute(f"{CPU}/cpufreq/boost", "1")]


def test_turbo_without_a_switch(tmp_path: Path) -> None:
    wanted = ["cpu.turbo=on"]
    assert (
        row(tmp_path / "1", "cpu.turbo", healthy(), settings=wanted, complete=True).outcome
        == "not-applicable"
    )
    assert row(tmp_path / "2", "cpu.turbo", healthy(), settings=wanted).outcome == "unknown"


# -- cpu.energy-preference, cpu.energy-bias, cpu.driver-mode ---------------------------------


EPP = {"energy_performance_available_preferences": "default performance balance_performance power"}


def test_energy_preference(tmp_path: Path) -> None:
    wanted = ["cpu.governor=powersave"]
    files = {
        **healthy(),
        **frequency(scaling_governor="powersave", energy_performance_preference="performance", **EPP),
    }
    assert row(tmp_path / "1", "cpu.energy-preference", files, settings=wanted).outcome == "ok"
    files |= frequency(
        scaling_governor="powersave", energy_performance_preference="balance_performance", **EPP
    )
    finding = only(row(tmp_path / "2", "cpu.energy-preference", files, settings=wanted))
    assert finding.severity == "warning"
    assert finding.changes[0] == SysfsAttribute(
        f"{CPU}/cpufreq/policy0/energy_performance_preference", "performance"
    )


def test_a_preference_that_the_governor_will_force_is_not_written(tmp_path: Path) -> None:
    # a write would end in EBUSY once the governor is performance
    files = {
        **healthy(),
        **frequency(scaling_governor="powersave", energy_performance_preference="128", **EPP),
    }
    finding = only(row(tmp_path, "cpu.energy-preference", files))
    assert (finding.severity, finding.changes) == ("info", [])
    assert "cpu.governor" in finding.advice


def test_energy_preference_under_the_governor_performance(tmp_path: Path) -> None:
    files = {**healthy(), **frequency(energy_performance_preference="balance_power", **EPP)}
    assert row(tmp_path, "cpu.energy-preference", files).outcome == "ok"


def test_energy_preference_where_there_is_none(tmp_path: Path) -> None:
    files = {**healthy(), **frequency("acpi-cpufreq", scaling_governor="ondemand")}
    assert row(tmp_path / "1", "cpu.energy-preference", files).outcome == "not-applicable"
    result = row(tmp_path / "2", "cpu.energy-preference", files, without=[f"{CPU}/cpufreq"])
    assert result.outcome == "unknown"


def test_energy_bias(tmp_path: Path) -> None:
    def files(value: str) -> dict[str, Any]:
        return {**healthy(), **{f"{CPU}/cpu{n}/power/energy_perf_bias": f"{value}\n" for n in range(8)}}

    assert row(tmp_path / "1", "cpu.energy-bias", files("0")).outcome == "ok"
    finding = only(row(tmp_path / "2", "cpu.energy-bias", files("6")))
    assert (finding.subject, finding.severity, len(finding.changes)) == ("cpu:0-7", "warning", 8)
    assert finding.changes[7] == SysfsAttribute(f"{CPU}/cpu7/power/energy_perf_bias", "0")
    with_epp = files("6") | frequency(energy_performance_preference="performance", **EPP)
    assert only(row(tmp_path / "3", "cpu.energy-bias", with_epp)).severity == "info"
    assert row(tmp_path / "4", "cpu.energy-bias", files("normal")).outcome == "unknown"
    assert row(tmp_path / "5", "cpu.energy-bias", healthy(), complete=True).outcome == "not-applicable"
    assert row(tmp_path / "6", "cpu.energy-bias", healthy()).outcome == "unknown"


def test_driver_mode(tmp_path: Path) -> None:
    def result(number: int, cmdline: str, driver: str, status: str = "", **more: Any) -> RowResult:
        files = {**healthy(), **frequency(driver), "/proc/cmdline": cmdline}
        if status:
            files[f"{CPU}/amd_pstate/status"] = status
        return row(tmp_path / str(number), "cpu.driver-mode", files, **more)

    assert result(1, "ro quiet", "acpi-cpufreq").outcome == "ok"
    assert result(2, "amd_pstate=active", "amd-pstate-epp").outcome == "ok"
    finding = only(result(3, "amd_pstate=active", "acpi-cpufreq"))
    assert finding.message.startswith("amd_pstate=active is asked for, but acpi-cpufreq sets the clocks")
    assert finding.evidence[1].expected == "amd-pstate-epp"
    # somebody wrote another mode to the status file since
    assert result(4, "amd_pstate=passive", "amd-pstate-epp", status="active\n").outcome == "ok"
    assert result(5, "ro", "intel_pstate", without=["/proc/cmdline"]).outcome == "unknown"
    assert (
        result(6, "ro", "intel_pstate", without=[f"{CPU}/cpufreq"], complete=True).outcome == "not-applicable"
    )


# -- cpu.idle-states -------------------------------------------------------------------------


def test_idle_states_switched_off(tmp_path: Path) -> None:
    result = row(tmp_path, "cpu.idle-states", healthy())
    assert result.outcome == "ok"
    assert (
        result.reason
        == "the deepest enabled state is C1E 10 us; C6 switched off, which leaves turbo less room"
    )


def test_deep_idle_states(tmp_path: Path) -> None:
    finding = only(row(tmp_path, "cpu.idle-states", {**healthy(), **idle(disabled=())}))
    assert finding.message == "8 CPUs may enter C6, which takes 133 us to leave."
    assert [(e.source, e.value, e.expected) for e in finding.evidence] == [
        (f"{CPU}/cpu0/cpuidle/state3/latency", "C6 133 us", "at most 10 us"),
        ("/dev/cpu_dma_latency", "no request", "at most 10 us"),
    ]
    assert finding.changes == [CpuLatencyRequest(10)]


def test_only_hot_cpus_are_judged_where_there_are_some(tmp_path: Path) -> None:
    files = {**healthy(), **idle(disabled=()), f"{CPU}/isolated": "2,6\n"}
    finding = only(row(tmp_path / "1", "cpu.idle-states", files))
    assert finding.subject == "cpu:2,6"
    assert finding.changes == [SysfsAttribute(f"{CPU}/cpu{n}/cpuidle/state3/disable", "1") for n in (2, 6)]
    for cpu in (2, 6):
        files[f"{CPU}/cpu{cpu}/cpuidle/state3/disable"] = "1\n"
    assert row(tmp_path / "2", "cpu.idle-states", files).outcome == "ok"


def test_hot_cpus_whose_idle_states_were_not_captured(tmp_path: Path) -> None:
    files = {**healthy(), f"{CPU}/isolated": "7\n"}
    result = row(tmp_path, "cpu.idle-states", files, without=[f"{CPU}/cpu7/cpuidle"])
    assert (result.outcome, result.unknowns[0].subject) == ("unknown", "cpu:7")


@pytest.mark.parametrize(
    ("request_us", "outcome"),
    [
        (0, "ok"),
        (10, "ok"),
        (132, "ok"),
        (133, "finding"),
        (NO_REQUEST, "finding"),
        (Gap("denied"), "unknown"),
    ],
)
def test_a_request_for_all_cpus(tmp_path: Path, request_us: int | Gap, outcome: str) -> None:
    # C6 takes 133 us: a request for 132 keeps the governor from it as well as one for 0
    result = row(tmp_path, "cpu.idle-states", {**healthy(), **idle(disabled=())}, request=request_us)
    assert result.outcome == outcome
    if outcome == "unknown":
        assert "C6 (133 us) enabled" in result.reason
        assert result.unknowns[0].remedy == "run as root"


@pytest.mark.parametrize(
    ("resume", "outcome"),
    [("n/a", "ok"), ("5", "ok"), ("0", "finding"), ("500", "finding"), ("auto", "unknown")],
)
def test_a_request_of_each_cpu(tmp_path: Path, resume: str, outcome: str) -> None:
    # here 0 stands for no restriction, and n/a for none that would be short enough
    result = row(tmp_path, "cpu.idle-states", {**healthy(), **idle(disabled=(), resume=resume)})
    assert result.outcome == outcome


def test_a_cpus_own_request_is_enough(tmp_path: Path) -> None:
    files = {**healthy(), **idle(disabled=(), resume="n/a")}
    assert row(tmp_path, "cpu.idle-states", files, request=Gap("not-captured")).outcome == "ok"


def test_a_state_whose_switch_was_not_read(tmp_path: Path) -> None:
    files = {**healthy(), **idle(disabled=())}
    for cpu in range(8):
        del files[f"{CPU}/cpu{cpu}/cpuidle/state3/disable"]
    assert row(tmp_path, "cpu.idle-states", files).outcome == "unknown"


@pytest.mark.parametrize("argument", ["idle=poll", "idle=halt"])
def test_arguments_that_keep_cpus_awake(tmp_path: Path, argument: str) -> None:
    files = {**healthy(), "/proc/cmdline": f"ro {argument}\n"}
    result = row(tmp_path, "cpu.idle-states", files, without=[f"{CPU}/cpuidle"])
    assert (result.outcome, result.reason) == ("ok", f"{argument} keeps the CPUs from idle states")


NO_IDLE = [f"{CPU}/cpuidle", *(f"{CPU}/cpu{n}/cpuidle" for n in range(8))]


@pytest.mark.parametrize(
    ("cmdline", "outcome"),
    [
        ("processor.max_cstate=1 intel_idle.max_cstate=0", "ok"),
        ("processor.max_cstate=1 intel_idle.max_cstate=1", "ok"),
        ("intel_idle.max_cstate=0", "unknown"),  # acpi_idle takes over, with all of its states
        ("processor.max_cstate=1", "unknown"),  # intel_idle does not heed it
        ("processor.max_cstate=5 intel_idle.max_cstate=0", "unknown"),
        ("cpuidle.off=1", "ok"),
        ("ro quiet", "unknown"),
    ],
)
def test_arguments_where_cpuidle_was_not_captured(tmp_path: Path, cmdline: str, outcome: str) -> None:
    files = {**healthy(), "/proc/cmdline": cmdline}
    assert row(tmp_path, "cpu.idle-states", files, without=NO_IDLE).outcome == outcome


def test_measured_wake_ups_speak_where_nothing_limits_idle_states(tmp_path: Path) -> None:
    measured = "T: 0 (    7) P:80 I:1000 C: 1000 Min: 2 Act: 3 Avg: 4 Max: {}\n"
    late = {"c.txt": measured.format(46)}
    finding = only(row(tmp_path / "1", "cpu.idle-states", dict(CMDLINE), documents=late))
    assert "wake-ups of up to 46 us at an average of 4" in finding.message
    quick = {"c.txt": measured.format(9)}
    assert row(tmp_path / "2", "cpu.idle-states", dict(CMDLINE), documents=quick).outcome == "unknown"
    assert row(tmp_path / "3", "cpu.idle-states", {"/proc/version": "x"}, documents=late).outcome == "unknown"


def test_without_a_cpuidle_driver(tmp_path: Path) -> None:
    result = row(tmp_path / "1", "cpu.idle-states", healthy(), without=NO_IDLE, complete=True)
    assert result.outcome == "ok"
    guest = {**healthy(), **GUEST}
    result = row(tmp_path / "2", "cpu.idle-states", guest, without=NO_IDLE, complete=True)
    assert result.outcome == "not-applicable"


# -- cpu.idle-poll ---------------------------------------------------------------------------


def test_idle_poll(tmp_path: Path) -> None:
    assert row(tmp_path / "1", "cpu.idle-poll", healthy()).outcome == "ok"
    text = "ro idle=poll intel_idle.max_cstate=0 processor.max_cstate=1\n"
    result = row(tmp_path / "2", "cpu.idle-poll", {**healthy(), "/proc/cmdline": text})
    assert [(f.subject, f.severity) for f in result.findings] == [
        ("karg:idle", "warning"),
        ("karg:intel_idle.max_cstate", "info"),
        ("karg:processor.max_cstate", "info"),
    ]
    assert "all 8 CPUs" in result.findings[0].message
    assert result.findings[0].changes == [KernelArguments(remove=("idle",))]
    assert row(tmp_path / "3", "cpu.idle-poll", healthy(), without=["/proc/cmdline"]).outcome == "unknown"


def test_idle_means_nothing_elsewhere_than_on_x86(tmp_path: Path) -> None:
    arm = "processor\t: 0\nFeatures\t: fp\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n"
    files = {"/proc/cpuinfo": arm, "/proc/cmdline": "idle=poll\n"}
    assert row(tmp_path / "1", "cpu.idle-poll", files).outcome == "ok"
    files["/proc/cmdline"] = "nohlt\n"
    assert only(row(tmp_path / "2", "cpu.idle-poll", files)).subject == "karg:nohlt"


# -- cpu.latency-outliers --------------------------------------------------------------------


def timerlat(*maxima: int) -> str:
    head = "     Timer Latency\n 0 00:00:06 | IRQ Timer Latency (us) | Thread Timer Latency (us)\nCPU COUNT\n"
    rows = (f"  {cpu} #5823 | 1 0 1 9 | 6 2 6 {most}\n" for cpu, most in enumerate(maxima))
    return head + "".join(rows)


def test_latency_outliers(tmp_path: Path) -> None:
    files = {"/proc/version": "x"}
    result = row(tmp_path / "1", "cpu.latency-outliers", files, documents={"t.txt": timerlat(11, 20)})
    assert result.outcome == "ok"
    finding = only(
        row(tmp_path / "2", "cpu.latency-outliers", files, documents={"t.txt": timerlat(20, 1035, 13)})
    )
    assert finding.subject == "cpu:1"
    assert (
        finding.message
        == "Wake-ups of up to 1035 us were measured on CPU 1; the others stay at or below 20 us."
    )
    assert row(tmp_path / "3", "cpu.latency-outliers", files).outcome == "not-applicable"


def test_threads_of_cyclictest_are_not_taken_for_cpus(tmp_path: Path) -> None:
    text = "T: 5 (  7) P:80 I:1000 C: 9 Min: 2 Act: 3 Avg: 4 Max: 900\n"
    finding = only(row(tmp_path, "cpu.latency-outliers", {"/proc/version": "x"}, documents={"c.txt": text}))
    assert (finding.subject, finding.evidence[0].value) == (
        "kernel",
        "thread 5: maximum 900 us, average 4 us",
    )


# -- cpu.throttled ---------------------------------------------------------------------------


def test_throttled(tmp_path: Path) -> None:
    assert row(tmp_path / "1", "cpu.throttled", healthy()).outcome == "ok"
    few = only(row(tmp_path / "2", "cpu.throttled", {**healthy(), **throttle({3: 5})}))
    assert (few.subject, few.severity) == ("cpu:2-3,6-7", "warning")
    assert few.evidence[1].source == f"{CPU}/cpu3/thermal_throttle/core_throttle_count"
    many = only(
        row(tmp_path / "3", "cpu.throttled", {**healthy(), **throttle(package_events={0: 999, 4: 1000})})
    )
    assert many.severity == "error"
    assert (
        many.message == "Package 0 throttled by heat since boot: 1000 package events and 0 events of CPU 0."
    )


THROTTLE = [f"{CPU}/cpu{n}/thermal_throttle" for n in range(8)]


def test_throttled_where_nothing_counts(tmp_path: Path) -> None:
    amd = {**healthy(), "/proc/cpuinfo": cpuinfo().replace("GenuineIntel", "AuthenticAMD")}
    assert row(tmp_path / "1", "cpu.throttled", amd, without=THROTTLE).outcome == "not-applicable"
    assert row(tmp_path / "2", "cpu.throttled", healthy(), without=THROTTLE).outcome == "unknown"
    guest = {**healthy(), **GUEST}
    assert row(tmp_path / "3", "cpu.throttled", guest, without=THROTTLE).outcome == "not-applicable"
    result = row(tmp_path / "4", "cpu.throttled", healthy(), without=THROTTLE, complete=True)
    assert result.outcome == "not-applicable"


def test_unreadable_counters(tmp_path: Path) -> None:
    # what the kernel answers for a CPU that has gone offline
    files = {**healthy(), **dict.fromkeys(throttle(), "")}
    assert row(tmp_path, "cpu.throttled", files).outcome == "unknown"


# -- cpu.prochot -----------------------------------------------------------------------------


def test_prochot(tmp_path: Path) -> None:
    assert row(tmp_path / "1", "cpu.prochot", healthy()).outcome == "ok"
    slow = {**healthy(), "/proc/cpuinfo": cpuinfo(mhz=400.0)}
    result = row(tmp_path / "2", "cpu.prochot", slow)
    assert [f.subject for f in result.findings] == ["cpu:0-1,4-5", "cpu:2-3,6-7"]
    assert result.findings[0].message == (
        "The fastest CPU runs at 405 MHz, below the lowest clock that it can be set to."
    )
    idling = {**healthy(), "/proc/cpuinfo": cpuinfo(mhz=801.0)}
    assert row(tmp_path / "3", "cpu.prochot", idling).outcome == "unknown"
    # a nominal clock of 0, as some firmware tells it, is none to be above of
    no_clock = {f"{CPU}/cpu0/acpi_cppc/nominal_freq": "0\n"}
    unnamed = idling["/proc/cpuinfo"].replace(" @ 2.10GHz", "")
    files = {**idling, **no_clock, "/proc/cpuinfo": unnamed}
    assert row(tmp_path / "4", "cpu.prochot", files).outcome == "unknown"


def test_a_constant_is_no_measured_clock(tmp_path: Path) -> None:
    constant = "\n".join(
        "cpu MHz\t\t: 2100.000" if line.startswith("cpu MHz") else line for line in cpuinfo().split("\n")
    )
    result = row(tmp_path, "cpu.prochot", {**healthy(), "/proc/cpuinfo": constant})
    assert result.outcome == "unknown" and "not measured" in result.reason


def test_prochot_in_the_log(tmp_path: Path) -> None:
    log = (
        "[    1.000000] platform: PROCHOT# asserted\n"
        "[    2.000000] CPU1: Core power limit notification (total events = 1)\n"
    )
    result = row(tmp_path, "cpu.prochot", healthy(), documents={"d.txt": log})
    assert sorted(f.severity for f in result.findings) == ["info", "warning"]


def test_prochot_of_guests_and_other_architectures(tmp_path: Path) -> None:
    assert row(tmp_path / "1", "cpu.prochot", {**healthy(), **GUEST}).outcome == "not-applicable"
    arm = "processor\t: 0\nFeatures\t: fp\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n"
    assert row(tmp_path / "2", "cpu.prochot", {"/proc/cpuinfo": arm}).outcome == "not-applicable"
    assert row(tmp_path / "3", "cpu.prochot", topology(), without=["/proc/cpuinfo"]).outcome == "unknown"


# -- cpu.offline -----------------------------------------------------------------------------


def offline(online: str, **more: str) -> dict[str, Any]:
    return {
        **healthy(),
        f"{CPU}/online": f"{online}\n",
        **{f"{CPU}/{k.replace('_', '/')}": v for k, v in more.items()},
    }


def test_offline(tmp_path: Path) -> None:
    assert row(tmp_path / "1", "cpu.offline", healthy()).outcome == "ok"
    finding = only(row(tmp_path / "2", "cpu.offline", offline("0-5")))
    assert (finding.subject, finding.severity) == ("cpu:6-7", "warning")
    assert finding.changes == [SysfsAttribute(f"{CPU}/cpu{n}/online", "1") for n in (6, 7)]


def test_cpus_that_are_only_possible_are_not_missing(tmp_path: Path) -> None:
    files = {**healthy(), f"{CPU}/possible": "0-63\n", f"{CPU}/offline": "8-63\n"}
    assert row(tmp_path, "cpu.offline", files).outcome == "ok"


@pytest.mark.parametrize(
    ("control", "online", "outcome"),
    [("off", "0-3", "ok"), ("forceoff", "0-3", "ok"), ("on", "0-3", "finding"), ("off", "0-2", "finding")],
)
def test_siblings_that_smt_control_took_offline(
    tmp_path: Path, control: str, online: str, outcome: str
) -> None:
    # with three of eight online, SMT (two threads a core) explains three at most
    assert row(tmp_path, "cpu.offline", offline(online, smt_control=f"{control}\n")).outcome == outcome


def test_cpus_that_boot_arguments_leave_offline(tmp_path: Path) -> None:
    files = {**offline("0-3"), "/proc/cmdline": "ro maxcpus=4\n"}
    assert row(tmp_path, "cpu.offline", files).outcome == "ok"


def test_the_sibling_of_a_hot_cpu_may_be_offline_on_purpose(tmp_path: Path) -> None:
    files = {**offline("0-6"), f"{CPU}/isolated": "3\n", f"{CPU}/cpu3/topology/thread_siblings_list": "3\n"}
    finding = only(row(tmp_path, "cpu.offline", files))
    assert finding.severity == "info" and "on purpose" not in finding.message
    assert finding.advice.startswith("If they are offline to keep hot CPUs")


def test_offline_where_lists_are_missing(tmp_path: Path) -> None:
    assert row(tmp_path / "1", "cpu.offline", healthy(), without=[f"{CPU}/present"]).outcome == "ok"
    files = {**offline("0-5"), f"{CPU}/offline": "6-63\n"}
    assert row(tmp_path / "2", "cpu.offline", files, without=[f"{CPU}/present"]).outcome == "unknown"


def test_offline_cpus_that_say_so_themselves(tmp_path: Path) -> None:
    """A capture without any list, in which each CPU has its folder."""
    lists = [f"{CPU}/{name}" for name in ("present", "possible", "online", "offline")]
    gone = {f"{CPU}/cpu{n}/online": "0\n" for n in (6, 7)}
    finding = only(row(tmp_path, "cpu.offline", {**healthy(), **gone}, without=lists))
    assert (finding.subject, finding.severity) == ("cpu:6-7", "warning")
    assert finding.evidence[0].source == f"{CPU}/cpu*/online"


# -- cpu.microcode-mitigations ---------------------------------------------------------------


def weaknesses(**states: str) -> dict[str, Any]:
    return {**healthy(), **{f"{CPU}/vulnerabilities/{name}": f"{text}\n" for name, text in states.items()}}


def test_mitigations(tmp_path: Path) -> None:
    covered = weaknesses(mds="Mitigation: Clear CPU buffers; SMT vulnerable", l1tf="Not affected")
    assert row(tmp_path / "1", "cpu.microcode-mitigations", covered).outcome == "ok"
    files = weaknesses(
        mds="Vulnerable: Clear CPU buffers attempted, no microcode; SMT vulnerable", l1tf="Not affected"
    )
    finding = only(row(tmp_path / "2", "cpu.microcode-mitigations", files))
    assert (finding.severity, finding.message) == ("warning", "The CPU is open to mds.")
    assert finding.evidence[-1].value == "0x5003707"
    result = row(tmp_path / "3", "cpu.microcode-mitigations", healthy(), complete=True)
    assert result.outcome == "not-applicable"
    assert row(tmp_path / "4", "cpu.microcode-mitigations", healthy()).outcome == "unknown"


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("KVM: Mitigation: VMX disabled", "ok"),
        ("Processor vulnerable", "ok"),
        ("KVM: Vulnerable", "finding"),
        ("Unknown: Dependent on hypervisor status", "unknown"),
        ("8:0", "unknown"),
    ],
)
def test_words_on_mitigations(tmp_path: Path, text: str, outcome: str) -> None:
    files = weaknesses(itlb_multihit=text, l1tf="Not affected")
    assert row(tmp_path, "cpu.microcode-mitigations", files).outcome == outcome


@pytest.mark.parametrize("argument", ["mitigations=off", "nospectre_v2", "mds=off", "mitigations=off,nosmt"])
def test_what_was_chosen_is_only_noted(tmp_path: Path, argument: str) -> None:
    files = {**weaknesses(mds="Vulnerable"), "/proc/cmdline": f"ro {argument}\n"}
    finding = only(row(tmp_path, "cpu.microcode-mitigations", files))
    assert (finding.severity, finding.subject) == ("info", f"karg:{argument.partition('=')[0]}")
    # nobody is told to switch mitigations off, or on
    assert finding.changes == []


def test_a_mode_is_no_choice_against_mitigations(tmp_path: Path) -> None:
    files = {**weaknesses(mds="Vulnerable"), "/proc/cmdline": "ro mitigations=auto,nosmt\n"}
    assert only(row(tmp_path, "cpu.microcode-mitigations", files)).severity == "warning"


def test_a_guest_cannot_mend_its_microcode(tmp_path: Path) -> None:
    finding = only(row(tmp_path, "cpu.microcode-mitigations", {**weaknesses(mds="Vulnerable"), **GUEST}))
    assert finding.severity == "info" and finding.advice.startswith("Ask who runs the host")


def test_what_the_kernel_itself_does_not_know(tmp_path: Path) -> None:
    files = weaknesses(srbds="Unknown: Dependent on hypervisor status", mds="Not affected")
    assert row(tmp_path, "cpu.microcode-mitigations", files).outcome == "unknown"


# -- cpu.hybrid-mix --------------------------------------------------------------------------


def hybrid(isolated: str) -> dict[str, Any]:
    kinds = {"/sys/devices/cpu_core/cpus": "0-5\n", "/sys/devices/cpu_atom/cpus": "6-7\n"}
    return {**healthy(), **kinds, f"{CPU}/isolated": f"{isolated}\n"}


def test_hybrid_mix(tmp_path: Path) -> None:
    assert row(tmp_path / "1", "cpu.hybrid-mix", hybrid("2-3")).outcome == "ok"
    finding = only(row(tmp_path / "2", "cpu.hybrid-mix", hybrid("5-7")))
    assert (finding.subject, finding.message) == ("cpu:6-7", "2 hot CPUs of 3 lie on efficient cores.")
    assert row(tmp_path / "3", "cpu.hybrid-mix", hybrid("")).outcome == "not-applicable"
    plain = {**healthy(), f"{CPU}/isolated": "2-3\n"}
    assert (
        row(tmp_path / "4", "cpu.hybrid-mix", {**plain, "/sys/devices/cpu/type": "4\n"}).outcome
        == "not-applicable"
    )
    assert row(tmp_path / "5", "cpu.hybrid-mix", plain).outcome == "unknown"
