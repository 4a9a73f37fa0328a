"""Whose stalls: simulated drives and hosts, told apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.drive.analysis import clean, coincidence
from hwtune.drive.device import Device
from hwtune.drive.periodic import LEAST_CYCLES
from hwtune.drive.resting import waking
from hwtune.drive.results import DRIVE, HOST, UNCLEAR
from hwtune.drive.schedule import RESTS, rests
from hwtune.drive.verdicts import at_least, duration
from hwtune.fact import absent, gap, known
from hwtune.model.storage import NvmeController, PowerState, PowerTransition, Smart
from tests.support import drives
from tests.support.drives import at_random, control, gaps_at, measured, phase, reads, report, resting, train

MINUTE = 60.0


def kinds(found) -> list[str]:
    return [finding.kind for finding in found.findings]


# -- the host's share --------------------------------------------------------------------------


def test_a_gap_is_taken_out_of_every_read_that_it_delays() -> None:
    """The reader is away from 1.0 to 2.0 ms. A read due at 0.9 ends at 2.1: 1.2 ms, of which 1.0 are the
    host's. The next was due at 1.5 and ends at 2.2: 0.7 ms, of which 0.5 are the host's, though its own
    service met no gap."""
    found = clean(
        reads(
            "quiet", np.array([0.9e-3, 1.5e-3]), np.array([1.2e-3, 0.7e-3]), gaps_at(np.array([1e-3]), 1e-3)
        )
    )
    assert found.host == pytest.approx([1.0e-3, 0.5e-3])
    assert found.drive == pytest.approx([0.2e-3, 0.2e-3])


def test_long_submission_is_the_hosts() -> None:
    one = reads("quiet", np.arange(5) * 1e-3, np.full(5, 100e-6))
    one.submit_ns[3] = 45_000
    assert clean(one).host == pytest.approx([0, 0, 0, 40e-6, 0])


def test_reads_after_lost_gaps_are_left_out() -> None:
    one = reads("quiet", np.arange(10) * 1e-3, np.full(10, 1e-4), gaps_at(np.array([3.5e-3]), 1e-5), lost=7)
    assert clean(one).due == pytest.approx([0, 1e-3, 2e-3, 3e-3])


@given(st.integers(0, 10_000))
def test_no_read_is_more_the_hosts_than_it_took(seed: int) -> None:
    random = np.random.default_rng(seed)
    times = np.cumsum(random.uniform(1e-4, 1e-3, 50))
    starts = np.cumsum(random.uniform(1e-4, 3e-3, 20))
    lengths = random.uniform(1e-6, 9e-5, 20)
    found = clean(reads("quiet", times, random.uniform(5e-5, 2e-3, 50), (starts, lengths)))
    assert (found.host >= 0).all()
    assert (found.drive >= -1e-12).all()
    assert found.host + found.drive == pytest.approx(found.latency)


# -- periods -----------------------------------------------------------------------------------


def test_a_drive_that_stalls_in_a_rhythm() -> None:
    found = report(measured(phase("quiet", train(2.3, MINUTE, 1), 0.8e-3, MINUTE, 1)))
    assert found.periodic is not None
    assert found.periodic.period_s == pytest.approx(2.3, rel=0.02)
    assert found.periodic.stall_us == pytest.approx(800, rel=0.2)
    assert found.periodic.blame == DRIVE
    assert kinds(found) == ["periodic"]
    assert found.findings[0].severity == "warning"
    assert "every 2.3 s" in found.findings[0].says
    assert "26 of 26 periods had a stall" in found.findings[0].rests_on[0]


@pytest.mark.parametrize("seed", range(5))
def test_a_poller_on_the_readers_cpu_is_not_blamed_on_the_drive(seed: int) -> None:
    """What delays the reads for 0.8 ms every 2.3 s took the CPU from the reader."""
    starts = train(2.3, MINUTE, seed)
    found = report(measured(phase("quiet", starts, 0.8e-3, MINUTE, seed, gaps_at(starts, 0.8e-3))))
    assert found.periodic is None
    assert kinds(found) == []
    assert found.phases[0].stalls + found.phases[0].host_stalls <= 26


def test_a_poller_whose_gaps_are_a_part_of_the_stall_is_blamed() -> None:
    """The CPU is away for 0.1 ms at the times at which the drive stands still for 0.8 ms: what runs there
    asks the drive for something."""
    starts = train(2.3, MINUTE, 2)
    found = report(measured(phase("quiet", starts, 0.8e-3, MINUTE, 2, gaps_at(starts + 1e-4, 0.1e-3))))
    assert found.periodic is not None
    assert found.periodic.blame == HOST
    assert "every 2.3 s beside the reads" in found.periodic.because[0]
    assert [f.severity for f in found.findings] == ["info"]


def test_the_control_loop_knows_a_poller_too() -> None:
    starts = train(0.5, MINUTE, 3)
    found = report(
        measured(
            phase("quiet", starts, 0.8e-3, MINUTE, 3),
            control=control(5.0, gaps_at(0.1 + 0.5 * np.arange(9), 0.2e-3)),
        )
    )
    assert found.periodic is not None
    assert found.periodic.blame == HOST
    assert "without I/O" in found.periodic.because[0]


def test_somebody_elses_io_at_the_stalls_times_is_blamed() -> None:
    starts = train(2.3, MINUTE, 4)
    found = report(measured(phase("quiet", starts, 0.8e-3, MINUTE, 4), others_s=starts + 0.7e-3))
    assert found.periodic is not None
    assert found.periodic.blame == HOST
    assert "somebody else's I/O" in found.periodic.because[0]


def test_somebody_elses_io_at_other_times_is_not() -> None:
    starts = train(2.3, MINUTE, 5)
    found = report(measured(phase("quiet", starts, 0.8e-3, MINUTE, 5), others_s=at_random(100, MINUTE, 5)))
    assert found.periodic is not None
    assert found.periodic.blame == DRIVE


def test_io_all_the_time_leaves_it_open() -> None:
    starts = train(2.3, MINUTE, 6)
    found = report(measured(phase("quiet", starts, 0.8e-3, MINUTE, 6), others_s=np.arange(0, MINUTE, 0.004)))
    assert found.periodic is not None
    assert found.periodic.blame == UNCLEAR


def test_a_program_that_asks_drives_leaves_it_open() -> None:
    starts = train(2.3, MINUTE, 7)
    found = report(measured(phase("quiet", starts, 0.8e-3, MINUTE, 7)), Device(pollers=["smartd"]))
    assert found.periodic is not None
    assert found.periodic.blame == UNCLEAR
    assert "smartd may ask the drive" in found.periodic.because[-1]
    assert "whose fault it is cannot be told" in found.findings[0].says


def test_stalls_at_random_are_told_without_a_period() -> None:
    found = report(measured(phase("quiet", at_random(40, MINUTE, 8), 2e-3, MINUTE, 8)))
    assert found.periodic is None
    assert kinds(found) == ["stalls"]
    assert "the stalls keep no time" in found.not_periodic
    assert f"up to {MINUTE / LEAST_CYCLES:.3g} s" in found.not_periodic


def test_a_clean_drive() -> None:
    found = report(measured(phase("quiet", np.empty(0), 0.0, MINUTE, 9), rests=resting({})))
    assert found.findings == []
    assert found.stalls == []
    assert found.untold == ""
    assert found.not_periodic.startswith("there are no stalls")
    assert found.usual_us == pytest.approx(80, rel=0.02)
    assert found.phases[0].response.p50_us == pytest.approx(80, rel=0.02)
    assert found.phases[0].response.count == len(drives.due(MINUTE, 2000, 9))


def test_a_busy_cpu_says_nothing_of_the_drive() -> None:
    """It is away for 2 of 20 ms: a tenth of the time."""
    starts = np.arange(0, 5, 0.02)
    found = report(
        measured(
            phase("quiet", train(2.3, MINUTE, 1), 0.8e-3, MINUTE, 1),
            control=control(5.0, gaps_at(starts, 2e-3)),
        )
    )
    assert "CPU 3 was taken from the reader for 10 % of the time" in found.untold
    assert found.periodic is None
    assert found.findings == []


def test_few_reads_say_nothing() -> None:
    found = report(measured(phase("quiet", np.empty(0), 0.0, 0.1, 1)))
    assert "too few to judge by" in found.untold


def test_a_run_that_ended_before_its_first_phase_says_so() -> None:
    one = measured(phase("quiet", np.empty(0), 0.0, 1.0, 1))._replace(phases=[], control=None, seen=None)
    found = report(one)
    assert found.phases == []
    assert "0 reads are too few to judge by" in found.untold
    assert found.findings == []


def test_reads_that_fail_are_found() -> None:
    times = drives.due(10, 2000, 1)
    one = reads("quiet", times, drives.latencies(times, np.empty(0), 0.0, 1), failed=3)
    assert kinds(report(measured(one))) == ["errors"]


def test_percentiles_need_ten_reads_beyond_them() -> None:
    """Of 2,000 reads 20 are above P99 and 2 above P99.9."""
    times = np.arange(2000) * 1e-3
    found = report(measured(reads("quiet", times, np.full(2000, 1e-4))))
    assert found.phases[0].response.p99_us == pytest.approx(100)
    assert found.phases[0].response.p999_us is None


# -- without io_uring --------------------------------------------------------------------------


def by_pread(gap_starts: np.ndarray, seconds: float = 5.0):
    """Stalls in a rhythm, read by a thread that sleeps meanwhile; the control loop saw these gaps of 0.8
    ms."""
    starts = train(2.3, MINUTE, 1)
    one = measured(
        phase("quiet", starts, 0.8e-3, MINUTE, 1), control=control(seconds, gaps_at(gap_starts, 0.8e-3))
    )
    return report(one._replace(io_uring=False, why="EPERM"))


def test_without_io_uring_a_host_that_is_away_as_long_may_have_done_it() -> None:
    """One gap of 0.8 ms in 5 s would be 12 in a minute, beside 26 stalls."""
    found = by_pread(np.array([1.0]))
    assert "reads went by pread (EPERM)" in found.untold
    assert "some 12 times in 60 s" in found.untold
    assert found.findings == []


def test_without_io_uring_a_quiet_host_has_not() -> None:
    found = by_pread(np.empty(0))
    assert found.untold == ""
    assert found.periodic is not None
    assert any("reads went by pread" in note for note in found.notes)


# -- coincidence -------------------------------------------------------------------------------


def test_coincidence_by_hand() -> None:
    """Of four stalls of 1 s at 10, 20, 30, 40 s two touch the spans 9-10 and 31.5-32; of all times such a
    stall touches them from 8 to 10 and from 30.5 to 32: 3.5 of 100 s. Two or more of four by chance: 1 -
    0.965^4 - 4 * 0.035 * 0.965^3 = 0.0070."""
    s = 10**9
    share, base, chance = coincidence(
        np.array([10, 20, 31, 40]) * s,
        np.full(4, s),
        np.array([9 * s, 31 * s + s // 2]),
        np.array([10 * s, 32 * s]),
        (0, 100 * s),
    )
    assert share == 0.5
    assert base == pytest.approx(0.035, abs=0.001)
    assert chance == pytest.approx(0.0070, rel=0.05)


def test_at_least_by_hand() -> None:
    """Two or three heads of three tosses: 4 of 8."""
    assert at_least(2, 3, 0.5) == pytest.approx(0.5)
    assert at_least(0, 3, 0.5) == pytest.approx(1.0)


# -- rests -------------------------------------------------------------------------------------


def sleeper(enabled: bool | None, exit_us: int = 5_000) -> NvmeController:
    controller = NvmeController("nvme0")
    controller.smart = Smart(thermal_transitions=known([0, 0], "SMART"))
    controller.power_states = known([PowerState(3, 50, True, 2_000, exit_us)], "Identify")
    controller.apst_transitions = known([PowerTransition(0, 3, 100)], "/dev/nvme0 feature 0Ch")
    controller.apst_enabled = (
        gap("denied", "/dev/nvme0 feature 0Ch")
        if enabled is None
        else known(enabled, "/dev/nvme0 feature 0Ch")
    )
    return controller


ASLEEP = {150.0: 5e-3, 400.0: 5e-3, 1000.0: 5e-3, 2300.0: 5e-3}


def slept(enabled: bool | None):
    device = Device(before=sleeper(enabled), after=sleeper(enabled))
    return report(measured(phase("quiet", np.empty(0), 0.0, MINUTE, 9), rests=resting(ASLEEP)), device)


def test_a_drive_that_sleeps_after_a_tenth_of_a_second() -> None:
    found = slept(True)
    assert found.waking is not None
    assert (found.waking.to_ms, found.waking.from_ms) == (60, 150)
    assert found.waking.cost_us == pytest.approx(5000, rel=0.02)
    assert kinds(found) == ["sleeps"]
    assert (
        "its APST table sends it to state 3 after 100 ms, from which it needs 5,000 us"
        in found.findings[0].rests_on
    )
    assert "nvme.apst" in found.findings[0].advice


def test_sleep_with_apst_off_is_not_apst() -> None:
    found = slept(False)
    assert "APST is not on" in found.findings[0].rests_on[-1]
    assert found.findings[0].advice == ""


def test_sleep_with_apst_unknown_says_so() -> None:
    assert "whether it is on is not known" in slept(None).findings[0].rests_on[-1]


def test_microseconds_are_a_link() -> None:
    extra = {rest: 25e-6 for rest, _ in RESTS if rest >= 10}
    one = measured(phase("quiet", np.empty(0), 0.0, MINUTE, 9), rests=resting(extra))
    found = report(one, Device(aspm={"l1_2_aspm": True, "clkpm": False}))
    assert kinds(found) == ["link"]
    assert found.waking is not None
    assert found.waking.from_ms == 10
    assert "l1_2_aspm is on" in found.findings[0].rests_on[-1]
    off = report(one, Device(aspm={"l1_2_aspm": False}))
    assert "ASPM is off for its link" in off.findings[0].rests_on[-1]


def test_rests_of_random_cost_show_nothing() -> None:
    """Under 1 % of 200 sets: one alarm at most."""
    alarms = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        rest = rests(RESTS, seed).rest_ms
        took = random.lognormal(4.5, 0.5, len(rest))
        alarms += waking(rest, took, seed) is not None
    assert alarms <= 1


# -- writes ------------------------------------------------------------------------------------


def test_garbage_collection_shows_after_the_writes() -> None:
    """4 stalls a minute before; 60 a minute beside the writes and after them."""
    found = report(
        measured(
            phase("quiet", at_random(4, MINUTE, 11), 2e-3, MINUTE, 11),
            phase("writes", at_random(20, 20, 12), 2e-3, 20.0, 12),
            phase("after", at_random(20, 20, 13), 2e-3, 20.0, 13),
        )
    )
    assert kinds(found) == ["behind-writes", "after-writes"]


def test_reads_behind_writes_alone_are_no_garbage_collection() -> None:
    found = report(
        measured(
            phase("quiet", np.empty(0), 0.0, MINUTE, 11),
            phase("writes", at_random(20, 20, 12), 2e-3, 20.0, 12),
            phase("after", np.empty(0), 0.0, 20.0, 13),
        )
    )
    assert kinds(found) == ["behind-writes"]


def test_as_many_stalls_as_before_are_not_the_writes() -> None:
    found = report(
        measured(
            phase("quiet", at_random(30, MINUTE, 11), 2e-3, MINUTE, 11),
            phase("writes", at_random(10, 20, 12), 2e-3, 20.0, 12),
        )
    )
    assert "behind-writes" not in kinds(found)


# -- the drive's own word ------------------------------------------------------------------------


def test_heat_is_found_where_the_counters_grew() -> None:
    before, after = sleeper(False), sleeper(False)
    after.smart.thermal_transitions = known([2, 1], "SMART")
    found = report(measured(phase("quiet", np.empty(0), 0.0, MINUTE, 9)), Device(before=before, after=after))
    assert kinds(found) == ["thermal"]
    assert "2 times lightly and 1 times heavily" in found.findings[0].rests_on[0]


def test_without_smart_nothing_is_said_of_heat() -> None:
    one = NvmeController("nvme0")
    one.smart = Smart(thermal_transitions=gap("denied", "/dev/nvme0 SMART log"))
    one.apst_enabled = absent("/dev/nvme0 feature 0Ch")
    found = report(measured(phase("quiet", np.empty(0), 0.0, MINUTE, 9)), Device(before=one, after=one))
    assert found.findings == []
    assert "SMART is not known" in found.device[0]


def test_times_in_words() -> None:
    assert [duration(us) for us in (85.3, 820, 999.9, 1_400_000)] == ["85.3 us", "820 us", "1 ms", "1.4 s"]
