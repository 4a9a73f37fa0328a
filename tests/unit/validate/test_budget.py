"""The budget of stages, and the SLA."""

from __future__ import annotations

import os

import pytest

from hwtune.errors import UsageError
from hwtune.validate.budget import load
from hwtune.validate.run import STAGES


def written(tmp_path, text):
    path = tmp_path / "budget.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_built_in_budget_is_within_the_sla():
    budget = load(None, None)
    assert budget.sla_us == 3200
    assert set(budget.stages) == set(STAGES)
    assert budget.planned_us <= 3200
    assert budget.stages["inference"] == 1800


def test_another_sla_is_shared_alike():
    budget = load(None, 320)
    assert budget.sla_us == 320
    assert budget.stages["inference"] == pytest.approx(180)
    assert budget.planned_us <= 320


def test_a_file_says_which_stages_have_one(tmp_path):
    budget = load(written(tmp_path, 'inference = 500\n"tick-queue" = 12.5\nend-to-end = 900\n'), None)
    assert budget.stages == {"tick-queue": 12.5, "inference": 500.0}
    assert budget.sla_us == 900
    assert load(budget.source, 700).sla_us == 700, "the command line is above the file"
    assert load(written(tmp_path, "inference = 500\n"), None).sla_us == 3200


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("inferense = 5\n", "'inferense' that is no stage; did you mean inference?"),
        ("end_to_end = 5\n", "did you mean end-to-end?"),
        ("zzzzqqq = 5\n", "the stages are generate, tick-queue"),
        ("inference = 'fast'\n", "inference is a number of microseconds, not 'fast'"),
        ("inference = true\n", "is a number of microseconds, not True"),
        ("inference = 0\n", "must be above 0"),
        ("inference = -1\n", "must be above 0"),
        ("inference = nan\n", "must be above 0"),
        ("inference = inf\n", "must be above 0"),
        ("inference = 1e12\n", "at most 100,000,000"),
        ("[stages]\ninference = 1\n", "'stages' that is no stage"),
        ("inference = \n", "is not valid TOML"),
        ("", "names no stage"),
        ("x" * 70_000, "larger than 65,536 bytes"),
    ],
)
def test_bad_budgets_are_one_sentence(tmp_path, text, words):
    with pytest.raises(UsageError, match=words) as caught:
        load(written(tmp_path, text), None)
    assert "\n" not in str(caught.value).strip()


def test_no_file_and_no_ordinary_file(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        load(str(tmp_path / "none"), None)
    with pytest.raises(UsageError, match="cannot be read"):
        load(str(tmp_path), None)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a regular file"):
        load(str(tmp_path / "pipe"), None)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not valid TOML"):
        load(str(binary), None)


@pytest.mark.parametrize("sla", [0, -1, float("nan"), float("inf"), 1e9])
def test_bad_slas(sla):
    with pytest.raises(UsageError, match="--sla-us"):
        load(None, sla)
