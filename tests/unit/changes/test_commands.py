"""apply, verify, history and revert as processes: output, exit status, JSON by its schema."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from hwtune.changes.journal import Journal
from hwtune.cli import changing
from hwtune.errors import ToolError
from hwtune.report.schema import schema
from tests.support import small_box
from tests.support.fake_kernel import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

REPO = Path(__file__).parents[3]
ALLOW = ("--allow", "boot,service,link")
SWAPPINESS = "proc/sys/vm/swappiness"


class Commands:
    """hwtune on a small box. ``everything``: the findings are those of the box, whatever rows think."""

    def __init__(self, folder: Path) -> None:
        self.root = small_box.make(folder).root
        self.tree = Tree(self.root)
        self.pristine = self.state()

    def __call__(self, *arguments: str, everything: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.hwtune_at", self.root, *arguments],
            cwd=REPO,
            env={**os.environ, "HWTUNE_TEST_CHANGES": "all" if everything else ""},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=100,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def json(self, *arguments: str, status: int = 0) -> Any:
        done = self(*arguments, "--format", "json")
        assert done.returncode == status, done.stdout + done.stderr
        report = json.loads(done.stdout)
        jsonschema.validate(report, schema(arguments[0]))
        assert report["schema_version"] == "1"
        return report

    def state(self) -> dict[str, Any]:
        return {p: s for p, s in self.tree.state().items() if not p.startswith("/var/lib/hwtune")}


@pytest.fixture
def hwtune(tmp_path: Path) -> Iterator[Commands]:
    yield Commands(tmp_path)


def test_life_of_a_change_set_in_json(hwtune: Commands) -> None:
    told = hwtune.json("apply", "--check", *ALLOW)
    assert hwtune.state() == hwtune.pristine
    assert (told["changed"], told["check"], told["set"], told["reboot_required"]) == (True, True, None, True)
    assert told["changes"][0] == {
        "id": "c1",
        "kind": "sysctl",
        "target": "sysctl:vm.swappiness",
        "description": "set sysctl vm.swappiness = 1",
        "rows": ["test.row"],
        "before": "60",
        "after": "1",
        "status": "planned",
        "reason": "",
        "disruption": "",
        "reboot_required": False,
    }
    done = hwtune.json("apply", "--yes", *ALLOW)
    assert [c | {"status": "planned"} for c in done["changes"]] == told["changes"]
    assert (done["files"], done["commands"]) == (told["files"], told["commands"])
    set_id = done["set"]

    again = hwtune.json("apply", "--yes", *ALLOW)
    assert (again["changed"], again["set"]) == (False, None)

    verified = hwtune.json("verify", status=1)  # the kernel arguments wait for a boot
    assert not verified["in_force"]
    assert {c["target"] for c in verified["changes"] if c["status"] != "in-force"} == {
        "karg:isolcpus",
        "karg:nohz_full",
    }
    assert verified["sets"] == [{"set": set_id, "time": verified["sets"][0]["time"], "status": "in force"}]

    history = hwtune.json("history")
    assert [s["set"] for s in history["sets"]] == [set_id]
    first = history["sets"][0]["changes"][0]
    assert (first["target"], first["before"], first["after"], first["state"]) == (
        "sysctl:vm.swappiness", "60", "1", "done",
    )  # fmt: skip
    assert "karg:nohz_full = nohz_full=2-3" in history["sets"][0]["kept"]

    told = hwtune.json("revert", "--check")
    assert (told["changed"], told["check"]) == (True, True)
    done = hwtune.json("revert", "--yes")
    assert {**done, "check": True} == told
    assert hwtune.state() == hwtune.pristine
    assert hwtune.json("verify") | {"running": ""} == {
        "schema_version": "1", "in_force": True, "sets": [], "changes": [], "running": "", "journal": [],
    }  # fmt: skip
    assert hwtune.json("revert", "--all", "--yes")["changed"] is False


def test_life_of_a_change_set_in_words(hwtune: Commands) -> None:
    said = hwtune("apply", "--check", "--diff")
    assert said.returncode == 1  # something is not allowed
    assert "would       set sysctl vm.swappiness = 1\n" in said.stdout
    assert "              - 60\n              + 1\n" in said.stdout
    assert "would write /etc/sysctl.d/99-zz-hwtune.conf   (anew)" in said.stdout
    assert "              -vm.swappiness = 30\n" in said.stdout
    assert "              +vm.swappiness = 1\n" in said.stdout
    assert (
        "not allowed stop and disable tuned.service   (it takes a service-restart; --allow service"
        in said.stdout
    )
    assert hwtune.state() == hwtune.pristine

    said = hwtune("apply", "--yes", *ALLOW)
    assert said.returncode == 0
    assert "changed     set sysctl vm.swappiness = 1   60 -> 1\n" in said.stdout
    assert "Some of it takes effect at the next boot.\n" in said.stdout
    assert hwtune("apply", "--yes", *ALLOW).stdout == "Nothing to change.\n"

    said = hwtune("verify")
    assert said.returncode == 1
    assert "in-force        sysctl:vm.swappiness   1\n" in said.stdout
    assert "pending-reboot  karg:nohz_full   nohz_full=2-3\n" in said.stdout
    assert "  done      set sysctl vm.swappiness = 1\n" in hwtune("history").stdout
    told = hwtune("revert", "--check").stdout
    assert "  would      sysctl:vm.swappiness   1 -> 60\n" in told
    assert "would remove /etc/hwtune/boot.json\n" in told
    assert "  restored   sysctl:vm.swappiness   1 -> 60\n" in hwtune("revert", "--yes").stdout
    assert hwtune.state() == hwtune.pristine
    assert hwtune("verify").stdout == "hwtune holds nothing here.\n"
    assert hwtune("revert", "--yes").stdout == "There is nothing to revert.\n"


def test_rows_of_the_table_are_mended(hwtune: Commands) -> None:
    said = hwtune("apply", "--yes", "--only", "memory.swappiness", everything=False)
    assert said.returncode == 0, said.stdout + said.stderr
    assert Path(hwtune.root, SWAPPINESS).read_text() == "10\n"
    again = hwtune("apply", "--yes", "--only", "memory.swappiness", everything=False)
    assert again.stdout == "Nothing to change.\n"
    said = hwtune("apply", "--check", "--only", "memory.*", "--skip", "memory.swappiness", everything=False)
    assert "swappiness" not in said.stdout


def test_p99_is_measured_before_and_after(hwtune: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the real pipeline, on this machine: too short a run to tell more than that it ran."""
    pytest.importorskip("hwtune._native")
    monkeypatch.setenv("HWTUNE_TEST_VALIDATE_S", "0.5")
    done = hwtune("apply", "--yes", "--validate", "--format", "json", *ALLOW)
    report = json.loads(done.stdout)
    jsonschema.validate(report, schema("apply"))
    found = report["validation"]
    assert 0 < found["before_us"] < 1e6 and 0 < found["after_us"] < 1e6
    assert found["change_pct"] == pytest.approx(100 * (found["after_us"] / found["before_us"] - 1))
    assert (found["limit_pct"], found["differs"]) == (10.0, [])
    # runs this short on a busy machine may differ by anything
    assert done.returncode == (1 if found["verdict"] == "worse" else 0)
    # nothing was changed: there is nothing to measure
    assert hwtune.json("apply", "--yes", "--validate", *ALLOW)["validation"] is None
    hwtune("revert", "--yes")
    assert "\nP99 end to end: " in hwtune("apply", "--yes", "--validate").stdout


@pytest.mark.parametrize("command", [("apply", *ALLOW), ("revert",)])
def test_script_has_to_say_yes(hwtune: Commands, command: tuple[str, ...]) -> None:
    if command[0] == "revert":
        hwtune("apply", "--yes")
    before = hwtune.state()
    said = hwtune(*command)
    assert said.returncode == 2
    assert said.stderr.endswith(
        "hwtune: there is no terminal to ask at; say --yes to go ahead, or --check to look only\n"
    )
    assert hwtune.state() == before


def test_run_that_meets_another(hwtune: Commands) -> None:
    hwtune("apply", "--yes")
    journal = Journal(f"{hwtune.root}/var/lib/hwtune")
    journal.open("hwtune apply --yes")
    try:
        holder = f"hwtune apply --yes, process {os.getpid()}"
        for command in (("apply", "--yes", *ALLOW), ("revert", "--yes")):
            said = hwtune(*command)
            assert (said.returncode, said.stdout) == (3, "")
            assert said.stderr == f"hwtune: another run holds the lock: {holder}\n"
        # who only looks may do so, and is told
        assert hwtune.json("history")["running"] == holder
        journal.append("begin", set="s2", time="now", boot="boot-1", command="hwtune apply --yes")
        assert [s["status"] for s in hwtune.json("history")["sets"]] == ["in progress", "in force"]
        assert f"running         {holder}\n" in hwtune("verify").stdout
    finally:
        journal.close()


def test_journal_that_is_damaged(hwtune: Commands) -> None:
    hwtune("apply", "--yes")
    path = Path(hwtune.root, "var/lib/hwtune/journal")
    path.write_bytes(path.read_bytes().replace(b'"record":"done"', b'"record":"gone"', 1))
    said = hwtune("apply", "--yes", *ALLOW)
    assert (said.returncode, said.stdout) == (3, "")
    assert "line 3 is damaged" in said.stderr and "hwtune revert --all" in said.stderr
    assert hwtune("apply", "--check", *ALLOW).returncode == 3
    verified = hwtune.json("verify", status=1)
    assert verified["journal"] == [f"{path}: line 3 is damaged"]
    said = hwtune("revert", "--all", "--yes")
    assert said.returncode == 0
    assert said.stderr == f"hwtune: {path}: line 3 is damaged; what stands before and after it is put back\n"
    assert hwtune.state() == hwtune.pristine


def test_torn_end_is_told(hwtune: Commands) -> None:
    hwtune("apply", "--yes")
    path = Path(hwtune.root, "var/lib/hwtune/journal")
    with path.open("ab") as file:
        file.write(b'{"record":"intent","se')
    assert hwtune.json("history")["journal"] == [f"{path}: its last line is torn, as a crash leaves it"]
    assert hwtune("revert", "--yes").returncode == 0
    assert hwtune.json("history")["journal"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("revert", "20200101-000000-abcd"), "there is no change set 20200101-000000-abcd"),
        (("revert", "x", "--all"), "say an ID or --all, not both"),
        (("apply", "--allow", "boots"), "--allow takes boot, service, link, not 'boots'"),
        (("apply", "--only", "memory.swapiness"), "did you mean memory.swappiness"),
        (("apply", "--export", "puppet"), "puppet"),
        (("apply", "--check", "--validate"), "--check and --export change nothing"),
        (("apply", "--yes", "-o", "/no/such/folder/report"), "/no/such/folder/report cannot be written"),
    ],
)
def test_bad_usage(hwtune: Commands, arguments: tuple[str, ...], words: str) -> None:
    said = hwtune(*arguments)
    assert (said.returncode, said.stdout) == (2, "")
    assert words in said.stderr and said.stderr.count("\n") == 1
    assert hwtune.state() == hwtune.pristine


def test_without_root_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ToolError, match="only root may apply changes; run it with sudo"):
        changing.need_root("apply changes")


@pytest.mark.parametrize("report", ["doctor", "apply", "verify", "history", "revert"])
def test_schemas_are_schemas(report: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(report))
