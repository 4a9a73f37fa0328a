"""More noise that the test makes itself, on this kernel: an interrupt, softirqs, page faults. Each is found
on its CPU, by its name, as often as the kernel's own counters say, and within gaps of the loop."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import own_tracefs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    own_tracefs.needed,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs"),
]

# KIND NAME CPU COUNTER MAKER...: the noise is made by a process of its own; the kernel's count of its events
# is read while the loops run. It is compared with what was traced between the first reading and the last.
SCRIPT = """
    import json, os, subprocess, sys, time
    import numpy as np
    from hwtune import _native as native
    from hwtune.jitter.measure import measure
    from hwtune.jitter.plan import Plan
    from hwtune.tracing import Attribution, Outlier, kinds

    kind, name, cpu, counter = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    cpus = sorted(os.sched_getaffinity(0))[:2]
    quiet = next(c for c in cpus if c != cpu)
    noise = subprocess.Popen(sys.argv[5:], stdout=subprocess.PIPE)
    noise.stdout.readline()

    def row(path, label):
        lines = open(path).read().splitlines()
        place = lines[0].split().index(f"CPU{cpu}")
        line, = (l for l in lines[1:] if l.split()[0] == label)
        return int(line.split()[1 + place])

    def count():
        if counter.startswith("irq "):
            return row("/proc/interrupts", counter[4:] + ":")
        if counter.startswith("softirq "):
            return row("/proc/softirqs", counter[8:] + ":")
        # minor faults (proc(5), /proc/pid/stat): the tenth field; the name before it has no space
        return int(open(f"/proc/{noise.pid}/stat").read().split()[9])

    clock = native.make_clock()
    readings = []

    def look(elapsed):
        before = clock.ticks()
        found = count()
        readings.append((before, found, clock.ticks()))

    try:
        measured = measure(Plan([quiet, cpu], 2.5, None, False, ""), look)
    finally:
        noise.kill()
        noise.wait()
    recording = measured.recording
    # the loops were not running yet, or not any more, at the edges
    result = measured.spun[cpu].result
    begin = result.started_ticks
    end = begin + int(result.duration_ns / measured.clock.ns_per_tick)
    inner = [r for r in readings if begin < r[0] and r[2] < end]
    first, last = inner[0], inner[-1]

    def mine(trace):
        spans = trace.spans
        found = spans.kind == kinds.KINDS.index(kind)
        names = np.array([name in text for text in recording.names], dtype=bool)
        if kind == kinds.PAGE_FAULT:
            found &= spans.pid == noise.pid
        else:
            found &= names[spans.name]
        return found

    spans = recording.cpus[cpu].spans
    found = mine(recording.cpus[cpu]) & (spans.start > first[0]) & (spans.start < last[2])
    per_tick = measured.clock.ns_per_tick
    starts = begin + (result.gap_starts_ns / per_tick).astype(np.int64)
    ends = starts + (result.gap_lengths_ns / per_tick).astype(np.int64)
    place = np.searchsorted(starts, spans.start[found], "right") - 1
    inside = (place >= 0) & (ends[np.maximum(place, 0)] + 2 >= spans.end[found])
    gaps = np.unique(place[inside])[:2000]
    own = frozenset(s.thread for s in measured.spun.values())
    outliers = [Outlier((cpu,), int(starts[g]), int(ends[g])) for g in gaps]
    causes = Attribution(recording, own=own).causes(outliers)
    if kind == kinds.PAGE_FAULT:
        named = sum(any(s.pid == noise.pid for s in c.shares) for c in causes)
    else:
        named = sum(any(name in s.name for s in c.shares) for c in causes)
    other = recording.cpus[quiet]
    print(json.dumps({
        "counted": last[1] - first[1], "traced": int(found.sum()), "inside": int(inside.sum()),
        "gaps": len(gaps), "named": named, "elsewhere": int(mine(other).sum()),
        "lost": result.lost + recording.cpus[cpu].events_lost, "readings": len(inner),
    }))
"""
READER = """
import mmap, os, sys
os.sched_setaffinity(0, [int(sys.argv[2])])
os.setpriority(os.PRIO_PROCESS, 0, -15)  # above the loop that it shares its CPU with
disk = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
print(flush=True)
n = 0
while True:
    n = (n + 997) % 20000
    os.preadv(disk, [page], 4096 * n)
"""
SENDER = """
import os, socket, sys, time
os.sched_setaffinity(0, [int(sys.argv[2])])
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind((sys.argv[1], 0))
frame = b"\\xff" * 6 + b"\\x02\\x00\\x00\\x00\\x00\\x01" + b"\\x88\\xb5" + bytes(64)
print(flush=True)
while True:
    out.send(frame)
    time.sleep(0.0005)
"""
FAULTS = """
import mmap, os, sys, time
os.sched_setaffinity(0, [int(sys.argv[1])])
print(flush=True)
while True:
    area = mmap.mmap(-1, 64 * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        area.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, len(area), 4096):
        area[at] = 1
    area.close()
    time.sleep(0.002)
"""
CPUS = sorted(os.sched_getaffinity(0))[:2]


def made(kind: str, name: str, cpu: int, counter: str, maker: str, *arguments: str) -> dict[str, Any]:
    line = ("/usr/bin/env", "python3", "-c", maker, *arguments)
    found: dict[str, Any] = json.loads(own_tracefs.run(SCRIPT, kind, name, str(cpu), counter, *line))
    assert found["lost"] == 0
    assert found["readings"] >= 5
    return found


def check(found: dict[str, Any], least: int) -> None:
    assert found["counted"] >= least, "the noise was not made"
    # a reading takes a moment itself, in which one more may come
    assert abs(found["traced"] - found["counted"]) <= 0.05 * found["counted"], found
    # it lies within gaps of the loop, and these tell its name; but for one that was under way at the edges,
    # and where the kernel left a switch out
    assert found["inside"] >= 0.999 * found["traced"] - 1, found
    assert found["gaps"] > 0 and found["named"] >= 0.99 * found["gaps"] - 1, found


def test_an_interrupt_of_the_disk(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(os.urandom(1 << 20) * 80)
    os.sync()
    irq, action = _interrupt_of_the_disk_of(data)
    affinity = f"/proc/irq/{irq}/smp_affinity_list"
    with open(affinity) as file:
        before = file.read()
    try:
        with open(affinity, "w") as file:
            file.write(str(CPUS[1]))
        cpu = CPUS[1]
    except OSError:  # the kernel manages it: it is where it is
        with open(f"/proc/irq/{irq}/effective_affinity_list") as file:
            cpu = int(file.read())
        if cpu not in CPUS:
            pytest.skip(f"IRQ {irq} is managed, and not on CPUs {CPUS}")
    try:
        quiet = next(c for c in CPUS if c != cpu)
        found = made("irq", action, cpu, f"irq {irq}", READER, str(data), str(quiet))
    finally:
        try:
            with open(affinity, "w") as file:
                file.write(before)
        except OSError as error:
            assert error.errno in (1, 5), error  # managed, as above: it was not moved
    check(found, 100)
    assert found["elsewhere"] == 0


def _interrupt_of_the_disk_of(file: Path) -> tuple[str, str]:
    """Of the virtio disk that a file is on: the one interrupt that ends its requests, and its action."""
    device = os.stat(file).st_dev
    driver = os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    found = re.findall(r"/(virtio\d+)/", driver)
    with open("/proc/interrupts") as lines:
        for line in lines:
            if found and line.split()[-1:] == [f"{found[0]}-req.0"]:
                return line.split(":")[0].strip(), f"{found[0]}-req.0"
    pytest.skip("the folder for tests is on no virtio disk with an interrupt of its own")


@pytest.fixture
def veth() -> Iterator[str]:
    """The sending end of a pair of interfaces in a network namespace of this test's."""
    if not shutil.which("ip"):
        pytest.skip("needs ip")
    name = f"hwt{os.getpid() % 100000}"
    ends = ["ip", "link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b"]
    done = subprocess.run(ends, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no veth pair can be made: {done.stderr.strip()}")
    try:
        for end in "ab":
            subprocess.run(["ip", "link", "set", f"{name}{end}", "up"], check=True)
        yield name
    finally:
        subprocess.run(["ip", "link", "delete", f"{name}a"], check=True)


def test_softirqs_of_received_packets(veth: str) -> None:
    """What is sent on one CPU is received on the other (RPS)."""
    quiet, cpu = CPUS
    with open(f"/sys/class/net/{veth}b/queues/rx-0/rps_cpus", "w") as file:
        file.write(f"{1 << cpu:x}")
    check(made("softirq", "NET_RX", cpu, "softirq NET_RX", SENDER, f"{veth}a", str(quiet)), 100)


def test_page_faults_of_a_neighbour() -> None:
    found = made("page-fault", "", CPUS[1], "faults", FAULTS, str(CPUS[1]))
    check(found, 1000)
    assert found["elsewhere"] == 0
