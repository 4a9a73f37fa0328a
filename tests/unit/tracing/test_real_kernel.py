"""On this machine's own kernel, where it lets us: a busy task is found by name, and nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from tests.support import own_tracefs

pytestmark = own_tracefs.needed

LIST = "import os; print(*os.listdir('/sys/kernel/tracing/instances'))"

# Watches a CPU on which it spins itself, while a task of a known name takes its turns there.
FIND = """
    import json, os, subprocess, sys, time
    from hwtune import _native as native
    from hwtune.tracing import Outlier, attribute, watch

    cpu = max(os.sched_getaffinity(0))
    busy = (
        "import os\\n"
        f"os.sched_setaffinity(0, [{cpu}])\\n"
        "open('/proc/self/comm', 'w').write('noisy-neighbor')\\n"
        "print(flush=True)\\n"
        "while True: pass\\n"
    )
    noise = subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE)
    noise.stdout.readline()
    clock = native.make_clock()
    try:
        with watch([cpu], clock) as watched:
            assert watched.traced, watched.why
            outliers = []
            os.sched_setaffinity(0, [cpu])
            end = time.monotonic() + 2.0
            last = clock.ticks()
            while time.monotonic() < end:
                now = clock.ticks()
                if clock.ns(now - last) > 500_000:
                    outliers.append(Outlier((cpu,), last, now))
                last = now
            os.sched_setaffinity(0, range(os.cpu_count()))
            names = os.listdir("/sys/kernel/tracing/instances")
    finally:
        noise.kill()
        noise.wait()
    causes = attribute(watched.recording, outliers)
    trace = watched.recording.cpus[cpu]
    print(json.dumps({
        "during": names,
        "after": os.listdir("/sys/kernel/tracing/instances"),
        "pid": noise.pid,
        "me": os.getpid(),
        "causes": [(c.kind, c.name, c.pid, c.explained_ns, c.duration_ns) for c in causes],
        "shares": [[(s.name, s.pid) for s in c.shares if s.kind == "switch"] for c in causes],
        "ticks": sum(1 for n in trace.spans.name if "tick" in watched.recording.names[n] or
                     "timer" in watched.recording.names[n]),
        "left_out": trace.left_out,
        "events": trace.events,
        "lost": trace.events_lost,
    }))
"""

# Watches until it is told to end.
STAY = """
    import sys, time
    from hwtune import _native as native
    from hwtune.tracing import watch

    with watch([0], native.make_clock()) as watched:
        assert watched.traced, watched.why
        print("ready", flush=True)
        time.sleep(60)
"""


@pytest.fixture(scope="module")
def found():
    return json.loads(own_tracefs.run(FIND))


def test_the_busy_task_is_found_by_its_name(found):
    mine = ["noisy-neighbor", found["pid"]]
    assert any(mine in shares for shares in found["shares"])
    # where no other task had a share it is the culprit, unless the kernel left a switch out
    alone = []
    for (kind, name, pid, explained, duration), shares in zip(found["causes"], found["shares"], strict=True):
        assert explained <= duration
        if shares == [mine]:
            alone.append((kind, name, pid))
    assert set(alone) <= {("switch", *mine), ("not-recorded", "events of this time were not recorded", 0)}
    assert alone.count(("switch", *mine)) >= 0.8 * len(alone)


def test_the_timer_interrupted_the_cpu(found):
    assert found["ticks"] > 0


def test_nearly_every_event_was_understood(found):
    assert found["lost"] == 0
    assert found["left_out"] <= 0.01 * found["events"] + 20


def test_the_instance_is_its_own_and_gone_afterwards(found):
    mine = [name for name in found["during"] if name.startswith(f"hwtune-{found['me']}-")]
    assert len(mine) == 1
    assert mine[0] not in found["after"]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, -signal.SIGINT)]
)
def test_a_signal_leaves_nothing_behind(number, status):
    name = ended_by(number, status)
    assert name not in own_tracefs.run(LIST).split()


def test_what_a_killed_run_leaves_the_next_one_removes():
    name = ended_by(signal.SIGKILL, -signal.SIGKILL)
    assert name in own_tracefs.run(LIST).split()
    other = "someone-elses"
    script = f"import os; os.mkdir('/sys/kernel/tracing/instances/{other}')"
    own_tracefs.run(script)
    try:
        own_tracefs.run(
            "from hwtune import _native as native\n"
            "from hwtune.tracing import watch\n"
            "with watch([0], native.make_clock()) as watched: assert watched.traced, watched.why\n"
        )
        left = own_tracefs.run(LIST).split()
        assert name not in left
        assert other in left
    finally:
        own_tracefs.run(f"import os; os.rmdir('/sys/kernel/tracing/instances/{other}')")


def ended_by(number: int, status: int) -> str:
    """Start a watch and end it by a signal. The name of its instance."""
    child = subprocess.Popen(
        own_tracefs.command(sys.executable, "-c", textwrap.dedent(STAY)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        names = [n for n in own_tracefs.run(LIST).split() if n.startswith(f"hwtune-{child.pid}-")]
        assert len(names) == 1
        os.kill(child.pid, number)
        assert child.wait(30) == status
        return names[0]
    finally:
        child.kill()
        child.communicate()
        time.sleep(0)
