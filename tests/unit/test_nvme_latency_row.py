"""nvme.latency-jitter: what was measured, judged by the profile; and doctor's --active."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from hwtune.cli.doctor import command
from hwtune.errors import UsageError
from hwtune.host.libraries import LibraryGap, drive_latency
from hwtune.model.storage import DriveLatency
from tests.support import Gap, host
from tests.support.drives import at_random, control, gaps_at, measured, phase, report, resting, train
from tests.support.nvme_box import files
from tests.support.rows import diagnose_one

ROW = "nvme.latency-jitter"
SOURCE = "reads of /dev/nvme0n1"


def answer(kind: str, stall_s: float = 0.8e-3) -> dict[str, Any]:
    """What the library says of a simulated drive, read for 20 s."""
    starts = {"regular": train(2.3, 20.0, 1), "random": at_random(30, 20.0, 1)}.get(kind, np.empty(0))
    rests = resting({150.0: 5e-3, 400.0: 5e-3, 1000.0: 5e-3, 2300.0: 5e-3}) if kind == "sleeps" else None
    away = control(2.0, gaps_at(np.arange(0, 2, 0.01), 2e-3)) if kind == "busy" else control(2.0)
    found = report(measured(phase("quiet", starts, stall_s, 20.0, 1), rests=rests, control=away))
    return drive_latency.summary("nvme0n1", found)


def box(tmp_path, said, active=True):
    machine = host(tmp_path, files(), complete=True, libraries={("drive_latency", "nvme0n1"): said})
    machine.active = active
    return machine


def judged(tmp_path, said, settings=()):
    return diagnose_one(box(tmp_path, said), ROW, settings=settings)


def test_unmeasured_it_says_how_to_measure(tmp_path):
    result = diagnose_one(box(tmp_path, {}, active=False), ROW)
    assert result.outcome == "not-applicable"
    assert "hwtune doctor --active --only nvme.latency-jitter" in result.reason


def test_a_drive_that_stalls_in_a_rhythm(tmp_path):
    result = judged(tmp_path, {"nvme0n1": answer("regular")})
    (finding,) = result.findings
    assert (finding.subject, finding.severity) == ("nvme:nvme0", "warning")
    assert "every 2.3 s" in finding.message
    assert (finding.evidence[0].source, finding.evidence[0].expected) == (SOURCE, "at most 200 us")
    us, _, period = finding.evidence[0].value.partition(" us every ")
    assert float(us) == pytest.approx(800, rel=0.2)
    assert period == "2.3 s"
    assert any("the chance of that among stalls at random times" in e.value for e in finding.evidence)


def test_what_the_profile_does_not_mind_is_no_finding(tmp_path):
    result = judged(tmp_path, {"nvme0n1": answer("regular")}, ["nvme.stall_max_us=2000"])
    assert result.outcome == "ok"
    assert result.reason == "what holds reads of nvme0 up is below 2000 us (nvme.stall_max_us)"


def test_a_steady_drive_is_good_by_its_numbers(tmp_path):
    result = judged(tmp_path, {"nvme0n1": answer("clean")})
    assert result.outcome == "ok"
    assert result.evidence[0].source == SOURCE
    assert "reads in 20 s: P50 80 us" in result.evidence[0].value


@pytest.mark.parametrize(("kind", "words"), [("random", "Reads stall"), ("sleeps", "The drive sleeps")])
def test_other_stalls(tmp_path, kind, words):
    (finding,) = judged(tmp_path, {"nvme0n1": answer(kind)}).findings
    assert finding.message.startswith(words)


def test_a_busy_host_makes_it_unknown(tmp_path):
    result = judged(tmp_path, {"nvme0n1": answer("busy")})
    assert result.outcome == "unknown"
    assert "the drive cannot be told from the host" in result.reason
    assert result.unknowns[0].remedy == "hwtune nvme-latency nvme0n1 --cpu N, on a quiet CPU"


def test_a_drive_that_may_not_be_read(tmp_path):
    said = {"nvme0n1": {"error": "/dev/nvme0n1 may not be read (Permission denied).", "gap": "denied"}}
    result = judged(tmp_path, said)
    assert (result.outcome, result.unknowns[0].remedy) == ("unknown", "run as root")


@pytest.mark.parametrize("said", [{}, {"nvme0n1": {"odd": 1}}, [], Gap("unreadable", "no native module")])
def test_no_answer_is_unknown(tmp_path, said):
    assert judged(tmp_path, said).outcome == "unknown"


def test_errors_are_told_whatever_the_profile(tmp_path):
    said = answer("clean")
    said["findings"] = [
        {"kind": "errors", "severity": "warning", "says": "3 reads failed.", "rests_on": [], "advice": "x"}
    ]
    result = judged(tmp_path, {"nvme0n1": said}, ["nvme.stall_max_us=100000"])
    assert result.findings[0].evidence[0].value == "errors"


def test_what_the_library_says_is_what_the_machine_has():
    found = msgspec.convert(answer("regular"), DriveLatency)
    assert found.period_s == pytest.approx(2.3, rel=0.02)
    assert found.findings[0].us == found.period_stall_us
    assert found.stalls == 9


def test_a_drive_that_is_not_there_is_told():
    assert "cannot be looked at" in drive_latency.query("nosuchdisk")["nosuchdisk"]["error"]


def test_one_minute_is_enough_for_so_many_drives(monkeypatch):
    """Two CPUs: one drive at once, two rounds; the third is not measured."""
    monkeypatch.setattr(drive_latency.os, "sched_getaffinity", lambda _: {0, 1})
    told = drive_latency.query("nosuch1", "nosuch2", "nosuch3")
    assert "cannot be looked at" in told["nosuch2"]["error"]
    assert "`hwtune nvme-latency nosuch3` measures it" in told["nosuch3"]["error"]


def test_without_the_native_module_it_is_a_gap(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "hwtune._native", None)
    with pytest.raises(LibraryGap, match="native module"):
        drive_latency.query("nvme0n1")


# -- doctor --active -----------------------------------------------------------------------------


def test_a_snapshot_cannot_be_measured(tmp_path):
    done = CliRunner().invoke(command, ["--active", "--snapshot", str(tmp_path)], standalone_mode=False)
    assert isinstance(done.exception, UsageError)
    assert "a snapshot can only be read" in str(done.exception)


def test_doctor_measures_only_when_asked(monkeypatch):
    asked = []
    from hwtune.cli import doctor
    from hwtune.diagnosis import engine

    def probe(found):
        asked.append(found.active)
        return real(found)

    real = engine.probe
    monkeypatch.setattr(engine, "probe", probe)
    monkeypatch.setattr(drive_latency, "query", lambda *_: {})
    for arguments in ([], ["--active"], ["--active", "--only", "clock.*"]):
        done = CliRunner().invoke(doctor.command, ["--fail-on", "never", *arguments], standalone_mode=False)
        assert done.exception is None, done.exception
        assert ("Reads each NVMe drive" in done.stderr) == (arguments == ["--active"])
    assert asked == [False, True, False]
