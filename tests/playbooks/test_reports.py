"""What the module makes of reports: each from hwtune's own types, so that a field that is renamed there is
missed here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hwtune.changes.apply import Applied, Outcome
from hwtune.changes.revert import Restored, Reverted, WayBack
from hwtune.changes.verify import Verified
from hwtune.report.changes import FileChange, SetState, VerifyReport, of_apply, of_revert
from hwtune.report.published import SCHEMA_VERSION, encode
from tests.playbooks import measured
from tests.playbooks.test_collection import reading_module

reports = reading_module("reports")
client = reading_module("client")
arguments = reading_module("arguments")


def plain(report: Any) -> dict[str, Any]:
    """A report as the module gets it."""
    read: dict[str, Any] = json.loads(encode(report))
    return read


def outcome(status: str, row: str = "memory.swappiness", **more: Any) -> Outcome:
    fields = {"before": "60", "after": "1", **more}
    return Outcome(
        "c1", "sysctl", "sysctl:vm.swappiness", "set sysctl vm.swappiness = 1", [row], status=status, **fields
    )


# -- apply ---------------------------------------------------------------------------------------


def test_nothing_to_do_is_no_change() -> None:
    read = reports.applied(plain(of_apply(Applied(None, [outcome("unchanged")], []), False)), False)
    assert (read.result["changed"], read.failure, read.diff) == (False, "", [])
    assert read.result["msg"] == "nothing to change"


def test_changes_that_were_made() -> None:
    applied = Applied("s1", [outcome("changed"), outcome("changed", reboot_required=True)], [])
    read = reports.applied(plain(of_apply(applied, False)), False)
    assert (read.result["changed"], read.result["set"], read.failure) == (True, "s1", "")
    assert read.result["msg"] == "2 changes made, of which some take effect at the next boot"
    assert read.result["reboot_required"] is True
    assert read.diff[0] == {
        "before_header": "sysctl:vm.swappiness",
        "after_header": "sysctl:vm.swappiness",
        "before": "60\n",
        "after": "1\n",
    }


def test_failure_names_row_reason_and_the_next_step() -> None:
    reason = "cannot write /proc/sys/vm/swappiness: Read-only file system"
    applied = Applied("s1", [outcome("failed", reason=reason), outcome("changed", "memory.ksm")], [])
    read = reports.applied(plain(of_apply(applied, False)), False)
    assert read.result["changed"] is True  # the other change is there
    assert read.failure == (
        "1 of 2 changes failed: set sysctl vm.swappiness = 1 (row memory.swappiness): "
        "cannot write /proc/sys/vm/swappiness: Read-only file system. 1 change is in force as set s1. "
        "Next: mend that and run this again, or leave out what cannot be had with "
        "`skip: [memory.swappiness]`; state reverted with `set_id: s1` puts the others back"
    )


def test_store_that_could_not_be_written_fails_the_task() -> None:
    read = reports.applied(
        plain(of_apply(Applied(None, [], ["sysctl: No space left on device"]), False)), False
    )
    assert read.failure.startswith("not kept across boots: sysctl: No space left on device. Next: ")


@pytest.mark.parametrize("strict", [False, True])
def test_what_is_not_allowed_is_told(strict: bool) -> None:
    refused = outcome("not-allowed", reason="takes a reboot", disruption="reboot")
    read = reports.applied(plain(of_apply(Applied(None, [refused], []), False)), strict)
    sentence = (
        "1 change is not allowed here (reboot): set sysctl vm.swappiness = 1 (row memory.swappiness). "
        "Next: name in `allow` what may happen to this host"
    )
    assert (read.failure, read.warnings) == ((sentence, []) if strict else ("", [sentence]))
    assert [change["rows"] for change in read.result["not_allowed"]] == [["memory.swappiness"]]


def test_of_many_failures_three_are_named() -> None:
    failed = [outcome("failed", f"row.{n}", reason="no") for n in range(5)]
    read = reports.applied(plain(of_apply(Applied(None, failed, []), False)), False)
    assert "(row row.2): no; and 2 more. Next" in read.failure
    assert "skip: [row.0, row.1, row.2, row.3, row.4]" in read.failure


def test_differences_of_files_are_hwtunes_own() -> None:
    files = [
        FileChange(
            "/etc/x.conf", "file", "sysctl", "create", "--- /dev/null\n+++ /etc/x.conf\n@@ -0,0 +1 @@\n+a"
        ),
        FileChange("/etc/hwtune", "directory", "unit", "create", ""),
    ]
    report = plain(of_apply(Applied(None, [], []), True)) | {
        "changed": True,
        "files": [plain(f) for f in files],
    }
    read = reports.applied(report, False)
    assert read.diff[0] == {"prepared": "--- /dev/null\n+++ /etc/x.conf\n@@ -0,0 +1 @@\n+a\n"}
    assert (read.diff[1]["before"], read.diff[1]["after"]) == ("absent\n", "there\n")


# -- verify --------------------------------------------------------------------------------------


def verify_report(*changes: Verified, sets: tuple[SetState, ...] = (), running: str = "") -> dict[str, Any]:
    whole = all(change.status == "in-force" for change in changes) and not sets
    return plain(VerifyReport(SCHEMA_VERSION, whole, list(sets), list(changes), running, []))


def held(status: str, reason: str = "", suspects: tuple[str, ...] = ()) -> Verified:
    return Verified("sysctl:vm.swappiness", "s1", "1", "60", status, reason, list(suspects))


def test_all_in_force() -> None:
    read = reports.verified(verify_report(held("in-force")), False)
    assert (read.failure, read.result["in_force"], read.result["held"]) == ("", True, 1)


def test_drift_names_who_may_have_done_it() -> None:
    read = reports.verified(verify_report(held("drifted", "", ("tuned.service",))), False)
    assert read.failure == (
        "1 setting is not in force: sysctl:vm.swappiness is 60 and should be 1 (could have been set by "
        "tuned.service). Next: stop what sets it, then state applied sets it again; "
        "or state reverted gives it up"
    )
    assert read.result["changed"] is False


def test_what_waits_for_a_boot_fails_unless_that_is_fine() -> None:
    report = verify_report(held("pending-reboot", "it takes effect at the next boot"))
    assert reports.verified(report, False).failure.endswith("Next: reboot this host")
    read = reports.verified(report, True)
    assert (read.failure, read.result["reboot_required"], read.result["drifted"]) == ("", True, [])


def test_drift_fails_even_where_waiting_is_fine() -> None:
    read = reports.verified(verify_report(held("drifted"), held("pending-reboot")), True)
    assert read.failure.startswith("1 setting is not in force")


def test_interrupted_set_fails() -> None:
    report = verify_report(sets=(SetState("s1", "t", "interrupted"),))
    failure = reports.verified(report, True).failure
    assert failure.startswith("set s1 is interrupted. Next: state applied settles")


def test_damaged_journal_fails() -> None:
    report = verify_report() | {"in_force": False, "journal": ["line 3 is damaged"]}
    assert reports.verified(report, True).failure.startswith("the journal is damaged: line 3 is damaged")


# -- revert --------------------------------------------------------------------------------------


def test_revert() -> None:
    back = WayBack(
        [Reverted("s1", [Restored("sysctl:vm.swappiness", "1", "60", "restored")], [])], [], [], True
    )
    read = reports.reverted(plain(of_revert(back, False)))
    assert (read.failure, read.result["changed"], read.result["reboot_required"]) == ("", True, True)
    assert read.result["msg"] == "1 setting put back"
    assert read.diff[0]["after"] == "60\n"


def test_nothing_to_revert_is_no_change() -> None:
    read = reports.reverted(plain(of_revert(WayBack([], [], [], False), False)))
    assert (read.failure, read.result["changed"], read.result["msg"]) == ("", False, "nothing to put back")


def test_what_somebody_changed_since_fails_the_task() -> None:
    kept = Restored("sysctl:vm.swappiness", "30", "30", "kept", "someone changed it since")
    read = reports.reverted(plain(of_revert(WayBack([Reverted("s1", [kept], [])], [], [], False), False)))
    assert read.failure == (
        "left alone: sysctl:vm.swappiness: someone changed it since. "
        "Next: `force: true` overwrites what someone else changed since"
    )


# -- hwtune's arguments --------------------------------------------------------------------------


def parameters(state: str, **given: Any) -> dict[str, Any]:
    empty = dict.fromkeys(arguments.MEASURE)
    defaults = {
        "profile": None,
        "set": [],
        "only": [],
        "skip": [],
        "allow": [],
        "runtime_only": False,
        "active": False,
    }
    return {**defaults, "set_id": None, "force": False, **empty, "state": state, **given}


def test_arguments_are_a_list_that_no_value_can_break_out_of() -> None:
    given = parameters("applied", only=["memory.*; reboot"], set=["a=$(reboot)"], allow=["boot", "link"])
    assert arguments.command_line(given, False) == [
        "apply", "--format", "json", "--set", "a=$(reboot)", "--only", "memory.*; reboot",
        "--allow", "boot,link", "--yes",
    ]  # fmt: skip
    assert arguments.command_line(given, True)[-1] == "--check"


def test_set_to_revert_cannot_be_taken_for_an_option() -> None:
    given = parameters("reverted", set_id="--all")
    assert arguments.command_line(given, False) == ["revert", "--format", "json", "--yes", "--", "--all"]
    assert arguments.command_line(parameters("reverted"), True)[-2:] == ["--check", "--all"]


def test_numbers_are_written_as_they_were_meant() -> None:
    given = parameters("validated", rate=100000.0, sla_us=3200.5, max_regression="10%")
    line = arguments.command_line(given, False)
    assert line == [
        "validate", "--format", "json", "--rate", "100000", "--sla-us", "3200.5", "--max-regression", "10%",
    ]  # fmt: skip


# -- hwtune that is not what is expected ---------------------------------------------------------


def says(*answers: tuple[int, str, str]) -> Any:
    left = list(answers)
    return client.Client("/opt/hwtune/bin/hwtune", lambda argv: left.pop(0))


VERSION = (0, "hwtune 0.1.0\n", "")


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([(0, "not json", "")], "printed no report: not a word on stderr either"),
        ([(0, "[]", "")], "printed no report"),
        ([(0, '{"schema_version": "2"}', ""), VERSION], "reads version 1; install a newer collection"),
        ([(0, '{"schema_version": "0"}', ""), VERSION], "reads version 1; install a newer hwtune"),
        ([(2, "", "hwtune: there is no command 'validate'; see\n"), VERSION], "hwtune 0.1.0 is too old"),
        ([(2, "", "hwtune: No such option '--x'.\n"), VERSION], "hwtune 0.1.0 is too old"),
        ([(3, "", "hwtune: only root may apply changes; run it with sudo\n")], "set `become: true`"),
        ([(3, "", "warning\nhwtune: pid 7 holds the lock\n")], "pid 7 holds the lock"),
        ([(-9, "", "")], "ended by a signal (status -9)"),
        ([(3, "", "")], "ended with 3 and said nothing"),
    ],
)  # fmt: skip
def test_what_is_no_report_is_told_with_what_to_do(answers: list[tuple[int, str, str]], told: str) -> None:
    with pytest.raises(client.ClientError) as raised:
        says(*answers).report(["verify"])
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((0, "hwtune 0.0.9\n", ""), "hwtune 0.0.9 is too old for this collection, which needs 0.1.0"),
        ((1, "", "Traceback\nModuleNotFoundError: No module named 'click'\n"), "No module named 'click'"),
        ((0, "something else\n", ""), "is no hwtune that works: something else"),
    ],
)
def test_version_that_will_not_do(answer: tuple[int, str, str], told: str) -> None:
    with pytest.raises(client.ClientError) as raised:
        says(answer).version()
    assert told in str(raised.value)


def test_versions_are_compared_as_numbers() -> None:
    assert client.numbers("0.10.0rc1") == (0, 10, 0) > client.numbers("0.9.9")
    assert says((0, "hwtune 0.10.0rc1\n", "")).version() == "0.10.0rc1"


# -- validate ------------------------------------------------------------------------------------


def test_measurements_of_light_hosts_have_the_shape_of_hwtunes() -> None:
    from jsonschema import Draft202012Validator

    from hwtune.report.schema import schema

    for before in (None, 250.0):
        made = measured.report(300.0, 3200.0, "/x.json", before, 10.0)
        assert not list(Draft202012Validator(schema("validate")).iter_errors(made))


def test_measurement_within_all_limits() -> None:
    made = measured.report(300.0, 3200.0, "/x.json", 300.0, 10.0)
    read = reports.validated(made, 0, ["sla", "baseline"])
    assert (read.failure, read.warnings, read.result["missed"], read.result["within"]) == ("", [], [], True)
    assert read.result["p99_us"] == 300.0
    assert not {"histograms", "windows", "threads", "outliers"} & read.result.keys()


def test_worse_than_before_names_both_and_where_to_look() -> None:
    made = measured.report(360.0, 3200.0, "/x.json", 300.0, 10.0)
    read = reports.validated(made, 1, ["sla", "baseline"])
    assert read.failure == (
        "the baseline was missed: P99 360 us end to end over 100000 ticks, 20 % more than the 300 us before "
        "(limit 10 %). P50 is low and P99 is high. "
        "Next: `hwtune doctor --only memory.dirty-limits` on the host"
    )
    assert reports.validated(made, 1, ["sla"]).failure == ""


def test_missed_sla_fails_only_where_it_is_required() -> None:
    made = measured.report(4000.0, 3200.0, "", None, 10.0)
    assert reports.validated(made, 1, ["sla"]).failure.startswith(
        "the SLA of 3200 us was missed: P99 4000 us"
    )
    read = reports.validated(made, 1, ["baseline"])
    assert (read.failure, read.result["missed"], read.result["within"]) == ("", ["sla"], False)


def test_comparison_that_cannot_be_told_is_a_warning() -> None:
    made = measured.report(360.0, 3200.0, "/x.json", 300.0, 10.0)
    made["baseline"].update(verdict="cannot be told", why="too few windows", change_pct=None)
    read = reports.validated(made, 0, ["sla", "baseline"])
    assert read.failure == ""
    assert read.warnings == ["whether it is worse than before cannot be told: too few windows"]


def test_verdict_of_unknown_reason_counts_as_both() -> None:
    made = measured.report(300.0, 3200.0, "", None, 10.0)
    assert reports.validated(made, 1, ["sla"]).result["missed"] == ["sla", "baseline"]
    assert reports.validated(made, 1, ["sla"]).failure


def test_doctor_measures_only_when_asked() -> None:
    assert arguments.command_line(parameters("diagnosed"), False) == [
        "doctor", "--format", "json", "--fail-on", "never",
    ]  # fmt: skip
    assert "--active" in arguments.command_line(parameters("diagnosed", active=True), False)
