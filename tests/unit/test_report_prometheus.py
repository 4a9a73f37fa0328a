"""The metrics, read by the parser of Prometheus's own Python client."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from hwtune.diagnosis import Verdict
from hwtune.diagnosis.engine import Diagnosis, judge
from hwtune.model import Machine
from hwtune.profile import load
from hwtune.report.prometheus import render
from tests.support.reports import HOSTILE, SHOWN, SnapshotHost, diagnosis, row

Series = dict[tuple[tuple[str, str], ...], float]


def metrics(found: Diagnosis, at: float | None = SnapshotHost.captured_at) -> dict[str, Series]:
    """name -> labels -> value; fails on a name or a series that is there twice, and on times."""
    host = SnapshotHost()
    host.captured_at = at  # type: ignore[assignment]
    content = render(found, host, load()).decode()  # type: ignore[arg-type]
    assert content.endswith("\n")
    families: dict[str, Series] = {}
    for family in text_string_to_metric_families(content):
        assert family.name not in families
        assert family.type == "gauge"
        assert family.documentation.endswith(".")
        series = families.setdefault(family.name, {})
        for sample in family.samples:
            key = tuple(sorted(sample.labels.items()))
            assert sample.name == family.name
            assert key not in series
            assert sample.timestamp is None
            series[key] = sample.value
    return families


def test_every_row_has_one_outcome_of_four() -> None:
    outcomes = metrics(diagnosis())["hwtune_row_outcome"]
    assert len(outcomes) == 7 * 4
    assert [(dict(k)["row"], dict(k)["outcome"]) for k, value in outcomes.items() if value == 1] == [
        ("cpu.tick", "finding"),
        ("memory.fine", "ok"),
        ("memory.none", "not-applicable"),
        ("memory.swappiness", "finding"),
        ("nvme.apst", "unknown"),
        ("nvme.silent", "unknown"),
        ("zz.broken", "unknown"),
    ]
    assert set(outcomes.values()) == {0, 1}


def test_findings_and_how_many_of_each_severity() -> None:
    found = metrics(diagnosis())
    assert found["hwtune_findings"] == {
        (("row", "cpu.tick"), ("severity", "error"), ("subject", "cpu:2-3")): 1,
        (("row", "cpu.tick"), ("severity", "info"), ("subject", "karg:nohz")): 1,
        (("row", "memory.swappiness"), ("severity", "warning"), ("subject", "nvme:nvme0")): 1,
    }
    assert found["hwtune_findings_by_severity"] == {
        (("severity", "error"),): 1,
        (("severity", "warning"),): 1,
        (("severity", "info"),): 1,
    }


def test_two_findings_of_one_subject_are_one_series() -> None:
    twice = Verdict().finding("memory", "one").finding("memory", "another")
    found = metrics(judge(Machine(), [row("a.b", twice)], load()))
    assert found["hwtune_findings"] == {(("row", "a.b"), ("severity", "warning"), ("subject", "memory")): 2}


def test_what_when_and_by_what() -> None:
    found = metrics(diagnosis())
    labels = {
        "version": "0.1.0",
        "profile": "low-latency",
        "source": "snapshot",
        "hostname": "box7",
        "kernel": "6.1.0",
    }
    assert found["hwtune_doctor_info"] == {tuple(sorted(labels.items())): 1}
    assert found["hwtune_doctor_timestamp_seconds"] == {(): 1_700_000_000}
    assert found["hwtune_doctor_defects"] == {(): 2}


def test_a_time_that_is_not_known_is_not_told() -> None:
    for at in (None, float("nan"), float("inf")):
        assert "hwtune_doctor_timestamp_seconds" not in metrics(diagnosis(), at)


def test_a_healthy_machine_has_no_finding_and_says_so() -> None:
    found = metrics(judge(Machine(), [row("a.b", Verdict().ok())], load()))
    assert found["hwtune_findings"] == {}
    assert set(found["hwtune_findings_by_severity"].values()) == {0}
    assert found["hwtune_doctor_defects"] == {(): 0}


def test_hostile_names_stay_in_their_label() -> None:
    found = metrics(diagnosis(HOSTILE))
    assert (("row", "memory.swappiness"), ("severity", "warning"), ("subject", SHOWN)) in found[
        "hwtune_findings"
    ]
    line = 'evil"} 1\nhwtune_findings{row="x",severity="error",subject="forged'
    found = metrics(judge(Machine(), [row("a.b", Verdict().finding(line, "m"))], load()))
    assert list(found["hwtune_findings"]) == [
        (("row", "a.b"), ("severity", "warning"), ("subject", line.replace("\n", "\\n")))
    ]
