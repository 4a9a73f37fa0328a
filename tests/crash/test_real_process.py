"""The program as a process of its own: strace sees the steps that the crash tests count, and kills it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hwtune.changes.apply import apply
from hwtune.changes.journal import Journal
from hwtune.changes.ledger import Ledger
from hwtune.changes.persist import boot_unit, cpu_latency
from hwtune.changes.plan import make_plan
from tests.crash.killing import CALLS, Steps
from tests.support import small_box
from tests.support.fake_kernel import Tree

if TYPE_CHECKING:
    from pathlib import Path

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ALLOW = ("boot", "service", "link")
APPLY = ("apply", "--yes", "--allow", ",".join(ALLOW))
# as the kernel calls them -> as Python does
_NAMES = {"pwrite64": "pwrite", "openat": "open", "renameat": "rename", "renameat2": "rename"}
_TRACED = (
    "write,pwrite64,writev,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,"
    "symlink,symlinkat,link,linkat,truncate,ftruncate,chmod,fchmod,fchmodat,chown,fchown,fchownat,openat,"
    "utimensat,setxattr,fallocate"
)


def strace_works() -> bool:
    if shutil.which("strace") is None:
        return False
    probe = ["strace", "-o", "/dev/null", "-e", "trace=none", "true"]
    return subprocess.run(probe, capture_output=True, timeout=30).returncode == 0


pytestmark = pytest.mark.skipif(not strace_works(), reason="strace is missing, or may not trace here")


def hwtune(root: str, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, "-m", "tests.support.hwtune_at", root, *arguments],
        cwd=REPO,
        env={**os.environ, "HWTUNE_TEST_CHANGES": "all", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_steps_that_are_counted_are_all_that_the_process_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    kernel = small_box.make(tmp_path / "a")
    traced = small_box.make(tmp_path / "b").root
    log = tmp_path / "trace"
    done = hwtune(
        traced, *APPLY, before=("strace", "-f", "-y", "-qq", "-e", f"trace={_TRACED}", "-o", str(log))
    )
    assert done.returncode == 0, done.stderr
    seen = [call for line in log.read_text().splitlines() if (call := _call(line, traced))]

    for module in (boot_unit, cpu_latency):
        monkeypatch.setattr(module, "interpreter", lambda: "/usr/bin/python3")
    journal = Journal(f"{kernel.root}/var/lib/hwtune")
    with Steps() as steps:
        journal.open("hwtune apply")
        ledger = Ledger(journal.records().records)
        plan = make_plan(small_box.findings(small_box.changes()), kernel, ledger, ALLOW)
        apply(plan, journal, kernel, "apply")
        journal.close()
    counted = [what for what in steps.told if what in (*CALLS, "write", "open")]
    assert len(counted) > 100
    assert counted == seen


def _call(line: str, root: str) -> str:
    """The call of a line of strace's, where it changes something below the root that is not the fake
    kernel's own doing."""
    match = re.match(r"\d+ +(\w+)\((.*)", line)
    if match is None or root + "/" not in line or f"{root}.beside" in line:
        return ""
    name = _NAMES.get(match[1], match[1])
    if name == "open" and "O_CREAT" not in line and "O_TRUNC" not in line:
        return ""
    return name


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("call", "numbers"),
    [("write", (1, 9, 20, 37, 52)), ("fsync", (3, 12, 25, 33)), ("rename", (2, 8, 14)), ("mkdir", (1, 3))],
)
def test_process_that_is_killed_comes_back(tmp_path: Path, call: str, numbers: tuple[int, ...]) -> None:
    root = small_box.make(tmp_path).root
    tree = Tree(root)
    pristine = tree.state()
    kinds = {"rename": "rename,renameat,renameat2", "mkdir": "mkdir,mkdirat"}.get(call, call)
    for number in numbers:
        tree.restore(pristine)
        inject = f"inject={kinds}:signal=KILL:when={number}"
        strace = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={kinds}", "-e", inject)
        done = hwtune(root, *APPLY, before=strace)
        assert done.returncode in (-9, 137), (number, done.returncode, done.stderr)
        said = hwtune(root, "history")
        assert said.returncode == 0, said.stderr
        # dead before the journal had its first record: nothing to verify, nothing to put back
        assert hwtune(root, "verify").returncode == (1 if "interrupted" in said.stdout else 0)
        back = hwtune(root, "revert", "--all", "--yes")
        assert back.returncode == 0, back.stdout + back.stderr
        left = {p: s for p, s in tree.state().items() if not p.startswith("/var/lib/hwtune")}
        assert left == pristine, number
