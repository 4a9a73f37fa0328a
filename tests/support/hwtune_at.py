"""The command line, on a small box of files instead of this machine: a process that tests may kill.

    python -m tests.support.hwtune_at ROOT apply --yes

A seam for tests alone: the program itself takes no root from its environment or its arguments.
"""

from __future__ import annotations

import os
import sys

from hwtune import cli
from hwtune.changes.journal import Journal
from hwtune.changes.persist import boot_unit, cpu_latency
from hwtune.cli import changing
from hwtune.diagnosis import engine
from tests.support.fake_kernel import FakeKernel
from tests.support.small_box import changes, findings

COMMANDS = ("apply", "verify", "history", "revert")


def main() -> None:
    root = os.path.abspath(sys.argv.pop(1))
    changing.the_system = lambda: FakeKernel(root)
    changing.the_journal = lambda: Journal(f"{root}/var/lib/hwtune")
    changing.need_root = lambda verb: None
    boot_unit.interpreter = cpu_latency.interpreter = lambda: "/usr/bin/python3"
    if os.environ.get("HWTUNE_TEST_CHANGES") == "all":
        # the changes of the small box, whatever the rows think of it
        diagnosis = engine.Diagnosis(engine.Machine(), findings(changes()))
        engine.judge = lambda *arguments: diagnosis
        engine.probe = lambda host: (engine.Machine(), [])
    if "HWTUNE_TEST_VALIDATE_S" in os.environ:
        from hwtune.validate import before_after

        before_after.DURATION_S = float(os.environ["HWTUNE_TEST_VALIDATE_S"])
        before_after.WARMUP_S = 0.1
        before_after.RATE = 1000.0  # fewer than the queue holds: none is lost, however busy the machine
    for name in COMMANDS:
        cli.COMMANDS.setdefault(name, (f"hwtune.cli.{name}", ""))
    cli.main()


if __name__ == "__main__":
    main()
