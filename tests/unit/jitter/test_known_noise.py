"""Noise that the test makes itself, on this kernel: found on its CPU, by its name, at its rate."""

from __future__ import annotations

import json

import pytest

from tests.support import own_tracefs

pytestmark = own_tracefs.needed

# A task that takes the CPU for 300 us every 20 ms, above everything else, beside the loop on two CPUs.
SCRIPT = """
    import json, os, subprocess, sys
    import numpy as np
    from hwtune.jitter.measure import measure
    from hwtune.jitter.plan import Plan
    from hwtune.tracing import Attribution, Outlier, kinds

    cpus = sorted(os.sched_getaffinity(0))[:2]
    noisy = cpus[-1]
    period, length = 0.020, 0.0003
    code = f'''
    import os, time
    os.sched_setaffinity(0, [{noisy}])
    open("/proc/self/comm", "w").write("known-noise")
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    due = time.monotonic()
    while True:
        due += {period}
        time.sleep(max(0, due - time.monotonic()))
        end = time.monotonic() + {length}
        while time.monotonic() < end:
            pass
    '''
    import textwrap
    noise = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    try:
        import time
        time.sleep(0.5)
        measured = measure(Plan(cpus, 2.0, None, False, ""), lambda elapsed: None)
    finally:
        noise.kill()
        noise.wait()
    recording = measured.recording
    told = {}
    for cpu in cpus:
        spun = measured.spun[cpu]
        trace = recording.cpus[cpu]
        result = spun.result
        begin = result.started_ticks
        end = begin + int(result.duration_ns / measured.clock.ns_per_tick)
        switch = kinds.KINDS.index(kinds.SWITCH)
        mine = (trace.spans.kind == switch) & (trace.spans.pid == noise.pid)
        mine &= (trace.spans.start >= begin) & (trace.spans.end <= end)
        starts = begin + (result.gap_starts_ns / measured.clock.ns_per_tick).astype(np.int64)
        ends = starts + (result.gap_lengths_ns / measured.clock.ns_per_tick).astype(np.int64)
        # a turn of the noise lies within a gap of the loop
        place = np.searchsorted(starts, trace.spans.start[mine], "right") - 1
        inside = (place >= 0) & (ends[np.maximum(place, 0)] + 2 >= trace.spans.end[mine])
        gaps = np.unique(place[inside])
        own = frozenset(s.thread for s in measured.spun.values())
        outliers = [Outlier((cpu,), int(starts[g]), int(ends[g])) for g in gaps]
        causes = Attribution(recording, own=own).causes(outliers)
        named = sum(any(s.pid == noise.pid for s in c.shares) for c in causes)
        only = [c for c in causes if len({s.pid for s in c.shares if s.pid}) == 1]
        told[cpu] = {
            "turns": int(mine.sum()),
            "inside": int(inside.sum()),
            "gaps": len(gaps),
            "named": named,
            "alone": len(only),
            "alone_named": sum(c.name == "known-noise" for c in only),
            "rate": float(mine.sum() / (result.duration_ns / 1e9)),
            "coverage": result.duration_ns / spun.slot_ns,
            "lost": result.lost + trace.events_lost,
        }
    print(json.dumps({"quiet": told[cpus[0]], "noisy": told[noisy], "cpus": len(cpus)}))
"""


@pytest.fixture(scope="module")
def told():
    found = json.loads(own_tracefs.run(SCRIPT))
    if found["cpus"] < 2:
        pytest.skip("needs two CPUs")
    return found


def test_every_turn_is_a_gap_of_the_loop(told):
    assert told["noisy"]["lost"] == 0
    assert told["noisy"]["turns"] > 0
    assert told["noisy"]["inside"] == told["noisy"]["turns"]


def test_each_of_these_gaps_names_it(told):
    noisy = told["noisy"]
    assert noisy["named"] == noisy["gaps"]
    # where no other task had a share, it is the culprit
    assert noisy["alone_named"] == noisy["alone"]


def test_its_rate_is_right(told):
    """50 a second; a hypervisor that stops the machine takes turns away, and cannot add any."""
    assert 40 <= told["noisy"]["rate"] <= 52.5


def test_nothing_is_blamed_on_the_other_cpu(told):
    assert told["quiet"]["turns"] == 0
