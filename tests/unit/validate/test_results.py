"""From a run to its percentiles, its SLA and its outliers."""

from __future__ import annotations

import numpy as np
import pytest

from hwtune.validate import buckets
from hwtune.validate import budget as budgets
from hwtune.validate.results import Attribution, OutlierCause, judge
from hwtune.validate.run import END_TO_END, STAGES, Queue
from tests.support import runs

USUAL_US = sum(runs.USUAL.values()) / 1000


def results(sla_us=3200.0, stages=None, **changes):
    return judge(runs.run(**changes), runs.placement(), runs.budget(sla_us, **(stages or {})))


def test_percentiles_are_microseconds_of_the_histograms():
    found = results()
    assert list(found.stages) == list(STAGES)
    for name, usual in runs.USUAL.items():
        # uniform within 5 % of the usual: P50 the middle, P99 at 0.98 of the way up
        assert found.stages[name].p50_us == pytest.approx(usual / 1000, rel=0.02)
        assert found.stages[name].p99_us == pytest.approx(usual * 1.049 / 1000, rel=0.02)
        # every window is alike: the interval is as narrow as the coarse buckets let it
        low, high = found.stages[name].p99_low_us, found.stages[name].p99_high_us
        assert low <= found.stages[name].p99_us <= high
        assert high / low < 1.05
    whole = found.end_to_end
    assert whole.count == 100_000
    assert whole.p50_us == pytest.approx(USUAL_US, rel=0.01)
    assert whole.p50_us < whole.p90_us < whole.p99_us <= whole.p999_us <= whole.p9999_us <= whole.max_us
    assert whole.mean_us == pytest.approx(USUAL_US, rel=0.01)
    assert whole.p99_low_us <= whole.p99_us <= whole.p99_high_us
    assert whole.unknown == {}


def test_the_interval_of_a_stage_is_of_its_own_windows():
    """A tenth of the time one stage is slow, and the others are as ever: its P99 is anywhere between, or not
    there at all; theirs is known as well as before."""
    run = runs.run(late={"order": 50_000}, late_share=0.011)
    # all that was slow came in five of the hundred windows
    place = STAGES.index("order")
    slow = run.stage_windows[:, place, buckets.coarse_index_of(np.array([10_000]))[0] :].copy()
    run.stage_windows[:, place, buckets.coarse_index_of(np.array([10_000]))[0] :] = 0
    run.stage_windows[:5, place, -slow.shape[1] :] += (slow.sum(axis=0) // 5).astype(np.uint32)
    found = judge(run, runs.placement(), runs.budget())
    order, other = found.stages["order"], found.stages["inference"]
    assert order.p99_low_us < 1 and order.p99_high_us > 40
    assert other.p99_high_us / other.p99_low_us < 1.05


def test_a_short_run_has_no_interval_of_its_stages():
    found = results(windows=3)
    assert found.stages["order"].p99_low_us is None
    assert "windows" in found.stages["order"].p99_unknown


def test_percentiles_that_too_few_ticks_carry_are_null_with_a_reason():
    whole = results(ticks=2994).end_to_end
    assert whole.p99_us is not None and whole.p999_us is None and whole.p9999_us is None
    assert whole.unknown["p999_us"] == "at least 2,995 ticks are needed, 2,994 came through"
    assert results(ticks=2995).end_to_end.p999_us is not None
    few = results(ticks=298).end_to_end
    assert few.p99_us is None and few.p90_us is not None and few.max_us is not None


def test_a_run_without_ticks():
    found = results(ticks=0, due=0, completed=0, windows=0)
    assert found.end_to_end.count == 0
    assert found.end_to_end.p50_us is None and found.end_to_end.max_us is None
    assert found.sla.met is None and "0 were due" in found.sla.why
    assert found.throughput == 10_000 * 0


def test_the_sla_is_met_with_certainty():
    sla = results().sla
    assert (sla.met, sla.certain, sla.limit_us) == (True, True, 3200)
    assert sla.p99_us == pytest.approx(USUAL_US * 1.045, rel=0.02)


def test_the_sla_is_missed():
    sla = results(late={"inference": 4_000_000}).sla
    assert (sla.met, sla.certain) == (False, True)
    assert sla.p99_us == pytest.approx(4000 + USUAL_US, rel=0.01)


def test_a_limit_inside_the_interval_is_not_certain():
    # one tick in a hundred is late: P99 lies on the edge of the two kinds
    sla = results(sla_us=100, late={"inference": 4_000_000}, late_share=0.01).sla
    assert sla.met is not None and not sla.certain
    assert sla.low_us < 100 < sla.high_us


def test_lost_ticks_count_against_the_sla():
    # 1.5 % of all that were due never came: P99 is one of them, however quick the others were
    sla = results(due=101_600).sla
    assert (sla.met, sla.p99_us) == (False, None)
    assert sla.why == "1,600 of 101,600 ticks never came through: more than one in a hundred"
    # 0.5 %: P99 of all is about P99.5 of those that came, of which 2 % are late
    some = results(due=100_500, late={"order": 5_000_000}, late_share=0.007)
    assert some.end_to_end.p99_us < 20
    assert some.sla.p99_us > 5000 and some.sla.met is False


def test_too_few_ticks_for_the_sla():
    sla = results(ticks=298).sla
    assert sla.met is None and not sla.certain
    assert sla.why == "at least 299 ticks are needed to tell a P99, 298 were due"


def test_too_few_windows_leave_the_verdict_and_say_so():
    sla = results(windows=5).sla
    assert sla.met is True and not sla.certain and sla.low_us is None
    assert "windows" in sla.why


def test_stages_over_budget():
    found = results(stages={"inference": 10.0, "features": 1.0})
    assert found.stages["inference"].over_budget_us == pytest.approx(found.stages["inference"].p99_us - 10)
    assert found.stages["features"].over_budget_us is None
    assert found.stages["order"].budget_us is None
    assert found.end_to_end.budget_us == 3200


def test_default_budget_fits_the_usual_run():
    found = judge(runs.run(), runs.placement(), budgets.load(None, None))
    assert all(stage.over_budget_us is None for stage in found.stages.values())


def test_outliers_have_their_stage_time_and_causes():
    share = OutlierCause("irq", "IRQ 36 virtio1-req.0", 1, 0.8)
    run = runs.run(
        outliers_seen=3,
        outliers=[runs.outlier(17, 2_500_000_000, tick_queue=600_000, inference=50_000), runs.outlier(18, 0)],
    )
    told = Attribution("trace", "", [], {17: [share]})
    first, second = judge(run, runs.placement(), runs.budget(), told).outliers
    assert (first.sequence, first.stage) == (17, "tick-queue")
    assert first.at_s == pytest.approx(2.5)
    assert first.latency_us == pytest.approx(650)
    assert first.stages_us["inference"] == pytest.approx(50)
    assert first.causes == [share] and second.causes == []


def test_values_beyond_the_last_bucket_count():
    run = runs.run(ticks=1000)
    run.stages[END_TO_END].record_many(np.full(50, 200_000_000_000, dtype=np.uint64))
    found = judge(run, runs.placement(), runs.budget())
    assert found.end_to_end.count == 1050
    assert found.end_to_end.p99_us > 100e6


def test_throughput_and_missing():
    found = results(due=100_010, completed=100_000, tick_queue=Queue(4096, 4096, 10))
    assert found.throughput == pytest.approx(10_000)
    assert found.missing == 10
    assert results(due=5, completed=7).missing == 0


def test_windows_that_an_interrupted_run_did_not_come_to_are_no_windows():
    run = runs.run(interrupted=True)
    run.windows[30:] = 0  # Ctrl-C after 2.95 of 10 s
    run.duration_s = 2.95
    found = judge(run, runs.placement(), runs.budget())
    assert len(found.run.windows) == 30
    early = runs.run(interrupted=True)
    early.windows[5:] = 0
    early.duration_s = 0.5
    assert (
        "at least 20 windows (2 s) are needed, there are 5"
        in judge(early, runs.placement(), runs.budget()).sla.why
    )
    stalled = runs.run()
    stalled.windows[30:] = 0
    assert len(judge(stalled, runs.placement(), runs.budget()).run.windows) == 100
