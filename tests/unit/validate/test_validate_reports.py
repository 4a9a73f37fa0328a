"""validate's reports: what a person reads, and what scripts and later runs read."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from hwtune._native import Histogram
from hwtune.errors import UsageError
from hwtune.report.published import encode
from hwtune.report.schema import schema
from hwtune.report.terminal import Style
from hwtune.report.validation import html, junit, prometheus, text
from hwtune.report.validation.published import About, publish
from hwtune.validate import baseline, hdr, reading
from hwtune.validate.arrivals import Arrivals
from hwtune.validate.results import Attribution, Cause, OutlierCause, judge
from hwtune.validate.run import END_TO_END, STAGES, Queue
from tests.support import runs
from tests.support.page import Page
from tests.support.reports import HOSTILE, SHOWN

ABOUT = About("box7", "6.1.0", 1_700_000_000.0, "", "poisson", "", 1)
CAUSES = [
    Cause("irq", "IRQ 36 virtio1-req.0", 33, 21_000.0, 900.0, ("irq.on-isolated", "irq.default-affinity")),
    Cause("switch", "kworker/2:1", 5, 3_000.0, 700.0, ("isolation.workqueues",)),
    Cause("unexplained", "unexplained", 3, 1_600.0, 600.0, ()),
]


def results(stages=None, causes=None, sla_us=3200.0, comparison=None, name="", **changes):
    by_outlier = {17: [OutlierCause("irq", "IRQ 36 virtio1-req.0", 2, 0.8)]}
    told = Attribution("trace", "", causes, by_outlier) if causes else Attribution("none", "not root", [], {})
    placed = runs.placement(given_up=[f"CPU 3 is {name}."] if name else [])
    if name:
        changes |= {"engine": name, "clock_why": name, "memory_why": name, "failure": name}
    found = judge(runs.run(**changes), placed, runs.budget(sla_us, **(stages or {})), told)
    found.comparison = comparison
    found.readings = reading.read(found)
    return found


def compared(**changes):
    values = {
        "baseline": "then.json", "made_at": None, "limit_pct": 10.0, "before_us": 100.0, "now_us": 150.0,
        "change_pct": 50.0, "low_pct": 42.0, "high_pct": 58.0, "verdict": "worse", "why": "", "differs": [],
    }  # fmt: skip
    return baseline.Comparison(**{**values, **changes})


def rendered(found, about=ABOUT, width=80):
    return text.render(found, about, Style(width, False))


LATE = {
    "late": {"tick-queue": 800_000},
    "outliers_seen": 41,
    "outliers": [runs.outlier(17, 10**9, tick_queue=800_000)],
}


# -- text --------------------------------------------------------------------------------------


def test_text_of_a_good_run():
    lines = rendered(results()).splitlines()
    assert lines[0] == "hwtune 0.1.0   box7   Linux 6.1.0   engine cpu" + "SLA met".rjust(34)
    assert lines[1] == "poisson arrivals, 10,000 ticks a second, 10 s, after 1,000 of warm-up."
    assert "  CPU 2     compute" in lines
    table = {
        line.split()[0]: line.split()[1:]
        for line in lines
        if line.split()[:1] and line.split()[0] in (*STAGES, END_TO_END)
    }
    assert list(table) == [*STAGES, END_TO_END]
    assert table["inference"][:2] == ["100,000", "15.0"]
    assert table["inference"][-1] == "-", "no budget was given"
    assert table[END_TO_END][-1] == "3,200"
    assert "SLA         P99 16.8 us of 3,200 us: met, with 95 % between 16.7 us and" in rendered(results())
    assert "outliers    none above 500 us." in lines
    assert "  - Nothing in the shape of these numbers stands out and the SLA is met." in lines


def test_text_of_a_bad_run():
    told = rendered(results(stages={"tick_queue": 100.0}, causes=CAUSES, sla_us=500, due=100_100,
                            tick_queue=Queue(4096, 4096, 100), **LATE))  # fmt: skip
    assert "SLA missed" in told.splitlines()[0]
    assert "P99 816 us of 500 us: missed" in told
    assert "overspent at P99: tick-queue by 701 us" in told
    assert "tick 4,096 of 4,096 (100 dropped)" in told
    assert "outliers    41 above 500 us, the slowest 1 kept." in told
    assert "Of 41, most of the time went to:" in told
    assert "      33   IRQ 36 virtio1-req.0   longest 900 us   irq.on-isolated" in told
    assert "       3   unexplained   longest 600 us" in told
    assert "hwtune doctor --only irq.on-isolated" in told


def test_text_says_why_outliers_are_not_matched():
    told = rendered(results(**LATE))
    assert "Most of their time was in: tick-queue 1." in told
    assert "Not matched to what else happened: not root." in told


def test_text_of_a_comparison():
    told = rendered(results(comparison=compared(differs=["another kernel: 6.1 then, 6.2 now"])))
    assert "worse than before" in told.splitlines()[0] or "worse than before" in told.splitlines()[1]
    assert "worse, limit 10 %: P99 100 us then, 150 us now, +50.0 % (95 %: +42.0 to +58.0)." in " ".join(
        told.split()
    )
    assert "Made on another kernel: 6.1 then, 6.2 now." in " ".join(told.split())


def test_text_of_too_short_a_run():
    told = rendered(results(ticks=200))
    assert "SLA cannot be told" in told
    assert "P99 is not told: at least 299 ticks are needed, 200 came through." in told


def test_text_of_an_interrupted_and_of_a_failed_run():
    assert "Interrupted: this is what was measured until then." in rendered(results(interrupted=True))
    failed = rendered(results(failure="the model returned NaN"))
    assert "failed" in failed.splitlines()[0]
    assert "The engine failed, which ended the run: the model returned NaN" in failed


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (0.0, "0.00"), (9.994, "9.99"), (9.996, "10.0"), (99.94, "99.9"), (99.96, "100"),
     (1234.5, "1,234"), (999_999.4, "999,999"), (999_999.6, "1.0s"), (99_999_999.0, "100.0s")],
)  # fmt: skip
def test_cells(value, shown):
    assert text.cell(value) == shown
    assert len(shown) < 8


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_and_nothing_can_reach_the_terminal(width):
    about = About(HOSTILE, HOSTILE, 1.7e9, "", HOSTILE, "", 1)
    causes = [Cause("switch", HOSTILE, 3, 1.0, 1.0, ())]
    told = rendered(
        results(name=HOSTILE, causes=causes, comparison=compared(differs=[HOSTILE]), **LATE), about, width
    )
    assert all(c.isprintable() or c == "\n" for c in told)
    plain = rendered(results(causes=CAUSES, comparison=compared(), **LATE), width=width)
    numbers = 80  # of the tables, which are not broken
    assert max(map(len, plain.splitlines())) <= max(width, numbers)


def test_colour_marks_what_is_bad():
    told = text.render(results(stages={"tick_queue": 100.0}, sla_us=500, **LATE), ABOUT, Style(80, True))
    assert "\x1b[1;31mSLA         \x1b[0m" in told
    assert "\x1b[1;31mtick-queue " in told


# -- JSON --------------------------------------------------------------------------------------


def published(found, about=ABOUT):
    return json.loads(encode(publish(found, about)))


@pytest.mark.parametrize(
    "of",
    [
        {"causes": CAUSES, "comparison": compared(), **LATE},
        {"ticks": 0, "due": 0, "completed": 0, "windows": 0, "threads": []},
        {"ticks": 200, "threads": [runs.thread("compute", 2, migrations=None)]},
        {"due": 200_000, "comparison": compared(before_us=None, change_pct=None, low_pct=None)},
    ],
)
def test_json_fits_its_schema(of):
    rules = schema("validate")
    jsonschema.Draft202012Validator.check_schema(rules)
    jsonschema.validate(published(results(**of)), rules)


def test_json_has_what_scripts_rely_on():
    found = published(results(causes=CAUSES, due=100_010, tick_queue=Queue(4096, 4096, 10), threads=[
        runs.thread("generator", 1, minor_faults=2, voluntary_switches=3),
        runs.thread("compute", 2, major_faults=1, involuntary_switches=4, migrations=1),
    ], **LATE))  # fmt: skip
    assert found["schema_version"] == "1"
    assert set(found["stages"]) == set(STAGES)
    for latency in (found["end_to_end"], *found["stages"].values()):
        assert {"count", "p50_us", "p90_us", "p99_us", "p999_us", "max_us"} <= set(latency)
    assert found["drops"] == 10 and found["missing"] == 10
    assert found["queue_high_watermark"] == {"tick-queue": 4096, "order-queue": 2}
    assert found["page_faults"] == {"minor": 2, "major": 1}
    assert found["context_switches"] == {"voluntary": 3, "involuntary": 4}
    assert found["migrations"] == 1
    assert (found["engine"], found["model"]) == ("cpu", "")
    assert found["clock_overhead_ns"] == 12.5
    assert found["sla"]["met"] is True and found["sla"]["limit_us"] == 3200
    (outlier,) = found["outliers"]
    assert outlier["causes"] == [{"kind": "irq", "name": "IRQ 36 virtio1-req.0", "cpu": 2, "share": 0.8}]
    assert found["outlier_causes"]["causes"][0]["outliers"] == 33
    assert found["host"] == {
        "hostname": "box7",
        "kernel": "6.1.0",
        "captured_at": "2023-11-14T22:13:20+00:00",
    }


def test_json_of_unknown_migrations_is_null():
    assert published(results(threads=[runs.thread("compute", 2, migrations=None)]))["migrations"] is None


def test_raw_histograms_are_those_of_the_run_and_can_be_merged():
    run = runs.run()
    found = published(judge(run, runs.placement(), runs.budget()))
    for name, histogram in run.stages.items():
        assert (hdr.from_base64(found["histograms"][name]).counts() == histogram.counts()).all()
    together = Histogram()
    for encoded in found["windows"]["histograms"]:
        together.merge(hdr.from_base64(encoded))
    assert (together.counts() == run.stages[END_TO_END].counts()).all()
    assert found["windows"]["length_s"] == pytest.approx(0.1)


@given(st.lists(st.integers(0, 2**37 - 1), max_size=50))
def test_counts_are_encoded_as_the_native_histogram_does(values):
    histogram = Histogram()
    histogram.record_many(np.array(values, dtype=np.uint64))
    assert hdr.counts_to_base64(histogram.counts().tolist()) == hdr.to_base64(histogram)


# -- a report as baseline ----------------------------------------------------------------------


def saved(tmp_path, found, about=ABOUT):
    path = tmp_path / "then.json"
    path.write_bytes(encode(publish(found, about)))
    return str(path)


def changed(tmp_path, **values):
    report = published(results())
    report.update(values)
    path = tmp_path / "then.json"
    path.write_text(json.dumps(report))
    return str(path)


def test_a_report_is_a_baseline(tmp_path):
    then = baseline.load(saved(tmp_path, results()))
    assert (then.windows == runs.run().windows).all()
    same = baseline.compare(then, runs.run(), "box7", "6.1.0", 10)
    assert (same.verdict, same.change_pct, same.differs) == ("not worse", 0.0, [])
    assert same.made_at == "2023-11-14T22:13:20+00:00"
    slower = runs.run(usual={**runs.USUAL, "inference": 20_000})
    worse = baseline.compare(then, slower, "box7", "6.1.0", 10)
    assert worse.verdict == "worse"
    assert worse.before_us == pytest.approx(16.75, abs=0.1) and worse.now_us == pytest.approx(22, abs=0.3)


def test_what_else_differs_is_told(tmp_path):
    then = baseline.load(saved(tmp_path, results()))
    now = runs.run(cpus={"generator": 1, "compute": 1, "orders": 1})
    assert baseline.compare(then, now, "box8", "6.2", 10).differs == [
        "another host: box7 then, box8 now",
        "another kernel: 6.1.0 then, 6.2 now",
        "other CPUs: generator 1, compute 2, orders 3 then, generator 1, compute 1, orders 1 now",
    ]


@pytest.mark.parametrize(
    ("engine", "source", "words"),
    [
        ("null", Arrivals("poisson", "poisson", 10_000), "made with the engine cpu, this run is with null"),
        ("cpu", Arrivals("fixed", "fixed", 10_000), "has poisson arrivals, this run fixed ones"),
        ("cpu", Arrivals("poisson", "poisson", 10_020), "at 10,000 ticks a second, this run is at 10,020"),
    ],
)
def test_runs_that_do_not_compare_are_refused(tmp_path, engine, source, words):
    then = baseline.load(saved(tmp_path, results()))
    with pytest.raises(UsageError, match=words):
        baseline.refuse(then, engine, "", source)
    baseline.refuse(then, "cpu", "", Arrivals("poisson", "poisson", 10_001))


def test_the_same_engine_on_another_processor_is_told_and_not_refused(tmp_path):
    then = baseline.load(saved(tmp_path, results(engine="cpu avx2")))
    baseline.refuse(then, "cpu", "", Arrivals("poisson", "poisson", 10_000))
    found = baseline.compare(then, runs.run(engine="cpu avx512"), "box7", "6.1.0", 10)
    assert found.differs == ["another kind of engine: cpu avx2 then, cpu avx512 now"]


def test_another_model_and_other_recordings_are_refused(tmp_path):
    then = baseline.load(
        saved(tmp_path, results(engine="onnx"), About("b", "k", 1.0, "abc", "poisson", "", 1))
    )
    baseline.refuse(then, "onnx", "abc", Arrivals("poisson", "poisson", 10_000))
    with pytest.raises(UsageError, match=r"engine onnx \(abc\), this run is with onnx \(abd\)"):
        baseline.refuse(then, "onnx", "abd", Arrivals("poisson", "poisson", 10_000))
    ticks = np.zeros(3, dtype=[("time_ns", "<u8")])
    recorded = Arrivals("recorded", "a.csv", 10_000, ticks=ticks)
    then = baseline.load(
        saved(tmp_path, results(arrivals="recorded"), About("b", "k", 1.0, "", "a.csv", recorded.digest, 1))
    )
    baseline.refuse(then, "cpu", "", recorded)
    with pytest.raises(UsageError, match=r"other recorded ticks than those of b\.csv"):
        baseline.refuse(then, "cpu", "", Arrivals("recorded", "b.csv", 10_000, ticks=ticks[:2]))


def test_files_that_are_no_baseline(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        baseline.load(str(tmp_path / "none"))
    path = tmp_path / "other.json"
    for content in (b"", b"{}", b"[]", b"\xff", b'{"schema_version": "1"}', b"[" * 100_000):
        path.write_bytes(content)
        with pytest.raises(UsageError, match="is no report that `hwtune validate") as caught:
            baseline.load(str(path))
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="schema version '99'"):
        baseline.load(changed(tmp_path, schema_version="99"))
    with pytest.raises(UsageError, match="is damaged: window 1: "):
        good = hdr.to_base64(Histogram())
        baseline.load(changed(tmp_path, windows={"length_s": 0.1, "histograms": [good, good[:-9]]}))
    with pytest.raises(UsageError, match="windows that no run has"):
        baseline.load(changed(tmp_path, windows={"length_s": 0.1, "histograms": [""] * 2001}))
    huge = Histogram()
    for _ in range(33):  # doubling: above 32 bits
        huge.merge(huge) if huge.count else huge.record(5)
    with pytest.raises(UsageError, match="counts more than a run can"):
        baseline.load(changed(tmp_path, windows={"length_s": 0.1, "histograms": [hdr.to_base64(huge)]}))


# -- JUnit -------------------------------------------------------------------------------------


def cases(found, about=ABOUT):
    root = ElementTree.fromstring(junit.render(found, about))
    assert root.get("tests") == str(len(list(root.iter("testcase"))))
    outcomes = {}
    for case in root.iter("testcase"):
        (told,) = list(case)
        outcomes[case.get("name")] = (told.tag, told.get("message"))
    return root, outcomes


def test_junit_of_a_good_run():
    root, found = cases(results(stages={"inference": 100.0}, comparison=compared(verdict="not worse")))
    assert root.get("failures") == root.get("errors") == root.get("skipped") == "0"
    assert {name: tag for name, (tag, _) in found.items()} == {
        "sla": "system-out", "budget.inference": "system-out", "baseline": "system-out",
    }  # fmt: skip
    (suite,) = root
    assert (suite.get("hostname"), suite.get("timestamp")) == ("box7", "2023-11-14T22:13:20+00:00")


def test_junit_failures_are_what_the_exit_status_counts():
    root, found = cases(results(stages={"inference": 1.0}, sla_us=10, comparison=compared()))
    assert found["sla"] == ("failure", "P99 16.8 us of 10.0 us") or found["sla"][1].startswith("P99 16.7")
    assert found["baseline"][0] == "failure" and found["baseline"][1].startswith("worse, limit 10 %")
    assert found["budget.inference"][0] == "system-out"
    assert root.get("failures") == "2"


def test_junit_skips_what_cannot_be_told():
    _, found = cases(
        results(ticks=200, stages={"order": 1.0}, comparison=compared(verdict="cannot be told", why="w"))
    )
    assert found["sla"] == (
        "skipped",
        "cannot be told: at least 299 ticks are needed to tell a P99, 200 were due",
    )
    assert found["baseline"][0] == "skipped" and found["budget.order"][0] == "skipped"


def test_junit_of_a_failure_and_of_hostile_names():
    about = About(HOSTILE, HOSTILE, 1.7e9, "", HOSTILE, "", 1)
    root, found = cases(results(name=HOSTILE), about)
    assert found["sla"][0] == "error"
    assert root[0].get("hostname") == SHOWN


# -- Prometheus --------------------------------------------------------------------------------


def metrics(found, about=ABOUT):
    families = {}
    for family in text_string_to_metric_families(prometheus.render(found, about).decode()):
        assert family.name not in families and family.type == "gauge" and family.documentation.endswith(".")
        series = families.setdefault(family.name.removeprefix("hwtune_validate_"), {})
        for sample in family.samples:
            key = tuple(sorted(sample.labels.items()))
            assert key not in series and sample.timestamp is None
            series[key] = sample.value
    return families


def test_prometheus_has_seconds_by_stage_and_quantile():
    found = metrics(results(causes=CAUSES, stages={"order": 2.0}, comparison=compared(), **LATE))
    latency = found["latency_seconds"]
    assert latency[(("quantile", "0.5"), ("stage", "inference"))] == pytest.approx(15e-6, rel=0.02)
    assert len(latency) == 7 * 5
    assert found["budget_seconds"] == {(("stage", "order"),): 2e-6}
    assert found["sla_seconds"] == {(): 0.0032} and found["sla_met"] == {(): 1}
    assert found["outliers_by_cause"][(("kind", "switch"), ("name", "kworker/2:1"))] == 5
    assert found["baseline_change_ratio"] == {(): 0.5}
    assert found["baseline_verdict"][(("verdict", "worse"),)] == 1
    assert sum(found["baseline_verdict"].values()) == 1


def test_prometheus_leaves_out_what_is_not_known():
    found = metrics(results(ticks=200, threads=[runs.thread("compute", 2, migrations=None)]))
    assert "sla_met" not in found and "migrations" not in found and "baseline_verdict" not in found
    assert (("quantile", "0.99"), ("stage", "order")) not in found["latency_seconds"]
    assert (("quantile", "0.5"), ("stage", "order")) in found["latency_seconds"]


def test_prometheus_of_hostile_names():
    about = About(HOSTILE, HOSTILE, 1.7e9, "", HOSTILE, "", 1)
    found = metrics(results(name=HOSTILE, causes=[Cause("switch", HOSTILE, 3, 1.0, 1.0, ())]), about)
    assert dict(next(iter(found["info"])))["hostname"] == SHOWN


# -- HTML --------------------------------------------------------------------------------------


def page(found, about=ABOUT):
    return Page(html.render(found, about).decode())


def test_html_has_the_numbers_and_the_reading():
    found = page(
        results(causes=CAUSES, stages={"tick_queue": 100.0}, sla_us=500, comparison=compared(), **LATE)
    )
    assert found.texts("h1") == ["box7"]
    assert found.texts("p", "tally") == ["SLA missed, worse than before"]
    rows = [e.text for e in found.all("tr", "error")]
    assert len(rows) == 2 and rows[0].startswith("tick-queue100,000")
    assert any("most ticks are quick" in words for words in found.texts("p"))
    assert "IRQ 36 virtio1-req.0 33 of them, the longest 900 us irq.on-isolated, irq.default-affinity" in [
        " ".join(words.replace("virtio1-req.033", "virtio1-req.0 33").replace("usirq", "us irq").split())
        for words in found.texts("tr")
    ]


def test_html_of_hostile_names_is_no_markup():
    about = About(HOSTILE, HOSTILE, 1.7e9, "", HOSTILE, "", 1)
    causes = [Cause("switch", HOSTILE, 3, 1.0, 1.0, ())]
    found = page(results(name=HOSTILE, causes=causes, comparison=compared(differs=[HOSTILE]), **LATE), about)
    assert not found.all("script")
    assert found.texts("h1") == [" ".join(SHOWN.split())]
