"""Noise of known make beside a measurement by ``hwtune jitter``: `python -m tests.support.made_noise KIND`.

Each maker writes down by CLOCK_MONOTONIC when it disturbed, so that what jitter found is compared with what
was really done, however loaded the machine is. Prints one JSON object. Exit status 77: it cannot be made
here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from typing import TYPE_CHECKING

import numpy as np

from hwtune.jitter.analysis import analyse
from hwtune.jitter.measure import measure
from hwtune.jitter.plan import Plan
from hwtune.profile import load
from hwtune.tracing import Attribution, Outlier, kinds

if TYPE_CHECKING:
    from collections.abc import Callable

CANNOT = 77
SECONDS = 4.0
COMM = "known-noise"


def cannot(why: str) -> None:
    print(why, file=sys.stderr)
    sys.exit(CANNOT)


# -- what the makers do, each in a process of its own

FIFO = """
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
due = time.monotonic()
while due < end:
    due += 0.1
    time.sleep(max(0, due - time.monotonic()))
    begun = time.monotonic_ns()
    while time.monotonic_ns() < begun + 300_000:
        pass
    did.append((begun, time.monotonic_ns()))
"""

# A frame with an IPv4 packet in it, as only those have a flow's hash that RPS steers by.
PACKETS = """
import socket, subprocess
near = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
near.bind(("made0", 0))
packet = bytes.fromhex("4500002e000000004011") + bytes(2) + bytes([10, 9, 0, 1, 10, 9, 0, 2])
packet += bytes.fromhex("10e110e1001a0000") + bytes(18)
frame = bytes.fromhex(argument.replace(":", "")) + bytes.fromhex("0200000000010800") + packet
while time.monotonic() < end:
    begun = time.monotonic_ns()
    near.send(frame)
    did.append((begun, time.monotonic_ns() + 2_000_000))  # it may come behind the call
    time.sleep(0.004)
"""

_AROUND = """
import json, os, sys, time
cpu, seconds, argument = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
os.sched_setaffinity(0, [cpu])
open("/proc/self/comm", "w").write({comm!r})
end = time.monotonic() + seconds
did = []
print("ready", flush=True)
{body}
print(json.dumps(did))
"""


class Noise:
    """A maker's process. ``did`` waits for its end."""

    def __init__(self, body: str, cpu: int, argument: str = "", around: tuple[str, ...] = ()) -> None:
        code = _AROUND.format(comm=COMM, body=body)
        # longer than the measurement, so that it begins before and ends after it
        argv = [*around, sys.executable, "-c", code, str(cpu), str(SECONDS + 4), argument]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._out = self._process.stdout
        if self._out.readline() != "ready\n":
            cannot(f"the maker did not begin (status {self._process.wait()})")

    @property
    def pid(self) -> int:
        return self._process.pid

    def did(self) -> np.ndarray:
        told = self._out.read()
        assert self._process.wait() == 0
        return np.array(json.loads(told), np.int64).reshape(-1, 2)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


# -- what was found

SWITCH, IPI, FAULT = (kinds.KINDS.index(kind) for kind in (kinds.SWITCH, kinds.IPI, kinds.PAGE_FAULT))


class Found:
    """One CPU: its spans of the noise and its gaps, in ticks since the loop began."""

    def __init__(self, measured, cpu: int, chosen: Callable) -> None:
        self.measured, self.cpu = measured, cpu
        self.spun = measured.spun[cpu]
        result = self.spun.result
        self.rate = measured.clock.ns_per_tick
        self.begin = result.started_ticks
        self.end = self.begin + int(result.duration_ns / self.rate)
        self.trace = measured.recording.cpus[cpu]
        spans = self.trace.spans
        mine = chosen(spans, measured.recording.names)
        mine &= (spans.start >= self.begin) & (spans.end <= self.end)
        self.place = np.nonzero(mine)[0]
        self.starts = self.begin + (result.gap_starts_ns / self.rate).astype(np.int64)
        self.ends = self.starts + np.ceil(result.gap_lengths_ns / self.rate).astype(np.int64) + 2

    def done_here(self, did: np.ndarray) -> np.ndarray:
        """Of what the maker did, [begin, end] in ticks, the part within the loop's time."""
        offset = self.spun.result.started_ns
        ticks = self.begin + ((did - offset) / self.rate).astype(np.int64)
        return ticks[(ticks[:, 0] >= self.begin) & (ticks[:, 1] <= self.end)]

    def matched(self, done: np.ndarray, slack_ns: float = 20_000) -> int:
        """Of these times how many share a moment with a span of the noise; the two clocks were read a little
        apart. Spans of one kind of noise don't overlap."""
        spans, slack = self.trace.spans, int(slack_ns / self.rate)
        first = np.searchsorted(np.sort(spans.end[self.place]), done[:, 0] - slack)
        last = np.searchsorted(np.sort(spans.start[self.place]), done[:, 1] + slack)
        return int(np.count_nonzero(last > first))

    def gaps(self) -> tuple[np.ndarray, int]:
        """(gaps that hold a span of the noise, spans that lie in no gap)."""
        if not len(self.starts):
            return np.zeros(0, np.int64), len(self.place)
        spans = self.trace.spans
        gap = np.searchsorted(self.starts, spans.start[self.place], "right") - 1
        inside = (gap >= 0) & (self.ends[np.maximum(gap, 0)] >= spans.end[self.place])
        return np.unique(gap[inside]), int(np.count_nonzero(~inside))

    def causes(self, gaps: np.ndarray) -> list:
        own = frozenset(spun.thread for spun in self.measured.spun.values())
        outliers = [Outlier((self.cpu,), int(self.starts[g]), int(self.ends[g])) for g in gaps]
        return Attribution(self.measured.recording, own=own).causes(outliers)


def run(cpus: dict[str, int]):
    measured = measure(Plan(sorted(cpus.values()), SECONDS, None, False, ""), lambda elapsed: None)
    if not measured.recording.traced:
        cannot(measured.recording.why)
    return measured


def told(
    measured, cpus: dict[str, int], did: np.ndarray, chosen: Callable, named: Callable, only: Callable
) -> dict:
    """``chosen(spans, names)``: which spans are the noise's; ``named(cause)``: whether it is blamed;
    ``only(cause)``: whether nothing else had a share."""
    judged = {c.cpu: c for c in analyse(measured, load("low-latency", ()).jitter, None)}
    out = {}
    for role, cpu in cpus.items():
        found = Found(measured, cpu, chosen)
        done = found.done_here(did)
        gaps, outside = found.gaps()
        causes = found.causes(gaps)
        alone = [c for c in causes if only(c)]
        out[role] = {
            "done": len(done),
            "matched": found.matched(done),
            "spans": len(found.place),
            "outside": outside,
            "gaps": len(gaps),
            "alone": len(alone),
            "alone_named": sum(map(named, alone)),
            "others": sorted({c.name for c in alone if not named(c)}),
            "blamed": sum(c.outliers for c in judged[cpu].causes if named(c)),
            "causes": [(c.kind, c.name, c.outliers, c.rows) for c in judged[cpu].causes],
            "coverage": judged[cpu].coverage,
            "minor_faults": judged[cpu].minor_faults,
            "lost": measured.spun[cpu].result.lost + found.trace.events_lost,
        }
    return out


# -- the kinds


def fifo(cpus: dict[str, int]) -> dict:
    noise = Noise(FIFO, cpus["noisy"])
    try:
        measured = run(cpus)
        did = noise.did()
    finally:
        noise.stop()
    return told(
        measured,
        cpus,
        did,
        lambda spans, names: (spans.kind == SWITCH) & (spans.pid == noise.pid),
        lambda c: (c.kind, c.name) == (kinds.SWITCH, COMM),
        lambda c: {s.pid for s in c.shares if s.kind == kinds.SWITCH} == {noise.pid},
    )


def softirq(cpus: dict[str, int]) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        # a network of its own, gone with its last process
        mask = f"{1 << cpus['noisy']:x}"
        script = (
            "ip link add made0 type veth peer name made1 && ip link set made0 up && ip link set made1 up && "
            f"mount -t sysfs sysfs {folder} && "
            f"echo {mask} > {folder}/class/net/made1/queues/rx-0/rps_cpus && "
            f'address=$(cat {folder}/class/net/made1/address) && exec "$1" "$2" "$3" "$4" "$5" "$address"'
        )
        around = ("unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", script, "sh")
        noise = Noise(PACKETS, cpus["quiet"], "", around)
        try:
            measured = run(cpus)
            did = noise.did()
        finally:
            noise.stop()
    names = measured.recording.names
    return told(
        measured,
        cpus,
        did,
        # the sender's own CPU has a NET_RX too, in which it sends the IPI: that is no noise of another's
        lambda spans, _: _named(spans, names, IPI, "single function call (rps_trigger_softirq)"),
        lambda c: c.kind == kinds.IPI and "rps_trigger_softirq" in c.name,
        lambda c: all(
            (s.kind, s.name) == (kinds.SOFTIRQ, "NET_RX") or "rps_trigger_softirq" in s.name for s in c.shares
        ),
    )


def fault(cpus: dict[str, int]) -> dict:
    """A fork makes every page of the process copy-on-write: the loop's next write to each is a fault. So the
    other CPU's loop is in a process of its own."""
    did: list[int] = []
    ended = threading.Event()

    def forks() -> None:
        os.sched_setaffinity(0, [cpus["quiet"]])
        while not ended.wait(0.02):
            did.append(time.monotonic_ns())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)

    beside = subprocess.Popen(
        [sys.executable, "-m", "tests.support.made_noise", "undisturbed"], stdout=subprocess.PIPE, text=True
    )
    maker = threading.Thread(target=forks)
    maker.start()
    try:
        measured = run({"noisy": cpus["noisy"]})
    finally:
        ended.set()
        maker.join()
        quiet = beside.communicate()[0]
    until = np.array([*did[1:], did[-1] + 20_000_000], np.int64)
    out = _faults(measured, {"noisy": cpus["noisy"]}, np.stack((np.array(did), until), axis=1))
    return out | json.loads(quiet)


def undisturbed(cpus: dict[str, int]) -> dict:
    quiet = {"quiet": cpus["quiet"]}
    return _faults(run(quiet), quiet, np.zeros((0, 2), np.int64))


def _faults(measured, cpus: dict[str, int], did: np.ndarray) -> dict:
    own = [spun.thread for spun in measured.spun.values()]
    return told(
        measured,
        cpus,
        did,
        lambda spans, names: (spans.kind == FAULT) & np.isin(spans.pid, own),
        lambda c: c.kind == kinds.PAGE_FAULT,
        lambda c: not c.shares,
    )


def _named(spans, names: list[str], kind: int, begin: str) -> np.ndarray:
    numbers = [i for i, name in enumerate(names) if name.startswith(begin)]
    return (spans.kind == kind) & np.isin(spans.name, numbers)


KINDS = {"fifo": fifo, "softirq": softirq, "fault": fault, "undisturbed": undisturbed}

if __name__ == "__main__":
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        cannot("needs two CPUs")
    # above the load of a machine that others use, whose tasks would be in every gap; threads and makers
    # inherit it
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    print(json.dumps(KINDS[sys.argv[1]]({"quiet": allowed[0], "noisy": allowed[1]})))
