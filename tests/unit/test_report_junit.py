"""The JUnit report, read as CI systems read it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from hwtune.diagnosis.engine import Diagnosis
from hwtune.model import Machine
from hwtune.profile import load
from hwtune.report.clean import clean
from hwtune.report.junit import render
from tests.support.reports import HOSTILE, SHOWN, SnapshotHost, diagnosis


def report(fail_on: str = "warning", name: str = "nvme:nvme0") -> ElementTree.Element:
    return ElementTree.fromstring(render(diagnosis(name), SnapshotHost(), load(), fail_on))  # type: ignore[arg-type]


def case(root: ElementTree.Element, name: str) -> ElementTree.Element:
    (found,) = [c for c in root.iter("testcase") if c.get("name") == name]
    return found


def counts(element: ElementTree.Element) -> tuple[str | None, ...]:
    return tuple(element.get(key) for key in ("tests", "failures", "errors", "skipped"))


def test_a_suite_is_a_subsystem_and_counts_its_rows() -> None:
    root = report()
    assert (root.tag, root.get("name"), counts(root)) == ("testsuites", "hwtune doctor", ("8", "2", "2", "3"))
    assert {s.get("name"): counts(s) for s in root} == {
        "cpu": ("1", "1", "0", "0"),
        "memory": ("3", "1", "0", "1"),
        "nvme": ("2", "0", "0", "2"),
        "zz": ("1", "0", "1", "0"),
        "hwtune": ("1", "0", "1", "0"),
    }
    for suite in root:
        assert (suite.get("hostname"), suite.get("timestamp")) == ("box7", "2023-11-14T22:13:20+00:00")
        assert {p.get("name"): p.get("value") for p in suite.iter("property")} == {
            "hwtune": "0.1.0",
            "profile": "low-latency",
            "kernel": "6.1.0",
            "source": "snapshot",
        }


def test_a_finding_that_counts_is_a_failure_with_all_that_the_row_said() -> None:
    tick = case(report(), "cpu.tick")
    assert tick.get("classname") == "hwtune.cpu"
    (failure,) = tick
    assert (failure.tag, failure.get("type"), failure.get("message")) == (
        "failure",
        "error",
        "cpu:2-3: The tick runs.",
    )
    assert failure.text == "\n".join(
        [
            "error: cpu:2-3: The tick runs.",
            "  /proc/cmdline: quiet (should be nohz_full=2-3)",
            "  /proc/interrupts: LOC 99",
            "Fix: boot with nohz_full=2-3 (takes effect at the next boot)",
            "Fix: Reboot then.",
            "",
            "info: karg:nohz: nohz=off is moot.",
            "",
            "unknown: cpu:1: CPU 1 is offline (what would make it known: take it online)",
        ]
    )


@pytest.mark.parametrize(
    ("fail_on", "failed"),
    [
        ("info", ["cpu.tick", "memory.swappiness"]),
        ("warning", ["cpu.tick", "memory.swappiness"]),
        ("error", ["cpu.tick"]),
        ("never", []),
    ],
)
def test_what_counts_follows_fail_on(fail_on: str, failed: list[str]) -> None:
    root = report(fail_on)
    assert [c.get("name") for c in root.iter("testcase") if c.find("failure") is not None] == failed
    assert root.get("failures") == str(len(failed))


def test_findings_that_do_not_count_are_told_and_pass() -> None:
    (output,) = case(report("error"), "memory.swappiness")
    assert output.tag == "system-out"
    assert output.text == "\n".join(
        [
            "warning: nvme:nvme0: nvme:nvme0",
            "  nvme:nvme0: nvme:nvme0 (should be nvme:nvme0)",
            "Fix: set sysctl vm.swappiness = 10",
            "Fix: nvme:nvme0",
        ]
    )


def test_several_findings_count_in_the_message_of_the_worst() -> None:
    (failure,) = case(report("info"), "cpu.tick")
    assert failure.get("message") == "cpu:2-3: The tick runs. (and 1 more)"


def test_what_was_not_judged_is_skipped_with_the_reason() -> None:
    root = report()
    told = {}
    for name in ("memory.none", "nvme.apst", "nvme.silent"):
        (skipped,) = case(root, name)
        assert skipped.tag == "skipped"
        told[name] = (skipped.get("message"), skipped.text)
    assert told == {
        "memory.none": ("not applicable: no swap for nvme:nvme0",) * 2,
        "nvme.apst": (
            "unknown: nvme:nvme0 needs root",
            "unknown: nvme:nvme0: nvme:nvme0 needs root (what would make it known: run as root)",
        ),
        "nvme.silent": ("unknown: the row came to no verdict",) * 2,
    }


def test_what_is_good_says_nothing() -> None:
    assert len(case(report(), "memory.fine")) == 0


def test_a_defect_is_an_error_of_its_row_or_of_hwtune() -> None:
    root = report()
    (of_row,) = case(root, "zz.broken")
    (of_probe,) = case(root, "hwtune.probe pci")
    assert (of_row.tag, of_probe.tag) == ("error", "error")
    assert (of_row.get("message") or "").startswith("ZeroDivisionError: by zero at reports.py:")
    assert (of_probe.get("message"), of_probe.text) == ("ValueError: odd",) * 2


def test_nothing_judged_is_still_a_document() -> None:
    root = ElementTree.fromstring(render(Diagnosis(Machine(), []), SnapshotHost(), load(), "warning"))  # type: ignore[arg-type]
    assert (len(root), counts(root)) == (0, ("0", "0", "0", "0"))


def test_hostile_names_are_text() -> None:
    root = report(name=HOSTILE)
    assert {e.tag for e in root.iter()} == {
        *("testsuites", "testsuite", "properties", "property", "testcase"),
        *("failure", "error", "skipped"),
    }
    (failure,) = case(root, "memory.swappiness")
    assert failure.get("message") == f"{SHOWN}: {SHOWN}"
    assert f"  {SHOWN}: {SHOWN} (should be {SHOWN})" in (failure.text or "")


def test_no_character_breaks_the_document() -> None:
    """XML 1.0 (2.2): #x9, #xA, #xD, #x20-#xD7FF, #xE000-#xFFFD, #x10000-#x10FFFF, and no others."""
    for code in range(0x10000):
        for c in clean(chr(code)):
            assert 0x20 <= ord(c) <= 0xD7FF or 0xE000 <= ord(c) <= 0xFFFD
