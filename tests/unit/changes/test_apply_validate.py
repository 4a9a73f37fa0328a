"""apply --validate: what is said of the run before and the run after, and what comes of it."""

from __future__ import annotations

from typing import Any

import pytest

from hwtune.changes.apply import Applied, Outcome
from hwtune.cli import apply as command
from hwtune.errors import EXIT_FINDINGS, EXIT_OK, ToolError
from hwtune.validate import before_after
from tests.support.runs import run

DONE = Outcome("c1", "sysctl", "sysctl:vm.swappiness", "set it", ["test.row"], "60", "1", "changed")


def said(capsys: pytest.CaptureFixture[str], before: Any, after: Any) -> tuple[int, list[str]]:
    found = before_after.compare(before, after)
    status = command._report(Applied("s1", [DONE], []), False, "text", None, check=False, measured=found)
    return status, capsys.readouterr().out.splitlines()[2:]


def test_run_that_got_worse_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    # 2 % of the ticks wait 30 us more: P99 goes from about 16.6 us to about 46 us
    status, lines = said(capsys, run(), run(late={"inference": 30_000}))
    assert status == EXIT_FINDINGS
    assert len(lines) == 1
    assert lines[0].startswith("P99 end to end: 16.") and ": worse by more than 10 %." in lines[0]


def test_run_that_got_better_or_stayed_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    for before in (run(late={"inference": 30_000}), run()):
        status, (line,) = said(capsys, before, run())
        assert status == EXIT_OK
        assert line.endswith(": not worse by more than 10 %.")


def test_what_cannot_be_told_is_said_and_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, run(ticks=40), run(ticks=40))
    assert status == EXIT_OK
    assert lines[0].endswith(": cannot be told.")
    assert "at least" in lines[1]


def test_other_cpus_and_runs_cut_short_are_told() -> None:
    after = run(cpus={"generator": 1, "compute": 6, "orders": 7}, interrupted=True)
    assert before_after.compare(run(), after).differs == [
        "other CPUs: generator 1, compute 2, orders 3 before, generator 1, compute 6, orders 7 after",
        "one of the runs was cut short",
    ]


def test_run_that_fails_after_the_change_does_not_hide_the_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(before_after, "run_once", lambda shown: run(failure="the device is gone"))
    measured, problem = command._compared(run())
    assert measured is None
    assert problem == "validate: the run after the change failed: the device is gone"
    with pytest.raises(ToolError, match="the run before the change failed: the device is gone"):
        command._measured("before")
    monkeypatch.setattr(before_after, "run_once", lambda shown: run(interrupted=True))
    with pytest.raises(ToolError, match="nothing was changed"):
        command._measured("before")
