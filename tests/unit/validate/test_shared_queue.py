"""The shared queue from Python: both ends in one process, and in two of which one is killed."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hwtune._native import QueueConsumer, QueueProducer, SharedQueue

TICK = np.dtype([("bid", "f8"), ("ask", "f8"), ("size", "u4"), ("side", "u4")])  # 24 bytes
DEADLINE_S = 60.0


@pytest.fixture
def path():
    place = Path(f"/dev/shm/hwtune-test-{os.getpid()}")
    yield place
    place.unlink(missing_ok=True)


def push(producer: QueueProducer, number: int) -> bool:
    payload = producer.claim()
    if payload is None:
        return False
    tick = payload.view(TICK)
    tick["bid"], tick["ask"], tick["size"], tick["side"] = number / 4, number / 2, number, number % 2
    producer.commit(number)
    return True


def pop(consumer: QueueConsumer) -> tuple[int, float, float, int, int] | None:
    payload = consumer.front()
    if payload is None:
        return None
    (tick,) = payload.view(TICK)
    message = (consumer.number, *tick.item())
    consumer.release()
    return message


def expected(number: int) -> tuple[int, float, float, int, int]:
    return (number, number / 4, number / 2, number, number % 2)


def test_messages_are_written_and_read_in_place(path):
    with SharedQueue.create(path, message_bytes=32, capacity=4).producer() as producer:
        with SharedQueue.open(path).consumer() as consumer:
            for number in range(30):
                assert pop(consumer) is None
                assert push(producer, number)
                assert pop(consumer) == expected(number)
            for number in range(4):
                assert push(producer, number)
            assert not push(producer, 4)
            assert producer.backlog() == producer.capacity == consumer.capacity == 4
            assert consumer.peer() == producer.peer() == "present"
        assert producer.peer() == "closed"


def test_views_are_the_slot_itself(path):
    queue = SharedQueue.create(path, message_bytes=16, capacity=1)
    producer, consumer = queue.producer(), queue.consumer()
    payload = producer.claim()
    assert payload.dtype == np.uint8
    assert payload.shape == (producer.payload_bytes,) == (8,)
    producer.commit(0)
    seen = consumer.front()
    payload[3] = 77  # as no program should: to show that there is one memory
    assert seen[3] == 77
    assert path.read_bytes()[-5] == 77
    assert not seen.flags.writeable


def test_a_view_outlives_its_end():
    with SharedQueue.anonymous(message_bytes=16, capacity=1).producer() as producer:
        payload = producer.claim()
    del producer
    gc.collect()
    payload[:] = 1
    assert payload.sum() == 8


def test_misuse_is_an_error_and_publishes_nothing():
    queue = SharedQueue.anonymous(message_bytes=16, capacity=2)
    producer, consumer = queue.producer(), queue.consumer()
    with pytest.raises(ValueError, match="without a slot"):
        producer.commit(1)
    with pytest.raises(ValueError, match="without a message"):
        consumer.release()
    with pytest.raises(ValueError, match="without a message"):
        _ = consumer.number
    producer.claim()
    for bad in (2**63, 2**64 - 1):
        with pytest.raises(ValueError, match="below 2"):
            producer.commit(bad)
    with pytest.raises(TypeError):
        producer.commit(-1)
    assert consumer.front() is None
    producer.commit(2**63 - 1)
    assert consumer.front() is not None
    assert consumer.number == 2**63 - 1
    with pytest.raises(ValueError, match="without a slot"):
        producer.commit(1)
    consumer.release()
    with pytest.raises(ValueError, match="without a message"):
        consumer.release()

    producer.close()
    producer.close()
    assert producer.closed
    for use in (producer.claim, producer.peer, producer.backlog):
        with pytest.raises(ValueError, match="closed"):
            use()
    with pytest.raises(ValueError, match="closed"):
        _ = producer.capacity


def test_an_end_that_is_taken_and_a_file_that_is_there(path):
    queue = SharedQueue.create(path, message_bytes=16, capacity=2)
    producer = queue.producer()
    with pytest.raises(OSError, match="already has a producer") as taken:
        SharedQueue.open(path).producer()
    assert taken.value.errno == errno.EBUSY
    producer.close()
    SharedQueue.open(path).producer().close()
    with pytest.raises(FileExistsError):
        SharedQueue.create(path, message_bytes=16, capacity=2)


def test_what_is_no_queue_is_refused(path, tmp_path):
    for size, capacity in ((0, 2), (12, 2), (16, 0), (16, 3)):
        with pytest.raises(ValueError, match="must"):
            SharedQueue.create(path, message_bytes=size, capacity=capacity)
    assert not path.exists()
    other = tmp_path / "text"
    other.write_text("a" * 9000)
    with pytest.raises(ValueError, match="is no queue"):
        SharedQueue.open(other)
    link = tmp_path / "link"
    SharedQueue.create(path, message_bytes=16, capacity=2)
    link.symlink_to(path)
    with pytest.raises(OSError, match="cannot open") as refused:
        SharedQueue.open(link)
    assert refused.value.errno == errno.ELOOP
    with pytest.raises(OSError, match="no queue"):
        SharedQueue.from_descriptor(-1)


# Runs in the other process: `end` is taken, "ready" is said.
SETUP = """
import sys, time
from tests.unit.validate.test_shared_queue import expected, pop, push
from hwtune._native import SharedQueue
where = sys.argv[1]
queue = SharedQueue.open(where) if where[0] == "/" else SharedQueue.from_descriptor(int(where))
"""
PRODUCE = """
producer = queue.producer()
number = 0
while number < int(sys.argv[2]):
    number += push(producer, number)
payload = producer.claim()
while payload is None:
    payload = producer.claim()
payload[:] = 255
print("ready", flush=True)
time.sleep(600)
"""
CONSUME = """
consumer = queue.consumer()
seen = 0
while seen < int(sys.argv[2]):
    message = pop(consumer)
    if message is not None:
        assert message == expected(seen)
        seen += 1
print("ready", flush=True)
time.sleep(600)
"""


class Other:
    """A process that runs `code`, and is killed at the end at the latest."""

    def __init__(self, code: str, *arguments: object, pass_fds: tuple[int, ...] = ()) -> None:
        argv = [sys.executable, "-c", SETUP + code, *map(str, arguments)]
        root = Path(__file__).parents[3]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=root, pass_fds=pass_fds)

    def __enter__(self) -> Other:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def ready(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        self.process.kill()
        assert self.process.wait() == -signal.SIGKILL


def take(consumer: QueueConsumer, first: int, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    for number in range(first, first + count):
        while (message := pop(consumer)) is None:
            assert time.monotonic() < deadline
        assert message == expected(number)


def test_a_producer_in_another_process_is_killed_and_replaced(path):
    queue = SharedQueue.create(path, message_bytes=32, capacity=16)
    with queue.consumer() as consumer:
        assert consumer.peer() == "absent"
        with Other(PRODUCE, path, 100) as other:
            take(consumer, 0, 95)
            other.ready()
            assert consumer.peer() == "present"
            other.kill()
            assert consumer.peer() == "crashed"
        with SharedQueue.open(path).producer() as producer:
            assert consumer.peer() == "present"
            assert push(producer, 100)
            take(consumer, 95, 6)  # what it had committed, not what it was writing
            assert pop(consumer) is None
        assert consumer.peer() == "closed"


def test_a_consumer_in_another_process_is_killed_and_its_successor_misses_nothing():
    queue = SharedQueue.anonymous(message_bytes=32, capacity=64)
    with (
        queue.producer() as producer,
        Other(CONSUME, queue.fileno(), 70, pass_fds=(queue.fileno(),)) as other,
    ):
        deadline = time.monotonic() + DEADLINE_S
        for number in range(90):
            while not push(producer, number):
                assert time.monotonic() < deadline
        other.ready()
        assert producer.peer() == "present"
        other.kill()
        assert producer.peer() == "crashed"
        consumer = queue.consumer()
        first = pop(consumer)
        assert first is not None
        assert 70 - 8 < first[0] <= 70  # it tells of every eighth of 64, or sooner
        take(consumer, first[0] + 1, 89 - first[0])
        assert pop(consumer) is None
