"""What took a CPU, on a real kernel with real drivers: a task and interrupts that the test makes are found by
name, as often as the kernel itself counted them, and no trace instance stays behind."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from tests.machine.install import ENVIRONMENT, HWTUNE

if TYPE_CHECKING:
    from tests.machine.machine import Machine

COMMON_MACHINE = True
PYTHON = f"{ENVIRONMENT}/bin/python"
INSTANCES = "ls /sys/kernel/tracing/instances"
# numpy's code for AVX2 gets a protection fault now and then where QEMU 7.2 emulates it
PLAIN = {"NPY_DISABLE_CPU_FEATURES": "X86_V3 AVX2 FMA3"}
CPU = 2
TURNS = 60

# A thread reads the clock on a CPU while two tasks take their turns there: one that is busy, and one that
# reads a drive past the page cache, whose queue interrupts the CPU that asked.
WATCH = f"""
    import json, mmap, os, subprocess, sys, threading, time
    from hwtune import _native as native
    from hwtune.tracing import Outlier, attribute, kinds, sentence, summarise, watch

    def interrupts():
        found = {{}}
        lines = open("/proc/interrupts").read().splitlines()
        place = lines[0].split().index("CPU{CPU}")
        for line in lines[1:]:
            number, _, rest = line.partition(":")
            if number.strip().isdecimal():
                found[int(number)] = int(rest.split()[place])
        return found

    busy = "import os\\nos.sched_setaffinity(0, [{CPU}])\\n"
    busy += "open('/proc/self/comm', 'w').write('noisy-neighbor')\\n"
    busy += "print(flush=True)\\nwhile True: pass\\n"
    noise = subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE)
    noise.stdout.readline()
    clock = native.make_clock()
    drive = os.open("/dev/nvme0n1", os.O_RDONLY | os.O_DIRECT)
    page = mmap.mmap(-1, 4096)
    os.sched_setaffinity(0, [{CPU}])
    try:
        with watch([{CPU}], clock) as watched:
            assert watched.traced, watched.why
            names = os.listdir("/sys/kernel/tracing/instances")
            before = interrupts()
            outliers = []
            for turn in range({TURNS}):
                start = clock.ticks()
                os.preadv(drive, [page], 4096 * turn)
                end = last = clock.ticks()
                while clock.ns(end - start) < 20e6:
                    end = clock.ticks()
                    if clock.ns(end - last) > 2e6:
                        outliers.append(Outlier(({CPU},), last, end))
                    last = end
            after = interrupts()
    finally:
        noise.kill()
        noise.wait()
    recording = watched.recording
    trace = recording.cpus[{CPU}]
    spans = trace.spans
    counts = {{}}
    for kind, name in zip(spans.kind, spans.name):
        key = kinds.KINDS[kind] + " " + recording.names[name]
        counts[key] = counts.get(key, 0) + 1
    causes = attribute(recording, outliers, own=frozenset([os.getpid()]), virtual=True)
    print(json.dumps({{
        "me": os.getpid(), "noise": noise.pid, "clock": clock.source, "during": names,
        "after": os.listdir("/sys/kernel/tracing/instances"),
        "grown": {{n: after[n] - before[n] for n in after if after[n] != before.get(n, 0)}},
        "counts": counts, "causes": [(c.kind, c.name, c.pid) for c in causes],
        "says": sentence(summarise(causes)), "notes": recording.notes,
        "events": trace.events, "lost": trace.events_lost, "left_out": trace.left_out,
    }}))
"""

KILLED = """
    import os, signal
    from hwtune import _native as native
    from hwtune.tracing import watch

    with watch([1], native.make_clock()) as watched:
        assert watched.traced, watched.why
        print(*os.listdir("/sys/kernel/tracing/instances"), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def script(machine: Machine, text: str) -> list[str]:
    machine.put("/root/script.py", textwrap.dedent(text))
    return [PYTHON, "/root/script.py"]


def jitter(machine: Machine, user: str = "root") -> dict[str, Any]:
    command = [HWTUNE, "jitter", "--cpus", "1", "--duration", "1", "--format", "json"]
    done = machine.run(command, user=user, env=PLAIN)
    assert done.status in (0, 1), done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.fixture(scope="module")
def machine(running: Machine) -> Machine:
    if running.run([PYTHON, "-c", "import hwtune._native"]).status:
        pytest.skip("hwtune's native module is not built for the machine's Python")
    return running


@pytest.fixture(scope="module")
def found(machine: Machine) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(machine.check(script(machine, WATCH), 600, env=PLAIN))
    return told


def test_the_task_is_found_by_its_name(found: dict[str, Any]) -> None:
    assert found["counts"]["switch noisy-neighbor"] > 0
    blamed = [cause for cause in found["causes"] if cause[1] == "noisy-neighbor"]
    assert blamed, found["says"]
    assert {pid for _, _, pid in blamed} == {found["noise"]}


def test_interrupts_are_as_many_as_the_kernel_counted(found: dict[str, Any]) -> None:
    traced = {
        int(key.split()[2]): count for key, count in found["counts"].items() if key.startswith("irq IRQ ")
    }
    drive = [key for key in found["counts"] if key.startswith("irq IRQ ") and "nvme" in key]
    assert drive, found["counts"]
    for number, grown in found["grown"].items():
        # the trace began before the first reading of the counters, and ended after the last one
        assert grown <= traced.get(int(number), 0) <= 1.1 * grown + 5, number
    assert sum(found["grown"].values()) >= TURNS


def test_the_timer_and_softirqs_are_named(found: dict[str, Any]) -> None:
    kinds = {key.split()[0] for key in found["counts"]}
    assert {"irq", "softirq", "timer", "switch"} <= kinds
    assert any(key.startswith("timer tick") for key in found["counts"]), found["counts"]


def test_every_event_was_understood(found: dict[str, Any]) -> None:
    assert found["lost"] == 0
    assert found["left_out"] <= 0.01 * found["events"] + 20


def test_the_instance_is_gone(found: dict[str, Any]) -> None:
    (mine,) = [name for name in found["during"] if name.startswith(f"hwtune-{found['me']}-")]
    assert mine not in found["after"]


def test_the_next_run_removes_what_a_killed_one_left(machine: Machine) -> None:
    machine.check("mkdir /sys/kernel/tracing/instances/somebodys")
    killed = machine.run(script(machine, KILLED), env=PLAIN)
    assert killed.status == 128 + 9
    (left,) = [name for name in killed.stdout.split() if name.startswith("hwtune-")]
    assert left in machine.check(INSTANCES).split()
    report = jitter(machine)
    assert report["trace"]["recorded"], report["trace"]["why"]
    assert any(left in note for note in report["trace"]["notes"])
    assert machine.check(INSTANCES).split() == ["somebodys"]
    machine.check("rmdir /sys/kernel/tracing/instances/somebodys")


def test_without_root_the_counters_speak(machine: Machine) -> None:
    report = jitter(machine, user="person")
    assert not report["trace"]["recorded"]
    assert "root" in report["trace"]["why"]
    (cpu,) = report["cpus"]
    assert any(source["kind"] == "timer" for source in cpu["counters"]["fired"])
