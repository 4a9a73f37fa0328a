"""What Ansible adds: a run of doctor over five hosts, against the slowest host's own doctor.

What Ansible costs anyway is measured with a play that only pings, in the same round. The hosts are light ones
on this very machine, so that their five doctors share its CPUs; the slowest one's time has that in it.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.timing import ROUNDS, Result
from tests.playbooks import made
from tests.playbooks.controller import BUILT, Controller
from tests.playbooks.lab import SICK, Lab, lacking

HOSTS = 5
PING = """\
---
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.ping:
"""


def doctor() -> list[Result]:
    environment = BUILT / "ansible-newest"
    why = lacking() or ("" if environment.exists() else "scripts/test-playbooks has made no Ansible")
    if why:
        print(f"playbooks left out: {why}", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as folder, Lab(Path(folder) / "lab") as lab:
        built = made.artifact(environment, Path(folder))
        collections = made.installed(environment, built, Path(folder) / "collections")
        controller = Controller(environment, collections, Path(folder) / "controller", lab)
        first = lab.host("seed", kernel=SICK)
        source = {"hwtune_wheel": str(made.wheel()), "hwtune_wheelhouse": str(made.wheelhouse())}
        run = controller.play(made.ROLE, [first], variables=source)
        if run.status != 0:
            raise RuntimeError(run.why)
        first.stop()
        hosts = [lab.host(f"box-{n}", kernel=SICK, opt=first.root / "opt") for n in range(HOSTS)]
        rounds = []

        def timed(play: str) -> tuple[float, float]:
            """Seconds of a play, and of the slowest doctor in it."""
            begun = time.perf_counter()
            run = controller.play(play, hosts, variables={"hwtune_reports": folder})
            took = time.perf_counter() - begun
            if run.status != 0:
                raise RuntimeError(run.why)
            return took, max((n.result.get("elapsed_s", 0.0) for n in run.noted), default=0.0)

        timed(PING), timed("hwtune.hwtune.doctor")
        for _ in range(min(ROUNDS, 9)):
            overhead, _ = timed(PING)
            took, slowest = timed("hwtune.hwtune.doctor")
            rounds.append((took - overhead, slowest))
    return [
        Result(
            "playbooks",
            f"doctor over {HOSTS} hosts, less a ping play",
            "ms",
            1000 * statistics.median(ours for ours, _ in rounds),
            1000 * statistics.median(slowest for _, slowest in rounds),
            "the slowest host's doctor",
            statistics.median(ours / slowest for ours, slowest in rounds),
            1.5,
        )
    ]


SUITES = (doctor,)
