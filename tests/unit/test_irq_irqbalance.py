"""irqbalance's environment: systemd's files, and setup_banned_cpus() of irqbalance."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwtune.probes import _irqbalance
from hwtune.text.irqbalance import effective_ban, parse_environment, parse_unit
from tests.support import host


@pytest.mark.parametrize(
    ("environment", "cpus", "variable"),
    [
        ({}, None, ""),
        ({"IRQBALANCE_ARGS": "--foreground"}, None, ""),
        ({"IRQBALANCE_BANNED_CPULIST": "2-3,6"}, [2, 3, 6], "IRQBALANCE_BANNED_CPULIST"),
        ({"IRQBALANCE_BANNED_CPUS": "f8"}, [3, 4, 5, 6, 7], "IRQBALANCE_BANNED_CPUS"),
        ({"IRQBALANCE_BANNED_CPUS": "0000010"}, [4], "IRQBALANCE_BANNED_CPUS"),
        ({"IRQBALANCE_BANNED_CPUS": "1,00000000"}, [32], "IRQBALANCE_BANNED_CPUS"),
        # the mask hides the list; zero is a mask that bans nothing
        ({"IRQBALANCE_BANNED_CPUS": "0", "IRQBALANCE_BANNED_CPULIST": "2-3"}, [], "IRQBALANCE_BANNED_CPUS"),
        # an empty mask counts as unset
        ({"IRQBALANCE_BANNED_CPUS": "", "IRQBALANCE_BANNED_CPULIST": "2"}, [2], "IRQBALANCE_BANNED_CPULIST"),
    ],
)
def test_effective_ban(environment: dict[str, str], cpus: list[int] | None, variable: str) -> None:
    ban = effective_ban(environment)
    assert (ban.cpus, ban.variable, ban.empty, ban.invalid) == (cpus, variable, False, False)


@pytest.mark.parametrize(
    ("name", "value"), [("CPULIST", "-"), ("CPULIST", "4-N"), ("CPUS", "0x10"), ("CPUS", "2-3")]
)
def test_what_irqbalance_cannot_read_bans_nothing(name: str, value: str) -> None:
    ban = effective_ban({f"IRQBALANCE_BANNED_{name}": value})
    assert (ban.cpus, ban.invalid) == ([], True)


def test_an_empty_list_depends_on_the_release() -> None:
    ban = effective_ban({"IRQBALANCE_BANNED_CPULIST": ""})
    assert (ban.cpus, ban.empty) == (None, True)


def test_environment_files() -> None:
    text = """\
# IRQBALANCE_BANNED_CPUS=1
; also a comment
IRQBALANCE_BANNED_CPUS="2"
IRQBALANCE_BANNED_CPUS='3'
 export IRQBALANCE_ONESHOT = yes
IRQBALANCE_ARGS=--deepestcache=2 \\
  --powerthresh=1
not an assignment
2X=1
"""
    assert parse_environment(text) == {
        "IRQBALANCE_BANNED_CPUS": "3",
        "IRQBALANCE_ONESHOT": "yes",
        "IRQBALANCE_ARGS": "--deepestcache=2 --powerthresh=1",
    }


def test_unit_files() -> None:
    text = """\
[Unit]
EnvironmentFile=/not/here
[Service]
EnvironmentFile=-/usr/lib/irqbalance/defaults.env
EnvironmentFile=-/etc/default/irqbalance
Environment="A=1 2" B=3
ExecStart=/usr/sbin/irqbalance
"""
    unit = parse_unit(text)
    assert unit.files == ["/usr/lib/irqbalance/defaults.env", "/etc/default/irqbalance"]
    assert unit.assignments == ["A=1 2", "B=3"]


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    parse_environment(text)
    parse_unit("[Service]\n" + text)
    effective_ban({"IRQBALANCE_BANNED_CPUS": text, "IRQBALANCE_BANNED_CPULIST": text})


UNIT = "/usr/lib/systemd/system/irqbalance.service"
BOTH = (
    "[Service]\nEnvironmentFile=-/usr/lib/irqbalance/defaults.env\nEnvironmentFile=-/etc/default/irqbalance\n"
)


def test_the_later_file_of_the_unit_wins(tmp_path: Path) -> None:
    found = host(
        tmp_path,
        {
            UNIT: BOTH,
            "/usr/lib/irqbalance/defaults.env": "IRQBALANCE_BANNED_CPULIST=1\nIRQBALANCE_ARGS=-d\n",
            "/etc/default/irqbalance": "IRQBALANCE_BANNED_CPULIST=2-3\n",
        },
    )
    environment, place = _irqbalance.read(found)
    assert environment.get() == {"IRQBALANCE_BANNED_CPULIST": "2-3", "IRQBALANCE_ARGS": "-d"}
    assert place == "/etc/default/irqbalance"


def test_a_drop_in_adds_a_variable_and_resets_the_files(tmp_path: Path) -> None:
    found = host(
        tmp_path,
        {
            UNIT: BOTH,
            "/etc/default/irqbalance": "IRQBALANCE_BANNED_CPULIST=2-3\n",
            "/etc/systemd/system/irqbalance.service.d/50-ban.conf": (
                "[Service]\nEnvironmentFile=\nEnvironment=IRQBALANCE_BANNED_CPULIST=6-7\n"
            ),
        },
        complete=True,
    )
    environment, _ = _irqbalance.read(found)
    assert environment.get() == {"IRQBALANCE_BANNED_CPULIST": "6-7"}


def test_a_units_file_that_was_not_captured_may_say_anything(tmp_path: Path) -> None:
    environment, _ = _irqbalance.read(host(tmp_path, {UNIT: BOTH}))
    assert environment.unknown


def test_without_a_unit_the_usual_files_are_read(tmp_path: Path) -> None:
    found = host(tmp_path, {"/etc/sysconfig/irqbalance": "IRQBALANCE_BANNED_CPUS=0000010\n"})
    environment, place = _irqbalance.read(found)
    assert (environment.get(), place) == ({"IRQBALANCE_BANNED_CPUS": "0000010"}, "/etc/sysconfig/irqbalance")


def test_where_irqbalance_is_not_installed_there_is_no_environment(tmp_path: Path) -> None:
    assert _irqbalance.read(host(tmp_path, {"/proc/version": "Linux"}, complete=True))[0].absent
    assert _irqbalance.read(host(tmp_path / "foreign", {"/proc/version": "Linux"}))[0].unknown
