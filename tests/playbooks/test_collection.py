"""The collection as an artifact: what is in it, what linters say of it, what its documentation looks like."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.playbooks import measured
from tests.playbooks.controller import ROOT

if TYPE_CHECKING:
    from tests.playbooks import measured
from tests.playbooks.controller import Controller

PLAYS = ("doctor", "provision", "drift", "revert")
STATES = ("diagnosed", "applied", "verified", "reverted", "validated")


def test_artifact_holds_what_is_committed_and_no_more(artifact: Path) -> None:
    with tarfile.open(artifact) as archive:
        held = {member.name for member in archive if member.isfile()} - {"MANIFEST.json", "FILES.json"}
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "."],
        cwd=ROOT / "playbooks", capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert held == {name for name in listed if name != "galaxy.yml"}
    assert {f"playbooks/{name}.yml" for name in PLAYS} <= held


def test_collection_has_the_version_of_hwtune(artifact: Path) -> None:
    from hwtune import __version__

    assert artifact.name == f"hwtune-hwtune-{__version__}.tar.gz"


def test_ansible_lint_finds_nothing_at_its_production_profile(
    newest: Path, collections: Path, tmp_path: Path
) -> None:
    place = tmp_path / "ansible_collections/hwtune/hwtune"
    shutil.copytree(collections / "ansible_collections/hwtune/hwtune", place)
    shutil.copyfile(ROOT / "playbooks/galaxy.yml", place / "galaxy.yml")
    done = subprocess.run(
        [newest / "bin/ansible-lint", "--offline", "--profile=production", "--strict", "-f", "pep8", "."],
        cwd=place,
        env={
            **os.environ,
            "PATH": f"{newest / 'bin'}:{os.environ['PATH']}",
            "ANSIBLE_HOME": str(tmp_path / "home"),
            "ANSIBLE_COLLECTIONS_PATH": str(tmp_path),
            "NO_COLOR": "1",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # an installed linter that looked at nothing would be content, too
    assert "0 failure(s), 0 warning(s)" in done.stderr
    assert "profile that was required: production" in done.stderr or "'production'" in done.stderr


def test_documentation_reads_well(alone: Controller) -> None:
    page = alone.run(["ansible-doc", "hwtune.hwtune.hwtune"])
    assert page.returncode == 0, page.stdout
    for word in ("OPTIONS", "EXAMPLES", "RETURN VALUES", "check_mode", *STATES):
        assert word in page.stdout, word
    assert "ERROR" not in page.stdout
    for kind, name in (("filter", "doctor_table"), ("filter", "drift_table"), ("role", "hwtune")):
        page = alone.run(["ansible-doc", "-t", kind, f"hwtune.hwtune.{name}"])
        assert page.returncode == 0, page.stdout
        assert "ERROR" not in page.stdout


def test_documented_options_are_the_arguments(alone: Controller) -> None:
    done = alone.run(["ansible-doc", "--json", "hwtune.hwtune.hwtune"])
    documented = json.loads(done.stdout)["hwtune.hwtune.hwtune"]["doc"]["options"]
    arguments = _module(alone)
    assert documented.keys() == arguments.keys()
    for name, argument in arguments.items():
        told = documented[name]
        assert told["type"] == argument["type"], name
        for word in ("choices", "elements", "default"):
            assert told.get(word) == argument.get(word), (name, word)
        assert told.get("required", False) == argument.get("required", False), name


def test_module_is_as_ansible_test_wants_it(alone: Controller) -> None:
    """validate-modules itself: documentation, argument spec, imports and return values. (``ansible-test``
    would fetch an environment for it from a host of its own.)"""
    checks = "lib/*/site-packages/ansible_test/_util/controller/sanity"
    (validate,) = alone.bin.parent.glob(f"{checks}/validate-modules/validate.py")
    place = alone.collections / "ansible_collections/hwtune/hwtune"
    module = "plugins/modules/hwtune.py"
    options = ("--format=json", "--arg-spec", "--collection-version=0.1.0")
    collection = "--collection=ansible_collections/hwtune/hwtune"
    done = subprocess.run(
        [alone.bin / "python", validate, *options, collection, module],
        cwd=place,
        env={"PYTHONPATH": str(alone.collections), "ANSIBLE_COLLECTIONS_PATH": str(alone.collections)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    told = json.loads(done.stdout)[module]
    # the one that the collection's tests/sanity/ignore-*.txt leave out, too
    codes = [error["code"] for error in told["errors"] if error["code"] != "missing-gplv3-license"]
    assert (codes, told["warnings"], told["traces"]) == ([], [], []), told


def test_every_returned_key_is_documented(alone: Controller) -> None:
    """Of each state, on the reports of hwtune's that it would read."""
    done = alone.run(["ansible-doc", "--json", "hwtune.hwtune.hwtune"])
    documented = set(json.loads(done.stdout)["hwtune.hwtune.hwtune"]["return"])
    reports = reading_module("reports")
    empty = {"schema_version": "1", "changed": False, "check": False}
    found: set[str] = set()
    for reading in (
        reports.diagnosed(
            {"rows": [], "summary": {"by_severity": {}, "unknown": 0}, "defects": [], "host": {}}, "never"
        ),
        reports.applied(
            {
                **empty,
                "set": None,
                "changes": [],
                "files": [],
                "commands": [],
                "problems": [],
                "reboot_required": False,
            },
            False,
        ),
        reports.verified({"in_force": True, "sets": [], "changes": [], "running": "", "journal": []}, False),
        reports.reverted({**empty, "sets": [], "files": [], "commands": [], "reboot_required": False}),
        reports.validated(measured.report(300.0, 3200.0, "", None, 10.0), 0, []),
    ):
        found |= reading.result.keys()
    assert found - {"changed"} <= documented


def test_every_play_is_a_page_and_says_how_it_is_run() -> None:
    for name in PLAYS:
        text = (ROOT / f"playbooks/playbooks/{name}.yml").read_text()
        assert f"hwtune.hwtune.{name}" in text.split("- name:")[0]
        assert len(text.splitlines()) <= 100
        yaml.safe_load(text)


def test_plays_pass_the_syntax_check(alone: Controller) -> None:
    for name in PLAYS:
        done = alone.run(["ansible-playbook", "--syntax-check", f"hwtune.hwtune.{name}"])
        assert done.returncode == 0, done.stdout


def test_role_describes_all_its_variables() -> None:
    role = ROOT / "playbooks/roles/hwtune"
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text())
    described = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]["main"][
        "options"
    ]
    assert defaults.keys() == described.keys()
    for name, option in described.items():
        if "default" in option:
            assert option["default"] == defaults[name], name


@pytest.mark.parametrize("minor", range(6, 14))
def test_module_runs_on_old_and_new_pythons(
    minor: int, newest: Path, collections: Path, tmp_path: Path, hwtune_stub: Path
) -> None:
    """All that is on a managed host, by the Python that would run it there."""
    python = _python(minor)
    utils = collections / "ansible_collections/hwtune/hwtune/plugins/module_utils"
    script = (
        "import sys, json, subprocess; sys.path.insert(0, sys.argv[1])\n"
        "import arguments, client, reports\n"
        "def run(argv):\n"
        "    pipe = subprocess.PIPE\n"
        "    p = subprocess.Popen(argv, stdout=pipe, stderr=pipe, universal_newlines=True)\n"
        "    out, err = p.communicate()\n"
        "    return p.returncode, out, err\n"
        "hwtune = client.Client(sys.argv[2], run)\n"
        "line = arguments.command_line({'state': 'verified'}, False)\n"
        "status, report, text, seconds = hwtune.report(line)\n"
        "print(hwtune.version(), reports.verified(report, False).result['msg'])\n"
    )
    said = subprocess.run(
        [python, "-I", "-B", "-c", script, str(utils), str(hwtune_stub)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert said.stdout == "0.1.0 hwtune holds nothing here\n"
    compiled = "import sys; [compile(open(f).read(), f, 'exec') for f in sys.argv[1:]]"
    module = utils.parent / "modules/hwtune.py"
    subprocess.run([python, "-I", "-c", compiled, str(module)], check=True, timeout=60)


@pytest.fixture
def hwtune_stub(tmp_path: Path) -> Path:
    """A hwtune that holds nothing."""
    report = {
        "schema_version": "1",
        "in_force": True,
        "sets": [],
        "changes": [],
        "running": "",
        "journal": [],
    }
    stub = tmp_path / "hwtune"
    stub.write_text(
        f"#!/bin/sh\n[ \"$1\" = --version ] && echo 'hwtune 0.1.0' || echo '{json.dumps(report)}'\n"
    )
    stub.chmod(0o755)
    return stub


def _python(minor: int) -> str:
    """A Python 3.minor that runs: on PATH, or one of pyenv's that is not switched on."""
    kept = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3.{minor}"))
    for candidate in (shutil.which(f"python3.{minor}"), *map(str, kept)):
        if (
            candidate is not None
            and not subprocess.run([candidate, "-c", ""], capture_output=True).returncode
        ):
            return candidate
    pytest.skip(f"no Python 3.{minor} here")


def _module(controller: Controller) -> dict[str, dict[str, Any]]:
    """The module's argument spec, as this Ansible loads it."""
    script = (
        "import json\n"
        "from ansible_collections.hwtune.hwtune.plugins.modules.hwtune import ARGUMENTS\n"
        "print(json.dumps(ARGUMENTS))\n"
    )
    done = subprocess.run(
        [controller.bin / "python", "-c", script],
        env={"PYTHONPATH": str(controller.collections)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    arguments: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return arguments


def reading_module(name: str) -> Any:
    """One of the collection's module_utils; they know nothing of Ansible."""
    place = ROOT / "playbooks/plugins/module_utils" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"hwtune_collection_{name}", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
