"""The whole way from a folder that does as tracefs does to causes, and how it ends."""

from __future__ import annotations

import errno
import os
import signal

import pytest

from hwtune import _native as native
from hwtune.tracing import Outlier, Terminated, attribute, instance, watch, watching
from hwtune.tracing.counters import read
from tests.support import trace_pages as tp
from tests.support import tree
from tests.support.fake_tracefs import FakeKernel
from tests.support.trace_pages import Record

HOT = 77
MEMINFO = "MemTotal: 99999999 kB\nMemAvailable:   64000000 kB\n"


@pytest.fixture(scope="module")
def clock() -> native.Clock:
    return native.make_clock()


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    found = FakeKernel(tmp_path / "sys/kernel/tracing")
    found.install(monkeypatch)
    monkeypatch.setattr(instance, "_REMOVE_WAIT_S", 0)
    monkeypatch.setattr(instance, "_available_kb", lambda: 8 << 20)
    tree(tmp_path, {"/sys/devices/system/cpu/online": "0-3\n"})
    return found


def the_trace_clock(clock) -> int:
    """Now, in the units of the trace clock that belongs to the run's clock."""
    assert clock.source in ("tsc", "monotonic_raw")  # of AArch64's the conversion is tested below
    return clock.ticks()


def test_from_files_to_causes(kernel, tmp_path, clock):
    if clock.source == "cntvct":
        pytest.skip("the trace clock has other units here")
    with watch([1], clock, root=str(tmp_path)) as watched:
        assert watched.traced
        assert watched.why == ""
        assert watched.buffer_kb == 3 * 1408 + watching.BUFFER_KB
        now = the_trace_clock(clock)
        (name,) = kernel.instances()
        records = [
            Record(now + 100, "irq:irq_handler_entry", HOT, (36, "virtio1-req.0")),
            Record(now + 900, "irq:irq_handler_exit", HOT, (36, 1)),
        ]
        pipe = kernel.place / "instances" / name / "per_cpu/cpu1/trace_pipe_raw"
        pipe.write_bytes(tp.pages(records))
        while clock.ticks() < now + 1000:  # the watch ends after what it saw
            pass
    assert kernel.instances() == []
    recording = watched.recording
    assert recording.cpus[1].events == 2
    cause = attribute(recording, [Outlier((1,), now, now + 1000)])[0]
    assert cause.name == "IRQ 36 virtio1-req.0"
    assert cause.explained_ns == int(800 * clock.ns_per_tick)


def test_pages_that_are_drained_are_kept(kernel, tmp_path, clock):
    with watch([1], clock, root=str(tmp_path)) as watched:
        (name,) = kernel.instances()
        pipe = kernel.place / "instances" / name / "per_cpu/cpu1/trace_pipe_raw"
        for i in range(3):
            records = [Record(10 + i, "irq:softirq_entry", HOT, (1,))]
            with pipe.open("ab") as file:
                file.write(tp.pages(records))
            watched.drain()
        with pytest.raises(RuntimeError, match="goes on"):
            _ = watched.recording
    assert watched.recording.cpus[1].events == 3


def test_memory_is_bounded(kernel, tmp_path, clock, monkeypatch):
    monkeypatch.setattr(watching, "KEPT_BYTES", 2 * tp.PAGE)
    with watch([1], clock, root=str(tmp_path)) as watched:
        (name,) = kernel.instances()
        pipe = kernel.place / "instances" / name / "per_cpu/cpu1/trace_pipe_raw"
        for i in range(5):
            with pipe.open("ab") as file:
                file.write(tp.pages([Record(10 + i, "irq:softirq_entry", HOT, (1,))]))
            watched.drain()
    trace = watched.recording.cpus[1]
    assert trace.events == 2
    assert trace.events_lost > 0
    assert "not recorded" in " ".join(watched.recording.notes)


def test_lost_events_are_told(kernel, tmp_path, clock):
    kernel.overrun = 17
    with watch([1, 2], clock, root=str(tmp_path)) as watched:
        pass
    assert "CPU 1-2: 34 events were lost" in " ".join(watched.recording.notes)


def test_what_this_kernel_cannot_tell(kernel, tmp_path, clock):
    (kernel.place / "events/nmi/nmi_handler/format").unlink()
    (kernel.place / "events/sched/sched_switch/format").write_text("nonsense")
    with watch([1], clock, root=str(tmp_path)) as watched:
        pass
    notes = " ".join(watched.recording.notes)
    assert "no events for task switches, NMIs" in notes
    assert "does not understand, so left out: sched:sched_switch" in notes


class Stop(Exception):
    pass


def test_removed_after_an_exception(kernel, tmp_path, clock):
    with pytest.raises(Stop), watch([1], clock, root=str(tmp_path)):
        raise Stop
    assert kernel.instances() == []


@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated), (signal.SIGHUP, Terminated)],
)
def test_removed_after_a_signal(kernel, tmp_path, clock, number, error):
    handler = signal.getsignal(number)
    with pytest.raises(error), watch([1], clock, root=str(tmp_path)) as watched:
        os.kill(os.getpid(), number)
        raise AssertionError("the signal came to nothing")
    assert kernel.instances() == []
    assert watched.recording.traced
    assert signal.getsignal(number) is handler


@pytest.mark.parametrize(
    "place", ["tracing_cpumask", "trace_clock", "sched_switch/enable", "cpu1/buffer_size_kb"]
)
def test_removed_where_the_setup_fails(kernel, tmp_path, clock, place):
    kernel.refuses[place] = errno.EPERM
    with watch([1], clock, root=str(tmp_path)) as watched:
        assert not watched.traced
    assert kernel.instances() == []
    assert "refuse" in watched.recording.why or "root" in watched.recording.why
    assert not watched.recording.traced


def test_a_signal_while_it_is_set_up_comes_afterwards(kernel, tmp_path, clock, monkeypatch):
    prepare = instance.Instance.prepare

    def interrupted(self, *arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return prepare(self, *arguments)

    monkeypatch.setattr(instance.Instance, "prepare", interrupted)
    with pytest.raises(Terminated), watch([1], clock, root=str(tmp_path)):
        raise AssertionError("the signal came to nothing")
    assert kernel.instances() == []


def test_counters_without_a_trace(tmp_path, clock):
    tree(tmp_path, {"/proc/softirqs": "      CPU0   CPU1\n  NET_RX:  1  5\n"})
    (tmp_path / "sys/kernel/tracing").mkdir(parents=True)
    with watch([1], clock, root=str(tmp_path)) as watched:
        tree(tmp_path, {"/proc/softirqs": "      CPU0   CPU1\n  NET_RX:  1  9\n"})
    recording = watched.recording
    assert not recording.traced
    assert recording.why
    assert [(f.name, f.count) for f in recording.counted.cpus[0].fired] == [("NET_RX", 4)]
    assert attribute(recording, [Outlier((1,), 0, 5)])[0].kind == "not-recorded"


def test_the_leavings_of_a_killed_run_are_told(kernel, tmp_path, clock):
    kernel.add_instance("hwtune-999999999-5")
    with watch([1], clock, root=str(tmp_path)) as watched:
        pass
    assert "removed the trace instance hwtune-999999999-5" in watched.recording.notes[0]


class Ticks:
    """A clock of AArch64: 25 ticks a microsecond, from its own zero."""

    source = "cntvct"
    ns_per_tick = 40.0

    def ticks(self) -> int:
        import time

        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) // 40 + 1_000_000


def test_a_clock_that_the_kernel_does_not_trace_with(kernel, tmp_path):
    """Times are brought from CLOCK_MONOTONIC_RAW to the run's ticks."""
    import time

    clock = Ticks()
    with watch([1], clock, root=str(tmp_path)) as watched:
        (name,) = kernel.instances()
        assert "[mono_raw]" in (kernel.place / "instances" / name / "trace_clock").read_text()
        raw = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        records = [
            Record(raw, "irq:softirq_entry", HOT, (1,)),
            Record(raw + 400_000, "irq:softirq_exit", HOT, (1,)),
        ]
        pipe = kernel.place / "instances" / name / "per_cpu/cpu1/trace_pipe_raw"
        pipe.write_bytes(tp.pages(records))
        time.sleep(0.02)
    spans = watched.recording.cpus[1].spans
    assert abs(int(spans.start[0]) - (raw // 40 + 1_000_000)) < 250  # 10 microseconds
    assert abs(int(spans.end[0] - spans.start[0]) - 10_000) < 50


def test_reading_counters_needs_nothing(tmp_path):
    assert read([0], str(tmp_path)).sources is None
